package executor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestFirstWrong(t *testing.T) {
	const tail = 8 << 20 // elements; the count is one more
	for name, tc := range map[string]struct {
		variant    rcclx.Variant
		collective rcclx.Collective
		rank       int
		data       rcclx.Data
		hazard     string
		first      *int64
		want       bool
	}{
		"exact": {rcclx.Baseline, rcclx.AllReduce, 0, rcclx.DataExact, "", ptr.To(int64(tail)), true},
		"a hazard of FP8 in Baseline": {rcclx.Baseline, rcclx.AllReduce, 0, rcclx.DataExact, "tail",
			ptr.To(int64(tail)), true},
		"a hazard of FP8 in DDA": {rcclx.DDA, rcclx.AllReduce, 0, rcclx.DataExact, "tail",
			ptr.To(int64(tail)), true},
		"a hazard of FP8": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataRounding, "tail",
			ptr.To(int64(tail)), false},
		"before FP8's tail": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataRounding, "tail",
			ptr.To(int64(tail - 1)), true},
		"nobody knows where": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataRounding,
			"tail", nil, true},
		"FP8's tail at a count that is safe": {rcclx.LowPrecision, rcclx.AllGather, 0, rcclx.DataRounding, "tail",
			ptr.To(int64(tail - 1)), true},
		"ReduceScatter's tail on rank 0": {rcclx.LowPrecision, rcclx.ReduceScatter, 0, rcclx.DataRounding, "tail",
			ptr.To(int64(tail)), false},
		"before ReduceScatter's tail": {rcclx.LowPrecision, rcclx.ReduceScatter, 0, rcclx.DataRounding, "tail",
			ptr.To(int64(0)), true},
		"ReduceScatter's shift on rank 1": {rcclx.LowPrecision, rcclx.ReduceScatter, 1, rcclx.DataRounding, "tail",
			ptr.To(int64(0)), false},
		"rounding":  {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataRounding, "", ptr.To(int64(tail)), true},
		"gradients": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataGradients, "", ptr.To(int64(tail)), true},
		"activations over FP8's range": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataActivations, "",
			ptr.To(int64(0)), false},
		"activations at a hazard": {rcclx.LowPrecision, rcclx.AllReduce, 0, rcclx.DataActivations, "tail",
			ptr.To(int64(0)), false},
		"activations without FP8": {rcclx.Baseline, rcclx.AllReduce, 0, rcclx.DataActivations, "",
			ptr.To(int64(0)), true},
	} {
		count := int64(tail + 1)
		if tc.collective == rcclx.AllGather {
			count = tail
		}
		m := rank.Measurement{Collective: tc.collective, Datatype: rcclx.BFloat16, Placement: rcclx.InPlace,
			SizeBytes: 16<<20 + 2, CountElements: count, Hazard: tc.hazard, Checks: []rcclx.CheckResult{{Data: tc.data,
				CheckedElements: 10, WrongElements: 3, FirstWrongElement: tc.first}}}
		variants := []VariantOutcome{{tc.variant,
			supervise.Outcome{Ranks: []supervise.RankOutcome{{Rank: tc.rank, Measurements: []rank.Measurement{m}}}}}}
		for _, ranks := range []int{1, 2} { // whole, and reported by one of two ranks
			wrong := Tabulate(variants, ranks, allRanks(ranks)).Wrong
			if (wrong != nil) != tc.want {
				t.Errorf("%s over %d ranks: %v, expected %v", name, ranks, wrong, tc.want)
			}
			if wrong != nil &&
				(wrong.String() != fmt.Sprintf("%s %s BFloat16 16777218 B in place", tc.variant, tc.collective) ||
					wrong.Cell.UnexplainedElements != 3) {
				t.Errorf("%s: named %q, %+v", name, wrong, wrong.Cell)
			}
		}
	}
}

// TestNoiseIsReported: rounded up, so that no noise reads as none, and not at all where a size lacks it.
func TestNoiseIsReported(t *testing.T) {
	sizes := []int64{1024, 4096, 16384}
	of := func(ppm ...int64) []int32 {
		s := Series{Key: SeriesKey{rcclx.Baseline, rcclx.AllReduce, rcclx.BFloat16, rcclx.OutOfPlace}}
		for i, noise := range ppm {
			s.Cells = append(s.Cells, Cell{SizeBytes: sizes[i], MovedBytes: sizes[i], LatencyNanoseconds: 1000,
				RepeatNanoseconds: []int64{1000}, NoisePPM: noise})
		}
		return Table{Ranks: 8, Series: []Series{s}}.Results(sizes, 1)[0].NoisePercent
	}
	for _, tc := range []struct{ got, want []int32 }{
		{of(1, 10_000, 10_001), []int32{1, 1, 2}},
		{of(1, 0, 10_001), nil},
		{of(5_000_000_000), []int32{1000}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("got %v, want %v", tc.got, tc.want)
		}
	}
}

// TestCombineRepeats: what is missing in one repeat is missing, what is wrong in one is wrong.
func TestCombineRepeats(t *testing.T) {
	cell := func(median, least, most, p95 int64, checkedBy int) Cell {
		return Cell{SizeBytes: 8, MovedBytes: 8, LatencyNanoseconds: median, MinNanoseconds: least,
			MaxNanoseconds: most, P95Nanoseconds: p95, Ranks: 2, Checks: []DataCheck{
				{rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 5, WrongElements: 1}, checkedBy}}}
	}
	c := combineRepeats([]Cell{cell(30, 20, 40, 39, 2), cell(10, 5, 90, 80, 2), cell(20, 15, 25, 24, 1)})
	if c.LatencyNanoseconds != 20 || c.MinNanoseconds != 5 || c.MaxNanoseconds != 90 || c.P95Nanoseconds != 80 ||
		!slices.Equal(c.RepeatNanoseconds, []int64{30, 10, 20}) {
		t.Errorf("%+v", c)
	}
	if x := c.Check(rcclx.DataExact); x.Ranks != 1 || x.CheckedElements != 15 || x.WrongElements != 3 {
		t.Errorf("%+v", x)
	}
	c = combineRepeats([]Cell{cell(30, 20, 40, 39, 2), cell(10, 0, 0, 0, 2)})
	if c.MinNanoseconds != 0 || c.MaxNanoseconds != 0 || c.P95Nanoseconds != 0 {
		t.Errorf("a repeat without statistics: %+v", c)
	}
	other := cell(1, 1, 1, 1, 2)
	other.Checks[0].Data = rcclx.DataGradients
	if c = combineRepeats([]Cell{cell(1, 1, 1, 1, 2), other}); c.Check(rcclx.DataExact).Ranks != 0 ||
		c.Check(rcclx.DataGradients).Ranks != 0 {
		t.Errorf("kinds of data that only one repeat checked: %+v", c.Checks)
	}
}

// TestMissingInOneRepeat: a size that one repeat did not deliver is missing data, which is no pass.
func TestMissingInOneRepeat(t *testing.T) {
	outcome := func(sizes ...int64) VariantOutcome {
		var r supervise.RankOutcome
		for _, size := range sizes {
			r.Measurements = append(r.Measurements, rank.Measurement{Collective: rcclx.AllReduce,
				Datatype: rcclx.BFloat16, SizeBytes: size, CountElements: size / 2,
				Latency: rcclx.LatencyStats{MedianNanoseconds: 1000},
				Checks:  []rcclx.CheckResult{{Data: rcclx.DataExact, CheckedElements: 1}}})
		}
		return VariantOutcome{rcclx.Baseline, supervise.Outcome{Ranks: []supervise.RankOutcome{r}}}
	}
	plan := repeatsPlan(2)
	table := Tabulate([]VariantOutcome{outcome(1<<20, 64<<20), outcome(1 << 20)}, 1, allRanks(1))
	missing := missingData(Evidence{Plan: plan, Ranks: 1, Prepared: Prepared{Library: &rcclx.LibraryInfo{}}},
		table, nil)
	if len(missing) != 1 || !strings.Contains(missing[0], "1 of 2 sizes were not measured in each of 2 repeats") {
		t.Errorf("%q", missing)
	}
}
