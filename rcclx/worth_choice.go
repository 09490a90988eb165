package rcclx

import (
	"fmt"
	"slices"
	"strings"
)

// The API's bounds of an advice's text.
const (
	maxRecommendBytes = 160
	maxAdviceBytes    = 256
)

// DDAChoice is what a job should set for DDA by the numbers.
type DDAChoice struct {
	On bool
	// FlatMaxBytes and TreeMaxBytes to set; nil leaves the library's default.
	FlatMaxBytes, TreeMaxBytes *int64
	// Why it is off, or where it ends, in half a sentence.
	Why string
}

// LowPrecisionChoice is what a job should set for FP8 with one collective.
type LowPrecisionChoice struct {
	Collective Collective
	On         bool
	// Why it is off; empty where it is on.
	Why string
}

// Advice is what the numbers say of one setting, collective and datatype, in words.
type Advice struct {
	Worth
	// Recommend is what to set; empty where the numbers do not tell.
	Recommend string
	Message   string
}

func variantsOf(all []Worth, v Variant, c Collective) []Worth {
	var out []Worth
	for _, w := range all {
		if w.Variant == v && (c == "" || w.Collective == c) {
			out = append(out, w)
		}
	}
	return out
}

func (w *Worth) name() string { return string(w.Collective) + " " + string(w.Datatype) }

// ChooseDDA gives the one choice for all collectives and datatypes, which share DDA's switch and limits: on where one of them
// wins, up to the largest measured size to which none loses. It never goes beyond what was measured, and never assumes
// anything of sizes that were not. Which of flat and tree is faster at one size no run measures: flat ends where the limit
// does, and else stays as it was.
func ChooseDDA(f Flavor, s Settings, all []Worth) DDAChoice {
	entries := variantsOf(all, DDA, "")
	if len(entries) == 0 {
		return DDAChoice{Why: "no size at which DDA acts was measured"}
	}
	bound := &entries[0]
	for i := range entries {
		w := &entries[i]
		if w.State == WorthUnknown {
			return DDAChoice{Why: "it is not known whether it pays for " + w.name()}
		}
		if w.ProvenMaxBytes < bound.ProvenMaxBytes {
			bound = w
		}
	}
	limit := bound.ProvenMaxBytes
	wins := slices.ContainsFunc(entries, func(w Worth) bool { return w.winsUpTo(limit) })
	switch {
	case limit == 0 && bound.WrongElements > 0:
		return DDAChoice{Why: fmt.Sprintf("%s gave wrong elements", bound.name())}
	case limit == 0:
		return DDAChoice{Why: fmt.Sprintf("%s is slower than Baseline already at the smallest measured size", bound.name())}
	case !wins && limit == bound.lastMeasured():
		return DDAChoice{Why: "it is faster than Baseline at no measured size"}
	case !wins:
		return DDAChoice{Why: fmt.Sprintf("up to %s it gains nothing, and above %s is slower", HumanBytes(limit), bound.name())}
	}
	out := DDAChoice{On: true, TreeMaxBytes: &limit, FlatMaxBytes: flatUpTo(f, s, limit)}
	switch {
	case bound.loses(limit):
		out.Why = fmt.Sprintf("it ends at %s, since %s is slower above", HumanBytes(limit), bound.name())
	default:
		out.Why = fmt.Sprintf("it ends at %s, the largest size that was measured with it for %s", HumanBytes(limit), bound.name())
	}
	return out
}

// flatUpTo is the flat limit beside a tree limit: no higher than it, and else what it was.
func flatUpTo(f Flavor, s Settings, treeMaxBytes int64) *int64 {
	if f != FlavorRCCLXDev {
		return s.DDA.AllReduceFlatMaxBytes
	}
	if environmentMap(Environment(f, DDA, s)).limitBytes(envDDAFlatMax) > treeMaxBytes {
		return &treeMaxBytes
	}
	return s.DDA.AllReduceFlatMaxBytes
}

func (w *Worth) lastMeasured() int64 {
	if len(w.Sizes) == 0 {
		return 0
	}
	return w.Sizes[len(w.Sizes)-1].SizeBytes
}

// loses says whether a size over aboveBytes loses.
func (w *Worth) loses(aboveBytes int64) bool {
	return slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool { return s.Outcome == OutcomeLoses && s.SizeBytes > aboveBytes })
}

// ChooseLowPrecision decides for each asked collective. FP8 has no limit that a job could set: it takes every call from its
// fixed least size up, and sends every smaller AllGather peer to peer. So it is on only where no measured size loses and each
// datatype that it quantises wins somewhere, and where it does not take a call from a DDA that is faster.
func ChooseLowPrecision(all []Worth, asked []Collective, dda DDAChoice) []LowPrecisionChoice {
	out := make([]LowPrecisionChoice, 0, len(asked))
	for _, c := range asked {
		choice := LowPrecisionChoice{Collective: c, Why: "no size at which it acts was measured"}
		quantised := 0
		for _, w := range variantsOf(all, LowPrecision, c) {
			choice.Why = lowPrecisionObjection(&w, all, dda)
			if choice.Why != "" {
				break
			}
			if KnowsLowPrecision(c, w.Datatype) {
				quantised++
			}
		}
		if choice.Why == "" && quantised == 0 {
			choice.Why = "no datatype that it quantises was measured"
		}
		choice.On = choice.Why == ""
		out = append(out, choice)
	}
	return out
}

// lowPrecisionObjection says why FP8 is not for a collective by one datatype; empty where nothing stands against it.
func lowPrecisionObjection(w *Worth, all []Worth, dda DDAChoice) string {
	switch {
	case w.WrongElements > 0:
		return fmt.Sprintf("%s gave wrong elements", w.name())
	case w.State == WorthUnknown:
		return "it is not known whether it pays for " + w.name()
	case w.has(OutcomeLoses):
		worst := w.worst()
		text := fmt.Sprintf("%s takes %d %% more time at %s", w.name(), -percentOf(worst.GainPPM), HumanBytes(worst.SizeBytes))
		if w.Collective == AllGather && worst.SizeBytes < lowPrecisionMinBytes {
			text += ", where it goes peer to peer while FP8 is on"
		}
		return text
	case w.State != WorthYes && KnowsLowPrecision(w.Collective, w.Datatype):
		return fmt.Sprintf("%s gains nothing for its error", w.name())
	}
	if size, percent := displaced(w, all, dda); size > 0 {
		return fmt.Sprintf("for %s at %s, which FP8 would take from DDA, DDA takes %d %% less of Baseline's time", w.name(), HumanBytes(size), percent)
	}
	return ""
}

// displaced is the size at which FP8 takes a call from DDA although DDA is faster beyond noise, where DDA is on for it; the
// library asks FP8 first (collectives.cc:342-349). percent is by how much of Baseline's time. Zero where there is none.
func displaced(w *Worth, all []Worth, dda DDAChoice) (size, percent int64) {
	if !dda.On {
		return 0, 0
	}
	for _, other := range all {
		if other.Variant != DDA || other.Collective != w.Collective || other.Datatype != w.Datatype {
			continue
		}
		for _, d := range other.Sizes {
			i := slices.IndexFunc(w.Sizes, func(s SizeWorth) bool { return s.SizeBytes == d.SizeBytes })
			if i < 0 || d.SizeBytes < lowPrecisionMinBytes || d.SizeBytes > *dda.TreeMaxBytes {
				continue
			}
			if apart := d.GainPPM - w.Sizes[i].GainPPM; apart >= max(d.NoisePPM, w.Sizes[i].NoisePPM) {
				return d.SizeBytes, percentOf(apart)
			}
		}
	}
	return 0, 0
}

// worst is the size that loses most.
func (w *Worth) worst() SizeWorth {
	return slices.MinFunc(w.Sizes, func(a, b SizeWorth) int { return int(a.GainPPM/1000 - b.GainPPM/1000) })
}

// Advise puts judgements into words.
func Advise(f Flavor, s Settings, all []Worth) []Advice {
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
			if lowPrecisionObjection(&w, all, dda) == "" && w.State == WorthYes {
				a.Recommend = "on"
			}
		}
		a.Message = w.sentences(f, s, a.Recommend, all, dda)
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
	if choice.FlatMaxBytes != nil && (s.DDA.AllReduceFlatMaxBytes == nil || *choice.FlatMaxBytes != *s.DDA.AllReduceFlatMaxBytes) {
		text = fmt.Sprintf("%s=%d ", settingDDAFlat, *choice.FlatMaxBytes)
	}
	return fit(maxRecommendBytes, text+fmt.Sprintf("%s=%d", settingDDATree, *choice.TreeMaxBytes))
}

// sentences say why, the most important first; what does not fit is left out.
func (w *Worth) sentences(f Flavor, s Settings, recommend string, all []Worth, dda DDAChoice) string {
	parts := []string{w.summary()}
	if w.Variant == LowPrecision {
		if w.ErrorPPM != nil && KnowsLowPrecision(w.Collective, w.Datatype) {
			parts = append(parts, fmt.Sprintf("Its largest error is %.1f %%.", float64(*w.ErrorPPM)/1e4))
		}
		if size, percent := displaced(w, all, dda); size > 0 && recommend == "off" {
			parts = append(parts, fmt.Sprintf("At %s FP8 would take the call from DDA, which takes %d %% less of Baseline's time.", HumanBytes(size), percent))
		}
		if w.Collective == AllGather && w.has(OutcomeLoses) && w.worst().SizeBytes < lowPrecisionMinBytes {
			parts = append(parts, fmt.Sprintf("Below %s it goes peer to peer while FP8 is on.", HumanBytes(lowPrecisionMinBytes)))
		}
	}
	if w.Variant == DDA && recommend != "" && recommend != "off" {
		if !w.loses(w.ProvenMaxBytes) {
			parts = append(parts, fmt.Sprintf("Above %s nothing is proven.", HumanBytes(w.ProvenMaxBytes)))
		}
	}
	if w.Variant == DDA && f == FlavorRCCLXDev && w.State != WorthUnknown {
		if w.State == WorthMixed && recommend == "off" && w.flatLoses(f, s) {
			parts = append(parts, fmt.Sprintf("Its flat path loses: run again with %s=0 to see the tree path at small sizes.", settingDDAFlat))
		} else if recommend != "off" {
			parts = append(parts, "Which of flat and tree is faster at one size was not measured.")
		}
	}
	if w.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("Numbers of %d more measured sizes are not in the reports.", w.LeftOut))
	}
	return fit(maxAdviceBytes, parts...)
}

// flatLoses says whether the flat path loses somewhere, and the tree path nowhere.
func (w *Worth) flatLoses(f Flavor, s Settings) bool {
	limit := environmentMap(Environment(f, DDA, s)).limitBytes(envDDAFlatMax)
	flat := slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool { return s.Outcome == OutcomeLoses && s.SizeBytes <= limit })
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
		return fmt.Sprintf("Not known: %s, first %s, without numbers that can be used. Run again on idle nodes, or measure fewer sizes.", sizeCount(len(w.MissingBytes)), HumanBytes(w.MissingBytes[0]))
	case w.State == WorthUnknown && w.Variant == LowPrecision && w.ErrorPPM == nil:
		return "Not known: the error of FP8 was not measured."
	case w.State == WorthUnknown:
		return "Not known: the library's gates are not known."
	case losses == 0 && wins == 0:
		return fmt.Sprintf("No change beyond noise at %s, %s.", sizeCount(len(w.Sizes)), w.span())
	case losses == 0:
		return fmt.Sprintf("Never slower than Baseline at %s, %s, and up to %d %% less time at %s.", sizeCount(len(w.Sizes)), w.span(), percentOf(best.GainPPM), HumanBytes(best.SizeBytes))
	case wins == 0:
		return fmt.Sprintf("Slower than Baseline at %d of %s, up to %d %% more time at %s, and faster at none.", losses, sizeCount(len(w.Sizes)), -percentOf(w.worst().GainPPM), HumanBytes(w.worst().SizeBytes))
	}
	return fmt.Sprintf("Of %s %d faster, up to %d %% less time at %s, and %d slower, up to %d %% more time at %s.", sizeCount(len(w.Sizes)),
		wins, percentOf(best.GainPPM), HumanBytes(best.SizeBytes), losses, -percentOf(w.worst().GainPPM), HumanBytes(w.worst().SizeBytes))
}

func (w *Worth) span() string {
	first, last := w.Sizes[0].SizeBytes, w.lastMeasured()
	if first == last {
		return HumanBytes(first)
	}
	return HumanBytes(first) + " to " + HumanBytes(last)
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
