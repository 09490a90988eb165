package executor

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// seenData adds up what the checks of one collective found with a variant, from a size up, at which the setting takes
// effect. A size counts as checked with random data where one placement was, since the values are the same in place.
func seenData(t Table, v rcclx.Variant, c rcclx.Collective, minBytes *int64) rcclx.DataSeen {
	type kind struct {
		datatype  rcclx.Datatype
		sizeBytes int64
		data      rcclx.Data
	}
	var seen rcclx.DataSeen
	asked := map[kind]bool{} // and whether it was checked
	for _, s := range t.Series {
		if s.Key.Variant != v || s.Key.Collective != c {
			continue
		}
		fp8 := v == rcclx.LowPrecision && rcclx.KnowsLowPrecision(c, s.Key.Datatype)
		for _, cell := range s.Cells {
			if cell.Hazard != "" {
				seen.TailElements += cell.WrongElements(v) - cell.UnexplainedElements
				seen.WrongElements += cell.UnexplainedElements
				continue // what else its checks show comes of memory that was never written
			}
			for _, x := range cell.Checks {
				lost := x.NaNElements + x.OverflowElements
				if mustBeRight(v, x.Data) {
					seen.WrongElements += x.WrongElements
				} else {
					seen.WrongElements += x.UnwrittenElements // FP8's range explains a lost value, and not that there is none
					lost = max(lost, x.WrongElements-x.UnwrittenElements)
				}
				seen.CheckedElements += x.CheckedElements
				seen.LostElements += lost
				seen.MeanErrorPPM = max(seen.MeanErrorPPM, x.MeanRelativeErrorPPM)
			}
			data := []rcclx.Data{rcclx.DataExact}
			switch {
			case fp8 && (minBytes == nil || cell.SizeBytes >= *minBytes):
				data = []rcclx.Data{rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations}
			case fp8:
				data = []rcclx.Data{rcclx.DataRounding}
			}
			for _, d := range data {
				k := kind{s.Key.Datatype, cell.SizeBytes, d}
				asked[k] = asked[k] || cell.Check(d).Ranks >= t.checkers(c)
			}
		}
	}
	for k, checked := range asked {
		if !checked && !slices.Contains(seen.Missing, k.data) {
			seen.Missing = append(seen.Missing, k.data)
		}
	}
	slices.Sort(seen.Missing)
	return seen
}

// lossText says what was seen of a loss of FP8.
func lossText(t Table, c rcclx.Collective, l rcclx.Loss, seen rcclx.DataSeen) string {
	switch l {
	case rcclx.LossWrongData:
		return fmt.Sprintf("%d wrong elements", seen.WrongElements)
	case rcclx.LossTail:
		return fmt.Sprintf("counts that are no multiple of %d elements give %d wrong elements (library hazard): pad your buffers", rcclx.HazardMultiple(c, t.Ranks), seen.TailElements)
	case rcclx.LossOverflow:
		return overflow(t, c)
	case rcclx.LossUnderflow:
		return underflow(t, c)
	}
	return ""
}

// randomData are the kinds of data that are as models have them, and their names in a message.
var randomData = []struct {
	data rcclx.Data
	name string
}{{rcclx.DataActivations, "activations"}, {rcclx.DataGradients, "gradients"}, {rcclx.DataRounding, "values of one magnitude"}}

// overflow says what FP8 made of values over its range.
func overflow(t Table, c rcclx.Collective) string {
	var out []string
	for _, kind := range randomData {
		var sum rcclx.CheckResult
		for _, s := range t.Series {
			if s.Key.Variant != rcclx.LowPrecision || s.Key.Collective != c {
				continue
			}
			for _, cell := range s.Cells {
				if x := cell.Check(kind.data); cell.Hazard == "" {
					sum.CheckedElements += x.CheckedElements
					sum.NaNElements += x.NaNElements
					sum.OverflowElements += x.OverflowElements
					sum.WrongElements += x.WrongElements - x.UnwrittenElements
				}
			}
		}
		var lost []string
		if sum.NaNElements > 0 {
			lost = append(lost, fmt.Sprintf("%d became NaN", sum.NaNElements))
		}
		if sum.OverflowElements > 0 {
			lost = append(lost, fmt.Sprintf("%d became infinite or were clipped", sum.OverflowElements))
		}
		if len(lost) == 0 && sum.WrongElements > 0 {
			lost = append(lost, fmt.Sprintf("%d are wrong", sum.WrongElements))
		}
		if len(lost) > 0 {
			out = append(out, fmt.Sprintf("%s: of %d elements %s", kind.name, sum.CheckedElements, strings.Join(lost, " and ")))
		}
	}
	return strings.Join(out, "; ") + ": FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range"
}

// underflow says how far off FP8 is, on average, of the kind of data for which it is most.
func underflow(t Table, c rcclx.Collective) string {
	var worst int64
	name, without := "", ""
	for _, kind := range randomData {
		var most, base int64
		baseChecked := false
		for _, s := range t.Series {
			for _, cell := range s.Cells {
				x := cell.Check(kind.data)
				switch {
				case s.Key.Collective != c || cell.Hazard != "":
				case s.Key.Variant == rcclx.LowPrecision:
					most = max(most, x.MeanRelativeErrorPPM)
				case s.Key.Variant == rcclx.Baseline && x.CheckedElements > 0:
					base, baseChecked = max(base, x.MeanRelativeErrorPPM), true
				}
			}
		}
		if most > worst {
			worst, name, without = most, kind.name, ""
			if baseChecked {
				without = fmt.Sprintf(", %s without FP8", ppm(base))
			}
		}
	}
	return fmt.Sprintf("%s: mean error %s%s, usable up to %s: values under 2^-10 become zero", name, ppm(worst), without, ppm(rcclx.MaxMeanErrorPPM))
}

// DataErrors gives the errors with random data: of each LowPrecision series at the smallest and the largest size at
// which they were checked, and of Baseline beside it.
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
		p := api.PreconditionStatus{Name: clip.Head(f.Name, 64), State: string(f.State), Message: clip.Head(f.Advised(audience.Pod), maxPreconditionMessage)}
		if f.Rank >= 0 {
			r := int32(f.Rank)
			p.Rank = &r
		}
		out = append(out, p)
	}
	return out
}
