package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestScatteredMembersAreMissing: members.minMembers lets the group go on without some of many, wherever they are and
// however they are lost; each is noted, and the test of the others counts them alone.
func TestScatteredMembersAreMissing(t *testing.T) {
	nodes := testenv.Draws(80, 600)
	for _, how := range []string{"not ready", "lost in the group's test"} {
		for _, missing := range []int{1, nodes / 10, nodes / 3} {
			t.Run(fmt.Sprint(how, " ", missing), func(t *testing.T) {
				var away localize.Set
				for i := range missing {
					away = append(away, 2+i*(nodes/missing))
				}
				f := faults{}
				if how == "not ready" {
					f.neverReady = away
				}
				w := newGroupWorld(t, nodes, f, func(g *state.Group) {
					g.Spec.Members.MinMembers = int32(nodes * 2 / 3)
				})
				if how != "not ready" {
					done := false
					w.meddle = func() {
						if s := w.span(); !done && s != nil && s.Stage == v1alpha1.StageGroup {
							done = true
							for _, i := range away {
								delete(w.pods, w.groupPod(w.nodes[i].Name).Name)
							}
						}
					}
				}
				w.play()
				s := w.span()
				good := slices.IndexFunc(s.Tests, func(x v1alpha1.SpanTest) bool {
					return x.Kind == v1alpha1.TestGroup && x.Verdict == v1alpha1.VerdictPass
				})
				if good < 0 {
					t.Fatalf("no communicator over the other %d was formed: %s %s %s, %d tests",
						nodes-missing, s.Verdict, s.Reason, s.Message, len(s.Tests))
				}
				if here := stage.SetOf(s.Tests, good); len(here) != nodes-missing ||
					slices.ContainsFunc(away, here.Has) {
					t.Errorf("%s is over %d members, want %d: %s",
						s.Tests[good].ID, len(here), nodes-missing, w.tests())
				}
				if h := w.group.Status.History; len(h) == 0 || int(h[0].GroupNodes) != nodes-missing {
					t.Errorf("the history tells of another group: %+v", h)
				}
				var noted localize.Set
				for _, x := range s.Tests {
					if strings.HasPrefix(x.ID, "left-") {
						set, _ := localize.ParseSet(x.Set)
						noted = append(noted, set...)
						if x.Reason != v1alpha1.ReasonMemberLost {
							t.Errorf("%s is noted as %s", x.ID, x.Reason)
						}
					}
				}
				if !slices.Equal(noted, away) {
					t.Errorf("noted are %s, want %s", noted, away)
				}
			})
		}
	}
}

// TestDeletedCommTaskIsALostMember: whose CommTask is deleted in a search or in the group's test has left as
// MemberLost, not as a culprit.
func TestDeletedCommTaskIsALostMember(t *testing.T) {
	for _, at := range []v1alpha1.RunStage{v1alpha1.StageLocalizing, v1alpha1.StageGroup} {
		t.Run(string(at), func(t *testing.T) {
			w := newGroupWorld(t, 8, faults{hangNodes: []int{2}}, nil)
			done := false
			w.meddle = func() {
				if s := w.span(); !done && s != nil && s.Stage == at && len(s.Tests) > 0 &&
					s.Tests[len(s.Tests)-1].Verdict == "" {
					done = true
					delete(w.commTasks, w.commTask(w.nodes[5].Name).Name)
				}
			}
			w.play()
			reasons := map[string]string{}
			for _, x := range w.span().Tests {
				if strings.HasPrefix(x.ID, "left-") {
					reasons[x.Set] = x.Reason
				}
			}
			if reasons["5"] != v1alpha1.ReasonMemberLost || reasons["2"] != v1alpha1.ReasonCulpritFound {
				t.Errorf("noted: %v; %s", reasons, w.tests())
			}
		})
	}
}
