package report

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestCulpritsOfAnEarlierRunAreMarked: while a run repeats another one, nobody takes what that one found for this
// one's.
func TestCulpritsOfAnEarlierRunAreMarked(t *testing.T) {
	culprit := []v1alpha1.Culprit{{Kind: "Node", Name: "n1", Node: "n1", Reason: "SlowNode"}}
	for name, tc := range map[string]struct {
		status state.Status
		title  string
		marked bool
	}{
		"this run's": {state.Status{Culprits: culprit, CulpritsRunID: "1-2",
			Run: &v1alpha1.GroupRunStatus{ID: "1-2"}}, "Culprits", false},
		"an earlier run's": {state.Status{Culprits: culprit, CulpritsRunID: "1-2",
			Run: &v1alpha1.GroupRunStatus{ID: "1-3"}}, "Culprits of run 1-2, which run 1-3 repeats", true},
		"none": {state.Status{Run: &v1alpha1.GroupRunStatus{ID: "1-3"}}, "Culprits", false},
		"whose is unknown": {state.Status{Culprits: culprit, Run: &v1alpha1.GroupRunStatus{ID: "1-3"}},
			"Culprits", false},
		"without a run yet": {state.Status{Culprits: culprit}, "Culprits", false},
	} {
		if got := CulpritsTitle(&tc.status); got != tc.title {
			t.Errorf("%s: title %q, expected %q", name, got, tc.title)
		}
		var b strings.Builder
		if err := Groups(&b, []state.Group{{Status: tc.status}}, false); err != nil ||
			strings.Contains(b.String(), "Node n1 (run 1-2)") != tc.marked {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}
