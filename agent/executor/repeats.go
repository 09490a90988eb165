package executor

import (
	"fmt"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// attempt is one variant in one repeat of the plan.
type attempt struct {
	VariantPlan
	// Number of the repeat from 1, and Of how many.
	Number, Of int
}

// attempts are all variants in each repeat. A repeat is through with all variants before the next one begins: what is
// compared with each other is measured close in time.
func attempts(p api.RunPlan, ranks int) []attempt {
	plan, n := Plan(p, ranks), repeatsOf(p.Repeats)
	out := make([]attempt, 0, n*len(plan))
	for i := range n {
		for _, v := range plan {
			out = append(out, attempt{v, i + 1, n})
		}
	}
	return out
}

func (a attempt) name() string {
	if a.Of == 1 {
		return string(a.Variant)
	}
	return fmt.Sprintf("%s (repeat %d of %d)", a.Variant, a.Number, a.Of)
}

// slowest takes one more rank's latency into that of the slowest rank. A rank that lacks it (zero) may be the slowest,
// so that it is not known for any.
func slowest(before, latencyNanoseconds int64, first bool) int64 {
	if latencyNanoseconds <= 0 || before <= 0 && !first {
		return 0
	}
	return max(before, latencyNanoseconds)
}

// combineRepeats makes one cell of those of the repeats, of which there is at least one. No repeat is chosen for being
// good: latencies are the median of the repeats' medians, what is wrong in one is wrong, and a kind of data counts as
// checked by as many ranks as checked it in each repeat.
func combineRepeats(repeats []Cell) Cell {
	out := repeats[0]
	out.Checks = slices.Clone(out.Checks)
	out.RepeatNanoseconds = []int64{out.LatencyNanoseconds}
	for _, c := range repeats[1:] {
		out.RepeatNanoseconds = append(out.RepeatNanoseconds, c.LatencyNanoseconds)
		out.MinNanoseconds = min(out.MinNanoseconds, c.MinNanoseconds) // zero, which is not known, stays
		out.MaxNanoseconds = slowest(out.MaxNanoseconds, c.MaxNanoseconds, false)
		out.P95Nanoseconds = slowest(out.P95Nanoseconds, c.P95Nanoseconds, false)
		out.NoisePPM = max(out.NoisePPM, c.NoisePPM)
		out.UnexplainedElements += c.UnexplainedElements
		if out.Hazard == "" {
			out.Hazard = c.Hazard
		}
		out.MovedBytes = min(out.MovedBytes, c.MovedBytes)
		out.addChecks(c.Checks)
	}
	out.LatencyNanoseconds = Median(out.RepeatNanoseconds)
	return out
}

// addChecks takes the checks of one more repeat in.
func (c *Cell) addChecks(more []DataCheck) {
	for i := range c.Checks {
		if !slices.ContainsFunc(more, func(x DataCheck) bool { return x.Data == c.Checks[i].Data }) {
			c.Checks[i].Ranks = 0 // not checked in each repeat
		}
	}
	for _, x := range more {
		at := slices.IndexFunc(c.Checks, func(y DataCheck) bool { return y.Data == x.Data })
		if at < 0 {
			x.Ranks = 0
			c.Checks = append(c.Checks, x)
			continue
		}
		sum := &c.Checks[at]
		sum.Ranks = min(sum.Ranks, x.Ranks)
		sum.CheckedElements += x.CheckedElements
		sum.WrongElements += x.WrongElements
		sum.NaNElements += x.NaNElements
		sum.OverflowElements += x.OverflowElements
		sum.UnwrittenElements += x.UnwrittenElements
		sum.MaxRelativeErrorPPM = max(sum.MaxRelativeErrorPPM, x.MaxRelativeErrorPPM)
		sum.MeanRelativeErrorPPM = max(sum.MeanRelativeErrorPPM, x.MeanRelativeErrorPPM)
	}
}

// Median of at least one value; of an even number the mean of the middle two.
func Median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2
}

// baselinePairs are the bandwidths between pairs of GPUs, by pair: the median over the repeats. A pair that one repeat
// lacks is left out, and so counts as not measured.
func baselinePairs(variants []VariantOutcome) []PairBandwidth {
	var out []PairBandwidth
	values := map[Pair][]int64{}
	repeats := 0
	for _, v := range variants {
		if v.Variant != rcclx.Baseline {
			continue
		}
		repeats++
		for _, b := range PairBandwidths(v.Outcome.Ranks) {
			values[b.Pair] = append(values[b.Pair], b.BandwidthMBps)
			at := slices.IndexFunc(out, func(x PairBandwidth) bool { return x.Pair == b.Pair })
			if at < 0 {
				out = append(out, b)
				continue
			}
			out[at].WrongElements += b.WrongElements
		}
	}
	out = slices.DeleteFunc(out, func(b PairBandwidth) bool {
		return len(values[b.Pair]) < repeats && b.WrongElements == 0
	})
	for i := range out {
		out[i].BandwidthMBps = Median(values[out[i].Pair])
	}
	return out
}
