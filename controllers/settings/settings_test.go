package settings

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func settingsOf(states ...v1alpha1.SettingStatus) []judge.Outcome {
	var out []judge.Outcome
	for i, s := range states {
		o := judge.Outcome{Node: fmt.Sprint("n", i)}
		if s.Name != "" {
			o.Report = &v1alpha1.NodeRunStatus{Settings: []v1alpha1.SettingStatus{s}}
		}
		out = append(out, o)
	}
	return out
}

func TestSettingsTakeTheWorstNode(t *testing.T) {
	in := v1alpha1.SettingStatus{Name: "dda.AllReduce", Requested: "Preferred", Effective: v1alpha1.EffectiveInEffect,
		Verified: v1alpha1.VerifiedConfirmed, MaxBytes: ptr.To(int64(100))}
	partial := in
	partial.Effective, partial.MaxBytes = v1alpha1.EffectivePartial, ptr.To(int64(50))
	off := in
	off.Effective, off.Reason, off.Verified, off.Cause = v1alpha1.EffectiveNotInEffect, v1alpha1.SettingReasonNotBuilt,
		v1alpha1.VerifiedUnknown, "not built"
	for name, tc := range map[string]struct {
		nodes     []v1alpha1.SettingStatus
		effective v1alpha1.EffectiveState
		verified  v1alpha1.VerifiedState
		words     string
		summary   string
	}{
		"all": {[]v1alpha1.SettingStatus{in, in}, v1alpha1.EffectiveInEffect, v1alpha1.VerifiedConfirmed,
			"On 2 of 2 nodes", "DDA"},
		"one less": {[]v1alpha1.SettingStatus{in, partial}, v1alpha1.EffectivePartial, v1alpha1.VerifiedConfirmed,
			"On 1 of 2 nodes, first n1", "DDA"},
		"one off": {[]v1alpha1.SettingStatus{in, off, in}, v1alpha1.EffectiveNotInEffect, v1alpha1.VerifiedUnknown,
			"first n1: not built", "none"},
		"one silent": {[]v1alpha1.SettingStatus{in, {}}, v1alpha1.EffectiveUnknown, v1alpha1.VerifiedUnknown,
			"Nodes that report it: 1 of 2.", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Aggregate(settingsOf(tc.nodes...))
			if len(got) != 1 || got[0].Effective != tc.effective || got[0].Verified != tc.verified ||
				!strings.Contains(got[0].Message, tc.words) {
				t.Errorf("%+v", got)
			}
			if s := Summary(got); s != tc.summary {
				t.Errorf("summary %q, expected %q", s, tc.summary)
			}
			if tc.effective == v1alpha1.EffectivePartial && *got[0].MaxBytes != 50 {
				t.Errorf("bound %d, the narrowest node has 50", *got[0].MaxBytes)
			}
		})
	}
	fp8 := in
	fp8.Name, fp8.Usable = "lowPrecision.AllReduce", v1alpha1.ResultsNotUsable
	usable := fp8
	usable.Name, usable.Usable = "lowPrecision.AllGather", v1alpha1.ResultsUsable
	if got := Summary([]v1alpha1.SettingStatus{in, fp8}); got != "DDA,FP8(NotUsable)" {
		t.Errorf("FP8 that is not usable: %q", got)
	}
	if got := Summary([]v1alpha1.SettingStatus{in, fp8, usable}); got != "DDA,FP8" {
		t.Errorf("FP8 that one collective can use: %q", got)
	}
	if got := Summary(nil); got != "unknown" {
		t.Errorf("nothing reported is %q", got)
	}
}

func TestRequirement(t *testing.T) {
	g := testkit.Group()
	g.Spec.DDA.Mode = v1alpha1.FeatureRequired
	off := []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Required",
		Effective: v1alpha1.EffectiveNotInEffect}}
	if RequirementUnmet(off, &g.Spec) == "" || RequirementUnmet(nil, &g.Spec) == "" {
		t.Error("a Required setting that is in effect nowhere is met")
	}
	on := []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Required", Effective: v1alpha1.EffectivePartial,
		Verified: v1alpha1.VerifiedConfirmed}}
	if why := RequirementUnmet(on, &g.Spec); why != "" {
		t.Error(why)
	}
	if f := InEffect(off, &g.Spec); f.Status != metav1.ConditionFalse || f.Reason != v1alpha1.ReasonNotInEffect {
		t.Errorf("%+v", f)
	}
}
