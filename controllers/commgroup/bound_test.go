package commgroup

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// fullStatus has each list as long, and each text, as the API or the controller lets it be.
func fullStatus(at v1alpha1.RunStage) *state.Status {
	text := func(n int) string { return strings.Repeat("x", n) }
	now, big := metav1.NewTime(time.Unix(1800000000, 0)), int64(1)<<40
	list := func(n int) []int64 {
		out := make([]int64, n)
		for i := range out {
			out[i] = big + int64(i)
		}
		return out
	}
	s := &state.Status{Headline: &v1alpha1.Headline{}, Run: &v1alpha1.GroupRunStatus{ID: "1-1"}}
	for _, t := range ConditionTypes {
		s.Conditions = append(s.Conditions,
			metav1.Condition{Type: t, Status: "False", Reason: text(60), Message: text(2048), LastTransitionTime: now})
	}
	for reason := range remarks {
		s.Remarks = append(s.Remarks, v1alpha1.Remark{Reason: reason, Message: text(maxRemark)})
	}
	var names []string
	for i := range 16 {
		names = append(names, fmt.Sprintf("%s-%d", text(60), i))
	}
	for _, name := range names {
		s.Culprits = append(s.Culprits, v1alpha1.Culprit{Node: name, Kind: "Pair", Pair: []string{text(63), text(63)},
			Name: text(128), Reason: text(30), Message: text(512)})
		s.Checks = append(s.Checks, v1alpha1.PerformanceCheck{Source: text(64),
			Measurement: text(160), State: "NotMet", Mode: "Enforce", MeasuredMBps: &big,
			Causes: []string{text(200), text(200), text(200), text(200)}, Node: name})
	}
	s.WouldGate, s.Gating = names, &v1alpha1.GatingStatus{Nodes: names, Breaker: "Open", Message: text(512)}
	s.Span = &v1alpha1.SpanStatus{RunID: "1-1", Stage: at, Left: slices.Clone(names),
		LeftSet: text(stage.MaxLeftSet), Message: text(1024), Network: text(512),
		Culprits: slices.Clone(s.Culprits), Localization: &v1alpha1.LocalizationStatus{Message: text(512),
			Step: &v1alpha1.Step{Variant: v1alpha1.VariantLowPrecision, Collective: v1alpha1.ReduceScatter,
				Datatype: v1alpha1.BFloat16, Placement: v1alpha1.OutOfPlace, SizeBytes: math.MaxInt64}}}
	for i := range stage.MaxTests {
		s.Span.Tests = append(s.Span.Tests, v1alpha1.SpanTest{ID: fmt.Sprintf("localize-12-%d", i),
			Kind: v1alpha1.TestSearch, Round: 100, Index: 16, Set: text(stage.MaxSetBytes / stage.MaxTests),
			Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonHangAcrossNodes, BusBandwidthMBps: &big,
			StartTime: now, Seconds: ptr.To(int32(1000))})
	}
	for i := range stage.MaxSeries {
		s.Span.Results = append(s.Span.Results, v1alpha1.SpanResultSeries{Dimension: fmt.Sprint("d", i),
			Collective: "ReduceScatter", Datatype: "BFloat16", SizeBytes: list(40),
			LatencyNanoseconds: list(40), BusBandwidthMBps: list(40), MinBusBandwidthMBps: list(40), Repeats: 9,
			SpreadPercent: slices.Repeat([]int32{100}, 40), Slowest: text(20)})
	}
	s.Baseline = &v1alpha1.BaselineStatus{Key: text(256), Previous: text(256), Since: now}
	for i := range 96 {
		s.Baseline.Series = append(s.Baseline.Series,
			v1alpha1.BaselineSeries{Name: fmt.Sprintf("%s-%d", text(90), i), SizeBytes: big, SamplesMBps: list(8)})
	}
	for i := range 64 {
		a := v1alpha1.SettingAdvice{Name: fmt.Sprintf("%s-%d", text(150), i), ErrorPPM: &big, MemoryBytes: &big,
			Recommend: text(160), Message: text(256)}
		for range settings.MaxBands {
			a.Bands = append(a.Bands,
				v1alpha1.GainBand{MinBytes: big, MaxBytes: big, Outcome: "Loses", MedianGainPercent: -100})
		}
		s.Advice = append(s.Advice, a)
	}
	for range 10 {
		s.History = append(s.History, v1alpha1.RunSummary{ID: text(63), Trigger: text(64), Reason: text(64),
			StartTime: now, FinishTime: &now, Headline: text(160), BaselineKey: text(256), Culprit: text(253)})
	}
	for i := range 80 {
		s.Settings = append(s.Settings,
			v1alpha1.SettingStatus{Name: fmt.Sprintf("%s-%d", text(120), i), Requested: text(256), Message: text(512)})
	}
	for range judge.MaxGroupSeries {
		s.Results = append(s.Results, v1alpha1.GroupResultSeries{Variant: "LowPrecision", Collective: "ReduceScatter",
			Datatype: "BFloat16", SlowestNode: text(60), SizeBytes: list(40), LatencyNanoseconds: list(40),
			BusBandwidthMBps: list(40), MinBusBandwidthMBps: list(40)})
	}
	for range 32 {
		s.Inventory = append(s.Inventory,
			v1alpha1.InventoryItem{Property: text(32), Value: text(128), Example: text(60)})
	}
	for range judge.MaxDataErrors {
		s.DataErrors = append(s.DataErrors, v1alpha1.DataErrors{SizeBytes: list(16), MaxErrorPPM: list(16),
			MeanErrorPPM: list(16), CheckedElements: list(16)})
	}
	return s
}

func bound(s *state.Status, thresholds ...v1alpha1.Threshold) {
	boundGroup(s)
	boundRun(&state.Group{Spec: v1alpha1.CommGroupSpec{Benchmark: v1alpha1.BenchmarkSpec{Thresholds: thresholds}}}, s)
}

// TestStatusAlwaysFits: whatever is in it, and a second time nothing more is lost.
func TestStatusAlwaysFits(t *testing.T) {
	for _, at := range []v1alpha1.RunStage{v1alpha1.StageLocalizing, v1alpha1.StageMesh, v1alpha1.StageEnded} {
		s := fullStatus(at)
		bound(s)
		group, run := (&state.Group{Status: *s}).Objects()
		if got := testkit.SizeOf(t, group.Status); got > MaxGroupBytes {
			t.Errorf("stage %s: %d bytes of the CommGroup's status, at most %d may be", at, got, MaxGroupBytes)
		}
		if got := testkit.SizeOf(t, run); got > MaxRunBytes {
			t.Errorf("stage %s: %d bytes of the CommRun, at most %d may be", at, got, MaxRunBytes)
		}
		if len(s.Remarks) != len(remarks) {
			t.Errorf("stage %s: remarks %+v are left; what is lost would be told again", at, s.Remarks)
		}
		if at != v1alpha1.StageEnded && (len(s.Span.Tests) != stage.MaxTests || len(s.Span.Culprits) != 16) {
			t.Errorf("stage %s: %d tests and %d culprits are left, of which the stage goes on",
				at, len(s.Span.Tests), len(s.Span.Culprits))
		}
		if len(s.Conditions) != len(ConditionTypes) || len(s.Culprits) == 0 || len(s.Span.Left) == 0 ||
			len(s.History) == 0 {
			t.Errorf("stage %s: %d conditions, %d culprits, %d left, %d past runs",
				at, len(s.Conditions), len(s.Culprits), len(s.Span.Left), len(s.History))
		}
		again := s.DeepCopy()
		bound(again)
		if !reflect.DeepEqual(s, again) {
			t.Errorf("stage %s: bounded once more it differs", at)
		}
	}
}

// TestResultsStayWhileTheStageJudges: what the stage measured is judged in later reconciles too, so that other parts
// give way; and once it has ended the sizes of thresholds stay longest.
func TestResultsStayWhileTheStageJudges(t *testing.T) {
	series := func(sizes int) []v1alpha1.SpanResultSeries {
		var out []v1alpha1.SpanResultSeries
		for range 8 {
			s := v1alpha1.SpanResultSeries{Dimension: judge.DimensionGroup, Collective: "AllReduce",
				Datatype: "BFloat16"}
			for i := range sizes {
				s.SizeBytes, s.LatencyNanoseconds = append(s.SizeBytes, 1024<<i), append(s.LatencyNanoseconds, int64(i))
				s.BusBandwidthMBps, s.MinBusBandwidthMBps = append(s.BusBandwidthMBps, int64(i)),
					append(s.MinBusBandwidthMBps, int64(i))
				s.SpreadPercent = append(s.SpreadPercent, int32(i))
			}
			out = append(out, s)
		}
		return out
	}
	few := func(stage v1alpha1.RunStage, sizes int) *state.Status {
		s := fullStatus(stage)
		s.Span.Results, s.Span.Tests, s.Baseline.Series = series(sizes), s.Span.Tests[:60], s.Baseline.Series[:24]
		return s
	}
	s := few(v1alpha1.StageLocalizing, 9)
	bound(s)
	if !reflect.DeepEqual(s.Span.Results, series(9)) {
		t.Errorf("results of a stage that goes on: %d, of which the first has sizes %v",
			len(s.Span.Results), s.Span.Results[:min(1, len(s.Span.Results))])
	}
	s = few(v1alpha1.StageEnded, 21)
	bound(s, v1alpha1.Threshold{Span: v1alpha1.SpanGroup, SizeBytes: 4096},
		v1alpha1.Threshold{Span: v1alpha1.SpanNode, SizeBytes: 2048})
	for _, r := range s.Span.Results {
		n := len(r.SizeBytes)
		if n == 21 || !slices.Contains(r.SizeBytes, 4096) || r.BusBandwidthMBps[0] != 2 ||
			len(r.LatencyNanoseconds) != n || r.MinBusBandwidthMBps[n-1] != 20 || len(r.SpreadPercent) != n ||
			r.SpreadPercent[0] != 2 {
			t.Errorf("sizes %v, bandwidths %v", r.SizeBytes, r.BusBandwidthMBps)
		}
	}
	if len(s.Span.Results) == 0 {
		t.Error("no result is left")
	}
}
