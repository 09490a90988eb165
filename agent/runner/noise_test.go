package runner

import (
	"slices"
	"testing"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// TestNoiseIsReported: rounded up, so that no noise reads as none, and not at all where a size lacks it.
func TestNoiseIsReported(t *testing.T) {
	sizes := []int64{1024, 4096, 16384}
	of := func(ppm ...int64) []int32 {
		s := Series{Key: SeriesKey{rcclx.Baseline, rcclx.AllReduce, rcclx.BFloat16, rcclx.OutOfPlace}}
		for i, noise := range ppm {
			s.Cells = append(s.Cells, Cell{SizeBytes: sizes[i], LatencyNanoseconds: 1000, NoisePPM: noise})
		}
		return Table{Ranks: 8, Series: []Series{s}}.Results(sizes)[0].NoisePercent
	}
	for _, tc := range []struct{ got, want []int32 }{
		{of(1, 10_000, 10_001), []int32{1, 1, 2}},
		{of(1, 0, 10_001), nil},
		{of(5_000_000_000), []int32{1000}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("got %v, want %v", tc.got, tc.want)
		}
	}
}

// TestNoiseGivesWayToSizes: it stays in step with the sizes, and goes before a size at which the setting acts.
func TestNoiseGivesWayToSizes(t *testing.T) {
	sizes := rcclx.Sizes(1024, 64<<20, 4)
	s := api.NodeRunStatus{ID: "r", Verdict: api.VerdictPass,
		Settings: []api.SettingStatus{{Name: "dda.AllReduce", Requested: "Preferred", Effective: api.EffectivePartial, MaxBytes: &sizes[2]}}}
	for _, v := range []api.Variant{api.VariantBaseline, api.VariantDDA} {
		r := api.ResultSeries{Variant: v, Collective: api.AllReduce, Datatype: api.BFloat16}
		for i, size := range sizes {
			r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, size), append(r.LatencyNanoseconds, size), append(r.BusBandwidthMBps, size)
			r.NoisePercent = append(r.NoisePercent, int32(i+1))
		}
		s.Results = append(s.Results, r)
	}
	whole := encodedBytes(s)
	fewer := Fit(s, whole-1, nil).Results[1]
	if len(fewer.SizeBytes) == len(sizes) || len(fewer.NoisePercent) != len(fewer.SizeBytes) {
		t.Fatalf("%+v", fewer)
	}
	for k, size := range fewer.SizeBytes {
		if fewer.NoisePercent[k] != int32(slices.Index(sizes, size)+1) {
			t.Errorf("noise went out of step with the sizes: %+v", fewer)
		}
	}
	without := Fit(s, whole-110, nil)
	if without.Results[0].NoisePercent != nil || len(without.Results[0].SizeBytes) != len(sizes) {
		t.Errorf("a size went before the noise: %+v", without.Results)
	}
}
