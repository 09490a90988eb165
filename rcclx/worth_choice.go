package rcclx

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/internal/units"
)

// Job is what the choice for FP8 depends on beside the numbers: the jobs that get the settings, and what the run saw of
// their data.
type Job struct {
	// OverNodes: jobs are over several nodes, where no run measures FP8.
	OverNodes bool
	// Data says of FP8's results with each collective whether they are usable; a collective that is not in it was not
	// checked.
	Data map[Collective]Usability
	// Accepted are the losses that the owner of the jobs accepts.
	Accepted []Loss
}

// UsabilityOf is whether these jobs can use FP8's results of a collective.
func (j Job) UsabilityOf(c Collective) Usability { return j.Data[c].Accepting(j.Accepted) }

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

// ChooseDDA gives the one choice for all collectives and datatypes, which share DDA's switch and limits: on where one
// of them wins, up to the largest measured size to which none loses. It never goes beyond what was measured, and never
// assumes anything of sizes that were not. Which of flat and tree is faster at one size no run measures: flat ends
// where the limit does, and else stays as it was.
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
	if w := flatUnmeasured(f, s, entries); w != nil {
		return DDAChoice{Why: fmt.Sprintf("%s was measured from %s on, and not by its flat path, "+
			"which takes sizes up to %s: measure smaller ones, or set %s to 0",
			w.name(), units.Size(w.Sizes[0].SizeBytes), units.Size(flatLimit(f, s)), settingDDAFlat)}
	}
	limit := bound.ProvenMaxBytes
	wins := slices.ContainsFunc(entries, func(w Worth) bool { return w.winsUpTo(limit) })
	switch {
	case limit == 0 && bound.WrongElements > 0:
		return DDAChoice{Why: fmt.Sprintf("%s gave wrong elements", bound.name())}
	case limit == 0:
		return DDAChoice{Why: fmt.Sprintf("%s is slower than Baseline already at the smallest measured size",
			bound.name())}
	case !wins && limit == bound.lastMeasured():
		return DDAChoice{Why: "it is faster than Baseline at no measured size"}
	case !wins:
		return DDAChoice{Why: fmt.Sprintf("up to %s it gains nothing, and above %s is slower",
			units.Size(limit), bound.name())}
	}
	out := DDAChoice{On: true, TreeMaxBytes: &limit, FlatMaxBytes: flatUpTo(f, s, limit)}
	switch {
	case bound.loses(limit):
		out.Why = fmt.Sprintf("it ends at %s, since %s is slower above", units.Size(limit), bound.name())
	default:
		out.Why = fmt.Sprintf("it ends at %s, the largest size that was measured with it for %s",
			units.Size(limit), bound.name())
	}
	return out
}

// flatLimit is up to what size DDA's flat path takes a call; zero where there is none.
func flatLimit(f Flavor, s Settings) int64 {
	if f != FlavorRCCLXDev {
		return 0
	}
	return environmentMap(Environment(f, DDA, s)).limitBytes(envDDAFlatMax)
}

// flatUnmeasured is an entry of which no size was measured that the flat path takes; nil where there is none. DDA has
// no lower limit, so that it would be on for all of them.
func flatUnmeasured(f Flavor, s Settings, entries []Worth) *Worth {
	limit := flatLimit(f, s)
	i := slices.IndexFunc(entries, func(w Worth) bool {
		return limit > 0 && len(w.Sizes) > 0 && w.Sizes[0].SizeBytes > limit
	})
	if i < 0 {
		return nil
	}
	return &entries[i]
}

// flatUpTo is the flat limit beside a tree limit: no higher than it, and else what it was.
func flatUpTo(f Flavor, s Settings, treeMaxBytes int64) *int64 {
	if f != FlavorRCCLXDev {
		return s.DDA.AllReduceFlatMaxBytes
	}
	if flatLimit(f, s) > treeMaxBytes {
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
	return slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool {
		return s.Outcome == OutcomeLoses && s.SizeBytes > aboveBytes
	})
}

// ChooseLowPrecision decides for each asked collective. FP8 has no limit that a job could set: it takes every call from
// its fixed least size up, and sends every smaller AllGather peer to peer. So it is on only where no measured size
// loses and each datatype that it quantises wins somewhere, and where it does not take a call from a DDA that is
// faster.
func ChooseLowPrecision(all []Worth, asked []Collective, dda DDAChoice, job Job) []LowPrecisionChoice {
	out := make([]LowPrecisionChoice, 0, len(asked))
	for _, c := range asked {
		choice := LowPrecisionChoice{Collective: c, Why: "no size at which it acts was measured"}
		quantised := 0
		for _, w := range variantsOf(all, LowPrecision, c) {
			choice.Why = lowPrecisionObjection(&w, all, dda, job)
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
func lowPrecisionObjection(w *Worth, all []Worth, dda DDAChoice, job Job) string {
	switch {
	case w.WrongElements > 0:
		return fmt.Sprintf("%s gave wrong elements", w.name())
	case job.UsabilityOf(w.Collective).State != Usable:
		return job.UsabilityOf(w.Collective).Objection(w.Collective)
	case w.State == WorthUnknown:
		return "it is not known whether it pays for " + w.name()
	case w.has(OutcomeLoses):
		worst := w.worst()
		text := fmt.Sprintf("%s takes %d %% more time at %s",
			w.name(), -percentOf(worst.GainPPM), units.Size(worst.SizeBytes))
		if w.Collective == AllGather && worst.SizeBytes < lowPrecisionMinBytes {
			text += ", where it goes peer to peer while FP8 is on"
		}
		return text
	case w.Collective == AllGather && (len(w.Sizes) == 0 || w.Sizes[0].SizeBytes >= lowPrecisionMinBytes):
		return fmt.Sprintf("no %s below %s was measured, which go peer to peer while FP8 is on",
			w.name(), units.Size(lowPrecisionMinBytes))
	case w.State != WorthYes && KnowsLowPrecision(w.Collective, w.Datatype):
		return fmt.Sprintf("%s gains nothing for its error", w.name())
	}
	if size, percent := displaced(w, all, dda); size > 0 {
		return fmt.Sprintf("for %s at %s, which FP8 would take from DDA, DDA takes %d %% less of Baseline's time",
			w.name(), units.Size(size), percent)
	}
	if job.OverNodes {
		return "it was measured within one node only, and jobs of this group are over several (span Group)"
	}
	return ""
}

// hazardWords is what a count must be a multiple of for FP8 to split it evenly.
func hazardWords(c Collective) string {
	if c == AllReduce {
		return fmt.Sprintf("%d x ranks", lowPrecisionLine)
	}
	return fmt.Sprint(lowPrecisionLine)
}

// displaced is the size at which FP8 takes a call from DDA although DDA is faster beyond noise, where DDA is on for it;
// the library asks FP8 first (collectives.cc:342-349). percent is by how much of Baseline's time. Zero where there is
// none.
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
