package objects

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestSameAsStored: what the API server would store alike is the same, and only that.
func TestSameAsStored(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	closed := func(when time.Time) *state.Status {
		return &state.Status{Conditions: []metav1.Condition{{Type: "Ready", LastTransitionTime: metav1.NewTime(when)}}}
	}
	for name, tc := range map[string]struct {
		a, b *state.Status
		want bool
	}{
		"none":             {nil, nil, true},
		"one is not there": {nil, &state.Status{}, false},
		"equal":            {closed(at), closed(at), true},
		"another zone":     {closed(at), closed(at.In(time.FixedZone("", 3600))), true},
		"another time":     {closed(at), closed(at.Add(time.Second)), false},
		"an empty list":    {&state.Status{}, &state.Status{Culprits: []v1alpha1.Culprit{}}, true},
		"a list":           {&state.Status{}, &state.Status{Culprits: []v1alpha1.Culprit{{}}}, false},
		"another of its values": {&state.Status{Culprits: []v1alpha1.Culprit{{Kind: "Node"}}},
			&state.Status{Culprits: []v1alpha1.Culprit{{}}}, false},
	} {
		if got := Same(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
