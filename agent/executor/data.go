package executor

import (
	"slices"

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
					// FP8's range explains a lost value, and not that there is none
					seen.WrongElements += x.UnwrittenElements
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
	head := api.DataErrors{Variant: api.Variant(k.Variant), Datatype: api.Datatype(k.Datatype),
		Placement: shownPlacement(k.Placement), Data: api.DataKind(x.Data)}
	at := slices.IndexFunc(all, func(e api.DataErrors) bool {
		return e.Variant == head.Variant && e.Datatype == head.Datatype && e.Placement == head.Placement &&
			e.Data == head.Data
	})
	if at < 0 {
		at = len(all)
		all = append(all, head)
	}
	e := &all[at]
	e.Collectives, e.SizeBytes = append(e.Collectives, api.Collective(k.Collective)), append(e.SizeBytes, sizeBytes)
	e.MaxErrorPPM, e.MeanErrorPPM = append(e.MaxErrorPPM, x.MaxRelativeErrorPPM),
		append(e.MeanErrorPPM, x.MeanRelativeErrorPPM)
	e.CheckedElements = append(e.CheckedElements, x.CheckedElements)
	e.NaNElements, e.OverflowElements = append(e.NaNElements, x.NaNElements),
		append(e.OverflowElements, x.OverflowElements)
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
		p := api.PreconditionStatus{Name: clip.Head(f.Name, 64), State: string(f.State),
			Message: clip.Head(f.Advised(audience.Pod), maxPreconditionMessage)}
		if f.Rank >= 0 {
			r := int32(f.Rank)
			p.Rank = &r
		}
		out = append(out, p)
	}
	return out
}
