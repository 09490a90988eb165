package controllers

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestManyCulpritsAreAllMarked: status.span.culprits has room for 16. Who does not fit in is counted, stands in
// culpritSet, and is marked.
func TestManyCulpritsAreAllMarked(t *testing.T) {
	every := func(n, step int) (out []int) {
		for i := range n {
			out = append(out, 2+i*step)
		}
		return out
	}
	rails := func(nodes []int) (out [][2]int) {
		for _, node := range nodes {
			out = append(out, [2]int{node, 0}, [2]int{node, 1})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		nodes int
		f     faults
		bad   []int
	}{
		{"9 nodes with 2 slow rails each", 64, faults{slowRails: rails(every(9, 7))}, every(9, 7)},
		{"9 nodes with 2 hanging rails each", 64, faults{hangRails: rails(every(9, 7))}, every(9, 7)},
		{"18 hanging nodes", 128, faults{hangNodes: every(18, 7)}, every(18, 7)},
		{"18 slow nodes", 128, faults{slowNodes: every(18, 7)}, every(18, 7)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newGroupWorld(t, tc.nodes, tc.f, func(g *state.Group) {
				g.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, MaxPercent: ptr.To(int32(20))}
				g.Spec.Run.NodeDeadlineSeconds = 86400
				g.Spec.Localization = v1alpha1.LocalizationSpec{MaxRounds: 200, DeadlineSeconds: 86400}
			})
			w.play()
			w.step()
			s := w.span()
			if got := localize.NewSet(tc.bad...).String(); s.CulpritSet != got || len(s.Culprits) > 16 {
				t.Errorf("culpritSet %s of %d culprits, want %s: %s", s.CulpritSet, len(s.Culprits), got, s.Message)
			}
			var marked, want []string
			for _, m := range w.decided.NodeMarks {
				if m.Statement != nil && m.Statement.Verdict == v1alpha1.VerdictFail {
					marked = append(marked, m.Node.Name)
				}
			}
			for _, node := range tc.bad {
				want = append(want, fmt.Sprintf("n%05d", node))
			}
			slices.Sort(marked)
			if !slices.Equal(marked, want) {
				t.Errorf("marked %v, want %v: %s", marked, want, s.Message)
			}
			named := map[string]bool{}
			for _, c := range s.Culprits {
				named[c.Node] = true
			}
			if len(named) < min(16, len(tc.bad)) {
				t.Errorf("%d nodes named among %d culprits", len(named), len(s.Culprits))
			}
		})
	}
}
