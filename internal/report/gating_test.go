package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestGating: who asks for a group's status learns what gating does, of the dry run as well, and why it does no more.
func TestGating(t *testing.T) {
	for name, c := range map[string]struct {
		spec      v1alpha1.GatingSpec
		status    *v1alpha1.GatingStatus
		wouldGate []string
		want      []string // nil: no such part
	}{
		"off":    {want: nil},
		"absent": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingOff}},
		"turned off, marks still stand": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingOff,
			Actions: []v1alpha1.GatingAction{v1alpha1.GatingTaint}},
			status: &v1alpha1.GatingStatus{Gated: 1, Nodes: []string{"a"}, Breaker: "Closed"},
			want:   []string{"  mode Off: gated a", "  breaker Closed"}},
		"not looked at yet": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce,
			Actions: []v1alpha1.GatingAction{v1alpha1.GatingCondition}},
			want: []string{"  mode Enforce (Condition): nothing reported yet"}},
		"enforced": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce,
			Actions: []v1alpha1.GatingAction{v1alpha1.GatingCondition, v1alpha1.GatingTaint}},
			status: &v1alpha1.GatingStatus{Gated: 20, Nodes: []string{"a", "b"}, Breaker: "Open",
				Message: "30 of 50 members failed at once."},
			want: []string{"  mode Enforce (Condition, Taint): gated a, b and 18 more", "  breaker Open",
				"  30 of 50 members failed at once."}},
		"no names": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce},
			status: &v1alpha1.GatingStatus{Gated: 3, Breaker: "Closed"},
			want:   []string{"  mode Enforce: gated 3 nodes", "  breaker Closed"}},
		"dry run": {spec: v1alpha1.GatingSpec{Mode: v1alpha1.GatingDryRun},
			status: &v1alpha1.GatingStatus{Breaker: "Closed"}, wouldGate: []string{"a", "b"},
			want: []string{"  mode DryRun: no node is gated", "  would gate a, b", "  breaker Closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &state.Group{Spec: v1alpha1.CommGroupSpec{Gating: c.spec},
				Status: state.Status{Gating: c.status, WouldGate: c.wouldGate}}
			if HasGating(g) != (c.want != nil) {
				t.Fatalf("HasGating = %v", HasGating(g))
			}
			if c.want == nil {
				return
			}
			var b bytes.Buffer
			if err := Gating(&b, g); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, lines(&b)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
