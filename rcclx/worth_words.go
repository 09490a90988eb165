package rcclx

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
)

// The API's bounds of an advice's text.
const (
	maxRecommendBytes = 160
	maxAdviceBytes    = 512
)

// Advice is what the numbers say of one setting, collective and datatype, in words.
type Advice struct {
	Worth
	// Recommend is what to set; empty where the numbers do not tell.
	Recommend string
	Message   string
}

// Advise puts judgements into words.
func Advise(f Flavor, s Settings, all []Worth, job Job, ranks int) []Advice {
	dda := ChooseDDA(f, s, all)
	out := make([]Advice, 0, len(all))
	for _, w := range all {
		a := Advice{Worth: w}
		switch {
		case w.State == WorthUnknown:
		case w.Variant == DDA:
			a.Recommend = recommendDDA(f, s, &w)
		default:
			a.Recommend = "off"
			if lowPrecisionObjection(&w, all, dda, job) == "" && w.State == WorthYes {
				a.Recommend = "on"
			}
		}
		a.Message = w.sentences(f, s, a.Recommend, lowPrecisionObjection(&w, all, dda, job), job, ranks)
		out = append(out, a)
	}
	return out
}

// recommendDDA is what one collective and datatype alone would ask for.
func recommendDDA(f Flavor, s Settings, w *Worth) string {
	choice := ChooseDDA(f, s, []Worth{*w})
	if !choice.On {
		return "off"
	}
	text := ""
	if choice.FlatMaxBytes != nil &&
		(s.DDA.AllReduceFlatMaxBytes == nil || *choice.FlatMaxBytes != *s.DDA.AllReduceFlatMaxBytes) {
		text = fmt.Sprintf("%s=%d ", settingDDAFlat, *choice.FlatMaxBytes)
	}
	return fit(maxRecommendBytes, text+fmt.Sprintf("%s=%d", settingDDATree, *choice.TreeMaxBytes))
}

// sentences say why, the most important first; what does not fit is left out. objection is what stands against FP8.
func (w *Worth) sentences(f Flavor, s Settings, recommend, objection string, job Job, ranks int) string {
	var parts []string
	on := recommend != "" && recommend != "off"
	usable := job.UsabilityOf(w.Collective)
	if w.quantised() && usable.State == NotUsable { // whatever it gains
		parts = append(parts, capital(usable.Objection(w.Collective))+".")
	}
	parts = append(parts, w.summary())
	if w.quantised() {
		if w.ErrorPPM != nil {
			parts = append(parts, fmt.Sprintf("Its largest error is %s.", units.Percent(*w.ErrorPPM)))
		}
		if text := job.accepts(w.Collective); text != "" {
			parts = append(parts, capital(text)+".")
		}
	}
	switch {
	case w.Variant == LowPrecision && recommend == "off" && w.State == WorthYes && objection != "":
		parts = append(parts, "Off all the same: "+objection+".")
	case w.Variant == LowPrecision && w.Collective == AllGather && w.has(OutcomeLoses) &&
		w.worst().SizeBytes < lowPrecisionMinBytes:
		parts = append(parts,
			fmt.Sprintf("Below %s it goes peer to peer while FP8 is on.", units.Size(lowPrecisionMinBytes)))
	case w.Variant == DDA && recommend == "off" && flatUnmeasured(f, s, []Worth{*w}) != nil:
		parts = append(parts, fmt.Sprintf("Off all the same: no size up to %s was measured, which its flat path takes.",
			units.Size(flatLimit(f, s))))
	}
	if text := w.Unproven(); on && text != "" {
		parts = append(parts, capital(text)+".")
		if w.Variant == DDA && !w.loses(w.ProvenMaxBytes) {
			parts = append(parts, fmt.Sprintf("Above %s nothing is proven.", units.Size(w.ProvenMaxBytes)))
		}
	}
	if text := w.MoreRanks(ranks); on && text != "" {
		parts = append(parts, fmt.Sprintf("It takes %s of device memory in each communicator, and %s; "+
			"over several nodes it was not measured.", HumanBytes(*w.MemoryBytes), text))
	}
	if w.Variant == DDA && f == FlavorRCCLXDev && w.State != WorthUnknown {
		if w.State == WorthMixed && recommend == "off" && w.flatLoses(f, s) {
			parts = append(parts,
				fmt.Sprintf("Its flat path loses: run again with %s=0 to see the tree path at small sizes.",
					settingDDAFlat))
		} else if recommend != "off" {
			parts = append(parts, "Which of flat and tree is faster at one size was not measured.")
		}
	}
	if w.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("Numbers of %d more measured sizes are not in the reports.", w.LeftOut))
	}
	return fit(maxAdviceBytes, parts...)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// accepts says which losses of a collective the owner of the jobs accepts; empty where there are none.
func (j Job) accepts(c Collective) string {
	var out []string
	for _, l := range j.Data[c].Losses {
		if slices.Contains(j.Accepted, l) {
			out = append(out, l.words(c))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "accepted by the spec: " + strings.Join(out, "; ")
}

// ForItsError is at what price in precision FP8 gains, in half a sentence; empty where there is none or it is not
// known.
func (w *Worth) ForItsError(job Job) string {
	if !w.quantised() || w.ErrorPPM == nil {
		return ""
	}
	text := "for an error of up to " + units.Percent(*w.ErrorPPM)
	if accepted := job.accepts(w.Collective); accepted != "" {
		text += "; " + accepted
	}
	return text
}

// flatLoses says whether the flat path loses somewhere, and the tree path nowhere.
func (w *Worth) flatLoses(f Flavor, s Settings) bool {
	limit := flatLimit(f, s)
	flat := slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool {
		return s.Outcome == OutcomeLoses && s.SizeBytes <= limit
	})
	return flat && !w.loses(limit)
}

// summary says what was seen.
func (w *Worth) summary() string {
	best := SizeWorth{}
	wins, losses := 0, 0
	for _, s := range w.Sizes {
		switch s.Outcome {
		case OutcomeWins:
			wins++
			if s.GainPPM > best.GainPPM {
				best = s
			}
		case OutcomeLoses:
			losses++
		}
	}
	switch {
	case w.WrongElements > 0:
		return fmt.Sprintf("%d wrong elements with the setting: do not use it.", w.WrongElements)
	case w.State == WorthUnknown && len(w.MissingBytes) > 0:
		return fmt.Sprintf("Not known: %s, first %s, without numbers that can be used. Run again on idle nodes, "+
			"or measure fewer sizes.", sizeCount(len(w.MissingBytes)), units.Size(w.MissingBytes[0]))
	case w.State == WorthUnknown && w.Variant == LowPrecision && w.ErrorPPM == nil:
		return "Not known: the error of FP8 was not measured."
	case w.State == WorthUnknown && w.quantised() && w.Data.State != Usable:
		return fmt.Sprintf("Not known: the data of %s was not checked in full.", w.Collective)
	case w.State == WorthUnknown:
		return "Not known: the library's gates are not known."
	case losses == 0 && wins == 0:
		return fmt.Sprintf("No change beyond noise at %s, %s.", sizeCount(len(w.Sizes)), w.span())
	case losses == 0:
		return fmt.Sprintf("Never slower than Baseline at %s, %s, and up to %d %% less time at %s.",
			sizeCount(len(w.Sizes)), w.span(), percentOf(best.GainPPM), units.Size(best.SizeBytes))
	case wins == 0:
		return fmt.Sprintf("Slower than Baseline at %d of %s, up to %d %% more time at %s, and faster at none.",
			losses, sizeCount(len(w.Sizes)), -percentOf(w.worst().GainPPM), units.Size(w.worst().SizeBytes))
	}
	return fmt.Sprintf("Of %s %d faster, up to %d %% less time at %s, and %d slower, up to %d %% more time at %s.",
		sizeCount(len(w.Sizes)), wins, percentOf(best.GainPPM), units.Size(best.SizeBytes), losses,
		-percentOf(w.worst().GainPPM), units.Size(w.worst().SizeBytes))
}

func (w *Worth) span() string {
	first, last := w.Sizes[0].SizeBytes, w.lastMeasured()
	if first == last {
		return units.Size(first)
	}
	return units.Size(first) + " to " + units.Size(last)
}

func sizeCount(n int) string {
	if n == 1 {
		return "1 size"
	}
	return fmt.Sprintf("%d sizes", n)
}

// fit joins as many sentences as fit into limit bytes.
func fit(limit int, parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if b.Len() > 0 && b.Len()+1+len(p) > limit || len(p) > limit {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p)
	}
	return b.String()
}

// Unproven says next to which measured sizes the setting acts on sizes that nobody measured; empty where on none.
func (w *Worth) Unproven() string {
	if len(w.Sizes) == 0 {
		return ""
	}
	first := w.Sizes[0].SizeBytes
	below := fmt.Sprintf("below %s", units.Size(first))
	if w.Variant == DDA { // ends where its limit does
		return below + " nothing is proven"
	}
	above := fmt.Sprintf("above %s nothing is proven", units.Size(w.lastMeasured()))
	if w.Collective == AllGather || first > lowPrecisionMinBytes {
		return below + " and " + above
	}
	return above
}

// MoreRanks says what FP8's pool takes in communicators of more ranks than that of the run; empty where that is not
// known.
func (w *Worth) MoreRanks(ranks int) string {
	if w.Variant != LowPrecision || w.MemoryBytes == nil || *w.MemoryBytes == math.MaxInt64 {
		return ""
	}
	// The pool is so many elements of 10 + max(8, ranks) bytes each: see LowPrecisionPoolBytes.
	each := int64(10 + max(8, ranks))
	return fmt.Sprintf("%s more for each rank over %d", units.Size(*w.MemoryBytes/each), max(8, ranks))
}
