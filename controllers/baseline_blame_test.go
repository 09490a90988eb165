package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// lossInput is a run of the nodes that is held against a baseline in which each reached 300 GB/s, the slowest one slowest, and
// the communicator over all of them 100 GB/s.
func lossInput(slowest, span int64, now ...int64) baselineInput {
	at := func(mbps []int64) []judge.Outcome {
		var out []judge.Outcome
		for i, v := range mbps {
			out = append(out, judge.Outcome{Node: fmt.Sprintf("n%d", i), Verdict: v1alpha1.VerdictPass, Report: &v1alpha1.NodeRunStatus{Results: []v1alpha1.ResultSeries{
				{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1 << 20}, LatencyNanoseconds: []int64{1}, BusBandwidthMBps: []int64{v}}}}})
		}
		return out
	}
	over := func(mbps int64) []v1alpha1.SpanResultSeries {
		return []v1alpha1.SpanResultSeries{{Dimension: "group", Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, Ranks: 16, Nodes: 2, SizeBytes: []int64{1 << 20}, BusBandwidthMBps: []int64{mbps}}}
	}
	before := slices.Repeat([]int64{300_000}, len(now))
	before[0] = slowest
	in := baselineInput{group: testkit.Group(), outcomes: at(before), span: over(100_000),
		run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}}
	in.group.Spec.Benchmark.Regression = v1alpha1.RegressionSpec{Mode: v1alpha1.JudgingEnforce, MaxDropPercent: 10}
	in.results = judge.AggregateResults(in.outcomes)
	c := compareBaseline(in)
	in.group.Status.Baseline = c.next(nil, in.run)
	in.run = &v1alpha1.GroupRunStatus{ID: "1-2", Number: 2, Phase: v1alpha1.RunPhaseFinished, FinishTime: decision.Stamp(testkit.Now)}
	in.outcomes, in.span = at(now), over(span)
	in.results = judge.AggregateResults(in.outcomes)
	return in
}

// TestWhoLost: a node is named only where it is slower than the slowest one was, few are, and the others lost nothing; else the
// group is, and no node fails.
func TestWhoLost(t *testing.T) {
	for name, tc := range map[string]struct {
		slowest, span int64
		now           []int64
		nodes         []string
		group         string
	}{
		"one of five": {300_000, 100_000, []int64{300_000, 265_000, 300_000, 300_000, 300_000}, []string{"n1"}, ""},
		"all, and the one that always was the slowest": {275_000, 100_000, []int64{246_000, 265_000, 265_000, 265_000, 265_000}, nil, "1 of 5 members is slower than the slowest one was"},
		"one of two":                            {300_000, 100_000, []int64{300_000, 200_000}, []string{"n1"}, ""},
		"two of four":                           {300_000, 100_000, []int64{200_000, 200_000, 300_000, 300_000}, []string{"n0", "n1"}, ""},
		"two of three":                          {300_000, 100_000, []int64{200_000, 200_000, 300_000}, nil, "2 of 3 members are slower"},
		"two of four, the others lost less":     {300_000, 100_000, []int64{200_000, 200_000, 269_000, 269_000}, nil, "4 of 4 members are slower"},
		"one, and what spans the nodes with it": {300_000, 50_000, []int64{300_000, 200_000, 300_000}, []string{"n1"}, ""},
		"only what spans the nodes":             {300_000, 50_000, []int64{300_000, 300_000, 300_000}, nil, "as a whole, and no single member stands out: group AllReduce"},
		"nobody":                                {300_000, 90_000, []int64{270_000, 270_000}, nil, ""},
	} {
		in := lossInput(tc.slowest, tc.span, tc.now...)
		c := compareBaseline(in)
		var failed []string
		for i := range in.outcomes {
			if o := &in.outcomes[i]; o.Verdict != v1alpha1.VerdictPass {
				failed = append(failed, o.Node)
				if o.Reason != v1alpha1.ReasonRegression || len(o.Culprits) != 1 || !strings.Contains(o.Message, "rcclx.io/baseline-from=1-2") {
					t.Errorf("%s: %s %s", name, o.Reason, o.Message)
				}
			}
		}
		if !slices.Equal(failed, tc.nodes) || (c.lost != nil) != (tc.group != "") || c.lost != nil && !strings.Contains(c.lost.Message, tc.group) {
			t.Errorf("%s: failed %v, group %+v", name, failed, c.lost)
		}
	}
}

// TestStrongerReasonStays: who failed for wrong data is not said to have lost bandwidth.
func TestStrongerReasonStays(t *testing.T) {
	in := lossInput(300_000, 100_000, 300_000, 200_000, 300_000)
	in.outcomes[1].Verdict, in.outcomes[1].Reason = v1alpha1.VerdictFail, v1alpha1.ReasonWrongData
	compareBaseline(in)
	if o := in.outcomes[1]; o.Reason != v1alpha1.ReasonWrongData || len(o.Culprits) != 0 {
		t.Errorf("%+v", o)
	}
}

// TestSamplesOfOneSize: another size of the same name is another measurement.
func TestSamplesOfOneSize(t *testing.T) {
	in := lossInput(300_000, 100_000, 200_000, 200_000)
	for i := range in.group.Status.Baseline.Series {
		in.group.Status.Baseline.Series[i].SizeBytes *= 2
	}
	if c := compareBaseline(in); c.lost != nil || len(c.checks) != 1 || c.checks[0].State != v1alpha1.CheckNotMeasured {
		t.Errorf("%+v %+v", c.lost, c.checks)
	}
}

// TestRunKeepsItsKey: what is unknown or another of a node after the run changes nothing in what the run showed, and begins no
// baseline.
func TestRunKeepsItsKey(t *testing.T) {
	for part, model := range map[string]string{"unknown": "unknown", "": "", "unknown/unknown": "MI300X", "SPX/NPS1": "MI325X"} {
		w := regressionWorld(4, v1alpha1.JudgingEnforce)
		w.rerun(300_000)
		s := w.rerun(300_000, 300_000, 265_000, 300_000)
		before := s.Baseline.DeepCopy()
		for n, name := range []string{"n00001", "n00000", "n00002", "n00003"} { // one node, then all
			facts := w.commNode(name).Status.Facts
			facts.Partition, facts.GPUModel = part, model
			w.settle()
			s = &w.group.Status
			if s.Run.ID != "1-2" || s.Run.Verdict != v1alpha1.VerdictFail || len(s.Culprits) == 0 || s.Culprits[0].Node != "n00002" || s.Baseline.Runs != before.Runs || s.Baseline.Key != before.Key {
				t.Fatalf("%q on %d nodes: %s, culprits %+v, baseline %+v", part, n+1, s.Run.Verdict, s.Culprits, s.Baseline)
			}
		}
	}
}

// TestUnknownIsNoOtherKey: a run of which a part of the key is not known is held against the baseline, and does not end it.
func TestUnknownIsNoOtherKey(t *testing.T) {
	w := regressionWorld(3, v1alpha1.JudgingEnforce)
	s := w.rerun(300_000)
	key := s.Baseline.Key
	for _, cn := range w.commNodes {
		cn.Status.Facts.Partition = "unknown"
	}
	s = w.rerun(200_000)
	if s.Run.Verdict != v1alpha1.VerdictFail || s.Run.BaselineKey != key || s.Baseline.Runs != 1 {
		t.Fatalf("%s under %q: %+v", s.Run.Verdict, s.Run.BaselineKey, s.Baseline)
	}
	if s = w.rerun(300_000); s.Baseline.Runs != 2 || s.Baseline.Key != key {
		t.Errorf("%+v", s.Baseline)
	}
	// Where it never was known, there is a baseline all the same, which takes the part in once it is.
	w = regressionWorld(2, v1alpha1.JudgingEnforce)
	for _, cn := range w.commNodes {
		cn.Status.Facts.Partition = "unknown"
	}
	if s = w.rerun(300_000); s.Baseline == nil || !strings.Contains(s.Baseline.Key, "partition unknown") {
		t.Fatalf("%+v", s.Baseline)
	}
	if s = w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictFail || !slices.ContainsFunc(baselineChecks(s), func(c v1alpha1.PerformanceCheck) bool {
		return strings.Contains(strings.Join(c.Causes, " "), "not known: ROCm, partition; taken to be")
	}) {
		t.Errorf("%s: %+v", s.Run.Verdict, baselineChecks(s))
	}
	for _, cn := range w.commNodes {
		cn.Status.Facts.Partition = "SPX/NPS1"
	}
	if s = w.rerun(300_000); s.Baseline.Runs != 2 || !strings.Contains(s.Baseline.Key, "partition SPX/NPS1") {
		t.Errorf("%+v", s.Baseline)
	}
}

func TestKeysAlike(t *testing.T) {
	for _, tc := range []struct {
		a, b  string
		alike bool
	}{
		{"ROCm 7.0, partition SPX/NPS1", "ROCm 7.0, partition SPX/NPS1", true},
		{"ROCm unknown, partition SPX/NPS1", "ROCm 7.0, partition unknown", true},
		{"rccl 2.28 build unknown", "rccl 2.28 build abc", true},
		{"partition SPX/unknown", "partition SPX/NPS4", true},
		{"rccl 2.27 build unknown", "rccl 2.28 build abc", false},
		{"partition CPX/unknown", "partition SPX/NPS1", false},
		{"ROCm 7.0", "ROCm 7.0, partition SPX/NPS1", false},
		{"ROCm unknown, 8 ranks a node", "ROCm 7.0, 4 ranks a node", false},
	} {
		if keysAlike(tc.a, tc.b) != tc.alike || keysAlike(tc.b, tc.a) != tc.alike {
			t.Errorf("%q, %q", tc.a, tc.b)
		}
	}
	if got := fullerKey("ROCm unknown, partition SPX/NPS1", "ROCm 7.0, partition unknown"); got != "ROCm 7.0, partition SPX/NPS1" {
		t.Errorf("%q", got)
	}
}

// TestNewNormalIsAccepted: by the annotation a run that only lost bandwidth passes and begins the baseline anew; those after it
// are held against it, and the annotation that stays says nothing more.
func TestNewNormalIsAccepted(t *testing.T) {
	for _, late := range []bool{false, true} { // asked for after that run, or one run later
		w := regressionWorld(4, v1alpha1.JudgingEnforce)
		w.rerun(300_000)
		s := w.rerun(200_000)
		if s.Run.Verdict != v1alpha1.VerdictFail || !strings.Contains(groupCondition(s, v1alpha1.ConditionValidated).Message, "--overwrite rcclx.io/baseline-from=1-2") {
			t.Fatalf("%s: %+v", s.Run.Verdict, s.Conditions)
		}
		if late {
			s = w.rerun(205_000)
		}
		old := s.Baseline.Key
		for _, other := range []string{"1-9", "1", "next", ""} { // a run to come, and none
			w.group.Annotations[v1alpha1.AnnotationBaselineFrom] = other
			w.settle()
			if s = &w.group.Status; s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.FirstRunID != "1-1" {
				t.Errorf("%q: %s, %+v", other, s.Run.Verdict, s.Baseline)
			}
		}
		w.group.Annotations[v1alpha1.AnnotationBaselineFrom] = "1-2"
		w.settle()
		s = &w.group.Status
		if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 1 || s.Baseline.FirstRunID != s.Run.ID || s.Baseline.Key != old || !strings.HasPrefix(s.Baseline.Previous, old[:60]) || len(s.Culprits) != 0 {
			t.Fatalf("late %t: %s, %+v", late, s.Run.Verdict, s.Baseline)
		}
		begun := s.Baseline.DeepCopy()
		w.settle()
		if s = &w.group.Status; s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 1 || s.Baseline.Since != begun.Since {
			t.Errorf("it begins once: %+v", s.Baseline)
		}
		if s = w.rerun(190_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 2 || len(s.Baseline.Series[0].SamplesMBps) != 2 {
			t.Errorf("a run within the drop: %s, %+v", s.Run.Verdict, s.Baseline)
		}
		if s = w.rerun(150_000); s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.Runs != 2 {
			t.Errorf("a new loss: %s, %+v", s.Run.Verdict, s.Baseline)
		}
	}
	// With Report such a run was taken in before it is accepted, and begins the baseline all the same.
	r := regressionWorld(2, v1alpha1.JudgingReport)
	r.rerun(300_000)
	r.rerun(200_000)
	r.group.Annotations[v1alpha1.AnnotationBaselineFrom] = "1-2"
	r.settle()
	if b := r.group.Status.Baseline; b.Runs != 1 || b.FirstRunID != "1-2" || !slices.Equal(b.Series[0].SamplesMBps, []int64{200_000}) {
		t.Errorf("%+v", b)
	}
	// It accepts bandwidth and nothing else, and waits for a run that passes.
	w := regressionWorld(3, v1alpha1.JudgingEnforce)
	w.rerun(300_000)
	w.group.Annotations = map[string]string{v1alpha1.AnnotationBaselineFrom: "1-2"}
	if s := w.rerun(300_000, 300_000, 10_000); s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.FirstRunID != "1-1" {
		t.Errorf("a slow node beside the others: %s, %+v", s.Run.Verdict, s.Baseline)
	}
	if s := w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.FirstRunID != "1-3" {
		t.Errorf("%s, %+v", s.Run.Verdict, s.Baseline)
	}
}
