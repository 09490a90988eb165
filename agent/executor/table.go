package executor

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
	// SizeBytes as asked for; MovedBytes is the size of the message that was sent, rounded down to whole elements for
	// each rank. Bandwidth is over the latter; it is zero where the ranks did not say how much they sent.
	SizeBytes, MovedBytes int64
	// LatencyNanoseconds is the median over the iterations of the slowest rank; of several repeats, the median of
	// theirs.
	LatencyNanoseconds int64
	// MinNanoseconds, MaxNanoseconds and P95Nanoseconds are the slowest rank's in each; of several repeats the least,
	// the largest, and the largest. Zero where a rank or a repeat lacks it.
	MinNanoseconds, MaxNanoseconds, P95Nanoseconds int64
	// RepeatNanoseconds are the medians of the repeats in which every rank reported the cell, in the order of the run.
	RepeatNanoseconds []int64
	// NoisePPM is the largest coefficient of variation of a rank, in parts per million.
	NoisePPM int64
	// Checks, one for each kind of data.
	Checks []DataCheck
	// Hazard says where the library is known to lose data for such a count with FP8; empty for every other cell.
	Hazard string
	// UnexplainedElements are the wrong ones of the checks that must come out right, without those of ranks whose
	// first wrong element lies in what the hazard loses.
	UnexplainedElements int64
	// Ranks that reported the cell.
	Ranks int
	// wrongOn names the ranks with unexplained elements.
	wrongOn []string
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

// spreadPercent is how far the slowest repeat's bandwidth lies below the fastest's, rounded up. Bandwidth goes with
// the inverse of the latency: of the fastest the slowest lacks 1 - least/most.
func (c Cell) spreadPercent() int32 {
	least, most := slices.Min(c.RepeatNanoseconds), slices.Max(c.RepeatNanoseconds)
	return int32(((most-least)*100 + most - 1) / most)
}

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

// add takes the measurement of rank r, one of so many in the communicator, into the cell.
func (c *Cell) add(v rcclx.Variant, r supervise.RankOutcome, ranks int, m rank.Measurement) {
	c.Ranks++
	if shape, err := rcclx.ShapeOfCount(m.Collective, m.Datatype, m.CountElements, ranks); err == nil {
		c.MovedBytes = shape.SizeBytes()
	}
	c.LatencyNanoseconds = max(c.LatencyNanoseconds, m.Latency.MedianNanoseconds, m.SlowestNanoseconds)
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
		if check.WrongElements > 0 && mustBeRight(v, check.Data) && !Explained(v, r.Rank, ranks, m, check) {
			c.UnexplainedElements += check.WrongElements
			if name := r.Name(); !slices.Contains(c.wrongOn, name) {
				c.wrongOn = append(c.wrongOn, name)
			}
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

// Explained says whether all wrong elements of a check by rank r lie in what the library is known to lose. Without
// the place of the first one that is not known, and so not said.
func Explained(v rcclx.Variant, r, ranks int, m rank.Measurement, check rcclx.CheckResult) bool {
	first := check.FirstWrongElement
	return v == rcclx.LowPrecision && m.Hazard != "" && first != nil &&
		*first >= rcclx.HazardStart(m.Collective, r, ranks, m.CountElements)
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
	i, ok := slices.BinarySearchFunc(s.Cells, sizeBytes, func(c Cell, size int64) int {
		return cmp.Compare(c.SizeBytes, size)
	})
	if !ok {
		return Cell{}, false
	}
	return s.Cells[i], true
}

// Table is all that ranks measured with collectives, in the order of their variants and steps.
type Table struct {
	// Ranks of the communicator, on other nodes too; Local are those whose measurements are in the table.
	Ranks int
	Local []int
	// Series of the cells that every local rank reported: the slowest one may be the one that is missing.
	Series []Series
	// Incomplete are the other cells: even they can show wrong data.
	Incomplete []Series
	// Wrong is the first measurement with wrong elements, in the order of the run; nil where all are right.
	Wrong *Measured
}

// Find returns a series.
func (t Table) Find(k SeriesKey) (Series, bool) { return find(t.Series, k) }

func find(all []Series, k SeriesKey) (Series, bool) {
	if i := slices.IndexFunc(all, func(s Series) bool { return s.Key == k }); i >= 0 {
		return all[i], true
	}
	return Series{}, false
}

// Measured is one cell in one repeat.
type Measured struct {
	Key SeriesKey
	// Repeat from 1.
	Repeat int
	Cell   Cell
	// order of the cell in the work of the rank that came to it first.
	order int
}

func (m Measured) String() string { return fmt.Sprintf("%s %s", m.Key.Variant, m.at()) }

// at is the measurement as a rank names it.
func (m Measured) at() rank.Position {
	return rank.Position{Kind: rank.StepMeasure, Collective: m.Key.Collective, Datatype: m.Key.Datatype,
		Placement: m.Key.Placement, SizeBytes: m.Cell.SizeBytes}
}

// allRanks are the ranks of a communicator within one node.
func allRanks(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Tabulate combines the measurements of the local ones of a communicator's ranks, and those of the repeats of a
// variant.
func Tabulate(variants []VariantOutcome, ranks int, local []int) Table {
	t := Table{Ranks: ranks, Local: local}
	repeats := repeatsIn(variants, ranks)
	// What FP8 is known to lose at some counts does not count: no GPU is to blame for it, and the setting carries the
	// warning.
	if i := slices.IndexFunc(repeats, func(r Measured) bool { return r.Cell.UnexplainedElements > 0 }); i >= 0 {
		t.Wrong = &repeats[i]
	}
	for _, k := range keysOf(repeats) {
		whole, part := Series{Key: k}, Series{Key: k}
		bySize := map[int64][]Cell{}
		for _, r := range repeats {
			switch {
			case r.Key != k:
			case r.Cell.Ranks == len(local):
				bySize[r.Cell.SizeBytes] = append(bySize[r.Cell.SizeBytes], r.Cell)
			default:
				part.Cells = append(part.Cells, r.Cell)
			}
		}
		for _, cells := range bySize {
			whole.Cells = append(whole.Cells, combineRepeats(cells))
		}
		t.Series, t.Incomplete = appendSorted(t.Series, whole), appendSorted(t.Incomplete, part)
	}
	return t
}

// appendSorted adds a series by size, unless it has no cell.
func appendSorted(all []Series, s Series) []Series {
	if len(s.Cells) == 0 {
		return all
	}
	slices.SortStableFunc(s.Cells, func(a, b Cell) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) })
	return append(all, s)
}

// keysOf are the series, by variant and then in the order of the run.
func keysOf(repeats []Measured) []SeriesKey {
	var keys []SeriesKey
	var variants []rcclx.Variant
	for _, r := range repeats {
		if !slices.Contains(keys, r.Key) {
			keys = append(keys, r.Key)
		}
		if !slices.Contains(variants, r.Key.Variant) {
			variants = append(variants, r.Key.Variant)
		}
	}
	slices.SortStableFunc(keys, func(a, b SeriesKey) int {
		return slices.Index(variants, a.Variant) - slices.Index(variants, b.Variant)
	})
	return keys
}

// repeatsIn are the cells of each repeat, in the order of the run. A repeat is a variant's ranks started once more,
// or the same measurement made once more by the same ranks.
func repeatsIn(variants []VariantOutcome, ranks int) []Measured {
	var out []Measured
	started := map[rcclx.Variant]int{}
	for _, v := range variants {
		out = append(out, cellsOf(v, ranks, started[v.Variant])...)
		started[v.Variant]++
	}
	return out
}

// cellsOf are the cells of one outcome, before which there were so many repeats.
func cellsOf(v VariantOutcome, ranks, before int) []Measured {
	type place struct {
		key    SeriesKey
		size   int64
		repeat int
	}
	var out []Measured
	at := map[place]int{}
	for _, r := range v.Outcome.Ranks {
		times := map[place]int{} // how often this rank has measured it
		for i, m := range r.Measurements {
			key := SeriesKey{v.Variant, m.Collective, m.Datatype, cmp.Or(m.Placement, rcclx.OutOfPlace)}
			p := place{key: key, size: m.SizeBytes}
			times[p]++
			p.repeat = before + times[p]
			k, known := at[p]
			if !known {
				k = len(out)
				at[p] = k
				out = append(out, Measured{Key: p.key, Repeat: p.repeat, Cell: Cell{SizeBytes: m.SizeBytes}, order: i})
			}
			out[k].order = min(out[k].order, i)
			out[k].Cell.add(v.Variant, r, ranks, m)
		}
	}
	slices.SortStableFunc(out, func(a, b Measured) int { return a.order - b.order })
	return out
}

// VariantOutcome is what became of one variant's ranks.
type VariantOutcome struct {
	Variant rcclx.Variant
	Outcome supervise.Outcome
}

// checkers is how many of the local ranks have a result of their own to check: of Reduce only the root, and of
// Broadcast all but the root, whose result in place is what it sent.
func (t Table) checkers(c rcclx.Collective) int {
	root := 0
	if slices.Contains(t.Local, 0) {
		root = 1
	}
	switch c {
	case rcclx.Reduce:
		return root
	case rcclx.Broadcast:
		return len(t.Local) - root
	}
	return len(t.Local)
}

// missing says what the plan asked for and no local rank, or not every one, delivered in each repeat.
func (t Table) missing(plan []VariantPlan, repeats int) []string {
	var out []string
	for _, s := range t.Incomplete {
		out = append(out, fmt.Sprintf("%s was reported by only some ranks at %d sizes", s.Key, len(s.Cells)))
	}
	for _, v := range plan {
		for _, step := range v.Steps {
			if step.Kind != rank.StepMeasure {
				continue
			}
			if text := t.missingOf(step, v.Variant, repeats); text != "" {
				out = append(out, text)
			}
		}
	}
	return out
}

// missingOf says which sizes of a step were not measured in each repeat, or not checked with all of its data on all
// ranks.
func (t Table) missingOf(step rank.Step, v rcclx.Variant, repeats int) string {
	key := SeriesKey{v, step.Collective, step.Datatype, cmp.Or(step.Placement, rcclx.OutOfPlace)}
	s, _ := t.Find(key)
	absent, unchecked := 0, 0
	checkers := t.checkers(step.Collective)
	for _, size := range step.SizesBytes {
		c, ok := s.Cell(size)
		switch {
		case !ok || len(c.RepeatNanoseconds) != repeats:
			absent++
		case slices.ContainsFunc(step.Data, func(d rcclx.Data) bool { return c.Check(d).Ranks < checkers }):
			unchecked++
		}
	}
	if absent+unchecked == 0 {
		return ""
	}
	each := ""
	if repeats > 1 {
		each = fmt.Sprintf(" in each of %d repeats", repeats)
	}
	return fmt.Sprintf("%s: %d of %d sizes were not measured%s, %d not checked",
		key, absent, len(step.SizesBytes), each, unchecked)
}

// Results gives the table as the API has it, at the sizes that were asked for and measured in so many repeats at
// least: those that were only tried for a hazard of the library say nothing of its speed. A size whose bandwidth
// cannot be told is left out.
func (t Table) Results(sizesBytes []int64, repeats int) []api.ResultSeries {
	out := make([]api.ResultSeries, 0, len(t.Series))
	for _, s := range t.Series {
		if r := t.result(s, sizesBytes, repeats); len(r.SizeBytes) > 0 {
			out = append(out, r)
		}
	}
	return out
}

func (t Table) result(s Series, sizesBytes []int64, repeats int) api.ResultSeries {
	r := api.ResultSeries{Variant: api.Variant(s.Key.Variant), Collective: api.Collective(s.Key.Collective),
		Datatype: api.Datatype(s.Key.Datatype), Placement: shownPlacement(s.Key.Placement)}
	if s.Key.Variant == rcclx.LowPrecision {
		r.MaxRelativeErrorPPM = new(int64)
	}
	incomplete, _ := find(t.Incomplete, s.Key)
	for _, c := range slices.Concat(s.Cells, incomplete.Cells) {
		if slices.Contains(sizesBytes, c.SizeBytes) {
			r.WrongElements += c.UnexplainedElements
		}
	}
	for _, c := range s.Cells {
		if len(c.RepeatNanoseconds) < repeats || !slices.Contains(sizesBytes, c.SizeBytes) {
			continue
		}
		bandwidth := c.BusBandwidthMBps(s.Key.Collective, t.Ranks)
		if slices.Min(c.RepeatNanoseconds) <= 0 || bandwidth <= 0 && t.Ranks > 1 {
			continue
		}
		r.SizeBytes = append(r.SizeBytes, c.SizeBytes)
		r.LatencyNanoseconds = append(r.LatencyNanoseconds, c.LatencyNanoseconds)
		r.BusBandwidthMBps = append(r.BusBandwidthMBps, bandwidth)
		r.NoisePercent = append(r.NoisePercent, c.noisePercent())
		if len(c.RepeatNanoseconds) > 1 {
			r.SpreadPercent = append(r.SpreadPercent, c.spreadPercent())
		}
		if r.MaxRelativeErrorPPM != nil && c.Hazard == "" {
			*r.MaxRelativeErrorPPM = max(*r.MaxRelativeErrorPPM, c.MaxRelativeErrorPPM())
		}
	}
	if slices.Contains(r.NoisePercent, 0) {
		r.NoisePercent = nil // a size without it would read as one without noise
	}
	return r
}

// shownPlacement is a placement as the API has it: out of place, the usual one, is absent.
func shownPlacement(p rcclx.Placement) api.Placement {
	if p == rcclx.InPlace {
		return api.InPlace
	}
	return ""
}
