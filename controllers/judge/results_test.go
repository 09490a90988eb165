package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestDataErrorsTakeTheWorstNode(t *testing.T) {
	of := func(node string, size, maximum, nan int64) Outcome {
		e := v1alpha1.DataErrors{Variant: v1alpha1.VariantLowPrecision,
			Datatype: v1alpha1.BFloat16, Data: v1alpha1.DataActivations,
			Collectives: []v1alpha1.Collective{v1alpha1.AllReduce}, SizeBytes: []int64{size},
			MaxErrorPPM: []int64{maximum}, MeanErrorPPM: []int64{maximum / 2}, CheckedElements: []int64{100}}
		if nan > 0 {
			e.NaNElements = []int64{nan}
		}
		return Outcome{Node: node, Report: &v1alpha1.NodeRunStatus{DataErrors: []v1alpha1.DataErrors{e}}}
	}
	got := AggregateDataErrors([]Outcome{of("a", 16, 10, 0), of("b", 16, 30, 4), of("c", 64, 20, 1), {Node: "silent"}})
	want := []v1alpha1.DataErrors{{Variant: v1alpha1.VariantLowPrecision, Datatype: v1alpha1.BFloat16,
		Data: v1alpha1.DataActivations, Collectives: []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllReduce},
		SizeBytes: []int64{16, 64}, MaxErrorPPM: []int64{30, 20}, MeanErrorPPM: []int64{15, 10},
		CheckedElements: []int64{200, 100}, NaNElements: []int64{4, 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHeadline(t *testing.T) {
	of := func(p v1alpha1.Placement, c v1alpha1.Collective, mbps int64) v1alpha1.GroupResultSeries {
		return v1alpha1.GroupResultSeries{Variant: v1alpha1.VariantBaseline, Collective: c, Datatype: v1alpha1.BFloat16,
			Placement: p, SizeBytes: []int64{1024}, BusBandwidthMBps: []int64{mbps}}
	}
	in := of(v1alpha1.InPlace, v1alpha1.AllReduce, 2)
	for name, tc := range map[string]struct {
		results []v1alpha1.GroupResultSeries
		want    int64
	}{
		"out of place first": {[]v1alpha1.GroupResultSeries{in, of("", v1alpha1.AllReduce, 1)}, 1},
		"only in place":      {[]v1alpha1.GroupResultSeries{in}, 2},
		"no AllReduce":       {[]v1alpha1.GroupResultSeries{of("", v1alpha1.Broadcast, 3)}, 0},
	} {
		h := Headline(tc.results)
		if (h == nil) != (tc.want == 0) || h != nil && h.BusBandwidthMBps != tc.want {
			t.Errorf("%s: %+v, expected %d MB/s", name, h, tc.want)
		}
	}
}
