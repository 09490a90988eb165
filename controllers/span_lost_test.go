package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestSearchGoesOnWithoutTheLost: a member that is lost in a search, in whichever round, takes nothing with it but the
// tests that hold it: the culprit is named in the same search, with no test made twice that says something.
func TestSearchGoesOnWithoutTheLost(t *testing.T) {
	const bad = 11
	for _, tc := range []struct {
		name   string
		faults faults
		lost   int
		rounds int
		want   string
	}{
		{"of a good set", faults{hangNodes: []int{bad}}, 60, 3, "Node 11"},
		{"of the bad set", faults{hangNodes: []int{bad}}, 10, 3, "Node 11"},
		{"slow, of a good set", faults{slowNodes: []int{bad}}, 60, 1, "Node 11"},
		{"slow, of the bad set", faults{slowNodes: []int{bad}}, 10, 1, "Node 11"},
		{"a pair", faults{hangPairs: [][2]int{{bad, 40}}}, 60, 6, "Pair 11<->40"},
	} {
		for round := 1; round <= tc.rounds; round += testenv.Draws(2, 1) {
			ways := []string{"its pod", "its CommTask"}
			if !testenv.Long() {
				ways = ways[round/2%2:][:1]
			}
			for _, how := range ways {
				t.Run(fmt.Sprintf("%s, round %d, %s", tc.name, round, how), func(t *testing.T) {
					w := newGroupWorld(t, 64, tc.faults, nil)
					happened, before := false, 0
					w.roundBegins(round, func(tests []v1alpha1.SpanTest) {
						happened, before = true, len(tests)
						if how == "its pod" {
							w.losePod(tc.lost)
						} else {
							delete(w.commTasks, v1alpha1.CommTaskName("g", w.nodes[tc.lost].Name))
						}
					})
					w.play()
					s := w.span()
					if !happened {
						t.Fatalf("no round %d, so that nothing was lost in it: %s", round, w.tests())
					}
					t.Log(w.tests(), s.Message, s.Localization.Message)
					culprits := slices.DeleteFunc(w.culprits(), func(c string) bool {
						return c == fmt.Sprintf("Node %d", tc.lost)
					})
					if !slices.Equal(culprits, []string{tc.want}) {
						t.Errorf("culprits %v, want %s", culprits, tc.want)
					}
					errors := 0
					for i := range s.Tests {
						if k := s.Tests[i].Kind; s.Tests[i].Verdict == v1alpha1.VerdictError &&
							(k == v1alpha1.TestSearch || k == v1alpha1.TestRails) {
							errors++
						}
					}
					if errors > 1 || before == 0 {
						t.Errorf("%d tests of %d were thrown away", errors, before)
					}
					searches := 0
					for i := range s.Tests {
						if s.Tests[i].Kind == v1alpha1.TestGroup && s.Tests[i].Verdict != v1alpha1.VerdictPass {
							searches++
						}
					}
					if l := s.Localization; searches > 2 || l.State != v1alpha1.LocalizationFound ||
						!strings.Contains(l.Message, "Confirmed") {
						t.Errorf("%d groups, search %+v", searches, l)
					}
				})
			}
		}
	}
}

// TestEachRoundLosesAMember: however many are lost one by one, the culprit that stays is named.
func TestEachRoundLosesAMember(t *testing.T) {
	w := newGroupWorld(t, 64, faults{hangNodes: []int{11}}, nil)
	last, n := "", 0
	w.meddle = func() {
		s := w.span()
		if s == nil || s.Stage != v1alpha1.StageLocalizing {
			return
		}
		if x := &s.Tests[len(s.Tests)-1]; x.Verdict == "" && len(w.tasks[x.ID]) > 0 && x.ID != last {
			last = x.ID
			w.losePod(40 + n)
			n++
		}
	}
	w.play()
	if !slices.Contains(w.culprits(), "Node 11") || w.span().Localization.State != v1alpha1.LocalizationFound || n < 2 {
		t.Errorf("%d were lost, culprits %v, search %+v\n%s", n, w.culprits(), w.span().Localization, w.tests())
	}
}

// TestCulpritThatIsLost: where what is bad leaves in the search, the group without it is good, and that is told; nobody
// is accused of more than being lost.
func TestCulpritThatIsLost(t *testing.T) {
	w := newGroupWorld(t, 64, faults{hangNodes: []int{11}}, nil)
	w.roundBegins(2, func([]v1alpha1.SpanTest) { w.losePod(11) })
	w.play()
	s := w.span()
	if got := w.culprits(); !slices.Equal(got, []string{"Node 11"}) ||
		s.Culprits[0].Reason != v1alpha1.ReasonMemberLost || s.Verdict != v1alpha1.VerdictFail {
		t.Errorf("%s, culprits %+v", s.Verdict, s.Culprits)
	}
	for _, want := range []string{"Left in the search: n00011", "Without n00011 the group of 63 nodes is good",
		"Look first at n00011"} {
		if !strings.Contains(s.Localization.Message, want) {
			t.Errorf("no %q in: %s\n%s", want, s.Localization.Message, w.tests())
		}
	}
}

// TestSilentAgentsAreNotAccused: an agent that falls silent in a test which another node makes bad is lost, and no more
// than that. It is the culprit only where the group without it, and nobody else, is good.
func TestSilentAgentsAreNotAccused(t *testing.T) {
	reasons := func(w *groupWorld) map[int]string {
		out := map[int]string{}
		for _, c := range w.span().Culprits {
			out[w.index[c.Node]] = c.Reason
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		faults faults
		// round of the search in which agents fall silent; 0: from the beginning.
		round  int
		silent []int
		want   map[int]string
	}{
		{"beside a node that hangs", faults{hangNodes: []int{11}}, 0, []int{40},
			map[int]string{11: v1alpha1.ReasonHangAcrossNodes, 40: v1alpha1.ReasonMemberLost}},
		{"two beside a node that hangs", faults{hangNodes: []int{11}}, 0, []int{40, 41},
			map[int]string{11: v1alpha1.ReasonHangAcrossNodes, 40: v1alpha1.ReasonMemberLost,
				41: v1alpha1.ReasonMemberLost}},
		{"in the search, with the node that hangs", faults{hangNodes: []int{11}}, 1, []int{10},
			map[int]string{11: v1alpha1.ReasonHangAcrossNodes, 10: v1alpha1.ReasonMemberLost}},
		{"alone", faults{}, 0, []int{40}, map[int]string{40: v1alpha1.ReasonHangAcrossNodes}},
		{"two, of whom one would do", faults{}, 0, []int{40, 41},
			map[int]string{40: v1alpha1.ReasonMemberLost, 41: v1alpha1.ReasonMemberLost}},
		{"the one that hangs, in the search", faults{hangNodes: []int{11}}, 1, []int{11},
			map[int]string{11: v1alpha1.ReasonHangAcrossNodes}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 64, tc.faults, nil)
			if tc.round == 0 {
				w.faults.silentNodes = tc.silent
			} else {
				w.roundBegins(tc.round, func([]v1alpha1.SpanTest) { w.faults.silentNodes = tc.silent })
			}
			w.play()
			got := reasons(w)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) || w.span().Verdict != v1alpha1.VerdictFail {
				t.Errorf("%s, %v, want %v: %s\n%s", w.span().Verdict, got, tc.want, w.span().Message, w.tests())
			}
		})
	}
}
