package publish

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestWhatMayNotStayPublishedGoes: what an earlier release published, or what rested on an acceptance that was withdrawn, does not stay
// because the present run proves nothing else. What is still right stays.
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
			p.LowPrecision = append(p.LowPrecision, v1alpha1.PublishedLowPrecision{Collective: collective, Losses: losses})
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
		why    string // it goes; empty where it stays
	}{
		"host id":                             {set("NCCL_HOSTID", "n1"), nil, "variable NCCL_HOSTID is one that agents compute"},
		"RAS address":                         {set("NCCL_RAS_ADDR", "127.0.0.1:1"), nil, "variable NCCL_RAS_ADDR is one"},
		"debug file":                          {set("NCCL_DEBUG_FILE", "/x"), nil, "variable NCCL_DEBUG_FILE is one"},
		"computed by spec.network":            {set("NCCL_IB_HCA", "mlx5_0"), []func(*Input){spec(func(s *v1alpha1.CommGroupSpec) { s.Network.HCAs = []string{"mlx5_1"} })}, "variable NCCL_IB_HCA is one"},
		"not computed":                        {set("NCCL_IB_HCA", "mlx5_0"), nil, ""},
		"nothing known":                       {set(on, "1"), nil, "variable " + on + " switches FP8 on, and whether its results are usable is not known"},
		"off":                                 {set(on, "0"), []func(*Input){disabled}, ""},
		"shown usable":                        {set(on, "1"), []func(*Input){shown(v1alpha1.ResultsUsable)}, ""},
		"shown unknown":                       {set(on, "1"), []func(*Input){shown(v1alpha1.ResultsUnknown)}, "is not known"},
		"shown lossy":                         {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningOverflow)}, "(Overflow)"},
		"shown lossy, accepted":               {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningOverflow), accepted}, ""},
		"shown lossy, another loss accepted":  {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningOverflow, v1alpha1.WarningUnderflow), accepted}, "(Underflow)"},
		"shown with a tail":                   {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningTailHazard)}, "(TailHazard)"},
		"shown with a tail, jobs pad":         {set(on, "1"), []func(*Input){shown("", v1alpha1.WarningTailHazard), spec(func(s *v1alpha1.CommGroupSpec) { s.Publish.JobCounts = v1alpha1.JobCountsPadded })}, ""},
		"recorded without a loss":             {set(on, "1"), []func(*Input){none}, ""},
		"recorded without a loss, unknown":    {set(on, "1"), []func(*Input){none, shown(v1alpha1.ResultsUnknown)}, ""},
		"recorded without a loss, now lossy":  {set(on, "1"), []func(*Input){none, shown(v1alpha1.ResultsNotUsable, v1alpha1.WarningOverflow)}, "(Overflow)"},
		"recorded loss, accepted":             {set(on, "1"), []func(*Input){overflow, accepted}, ""},
		"recorded loss, withdrawn":            {set(on, "1"), []func(*Input){overflow}, "(Overflow)"},
		"recorded loss, withdrawn, now right": {set(on, "1"), []func(*Input){overflow, shown(v1alpha1.ResultsUsable)}, "(Overflow)"},
		"recorded loss, and another now":      {set(on, "1"), []func(*Input){overflow, accepted, shown("", v1alpha1.WarningUnderflow)}, "(Underflow)"},
		"not asked for":                       {set(on, "1"), []func(*Input){none, disabled}, "switches FP8 on for AllToAll, which spec.lowPrecision does not ask for"},
		"asked for others only": {set(on, "1"), []func(*Input){none, spec(func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Collectives = []string{"AllReduce"} })},
			"does not ask for"},
		"nobody's":              {set("RCCL_LOW_PRECISION_ENABLE_INIT", "1"), []func(*Input){none}, "does not ask for"},
		"all, all recorded":     {set(global, "1"), []func(*Input){none, three}, ""},
		"all, one not recorded": {set(global, "1"), []func(*Input){three}, "the data of AllToAll was not checked"},
		"GPUs that differ":      {set(on, "1"), []func(*Input){none, func(in *Input) { in.GFXTargets = []string{"gfx942", "gfx950"} }}, "encode it differently"},
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
					if got.ConfigMap != nil || got.Published != in.Group.Status.Published {
						t.Errorf("published %+v, ConfigMap %+v", got.Published, got.ConfigMap)
					}
					if tc.why == "" {
						if len(got.Remove) > 0 || got.Condition.Reason == v1alpha1.ReasonVariableNotPublishable {
							t.Errorf("removed %v: %s", got.Remove, got.Condition.Message)
						}
						return
					}
					if c := got.Condition; !slices.Equal(got.Remove, []string{published}) || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonVariableNotPublishable ||
						!strings.Contains(c.Message, "ConfigMap "+published+" is deleted") || !strings.Contains(c.Message, tc.why) {
						t.Errorf("removed %v, %+v", got.Remove, c)
					}
				})
			}
		}
	}
}

// TestPublishedLossesAreRecorded: after the run that showed them, nothing else tells that what is published rests on an acceptance.
func TestPublishedLossesAreRecorded(t *testing.T) {
	in := passed(v1alpha1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"})
	spec := &in.Group.Spec
	spec.LowPrecision.Mode, spec.LowPrecision.Collectives = v1alpha1.FeaturePreferred, []string{"AllReduce", "AllToAll"}
	spec.Publish.Choice, spec.Publish.AcceptedLosses = v1alpha1.PublishAsRequested, []v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
	in.Outcomes[0].Report.Library = &v1alpha1.LibraryFacts{Flavor: "rcclx-dev"}
	for _, c := range spec.LowPrecision.Collectives {
		in.Settings = append(in.Settings, v1alpha1.SettingStatus{Name: "lowPrecision." + c, Requested: "Preferred", Effective: v1alpha1.EffectivePartial,
			Verified: v1alpha1.VerifiedConfirmed, Usable: v1alpha1.ResultsUsable})
	}
	in.Settings[1].Usable, in.Settings[1].Warnings = v1alpha1.ResultsNotUsable, []string{v1alpha1.WarningOverflow}
	first := Decide(in)
	if first.Published == nil {
		t.Fatalf("%+v", first.Condition)
	}
	record := first.Published.LowPrecision
	if len(record) != 2 || record[0].Collective != v1alpha1.AllReduce || len(record[0].Losses) > 0 || record[1].Collective != v1alpha1.AllToAll || !slices.Equal(record[1].Losses, []string{v1alpha1.WarningOverflow}) {
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
	in.Run, in.Settings = &v1alpha1.GroupRunStatus{ID: "1-2", Phase: v1alpha1.RunPhaseRunning, Generation: in.Group.Generation}, nil
	if next := Decide(in); len(next.Remove) > 0 {
		t.Errorf("an accepted loss was withdrawn by the start of a run: %s", next.Condition.Message)
	}
	spec.Publish.AcceptedLosses = nil
	if next := Decide(in); len(next.Remove) != 1 {
		t.Errorf("stays published without the acceptance: %+v", next.Condition)
	}
}

// TestFP8ThatNobodyAskedForIsOff: an image or an object from before the rule on runtime.env switched it on.
func TestFP8ThatNobodyAskedForIsOff(t *testing.T) {
	for _, choice := range []v1alpha1.PublishChoice{v1alpha1.PublishWhereWorthIt, v1alpha1.PublishAsRequested} {
		in := passed(v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "1"}, v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE_INIT", Value: "1"})
		in.Group.Spec.Publish.Choice = choice
		got := Decide(in)
		if got.ConfigMap == nil || got.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE"] != "0" || got.ConfigMap.Data["RCCL_LOW_PRECISION_ENABLE_INIT"] != "0" {
			t.Errorf("%s: %+v, %+v", choice, got.Condition, got.ConfigMap)
		}
	}
}
