package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TestThresholds: what is absent has the API's defaults, every field arrives, and each span gets its own.
func TestThresholds(t *testing.T) {
	all := []api.Threshold{
		{Collective: api.AllReduce, SizeBytes: 1, MinBusBandwidthMBps: ptr.To(int64(5))},
		{Span: api.SpanGroup, Variant: api.VariantDDA, Collective: api.AllGather, Datatype: api.Float32,
			SizeBytes: 2, Placement: api.InPlace, Statistic: api.StatisticP5, Model: "MI300X", Partition: "SPX/NPS1",
			Ranks: ptr.To(int32(16)), Nodes: ptr.To(int32(2)), Transport: "RDMA", Flavor: "rccl",
			MinPercentOfReference: ptr.To(int32(90))},
	}
	want := []reference.Threshold{{Key: reference.Key{Variant: rcclx.Baseline, Collective: rcclx.AllReduce,
		Datatype: rcclx.BFloat16, Placement: rcclx.OutOfPlace, SizeBytes: 1, Statistic: reference.Median}, MinMBps: 5}}
	if diff := cmp.Diff(want, Thresholds(all, api.SpanNode)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want = []reference.Threshold{{Key: reference.Key{Variant: rcclx.DDA, Collective: rcclx.AllGather,
		Datatype: rcclx.Float32, Placement: rcclx.InPlace, SizeBytes: 2, Statistic: reference.P5},
		Place: reference.Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 16, Nodes: 2, Transport: "RDMA",
			Flavor: rcclx.FlavorRCCL}, MinPercent: 90}}
	if diff := cmp.Diff(want, Thresholds(all, api.SpanGroup)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestList: the worst first, no more than the API takes, and no zero where nothing was measured.
func TestList(t *testing.T) {
	all := []reference.Check{
		{Source: "met", State: reference.Met, Mode: reference.Enforce, MeasuredMBps: 9, ExpectedMBps: 8, Percent: 112},
		{Source: "open", State: reference.NotMeasured, Mode: reference.Enforce, Causes: []string{"why"}},
		{Source: strings.Repeat("s", 99), Measurement: strings.Repeat("ü", 99), State: reference.NotMet,
			Mode: reference.Report, MeasuredMBps: 1, ExpectedMBps: 2, Percent: 50},
		{Source: "bad", Measurement: "m", State: reference.NotMet, Mode: reference.Enforce, MeasuredMBps: 7,
			ExpectedMBps: 8, Percent: 87, Causes: []string{"a", "b", "c"}},
		{Source: "worse", Measurement: "m", State: reference.NotMet, Mode: reference.Enforce, MeasuredMBps: 6,
			ExpectedMBps: 8, Percent: 75, Causes: []string{"d"}},
	}
	got := List(all, "dp", "node-a")
	var order []string
	for _, c := range got {
		order = append(order, c.Source)
		if len(c.Source) > 64 || len(c.Measurement) > 160 || !strings.HasPrefix(c.Measurement, "dp: ") ||
			c.Node != "node-a" || (c.MeasuredMBps == nil) != (c.State == api.CheckNotMeasured) {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(order, []string{"worse", "bad", "open", order[3], "met"}) {
		t.Errorf("%q", order)
	}
	notMet, open := Of(got)
	if len(notMet) != 2 || len(open) != 1 {
		t.Errorf("%+v %+v", notMet, open)
	}
	if n := len(List(slices.Repeat(all, 9), "", "")); n != Max {
		t.Errorf("%d checks", n)
	}
}
