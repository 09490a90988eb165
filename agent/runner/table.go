package runner

import (
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// SeriesKey names one series of measurements.
type SeriesKey struct {
	Variant    rcclx.Variant
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
}

// Cell is one message size of a series, over all ranks.
type Cell struct {
	SizeBytes int64
	// LatencyNanoseconds is the median over the iterations of the slowest rank.
	LatencyNanoseconds int64
	// NoisePPM is the largest coefficient of variation of a rank, in parts per million.
	NoisePPM int64
	// WrongElements over all ranks, MaxRelativeErrorPPM of the worst one.
	WrongElements       int64
	MaxRelativeErrorPPM int64
	// CheckedElements over all ranks; zero means that nothing was checked.
	CheckedElements int64
	// Ranks that reported the cell.
	Ranks int
}

// Series is one (variant, collective, datatype), by size ascending.
type Series struct {
	Key   SeriesKey
	Cells []Cell
}

// Cell returns the cell of a size.
func (s Series) Cell(sizeBytes int64) (Cell, bool) {
	i, ok := slices.BinarySearchFunc(s.Cells, sizeBytes, func(c Cell, size int64) int { return int(min(max(c.SizeBytes-size, -1), 1)) })
	if !ok {
		return Cell{}, false
	}
	return s.Cells[i], true
}

// Table is all that a run measured with collectives, in the order of its variants and steps.
type Table struct {
	Ranks  int
	Series []Series
}

// Find returns a series.
func (t Table) Find(k SeriesKey) (Series, bool) {
	for _, s := range t.Series {
		if s.Key == k {
			return s, true
		}
	}
	return Series{}, false
}

// Tabulate combines the ranks' measurements. A cell counts only where every rank reported it: the slowest one may be
// the one that is missing. The cells that some ranks did not report are returned beside the table, since even they can
// show wrong data.
func Tabulate(variants []VariantOutcome, ranks int) (table Table, incomplete []Series) {
	table.Ranks = ranks
	for _, v := range variants {
		var order []SeriesKey
		cells := map[SeriesKey]map[int64]*Cell{}
		for _, r := range v.Outcome.Ranks {
			for _, m := range r.Measurements {
				k := SeriesKey{v.Variant, m.Collective, m.Datatype}
				if cells[k] == nil {
					cells[k] = map[int64]*Cell{}
					order = append(order, k)
				}
				c := cells[k][m.SizeBytes]
				if c == nil {
					c = &Cell{SizeBytes: m.SizeBytes}
					cells[k][m.SizeBytes] = c
				}
				c.Ranks++
				c.LatencyNanoseconds = max(c.LatencyNanoseconds, m.Latency.MedianNanoseconds)
				c.NoisePPM = max(c.NoisePPM, m.Latency.CoefficientOfVariationPPM)
				c.WrongElements += m.Wrong()
				for _, check := range m.Checks {
					c.CheckedElements += check.CheckedElements
					c.MaxRelativeErrorPPM = max(c.MaxRelativeErrorPPM, check.MaxRelativeErrorPPM)
				}
			}
		}
		for _, k := range order {
			whole, part := Series{Key: k}, Series{Key: k}
			for _, c := range cells[k] {
				if c.Ranks == ranks {
					whole.Cells = append(whole.Cells, *c)
				} else {
					part.Cells = append(part.Cells, *c)
				}
			}
			for _, s := range []*Series{&whole, &part} {
				slices.SortFunc(s.Cells, func(a, b Cell) int { return int(min(max(a.SizeBytes-b.SizeBytes, -1), 1)) })
			}
			if len(whole.Cells) > 0 {
				table.Series = append(table.Series, whole)
			}
			if len(part.Cells) > 0 {
				incomplete = append(incomplete, part)
			}
		}
	}
	return table, incomplete
}

// VariantOutcome is what became of one variant's ranks.
type VariantOutcome struct {
	Variant rcclx.Variant
	Outcome Outcome
}

// Results gives the table as the API has it.
func (t Table) Results() []api.ResultSeries {
	out := make([]api.ResultSeries, 0, len(t.Series))
	for _, s := range t.Series {
		r := api.ResultSeries{Variant: api.Variant(s.Key.Variant), Collective: api.Collective(s.Key.Collective), Datatype: api.Datatype(s.Key.Datatype)}
		var worst int64
		for _, c := range s.Cells {
			r.SizeBytes = append(r.SizeBytes, c.SizeBytes)
			r.LatencyNanoseconds = append(r.LatencyNanoseconds, c.LatencyNanoseconds)
			r.BusBandwidthMBps = append(r.BusBandwidthMBps, rcclx.BusBandwidthMBps(s.Key.Collective, c.SizeBytes, c.LatencyNanoseconds, t.Ranks))
			r.WrongElements += c.WrongElements
			worst = max(worst, c.MaxRelativeErrorPPM)
		}
		if s.Key.Variant == rcclx.LowPrecision {
			r.MaxRelativeErrorPPM = &worst
		}
		out = append(out, r)
	}
	return out
}
