package publish

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestStaleResultsProveNoSettings, and the message says which they are.
func TestStaleResultsProveNoSettings(t *testing.T) {
	run := &v1alpha1.GroupRunStatus{ID: "1-1", Generation: 1, Phase: v1alpha1.RunPhaseFinished,
		Verdict: v1alpha1.VerdictPass}
	in := Input{Group: testkit.Group(), Run: run, Origin: v1alpha1.OriginHardware,
		Outcomes: []judge.Outcome{{Node: "a", Stale: true}}}
	if why, _, _ := proven(in); !strings.Contains(why, "a no longer count") {
		t.Errorf("%q", why)
	}
}
