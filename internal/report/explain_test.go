package report

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/state"
)

// explained is what Explain prints of one setting, its lines joined.
func explained(t *testing.T, s v1alpha1.SettingStatus, advice ...v1alpha1.SettingAdvice) string {
	t.Helper()
	var b strings.Builder
	group := &state.Group{Status: state.Status{Advice: advice}}
	if err := Explain(&b, group, nil, []v1alpha1.SettingStatus{s}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func nextSteps(text string) []string {
	before, _, _ := strings.Cut(text, " more docs/")
	return strings.Split(before, " next step ")[1:]
}

// TestExplainEveryWarningHasItsNextStep: none is dropped, and the one that makes results wrong without an error comes
// first.
func TestExplainEveryWarningHasItsNextStep(t *testing.T) {
	warnings := []string{v1alpha1.WarningOverflow, v1alpha1.WarningTailHazard, v1alpha1.WarningUnderflow}
	for _, effective := range []v1alpha1.EffectiveState{v1alpha1.EffectiveInEffect, v1alpha1.EffectivePartial} {
		steps := nextSteps(explained(t, v1alpha1.SettingStatus{Name: "lowPrecision.AllReduce", Requested: "Preferred",
			Effective: effective, Reason: v1alpha1.SettingReasonBelowThreshold, Verified: v1alpha1.VerifiedConfirmed,
			Warnings: warnings}))
		if len(steps) != len(warnings) || !strings.HasPrefix(steps[0], v1alpha1.WarningTailHazard+": ") {
			t.Fatalf("%s: next steps %q, expected %d, %s first",
				effective, steps, len(warnings), v1alpha1.WarningTailHazard)
		}
		for _, w := range warnings {
			if want := w + ": " +
				reasons.Plain(entry(w, "Warnings").Next); !strings.Contains(strings.Join(steps, "\n"), want) {
				t.Errorf("%s: next steps %q lack %q", effective, steps, want)
			}
		}
	}
}

// TestExplainNamesTheLibraryOrSaysThatItIsUnknown, and never both.
func TestExplainNamesTheLibraryOrSaysThatItIsUnknown(t *testing.T) {
	s := v1alpha1.SettingStatus{Name: "dda.AllReduce", Requested: "Preferred",
		Effective: v1alpha1.EffectiveUnknown, Reason: v1alpha1.SettingReasonUnknown,
		Verified: v1alpha1.VerifiedUnknown, Message: "DDA is on, but its largest size is a table by GPU and release"}
	for flavor, identified := range map[string]bool{"rccl-dda": true, "unknown": false, "": false} {
		nodes := []Member{{}}
		nodes[0].Status.Run = &v1alpha1.NodeRunStatus{Library: &v1alpha1.LibraryFacts{Flavor: flavor,
			Version: "2.30.4"}}
		var b strings.Builder
		if err := Explain(&b, &state.Group{}, nodes, []v1alpha1.SettingStatus{s}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()),
			" "); strings.Contains(got, "not identified") == identified ||
			strings.Contains(got, "library rccl-dda 2.30.4") != identified {
			t.Errorf("library %q:\n%s", flavor, b.String())
		}
	}
}

// TestExplainSaysWhatAdviceAsksFor: a setting that loses by the numbers has switching it off as a next step, one that
// wins none.
func TestExplainSaysWhatAdviceAsksFor(t *testing.T) {
	for name, tc := range map[string]struct {
		setting, recommend, want string
		effective                v1alpha1.EffectiveState
	}{
		"FP8 loses": {"lowPrecision.AllGather", "off", "lowPrecision.collectives", v1alpha1.EffectivePartial},
		"DDA loses": {"dda.AllReduce", "off", "dda.mode Disabled", v1alpha1.EffectivePartial},
		"a limit": {"dda.AllReduce", "dda.allReduceTreeMaxBytes=1048576", "set dda.allReduceTreeMaxBytes=1048576",
			v1alpha1.EffectiveInEffect},
		"wins": {"lowPrecision.AllReduce", "on", "none", v1alpha1.EffectiveInEffect},
		"acts on not": {"dda.AllGather", "off",
			reasons.Plain(entry(v1alpha1.SettingReasonNotBuilt, settingsSection).Next), v1alpha1.EffectiveNotInEffect},
	} {
		reason := v1alpha1.SettingReasonActive
		if tc.effective == v1alpha1.EffectiveNotInEffect {
			reason = v1alpha1.SettingReasonNotBuilt
		}
		steps := nextSteps(explained(t, v1alpha1.SettingStatus{Name: tc.setting, Requested: "Preferred",
			Effective: tc.effective, Reason: reason, Verified: v1alpha1.VerifiedConfirmed},
			v1alpha1.SettingAdvice{Name: tc.setting + "/BFloat16", Recommend: tc.recommend}))
		if len(steps) != 1 || !strings.Contains(steps[0], tc.want) {
			t.Errorf("%s: next steps %q, expected one with %q", name, steps, tc.want)
		}
	}
}

// TestExplainRecommendsNoLimitThatAnotherGateHides: raising it would change nothing.
func TestExplainRecommendsNoLimitThatAnotherGateHides(t *testing.T) {
	most := int64(16<<20 - 1)
	steps := nextSteps(explained(t, v1alpha1.SettingStatus{Name: "dda.AllReduce", Effective: v1alpha1.EffectivePartial,
		Reason: v1alpha1.SettingReasonTakenByFP8, MaxBytes: &most, Verified: v1alpha1.VerifiedConfirmed},
		v1alpha1.SettingAdvice{Name: "dda.AllReduce/BFloat16", Recommend: "dda.allReduceTreeMaxBytes=16777216"}))
	if len(steps) != 1 || strings.Contains(steps[0], "allReduceTreeMaxBytes") {
		t.Errorf("next steps %q, expected FP8's settings only", steps)
	}
}

// TestExplainNamesTheGateThatStopsASize: where FP8 takes the call, DDA's own limit is not blamed.
func TestExplainNamesTheGateThatStopsASize(t *testing.T) {
	text := explained(t, v1alpha1.SettingStatus{Name: "dda.AllReduce", Requested: "Preferred",
		Effective: v1alpha1.EffectivePartial, Reason: v1alpha1.SettingReasonTakenByFP8,
		Verified: v1alpha1.VerifiedConfirmed, Message: "not for all sizes and datatypes: from 16777216 bytes FP8 " +
			"takes the call before DDA; AllReduce 1024 B"})
	if !strings.Contains(text, "FP8 takes the call before DDA") ||
		strings.Contains(text, "largest size of the feature") {
		t.Errorf("explained as\n%s\nexpected FP8 as what stops the other sizes", text)
	}
	if steps := nextSteps(text); len(steps) != 1 || !strings.Contains(steps[0], "lowPrecision") {
		t.Errorf("next steps %q, expected FP8's settings", steps)
	}
}
