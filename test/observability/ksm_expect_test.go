package observability

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// expected computes from the object itself what a metric must show: values by their labels.
func expected(t *testing.T, r *ksmResource, m *ksmMetric, object *unstructured.Unstructured) map[string]float64 {
	t.Helper()
	base := map[string]string{
		"customresource_group": r.GroupVersionKind.Group, "customresource_version": r.GroupVersionKind.Version,
		"customresource_kind": r.GroupVersionKind.Kind,
	}
	addLabels(base, object.Object, r.LabelsFromPath)
	kinds := map[string]ksmValues{"Gauge": m.Each.Gauge, "Info": m.Each.Info, "StateSet": m.Each.StateSet.ksmValues}
	from, known := kinds[m.Each.Type]
	if !known {
		t.Fatalf("%s: type %q is not known", m.Name, m.Each.Type)
	}
	out := map[string]float64{}
	for _, place := range at(object.Object, from.Path) {
		labels := maps.Clone(base)
		addLabels(labels, place, from.LabelsFromPath)
		value := place
		if len(from.ValueFrom) > 0 {
			value = at(place, from.ValueFrom)[0]
		}
		switch m.Each.Type {
		case "Info":
			out[key(labels)] = 1
		case "StateSet":
			for _, state := range m.Each.StateSet.List {
				labels[m.Each.StateSet.LabelName] = state
				out[key(labels)] = truth(state == fmt.Sprint(value))
			}
		default:
			out[key(labels)] = asNumber(t, value)
		}
	}
	return out
}

// at is what stands at the path: the elements, where it is a list; nothing, where it is absent.
func at(v any, path []string) []any {
	for _, name := range path {
		fields, ok := v.(map[string]any)
		if !ok || fields[name] == nil {
			return nil
		}
		v = fields[name]
	}
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

func addLabels(labels map[string]string, v any, paths map[string][]string) {
	for name, path := range paths {
		for _, found := range at(v, path) {
			labels[name] = fmt.Sprint(found)
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func asNumber(t *testing.T, v any) float64 {
	t.Helper()
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case bool:
		return truth(v)
	case string:
		when, err := time.Parse(time.RFC3339, v)
		if err != nil {
			t.Fatal(err)
		}
		return float64(when.Unix())
	}
	t.Fatalf("%T is no number", v)
	return 0
}

func key(labels map[string]string) string {
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ",")
}

func compare(t *testing.T, name string, family *dto.MetricFamily, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		got[key(labels)] = m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s:\ngot  %v\nwant %v", name, got, want)
	}
}

func fullGroup() *v1alpha1.CommGroup {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later := metav1.NewTime(now.Add(time.Hour))
	return &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "ml"},
		Spec:       v1alpha1.CommGroupSpec{Members: v1alpha1.MembersSpec{NodeNames: []string{"gpu-1"}}},
		Status: v1alpha1.CommGroupStatus{
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSlowLink,
					LastTransitionTime: now},
				{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
					LastTransitionTime: now},
				{Type: v1alpha1.ConditionCompatible, Status: metav1.ConditionUnknown,
					Reason: v1alpha1.ReasonFactsUnknown, LastTransitionTime: later},
			},
			ObservedGeneration: 3, Origin: v1alpha1.OriginSimulated, Effective: "DDA,FP8",
			Members: v1alpha1.MemberCounts{Summary: "3/16", Selected: 16, Reporting: 15, Passed: 3, Failed: 1,
				Inconclusive: 2, Errored: 4, Skipped: 5, Running: 6, Pending: 7, Stale: 8},
			Run: &v1alpha1.GroupRunStatus{Refused: &v1alpha1.RunRefusal{Since: now, Message: "exceeded quota",
				Nodes: []string{"n1"}, More: true}, ID: "3-7", Number: 7, Generation: 3, Since: 6, Trigger: "Requested",
				Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictFail, StartTime: now, FinishTime: &later},
			Headline: &v1alpha1.Headline{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce,
				Datatype: v1alpha1.BFloat16, SizeBytes: 67108864, BusBandwidthMBps: 306972,
				GroupBusBandwidthMBps: ptr.To(int64(48213)), GroupNodes: 4},
			Baseline: &v1alpha1.BaselineStatus{Key: "k", Since: now, Runs: 4, LastRunID: "3-6"},
			Trend:    v1alpha1.TrendFalling,
			Budget:   &v1alpha1.BudgetStatus{Day: "2026-01-02", UsedGPUMinutes: 12, LimitGPUMinutes: 100},
			Gating:   &v1alpha1.GatingStatus{Gated: 1, Breaker: "Closed"},
			Published: &v1alpha1.PublishedStatus{ConfigMapName: "pool-rccl-settings", Hash: "h",
				RunID: "3-6", Time: now},
			NextRunTime: &later, Schedule: &v1alpha1.ScheduleStatus{Line: "@daily", Since: now},
		},
	}
}

func fullTask() *v1alpha1.CommTask {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return &v1alpha1.CommTask{
		ObjectMeta: metav1.ObjectMeta{Name: "pool.gpu-1", Namespace: "ml"},
		Spec: v1alpha1.CommTaskSpec{NodeName: "gpu-1", Group: v1alpha1.GroupReference{Name: "pool", UID: "u"},
			Ranks: v1alpha1.RankRange{First: 8, Count: 8, WorldSize: 128}, Run: &v1alpha1.RunAssignment{ID: "3-7",
				Generation: 3, Number: 7, Platform: &v1alpha1.PlatformFacts{Model: "MI300X"}}},
		Status: v1alpha1.CommTaskStatus{
			Run: &v1alpha1.NodeRunStatus{ID: "3-7", Generation: 3, Phase: v1alpha1.NodeRunFinished, StartTime: now,
				FinishTime: &now, Verdict: v1alpha1.VerdictPass},
		},
	}
}

func fullNode() *v1alpha1.CommNode {
	return &v1alpha1.CommNode{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"},
		Spec:       v1alpha1.CommNodeSpec{NodeUID: "u"},
		Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{
			ObservedTime: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), Origin: v1alpha1.OriginSimulated,
			GPUModel: "MI300X", GPUCount: 8,
			Driver: v1alpha1.DriverFacts{Kind: "DKMS", Version: "6.14.14"},
			ROCm:   v1alpha1.ROCmFacts{State: "Found", Version: "7.0.2"},
			XGMI:   v1alpha1.XGMIFacts{Mesh: "Full"}}},
	}
}
