package explain

import (
	"testing"

	"k8s.io/utils/ptr"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestSetting(t *testing.T) {
	const dda, fp8 = "dda.AllReduce", "lowPrecision.AllGather"
	evidence := func(change ...func(*api.SettingEvidence)) *api.SettingEvidence {
		e := &api.SettingEvidence{ComparedSizes: 3, Datatype: api.BFloat16, SizeBytes: 1024,
			BaselineNanoseconds: 20_000, LatencyNanoseconds: 8_000}
		for _, c := range change {
			c(e)
		}
		return e
	}
	rounded := func(e *api.SettingEvidence) { e.MaxErrorPPM = ptr.To(int64(32_300)) }
	with := func(state api.VerifiedState, e *api.SettingEvidence, warnings ...string) api.SettingStatus {
		return api.SettingStatus{Name: fp8, Effective: api.EffectiveInEffect, Verified: state, Evidence: e,
			Warnings: warnings}
	}
	const confirmed, notConfirmed, unknown = api.VerifiedConfirmed, api.VerifiedNotConfirmed, api.VerifiedUnknown
	gather := []api.Collective{api.AllGather, api.AllGather}
	errors := []api.DataErrors{
		{Variant: api.VariantBaseline, Data: api.DataGradients, Collectives: gather[:1], SizeBytes: []int64{64 << 20},
			MeanErrorPPM: []int64{1417}, CheckedElements: []int64{80}},
		{Variant: api.VariantLowPrecision, Data: api.DataGradients, Collectives: gather,
			SizeBytes: []int64{16 << 20, 64 << 20}, MeanErrorPPM: []int64{62_600, 62_500},
			CheckedElements: []int64{40, 80}},
		{Variant: api.VariantLowPrecision, Data: api.DataActivations, Collectives: gather,
			SizeBytes: []int64{16 << 20, 64 << 20}, MeanErrorPPM: []int64{1, 1}, CheckedElements: []int64{40, 80},
			NaNElements: []int64{0, 9}},
	}
	for name, tc := range map[string]struct {
		setting api.SettingStatus
		errors  []api.DataErrors
		want    string
	}{
		"a variable": {api.SettingStatus{Name: "env.X", Effective: api.EffectiveUnknown, Cause: "not read"},
			nil, "not read"},
		"off": {api.SettingStatus{Name: dda, Effective: api.EffectiveNotInEffect, Cause: "not built"},
			nil, "not built"},
		"not measured": {api.SettingStatus{Name: dda, Effective: api.EffectiveInEffect}, nil,
			"no size for which it is in effect was measured in both Baseline and DDA"},
		"no room": {api.SettingStatus{Name: dda, Effective: api.EffectiveInEffect, Verified: confirmed}, nil,
			"the report had no room for how DDA compares with Baseline"},
		"faster, for some sizes": {api.SettingStatus{Name: dda, Effective: api.EffectivePartial,
			Verified: confirmed, Evidence: evidence(), Cause: "too large"}, nil,
			"AllReduce 1024 B: 20.0 us -> 8.0 us, 2.50x; not for all sizes and datatypes: too large"},
		"no faster": {api.SettingStatus{Name: dda, Effective: api.EffectiveInEffect, Verified: notConfirmed,
			Evidence: evidence(func(e *api.SettingEvidence) {
				e.Datatype, e.Placement, e.LatencyNanoseconds = api.Float32, api.InPlace, 25_000
			})}, nil, "AllReduce no faster than Baseline by 5 % at any of 3 sizes; best Float32 1024 B in place: " +
			"20.0 us -> 25.0 us, 0.80x"},
		"FP8": {with(confirmed, evidence(rounded)), nil,
			"AllGather 1024 B: 20.0 us -> 8.0 us, 2.50x, relative error 3.23 %"},
		"FP8 not rounding": {with(notConfirmed, evidence(rounded)), nil,
			"AllGather shows no FP8 rounding at any of 3 sizes; 1024 B: 20.0 us -> 8.0 us, 2.50x"},
		"FP8 not checked": {with(unknown, evidence()), nil,
			"AllGather was measured, but no element was checked for rounding"},
		"data not checked": {with(confirmed, evidence(rounded, func(e *api.SettingEvidence) {
			e.UncheckedData = []string{"Exact", "Gradients"}
		})), nil, "AllGather 1024 B: 20.0 us -> 8.0 us, 2.50x, relative error 3.23 %; not checked at every size with " +
			"Exact, Gradients data"},
		"what a job must know first": {with(confirmed, evidence(rounded, func(e *api.SettingEvidence) {
			e.WrongElements, e.TailElements, e.TailMultipleElements = 7, 12, 1024
		}), api.WarningTailHazard, api.WarningWrongData), nil,
			"7 wrong elements; counts that are no multiple of 1024 elements give 12 wrong elements (library hazard): " +
				"pad your buffers; AllGather 1024 B: 20.0 us -> 8.0 us, 2.50x, relative error 3.23 %"},
		"losses": {with(confirmed, evidence(rounded), api.WarningOverflow, api.WarningUnderflow), errors, "AllGather " +
			"1024 B: 20.0 us -> 8.0 us, 2.50x, relative error 3.23 %; activations: of 120 elements 9 became NaN: " +
			"FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range; gradients: mean " +
			"error 6.26 %, 0.14 % without FP8, usable up to 6.25 %: values under 2^-10 become zero"},
		"losses whose numbers had no room": {with(confirmed, evidence(rounded), api.WarningOverflow,
			api.WarningUnderflow), nil, "AllGather 1024 B: 20.0 us -> 8.0 us, 2.50x, relative error 3.23 %; " +
			"values were lost: FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range; " +
			"mean error over 6.25 %: values under 2^-10 become zero"},
	} {
		if got := Setting(&tc.setting, tc.errors); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}
