package runner

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// tailHazard says what FP8 made of counts at which the library's code loses a tail; empty where every element was right.
func tailHazard(t Table, c rcclx.Collective) string {
	var wrong int64
	for _, s := range t.Series {
		if s.Key.Variant != rcclx.LowPrecision || s.Key.Collective != c {
			continue
		}
		for _, cell := range s.Cells {
			if cell.Hazard != "" {
				wrong += cell.WrongElements(s.Key.Variant) - cell.UnexplainedElements
			}
		}
	}
	if wrong == 0 {
		return ""
	}
	return fmt.Sprintf("counts that are no multiple of %d elements give %d wrong elements (library hazard): pad your buffers", rcclx.HazardMultiple(c, t.Ranks), wrong)
}

// overflow says what FP8 made of values of the range of activations; empty where all stayed in its range.
func overflow(t Table, c rcclx.Collective) string {
	var sum rcclx.CheckResult
	for _, s := range t.Series {
		if s.Key.Variant != rcclx.LowPrecision || s.Key.Collective != c {
			continue
		}
		for _, cell := range s.Cells {
			x := cell.Check(rcclx.DataActivations)
			sum.CheckedElements += x.CheckedElements
			sum.NaNElements += x.NaNElements
			sum.OverflowElements += x.OverflowElements
		}
	}
	var lost []string
	if sum.NaNElements > 0 {
		lost = append(lost, fmt.Sprintf("%d became NaN", sum.NaNElements))
	}
	if sum.OverflowElements > 0 {
		lost = append(lost, fmt.Sprintf("%d overflowed", sum.OverflowElements))
	}
	if len(lost) == 0 {
		return ""
	}
	return fmt.Sprintf("activations: of %d elements %s: FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range",
		sum.CheckedElements, strings.Join(lost, " and "))
}

// underflow says how much FP8 loses of values of the range of gradients; empty where its rounding alone explains the error.
// One cast to E4M3 is off by at most 2^-4; an AllReduce casts the sums once more.
func underflow(t Table, c rcclx.Collective) string {
	roundingPPM := int64(62_500)
	if c == rcclx.AllReduce {
		roundingPPM = 128_907
	}
	var worst, base int64
	for _, s := range t.Series {
		for _, cell := range s.Cells {
			mean := cell.Check(rcclx.DataGradients).MeanRelativeErrorPPM
			switch {
			case s.Key.Collective != c:
			case s.Key.Variant == rcclx.LowPrecision:
				worst = max(worst, mean)
			case s.Key.Variant == rcclx.Baseline:
				base = max(base, mean)
			}
		}
	}
	if worst <= roundingPPM {
		return ""
	}
	return fmt.Sprintf("gradients: mean error %s, %s without FP8: values under 2^-10 become zero", ppm(worst), ppm(base))
}

// DataErrors gives the errors with random data: of each LowPrecision series at the smallest and the largest size at which
// they were checked, and of Baseline beside it.
func (t Table) DataErrors() []api.DataErrors {
	var out []api.DataErrors
	for _, s := range t.Series {
		for _, d := range []rcclx.Data{rcclx.DataGradients, rcclx.DataActivations} {
			var cells []Cell
			for _, c := range s.Cells {
				if c.Check(d).CheckedElements > 0 {
					cells = append(cells, c)
				}
			}
			if len(cells) > 2 {
				cells = []Cell{cells[0], cells[len(cells)-1]}
			}
			for _, c := range cells {
				out = addDataError(out, s.Key, c.SizeBytes, c.Check(d).CheckResult)
			}
		}
	}
	for i := range out {
		if slices.Max(out[i].NaNElements) == 0 {
			out[i].NaNElements = nil
		}
		if slices.Max(out[i].OverflowElements) == 0 {
			out[i].OverflowElements = nil
		}
	}
	return out
}

func addDataError(all []api.DataErrors, k SeriesKey, sizeBytes int64, x rcclx.CheckResult) []api.DataErrors {
	head := api.DataErrors{Variant: api.Variant(k.Variant), Datatype: api.Datatype(k.Datatype), Placement: shownPlacement(k.Placement), Data: api.DataKind(x.Data)}
	at := slices.IndexFunc(all, func(e api.DataErrors) bool {
		return e.Variant == head.Variant && e.Datatype == head.Datatype && e.Placement == head.Placement && e.Data == head.Data
	})
	if at < 0 {
		at = len(all)
		all = append(all, head)
	}
	e := &all[at]
	e.Collectives, e.SizeBytes = append(e.Collectives, api.Collective(k.Collective)), append(e.SizeBytes, sizeBytes)
	e.MaxErrorPPM, e.MeanErrorPPM = append(e.MaxErrorPPM, x.MaxRelativeErrorPPM), append(e.MeanErrorPPM, x.MeanRelativeErrorPPM)
	e.CheckedElements = append(e.CheckedElements, x.CheckedElements)
	e.NaNElements, e.OverflowElements = append(e.NaNElements, x.NaNElements), append(e.OverflowElements, x.OverflowElements)
	return all
}

const (
	maxPreconditions       = 16
	maxPreconditionMessage = 256
)

// notMet are the preconditions that were not met, as the API has them, the worst first. What could not be read is never
// taken as met.
func notMet(findings []preflight.Finding) []api.PreconditionStatus {
	severity := map[preflight.State]int{preflight.Failed: 0, preflight.Unknown: 1, preflight.Warning: 2}
	var open []preflight.Finding
	for _, f := range findings {
		if f.State != preflight.Met {
			open = append(open, f)
		}
	}
	slices.SortStableFunc(open, func(a, b preflight.Finding) int { return severity[a.State] - severity[b.State] })
	var out []api.PreconditionStatus
	for _, f := range open[:min(len(open), maxPreconditions)] {
		p := api.PreconditionStatus{Name: truncate(f.Name, 64), State: string(f.State), Message: truncate(f.Message, maxPreconditionMessage)}
		if f.Rank >= 0 {
			r := int32(f.Rank)
			p.Rank = &r
		}
		out = append(out, p)
	}
	return out
}
