package baseline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// lossInput is a run of the nodes that is held against a baseline in which each reached 300 GB/s, the slowest one
// slowest, and the communicator over all of them 100 GB/s.
func lossInput(slowest, span int64, now ...int64) Input {
	at := func(mbps []int64) []judge.Outcome {
		var out []judge.Outcome
		for i, v := range mbps {
			figures := []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline,
				Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				SizeBytes: []int64{1 << 20}, LatencyNanoseconds: []int64{1}, BusBandwidthMBps: []int64{v}}}
			out = append(out, judge.Outcome{Node: fmt.Sprintf("n%d", i), Verdict: v1alpha1.VerdictPass,
				Report: &v1alpha1.NodeRunStatus{Results: figures}, Figures: figures})
		}
		return out
	}
	over := func(mbps int64) []v1alpha1.SpanResultSeries {
		return []v1alpha1.SpanResultSeries{{Dimension: "group", Collective: v1alpha1.AllReduce,
			Datatype: v1alpha1.BFloat16, Ranks: 16, Nodes: 2, SizeBytes: []int64{1 << 20},
			BusBandwidthMBps: []int64{mbps}}}
	}
	before := slices.Repeat([]int64{300_000}, len(now))
	before[0] = slowest
	in := Input{Group: testkit.Group(), Outcomes: at(before), Span: over(100_000),
		Run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Phase: v1alpha1.RunPhaseFinished,
			Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}}
	in.Group.Spec.Benchmark.Regression = v1alpha1.RegressionSpec{Mode: v1alpha1.JudgingEnforce, MaxDropPercent: 10}
	in.Results = judge.AggregateResults(in.Outcomes)
	c := Compare(in)
	in.Group.Status.Baseline = enough(c.Next(nil, in.Run))
	in.Run = &v1alpha1.GroupRunStatus{ID: "1-2", Number: 2, Phase: v1alpha1.RunPhaseFinished,
		FinishTime: decision.Stamp(testkit.Now)}
	in.Outcomes, in.Span = at(now), over(span)
	in.Results = judge.AggregateResults(in.Outcomes)
	return in
}

// enough gives each series as many samples alike as are enforced.
func enough(b *v1alpha1.BaselineStatus) *v1alpha1.BaselineStatus {
	for i := range b.Series {
		b.Series[i].SamplesMBps = slices.Repeat(b.Series[i].SamplesMBps, minSamples)
	}
	return b
}

// TestWhoLost: a node is named only where it is slower than the slowest one was, few are, and the others lost nothing;
// else the group is, and no node fails.
func TestWhoLost(t *testing.T) {
	for name, tc := range map[string]struct {
		slowest, span int64
		now           []int64
		nodes         []string
		group         string
	}{
		"one of five": {300_000, 100_000, []int64{300_000, 265_000, 300_000, 300_000, 300_000}, []string{"n1"}, ""},
		"all, and the one that always was the slowest": {275_000, 100_000,
			[]int64{246_000, 265_000, 265_000, 265_000, 265_000}, nil,
			"1 of 5 members is slower than the slowest one was"},
		"one of two": {300_000, 100_000, []int64{300_000, 200_000}, []string{"n1"}, ""},
		"two of four": {300_000, 100_000, []int64{200_000, 200_000, 300_000, 300_000},
			[]string{"n0", "n1"}, ""},
		"two of three": {300_000, 100_000, []int64{200_000, 200_000, 300_000}, nil,
			"2 of 3 members are slower"},
		"two of four, the others lost less": {300_000, 100_000, []int64{200_000, 200_000, 269_000, 269_000}, nil,
			"4 of 4 members are slower"},
		"one, and what spans the nodes with it": {300_000, 50_000, []int64{300_000, 200_000, 300_000},
			[]string{"n1"}, ""},
		"only what spans the nodes": {300_000, 50_000, []int64{300_000, 300_000, 300_000}, nil,
			"as a whole, and no single member stands out: group AllReduce"},
		"nobody": {300_000, 90_000, []int64{270_000, 270_000}, nil, ""},
	} {
		in := lossInput(tc.slowest, tc.span, tc.now...)
		c := Compare(in)
		var failed []string
		for i := range in.Outcomes {
			if o := &in.Outcomes[i]; o.Verdict != v1alpha1.VerdictPass {
				failed = append(failed, o.Node)
				if o.Reason != v1alpha1.ReasonRegression || len(o.Culprits) != 1 ||
					!strings.Contains(o.Message, "rcclx.io/baseline-from=1-2") {
					t.Errorf("%s: %s %s", name, o.Reason, o.Message)
				}
			}
		}
		if !slices.Equal(failed, tc.nodes) || (c.lost != nil) != (tc.group != "") ||
			c.lost != nil && !strings.Contains(c.lost.Message, tc.group) {
			t.Errorf("%s: failed %v, group %+v", name, failed, c.lost)
		}
	}
}

// TestStrongerReasonStays: who failed for wrong data is not said to have lost bandwidth.
func TestStrongerReasonStays(t *testing.T) {
	in := lossInput(300_000, 100_000, 300_000, 200_000, 300_000)
	in.Outcomes[1].Verdict, in.Outcomes[1].Reason = v1alpha1.VerdictFail, v1alpha1.ReasonWrongData
	Compare(in)
	if o := in.Outcomes[1]; o.Reason != v1alpha1.ReasonWrongData || len(o.Culprits) != 0 {
		t.Errorf("%+v", o)
	}
}

// TestSamplesOfOneSize: another size of the same name is another measurement.
func TestSamplesOfOneSize(t *testing.T) {
	in := lossInput(300_000, 100_000, 200_000, 200_000)
	for i := range in.Group.Status.Baseline.Series {
		in.Group.Status.Baseline.Series[i].SizeBytes *= 2
	}
	if c := Compare(in); c.lost != nil || len(c.Checks) != 1 || c.Checks[0].State != v1alpha1.CheckNotMeasured {
		t.Errorf("%+v %+v", c.lost, c.Checks)
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
	if got := fullerKey("ROCm unknown, partition SPX/NPS1",
		"ROCm 7.0, partition unknown"); got != "ROCm 7.0, partition SPX/NPS1" {
		t.Errorf("%q", got)
	}
}

// TestBaselineStartsAnew: each part of the key that changes starts another baseline, which judges nothing at first and
// remembers what was before; members that differ have none.
func TestBaselineStartsAnew(t *testing.T) {
	type change func(o *judge.Outcome)
	parts := map[string]change{
		"container's ROCm": func(o *judge.Outcome) {
			o.Report.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: "7.1.0"}
		},
		"flavor":    func(o *judge.Outcome) { o.Report.Library.Flavor = "rccl" },
		"imitated":  func(o *judge.Outcome) { o.Report.Library.Imitates = "rccl" },
		"version":   func(o *judge.Outcome) { o.Report.Library.Version = "2.30.4" },
		"build":     func(o *judge.Outcome) { o.Report.Library.BuildHash = "def" },
		"model":     func(o *judge.Outcome) { o.Kind.GPUModel = "MI325X" },
		"partition": func(o *judge.Outcome) { o.Kind.Partition = "CPX/NPS4" },
		"ranks":     func(o *judge.Outcome) { o.Kind.Ranks = 4 },
	}
	input := func() Input {
		in := Input{Group: testkit.Group(), Run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1,
			Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}}
		in.Group.Spec.Benchmark.Regression = v1alpha1.RegressionSpec{Mode: v1alpha1.JudgingEnforce, MaxDropPercent: 10}
		run := &v1alpha1.RunAssignment{ID: "1-1", Number: 1}
		plan := runplan.For(&in.Group.Spec)
		for _, name := range []string{"n0", "n1"} {
			report := testkit.Report(&plan, run, v1alpha1.VerdictPass, 300_000, testkit.Now)
			report.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: "7.0.0"}
			in.Outcomes = append(in.Outcomes,
				judge.Outcome{Node: name, Phase: judge.Done, Verdict: v1alpha1.VerdictPass, Report: report,
					Kind: judge.Kind{GPUModel: "MI300X", Partition: "SPX/NPS1", Ranks: in.Group.Spec.RanksPerNode}})
		}
		in.Results = judge.AggregateResults(in.Outcomes)
		c := Compare(in)
		in.Group.Status.Baseline = c.Next(nil, in.Run)
		in.Run = &v1alpha1.GroupRunStatus{ID: "1-2", Number: 2, Phase: v1alpha1.RunPhaseFinished,
			Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}
		return in
	}
	for name, change := range parts {
		all := input()
		for i := range all.Outcomes {
			for _, r := range all.Outcomes[i].Report.Results {
				for k := range r.BusBandwidthMBps {
					r.BusBandwidthMBps[k] /= 3
				}
			}
			change(&all.Outcomes[i])
		}
		all.Results = judge.AggregateResults(all.Outcomes)
		old := all.Group.Status.Baseline.Key
		c := Compare(all)
		if c.lost != nil || len(c.Checks) != 1 || c.Checks[0].State != v1alpha1.CheckNotMeasured ||
			c.Checks[0].Mode != v1alpha1.JudgingReport || !strings.Contains(c.Checks[0].Causes[0], "begins anew") {
			t.Errorf("%s: %+v %+v", name, c.lost, c.Checks)
		}
		next := c.Next(all.Group.Status.Baseline, all.Run)
		if next.Key == old || next.Previous != old || next.Runs != 1 || next.LastRunID != "1-2" ||
			len(next.Series[0].SamplesMBps) != 1 {
			t.Errorf("%s: %+v", name, next)
		}
		one := input()
		change(&one.Outcomes[1])
		c = Compare(one)
		if c.Key != "" || len(c.Checks) != 1 || !strings.Contains(c.Checks[0].Causes[0], "members differ") ||
			c.Next(one.Group.Status.Baseline, one.Run) != one.Group.Status.Baseline {
			t.Errorf("%s on one node: %q %+v", name, c.Key, c.Checks)
		}
	}
	same := input()
	if c := Compare(same); len(c.Checks) < 2 || c.Checks[0].State != v1alpha1.CheckMet {
		t.Errorf("nothing changed: %+v", c.Checks)
	}
}

// TestBaselineVerdictIsStable: taking a run in does not change what is said of it, at any number of samples; and
// samples stay bounded.
func TestBaselineVerdictIsStable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	result := func(mbps int64) []v1alpha1.GroupResultSeries {
		return []v1alpha1.GroupResultSeries{{Variant: v1alpha1.VariantBaseline,
			Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1 << 20}, BusBandwidthMBps: []int64{mbps}, MinBusBandwidthMBps: []int64{mbps}}}
	}
	report := func(mbps int64) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{Results: []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline,
			Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1 << 20}, BusBandwidthMBps: []int64{mbps}}}}
	}
	var baseline *v1alpha1.BaselineStatus
	passed, failed := 0, 0
	for n := range 200 {
		mbps := 260_000 + r.Int64N(80_000)
		run := &v1alpha1.GroupRunStatus{ID: fmt.Sprint("1-", n), Number: int64(n), Phase: v1alpha1.RunPhaseFinished,
			FinishTime: decision.Stamp(testkit.Now)}
		judge := func() (Comparison, v1alpha1.Verdict) {
			group := &state.Group{}
			group.Spec.Benchmark.Regression, group.Status.Baseline = v1alpha1.RegressionSpec{
				Mode: v1alpha1.JudgingEnforce, MaxDropPercent: 10}, baseline
			in := Input{Group: group, Run: run,
				Outcomes: []judge.Outcome{{Node: "a", Verdict: v1alpha1.VerdictPass, Report: report(mbps)}},
				Results:  result(mbps)}
			c := Compare(in)
			verdict, _ := judge.GroupVerdict(c.With(in.Outcomes), true)
			return c, verdict
		}
		c, before := judge()
		run.Verdict = before
		baseline = c.Next(baseline, run)
		again, after := judge()
		if before != after || !equality.Semantic.DeepEqual(c.Checks, again.Checks) {
			t.Fatalf("run %d of %d MB/s: %s, and %s once it was looked at again; baseline %+v",
				n, mbps, before, after, baseline)
		}
		if next := again.Next(baseline, run); next != baseline {
			t.Fatalf("run %d was taken in twice", n)
		}
		if before == v1alpha1.VerdictPass {
			passed++
		} else {
			failed++
		}
		for _, s := range baseline.Series {
			if len(s.SamplesMBps) > maxSamples {
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
	run := &v1alpha1.GroupRunStatus{ID: "1-3", Number: 3, Since: 2, Trigger: state.TriggerNodesChanged,
		Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}
	c := Comparison{Key: "k", present: []point{{name: "x", sizeBytes: 1, mbps: 1}}}
	if got := c.Next(nil, run); got != nil {
		t.Errorf("%+v", got)
	}
	c.anew = true // but one that a person accepts may be the first
	if got := c.Next(&v1alpha1.BaselineStatus{Key: "k", Runs: 4, LastRunID: "1-2"}, run); got == nil || got.Runs != 1 ||
		got.FirstRunID != "1-3" {
		t.Errorf("%+v", got)
	}
	c.anew, run.Since, run.Trigger = false, 3, state.TriggerRequested
	if got := c.Next(nil, run); got == nil || got.Runs != 1 {
		t.Errorf("%+v", got)
	}
	for _, v := range []v1alpha1.Verdict{v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive,
		v1alpha1.VerdictError, ""} {
		run.Verdict = v
		if got := c.Next(nil, run); got != nil {
			t.Errorf("%s: %+v", v, got)
		}
	}
}

// TestGroupSpanInBaseline: what was measured over several nodes has its own series, and its loss is the group's.
func TestGroupSpanInBaseline(t *testing.T) {
	span := func(mbps int64) []v1alpha1.SpanResultSeries {
		return []v1alpha1.SpanResultSeries{{Dimension: "group", Collective: v1alpha1.AllReduce,
			Datatype: v1alpha1.BFloat16, Ranks: 16, Nodes: 2, Communicators: 1, SizeBytes: []int64{1024, 1 << 20},
			BusBandwidthMBps: []int64{10, mbps}, MinBusBandwidthMBps: []int64{10, mbps}}}
	}
	in := Input{Group: testkit.Group(), Run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1,
		Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)},
		Outcomes: []judge.Outcome{{Node: "a", Verdict: v1alpha1.VerdictPass,
			Report: &v1alpha1.NodeRunStatus{Results: []v1alpha1.ResultSeries{{}}}}}, Span: span(100_000)}
	in.Group.Spec.Benchmark.Regression.Mode = v1alpha1.JudgingEnforce
	c := Compare(in)
	b := c.Next(nil, in.Run)
	if b == nil || b.Series[0].Name != "group AllReduce BFloat16, 16 ranks on 2 nodes" ||
		b.Series[0].SizeBytes != 1<<20 {
		t.Fatalf("%+v", b)
	}
	in.Group.Status.Baseline = enough(b)
	in.Run = in.Run.DeepCopy()
	in.Run.ID, in.Span = "1-2", span(89_000)
	if c = Compare(in); c.lost == nil || c.lost.Reason != v1alpha1.ReasonRegression || !strings.Contains(c.lost.Message,
		"group AllReduce BFloat16, 16 ranks on 2 nodes at 1 MiB: measured 89.0 GB/s") {
		t.Errorf("%+v", c.lost)
	}
	in.Span[0].Ranks = 32 // another group
	c = Compare(in)
	if c.lost != nil || len(c.Checks) != 1 || c.Checks[0].State != v1alpha1.CheckNotMeasured ||
		c.Checks[0].Mode != v1alpha1.JudgingReport ||
		!strings.Contains(c.Checks[0].Causes[0], "group AllReduce BFloat16, 32 ranks on 2 nodes at 1 MiB") {
		t.Errorf("that nothing was to compare with is never silent: %+v %+v", c.lost, c.Checks)
	}
}

// TestBaselineIsBounded: however many series a run has, the status stays small and the names short.
func TestBaselineIsBounded(t *testing.T) {
	var results []v1alpha1.GroupResultSeries
	for _, variant := range []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA,
		v1alpha1.VariantLowPrecision} {
		for i := range 24 {
			results = append(results, v1alpha1.GroupResultSeries{Variant: variant,
				Collective: v1alpha1.ReduceScatter, Datatype: v1alpha1.Float8E4M3, Placement: v1alpha1.InPlace,
				SizeBytes: []int64{int64(i + 1)}, BusBandwidthMBps: []int64{100}, MinBusBandwidthMBps: []int64{90}})
		}
	}
	points := points(results, nil)
	if len(points) != maxSeries || points[0].slowest || !points[24].slowest ||
		points[48].key.Variant != v1alpha1.VariantDDA {
		t.Errorf("%d points", len(points))
	}
	for _, p := range points {
		if len(p.name) > 96 {
			t.Errorf("%q", p.name)
		}
	}
	c := Comparison{Key: strings.Repeat("k", 256), present: points}
	run := &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass,
		FinishTime: decision.Stamp(testkit.Now)}
	if b := c.Next(nil, run); len(b.Series) != maxSeries {
		t.Errorf("%d series", len(b.Series))
	}
}

// TestSlowDriftIsSeen: two percent less in each run never lose ten against the median of the last runs; against the
// best level of the baseline they do. A run that was taken in keeps its verdict.
func TestSlowDriftIsSeen(t *testing.T) {
	in := lossInput(300_000, 100_000, 300_000, 300_000, 300_000)
	in.Group.Status.Baseline.Series = in.Group.Status.Baseline.Series[:1]
	figures, level := in.Outcomes, int64(300_000)
	passed := 0
	for number := int64(2); number < 40; number++ {
		level = level * 98 / 100
		for i := range figures {
			figures[i].Verdict, figures[i].Culprits = v1alpha1.VerdictPass, nil
			figures[i].Figures[0].BusBandwidthMBps[0] = level
		}
		in.Run = &v1alpha1.GroupRunStatus{ID: fmt.Sprintf("1-%d", number), Number: number,
			Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass, FinishTime: decision.Stamp(testkit.Now)}
		in.Results, in.Span = judge.AggregateResults(in.Outcomes), nil
		c := Compare(in)
		if c.lost != nil {
			if level >= 270_000 || !strings.Contains(c.lost.Message, "the baseline's best level is 300.0 GB/s") {
				t.Errorf("at %d: %s", level, c.lost.Message)
			}
			break
		}
		passed++
		in.Group.Status.Baseline = c.Next(in.Group.Status.Baseline, in.Run)
		if again := Compare(in); again.lost != nil {
			t.Fatalf("run %d passed and fails once it is taken in: %s", number, again.lost.Message)
		}
	}
	if passed < 3 || passed > 6 {
		t.Errorf("%d runs passed, down to %d", passed, level)
	}
}

// TestFewSamplesAreNotEnforced: of a first run that was lucky nobody can say so.
func TestFewSamplesAreNotEnforced(t *testing.T) {
	for samples := 1; samples <= minSamples; samples++ {
		in := lossInput(300_000, 100_000, 200_000, 200_000, 200_000)
		for i := range in.Group.Status.Baseline.Series {
			s := &in.Group.Status.Baseline.Series[i]
			s.SamplesMBps = s.SamplesMBps[:samples]
		}
		c := Compare(in)
		if enforced := samples >= minSamples; (c.lost != nil) != enforced || len(c.Checks) == 0 ||
			c.Checks[0].State != v1alpha1.CheckNotMet || (c.Checks[0].Mode == v1alpha1.JudgingEnforce) != enforced ||
			strings.Contains(strings.Join(c.Checks[0].Causes, " "), "from 3 on it is enforced") == enforced {
			t.Errorf("%d samples: lost %+v, checks %+v", samples, c.lost, c.Checks)
		}
	}
}

// TestFailedMemberHidesNoRegression: one that failed before it measured has no library, and is no reason against a
// baseline.
func TestFailedMemberHidesNoRegression(t *testing.T) {
	in := lossInput(300_000, 100_000, 300_000, 200_000, 300_000, 300_000)
	in.Outcomes = append(in.Outcomes, judge.Outcome{Node: "n4", Verdict: v1alpha1.VerdictFail,
		Reason: v1alpha1.ReasonLibraryMissing, Report: &v1alpha1.NodeRunStatus{}})
	for i := range in.Outcomes[:4] {
		in.Outcomes[i].Report.Library = &v1alpha1.LibraryFacts{Flavor: "rccl", Version: "2.28.3", BuildHash: "abc"}
	}
	if Compare(in); in.Outcomes[1].Reason != v1alpha1.ReasonRegression {
		t.Errorf("%+v", in.Outcomes[1])
	}
	known, unknown := place{library: true, flavor: "rccl", version: "2.28.3", build: "abc", ranks: 8}, place{ranks: 8}
	if a, b := strings.Join(known.parts(), keySeparator),
		strings.Join(unknown.parts(), keySeparator); !keysAlike(a, b) ||
		unknownParts(b) != "ROCm, library, model, partition" {
		t.Errorf("%q, %q: %q", a, b, unknownParts(b))
	}
}

// TestNewNormalOfAnEarlierGroup: the annotation stands in a manifest, and the group was re-created since.
func TestNewNormalOfAnEarlierGroup(t *testing.T) {
	in := lossInput(300_000, 100_000, 200_000, 200_000, 200_000)
	in.Run.ID, in.Run.Number = "1-6", 6
	for id, anew := range map[string]bool{"3-6": false, "1-6": true, "1-5": true, "9-2": false} {
		in.Group.Annotations = map[string]string{v1alpha1.AnnotationBaselineFrom: id}
		in.Group.Status.History = []v1alpha1.RunSummary{{ID: "1-5"}, {ID: "1-4"}}
		if got := beginsAnew(in.Group, in.Run); got != anew {
			t.Errorf("%s: %v", id, got)
		}
	}
}
