package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// Find gives the mark for exactly this key and place, an Acceptance mark before an Informative one; ok is false where
// there is none. A part of the place that is not known matches no mark.
func Find(k Key, at Place) (p Profile, ok bool) {
	for _, kind := range []Kind{Acceptance, Informative} {
		for _, p := range profiles {
			if p.Kind == kind && p.Key == k.normal() && p.Place.holds(at) {
				return p, true
			}
		}
	}
	return Profile{}, false
}

// holds says whether a mark for this place is one for another: all but the flavor must be alike.
func (p Place) holds(at Place) bool {
	at.Flavor, at.Imitates = "", ""
	if at.Nodes == 1 {
		at.Transport = ""
	}
	return p == at
}

// Nearest says in words why no mark was found: which mark is the nearest, what differs, and what to measure. The lines
// are at most 200 bytes each and at most three.
func Nearest(measured []Measurement, at Place, who audience.Audience) []string {
	p, ok := nearestProfile(at)
	if !ok {
		model := at.Model
		if !known(model) {
			model = "GPUs of an unknown model"
		}
		return []string{limited(fmt.Sprintf("no built-in reference is known for %s over %s: %s",
			model, nodesText(at.Nodes), ownThresholds.For(who)))}
	}
	lines := []string{limited(fmt.Sprintf("the nearest reference, %s, is %s for %s with %s",
		p.Name, units.Bandwidth(p.MarkMBps), p.Key, p.Place.text()))}
	d := placeDiffers(p.Place, at)
	if len(d) > 0 {
		text := "it is for another place: " + strings.Join(d, ", ")
		if at.Nodes != 1 || !p.Place.withRanks(at.Ranks).holds(at) {
			fixed := audience.Advice{Pod: ", which benchmark cannot change", Shell: ", which no flag can change"}
			return append(lines, limited(text+fixed.For(who)), ownThresholds.For(who))
		}
		lines = append(lines, limited(text+ranksSetting.For(who)))
	}
	return append(lines, keyDiffers(p.Key, measured, who))
}

var (
	ranksSetting = audience.Advice{Pod: " (spec.ranksPerNode)", Shell: " (--ranks)"}
	// ownThresholds is what to do where no mark can be reached.
	ownThresholds = audience.Advice{
		Pod:   "set benchmark.thresholds of your own, or go by benchmark.regression",
		Shell: "compare with an earlier report of this machine, or with another machine of its kind",
	}
)

func (p Place) withRanks(n int) Place {
	p.Ranks = n
	return p
}

// nearestProfile is the Acceptance mark of the model with the fewest other differences.
func nearestProfile(at Place) (Profile, bool) {
	var best Profile
	found, fewest := false, 0
	for _, p := range profiles {
		if p.Kind != Acceptance || p.Place.Model != at.Model || (p.Place.Nodes > 1) != (at.Nodes > 1) {
			continue
		}
		if n := len(placeDiffers(p.Place, at)); !found || n < fewest {
			best, found, fewest = p, true, n
		}
	}
	return best, found
}

func (p Place) text() string {
	text := fmt.Sprintf("%d ranks on %s of %s", p.Ranks, nodesText(p.Nodes), p.Model)
	if known(p.Partition) && p.Partition != "NotApplicable" {
		text += " in " + p.Partition
	}
	if p.Transport != "" {
		text += " over " + p.Transport
	}
	return text
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// placeDiffers lists how a place differs from that of a mark.
func placeDiffers(want, at Place) []string {
	var out []string
	text := func(what, want, have string) {
		if want != "" && want != have {
			out = append(out, fmt.Sprintf("%s %s instead of %s", what, cmp.Or(have, "unknown"), want))
		}
	}
	number := func(what string, want, have int) {
		if want != 0 && want != have {
			out = append(out, fmt.Sprintf("%d %s instead of %d", have, what, want))
		}
	}
	text("model", want.Model, at.Model)
	text("partition", want.Partition, at.Partition)
	number("ranks", want.Ranks, at.Ranks)
	number("nodes", want.Nodes, at.Nodes)
	text("transport", want.Transport, at.Transport)
	return out
}

// keyDiffers says what was measured instead of a key, and how to measure it.
func keyDiffers(k Key, measured []Measurement, who audience.Audience) string {
	var largest int64
	var datatypes []rcclx.Datatype
	var placements []rcclx.Placement
	for _, m := range measured {
		if m.Collective != k.Collective || m.normal().Variant != k.Variant {
			continue
		}
		largest = max(largest, m.SizeBytes)
		if !slices.Contains(datatypes, m.Datatype) {
			datatypes = append(datatypes, m.Datatype)
		}
		if place := m.normal().Placement; !slices.Contains(placements, place) {
			placements = append(placements, place)
		}
	}
	if largest == 0 {
		advice := audience.Advice{
			Pod: fmt.Sprintf("add it to benchmark.collectives, with benchmark.datatypes %s, placements %s and "+
				"maxSizeBytes %d", k.Datatype, k.Placement, k.SizeBytes),
			Shell: fmt.Sprintf("give --collectives %s --datatypes %s --placements %s --sizes %d",
				k.Collective, k.Datatype, k.Placement, k.SizeBytes),
		}
		return limited(fmt.Sprintf("%s was not measured: %s", k.Collective, advice.For(who)))
	}
	var fields, flags []string
	if !slices.Contains(datatypes, k.Datatype) {
		fields, flags = append(fields, fmt.Sprintf("datatypes: [%s]", k.Datatype)),
			append(flags, "--datatypes "+string(k.Datatype))
	}
	if !slices.Contains(placements, k.Placement) {
		fields, flags = append(fields, fmt.Sprintf("placements: [%s]", k.Placement)),
			append(flags, "--placements "+string(k.Placement))
	}
	if largest != k.SizeBytes {
		fields = append(fields, fmt.Sprintf("a size of %d B (the largest was %d B)", k.SizeBytes, largest))
		flags = append(flags, fmt.Sprintf("--sizes %d (the largest was %d B)", k.SizeBytes, largest))
	}
	if len(fields) == 0 {
		return "exactly this was not measured: no rank gave a time, or it was measured in another combination"
	}
	advice := audience.Advice{Pod: "measure in benchmark: " + strings.Join(fields, ", "),
		Shell: "give " + strings.Join(flags, " ")}
	return limited("to compare, " + advice.For(who))
}

// limited cuts a line to what the API takes of one.
func limited(s string) string { return cut(s, maxCauseBytes) }

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "..."
	return strings.ToValidUTF8(s[:limit-len(ellipsis)], "") + ellipsis
}
