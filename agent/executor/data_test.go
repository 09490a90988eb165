package executor

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/rcclx"
)

func setting(t *testing.T, s api.NodeRunStatus, name string) api.SettingStatus {
	t.Helper()
	i := slices.IndexFunc(s.Settings, func(x api.SettingStatus) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("no setting %s in %+v", name, s.Settings)
	}
	return s.Settings[i]
}

// TestConfirmedSettingSaysWhatStopsTheOtherSizes: the gate's words stay in the message beside what was measured, and
// name FP8 where FP8 takes the call, which no limit of DDA changes. They stand behind the numbers, which a short report
// keeps.
func TestConfirmedSettingSaysWhatStopsTheOtherSizes(t *testing.T) {
	res, _, err := runModel(t, defaultPlan(), &modelTeams{relErr: 40000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ reason, words string }{
		"dda.AllReduce":          {api.SettingReasonTakenByFP8, "FP8 takes the call before DDA"},
		"lowPrecision.AllGather": {api.SettingReasonBelowThreshold, "least size of 16777216 bytes"},
	} {
		s := setting(t, res.Full, name)
		message := explain.Setting(&s, res.Full.DataErrors)
		if s.Effective != api.EffectivePartial || s.Verified != api.VerifiedConfirmed || s.Reason != want.reason ||
			!strings.Contains(message, want.words) || !strings.Contains(clip.Head(message, 80), " -> ") {
			t.Errorf("%s: %s; %+v, expected reason %s, %q and what was measured",
				name, message, s, want.reason, want.words)
		}
	}
}

// TestTailHazard: wrong elements at counts that FP8 does not divide are a warning on the setting. They fail no run,
// start no search and stay out of the results; the same with Baseline is wrong data.
func TestTailHazard(t *testing.T) {
	teams := &modelTeams{relErr: 40000, tailWrong: 5, activationNaNs: 12}
	res, _, err := runModel(t, defaultPlan(), teams, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := res.Full
	if s.Verdict != api.VerdictPass || len(teams.teams) != 4 {
		t.Errorf("%s %s after %d teams: %s", s.Verdict, s.Reason, len(teams.teams), s.Message)
	}
	reduce, gather := setting(t, s, "lowPrecision.AllReduce"), setting(t, s, "lowPrecision.AllGather")
	message := explain.Setting(&gather, s.DataErrors)
	// Two counts on eight ranks.
	if !slices.Equal(reduce.Warnings, []string{api.WarningTailHazard, api.WarningOverflow}) ||
		reduce.Verified != api.VerifiedConfirmed || reduce.Evidence.TailElements != 80 ||
		reduce.Evidence.TailMultipleElements != 1024 {
		t.Errorf("%+v", reduce)
	}
	// 12 NaNs at each of two sizes on eight ranks.
	if !slices.Equal(gather.Warnings, []string{api.WarningOverflow}) ||
		gather.Verified != api.VerifiedConfirmed || gather.Usable != api.ResultsNotUsable ||
		!strings.Contains(message, "activations: of 160 elements 192 became NaN") ||
		strings.Contains(message, "overflowed") {
		t.Errorf("%s; %+v", message, gather)
	}
	for _, r := range s.Results {
		if !slices.Equal(r.SizeBytes, defaultPlan().SizesBytes) || r.WrongElements != 0 {
			t.Errorf("%s %s: sizes %v, %d wrong elements", r.Variant, r.Collective, r.SizeBytes, r.WrongElements)
		}
		if r.MaxRelativeErrorPPM != nil && *r.MaxRelativeErrorPPM != 40000 {
			t.Errorf("%s %s: relative error %d, the lost tail does not count",
				r.Variant, r.Collective, *r.MaxRelativeErrorPPM)
		}
	}

	// A library that is right at every count carries no warning.
	if res, _, err = runModel(t, defaultPlan(), &modelTeams{relErr: 40000}, nil); err != nil {
		t.Fatal(err)
	}
	if s := setting(t, res.Full, "lowPrecision.ReduceScatter"); len(s.Warnings) != 0 || s.Usable != api.ResultsUsable {
		t.Errorf("%+v", s)
	}

	// What was planned and not tried is not a pass.
	if res, _, err = runModel(t, defaultPlan(), &modelTeams{relErr: 40000, unchecked: rcclx.DataRounding},
		nil); err != nil {
		t.Fatal(err)
	}
	if res.Full.Verdict != api.VerdictInconclusive || !strings.Contains(res.Full.Message,
		"LowPrecision AllReduce BFloat16: 0 of 2 sizes were not measured, 2 not checked") {
		t.Errorf("%s: %s", res.Full.Verdict, res.Full.Message)
	}
}

// TestEachKindOfDataMustBeChecked: rounding alone says nothing of gradients.
func TestEachKindOfDataMustBeChecked(t *testing.T) {
	for _, d := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations} {
		res, _, err := runModel(t, defaultPlan(), &modelTeams{relErr: 40000, unchecked: d}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Full.Verdict != api.VerdictInconclusive || !strings.Contains(res.Full.Message, "not checked") {
			t.Errorf("without %s: %s: %s", d, res.Full.Verdict, res.Full.Message)
		}
		name := "lowPrecision.AllGather"
		if d == rcclx.DataExact {
			name = "dda.AllReduce"
		}
		if s := setting(t, res.Full, name); s.Usable != api.ResultsUnknown {
			t.Errorf("without %s: %+v", d, s)
		}
	}
}

// TestHazardOfUserSize: a size that a user asked for stays in the results although FP8 loses its tail.
func TestHazardOfUserSize(t *testing.T) {
	plan := defaultPlan()
	plan.Collectives, plan.SizesBytes = plan.Collectives[:1], []int64{1024, 16<<20 + 2, 64 << 20}
	res, _, err := runModel(t, plan, &modelTeams{relErr: 40000, tailWrong: 5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Full.Results {
		if !slices.Equal(r.SizeBytes, plan.SizesBytes) || r.WrongElements != 0 {
			t.Errorf("%s: %v, %d wrong", r.Variant, r.SizeBytes, r.WrongElements)
		}
	}
	if got := setting(t, res.Full, "lowPrecision.AllReduce"); !slices.Contains(got.Warnings, api.WarningTailHazard) ||
		res.Full.Verdict != api.VerdictPass {
		t.Errorf("%s, %+v", res.Full.Verdict, got)
	}
}

// TestNeverWritten: a buffer that the library left as it was is called that, and not NaN.
func TestNeverWritten(t *testing.T) {
	m := rank.Measurement{Collective: rcclx.AllGather, Datatype: rcclx.BFloat16, SizeBytes: 1 << 20,
		CountElements: 1 << 19, Latency: rcclx.LatencyStats{MedianNanoseconds: 1000},
		Checks: []rcclx.CheckResult{{Data: rcclx.DataExact, CheckedElements: 100, WrongElements: 100,
			FirstWrongElement: ptr.To(int64(0)), UnwrittenElements: 100}}}
	j := Judge(Evidence{Node: "n", Plan: defaultPlan(), Ranks: 1, Variants: measured(rcclx.Baseline, m)})
	if j.Reason != api.ReasonWrongData || !strings.Contains(j.Message, "gave 100 wrong elements over all ranks") ||
		!strings.Contains(j.Message, "100 of them were never written by the library") ||
		strings.Contains(j.Message, "NaN") {
		t.Errorf("%s: %s", j.Reason, j.Message)
	}
	// With FP8's activations, too, whose range explains a value that is lost and not one that is missing.
	m.Checks = []rcclx.CheckResult{{Data: rcclx.DataActivations, CheckedElements: 100, WrongElements: 100,
		UnwrittenElements: 100}}
	table := Tabulate(measured(rcclx.LowPrecision, m), 1, allRanks(1))
	if seen := seenData(table, rcclx.LowPrecision, rcclx.AllGather, nil); seen.WrongElements != 100 ||
		seen.LostElements != 0 || !slices.Contains(seen.Usability().Losses, rcclx.LossWrongData) {
		t.Errorf("%+v", seen)
	}
}

func measured(v rcclx.Variant, m rank.Measurement) []VariantOutcome {
	return []VariantOutcome{{v,
		supervise.Outcome{Ranks: []supervise.RankOutcome{{Measurements: []rank.Measurement{m}}}}}}
}

// TestWrongBeforeTheTail: what is wrong far from the tail that FP8 loses is wrong data like any other.
func TestWrongBeforeTheTail(t *testing.T) {
	plan := defaultPlan()
	plan.Collectives, plan.SizesBytes = plan.Collectives[:1], []int64{1024, 16<<20 + 2}
	res, _, err := runModel(t, plan, &modelTeams{relErr: 40000, tailWrong: 5, wrongBefore: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Two kinds of data that must be right on eight ranks: the model makes one of them wrong.
	want := "LowPrecision AllReduce BFloat16 16777218 B gave 40 wrong elements over all ranks, expected none; " +
		"do not run jobs on this node; they begin before what FP8 is known to lose at this count"
	if res.Full.Verdict != api.VerdictFail || res.Full.Reason != api.ReasonWrongData ||
		!strings.Contains(res.Full.Message, want) {
		t.Errorf("%s %s: %s", res.Full.Verdict, res.Full.Reason, res.Full.Message)
	}
	for _, r := range res.Full.Results {
		if want := map[api.Variant]int64{api.VariantLowPrecision: 40}[r.Variant]; r.WrongElements != want {
			t.Errorf("%s: %d wrong elements, expected %d", r.Variant, r.WrongElements, want)
		}
	}
}

// TestBandwidthOfTheSizeMoved: eight ranks share 1000 B as 62 elements of bfloat16 each, 992 B, so that is what
// results, thresholds and the summary count, as agent bench does.
func TestBandwidthOfTheSizeMoved(t *testing.T) {
	plan := defaultPlan()
	plan.Variants, plan.Collectives, plan.SizesBytes = plan.Variants[:1], []api.Collective{api.AllGather}, []int64{1000}
	// 992 B in 1 us over eight ranks: 868 MB/s on the bus; of 1000 B it would be 875.
	teams := func() *modelTeams {
		return &modelTeams{latency: func(rcclx.Variant, rcclx.Collective, int64) int64 { return 1000 }}
	}
	for least, want := range map[int64]api.Verdict{868: api.VerdictPass, 869: api.VerdictFail} {
		plan.Thresholds = []api.Threshold{{Collective: api.AllGather, SizeBytes: 1000,
			MinBusBandwidthMBps: ptr.To(least)}}
		res, _, err := runModel(t, plan, teams(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r := res.Full.Results
		if len(r) != 1 || !slices.Equal(r[0].SizeBytes, []int64{1000}) ||
			!slices.Equal(r[0].BusBandwidthMBps, []int64{868}) || res.Full.Verdict != want || want == api.VerdictFail &&
			!strings.Contains(res.Full.Message, "measured 0.868 GB/s, expected at least 0.869 GB/s") {
			t.Errorf("at least %d: %s: %s; %+v", least, res.Full.Verdict, res.Full.Message, r)
		}
	}
	// A rank that does not say how much it moved gives no bandwidth, which is neither zero nor a pass.
	m := rank.Measurement{Collective: rcclx.AllGather, Datatype: rcclx.BFloat16, SizeBytes: 1000,
		Latency: rcclx.LatencyStats{MedianNanoseconds: 1000}}
	table := Tabulate(measured(rcclx.Baseline, m), 1, allRanks(1))
	table.Ranks = 8
	below, unmeasured := checks.Of(judgeChecks(Evidence{Plan: plan, Ranks: 8}, table, LinkFindings{}, nil))
	if len(below) != 0 || len(unmeasured) != 1 || !strings.Contains(unmeasured[0].Causes[0], "no bus bandwidth") ||
		unmeasured[0].MeasuredMBps != nil {
		t.Errorf("below %+v, unmeasured %+v", below, unmeasured)
	}
}

// TestDataErrors: FP8's at its smallest and largest size, Baseline's beside it.
func TestDataErrors(t *testing.T) {
	plan := defaultPlan()
	plan.Collectives, plan.SizesBytes = plan.Collectives[:2], []int64{4 << 20, 16 << 20, 32 << 20, 64 << 20}
	res, _, err := runModel(t, plan, &modelTeams{relErr: 40000, activationNaNs: 12}, nil)
	if err != nil {
		t.Fatal(err)
	}
	both, ends := []api.Collective{api.AllReduce, api.AllReduce, api.AllGather, api.AllGather},
		[]int64{16 << 20, 64 << 20, 16 << 20, 64 << 20}
	four := func(n int64) []int64 { return []int64{n, n, n, n} }
	want := []api.DataErrors{
		{Variant: api.VariantBaseline, Datatype: api.BFloat16, Data: api.DataGradients, Collectives: plan.Collectives,
			SizeBytes: []int64{64 << 20, 64 << 20}, MaxErrorPPM: []int64{3900, 3900}, MeanErrorPPM: []int64{1700, 1700},
			CheckedElements: []int64{80, 80}},
		{Variant: api.VariantLowPrecision, Datatype: api.BFloat16, Data: api.DataGradients, Collectives: both,
			SizeBytes: ends, MaxErrorPPM: four(61234), MeanErrorPPM: four(23456), CheckedElements: four(80)},
		{Variant: api.VariantLowPrecision, Datatype: api.BFloat16, Data: api.DataActivations, Collectives: both,
			SizeBytes: ends, MaxErrorPPM: four(62345), MeanErrorPPM: four(24567), CheckedElements: four(80),
			NaNElements: four(96)},
	}
	if diff := cmp.Diff(want, res.Full.DataErrors); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if res.Full.Verdict != api.VerdictPass {
		t.Errorf("%s: %s", res.Full.Verdict, res.Full.Message)
	}
	largest := largestSizes(slices.Clone(res.Full.DataErrors))
	if e := largest[2]; !slices.Equal(e.Collectives, plan.Collectives) ||
		!slices.Equal(e.SizeBytes, []int64{64 << 20, 64 << 20}) || len(e.NaNElements) != 2 || len(e.MaxErrorPPM) != 2 {
		t.Errorf("largest sizes: %+v", e)
	}
}

func TestNotMet(t *testing.T) {
	got := notMet([]preflight.Finding{
		{Name: "IOMMU", State: preflight.Warning, Rank: -1, Message: "no iommu=pt"},
		{Name: "SharedMemory", State: preflight.Met, Rank: -1},
		{Name: "LockedMemory", State: preflight.Unknown, Rank: -1, Message: strings.Repeat("m", 400)},
		{Name: "GPUBusy", State: preflight.Failed, Rank: 3, Message: "process 7"},
	})
	want := []api.PreconditionStatus{
		{Name: "GPUBusy", State: "Failed", Rank: ptr.To(int32(3)),
			Message: "process 7: wait for the other work to end or end it, then run again"},
		{Name: "LockedMemory", State: "Unknown", Message: strings.Repeat("m", 253) + "..."},
		{Name: "IOMMU", State: "Warning",
			Message: "no iommu=pt: add iommu=pt to the kernel's command line and reboot the node"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var many []preflight.Finding
	for i := range 40 {
		many = append(many, preflight.Finding{Name: "GPUBusy", State: preflight.Warning, Rank: i})
	}
	if got := notMet(many); len(got) != maxPreconditions {
		t.Errorf("%d preconditions, the API takes %d", len(got), maxPreconditions)
	}
}

// TestVerdictWords: what concerns all ranks blames none, and RAS' verdict stands in the message.
func TestVerdictWords(t *testing.T) {
	judge := func(f supervise.Failure) Judgement {
		return Judge(Evidence{Node: "node-a", Plan: defaultPlan(), Ranks: 8,
			Prepared: Prepared{PCI: make([]string, 8)}, Failure: &f})
	}
	for _, code := range []string{rank.CodeLibraryMissing, rank.CodeLibraryTooOld, rank.CodeSymbolMissing} {
		j := judge(supervise.Failure{Kind: supervise.FailRankError, Code: code, Rank: 0,
			Message: "rank 0 failed at load"})
		if j.Verdict != api.VerdictError || j.Reason != code || len(j.Culprits) != 0 ||
			!strings.Contains(j.Message, "all 8 ranks load it by the same path") {
			t.Errorf("%s: %+v", code, j)
		}
	}
	j := judge(supervise.Failure{Kind: supervise.FailHung, Code: rank.CodeRankHung, Rank: 3, Message: "late",
		RAS: "RAS: rank 3 does not answer"})
	if j.Reason != api.ReasonRankHung || !strings.HasSuffix(j.Message, "; RAS: rank 3 does not answer") {
		t.Errorf("%+v", j)
	}
	f := supervise.Failure{Kind: supervise.FailHung, Rank: -1, RAS: strings.Repeat("r", 600)}
	if s := Finished(api.NodeRunStatus{}, Evidence{Node: "n", Ranks: 8, Failure: &f,
		Prepared: Prepared{Preconditions: []preflight.Finding{{Name: "IOMMU", State: preflight.Warning, Rank: -1}}}},
		j, metaNow()); len(s.RASVerdict) != 512 || len(s.Preconditions) != 1 {
		t.Errorf("%d bytes of RAS' verdict, preconditions %+v", len(s.RASVerdict), s.Preconditions)
	}
}

func metaNow() metav1.Time { return metav1.Unix(1_800_000_000, 0) }
