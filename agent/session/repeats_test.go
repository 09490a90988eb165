package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// repeatedTask is node a's part of a communicator over two nodes with two ranks each, and what its ranks do when all is well.
func repeatedTask(repeats int32, sizesBytes ...int64) (api.NodeTask, func() supervise.Outcome) {
	task := wholeGroup("group-1", make([]*member, 2))[0]
	task.Repeats = repeats
	if len(sizesBytes) > 0 {
		task.SizesBytes = sizesBytes
	}
	return task, func() supervise.Outcome {
		c := task.Communicators[0]
		var specs []rank.Spec
		for i, r := range c.Ranks {
			specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]), Steps: plan(task, int(c.WorldSize))})
		}
		return passed(specs)
	}
}

// TestSmallMessageKeepsItsFigure: 8 B over nodes in 40 us are 0.3 MB/s; zero would be missing, and that ends the test of a good node.
func TestSmallMessageKeepsItsFigure(t *testing.T) {
	task, good := repeatedTask(0, 8, 1<<20)
	out := good()
	for _, r := range out.Ranks {
		for i := range r.Measurements {
			r.Measurements[i].Latency.MedianNanoseconds = 40_000
		}
	}
	s := judge("node-a", task, task.Communicators[0], ended{outcome: out}, true)
	if s.Verdict != api.VerdictPass || len(s.Results) != 1 || !slices.Contains(s.Results[0].SizeBytes, 8) || s.Results[0].BusBandwidthMBps[0] != 1 {
		t.Errorf("%s: %+v lacks the 8 B that were measured", s.Verdict, s.Results)
	}
}

// TestSlowestRankOfOtherNodesCounts: rank 0's node tells the figures, and a link that is slow far from it slows its own ranks little.
func TestSlowestRankOfOtherNodesCounts(t *testing.T) {
	task, good := repeatedTask(0, 1<<20)
	out := good()
	for _, r := range out.Ranks {
		r.Measurements[0].SlowestNanoseconds = 10_000_000
	}
	s := judge("node-a", task, task.Communicators[0], ended{outcome: out}, true)
	if len(s.Results) != 1 || s.Results[0].LatencyNanoseconds[0] != 10_000_000 {
		t.Errorf("%+v", s.Results)
	}
}

// TestRepeatsDecideByTheirMedian: all is measured in one repeat before the next begins, of each the slowest rank counts, and of the
// repeats the median: neither the best nor the worst.
func TestRepeatsDecideByTheirMedian(t *testing.T) {
	task, good := repeatedTask(3)
	o := good()
	latencies := [][]int64{{100, 900, 130}, {200, 300, 125}} // by rank, at 4096 B; the second size comes in between
	for r := range o.Ranks {
		m := o.Ranks[r].Measurements
		if len(m) != 6 || m[0].SizeBytes != 4096 || m[1].SizeBytes != 1<<20 || m[2].SizeBytes != 4096 {
			t.Fatalf("rank %d: %d measurements of sizes %d, %d, %d", r, len(m), m[0].SizeBytes, m[1].SizeBytes, m[2].SizeBytes)
		}
		for i := range 3 {
			m[2*i].Latency.MedianNanoseconds = latencies[r][i]
		}
	}
	s := judge("node-a", task, task.Communicators[0], ended{outcome: o}, true)
	if s.Verdict != api.VerdictPass || s.Repeats != 3 || len(s.Results) != 1 {
		t.Fatalf("%+v", s)
	}
	r := s.Results[0]
	// The slowest ranks are 200, 900 and 130; (900 - 130) / 900 is 85.6 %.
	if r.LatencyNanoseconds[0] != 200 || r.BusBandwidthMBps[0] != rcclx.BusBandwidthMBps(rcclx.AllReduce, 4096, 200, 4) || !slices.Equal(r.SpreadPercent, []int32{86, 0}) {
		t.Errorf("%+v", r)
	}
	task, good = repeatedTask(0)
	if s = judge("node-a", task, task.Communicators[0], ended{outcome: good()}, true); s.Repeats != 0 || s.Results[0].SpreadPercent != nil {
		t.Errorf("without repeats: %+v", s)
	}
}

// TestNoRepeatIsMissed: a repeat that is not there, or not by all ranks, is no pass and no figure; one with wrong data fails.
func TestNoRepeatIsMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*supervise.Outcome)
		verdict api.Verdict
		words   string
		sizes   []int64
	}{
		"the last one lacks a size":  {func(o *supervise.Outcome) { without(o, 1, 5) }, api.VerdictError, "5 measurements, expected 6, which is 2 in each of 3 repeats", []int64{4096}},
		"one rank did one only":      {func(o *supervise.Outcome) { o.Ranks[0].Measurements = o.Ranks[0].Measurements[:2] }, api.VerdictError, "2 measurements, expected 6", nil},
		"all ranks did one only":     {func(o *supervise.Outcome) { without(o, 0, 2, 3, 4, 5); without(o, 1, 2, 3, 4, 5) }, api.VerdictError, "expected 6", nil},
		"not checked in the second":  {func(o *supervise.Outcome) { o.Ranks[1].Measurements[2].Checks = nil }, api.VerdictError, "checked no element", []int64{4096, 1 << 20}},
		"wrong data in the last one": {func(o *supervise.Outcome) { o.Ranks[1].Measurements[5].Checks[0].WrongElements = 7 }, api.VerdictFail, "7 wrong elements", []int64{4096, 1 << 20}},
	} {
		task, good := repeatedTask(3)
		o := good()
		tc.change(&o)
		s := judge("node-a", task, task.Communicators[0], ended{outcome: o}, true)
		if s.Verdict != tc.verdict || !strings.Contains(s.Message, tc.words) {
			t.Errorf("%s: %s %s", name, s.Verdict, s.Message)
		}
		if tc.verdict == api.VerdictFail && (!strings.Contains(s.Message, "(repeat 3 of 3)") || s.Step == nil || s.Step.String() != "AllReduce Float32 1048576 B") {
			t.Errorf("%s: %q at step %q", name, s.Message, s.Step)
		}
		var sizes []int64
		for _, r := range s.Results {
			sizes = append(sizes, r.SizeBytes...)
		}
		if !slices.Equal(sizes, tc.sizes) {
			t.Errorf("%s: figures of sizes %v, expected %v", name, sizes, tc.sizes)
		}
	}
	task, _ := repeatedTask(10)
	if why := checkTask(task, 4); !strings.Contains(why, "10 repeats") {
		t.Errorf("ten repeats: %q", why)
	}
}

// without takes measurements of a rank out, by their places.
func without(o *supervise.Outcome, r int, places ...int) {
	var left []rank.Measurement
	for i, m := range o.Ranks[r].Measurements {
		if !slices.Contains(places, i) {
			left = append(left, m)
		}
	}
	o.Ranks[r].Measurements = left
}

// TestSpreadIsCutWithItsSizes: where a report has to be cut, each spread stays with its size or all are gone.
func TestSpreadIsCutWithItsSizes(t *testing.T) {
	var r api.ResultSeries
	for i := range 12 {
		r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, int64(i)), append(r.LatencyNanoseconds, 100_000), append(r.BusBandwidthMBps, 300_000)
		r.SpreadPercent = append(r.SpreadPercent, int32(i))
	}
	thin(&r, 3, nil)
	if len(r.SizeBytes) == 12 || fmt.Sprint(r.SizeBytes) != fmt.Sprint(r.SpreadPercent) {
		t.Errorf("sizes %v, spreads %v", r.SizeBytes, r.SpreadPercent)
	}
	s := api.SessionStatus{Task: &api.NodeTaskStatus{Phase: api.TaskFinished}}
	for i := range 16 {
		s.Task.Communicators = append(s.Task.Communicators, api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", i), Verdict: api.VerdictPass, Repeats: 3, Results: []api.ResultSeries{*r.DeepCopy()}})
	}
	got := Fit(s, 1<<20, nil)
	for _, c := range got.Task.Communicators {
		if c.Repeats != 3 {
			t.Errorf("%s tells of %d repeats", c.Name, c.Repeats)
		}
		for _, r := range c.Results {
			if n := len(r.SpreadPercent); n != 0 && n != len(r.SizeBytes) {
				t.Errorf("%s has %d spreads of %d sizes", c.Name, n, len(r.SizeBytes))
			}
		}
	}
}
