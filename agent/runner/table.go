package runner

import (
	"cmp"
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// SeriesKey names one series of measurements.
type SeriesKey struct {
	Variant    rcclx.Variant
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
	Placement  rcclx.Placement
}

func (k SeriesKey) String() string {
	name := fmt.Sprintf("%s %s %s", k.Variant, k.Collective, k.Datatype)
	if k.Placement == rcclx.InPlace {
		name += " in place"
	}
	return name
}

// DataCheck is the comparison of one kind of data with its reference over all ranks: sums of elements, and the worst
// rank's errors.
type DataCheck struct {
	rcclx.CheckResult
	// Ranks that checked any element.
	Ranks int
}

// Cell is one message size of a series, over all ranks.
type Cell struct {
	// SizeBytes as asked for; MovedBytes is the size of the message that was sent, rounded down to whole elements for each
	// rank. Bandwidth is over the latter; it is zero where the ranks did not say how much they sent.
	SizeBytes, MovedBytes int64
	// LatencyNanoseconds is the median over the iterations of the slowest rank; of several repeats, the median of theirs.
	LatencyNanoseconds int64
	// MinNanoseconds, MaxNanoseconds and P95Nanoseconds are the slowest rank's in each; of several repeats the least, the
	// largest, and the largest. Zero where a rank or a repeat lacks it.
	MinNanoseconds, MaxNanoseconds, P95Nanoseconds int64
	// RepeatNanoseconds are the medians of the repeats in which every rank reported the cell, in the order of the run.
	RepeatNanoseconds []int64
	// NoisePPM is the largest coefficient of variation of a rank, in parts per million.
	NoisePPM int64
	// Checks, one for each kind of data.
	Checks []DataCheck
	// Hazard says where the library is known to lose data for such a count with FP8; empty for every other cell.
	Hazard string
	// UnexplainedElements are the wrong ones of the checks that must come out right, without those of ranks whose first wrong
	// element lies in what the hazard loses.
	UnexplainedElements int64
	// Ranks that reported the cell.
	Ranks int
}

// Check returns what was found with one kind of data; the zero value where it was not checked.
func (c Cell) Check(d rcclx.Data) DataCheck {
	if i := slices.IndexFunc(c.Checks, func(x DataCheck) bool { return x.Data == d }); i >= 0 {
		return c.Checks[i]
	}
	return DataCheck{}
}

// WrongElements of all data that must come out right. With FP8, activations leave the format's range by design, so that
// they are reported beside this number and not in it.
func (c Cell) WrongElements(v rcclx.Variant) int64 {
	var wrong int64
	for _, x := range c.Checks {
		if mustBeRight(v, x.Data) {
			wrong += x.WrongElements
		}
	}
	return wrong
}

// unwritten are the elements over all ranks and kinds of data that the library never wrote.
func (c Cell) unwritten() int64 {
	var n int64
	for _, x := range c.Checks {
		n += x.UnwrittenElements
	}
	return n
}

func mustBeRight(v rcclx.Variant, d rcclx.Data) bool {
	return v != rcclx.LowPrecision || d != rcclx.DataActivations
}

// BusBandwidthMBps of the size that was moved; zero, which a caller must take as missing, where it cannot be told.
func (c Cell) BusBandwidthMBps(collective rcclx.Collective, ranks int) int64 {
	return rcclx.BusBandwidthMBps(collective, c.MovedBytes, c.LatencyNanoseconds, ranks)
}

// noisePercent is the coefficient of variation over the repeats, rounded up; zero where it was not measured.
func (c Cell) noisePercent() int32 { return int32(min((c.NoisePPM+9_999)/10_000, 1000)) }

// MaxRelativeErrorPPM with data of one magnitude, which shows FP8's rounding and nothing else.
func (c Cell) MaxRelativeErrorPPM() int64 {
	return max(c.Check(rcclx.DataRounding).MaxRelativeErrorPPM, c.Check(rcclx.DataExact).MaxRelativeErrorPPM)
}

// CheckedElements over all ranks and kinds of data; zero means that nothing was checked.
func (c Cell) CheckedElements() int64 {
	var checked int64
	for _, x := range c.Checks {
		checked += x.CheckedElements
	}
	return checked
}

// checkedOnAll says whether every rank that has a result of the collective checked it with the data.
func (c Cell) checkedOnAll(collective rcclx.Collective, d rcclx.Data, ranks int) bool {
	switch collective {
	case rcclx.Reduce:
		ranks = 1 // only the root has a result
	case rcclx.Broadcast:
		ranks-- // in place, the root's result is what it sent
	}
	return c.Check(d).Ranks >= ranks
}

// add takes the measurement of rank r into the cell.
func (c *Cell) add(v rcclx.Variant, r, ranks int, m rank.Measurement) {
	c.Ranks++
	if shape, err := rcclx.ShapeOfCount(m.Collective, m.Datatype, m.CountElements, ranks); err == nil {
		c.MovedBytes = shape.SizeBytes()
	}
	c.LatencyNanoseconds = max(c.LatencyNanoseconds, m.Latency.MedianNanoseconds)
	c.MinNanoseconds = slowest(c.MinNanoseconds, m.Latency.MinNanoseconds, c.Ranks == 1)
	c.MaxNanoseconds = slowest(c.MaxNanoseconds, m.Latency.MaxNanoseconds, c.Ranks == 1)
	c.P95Nanoseconds = slowest(c.P95Nanoseconds, m.Latency.P95Nanoseconds, c.Ranks == 1)
	c.NoisePPM = max(c.NoisePPM, m.Latency.CoefficientOfVariationPPM)
	if v == rcclx.LowPrecision && m.Hazard != "" {
		c.Hazard = m.Hazard
	}
	for _, check := range m.Checks {
		if check.Data == "" {
			check.Data = plainData(v)
		}
		if mustBeRight(v, check.Data) && !Explained(v, r, ranks, m, check) {
			c.UnexplainedElements += check.WrongElements
		}
		at := slices.IndexFunc(c.Checks, func(x DataCheck) bool { return x.Data == check.Data })
		if at < 0 {
			at = len(c.Checks)
			c.Checks = append(c.Checks, DataCheck{CheckResult: rcclx.CheckResult{Data: check.Data}})
		}
		sum := &c.Checks[at]
		if check.CheckedElements > 0 {
			sum.Ranks++
		}
		sum.CheckedElements += check.CheckedElements
		sum.WrongElements += check.WrongElements
		sum.NaNElements += check.NaNElements
		sum.OverflowElements += check.OverflowElements
		sum.UnwrittenElements += check.UnwrittenElements
		sum.MaxRelativeErrorPPM = max(sum.MaxRelativeErrorPPM, check.MaxRelativeErrorPPM)
		sum.MeanRelativeErrorPPM = max(sum.MeanRelativeErrorPPM, check.MeanRelativeErrorPPM)
	}
}

// Explained says whether all wrong elements of a check by rank r lie in what the library is known to lose. Without the place of the
// first one that is not known, and so not said.
func Explained(v rcclx.Variant, r, ranks int, m rank.Measurement, check rcclx.CheckResult) bool {
	first := check.FirstWrongElement
	return v == rcclx.LowPrecision && m.Hazard != "" && first != nil && *first >= rcclx.HazardStart(m.Collective, r, ranks, m.CountElements)
}

// plainData is what a call is checked with where its step names no data.
func plainData(v rcclx.Variant) rcclx.Data {
	if v == rcclx.LowPrecision {
		return rcclx.DataRounding
	}
	return rcclx.DataExact
}

// Series is one (variant, collective, datatype, placement), by size ascending.
type Series struct {
	Key   SeriesKey
	Cells []Cell
}

// Cell returns the cell of a size.
func (s Series) Cell(sizeBytes int64) (Cell, bool) {
	i, ok := slices.BinarySearchFunc(s.Cells, sizeBytes, func(c Cell, size int64) int { return cmp.Compare(c.SizeBytes, size) })
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

// Tabulate combines the ranks' measurements, and those of the repeats of a variant. A cell counts only where every rank
// reported it: the slowest one may be the one that is missing. The cells that some ranks did not report are returned beside
// the table, since even they can show wrong data.
func Tabulate(variants []VariantOutcome, ranks int) (table Table, incomplete []Series) {
	table.Ranks = ranks
	var done []rcclx.Variant
	for _, v := range variants {
		if slices.Contains(done, v.Variant) {
			continue
		}
		done = append(done, v.Variant)
		whole, part := tabulateVariant(v.Variant, variants, ranks)
		table.Series, incomplete = append(table.Series, whole...), append(incomplete, part...)
	}
	return table, incomplete
}

// tabulateVariant makes the series of one variant from all of its repeats.
func tabulateVariant(variant rcclx.Variant, variants []VariantOutcome, ranks int) (whole, part []Series) {
	var order []SeriesKey
	cells := map[SeriesKey]map[int64][]Cell{} // by size, one for each repeat
	for _, v := range variants {
		if v.Variant != variant {
			continue
		}
		for k, bySize := range repeatCells(v, ranks, &order) {
			if cells[k] == nil {
				cells[k] = map[int64][]Cell{}
			}
			for size, c := range bySize {
				cells[k][size] = append(cells[k][size], *c)
			}
		}
	}
	for _, k := range order {
		w, p := Series{Key: k}, Series{Key: k}
		for _, repeats := range cells[k] {
			var all []Cell
			for _, c := range repeats {
				if c.Ranks == ranks {
					all = append(all, c)
				} else {
					p.Cells = append(p.Cells, c)
				}
			}
			if len(all) > 0 {
				w.Cells = append(w.Cells, combineRepeats(all))
			}
		}
		for _, s := range []*Series{&w, &p} {
			slices.SortStableFunc(s.Cells, func(a, b Cell) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) })
		}
		if len(w.Cells) > 0 {
			whole = append(whole, w)
		}
		if len(p.Cells) > 0 {
			part = append(part, p)
		}
	}
	return whole, part
}

// repeatCells are the cells of one repeat over its ranks; series that are new are added to the order.
func repeatCells(v VariantOutcome, ranks int, order *[]SeriesKey) map[SeriesKey]map[int64]*Cell {
	cells := map[SeriesKey]map[int64]*Cell{}
	for _, r := range v.Outcome.Ranks {
		for _, m := range r.Measurements {
			k := SeriesKey{v.Variant, m.Collective, m.Datatype, cmp.Or(m.Placement, rcclx.OutOfPlace)}
			if cells[k] == nil {
				cells[k] = map[int64]*Cell{}
				if !slices.Contains(*order, k) {
					*order = append(*order, k)
				}
			}
			c := cells[k][m.SizeBytes]
			if c == nil {
				c = &Cell{SizeBytes: m.SizeBytes}
				cells[k][m.SizeBytes] = c
			}
			c.add(v.Variant, r.Rank, ranks, m)
		}
	}
	return cells
}

// VariantOutcome is what became of one variant's ranks.
type VariantOutcome struct {
	Variant rcclx.Variant
	Outcome supervise.Outcome
}

// Results gives the table as the API has it, at the sizes that were asked for: those that were only tried for a hazard
// of the library say nothing of its speed.
func (t Table) Results(sizesBytes []int64) []api.ResultSeries {
	out := make([]api.ResultSeries, 0, len(t.Series))
	for _, s := range t.Series {
		r := api.ResultSeries{Variant: api.Variant(s.Key.Variant), Collective: api.Collective(s.Key.Collective), Datatype: api.Datatype(s.Key.Datatype),
			Placement: shownPlacement(s.Key.Placement)}
		var worst int64
		for _, c := range s.Cells {
			if !slices.Contains(sizesBytes, c.SizeBytes) {
				continue
			}
			r.SizeBytes = append(r.SizeBytes, c.SizeBytes)
			r.LatencyNanoseconds = append(r.LatencyNanoseconds, c.LatencyNanoseconds)
			r.BusBandwidthMBps = append(r.BusBandwidthMBps, c.BusBandwidthMBps(s.Key.Collective, t.Ranks))
			r.NoisePercent = append(r.NoisePercent, c.noisePercent())
			r.WrongElements += c.UnexplainedElements
			if c.Hazard == "" {
				worst = max(worst, c.MaxRelativeErrorPPM())
			}
		}
		if len(r.SizeBytes) == 0 {
			continue
		}
		if slices.Contains(r.NoisePercent, 0) {
			r.NoisePercent = nil // a size without it would read as one without noise
		}
		if s.Key.Variant == rcclx.LowPrecision {
			r.MaxRelativeErrorPPM = &worst
		}
		out = append(out, r)
	}
	return out
}

// shownPlacement is a placement as the API has it: out of place, the usual one, is absent.
func shownPlacement(p rcclx.Placement) api.Placement {
	if p == rcclx.InPlace {
		return api.InPlace
	}
	return ""
}
