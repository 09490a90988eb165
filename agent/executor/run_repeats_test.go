package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// flakyTeams is a model whose repeats of a variant differ: latencies, and what goes wrong.
type flakyTeams struct {
	// baseNanoseconds of Baseline's calls, one for each repeat.
	baseNanoseconds []int64
	// bad is what Baseline's team does in a repeat, as modelTeams.bad says it; absent means nothing.
	bad map[int]string
	// slowPair halves a pair of GPUs in these repeats.
	slowPair []int
	started  map[rcclx.Variant]int
	names    []string
}

func (f *flakyTeams) Run(ctx context.Context, team supervise.Team) supervise.Outcome {
	if f.started == nil {
		f.started = map[rcclx.Variant]int{}
	}
	model := modelTeams{}
	if team.Specs[0].WorldSize > 0 && !strings.HasPrefix(team.Name, "search") {
		v := team.Specs[0].Variant
		at := f.started[v]
		f.started[v]++
		f.names = append(f.names, team.Name)
		if v == rcclx.Baseline {
			model.latency = func(rcclx.Variant, rcclx.Collective, int64) int64 {
				return f.baseNanoseconds[at%len(f.baseNanoseconds)]
			}
			model.bad = func(rcclx.Variant, []int) string { return f.bad[at] }
			model.pairMBps = func(a, b int) int64 {
				if slices.Contains(f.slowPair, at) && a == 1 && b == 4 {
					return 12000
				}
				return 48000
			}
		}
	}
	return model.Run(ctx, team)
}

func repeatsPlan(n int32) api.RunPlan {
	p := defaultPlan()
	p.Variants, p.Collectives, p.SizesBytes, p.Repeats = p.Variants[:1], p.Collectives[:1],
		[]int64{1 << 20, 64 << 20}, n
	return p
}

// runFlaky carries a plan out on flaky teams.
func runFlaky(t *testing.T, plan api.RunPlan, teams supervise.TeamRunner) api.NodeRunStatus {
	t.Helper()
	res, _, err := runModel(t, plan, &modelTeams{}, func(r *Runner, _ *memoryReporter) { r.Teams = teams })
	if err != nil {
		t.Fatal(err)
	}
	return res.Full
}

// TestRepeatsDecideByTheirMedian: one good repeat among bad ones passes nothing, and one bad repeat among good ones
// fails only what is held against the slowest.
func TestRepeatsDecideByTheirMedian(t *testing.T) {
	// Of 64 MiB over eight ranks, 1 ms is 117441 MB/s, 2 ms 58720.
	const good, bad = 1_000_000, 2_000_000
	for _, tc := range []struct {
		repeats   []int64
		statistic api.Statistic
		verdict   api.Verdict
		measured  int64
	}{
		{[]int64{good}, api.StatisticMedian, api.VerdictPass, 117441},
		{[]int64{good, bad, bad}, api.StatisticMedian, api.VerdictFail, 58720},
		{[]int64{bad, bad, good}, api.StatisticMedian, api.VerdictFail, 58720},
		{[]int64{good, good, bad}, api.StatisticMedian, api.VerdictPass, 117441},
		// Of two the mean of both latencies counts, which is worse than half of the good one.
		{[]int64{good, bad}, api.StatisticMedian, api.VerdictFail, 78294},
	} {
		plan := repeatsPlan(int32(len(tc.repeats)))
		plan.Thresholds = []api.Threshold{{Collective: api.AllReduce, SizeBytes: 64 << 20, Statistic: tc.statistic,
			MinBusBandwidthMBps: ptr.To(int64(100_000))}}
		s := runFlaky(t, plan, &flakyTeams{baseNanoseconds: tc.repeats})
		c := s.Checks[slices.IndexFunc(s.Checks, func(c api.PerformanceCheck) bool { return c.Source == "spec" })]
		if s.Verdict != tc.verdict || c.MeasuredMBps == nil || *c.MeasuredMBps != tc.measured {
			t.Errorf("%v: %s: %s; %+v, expected %s and %d MB/s",
				tc.repeats, s.Verdict, s.Message, c, tc.verdict, tc.measured)
		}
		if n := len(tc.repeats); n > 1 && slices.Max(tc.repeats) != slices.Min(tc.repeats) &&
			!strings.Contains(c.Measurement, fmt.Sprintf("; %d repeats of 58.7 to 117.4 GB/s", n)) {
			t.Errorf("%v: %q does not tell the spread", tc.repeats, c.Measurement)
		}
	}
}

// TestRepeatsRunEverythingAgain: whole plans after each other, each variant in processes of its own, and progress says
// which.
func TestRepeatsRunEverythingAgain(t *testing.T) {
	plan := repeatsPlan(2)
	plan.Variants = defaultPlan().Variants
	teams := &flakyTeams{baseNanoseconds: []int64{1_000_000}}
	s := runFlaky(t, plan, teams)
	want := []string{"Baseline (repeat 1 of 2)", "DDA (repeat 1 of 2)", "LowPrecision (repeat 1 of 2)",
		"Baseline (repeat 2 of 2)", "DDA (repeat 2 of 2)", "LowPrecision (repeat 2 of 2)"}
	if !slices.Equal(teams.names, want) || s.Verdict != api.VerdictPass {
		t.Errorf("%s (%s), teams %q", s.Verdict, s.Message, teams.names)
	}
	if n := len(s.Results); n != 3 {
		t.Errorf("%d series, expected one a variant", n)
	}
}

// TestAFailingRepeatFailsTheRun: whatever the others showed.
func TestAFailingRepeatFailsTheRun(t *testing.T) {
	for what, want := range map[string]string{"hang": api.ReasonRankHung, "wrong": api.ReasonWrongData,
		"die": api.ReasonRankDied} {
		for at := range 3 {
			s := runFlaky(t, repeatsPlan(3),
				&flakyTeams{baseNanoseconds: []int64{1_000_000}, bad: map[int]string{at: what}})
			if s.Verdict != api.VerdictFail || s.Reason != want {
				t.Errorf("%s in repeat %d: %s %s: %s", what, at+1, s.Verdict, s.Reason, s.Message)
			}
		}
	}
}

// TestPairsOverRepeats: a pair that is slow in most repeats is named, one that is slow once is not.
func TestPairsOverRepeats(t *testing.T) {
	for _, tc := range []struct {
		slow    []int
		verdict api.Verdict
	}{{nil, api.VerdictPass}, {[]int{2}, api.VerdictPass}, {[]int{0, 2}, api.VerdictFail}} {
		s := runFlaky(t, repeatsPlan(3), &flakyTeams{baseNanoseconds: []int64{1_000_000}, slowPair: tc.slow})
		if s.Verdict != tc.verdict || tc.verdict == api.VerdictFail && s.Reason != api.ReasonSlowLink {
			t.Errorf("slow in %v: %s %s: %s", tc.slow, s.Verdict, s.Reason, s.Message)
		}
	}
}
