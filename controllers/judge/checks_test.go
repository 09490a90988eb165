package judge

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/checks"
)

// acceptanceSeries is what AMD's mark for two nodes is of.
func acceptanceSeries(mbps int64) v1alpha1.SpanResultSeries {
	return v1alpha1.SpanResultSeries{Dimension: "group", Collective: v1alpha1.AllReduce,
		Datatype: v1alpha1.Float32, Placement: v1alpha1.InPlace, Communicators: 1, Ranks: 16, Nodes: 2,
		SizeBytes: []int64{1 << 20, 8 << 30}, LatencyNanoseconds: []int64{1, 1}, BusBandwidthMBps: []int64{1000, mbps},
		MinBusBandwidthMBps: []int64{1000, mbps}}
}

var twoNodes = Place{model: "MI300X", partition: "SPX/NPS1", flavor: "rccl", transport: "RDMA"}

func TestSpanChecks(t *testing.T) {
	threshold := func(change func(*v1alpha1.Threshold)) func(*v1alpha1.CommGroupSpec) {
		return func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.References = v1alpha1.JudgingOff
			th := v1alpha1.Threshold{Span: v1alpha1.SpanGroup, Collective: v1alpha1.AllReduce,
				Datatype: v1alpha1.Float32, Placement: v1alpha1.InPlace, SizeBytes: 8 << 30,
				MinBusBandwidthMBps: ptr.To(int64(310_000))}
			if change != nil {
				change(&th)
			}
			s.Benchmark.Thresholds = []v1alpha1.Threshold{th}
		}
	}
	for _, tc := range []struct {
		name  string
		mbps  int64
		spec  func(*v1alpha1.CommGroupSpec)
		place func(*Place)
		// slow, open: an enforced check is not met, or not measured; words in the worst check.
		slow, open bool
		words      string
	}{
		{"reference reached", 304_000, nil, nil, false, false, "amd-acceptance-mi300x-2-nodes"},
		{"reference missed", 303_999, nil, nil, true, false, "amd-acceptance-mi300x-2-nodes"},
		{"reference missed, reported", 200_000, func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.References = v1alpha1.JudgingReport
		}, nil, false, false, "amd-acceptance-mi300x-2-nodes"},
		{"over TCP there is no reference", 20_000, nil, func(p *Place) { p.transport = "TCP" }, false, false,
			"transport TCP instead of RDMA"},
		{"transport unknown", 20_000, nil, func(p *Place) { p.transport = "Unknown" }, false, false,
			"transport unknown instead of RDMA"},
		{"mixed models", 20_000, nil, func(p *Place) { p.model = nodefacts.Mixed }, false, false,
			"no built-in reference is known for mixed"},
		{"threshold missed", 305_000, threshold(nil), nil, true, false, "spec"},
		{"threshold of a node's run", 305_000, threshold(func(th *v1alpha1.Threshold) { th.Span = "" }), nil,
			false, false, ""},
		{"threshold for TCP", 305_000, threshold(func(th *v1alpha1.Threshold) { th.Transport = "TCP" }), nil, false,
			false, "transport TCP, and this is RDMA"},
		{"threshold for RDMA, transport unknown", 305_000, threshold(func(th *v1alpha1.Threshold) {
			th.Transport = "RDMA"
		}), func(p *Place) { p.transport = "Unknown" }, false, true, "not known"},
		{"threshold for other ranks", 305_000, threshold(func(th *v1alpha1.Threshold) { th.Ranks = ptr.To(int32(32)) }),
			nil, false, false, "32 ranks, and these are 16"},
		{"slowest repeat, of which only medians are kept", 305_000, threshold(func(th *v1alpha1.Threshold) {
			th.Statistic = v1alpha1.StatisticMin
		}), nil, false, true, "only medians are kept"},
		{"percent of the reference", 304_000, threshold(func(th *v1alpha1.Threshold) {
			th.MinBusBandwidthMBps, th.MinPercentOfReference = nil, ptr.To(int32(101))
		}), nil, true, false, "101 % of amd-acceptance-mi300x-2-nodes"},
		{"a size that was not measured", 304_000, threshold(func(th *v1alpha1.Threshold) { th.SizeBytes = 3 }), nil,
			false, true, "1048576, 8589934592"},
	} {
		spec, place := testkit.Group().Spec, twoNodes
		if tc.spec != nil {
			tc.spec(&spec)
		}
		if tc.place != nil {
			tc.place(&place)
		}
		got := SpanChecks(&spec, []v1alpha1.SpanResultSeries{acceptanceSeries(tc.mbps)}, place)
		slow, open := checks.Of(got)
		text := ""
		for _, c := range got {
			text += fmt.Sprint(c.Source, c.Measurement, c.Causes)
		}
		if (len(slow) > 0) != tc.slow || (len(open) > 0) != tc.open || !strings.Contains(text, tc.words) {
			t.Errorf("%s: slow %v, open %v; %s", tc.name, len(slow) > 0, len(open) > 0, text)
		}
		if len(slow) > 0 && !strings.HasPrefix(slow[0].Measurement, "group: Baseline AllReduce") {
			t.Errorf("%s: %q", tc.name, slow[0].Measurement)
		}
	}
}

// TestMeshThresholds: only those that name ranks or nodes hold for a dimension of the mesh, and the slowest
// communicator counts.
func TestMeshThresholds(t *testing.T) {
	mesh := acceptanceSeries(400_000)
	mesh.Dimension, mesh.Communicators, mesh.Ranks, mesh.Nodes, mesh.Slowest, mesh.MinBusBandwidthMBps = "tp", 2, 8, 1,
		"tp/1", []int64{1, 250_000}
	th := v1alpha1.Threshold{Span: v1alpha1.SpanGroup, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.Float32,
		Placement: v1alpha1.InPlace, SizeBytes: 8 << 30, MinBusBandwidthMBps: ptr.To(int64(300_000))}
	spec := testkit.Group().Spec
	spec.Benchmark.Thresholds = []v1alpha1.Threshold{th}
	series := []v1alpha1.SpanResultSeries{acceptanceSeries(350_000), mesh}
	if slow, _ := checks.Of(SpanChecks(&spec, series, twoNodes)); len(slow) != 0 {
		t.Errorf("%+v", slow)
	}
	spec.Benchmark.Thresholds[0].Ranks = ptr.To(int32(8))
	slow, _ := checks.Of(SpanChecks(&spec, series, twoNodes))
	if len(slow) != 1 || *slow[0].MeasuredMBps != 250_000 || !strings.HasPrefix(slow[0].Measurement, "tp/1: ") {
		t.Errorf("%+v", slow)
	}
}

func TestPlaceOfMembers(t *testing.T) {
	member := func(name, model, partition, flavor string) Outcome {
		return Outcome{Node: name, Kind: Kind{GPUModel: model, Partition: partition},
			Report: &v1alpha1.NodeRunStatus{Library: &v1alpha1.LibraryFacts{Flavor: flavor}}}
	}
	a, b := member("a", "MI300X", "SPX/NPS1", "rccl"), member("b", "MI300X", "unknown", "rcclx-dev")
	if got := PlaceOfMembers([]Outcome{a}, "RDMA"); got != (Place{"MI300X", "SPX/NPS1", "rccl", "", "RDMA"}) {
		t.Errorf("%+v", got)
	}
	if got := PlaceOfMembers([]Outcome{a, b}, "Mixed"); got != (Place{"MI300X", "", nodefacts.Mixed, "", "Mixed"}) {
		t.Errorf("%+v", got)
	}
	if got := PlaceOfMembers([]Outcome{a, {Node: "gone"}}, ""); got != (Place{}) {
		t.Errorf("%+v", got)
	}
}

// TestAggregateChecks: the worst node of each measurement, what decides first, never more than the API takes.
func TestAggregateChecks(t *testing.T) {
	var outcomes []Outcome
	for i := range 40 {
		var own []v1alpha1.PerformanceCheck
		for k := range 3 {
			percent := int32(100 + i - 5*k)
			state := v1alpha1.CheckMet
			if percent < 100 {
				state = v1alpha1.CheckNotMet
			}
			own = append(own, v1alpha1.PerformanceCheck{Source: "spec",
				Measurement: fmt.Sprintf("m%d, median; 2 repeats of %d to 9 MB/s", k, i), State: state,
				Mode: v1alpha1.JudgingEnforce, Percent: &percent})
		}
		outcomes = append(outcomes,
			Outcome{Node: fmt.Sprintf("n%02d", i), Report: &v1alpha1.NodeRunStatus{Checks: own}})
	}
	outcomes = append(outcomes, Outcome{Node: "silent"})
	open := v1alpha1.PerformanceCheck{Source: "baseline", Measurement: "b", State: v1alpha1.CheckNotMeasured,
		Mode: v1alpha1.JudgingReport}
	got := AggregateChecks(outcomes, []v1alpha1.PerformanceCheck{open})
	if len(got) != 4 || got[0].Node != "n00" || *got[0].Percent != 90 || *got[1].Percent != 95 ||
		got[2].Source != "baseline" || got[3].State != v1alpha1.CheckMet || got[3].Node != "n00" {
		t.Errorf("%+v", got)
	}
	many := make([]v1alpha1.PerformanceCheck, 50)
	if got = AggregateChecks(outcomes, many); len(got) != checks.Max {
		t.Errorf("%d checks", len(got))
	}
	if outcomes[0].Report.Checks[0].Node != "" {
		t.Error("the snapshot was changed")
	}
}
