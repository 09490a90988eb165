package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// regressionWorld is a group of n nodes that holds its runs against its baseline.
func regressionWorld(n int, mode v1alpha1.JudgingMode) *world {
	group := testkit.Group()
	group.Spec.Benchmark.Regression = v1alpha1.RegressionSpec{Mode: mode, MaxDropPercent: 10}
	w := newWorld(group, testkit.Nodes(n))
	w.step()
	w.reportFacts()
	return w
}

// rerun makes one run in which the nodes reach so much, by rank order.
func (w *world) rerun(busBWMBps ...int64) *v1alpha1.CommGroupStatus {
	if w.group.Status.Run != nil {
		if w.group.Annotations == nil {
			w.group.Annotations = map[string]string{}
		}
		w.group.Annotations[v1alpha1.AnnotationRunRequested] = fmt.Sprint(w.group.Status.Run.Number + 1)
	}
	w.runAll(busBWMBps...)
	return &w.group.Status
}

func baselineChecks(s *v1alpha1.CommGroupStatus) []v1alpha1.PerformanceCheck {
	return slices.DeleteFunc(slices.Clone(s.Checks), func(c v1alpha1.PerformanceCheck) bool { return c.Source != sourceBaseline })
}

func TestBaselineGrowsAndJudges(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingEnforce)
	s := w.rerun(300_000)
	if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline == nil || s.Baseline.Runs != 1 || s.Baseline.LastRunID != s.Run.ID || s.Baseline.Previous != "" {
		t.Fatalf("first run: %s, baseline %+v", s.Run.Verdict, s.Baseline)
	}
	for _, part := range []string{"rcclx-dev 2.28.3 build abc", "model MI300X", "partition SPX/NPS1", "8 ranks a node"} {
		if !strings.Contains(s.Baseline.Key, part) {
			t.Errorf("key %q lacks %q", s.Baseline.Key, part)
		}
	}
	s = w.rerun(310_000)
	if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 2 || len(s.Baseline.Series) == 0 || !slices.Equal(s.Baseline.Series[0].SamplesMBps, []int64{300_000, 310_000}) {
		t.Fatalf("second run: %s, baseline %+v", s.Run.Verdict, s.Baseline)
	}
	// 305000 is the median now; 274500 is 90 % of it.
	before := s.Baseline.DeepCopy()
	s = w.rerun(274_000)
	validated := groupCondition(s, v1alpha1.ConditionValidated)
	if s.Run.Verdict != v1alpha1.VerdictFail || validated.Reason != v1alpha1.ReasonRegression || validated.Status != metav1.ConditionFalse {
		t.Fatalf("a loss of all: %s; %+v", s.Run.Verdict, validated)
	}
	for _, words := range []string{"measured 274.0 GB/s", "the baseline of 2 runs is 305.0 GB/s: 89 %", "The group lost bandwidth, and 4 of 4 members"} {
		if !strings.Contains(validated.Message, words) {
			t.Errorf("%q lacks %q", validated.Message, words)
		}
	}
	if s.Baseline.Runs != 2 || s.Baseline.LastRunID != before.LastRunID || s.Members.Failed != 0 {
		t.Errorf("a run that failed is no part of the baseline: %+v; members %+v", s.Baseline, s.Members)
	}
	if c := baselineChecks(s); len(c) == 0 || c[0].State != v1alpha1.CheckNotMet || c[0].Mode != v1alpha1.JudgingEnforce || *c[0].MeasuredMBps != 274_000 || *c[0].ExpectedMBps != 305_000 || *c[0].Percent != 89 {
		t.Errorf("%+v", c)
	}
	if s = w.rerun(275_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 3 {
		t.Errorf("within the drop: %s, %d runs", s.Run.Verdict, s.Baseline.Runs)
	}
}

func groupCondition(s *v1alpha1.CommGroupStatus, name string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{}
}

// TestRegressionOfOneNode: it is named and fails; the others passed.
func TestRegressionOfOneNode(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingEnforce)
	w.rerun(300_000)
	s := w.rerun(300_000, 300_000, 265_000, 300_000) // within nodeMinPercentOfMedian
	if s.Run.Verdict != v1alpha1.VerdictFail || s.Members.Failed != 1 || s.Members.Passed != 3 || len(s.Culprits) != 1 || s.Culprits[0].Node != "n00002" || s.Culprits[0].Reason != v1alpha1.ReasonRegression {
		t.Fatalf("%s, members %+v, culprits %+v", s.Run.Verdict, s.Members, s.Culprits)
	}
	if c := baselineChecks(s); c[0].Node != "n00002" || c[0].State != v1alpha1.CheckNotMet || *c[0].Percent != 88 {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(s.Culprits[0].Message, "1 of 4 members did") {
		t.Errorf("%q", s.Culprits[0].Message)
	}
	// A group of one has nobody else to blame.
	w = regressionWorld(1, v1alpha1.JudgingEnforce)
	w.rerun(300_000)
	if s = w.rerun(200_000); len(s.Culprits) != 1 || s.Culprits[0].Node != "n00000" {
		t.Errorf("a group of one: %s, %+v", s.Run.Verdict, s.Culprits)
	}
}

func TestRegressionReportAndOff(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingReport)
	w.rerun(300_000)
	s := w.rerun(200_000)
	if c := baselineChecks(s); s.Run.Verdict != v1alpha1.VerdictPass || c[0].State != v1alpha1.CheckNotMet || c[0].Mode != v1alpha1.JudgingReport || s.Baseline.Runs != 2 {
		t.Errorf("Report: %s, %+v, %d runs", s.Run.Verdict, c, s.Baseline.Runs)
	}
	w = regressionWorld(4, v1alpha1.JudgingOff)
	w.rerun(300_000)
	if s = w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictPass || len(baselineChecks(s)) != 0 || s.Baseline.Runs != 2 {
		t.Errorf("Off: %s, %+v, %d runs", s.Run.Verdict, s.Checks, s.Baseline.Runs)
	}
}

// TestBaselineStartsAnew: each part of the key that changes starts another baseline, which judges nothing at first and
// remembers what was before; members that differ have none.
func TestBaselineStartsAnew(t *testing.T) {
	type change func(o *judge.Outcome, cn *v1alpha1.CommNode)
	parts := map[string]change{
		"container's ROCm": func(o *judge.Outcome, _ *v1alpha1.CommNode) {
			o.Report.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: "7.1.0"}
		},
		"flavor":    func(o *judge.Outcome, _ *v1alpha1.CommNode) { o.Report.Library.Flavor = "rccl" },
		"imitated":  func(o *judge.Outcome, _ *v1alpha1.CommNode) { o.Report.Library.Imitates = "rccl" },
		"version":   func(o *judge.Outcome, _ *v1alpha1.CommNode) { o.Report.Library.Version = "2.30.4" },
		"build":     func(o *judge.Outcome, _ *v1alpha1.CommNode) { o.Report.Library.BuildHash = "def" },
		"model":     func(_ *judge.Outcome, cn *v1alpha1.CommNode) { cn.Status.Facts.GPUModel = "MI325X" },
		"partition": func(_ *judge.Outcome, cn *v1alpha1.CommNode) { cn.Status.Facts.Partition = "CPX/NPS4" },
		"ranks":     func(_ *judge.Outcome, cn *v1alpha1.CommNode) { cn.Spec.Ranks.Count = 4 },
	}
	input := func() baselineInput {
		w := regressionWorld(2, v1alpha1.JudgingEnforce)
		w.rerun(300_000)
		w.group.Status.Baseline.Key = strings.Replace(w.group.Status.Baseline.Key, "ROCm unknown", "ROCm 7.0.0", 1)
		for _, cn := range w.commNodes {
			cn.Status.Run.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: "7.0.0"}
		}
		in := baselineInput{group: w.group.DeepCopy(), run: w.group.Status.Run.DeepCopy(), commNodes: map[string]*v1alpha1.CommNode{}}
		in.run.ID, in.run.Number, in.run.BaselineKey = "1-2", 2, ""
		for _, cn := range w.commNodes {
			cn = cn.DeepCopy()
			in.commNodes[cn.Spec.NodeName] = cn
			in.outcomes = append(in.outcomes, judge.Outcome{Node: cn.Spec.NodeName, Phase: judge.Done, Verdict: v1alpha1.VerdictPass, Report: cn.Status.Run})
		}
		in.results = judge.AggregateResults(in.outcomes)
		return in
	}
	for name, change := range parts {
		all := input()
		for i := range all.outcomes {
			for _, r := range all.outcomes[i].Report.Results {
				for k := range r.BusBandwidthMBps {
					r.BusBandwidthMBps[k] /= 3
				}
			}
			change(&all.outcomes[i], all.commNodes[all.outcomes[i].Node])
		}
		all.results = judge.AggregateResults(all.outcomes)
		old := all.group.Status.Baseline.Key
		c := compareBaseline(all)
		if c.lost != nil || len(c.checks) != 1 || c.checks[0].State != v1alpha1.CheckNotMeasured || c.checks[0].Mode != v1alpha1.JudgingReport || !strings.Contains(c.checks[0].Causes[0], "begins anew") {
			t.Errorf("%s: %+v %+v", name, c.lost, c.checks)
		}
		next := c.next(all.group.Status.Baseline, all.run)
		if next.Key == old || next.Previous != old || next.Runs != 1 || next.LastRunID != "1-2" || len(next.Series[0].SamplesMBps) != 1 {
			t.Errorf("%s: %+v", name, next)
		}
		one := input()
		change(&one.outcomes[1], one.commNodes[one.outcomes[1].Node])
		c = compareBaseline(one)
		if c.key != "" || len(c.checks) != 1 || !strings.Contains(c.checks[0].Causes[0], "members differ") || c.next(one.group.Status.Baseline, one.run) != one.group.Status.Baseline {
			t.Errorf("%s on one node: %q %+v", name, c.key, c.checks)
		}
	}
	same := input()
	if c := compareBaseline(same); len(c.checks) < 2 || c.checks[0].State != v1alpha1.CheckMet {
		t.Errorf("nothing changed: %+v", c.checks)
	}
}

// TestBaselineVerdictIsStable: taking a run in does not change what is said of it, at any number of samples; and samples stay
// bounded.
func TestBaselineVerdictIsStable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	result := func(mbps int64) []v1alpha1.GroupResultSeries {
		return []v1alpha1.GroupResultSeries{{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1 << 20}, BusBandwidthMBps: []int64{mbps}, MinBusBandwidthMBps: []int64{mbps}}}
	}
	report := func(mbps int64) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{Results: []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1 << 20}, BusBandwidthMBps: []int64{mbps}}}}
	}
	var baseline *v1alpha1.BaselineStatus
	passed, failed := 0, 0
	for n := range 200 {
		mbps := 260_000 + r.Int64N(80_000)
		run := &v1alpha1.GroupRunStatus{ID: fmt.Sprint("1-", n), Number: int64(n), Phase: v1alpha1.RunPhaseFinished, FinishTime: decision.Stamp(testkit.Now)}
		judge := func() (comparison, v1alpha1.Verdict) {
			group := &v1alpha1.CommGroup{}
			group.Spec.Benchmark.Regression, group.Status.Baseline = v1alpha1.RegressionSpec{Mode: v1alpha1.JudgingEnforce, MaxDropPercent: 10}, baseline
			in := baselineInput{group: group, run: run,
				outcomes: []judge.Outcome{{Node: "a", Verdict: v1alpha1.VerdictPass, Report: report(mbps)}}, results: result(mbps)}
			c := compareBaseline(in)
			verdict, _ := judge.GroupVerdict(c.with(in.outcomes), true)
			return c, verdict
		}
		c, before := judge()
		run.Verdict = before
		baseline = c.next(baseline, run)
		again, after := judge()
		if before != after || !equality.Semantic.DeepEqual(c.checks, again.checks) {
			t.Fatalf("run %d of %d MB/s: %s, and %s once it was looked at again; baseline %+v", n, mbps, before, after, baseline)
		}
		if next := again.next(baseline, run); next != baseline {
			t.Fatalf("run %d was taken in twice", n)
		}
		if before == v1alpha1.VerdictPass {
			passed++
		} else {
			failed++
		}
		for _, s := range baseline.Series {
			if len(s.SamplesMBps) > maxBaselineSamples {
				t.Fatalf("%d samples", len(s.SamplesMBps))
			}
		}
	}
	if passed < 50 || failed < 5 || int(baseline.Runs) != passed {
		t.Errorf("%d passed, %d failed, %d runs in the baseline", passed, failed, baseline.Runs)
	}
}

// TestPartialRunIsNoSample: a run of the changed nodes shows of the others what the baseline has already.
func TestPartialRunIsNoSample(t *testing.T) {
	run := &v1alpha1.GroupRunStatus{ID: "1-3", Number: 3, Since: 2, Trigger: runs.TriggerNodesChanged, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}
	c := comparison{key: "k", present: []baselinePoint{{name: "x", sizeBytes: 1, mbps: 1}}}
	if got := c.next(nil, run); got != nil {
		t.Errorf("%+v", got)
	}
	c.anew = true // but one that a person accepts may be the first
	if got := c.next(&v1alpha1.BaselineStatus{Key: "k", Runs: 4, LastRunID: "1-2"}, run); got == nil || got.Runs != 1 || got.FirstRunID != "1-3" {
		t.Errorf("%+v", got)
	}
	c.anew, run.Since, run.Trigger = false, 3, runs.TriggerRequested
	if got := c.next(nil, run); got == nil || got.Runs != 1 {
		t.Errorf("%+v", got)
	}
	for _, v := range []v1alpha1.Verdict{v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive, v1alpha1.VerdictError, ""} {
		run.Verdict = v
		if got := c.next(nil, run); got != nil {
			t.Errorf("%s: %+v", v, got)
		}
	}
}

// TestGroupSpanInBaseline: what was measured over several nodes has its own series, and its loss is the group's.
func TestGroupSpanInBaseline(t *testing.T) {
	span := func(mbps int64) []v1alpha1.SpanResultSeries {
		return []v1alpha1.SpanResultSeries{{Dimension: "group", Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, Ranks: 16, Nodes: 2, Communicators: 1,
			SizeBytes: []int64{1024, 1 << 20}, BusBandwidthMBps: []int64{10, mbps}, MinBusBandwidthMBps: []int64{10, mbps}}}
	}
	in := baselineInput{group: testkit.Group(), run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)},
		outcomes: []judge.Outcome{{Node: "a", Verdict: v1alpha1.VerdictPass, Report: &v1alpha1.NodeRunStatus{}}}, span: span(100_000)}
	in.group.Spec.Benchmark.Regression.Mode = v1alpha1.JudgingEnforce
	c := compareBaseline(in)
	b := c.next(nil, in.run)
	if b == nil || b.Series[0].Name != "group AllReduce BFloat16, 16 ranks on 2 nodes" || b.Series[0].SizeBytes != 1<<20 {
		t.Fatalf("%+v", b)
	}
	in.group.Status.Baseline = b
	in.run = in.run.DeepCopy()
	in.run.ID, in.span = "1-2", span(89_000)
	if c = compareBaseline(in); c.lost == nil || c.lost.Reason != v1alpha1.ReasonRegression || !strings.Contains(c.lost.Message, "group AllReduce BFloat16, 16 ranks on 2 nodes at 1 MiB: measured 89.0 GB/s") {
		t.Errorf("%+v", c.lost)
	}
	in.span[0].Ranks = 32 // another group
	c = compareBaseline(in)
	if c.lost != nil || len(c.checks) != 1 || c.checks[0].State != v1alpha1.CheckNotMeasured || c.checks[0].Mode != v1alpha1.JudgingReport || !strings.Contains(c.checks[0].Causes[0], "group AllReduce BFloat16, 32 ranks on 2 nodes at 1 MiB") {
		t.Errorf("that nothing was to compare with is never silent: %+v %+v", c.lost, c.checks)
	}
}

// TestBaselineIsBounded: however many series a run has, the status stays small and the names short.
func TestBaselineIsBounded(t *testing.T) {
	var results []v1alpha1.GroupResultSeries
	for _, variant := range []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA, v1alpha1.VariantLowPrecision} {
		for i := range 24 {
			results = append(results, v1alpha1.GroupResultSeries{Variant: variant, Collective: v1alpha1.ReduceScatter, Datatype: v1alpha1.Float8E4M3, Placement: v1alpha1.InPlace,
				SizeBytes: []int64{int64(i + 1)}, BusBandwidthMBps: []int64{100}, MinBusBandwidthMBps: []int64{90}})
		}
	}
	points := baselinePoints(results, nil)
	if len(points) != maxBaselineSeries || points[0].slowest || !points[24].slowest || points[48].key.Variant != v1alpha1.VariantDDA {
		t.Errorf("%d points", len(points))
	}
	for _, p := range points {
		if len(p.name) > 96 {
			t.Errorf("%q", p.name)
		}
	}
	c := comparison{key: strings.Repeat("k", 256), present: points}
	run := &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}
	if b := c.next(nil, run); len(b.Series) != maxBaselineSeries {
		t.Errorf("%d series", len(b.Series))
	}
}
