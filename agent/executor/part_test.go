package executor

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

// repeatedTask is node a's part of a communicator over two nodes with two ranks each, and what its ranks do when all is
// well.
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
			specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]),
				Steps: taskSteps(task, int(c.WorldSize))})
		}
		return passed(specs)
	}
}

// TestSmallMessageKeepsItsFigure: 8 B over nodes in 40 us are 0.3 MB/s; zero would be missing, and that ends the test
// of a good node.
func TestSmallMessageKeepsItsFigure(t *testing.T) {
	task, good := repeatedTask(0, 8, 1<<20)
	out := good()
	for _, r := range out.Ranks {
		for i := range r.Measurements {
			r.Measurements[i].Latency.MedianNanoseconds = 40_000
		}
	}
	s := judgePart("node-a", task, task.Communicators[0], ended{outcome: out}, true)
	if s.Verdict != api.VerdictPass || len(s.Results) != 1 || !slices.Contains(s.Results[0].SizeBytes, 8) ||
		s.Results[0].BusBandwidthMBps[0] != 1 {
		t.Errorf("%s: %+v lacks the 8 B that were measured", s.Verdict, s.Results)
	}
}

// TestSlowestRankOfOtherNodesCounts: rank 0's node tells the figures, and a link that is slow far from it slows its own
// ranks little.
func TestSlowestRankOfOtherNodesCounts(t *testing.T) {
	task, good := repeatedTask(0, 1<<20)
	out := good()
	for _, r := range out.Ranks {
		r.Measurements[0].SlowestNanoseconds = 10_000_000
	}
	s := judgePart("node-a", task, task.Communicators[0], ended{outcome: out}, true)
	if len(s.Results) != 1 || s.Results[0].LatencyNanoseconds[0] != 10_000_000 {
		t.Errorf("%+v", s.Results)
	}
}

// TestRepeatsOfATaskDecideByTheirMedian: all is measured in one repeat before the next begins, of each the slowest rank
// counts, and of the repeats the median: neither the best nor the worst.
func TestRepeatsOfATaskDecideByTheirMedian(t *testing.T) {
	task, good := repeatedTask(3)
	o := good()
	latencies := [][]int64{{100, 900, 130}, {200, 300, 125}} // by rank, at 4096 B; the second size comes in between
	for r := range o.Ranks {
		m := o.Ranks[r].Measurements
		if len(m) != 6 || m[0].SizeBytes != 4096 || m[1].SizeBytes != 1<<20 || m[2].SizeBytes != 4096 {
			t.Fatalf("rank %d: %d measurements of sizes %d, %d, %d",
				r, len(m), m[0].SizeBytes, m[1].SizeBytes, m[2].SizeBytes)
		}
		for i := range 3 {
			m[2*i].Latency.MedianNanoseconds = latencies[r][i]
		}
	}
	s := judgePart("node-a", task, task.Communicators[0], ended{outcome: o}, true)
	if s.Verdict != api.VerdictPass || s.Repeats != 3 || len(s.Results) != 1 {
		t.Fatalf("%+v", s)
	}
	r := s.Results[0]
	// The slowest ranks are 200, 900 and 130; (900 - 130) / 900 is 85.6 %.
	if r.LatencyNanoseconds[0] != 200 ||
		r.BusBandwidthMBps[0] != rcclx.BusBandwidthMBps(rcclx.AllReduce, 4096, 200, 4) ||
		!slices.Equal(r.SpreadPercent, []int32{86, 0}) {
		t.Errorf("%+v", r)
	}
	task, good = repeatedTask(0)
	if s = judgePart("node-a", task, task.Communicators[0], ended{outcome: good()}, true); s.Repeats != 0 ||
		s.Results[0].SpreadPercent != nil {
		t.Errorf("without repeats: %+v", s)
	}
}

// TestNoRepeatIsMissed: a repeat that is not there, or not by all ranks, is no pass and no figure; one with wrong data
// fails.
func TestNoRepeatIsMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*supervise.Outcome)
		verdict api.Verdict
		words   string
		sizes   []int64
	}{
		"the last one lacks a size": {func(o *supervise.Outcome) { without(o, 1, 5) }, api.VerdictError,
			"AllReduce Float32: 1 of 2 sizes were not measured in each of 3 repeats, 0 not checked", []int64{4096}},
		"one rank did one only": {func(o *supervise.Outcome) {
			o.Ranks[0].Measurements = o.Ranks[0].Measurements[:2]
		}, api.VerdictError, "2 of 2 sizes were not measured in each of 3 repeats", nil},
		"all ranks did one only": {func(o *supervise.Outcome) { without(o, 0, 2, 3, 4, 5); without(o, 1, 2, 3, 4, 5) },
			api.VerdictError, "2 of 2 sizes were not measured in each of 3 repeats", nil},
		"not checked in the second": {func(o *supervise.Outcome) { o.Ranks[1].Measurements[2].Checks = nil },
			api.VerdictError, "0 of 2 sizes were not measured in each of 3 repeats, 1 not checked",
			[]int64{4096, 1 << 20}},
		"wrong data in the last one": {func(o *supervise.Outcome) {
			o.Ranks[1].Measurements[5].Checks[0].WrongElements = 7
		}, api.VerdictFail, "7 wrong elements", []int64{4096, 1 << 20}},
	} {
		task, good := repeatedTask(3)
		o := good()
		tc.change(&o)
		s := judgePart("node-a", task, task.Communicators[0], ended{outcome: o}, true)
		if s.Verdict != tc.verdict || !strings.Contains(s.Message, tc.words) {
			t.Errorf("%s: %s %s", name, s.Verdict, s.Message)
		}
		if tc.verdict == api.VerdictFail && (!strings.Contains(s.Message, "(repeat 3 of 3)") || s.Step == nil ||
			s.Step.String() != "AllReduce Float32 1048576 B") {
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

func TestJudgePart(t *testing.T) {
	root, other := wholeGroup("group-1", make([]*member, 2))[0], wholeGroup("group-1", make([]*member, 2))[1]
	outcome := func(task api.NodeTask, change func(*supervise.Outcome)) supervise.Outcome {
		c := task.Communicators[0]
		var specs []rank.Spec
		for i, r := range c.Ranks {
			specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]),
				PCIAddress: pci(i), Steps: taskSteps(task, int(c.WorldSize))})
		}
		o := passed(specs)
		if change != nil {
			change(&o)
		}
		return o
	}
	failure := func(f supervise.Failure, change func(*supervise.Outcome)) func(*supervise.Outcome) {
		return func(o *supervise.Outcome) {
			f.Message = "node node-b: words"
			o.Failure = &f
			if change != nil {
				change(o)
			}
		}
	}
	last := func(at int, kind rank.EventKind) func(*supervise.Outcome) {
		return func(o *supervise.Outcome) { o.Ranks[at].LastEvent = kind }
	}
	for _, tc := range []struct {
		name    string
		task    api.NodeTask
		change  func(*supervise.Outcome)
		verdict api.Verdict
		reason  string
		guilty  string // kind and name
	}{
		{"good", other, nil, api.VerdictPass, "", ""},
		{"wrong data", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements[0].Checks[0].WrongElements = 3 },
			api.VerdictFail, api.ReasonWrongData, ""},
		{"not measured", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements = nil }, api.VerdictError,
			api.ReasonInconclusive, ""},
		{"not checked", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements[0].Checks[0].CheckedElements = 0 },
			api.VerdictError, api.ReasonInconclusive, ""},
		{"died", other, failure(supervise.Failure{Kind: supervise.FailDied, Rank: 1}, nil), api.VerdictFail,
			api.ReasonRankDied, "GPU " + pci(1)},
		{"killed from outside", other, failure(supervise.Failure{Kind: supervise.FailDied, Rank: 1, Killed: true}, nil),
			api.VerdictFail, api.ReasonRankDied, "Rank rank 3"},
		{"a peer's end", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeCollectiveFailed}, nil),
			api.VerdictFail, api.ReasonCollectiveFailed, ""},
		{"a peer's end, late", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeCollectiveFailed, Late: true}, nil),
			api.VerdictFail, api.ReasonRankHung, ""},
		{"init failed", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeInitFailed}, nil), api.VerdictFail,
			api.ReasonInitFailed, ""},
		{"no memory", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeInsufficientMemory, Rank: 1}, nil),
			api.VerdictError, api.ReasonInsufficientMemory, "GPU " + pci(1)},
		{"no library", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeLibraryMissing, Rank: 1}, nil),
			api.VerdictError, api.ReasonLibraryMissing, "Node node-b"},
		{"bad spec", other,
			failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeBadSpec, Rank: 1}, nil),
			api.VerdictError, api.ReasonRunPodFailed, ""},
		{"all hang", other,
			failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "AllReduce Float32 4096 B"}, nil),
			api.VerdictFail, api.ReasonRankHung, ""},
		{"one lags in a step", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1},
			Step: "AllReduce Float32 4096 B"}, last(1, rank.EventStepStart)), api.VerdictFail, api.ReasonRankHung, ""},
		{"one waits to join", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1},
			Step: "init"}, last(1, rank.EventInitStart)), api.VerdictFail, api.ReasonRankHung, ""},
		{"one never loaded", other,
			failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "load"}, last(1, "")),
			api.VerdictFail, api.ReasonRankHung, "GPU " + pci(1)},
		{"one does not begin to join", other,
			failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "preconditions"},
				last(1, rank.EventLoaded)), api.VerdictFail, api.ReasonRankHung, "GPU " + pci(1)},
		{"no id was made", root, failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "init"}, nil),
			api.VerdictFail, api.ReasonRankHung, "Node node-b"},
		{"not started", other, failure(supervise.Failure{Kind: supervise.FailStart, Rank: 0}, nil), api.VerdictError,
			api.ReasonPreconditionFailed, "Node node-b"},
		{"out of time", other, failure(supervise.Failure{Kind: supervise.FailRunDeadline, Rank: -1}, nil),
			api.VerdictFail, api.ReasonRunDeadlineExceeded, ""},
		{"garbage", other, failure(supervise.Failure{Kind: supervise.FailProtocol, Rank: 0}, nil), api.VerdictError,
			api.ReasonRunPodFailed, ""},
		{"does not end", other,
			failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1}, func(o *supervise.Outcome) {
				o.Ranks[0].Stuck = true
			}), api.VerdictFail, api.ReasonRankHung, "GPU " + pci(0)},
	} {
		s := judgePart("node-b", tc.task, tc.task.Communicators[0], ended{outcome: outcome(tc.task, tc.change)}, false)
		who := ""
		if s.Guilty != nil {
			who = s.Guilty.Kind + " " + s.Guilty.Name
		}
		if s.Verdict != tc.verdict || s.Reason != tc.reason || who != tc.guilty ||
			(s.Message == "") != (tc.verdict == api.VerdictPass) {
			t.Errorf("%s: %s %s, guilty %q: %q", tc.name, s.Verdict, s.Reason, who, s.Message)
		}
	}
	// The slowest of the node's ranks counts, and a size that one of them lacks does not.
	o := outcome(root, func(o *supervise.Outcome) { o.Ranks[1].Measurements = o.Ranks[1].Measurements[:1] })
	r := judgePart("node-a", root, root.Communicators[0], ended{outcome: o}, true).Results
	if len(r) != 1 || fmt.Sprint(r[0].SizeBytes, r[0].LatencyNanoseconds) != "[4096] [2000]" ||
		r[0].BusBandwidthMBps[0] != rcclx.BusBandwidthMBps(rcclx.AllReduce, 4096, 2000, 4) {
		t.Errorf("results %+v", r)
	}
}
