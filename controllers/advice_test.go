package controllers

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// abWorld is a group of three with a finished run of all four collectives from 1 KiB to 64 MiB, in which each variant
// takes the given percent of Baseline's time.
func abWorld(change func(*v1alpha1.CommGroupSpec),
	percent func(v v1alpha1.Variant, c v1alpha1.Collective, size int64) int64) *world {
	group := testkit.Group()
	group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	group.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather,
		v1alpha1.ReduceScatter, v1alpha1.AllToAll}
	group.Spec.Benchmark.MaxSizeBytes = 64 * mib
	group.Spec.Publish.Choice = v1alpha1.PublishWhereWorthIt
	if change != nil {
		change(&group.Spec)
	}
	w := newWorld(group, testkit.Nodes(3))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	for _, ct := range w.commTasks {
		r := ct.Status.Run
		r.Environment = []v1alpha1.EnvVar{{Name: "HSA_NO_SCRATCH_RECLAIM", Value: "1"},
			{Name: "RCCL_DDA_NRANKS", Value: "8"}, {Name: "RCCL_ENABLE_DDA_ALL_REDUCE", Value: "1"},
			{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "1"}}
		r.Settings = nil
		for _, c := range group.Spec.Benchmark.Collectives {
			var fp8Warnings []string
			usable := v1alpha1.ResultsUsable
			dda := v1alpha1.SettingStatus{Name: "dda." + string(c), Requested: "Preferred",
				Effective: v1alpha1.EffectiveNotInEffect, Reason: v1alpha1.SettingReasonNotBuilt,
				Verified: v1alpha1.VerifiedUnknown}
			if c == v1alpha1.AllToAll {
				fp8Warnings, usable = []string{v1alpha1.WarningOverflow}, v1alpha1.ResultsNotUsable
			}
			if c == v1alpha1.AllReduce {
				dda.Effective, dda.Verified = v1alpha1.EffectivePartial, v1alpha1.VerifiedConfirmed
			}
			fp8 := v1alpha1.SettingStatus{Name: "lowPrecision." + string(c), Requested: "Preferred",
				Effective: v1alpha1.EffectivePartial, Verified: v1alpha1.VerifiedConfirmed, Usable: usable,
				Warnings: fp8Warnings}
			r.Settings = append(r.Settings, dda, fp8)
		}
		for i := range r.Results {
			s := &r.Results[i]
			s.NoisePercent = nil
			for k, size := range s.SizeBytes {
				s.LatencyNanoseconds[k] = 100_000
				if s.Variant != v1alpha1.VariantBaseline {
					s.LatencyNanoseconds[k] = 1000 * percent(s.Variant, s.Collective, size)
				}
				s.NoisePercent = append(s.NoisePercent, 1)
			}
			if s.Variant == v1alpha1.VariantLowPrecision {
				s.MaxRelativeErrorPPM = ptr.To[int64](62_500)
			}
		}
	}
	w.configMap, w.group.Status.Published = nil, nil
	w.settle()
	return w
}

// asMeasured is what RCCLX shows by and large: DDA wins to 1 MiB, FP8 wins at 64 MiB and for AllReduce at 16 MiB,
// AllGather pays below.
func asMeasured(v v1alpha1.Variant, c v1alpha1.Collective, size int64) int64 {
	switch {
	case v == v1alpha1.VariantDDA && c == v1alpha1.AllReduce && size <= mib:
		return 60
	case v == v1alpha1.VariantDDA && c == v1alpha1.AllReduce && size <= 16*mib:
		return 110
	case v == v1alpha1.VariantLowPrecision && size == 64*mib:
		return 75
	case v == v1alpha1.VariantLowPrecision && size == 16*mib && (c == v1alpha1.AllReduce || c == v1alpha1.AllToAll):
		return 90
	case v == v1alpha1.VariantLowPrecision && size == 16*mib:
		return 112
	case v == v1alpha1.VariantLowPrecision && c == v1alpha1.AllGather:
		return 166
	}
	return 100
}

func (w *world) advice(name string) *v1alpha1.SettingAdvice {
	i := slices.IndexFunc(w.group.Status.Advice, func(a v1alpha1.SettingAdvice) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &w.group.Status.Advice[i]
}

func TestAdvice(t *testing.T) {
	w := abWorld(nil, asMeasured)
	for name, want := range map[string]v1alpha1.SettingAdvice{
		"dda.AllReduce/BFloat16": {State: v1alpha1.WorthMixed,
			Recommend: "dda.allReduceTreeMaxBytes=1048576", MemoryBytes: ptr.To(32 * mib),
			Bands: []v1alpha1.GainBand{{MinBytes: kib, MaxBytes: mib, Outcome: "Wins", MedianGainPercent: 40},
				{MinBytes: 4 * mib, MaxBytes: 16 * mib, Outcome: "Loses", MedianGainPercent: -10}}},
		"lowPrecision.AllReduce/BFloat16": {State: v1alpha1.WorthYes, Recommend: "on", MemoryBytes: ptr.To(2304 * mib),
			ErrorPPM: ptr.To[int64](62_500), Bands: []v1alpha1.GainBand{{MinBytes: 16 * mib, MaxBytes: 64 * mib,
				Outcome: "Wins", MedianGainPercent: 18}}},
		"lowPrecision.AllGather/BFloat16": {State: v1alpha1.WorthMixed, Recommend: "off",
			MemoryBytes: ptr.To(2304 * mib), ErrorPPM: ptr.To[int64](62_500),
			Bands: []v1alpha1.GainBand{{MinBytes: kib, MaxBytes: 16 * mib, Outcome: "Loses", MedianGainPercent: -66},
				{MinBytes: 64 * mib, MaxBytes: 64 * mib, Outcome: "Wins", MedianGainPercent: 25}}},
		"lowPrecision.ReduceScatter/BFloat16": {State: v1alpha1.WorthMixed, Recommend: "off",
			MemoryBytes: ptr.To(2304 * mib), ErrorPPM: ptr.To[int64](62_500),
			Bands: []v1alpha1.GainBand{{MinBytes: 16 * mib,
				MaxBytes: 16 * mib, Outcome: "Loses", MedianGainPercent: -12},
				{MinBytes: 64 * mib, MaxBytes: 64 * mib, Outcome: "Wins", MedianGainPercent: 25}}},
		// However fast: it lost values.
		"lowPrecision.AllToAll/BFloat16": {State: v1alpha1.WorthNo, Recommend: "off", MemoryBytes: ptr.To(2304 * mib),
			ErrorPPM: ptr.To[int64](62_500), Bands: []v1alpha1.GainBand{{MinBytes: 16 * mib, MaxBytes: 64 * mib,
				Outcome: "Wins", MedianGainPercent: 18}}},
	} {
		got := w.advice(name)
		if got == nil {
			t.Errorf("no advice on %s among %d", name, len(w.group.Status.Advice))
			continue
		}
		if got.State != want.State || got.Recommend != want.Recommend ||
			!slices.Equal(got.Bands, want.Bands) || ptr.Deref(got.MemoryBytes, -1) != *want.MemoryBytes ||
			ptr.Deref(got.ErrorPPM, -1) != ptr.Deref(want.ErrorPPM, -1) || got.Message == "" || len(got.Message) > 512 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(w.group.Status.Advice) != 5 || w.advice("dda.AllGather/BFloat16") != nil {
		t.Errorf("%d entries: open builds have no DDA but for AllReduce", len(w.group.Status.Advice))
	}

	// Errors with random data count, too, and a second run takes nothing away while it is going on.
	for _, ct := range w.commTasks {
		ct.Status.Run.DataErrors = []v1alpha1.DataErrors{{Variant: v1alpha1.VariantLowPrecision,
			Datatype: v1alpha1.BFloat16, Data: v1alpha1.DataGradients,
			Collectives: []v1alpha1.Collective{v1alpha1.AllReduce}, SizeBytes: []int64{16 * mib},
			MaxErrorPPM: []int64{82_900}, MeanErrorPPM: []int64{1}, CheckedElements: []int64{1}}}
	}
	w.settle()
	if got := w.advice("lowPrecision.AllReduce/BFloat16"); ptr.Deref(got.ErrorPPM, 0) != 82_900 ||
		!strings.Contains(got.Message, "8.29 %") {
		t.Errorf("%+v", got)
	}
	before := w.group.Status.Advice
	w.request("now")
	w.step()
	w.step()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Phase != v1alpha1.RunPhaseRunning ||
		len(w.group.Status.Advice) != len(before) {
		t.Errorf("run %+v with %d entries", run, len(w.group.Status.Advice))
	}
}

// TestAdviceNeedsNumbers: a size without numbers makes nothing worth it, unless the agent said Pass and left them out
// for space.
func TestAdviceNeedsNumbers(t *testing.T) {
	faster := func(_ v1alpha1.Variant, _ v1alpha1.Collective, _ int64) int64 { return 70 }
	w := abWorld(nil, faster)
	drop := func(verdict v1alpha1.Verdict) {
		for _, ct := range w.commTasks {
			ct.Status.Run.Verdict = verdict
			for i := range ct.Status.Run.Results {
				r := &ct.Status.Run.Results[i]
				if at := slices.Index(r.SizeBytes, 4*mib); r.Variant == v1alpha1.VariantDDA && at >= 0 {
					r.SizeBytes, r.LatencyNanoseconds = slices.Delete(r.SizeBytes, at, at+1),
						slices.Delete(r.LatencyNanoseconds, at, at+1)
					r.BusBandwidthMBps, r.NoisePercent = slices.Delete(r.BusBandwidthMBps, at, at+1),
						slices.Delete(r.NoisePercent, at, at+1)
				}
			}
		}
		w.settle()
	}
	const name = "dda.AllReduce/BFloat16"
	if a := w.advice(name); a.State != v1alpha1.WorthYes || a.Recommend != "dda.allReduceTreeMaxBytes=16777216" {
		t.Fatalf("%+v", a)
	}
	drop(v1alpha1.VerdictPass)
	if a := w.advice(name); a.State != v1alpha1.WorthYes || !strings.Contains(a.Message, "not in the reports") {
		t.Errorf("left out: %+v", a)
	}
	drop(v1alpha1.VerdictInconclusive)
	if a := w.advice(name); a.State != v1alpha1.WorthUnknown || a.Recommend != "" ||
		!strings.Contains(a.Message, "4 MiB") {
		t.Errorf("not measured: %+v", a)
	}
	w.commTask("n00001").Status.Run.Library.Flavor = "rccl-dda"
	w.settle()
	if a := w.advice(name); a.State != v1alpha1.WorthUnknown {
		t.Errorf("members with different libraries: %+v", a)
	}
}

func TestPublishWhereWorthIt(t *testing.T) {
	const dda, fp8 = "RCCL_DDA_NRANKS", "RCCL_LOW_PRECISION_ENABLE"
	base := map[string]string{"HSA_NO_SCRATCH_RECLAIM": "1"}
	with := func(more map[string]string) map[string]string {
		m := maps.Clone(base)
		maps.Copy(m, more)
		return m
	}
	ddaTo := func(tree string) map[string]string {
		return map[string]string{dda: "8", "RCCL_ENABLE_DDA_ALL_REDUCE": "1",
			"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES": tree}
	}
	fp8On := func(m map[string]string, on ...string) map[string]string {
		m[fp8] = "0"
		for _, c := range []string{"ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"} {
			m[fp8+"_"+c] = "0"
			if slices.Contains(on, c) {
				m[fp8+"_"+c] = "1"
			}
		}
		return m
	}
	slower := func(_ v1alpha1.Variant, _ v1alpha1.Collective, _ int64) int64 { return 120 }
	faster := func(_ v1alpha1.Variant, _ v1alpha1.Collective, _ int64) int64 { return 70 }
	accept := func(s *v1alpha1.CommGroupSpec) {
		s.Publish.AcceptedLosses = []v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
	}
	required := func(s *v1alpha1.CommGroupSpec) {
		s.DDA.Mode, s.LowPrecision.Mode = v1alpha1.FeatureRequired, v1alpha1.FeatureDisabled
	}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.CommGroupSpec)
		percent func(v1alpha1.Variant, v1alpha1.Collective, int64) int64
		want    map[string]string // nil: nothing is published
		reason  string
		words   []string // of rccl.conf, or of the condition where nothing is published
	}{
		"the winning band": {nil, asMeasured, with(fp8On(ddaTo("1048576"), "ALLREDUCE")),
			v1alpha1.ReasonResultsNotUsable, []string{
				"# FP8 gave NaN, infinite or clipped values with AllToAll (Overflow): it is off here for them\n",
				"# FP8 is on for AllReduce, for 2.25 GiB"}},
		"the winning band, loss accepted": {accept, asMeasured, with(fp8On(ddaTo("1048576"), "ALLREDUCE", "ALLTOALL")),
			v1alpha1.ReasonResultsNotUsable, []string{
				"# FP8 gave NaN, infinite or clipped values with AllToAll (Overflow): it is on here for them all the " +
					"same, since publish.acceptedLosses has Overflow\n",
				"# DDA is on: it ends at 1 MiB, since AllReduce BFloat16 is slower above, for 32 MiB of device " +
					"memory a rank and communicator.",
				"#   AllReduce BFloat16: 40 % less time from 1 KiB to 1 MiB, 10 % more time from 4 MiB to 16 MiB; " +
					"below 1 KiB nothing is proven.",
				"# FP8 is on for AllReduce, AllToAll, for 2.25 GiB of device memory a rank and communicator, " +
					"and 128 MiB more for each rank over 8; over several nodes it was not measured.",
				"#   AllToAll BFloat16: 18 % less time from 16 MiB to 64 MiB, for an error of up to 6.25 %; accepted " +
					"by the spec: values beyond FP8's range became NaN or infinite, or were clipped (Overflow); " +
					"above 64 MiB nothing is proven.",
				"#   AllReduce BFloat16: 18 % less time from 16 MiB to 64 MiB, for an error of up to 6.25 %; " +
					"above 64 MiB nothing is proven.",
				"# FP8 is off for AllGather: AllGather BFloat16 takes 66 % more time at 1 KiB, where it goes peer to " +
					"peer while FP8 is on.",
				"# FP8 is off for ReduceScatter: ReduceScatter BFloat16 takes 12 % more time at 16 MiB."}},
		"nothing is worth it: off by their variables": {nil, slower,
			with(fp8On(map[string]string{dda: "0"})), v1alpha1.ReasonResultsNotUsable,
			[]string{"# DDA is off: AllReduce BFloat16 is slower than Baseline already at the smallest measured size.",
				"# Nothing of what was asked for is both confirmed and worth it: these are the " +
					"variables of Baseline."}},
		"all of it": {func(s *v1alpha1.CommGroupSpec) {
			accept(s)
			s.DDA.AllReduceFlatMaxBytes = ptr.To(64 * kib)
		}, faster, with(map[string]string{dda: "8", "RCCL_ENABLE_DDA_ALL_REDUCE": "1",
			"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES": "16777216", "RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES": "65536", fp8: "1"}),
			v1alpha1.ReasonResultsNotUsable, []string{"the largest size that was measured"}},
		"as requested": {func(s *v1alpha1.CommGroupSpec) { s.Publish.Choice = v1alpha1.PublishAsRequested }, slower,
			with(fp8On(map[string]string{dda: "8", "RCCL_ENABLE_DDA_ALL_REDUCE": "1"}, "ALLREDUCE", "ALLGATHER",
				"REDUCESCATTER")), v1alpha1.ReasonResultsNotUsable, nil},
		"as requested, loss accepted": {func(s *v1alpha1.CommGroupSpec) {
			accept(s)
			s.Publish.Choice = v1alpha1.PublishAsRequested
		}, slower, with(map[string]string{dda: "8", "RCCL_ENABLE_DDA_ALL_REDUCE": "1", fp8: "1"}),
			v1alpha1.ReasonResultsNotUsable, nil},
		"FP8 required and not usable": {func(s *v1alpha1.CommGroupSpec) {
			s.LowPrecision.Mode = v1alpha1.FeatureRequired
		}, faster, nil, v1alpha1.ReasonResultsNotUsable,
			[]string{"lowPrecision.mode is Required", "publish.acceptedLosses to [Overflow]"}},
		"required and slower": {required, slower, nil, v1alpha1.ReasonNotWorthIt,
			[]string{"dda.mode is Required", "publish.choice"}},
		"required and faster": {required, faster, with(map[string]string{dda: "8", "RCCL_ENABLE_DDA_ALL_REDUCE": "1",
			"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES": "16777216", fp8: "0"}), v1alpha1.ReasonPublished, nil},
		"FP8 required and slower": {func(s *v1alpha1.CommGroupSpec) {
			accept(s)
			s.LowPrecision.Mode = v1alpha1.FeatureRequired
		}, asMeasured, nil, v1alpha1.ReasonNotWorthIt, []string{"lowPrecision.mode is Required"}},
		"FP8 required where it is worth": {func(s *v1alpha1.CommGroupSpec) {
			s.LowPrecision.Mode, s.LowPrecision.Collectives = v1alpha1.FeatureRequired, []string{"AllReduce"}
		}, asMeasured, with(fp8On(ddaTo("1048576"), "ALLREDUCE")), v1alpha1.ReasonPublished, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := abWorld(tc.change, tc.percent)
			status := metav1.ConditionTrue
			if tc.want == nil {
				status = metav1.ConditionFalse
			}
			if tc.want == nil {
				w.want(t, v1alpha1.ConditionSettingsPublished, status, tc.reason, tc.words...)
				if w.configMap != nil {
					t.Errorf("published %v", w.configMap.Data)
				}
				return
			}
			w.want(t, v1alpha1.ConditionSettingsPublished, status, tc.reason)
			conf := w.configMap.Data["rccl.conf"]
			got := maps.Clone(w.configMap.Data)
			delete(got, "rccl.conf")
			if !maps.Equal(got, tc.want) {
				t.Errorf("published %v, expected %v", got, tc.want)
			}
			for _, word := range tc.words {
				if !strings.Contains(conf, word) {
					t.Errorf("rccl.conf lacks %q:\n%s", word, conf)
				}
			}
			for line := range strings.Lines(conf) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				if !strings.HasPrefix(line, "#") && got[name] != value {
					t.Errorf("rccl.conf has %q, the variables %q", line, got[name])
				}
			}
			w.group.Generation++ // no run has proven anything for it yet
			w.settle()
			if c := groupCondition(&w.group.Status,
				v1alpha1.ConditionSettingsPublished); c.Reason == v1alpha1.ReasonConfigMapChanged {
				t.Errorf("what was published reads as changed: %+v", c)
			}
		})
	}
}

// TestUnmeasuredIsNotPublished: a setting that would act where nobody measured it stays off, however much it gains
// where it was.
func TestUnmeasuredIsNotPublished(t *testing.T) {
	faster := func(_ v1alpha1.Variant, _ v1alpha1.Collective, _ int64) int64 { return 70 }
	sizes := func(least, most int64) func(*v1alpha1.CommGroupSpec) {
		return func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.MinSizeBytes, s.Benchmark.MaxSizeBytes = least, most
			s.Publish.AcceptedLosses = []v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
		}
	}
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.CommGroupSpec)
		dda      string
		fp8, off []string
		words    []string
	}{
		"large sizes only": {sizes(64*mib, 64*mib), "", []string{"ALLREDUCE", "REDUCESCATTER", "ALLTOALL"},
			[]string{"ALLGATHER"}, []string{"FP8 is off for AllGather: no AllGather BFloat16 below 16 MiB was measured",
				"AllReduce BFloat16: 30 % less time at 64 MiB, for an error",
				"below 64 MiB and above 64 MiB nothing is proven"}},
		"one size at DDA's end": {sizes(16*mib, 16*mib), "0", []string{"ALLREDUCE"}, []string{"ALLGATHER"},
			[]string{"DDA is off: AllReduce BFloat16 was measured from 16 MiB on, and not by its flat path"}},
		"small sizes, too": {sizes(mib/16, 64*mib), "8", nil, nil,
			[]string{"FP8 is on for AllReduce, AllGather", "below 64 KiB nothing is proven"}},
		"jobs over nodes": {nil, "8", nil, []string{"ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"},
			[]string{"FP8 is off for AllReduce: it was measured within one node only, and jobs of this group " +
				"are over several"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := abWorld(tc.change, faster)
			if name == "jobs over nodes" { // as if the stage over them had passed, too
				spec := &w.group.Spec
				spec.Span = v1alpha1.SpanGroup
				_, worth := settings.Worth(settings.WorthInput{Spec: spec, Run: finishedRun(w), Outcomes: reportsOf(w),
					Settings: settings.Aggregate(reportsOf(w))})
				in := publish.Input{Now: w.now, Group: w.group, Run: finishedRun(w), Outcomes: reportsOf(w),
					Settings: settings.Aggregate(reportsOf(w)), Origin: v1alpha1.OriginHardware,
					Certain: true, Worth: worth}
				w.configMap = publish.Decide(in).ConfigMap
			}
			got := w.configMap.Data
			on := func(c string) bool {
				return got["RCCL_LOW_PRECISION_ENABLE"] == "1" || got["RCCL_LOW_PRECISION_ENABLE_"+c] == "1"
			}
			for _, c := range tc.fp8 {
				if !on(c) {
					t.Errorf("%s is off", c)
				}
			}
			for _, c := range tc.off {
				if on(c) {
					t.Errorf("%s is on", c)
				}
			}
			if tc.dda != "" && got["RCCL_DDA_NRANKS"] != tc.dda {
				t.Errorf("RCCL_DDA_NRANKS=%s", got["RCCL_DDA_NRANKS"])
			}
			for _, word := range tc.words {
				if !strings.Contains(got["rccl.conf"], word) {
					t.Errorf("rccl.conf lacks %q:\n%s", word, got["rccl.conf"])
				}
			}
		})
	}
}

// finishedRun and reportsOf are a run of the world as if nothing but the nodes' own part of it counted.
func finishedRun(w *world) *v1alpha1.GroupRunStatus {
	run := w.group.Status.Run.DeepCopy()
	run.Phase, run.Verdict = v1alpha1.RunPhaseFinished, v1alpha1.VerdictPass
	return run
}

func reportsOf(w *world) []judge.Outcome {
	var out []judge.Outcome
	for _, ct := range w.commTasks {
		out = append(out, judge.Outcome{Node: ct.Spec.NodeName, Verdict: v1alpha1.VerdictPass, Report: ct.Status.Run})
	}
	return out
}

// TestHazardIsNotRecommended: the advice never says on where the same run found wrong elements, unless all counts are
// padded.
func TestHazardIsNotRecommended(t *testing.T) {
	for _, padded := range []bool{false, true} {
		w := abWorld(func(s *v1alpha1.CommGroupSpec) {
			if padded {
				s.Publish.JobCounts = v1alpha1.JobCountsPadded
			}
		}, asMeasured)
		for _, ct := range w.commTasks {
			for i := range ct.Status.Run.Settings {
				if x := &ct.Status.Run.Settings[i]; x.Name == "lowPrecision.AllReduce" {
					x.Usable, x.Warnings = v1alpha1.ResultsNotUsable, []string{v1alpha1.WarningTailHazard}
				}
			}
		}
		w.settle()
		a := w.advice("lowPrecision.AllReduce/BFloat16")
		want, enabled := "off", "0"
		if padded {
			want, enabled = "on", "1"
		}
		if a.Recommend != want || !strings.Contains(a.Message, "(TailHazard)") ||
			w.configMap.Data["RCCL_LOW_PRECISION_ENABLE_ALLREDUCE"] != enabled {
			t.Errorf("padded %t: %+v, published %v", padded, a, w.configMap.Data)
		}
		if other := w.advice("lowPrecision.AllToAll/BFloat16"); other.Recommend != "off" ||
			!strings.Contains(other.Message, "(Overflow)") {
			t.Errorf("%+v", other)
		}
	}
}

// TestUnconfirmedIsNotPublished: a gain that the run did not confirm on each member is none, whatever the medians say.
func TestUnconfirmedIsNotPublished(t *testing.T) {
	w := abWorld(nil, asMeasured)
	w.commTask("n00002").Status.Run.Settings[0].Verified = v1alpha1.VerifiedNotConfirmed
	w.commTask("n00002").Status.Run.Settings[1].Verified = v1alpha1.VerifiedNotConfirmed
	w.settle()
	if got := w.configMap.Data; got["RCCL_DDA_NRANKS"] != "0" || got["RCCL_LOW_PRECISION_ENABLE_ALLREDUCE"] != "0" ||
		!strings.Contains(got["rccl.conf"], "DDA is off: the run did not confirm it") ||
		!strings.Contains(got["rccl.conf"], "FP8 is off for AllReduce: the run did not confirm it") {
		t.Errorf("%v", got)
	}
}

// TestTheHashIsOfTheSettings: other numbers of the same settings are other words and no other settings.
func TestTheHashIsOfTheSettings(t *testing.T) {
	w := abWorld(nil, asMeasured)
	hash, conf := w.group.Status.Published.Hash, w.configMap.Data["rccl.conf"]
	for _, ct := range w.commTasks {
		for i := range ct.Status.Run.Results {
			if r := &ct.Status.Run.Results[i]; r.Variant == v1alpha1.VariantDDA && r.Collective == v1alpha1.AllReduce {
				r.LatencyNanoseconds[0] -= 5000
				r.LatencyNanoseconds[1] -= 9000
				r.LatencyNanoseconds[2] -= 9000
				r.LatencyNanoseconds[3] -= 9000
			}
		}
	}
	w.settle()
	if w.configMap.Data["rccl.conf"] == conf || w.group.Status.Published.Hash != hash {
		t.Errorf("hash %s became %s with\n%s", hash, w.group.Status.Published.Hash, w.configMap.Data["rccl.conf"])
	}
}

// TestStatusWithAdviceStaysSmall: advice gives way like everything else.
func TestStatusWithAdviceStaysSmall(t *testing.T) {
	w := abWorld(func(s *v1alpha1.CommGroupSpec) {
		s.Benchmark.Datatypes = []v1alpha1.Datatype{v1alpha1.BFloat16, v1alpha1.Float32, v1alpha1.Float16,
			v1alpha1.Float64, v1alpha1.Int32, v1alpha1.Int8}
		s.Benchmark.SizeFactor = 2
	}, func(_ v1alpha1.Variant, _ v1alpha1.Collective, size int64) int64 { return 80 + size/kib%3*20 })
	if n := len(w.group.Status.Advice); n < 15 {
		t.Fatalf("%d entries of advice", n)
	}
	checkSize(t, "much advice", &w.group.Status)
	for _, a := range w.group.Status.Advice {
		if len(a.Bands) > 8 || len(a.Recommend) > 160 || len(a.Name) > 160 {
			t.Errorf("%+v", a)
		}
	}
	if c := meta.FindStatusCondition(w.group.Status.Conditions,
		v1alpha1.ConditionSettingsPublished); len(c.Message) > 4000 {
		t.Errorf("a message of %d bytes", len(c.Message))
	}
}
