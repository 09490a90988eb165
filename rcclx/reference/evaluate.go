package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// Mode says what a comparison does to a verdict.
type Mode string

// The modes. Enforce decides the verdict, Report is only shown.
const (
	Off     Mode = "Off"
	Report  Mode = "Report"
	Enforce Mode = "Enforce"
)

// State of one comparison.
type State string

// The states. NotMeasured is never a pass where the comparison is enforced.
const (
	Met         State = "Met"
	NotMet      State = "NotMet"
	NotMeasured State = "NotMeasured"
)

// SourceSpec is where a user's own thresholds come from.
const SourceSpec = "spec"

// Threshold is a user's least bus bandwidth for one kind of measurement. What is empty or zero in Place matches
// anything.
type Threshold struct {
	Key   Key
	Place Place
	// MinMBps is the least bus bandwidth, in 10^6 bytes per second; or MinPercent is the least share of the built-in
	// reference for exactly this kind. The other one is zero.
	MinMBps    int64
	MinPercent int
}

// Input is what Evaluate judges: one communicator's measurements, or those of several alike.
type Input struct {
	Place        Place
	Measurements []Measurement
	// Thresholds of this span.
	Thresholds []Threshold
	// References: what a mark that is not reached does. An empty mode enforces.
	References Mode
	// Part is set for communicators that ran beside others, as those of a mesh do: thresholds hold for them only where
	// they name ranks or nodes, and no mark does, since marks are of a communicator that has the machines for itself.
	Part bool
	// Symptom is what else is known of the place, for likely causes; what concerns one measurement is filled in here.
	Symptom Symptom
}

// Check is one measurement held against what was expected. Measured, expected and percent are zero where there is no
// measurement, in 10^6 bytes per second.
type Check struct {
	Source      string `json:"source"`
	Measurement string `json:"measurement"`
	// Key of the measurement; zero where it is of none. In JSON the measurement's name has all of it.
	Key          Key   `json:"-"`
	State        State `json:"state"`
	Mode         Mode  `json:"mode"`
	MeasuredMBps int64 `json:"measuredMBps,omitempty"`
	ExpectedMBps int64 `json:"expectedMBps,omitempty"`
	Percent      int64 `json:"percent,omitempty"`
	// Causes to look at, the likeliest first; of what was not measured, why not and what to do.
	Causes []string `json:"causes,omitempty"`
}

// Evaluate holds the measurements against thresholds and references. The worst come first: see Worse.
func Evaluate(in Input) []Check {
	var out []Check
	var left []leftOut
	applied := map[Key]bool{}
	for _, t := range in.Thresholds {
		differs, unknown := t.Place.excludes(in.Place, in.Part)
		if len(differs) > 0 {
			left = append(left, leftOut{t.Key.normal(), differs})
			continue
		}
		applied[t.Key.normal()] = true
		if len(unknown) > 0 {
			c := unmeasured(t.Key, Enforce)
			c.Causes = []string{limited("whether the threshold applies is not known: it names " +
				strings.Join(unknown, ", "))}
			out = append(out, c)
			continue
		}
		out = append(out, in.threshold(t))
	}
	if !in.Part {
		out = append(out, notApplied(left, applied)...)
	}
	if in.References != Off && !in.Part {
		out = append(out, in.references()...)
	}
	slices.SortStableFunc(out, Worse)
	return out
}

// leftOut is a threshold that does not apply, and the keys that keep it away.
type leftOut struct {
	key     Key
	differs []string
}

// notApplied says of each measurement that thresholds are for, of which none applies, what keeps the nearest one away.
func notApplied(left []leftOut, applied map[Key]bool) []Check {
	var nearest []leftOut
	for _, l := range left {
		i := slices.IndexFunc(nearest, func(n leftOut) bool { return n.key == l.key })
		switch {
		case applied[l.key]:
		case i < 0:
			nearest = append(nearest, l)
		case len(l.differs) < len(nearest[i].differs):
			nearest[i] = l
		}
	}
	var out []Check
	for _, n := range nearest {
		c := unmeasured(n.key, Report)
		c.Causes = []string{limited("no threshold of the spec applies here: the nearest is for " +
			strings.Join(n.differs, ", "))}
		out = append(out, c)
	}
	return out
}

// Worse orders checks: what decides the verdict first, then what was not met, then by percent.
func Worse(a, b Check) int {
	return cmp.Or(cmp.Compare(Severity(a.State, a.Mode), Severity(b.State, b.Mode)), cmp.Compare(a.Percent, b.Percent))
}

// Severity of a check, the smaller the worse.
func Severity(s State, m Mode) int {
	n := map[State]int{NotMet: 0, NotMeasured: 1, Met: 4}[s]
	if s != Met && m != Enforce {
		n += 2
	}
	return n
}

// excludes lists the keys of a threshold that the place does not have, and those of which the place's value is not
// known, or mixed: then a part of it may be what the threshold names.
func (p Place) excludes(at Place, part bool) (differs, unknown []string) {
	text := func(what, want string, have ...string) {
		switch {
		case want == "" || slices.ContainsFunc(have, func(have string) bool { return names(want, have) }):
		case !known(have[0]):
			unknown = append(unknown, fmt.Sprintf("%s %s", what, want))
		case strings.EqualFold(have[0], mixed):
			unknown = append(unknown, fmt.Sprintf("%s %s, and this is %s", what, want, have[0]))
		default:
			differs = append(differs, fmt.Sprintf("%s %s, and this is %s", what, want, have[0]))
		}
	}
	number := func(what string, want, have int) {
		switch {
		case want == 0 || want == have:
		case have == 0:
			unknown = append(unknown, fmt.Sprintf("%d %s", want, what))
		default:
			differs = append(differs, fmt.Sprintf("%d %s, and these are %d", want, what, have))
		}
	}
	text("model", p.Model, at.Model)
	text("partition", p.Partition, at.Partition)
	number("ranks", p.Ranks, at.Ranks)
	number("nodes", p.Nodes, at.Nodes)
	if at.Nodes == 1 {
		at.Transport = "none, within one node"
	}
	text("transport", p.Transport, at.Transport)
	text("flavor", string(p.Flavor), string(at.Flavor), string(cmp.Or(at.Imitates, at.Flavor)))
	if part && p.Ranks == 0 && p.Nodes == 0 {
		differs = append(differs, "the whole group, since it names neither ranks nor nodes")
	}
	return differs, unknown
}

// names says whether a user's word is that of the place: without regard to case, and of a partition mode SPX/NPS1 one
// half will do.
func names(want, have string) bool {
	compute, memory, parted := strings.Cut(have, "/")
	return strings.EqualFold(want, have) ||
		parted && (strings.EqualFold(want, compute) || strings.EqualFold(want, memory))
}

// find gives the measurement of a key in any statistic.
func (in Input) find(k Key) (Measurement, bool) {
	k.Statistic = ""
	want := k.normal()
	i := slices.IndexFunc(in.Measurements, func(m Measurement) bool { return m.normal() == want })
	if i < 0 {
		return Measurement{}, false
	}
	return in.Measurements[i], true
}

// unmeasured is the check of a threshold without a measurement.
func unmeasured(k Key, mode Mode) Check {
	return Check{Source: SourceSpec, Measurement: fmt.Sprintf("%s, %s", k, statisticWords[cmp.Or(k.Statistic, Median)]),
		Key: k, State: NotMeasured, Mode: mode}
}

func (in Input) threshold(t Threshold) Check {
	key := t.Key.normal()
	m, ok := in.find(key)
	if !ok {
		c := unmeasured(key, Enforce)
		c.Causes = []string{limited("it was not measured: choose one of the measured sizes" + in.measuredSizes(key))}
		return c
	}
	source, least := SourceSpec, t.MinMBps
	if t.MinPercent > 0 {
		p, found := Find(key, in.Place)
		if !found {
			c := unmeasured(key, Enforce)
			c.Causes = append([]string{limited(fmt.Sprintf("%d %% of a reference is asked for, "+
				"and there is none for exactly this: set minBusBandwidthMBps instead", t.MinPercent))},
				Nearest(in.Measurements, in.Place, in.Symptom.Audience)...)
			return c
		}
		source = fmt.Sprintf("%s, %d %% of %s", SourceSpec, t.MinPercent, p.Name)
		least = (p.MarkMBps*int64(t.MinPercent) + 99) / 100
	}
	return in.compare(source, m, key.Statistic, least, least, Enforce)
}

// measuredSizes lists some sizes of the series that a key is of.
func (in Input) measuredSizes(k Key) string {
	var sizes []string
	for _, m := range in.Measurements {
		if m.series() == k.series() {
			sizes = append(sizes, fmt.Sprint(m.SizeBytes))
		}
	}
	if len(sizes) == 0 {
		return fmt.Sprintf("; nothing of %s %s %s %s was",
			cmp.Or(k.Variant, rcclx.Baseline), k.Collective, k.Datatype, cmp.Or(k.Placement, rcclx.OutOfPlace))
	}
	if n := len(sizes); n > 6 {
		sizes = append([]string{sizes[0], sizes[1], "..."}, sizes[n-3:]...)
	}
	return " (" + strings.Join(sizes, ", ") + ")"
}

// compare makes the check of a measurement that must reach pass; expected is what its percentage is of.
func (in Input) compare(source string, m Measurement, s Statistic, expected, pass int64, mode Mode) Check {
	c := Check{Source: source, Measurement: m.name(s), Key: m.Key, State: NotMeasured, Mode: mode}
	got := m.value(s)
	if got <= 0 {
		c.Causes = []string{"it has no bus bandwidth: no time, no size, or no second rank"}
		if m.MedianMBps > 0 {
			c.Causes = []string{fmt.Sprintf("the %s was not measured, only the median: the 5th percentile "+
				"takes at least 20 repeats within a measurement, and over several nodes only medians are kept",
				statisticWords[cmp.Or(s, Median)])}
		}
		return c
	}
	c.MeasuredMBps, c.ExpectedMBps, c.Percent = got, expected, got*100/expected
	if got >= pass {
		c.State = Met
		return c
	}
	c.State = NotMet
	c.Causes = Causes(in.symptom(m, got*100/pass))
	return c
}

// references holds what was measured against the published marks for exactly that; where no Acceptance mark could be,
// one more check says which is the nearest.
func (in Input) references() []Check {
	var out []Check
	compared := false
	mode := cmp.Or(in.References, Enforce)
	for _, p := range profiles {
		if p.Kind == NotComparable || !p.Place.holds(in.Place) {
			continue
		}
		m, ok := in.find(p.Key)
		if !ok {
			continue
		}
		if p.Kind == Acceptance {
			out = append(out, in.compare(p.Name, m, p.Key.Statistic, p.MarkMBps, p.MarkMBps, mode))
			compared = true
			continue
		}
		out = append(out, in.compare(p.Name, m, p.Key.Statistic, p.MarkMBps, p.MarkMBps*informativePercent/100, Report))
	}
	if !compared {
		c := Check{Source: "reference", Measurement: "no reference for exactly what was measured", State: NotMeasured,
			Mode: Report, Causes: Nearest(in.Measurements, in.Place, in.Symptom.Audience)}
		out = append(out, c)
	}
	return out
}
