package controllers

import (
	"fmt"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestRefusalsAreJudgedTogether: agents say one after the other that they cannot take part. What most of them say is in
// the spec that they share and names no node, whoever is first; what a few say is their own, and they are named.
func TestRefusalsAreJudgedTogether(t *testing.T) {
	all := []int{0, 1, 2, 3}
	for _, tc := range []struct {
		name    string
		reason  string
		refuse  []int
		change  func(*state.Group)
		faults  faults
		named   []string
		present int32
		says    string
	}{
		{name: "all", reason: v1alpha1.ReasonInterfaceNotFound, refuse: all,
			says: "4 of 4 members cannot take part for the same reason, so look at what they share, spec.network"},
		{name: "all, and it takes all", reason: v1alpha1.ReasonHCANotFound, refuse: all,
			says: "4 of 4 members cannot take part", change: func(g *state.Group) { g.Spec.Members.MinMembers = 4 }},
		{name: "all but one", reason: v1alpha1.ReasonNoAddressOfFamily, refuse: []int{1, 2, 3}, present: 1,
			says: "3 of 4 members cannot take part"},
		{name: "all but one, which is never ready", reason: v1alpha1.ReasonNoAddressOfFamily, refuse: []int{1, 2, 3},
			faults: faults{neverReady: []int{0}}, present: 1, says: "3 of 4 members cannot take part"},
		{name: "half", reason: v1alpha1.ReasonInterfaceNotFound, refuse: []int{1, 2},
			named: []string{"Node 1", "Node 2"}, present: 2, says: "Node n00001 cannot take part: no such interface"},
		{name: "one", reason: v1alpha1.ReasonInterfaceNotFound, refuse: []int{2}, named: []string{"Node 2"}, present: 3,
			says: "cannot take part: no such interface"},
		{name: "what is each node's own", reason: v1alpha1.ReasonRankDied, refuse: all,
			named: []string{"Node 0", "Node 1", "Node 2", "Node 3"}, says: "cannot take part"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, asked := tc.faults, make(map[int]int)
			f.quirk = func(n int, s *v1alpha1.SessionStatus) {
				for _, bad := range tc.refuse {
					if n == bad {
						s.State, s.Reason, s.Message = v1alpha1.SessionFailed, tc.reason, "no such interface"
					}
				}
				if asked[n]++; asked[n] <= (n+2)%4 { // node 2 is the first, node 1 the last
					s.RunID = ""
				}
			}
			w := newGroupWorld(t, 4, f, tc.change)
			w.play()
			s := w.span()
			if got, want := fmt.Sprint(w.culprits()), fmt.Sprint(tc.named); got != want {
				t.Errorf("culprits %s, want %s", got, want)
			}
			if s.Present != tc.present || !strings.Contains(s.Message, tc.says) {
				t.Errorf("%s (%s), %d present, want %d and %q: %s",
					s.Verdict, s.Reason, s.Present, tc.present, tc.says, s.Message)
			}
			if tc.present < 2 && (s.Verdict == v1alpha1.VerdictPass || s.Reason != tc.reason) {
				t.Errorf("%s (%s), want the reason %s", s.Verdict, s.Reason, tc.reason)
			}
		})
	}
}
