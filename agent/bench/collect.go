package bench

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// cellKey is one measurement of a variant.
type cellKey struct {
	collective rcclx.Collective
	datatype   rcclx.Datatype
	placement  rcclx.Placement
	sizeBytes  int64
}

func (k cellKey) String() string {
	text := fmt.Sprintf("%s %s %d B", k.collective, k.datatype, k.sizeBytes)
	if k.placement == rcclx.InPlace {
		text += " in place"
	}
	return text
}

func keyOf(m rank.Measurement) cellKey {
	return cellKey{m.Collective, m.Datatype, m.Placement, m.SizeBytes}
}

// collector combines what the ranks of one variant measured, as it comes.
type collector struct {
	variant rcclx.Variant
	ranks   int
	order   []cellKey
	cells   map[cellKey]map[int]rank.Measurement
}

func newCollector(v rcclx.Variant, ranks int) *collector {
	return &collector{variant: v, ranks: ranks, cells: map[cellKey]map[int]rank.Measurement{}}
}

// add takes one rank's measurement. A result is complete only when every rank has measured it: the slowest one may be
// the one that is missing.
func (c *collector) add(r int, m rank.Measurement) (result results.Result, complete bool) {
	k := keyOf(m)
	if c.cells[k] == nil {
		c.cells[k] = map[int]rank.Measurement{}
		c.order = append(c.order, k)
	}
	c.cells[k][r] = m
	if len(c.cells[k]) < c.ranks {
		return results.Result{}, false
	}
	return combine(c.variant, c.ranks, c.cells[k]), true
}

// results are those that every rank has measured, in the order of the run.
func (c *collector) results() []results.Result {
	var out []results.Result
	for _, k := range c.order {
		if len(c.cells[k]) == c.ranks {
			out = append(out, combine(c.variant, c.ranks, c.cells[k]))
		}
	}
	return out
}

// incomplete says what only some ranks measured, and where wrong data was seen in it all the same.
func (c *collector) incomplete() []string {
	var out []string
	for _, k := range c.order {
		if len(c.cells[k]) == c.ranks {
			continue
		}
		var wrong []string
		for r := range c.ranks {
			if m, ok := c.cells[k][r]; ok && m.Wrong() > 0 {
				text := fmt.Sprintf("rank %d has %d wrong elements", r, m.Wrong())
				if n := m.Unwritten(); n > 0 {
					text += fmt.Sprintf(" (%d never written)", n)
				}
				wrong = append(wrong, text)
			}
		}
		text := fmt.Sprintf("%s %s was measured by %d of %d ranks and is left out",
			c.variant, k, len(c.cells[k]), c.ranks)
		if len(wrong) > 0 {
			text += "; " + strings.Join(wrong, ", ")
		}
		out = append(out, text)
	}
	return out
}

// combine gives the result of all ranks.
func combine(v rcclx.Variant, ranks int, by map[int]rank.Measurement) results.Result {
	first := by[0]
	r := results.Result{Variant: v, Collective: first.Collective,
		Datatype: first.Datatype, Placement: first.Placement, SizeBytes: first.SizeBytes,
		CountElements: first.CountElements, ExpectedPath: first.ExpectedPath, Hazard: first.Hazard}
	if reduces(r.Collective) {
		r.Op = "Sum"
	}
	l := &r.Latency
	l.Repeats, l.IterationsPerRepeat = first.Latency.Repeats, first.Latency.IterationsPerRepeat
	var sum int64
	hasP95 := true // unless a rank lacks it, who may be the slowest
	for i := range ranks {
		m := by[i]
		l.MedianNanoseconds = max(l.MedianNanoseconds, m.Latency.MedianNanoseconds)
		l.MinNanoseconds = max(l.MinNanoseconds, m.Latency.MinNanoseconds)
		l.MaxNanoseconds = max(l.MaxNanoseconds, m.Latency.MaxNanoseconds)
		l.P95Nanoseconds, hasP95 = max(l.P95Nanoseconds, m.Latency.P95Nanoseconds),
			hasP95 && m.Latency.P95Nanoseconds > 0
		l.CoefficientOfVariationPPM = max(l.CoefficientOfVariationPPM, m.Latency.CoefficientOfVariationPPM)
		r.LaunchNanoseconds = max(r.LaunchNanoseconds, m.LaunchNanoseconds)
		sum += m.Latency.MedianNanoseconds
		if r.Hazard == "" {
			r.Hazard = m.Hazard
		}
		for _, c := range m.Checks {
			r.Checks = addCheck(r.Checks, c)
			if executor.Explained(v, i, ranks, m, c) {
				r.HazardElements += c.WrongElements
			}
		}
	}
	if !hasP95 {
		l.P95Nanoseconds = 0
	}
	r.MeanLatencyNanoseconds = (sum + int64(ranks)/2) / int64(ranks)
	// What was moved counts: a size that was asked for is rounded down to whole elements for every rank.
	if shape, err := rcclx.ShapeOfCount(r.Collective, r.Datatype, r.CountElements, ranks); err == nil {
		r.SizeBytes = shape.SizeBytes()
	}
	r.SetBandwidths(ranks)
	return r
}

func reduces(c rcclx.Collective) bool {
	return slices.Contains([]rcclx.Collective{rcclx.AllReduce, rcclx.ReduceScatter, rcclx.Reduce}, c)
}

// addCheck adds one rank's check to those of the ranks before it: counts are summed, of the errors the largest stays,
// and the first wrong element is that of the lowest rank that has one.
func addCheck(all []rcclx.CheckResult, c rcclx.CheckResult) []rcclx.CheckResult {
	i := slices.IndexFunc(all, func(x rcclx.CheckResult) bool { return x.Data == c.Data })
	if i < 0 {
		return append(all, c)
	}
	x := &all[i]
	x.CheckedElements += c.CheckedElements
	x.WrongElements += c.WrongElements
	x.NaNElements += c.NaNElements
	x.OverflowElements += c.OverflowElements
	x.UnwrittenElements += c.UnwrittenElements
	x.MaxRelativeErrorPPM = max(x.MaxRelativeErrorPPM, c.MaxRelativeErrorPPM)
	x.MeanRelativeErrorPPM = max(x.MeanRelativeErrorPPM, c.MeanRelativeErrorPPM)
	if x.FirstWrongElement == nil {
		x.FirstWrongElement = c.FirstWrongElement
	}
	return all
}

// lostValues says where values became NaN or left the range: FP8 transport casts without scaling, and how many values
// it loses depends on the data. What the library never wrote is no such value, and is told apart.
func lostValues(all []results.Result) []string {
	var out []string
	for _, r := range all {
		for _, c := range r.Checks {
			var lost []string
			if c.UnwrittenElements > 0 {
				lost = append(lost,
					fmt.Sprintf("%d were never written by the library, which reported no error", c.UnwrittenElements))
			}
			if c.NaNElements+c.OverflowElements > 0 {
				lost = append(lost, fmt.Sprintf("%d became NaN and %d overflowed", c.NaNElements, c.OverflowElements))
			}
			if len(lost) > 0 {
				out = append(out, fmt.Sprintf("%s %s %s %d B: of %d elements of %s data %s", r.Variant, r.Collective,
					r.Datatype, r.SizeBytes, c.CheckedElements, c.Data, strings.Join(lost, ", and ")))
			}
		}
	}
	return out
}

// hazardous says where FP8 gave wrong data at counts at which it is known to: a warning for whoever uses such counts,
// and no fault of these GPUs.
func hazardous(all []results.Result) []string {
	var out []string
	for _, r := range all {
		if r.HazardElements > 0 {
			out = append(out, fmt.Sprintf("%s %s %s %d B: %d wrong elements, and %s",
				r.Variant, r.Collective, r.Datatype, r.SizeBytes, r.HazardElements, r.Hazard))
		}
	}
	return out
}
