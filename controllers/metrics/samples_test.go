package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	contract "rcclx.io/commgroup-operator/internal/metrics"
	"rcclx.io/commgroup-operator/internal/state"
)

var update = flag.Bool("update", false, "write the golden file anew")

// lister is a cache that holds these objects.
type lister struct {
	client.Reader
	groups []state.Group
	tasks  []v1alpha1.CommTask
	nodes  []v1alpha1.CommNode
	err    error
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.CommGroupList:
		for i := range l.groups {
			group, _ := l.groups[i].Objects()
			list.Items = append(list.Items, *group)
		}
	case *v1alpha1.CommRunList:
		for i := range l.groups {
			if _, run := l.groups[i].Objects(); run != nil {
				list.Items = append(list.Items, *run)
			}
		}
	case *v1alpha1.CommTaskList:
		list.Items = l.tasks
	case *v1alpha1.CommNodeList:
		list.Items = l.nodes
	}
	return l.err
}

func elected() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func at(second int64) metav1.Time      { return metav1.Unix(1_800_000_000+second, 0) }
func atPtr(second int64) *metav1.Time  { return ptr.To(at(second)) }
func values(from, n int64) (v []int64) { return append(v, from, from*n) }

// fullGroup says everything that a status can say.
func fullGroup() state.Group {
	g := state.Group{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g", UID: "uid-g"}}
	g.Spec.Span, g.Spec.Run.State = v1alpha1.SpanGroup, v1alpha1.RunActive
	s := &g.Status
	s.Origin = v1alpha1.OriginSimulated
	s.Inventory = []v1alpha1.InventoryItem{
		{Property: "GPUModel", Value: "MI325X", Nodes: 1}, {Property: "GPUModel", Value: "MI300X", Nodes: 2},
		{Property: "Library", Value: "rcclx-dev 2.28.3", Nodes: 2},
		{Property: "Library", Value: "rccl 2.27.7", Nodes: 2},
	}
	s.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSlowLink,
			LastTransitionTime: at(0), Message: "never a label"},
		{Type: v1alpha1.ConditionRunning, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunInProgress,
			LastTransitionTime: at(5)},
	}
	s.Members = v1alpha1.MemberCounts{Selected: 3, Reporting: 3, Passed: 1, Failed: 1, Running: 1}
	s.Run = &v1alpha1.GroupRunStatus{ID: "1-3", Number: 3, Phase: v1alpha1.RunPhaseRunning, StartTime: at(100)}
	s.History = []v1alpha1.RunSummary{
		{ID: "1-2", Verdict: v1alpha1.VerdictFail, StartTime: at(10), FinishTime: atPtr(70)},
		{ID: "1-1", Verdict: v1alpha1.VerdictPass, StartTime: at(0), FinishTime: atPtr(9)},
	}
	s.NextRunTime = atPtr(3600)
	s.Headline = &v1alpha1.Headline{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce,
		Datatype: v1alpha1.BFloat16, SizeBytes: 65536, BusBandwidthMBps: 315_400}
	s.Results = []v1alpha1.GroupResultSeries{
		{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: values(1024, 64), LatencyNanoseconds: values(20_000, 2), BusBandwidthMBps: values(90, 3000),
			MinBusBandwidthMBps: values(80, 3000)},
		{Variant: v1alpha1.VariantLowPrecision, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			Placement: v1alpha1.InPlace, SizeBytes: values(1024, 64), LatencyNanoseconds: []int64{20_000},
			WrongElements: 3, MaxRelativeErrorPPM: ptr.To[int64](31_250)},
	}
	s.Span = &v1alpha1.SpanStatus{Results: []v1alpha1.SpanResultSeries{
		{Dimension: "group", Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1024},
			LatencyNanoseconds: []int64{40_000}, BusBandwidthMBps: []int64{45}, MinBusBandwidthMBps: []int64{44}},
		{Dimension: "dp", Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1024},
			LatencyNanoseconds: []int64{50_000}, BusBandwidthMBps: []int64{36}, MinBusBandwidthMBps: []int64{35}},
	}}
	s.Settings = []v1alpha1.SettingStatus{
		{Name: "dda.AllReduce", Requested: "Preferred", Effective: v1alpha1.EffectivePartial,
			Reason: v1alpha1.SettingReasonAboveThreshold, Verified: v1alpha1.VerifiedConfirmed,
			Usable: v1alpha1.ResultsUsable},
		{Name: "env.NCCL_SOCKET_IFNAME", Requested: "eth-private", Effective: v1alpha1.EffectiveUnknown,
			Reason: v1alpha1.SettingReasonUnknown, Verified: v1alpha1.VerifiedUnknown},
	}
	s.Checks = []v1alpha1.PerformanceCheck{
		{Source: "spec", Measurement: "Baseline AllReduce", State: v1alpha1.CheckNotMet, Mode: v1alpha1.JudgingEnforce,
			MeasuredMBps: ptr.To[int64](150), ExpectedMBps: ptr.To[int64](200), Percent: ptr.To[int32](75), Node: "n2"},
		{Source: "baseline", Measurement: "DDA AllReduce", State: v1alpha1.CheckNotMeasured,
			Mode: v1alpha1.JudgingReport, ExpectedMBps: ptr.To[int64](200)},
	}
	culprit := v1alpha1.Culprit{Node: "n2", Kind: "Link", Name: "0000:05:00.0<->0000:26:00.0",
		Reason: v1alpha1.ReasonSlowLink, Message: "never a label"}
	s.Culprits = []v1alpha1.Culprit{culprit, culprit} // twice: one series
	s.Gating = &v1alpha1.GatingStatus{Gated: 1, Breaker: "Open"}
	s.Budget = &v1alpha1.BudgetStatus{Day: "2027-01-15", UsedGPUMinutes: 10, LimitGPUMinutes: 480}
	return g
}

func task(node string) v1alpha1.CommTask {
	t := v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g." + node}}
	t.Spec.NodeName, t.Spec.NodeUID, t.Spec.Group = node, "uid-"+node, v1alpha1.GroupReference{Name: "g", UID: "uid-g"}
	return t
}

// commNode is a node whose monitor reported at a time; negative for never.
func commNode(name string, reported int64) v1alpha1.CommNode {
	n := v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.CommNodeSpec{NodeUID: "uid-" + name}}
	if reported >= 0 {
		// the node's own clock counts for nothing
		n.Status.Facts = &v1alpha1.NodeFacts{ObservedTime: at(-9999), ValidForSeconds: 600}
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManagerMonitor,
			Operation: metav1.ManagedFieldsOperationApply, Time: atPtr(reported)}}
	}
	return n
}

func fullNodes() []v1alpha1.CommNode {
	return []v1alpha1.CommNode{commNode("n1", 50), commNode("n2", 40), commNode("n3", 60), commNode("of-no-group", 10)}
}

func fullTasks() []v1alpha1.CommTask {
	passed, failed, stale := task("n1"), task("n2"), task("n3")
	for i, t := range []*v1alpha1.CommTask{&passed, &failed, &stale} {
		t.Spec.Run = &v1alpha1.RunAssignment{ID: "1-2", Generation: 1}
		t.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-2", Generation: 1, Phase: v1alpha1.NodeRunFinished,
			Verdict: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonAllPassed,
			Results: []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline,
				Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: values(1024, 64),
				BusBandwidthMBps: values(90+int64(i), 3000)}}, Links: &v1alpha1.LinkProbe{SizeBytes: 1 << 20,
				MedianMBps: 48_000, MinMBps: 47_000, Slowest: "0000:05:00.0<->0000:26:00.0"}}
	}
	failed.Status.Run.Verdict, failed.Status.Run.Reason, failed.Status.Run.Links.MinMBps = v1alpha1.VerdictFail,
		v1alpha1.ReasonSlowLink, 12_000
	stale.Spec.Run.Stale = &v1alpha1.RunStaleness{Reason: v1alpha1.StaleNodeRebooted}
	return []v1alpha1.CommTask{passed, failed, stale}
}

// full is the cache of one group that has everything.
func full() *lister {
	return &lister{groups: []state.Group{fullGroup()}, tasks: fullTasks(), nodes: fullNodes()}
}

// samples are those of the cache's group.
func (l *lister) samples(perNode bool) []contract.Sample {
	return Samples(&l.groups[0], members(l.tasks)[keyOf("team", "uid-g")], named(l.nodes), perNode)
}

func gather(t testing.TB, c *Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestGolden holds the whole of a group's metrics against the file, and against promlint.
func TestGolden(t *testing.T) {
	c := &Collector{Reader: full(), Elected: elected(), PerNode: true, Version: "v1"}
	text := gather(t, c)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	file := filepath.Join("testdata", "group.prom")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("(-%s +now; go test ./controllers/metrics -run Golden -update writes it)\n%s", file, diff)
	}
	for _, m := range contract.All() {
		if m.Source == contract.Manager && m.Name != contract.RunFinish.Name &&
			!strings.Contains(text, "\n"+m.Name+"{") {
			t.Errorf("a full group has no %s", m.Name)
		}
	}
	if strings.Contains(text, "never a label") || strings.Contains(text, "eth-private") {
		t.Error("a message or a variable's value is a label")
	}
}

// series are those of one metric, as its labels after the group's, with a value each.
func series(samples []contract.Sample, m *contract.Metric) map[string]float64 {
	out := map[string]float64{}
	for _, s := range samples {
		if s.Metric.Name == m.Name {
			out[strings.Join(s.Labels[2:], " ")] = s.Value
		}
	}
	return out
}

// TestUnknownIsAbsent: what the status does not say makes no series, least of all one with value 0.
func TestUnknownIsAbsent(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*lister)
		metric *contract.Metric
		want   map[string]float64
	}{
		{"no status yet: members", func(l *lister) { l.groups[0].Status = state.Status{} }, &contract.Members, nil},
		{"no status yet: run active", func(l *lister) { l.groups[0].Status = state.Status{} },
			&contract.RunActive, nil},
		{"no status yet: info", func(l *lister) { l.groups[0].Status = state.Status{} }, &contract.Info,
			map[string]float64{"Group Unknown unknown unknown Active": 1}},
		{"never ran: runs", func(l *lister) { l.groups[0].Status.Run, l.groups[0].Status.History = nil, nil },
			&contract.Runs, nil},
		{"never ran: verdict", func(l *lister) { l.groups[0].Status.Run, l.groups[0].Status.History = nil, nil },
			&contract.Verdict, nil},
		{"never ran: not active", func(l *lister) { l.groups[0].Status.Run, l.groups[0].Status.History = nil, nil },
			&contract.RunActive, map[string]float64{"": 0}},
		{"a run goes on: no finish", nil, &contract.RunFinish, nil},
		{"a run goes on: the duration of the one before", nil, &contract.RunDuration, map[string]float64{"": 60}},
		{"a finished run", func(l *lister) {
			l.groups[0].Status.Run.Phase, l.groups[0].Status.Run.Verdict, l.groups[0].Status.Run.FinishTime =
				v1alpha1.RunPhaseFinished, v1alpha1.VerdictError, atPtr(130)
		}, &contract.RunDuration, map[string]float64{"": 30}},
		{"a finished run's verdict", func(l *lister) { l.groups[0].Status.Run.Verdict = v1alpha1.VerdictError },
			&contract.Verdict, map[string]float64{"Pass": 0, "Fail": 0, "Inconclusive": 0, "Error": 1, "Skipped": 0}},
		{"the clock went back during a run", func(l *lister) { l.groups[0].Status.Run.FinishTime = atPtr(99) },
			&contract.RunDuration, nil},
		{"gating off", func(l *lister) { l.groups[0].Status.Gating = nil }, &contract.GatedNodes, nil},
		{"gating without a breaker", func(l *lister) { l.groups[0].Status.Gating.Breaker = "" },
			&contract.BreakerOpen, nil},
		{"a check that was not measured", func(l *lister) { l.groups[0].Status.Checks = l.groups[0].Status.Checks[1:] },
			&contract.CheckRatio, nil},
		{"a latency of 0 is none", func(l *lister) {
			l.groups[0].Status.Results, l.groups[0].Status.Span = []v1alpha1.GroupResultSeries{{SizeBytes: []int64{8},
				LatencyNanoseconds: []int64{0}}}, nil
		}, &contract.AlgBandwidth, nil},
		{"oldest report", nil, &contract.OldestReport, map[string]float64{"": 1_800_000_040}},
		{"one member never reported", func(l *lister) { l.nodes[0] = commNode("n1", -1) }, &contract.OldestReport, nil},
		{"one member has no CommNode yet", func(l *lister) { l.nodes = l.nodes[1:] }, &contract.OldestReport, nil},
		{"one member's CommNode is of an older Node object", func(l *lister) { l.nodes[0].Spec.NodeUID = "uid-old" },
			&contract.NodeLastReport, map[string]float64{"n2": 1_800_000_040, "n3": 1_800_000_060}},
		{"how long reports hold", func(l *lister) { l.nodes[1].Status.Facts.ValidForSeconds = 900 },
			&contract.ReportValid, map[string]float64{"": 900}},
		{"how long reports hold where one member never reported", func(l *lister) { l.nodes[0] = commNode("n1", -1) },
			&contract.ReportValid, map[string]float64{"": 600}},
		{"no member has reported", func(l *lister) { l.nodes = nil }, &contract.ReportValid, nil},
		{"one member has no CommTask yet", func(l *lister) { l.tasks = l.tasks[1:] }, &contract.OldestReport, nil},
		{"facts that no monitor wrote", func(l *lister) { l.nodes[0].ManagedFields = nil }, &contract.NodeLastReport,
			map[string]float64{"n2": 1_800_000_040, "n3": 1_800_000_060}},
		{"a node of an older group of the name", func(l *lister) { l.tasks[0].Spec.Group.UID = "uid-old" },
			&contract.NodeVerdict, map[string]float64{"n2 Fail SlowLink": 1, "n3 Stale NodeRebooted": 1}},
		{"a node of another namespace that names the group", func(l *lister) { l.tasks[0].Namespace = "other" },
			&contract.NodeVerdict, map[string]float64{"n2 Fail SlowLink": 1, "n3 Stale NodeRebooted": 1}},
		{"a report of another run", func(l *lister) { l.tasks[0].Spec.Run.ID = "1-3" }, &contract.NodeVerdict,
			map[string]float64{"n2 Fail SlowLink": 1, "n3 Stale NodeRebooted": 1}},
		{"a report of another run: no bandwidth", func(l *lister) { l.tasks[0].Spec.Run.ID = "1-3" },
			&contract.NodeBusBW, map[string]float64{"n2": 273_000e6}},
		{"closed by the controller", func(l *lister) {
			l.tasks[0].Spec.Run.Closed = &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictSkipped,
				Reason: v1alpha1.ReasonNodeBusy}
		}, &contract.NodeVerdict,
			map[string]float64{"n1 Skipped NodeBusy": 1, "n2 Fail SlowLink": 1, "n3 Stale NodeRebooted": 1}},
		{"the headline's size was not reached", func(l *lister) { l.groups[0].Status.Headline.SizeBytes = 1 << 30 },
			&contract.NodeBusBW, nil},
		{"no headline", func(l *lister) { l.groups[0].Status.Headline = nil }, &contract.Headline, nil},
		{"no probe of pairs", func(l *lister) { l.tasks[0].Status.Run.Links = nil }, &contract.NodeSlowestPair,
			map[string]float64{"n2 0000:05:00.0 0000:26:00.0": 12_000e6}},
	} {
		l := full()
		if tc.change != nil {
			tc.change(l)
		}
		if tc.want == nil {
			tc.want = map[string]float64{}
		}
		if diff := cmp.Diff(tc.want, series(l.samples(true), tc.metric)); diff != "" {
			t.Errorf("%s: %s (-want +got)\n%s", tc.name, tc.metric.Name, diff)
		}
	}
}

// TestUnits: MB/s, nanoseconds and parts per million become bytes a second, seconds and ratios, exactly.
func TestUnits(t *testing.T) {
	samples := full().samples(false)
	for _, tc := range []struct {
		metric *contract.Metric
		labels string
		want   float64
	}{
		{&contract.Headline, "", 315_400_000_000},
		{&contract.BusBandwidth, "Node  Baseline AllReduce BFloat16 OutOfPlace 65536 Min", 240_000_000_000},
		{&contract.BusBandwidth, "Group dp Baseline AllReduce BFloat16 OutOfPlace 1024 Median", 36_000_000},
		{&contract.Latency, "Node  Baseline AllReduce BFloat16 OutOfPlace 65536", 0.00004},
		{&contract.AlgBandwidth, "Node  Baseline AllReduce BFloat16 OutOfPlace 65536", 1_638_400_000},
		{&contract.RelativeError, "LowPrecision AllReduce BFloat16 InPlace", 0.03125},
		{&contract.CheckRatio, "spec Baseline AllReduce n2 Enforce NotMet", 0.75},
		{&contract.BudgetLimit, "", 28_800},
	} {
		got, ok := series(samples, tc.metric)[tc.labels]
		if !ok || math.Abs(got-tc.want) > tc.want*1e-15 {
			t.Errorf("%s{%s} is %v (there: %v), want %v", tc.metric.Name, tc.labels, got, ok, tc.want)
		}
	}
	if n := len(series(samples, &contract.NodeVerdict)); n > 0 {
		t.Errorf("%d series of members without per-node metrics", n)
	}
}

// TestDeletedGroupsLeaveNothing: the collector has no memory.
func TestDeletedGroupsLeaveNothing(t *testing.T) {
	cache := full()
	c := &Collector{Reader: cache, Elected: elected(), PerNode: true}
	if text := gather(t, c); !strings.Contains(text, `group="g"`) {
		t.Fatalf("no series of the group in\n%s", text)
	}
	cache.groups = nil // its CommTasks are collected a little later
	if text := gather(t, c); strings.Contains(text, `group="g"`) || !strings.Contains(text, contract.ManagerInfo.Name) {
		t.Errorf("after the deletion:\n%s", text)
	}
}

// TestOneSpeaks: a manager that does not lead has no series; a cache that does not answer fails the scrape.
func TestOneSpeaks(t *testing.T) {
	c := &Collector{Reader: &lister{groups: []state.Group{fullGroup()}}, Elected: make(chan struct{})}
	if text := gather(t, c); text != "" {
		t.Errorf("one that does not lead says\n%s", text)
	}
	c = &Collector{Reader: &lister{err: errors.New("cache is gone")}, Elected: elected()}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "cache is gone") {
		t.Errorf("the scrape without a cache: %v", err)
	}
}

// TestForeignText: label values that no client library takes do not void the scrape.
func TestForeignText(t *testing.T) {
	g := fullGroup()
	g.Status.Culprits[0].Name = "caf\xe9"
	text := gather(t, &Collector{Reader: &lister{groups: []state.Group{g}}, Elected: elected()})
	if !strings.Contains(text, "caf�") {
		t.Error("the culprit is not there")
	}
}

func FuzzSamples(f *testing.F) {
	f.Add("n1", "a<->b", "Pass", int64(5), int64(7), uint8(3))
	f.Fuzz(func(t *testing.T, name, pair, word string, a, b int64, cut uint8) {
		l := full()
		g, tasks := &l.groups[0], l.tasks
		tasks[0].Spec.NodeName, tasks[1].Spec.NodeName, l.nodes[0].Name = name, name, name
		tasks[0].Status.Run.Links.Slowest, tasks[1].Status.Run.Verdict = pair, v1alpha1.Verdict(word)
		g.Status.Results[0].SizeBytes = slices.Repeat([]int64{a}, int(cut%8))
		g.Status.Results[0].LatencyNanoseconds = slices.Repeat([]int64{b}, int(cut/8%8))
		g.Status.Culprits[1].Name, g.Status.Culprits[1].Reason = name, word
		g.Status.History[0].FinishTime = ptr.To(metav1.NewTime(time.Unix(a%(1<<40), 0)))
		g.Status.Checks[0].MeasuredMBps, g.Status.Checks[0].ExpectedMBps = &a, &b
		gather(t, &Collector{Reader: l, Elected: elected(), PerNode: true})
	})
}

// BenchmarkScrape is a scrape of 12,500 members, in one group and in fifty.
func BenchmarkScrape(b *testing.B) {
	const count = 12_500
	for _, bench := range []struct {
		name    string
		groups  int
		perNode bool
	}{{"groups=1", 1, true}, {"groups=50", 50, true}, {"groups=1/members-off", 1, false}} {
		cache := &lister{}
		for i := range bench.groups {
			g := fullGroup()
			g.Name, g.UID = "g"+strings.Repeat("x", i), types.UID(strings.Repeat("u", i+1))
			g.Status.Members.Selected = int32(count / bench.groups)
			cache.groups = append(cache.groups, g)
			for j := range count / bench.groups {
				t, n := fullTasks()[j%2], fullNodes()[j%2]
				t.Spec.NodeName, t.Spec.Group.UID = "node-"+strings.Repeat("0", i%7)+time.Duration(j).String(),
					string(g.UID)
				n.Name, n.Spec.NodeUID = t.Spec.NodeName, t.Spec.NodeUID
				cache.tasks, cache.nodes = append(cache.tasks, t), append(cache.nodes, n)
			}
		}
		b.Run(bench.name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(&Collector{Reader: cache, Elected: elected(), PerNode: bench.perNode})
			b.ReportAllocs()
			bytesOut, lines, began := 0, 0, processorTime(b)
			for b.Loop() {
				families, err := registry.Gather()
				if err != nil {
					b.Fatal(err)
				}
				var out bytes.Buffer
				lines = 0
				for _, f := range families {
					if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
						b.Fatal(err)
					}
					lines += len(f.Metric)
				}
				bytesOut = out.Len()
			}
			b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "processor-ms/scrape")
			b.ReportMetric(float64(bytesOut)/1e6, "MB/scrape")
			b.ReportMetric(float64(lines), "series/scrape")
		})
	}
}

// processorTime is what the process has used of all processors, the garbage collector's part included.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
