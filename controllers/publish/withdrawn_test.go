package publish

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestWhatMayNotStayPublishedGoes: what an earlier release published, or what rested on an acceptance that was
// withdrawn, does not stay because the present run proves nothing else. What is still right stays.
func TestWhatMayNotStayPublishedGoes(t *testing.T) {
	const on, global = "RCCL_LOW_PRECISION_ENABLE_ALLTOALL", "RCCL_LOW_PRECISION_ENABLE"
	set := func(name, value string) v1alpha1.EnvVar { return v1alpha1.EnvVar{Name: name, Value: value} }
	shown := func(usable v1alpha1.UsableState, warnings ...string) func(*Input) {
		return func(in *Input) {
			in.Settings = []v1alpha1.SettingStatus{{Name: "lowPrecision.AllToAll", Usable: usable, Warnings: warnings}}
		}
	}
	recorded := func(collective v1alpha1.Collective, losses ...string) func(*Input) {
		return func(in *Input) {
			p := in.Group.Status.Published
			p.LowPrecision = append(p.LowPrecision,
				v1alpha1.PublishedLowPrecision{Collective: collective, Losses: losses})
		}
	}
	spec := func(change func(*v1alpha1.CommGroupSpec)) func(*Input) {
		return func(in *Input) { change(&in.Group.Spec) }
	}
	accepted := spec(func(s *v1alpha1.CommGroupSpec) {
		s.Publish.AcceptedLosses = []v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
	})
	disabled := spec(func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeatureDisabled })
	none, overflow := recorded(v1alpha1.AllToAll), recorded(v1alpha1.AllToAll, v1alpha1.WarningOverflow)
	three := func(in *Input) {
		for _, c := range []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather, v1alpha1.ReduceScatter} {
			recorded(c)(in)
		}
	}
	for name, tc := range map[string]struct {
		env    v1alpha1.EnvVar
		change []func(*Input)
		why    string // the ConfigMap goes, or FP8 is off in it; empty where it stays
	}{
		"host id": {set("NCCL_HOSTID", "n1"), nil,
			"variable NCCL_HOSTID is one that agents compute"},
		"RAS address": {set("NCCL_RAS_ADDR", "127.0.0.1:1"), nil,
			"variable NCCL_RAS_ADDR is one"},
		"debug file": {set("NCCL_DEBUG_FILE", "/x"), nil, "variable NCCL_DEBUG_FILE is one"},
		"computed by spec.network": {set("NCCL_IB_HCA", "mlx5_0"),
			[]func(*Input){spec(func(s *v1alpha1.CommGroupSpec) { s.Network.HCAs = []string{"mlx5_1"} })},
			"variable NCCL_IB_HCA is one"},
		"not computed": {set("NCCL_IB_HCA", "mlx5_0"), nil, ""},
		"nothing known": {set(on, "1"), nil,
			"variable " + on + " switches FP8 on, and whether its results are usable is not known"},
		"off":          {set(on, "0"), []func(*Input){disabled}, ""},
		"shown usable": {set(on, "1"), []func(*Input){shown(v1alpha1.ResultsUsable)}, ""},
		"shown unknown": {set(on, "1"), []func(*Input){shown(v1alpha1.ResultsUnknown)},
			"is not known"},
		"shown lossy": {set(on, "1"),
			[]func(*Input){shown("", v1alpha1.WarningOverflow)}, "(Overflow)"},
		"shown lossy, accepted": {set(on, "1"),
			[]func(*Input){shown("", v1alpha1.WarningOverflow), accepted}, ""},
		"shown lossy, another loss accepted": {set(on, "1"),
			[]func(*Input){shown("", v1alpha1.WarningOverflow, v1alpha1.WarningUnderflow), accepted}, "(Underflow)"},
		"shown with a tail": {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningTailHazard)},
			"(TailHazard)"},
		"shown with a tail, jobs pad": {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningTailHazard),
			spec(func(s *v1alpha1.CommGroupSpec) { s.Publish.JobCounts = v1alpha1.JobCountsPadded })}, ""},
		"recorded without a loss":          {set(on, "1"), []func(*Input){none}, ""},
		"recorded without a loss, unknown": {set(on, "1"), []func(*Input){none, shown(v1alpha1.ResultsUnknown)}, ""},
		"recorded without a loss, now lossy": {set(on, "1"),
			[]func(*Input){none, shown(v1alpha1.ResultsNotUsable, v1alpha1.WarningOverflow)}, "(Overflow)"},
		"recorded loss, accepted":  {set(on, "1"), []func(*Input){overflow, accepted}, ""},
		"recorded loss, withdrawn": {set(on, "1"), []func(*Input){overflow}, "(Overflow)"},
		"recorded loss, withdrawn, now right": {set(on, "1"),
			[]func(*Input){overflow, shown(v1alpha1.ResultsUsable)}, "(Overflow)"},
		"recorded loss, and another now": {set(on, "1"),
			[]func(*Input){overflow, accepted, shown("", v1alpha1.WarningUnderflow)}, "(Underflow)"},
		"not asked for": {set(on, "1"), []func(*Input){none, disabled},
			"switches FP8 on for AllToAll, which spec.lowPrecision does not ask for"},
		"asked for others only": {set(on, "1"), []func(*Input){none, spec(func(s *v1alpha1.CommGroupSpec) {
			s.LowPrecision.Collectives = []string{"AllReduce"}
		})}, "does not ask for"},
		"nobody's":              {set("RCCL_LOW_PRECISION_ENABLE_INIT", "1"), []func(*Input){none}, "does not ask for"},
		"all, all recorded":     {set(global, "1"), []func(*Input){none, three}, ""},
		"all, one not recorded": {set(global, "1"), []func(*Input){three}, "the data of AllToAll was not checked"},
		"GPUs that differ": {set(on, "1"), []func(*Input){none, func(in *Input) {
			in.GFXTargets = []string{"gfx942", "gfx950"}
		}}, "encode it differently"},
	} {
		for run, ended := range map[string]func(*v1alpha1.GroupRunStatus){
			"failed":  func(r *v1alpha1.GroupRunStatus) { r.Verdict = v1alpha1.VerdictFail },
			"running": func(r *v1alpha1.GroupRunStatus) { r.Phase, r.Verdict = v1alpha1.RunPhaseRunning, "" },
		} {
			for _, former := range []bool{false, true} {
				t.Run(name+"/"+run, func(t *testing.T) {
					in := passed()
					in.Group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
					publishedAs(&in, set("NCCL_DEBUG", "INFO"), tc.env)
					in.Run = in.Run.DeepCopy()
					in.Run.ID = "1-2"
					ended(in.Run)
					for _, change := range tc.change {
						change(&in)
					}
					published := in.Existing.Name
					if former {
						in.Group.Spec.Publish.ConfigMapName = "other"
						in.Existing, in.Former = nil, in.Existing
					}
					got := Decide(in)
					if tc.why != "" && strings.HasPrefix(tc.env.Name, fp8Prefix) {
						checkWithoutFP8(t, in, got, tc.env.Name, tc.why, published, former)
						return
					}
					if got.ConfigMap != nil || got.Published != in.Group.Status.Published {
						t.Errorf("published %+v, ConfigMap %+v", got.Published, got.ConfigMap)
					}
					if tc.why == "" {
						if len(got.Remove) > 0 || got.Condition.Reason == v1alpha1.ReasonVariableNotPublishable {
							t.Errorf("removed %v: %s", got.Remove, got.Condition.Message)
						}
						return
					}
					if c := got.Condition; !slices.Equal(got.Remove, []string{published}) ||
						c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonVariableNotPublishable ||
						!strings.Contains(c.Message, "ConfigMap "+published+" is deleted") ||
						!strings.Contains(c.Message, tc.why) {
						t.Errorf("removed %v, %+v", got.Remove, c)
					}
				})
			}
		}
	}
}

// checkWithoutFP8: the ConfigMap that is published holds the settings of before with FP8 off, and stays so.
func checkWithoutFP8(t *testing.T, in Input, got Publication, variable, why, name string, former bool) {
	t.Helper()
	c, old := got.Condition, in.Group.Status.Published
	if len(got.Remove) > 0 || got.ConfigMap == nil || got.Published == nil {
		t.Fatalf("removed %v, %+v", got.Remove, c)
	}
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonVariableNotPublishable ||
		!strings.Contains(c.Message, "ConfigMap "+name+" holds") || !strings.Contains(c.Message, why) {
		t.Errorf("%+v", c)
	}
	data := got.ConfigMap.Data
	if got.ConfigMap.Name != name || data["NCCL_DEBUG"] != "INFO" || data[variable] != "0" ||
		strings.Contains(data[confKey], "=1") || !strings.Contains(data[confKey], "\n"+variable+"=0\n") {
		t.Errorf("%s: %v", got.ConfigMap.Name, data)
	}
	p := got.Published
	if p.ConfigMapName != name || p.RunID != old.RunID || p.Hash == old.Hash ||
		p.Hash != got.ConfigMap.Annotations[v1alpha1.AnnotationSettingsHash] || len(p.LowPrecision) > 0 ||
		!intact(got.ConfigMap, p.Hash) {
		t.Errorf("published %+v", p)
	}
	in.Group.Status.Published = p
	if former {
		in.Former = got.ConfigMap
	} else {
		in.Existing = got.ConfigMap
	}
	if next := Decide(in); next.ConfigMap != nil || next.Published != p || len(next.Remove) > 0 ||
		next.Condition.Reason == v1alpha1.ReasonVariableNotPublishable {
		t.Errorf("next: %+v, %+v", next.Published, next.Condition)
	}
}

// TestWithdrawnForSomeCollectivesOnly: FP8 stays on where it may, with its record.
func TestWithdrawnForSomeCollectivesOnly(t *testing.T) {
	const withdrawn, right = "RCCL_LOW_PRECISION_ENABLE_ALLTOALL", "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE"
	in := passed()
	in.Group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	publishedAs(&in, v1alpha1.EnvVar{Name: withdrawn, Value: "1"}, v1alpha1.EnvVar{Name: right, Value: "1"})
	in.Group.Status.Published.LowPrecision = []v1alpha1.PublishedLowPrecision{{Collective: v1alpha1.AllReduce},
		{Collective: v1alpha1.AllToAll, Losses: []string{v1alpha1.WarningOverflow}}}
	in.Run = in.Run.DeepCopy()
	in.Run.Verdict = v1alpha1.VerdictFail
	got := Decide(in)
	if got.ConfigMap == nil || got.ConfigMap.Data[withdrawn] != "0" || got.ConfigMap.Data[right] != "1" {
		t.Fatalf("%+v: %+v", got.Condition, got.ConfigMap)
	}
	if p := got.Published.LowPrecision; len(p) != 1 || p[0].Collective != v1alpha1.AllReduce {
		t.Errorf("recorded %+v", p)
	}
	// What remains may not be published either.
	publishedAs(&in, v1alpha1.EnvVar{Name: withdrawn, Value: "1"}, v1alpha1.EnvVar{Name: "NCCL_HOSTID", Value: "n1"})
	if got := Decide(in); got.ConfigMap != nil || len(got.Remove) != 1 ||
		!strings.Contains(got.Condition.Message, "variable NCCL_HOSTID is one") {
		t.Errorf("%+v: %+v", got.Condition, got.ConfigMap)
	}
}

// TestPublishedLossesAreRecorded: after the run that showed them, nothing else tells that what is published rests on an
// acceptance.
func TestPublishedLossesAreRecorded(t *testing.T) {
	in := passed(v1alpha1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"})
	spec := &in.Group.Spec
	spec.LowPrecision.Mode, spec.LowPrecision.Collectives = v1alpha1.FeaturePreferred, []string{"AllReduce", "AllToAll"}
	spec.Publish.Choice, spec.Publish.AcceptedLosses = v1alpha1.PublishAsRequested,
		[]v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
	in.Outcomes[0].Report.Library = &v1alpha1.LibraryFacts{Flavor: "rcclx-dev"}
	for _, c := range spec.LowPrecision.Collectives {
		in.Settings = append(in.Settings, v1alpha1.SettingStatus{Name: "lowPrecision." + c, Requested: "Preferred",
			Effective: v1alpha1.EffectivePartial, Verified: v1alpha1.VerifiedConfirmed, Usable: v1alpha1.ResultsUsable})
	}
	in.Settings[1].Usable, in.Settings[1].Warnings = v1alpha1.ResultsNotUsable, []string{v1alpha1.WarningOverflow}
	first := Decide(in)
	if first.Published == nil {
		t.Fatalf("%+v", first.Condition)
	}
	record := first.Published.LowPrecision
	if len(record) != 2 || record[0].Collective != v1alpha1.AllReduce ||
		len(record[0].Losses) > 0 || record[1].Collective != v1alpha1.AllToAll ||
		!slices.Equal(record[1].Losses, []string{v1alpha1.WarningOverflow}) {
		t.Fatalf("recorded %+v", record)
	}
	in.Existing, in.Group.Status.Published = first.ConfigMap, first.Published
	if again := Decide(in); again.Published != first.Published || again.ConfigMap != nil {
		t.Errorf("published again: %+v", again)
	}
	former := first.Published.DeepCopy()
	former.LowPrecision = nil
	in.Group.Status.Published = former
	if again := Decide(in); again.Published == nil || len(again.Published.LowPrecision) != 2 || len(again.Remove) > 0 {
		t.Errorf("what an earlier release published is not recorded: %+v", again.Published)
	}
	in.Group.Status.Published = first.Published
	in.Run, in.Settings = &v1alpha1.GroupRunStatus{ID: "1-2", Phase: v1alpha1.RunPhaseRunning,
		Generation: in.Group.Generation}, nil
	if next := Decide(in); len(next.Remove) > 0 {
		t.Errorf("an accepted loss was withdrawn by the start of a run: %s", next.Condition.Message)
	}
	spec.Publish.AcceptedLosses = nil
	if next := Decide(in); next.ConfigMap == nil || next.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE_ALLTOALL"] != "0" ||
		next.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE_ALLREDUCE"] != "1" {
		t.Errorf("stays published without the acceptance: %+v", next.Condition)
	}
}

// TestFP8ThatNobodyAskedForIsOff: an image or an object from before the rule on runtime.env switched it on.
func TestFP8ThatNobodyAskedForIsOff(t *testing.T) {
	for _, choice := range []v1alpha1.PublishChoice{v1alpha1.PublishWhereWorthIt, v1alpha1.PublishAsRequested} {
		in := passed(v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "1"},
			v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE_INIT", Value: "1"})
		in.Group.Spec.Publish.Choice = choice
		got := Decide(in)
		if got.ConfigMap == nil || got.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE"] != "0" ||
			got.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE_INIT"] != "0" {
			t.Errorf("%s: %+v, %+v", choice, got.Condition, got.ConfigMap)
		}
	}
}
