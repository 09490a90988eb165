package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// roundBegins calls do once, when the tests of this round of the search are open.
func (w *groupWorld) roundBegins(round int, do func(tests []v1alpha1.SpanTest)) {
	done := false
	w.meddle = func() {
		s := w.span()
		if done || s == nil || s.Stage != v1alpha1.StageLocalizing {
			return
		}
		open := slices.DeleteFunc(slices.Clone(s.Tests), func(t v1alpha1.SpanTest) bool { return t.Verdict != "" })
		if len(open) > 0 && int(open[0].Round) == round {
			done = true
			do(open)
		}
	}
}

// TestTimeRunsOutInARound: in whichever round of a search its time runs out, the tests that were over count, what they
// prove is named, the rest is told as a set, nobody else is, and the time is kept.
func TestTimeRunsOutInARound(t *testing.T) {
	const bad, nodes = 11, 64
	for _, deadline := range testenv.Draws([]int32{10, 300}, []int32{10, 60, 300}) {
		for round := 1; round <= 3; round++ { // the third is that of the rails
			for _, how := range []string{"an agent is silent", "the round took long"} {
				t.Run(fmt.Sprintf("%d s, round %d, %s", deadline, round, how), func(t *testing.T) {
					w := newGroupWorld(t, nodes, faults{hangNodes: []int{bad}}, func(g *state.Group) {
						g.Spec.Localization.DeadlineSeconds = deadline
					})
					open := 0
					w.roundBegins(round, func(tests []v1alpha1.SpanTest) {
						open = len(tests)
						if how == "the round took long" {
							w.faults.report = func(int, *v1alpha1.CommTask) {
								w.now, w.faults.report = w.now.Add(decision.Seconds(deadline)), nil
							}
							return
						}
						set, _ := localize.ParseSet(tests[len(tests)-1].Set)
						if last := set[len(set)-1]; last != bad {
							w.faults.silentNodes = []int{last}
						} else {
							w.faults.silentNodes = []int{set[0]}
						}
					})
					w.play()
					s := w.span()
					l := s.Localization
					if open == 0 {
						t.Fatalf("no round %d: %s", round, w.tests())
					}
					proven := round == 3 || round == 2 && how == "the round took long"
					if got := slices.Contains(w.culprits(), "Node 11") ||
						slices.ContainsFunc(w.culprits(), func(c string) bool {
							return strings.HasPrefix(c, "NIC 11/")
						}); got != proven {
						t.Errorf("named %v, want %v: %v\n%s", got, proven, w.culprits(), w.tests())
					}
					for _, c := range s.Culprits {
						if i := w.index[c.Node]; i != bad && !slices.Contains(w.faults.silentNodes, i) {
							t.Errorf("innocent %+v", c)
						}
					}
					errors := 0
					for i := range s.Tests {
						if s.Tests[i].Verdict == v1alpha1.VerdictError && int(s.Tests[i].Round) == round &&
							s.Tests[i].Kind != v1alpha1.TestGroup {
							errors++
						}
					}
					if errors > 0 && how != "an agent is silent" || errors > 1 {
						t.Errorf("%d of %d tests were thrown away: %s", errors, open, w.tests())
					}
					if l.Seconds == nil || *l.Seconds > deadline+1 {
						t.Errorf("%d s, and the time was %d s", *l.Seconds, deadline)
					}
					// then nothing was left to be done
					ended := round == 1 || round == 2 && how != "the round took long"
					told := l.Message + s.Message
					if !ended && l.State != v1alpha1.LocalizationFound ||
						ended && (l.State != v1alpha1.LocalizationOutOfBounds || !strings.Contains(told,
							fmt.Sprintf("localization.deadlineSeconds (%d s) ran out", deadline))) {
						t.Errorf("%s: %s", l.State, told)
					}
					if ended && !strings.Contains(told, "Something among these is bad: ") {
						t.Errorf("no suspects: %s", told)
					}
					if s.Verdict != v1alpha1.VerdictFail {
						t.Errorf("%s (%s): %s", s.Verdict, s.Reason, s.Message)
					}
				})
			}
		}
	}
}

// TestBoundsHoldOverAllSearches: a user's bound on rounds, and the time, are those of all searches of a run together.
// That rounds are at most maxRounds is looked at in every step of every test.
func TestBoundsHoldOverAllSearches(t *testing.T) {
	many := faults{hangNodes: []int{3}, hangPairs: [][2]int{{10, 50}, {20, 40}, {11, 33}}}
	for _, f := range []faults{many, {hangNodes: []int{3}}} {
		for _, limit := range testenv.Draws([]int32{1, 2, 4, 12}, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
			w := newGroupWorld(t, 64, f, func(g *state.Group) { g.Spec.Localization.MaxRounds = limit })
			w.play()
			l := w.span().Localization
			if l.Rounds > limit+1 || l.MaxRounds != limit+1 { // one more for the rails
				t.Errorf("maxRounds %d: %d rounds, recorded bound %d", limit, l.Rounds, l.MaxRounds)
			}
			if told := l.Message + w.span().Message; l.State == v1alpha1.LocalizationOutOfBounds &&
				!strings.Contains(told, "bound on rounds is reached") &&
				!strings.Contains(told, "localization.maxRounds") {
				t.Errorf("maxRounds %d: %s", limit, told)
			}
			if limit >= 2 && len(f.hangPairs) == 0 && len(w.culprits()) != 1 {
				t.Errorf("maxRounds %d: culprits %v", limit, w.culprits())
			}
		}
	}
	// Each round takes five seconds.
	const deadline = 60
	w := newGroupWorld(t, 64, many, func(g *state.Group) { g.Spec.Localization.DeadlineSeconds = deadline })
	last, searches := "", map[string]bool{}
	w.meddle = func() {
		if s := w.span(); s != nil && s.Stage == v1alpha1.StageLocalizing {
			if id := s.Tests[len(s.Tests)-1].ID; id != last {
				last = id
				w.now = w.now.Add(5 * time.Second)
			}
			searches[s.Tests[stage.BaseOf(s.Tests)].ID] = true
		}
	}
	w.play()
	l := w.span().Localization
	if len(searches) < 2 || l.State != v1alpha1.LocalizationOutOfBounds || *l.Seconds > deadline+5 ||
		!strings.Contains(l.Message+w.span().Message, "deadlineSeconds (60 s) ran out") {
		t.Errorf("%d searches took %d s: %s %s", len(searches), *l.Seconds, l.State, l.Message)
	}
}

// TestOnlyAPassIsGood: to the planner a test that failed is bad, and one that shows nothing is neither.
func TestOnlyAPassIsGood(t *testing.T) {
	for verdict, want := range map[v1alpha1.Verdict]localize.Outcome{
		v1alpha1.VerdictPass: localize.Good, v1alpha1.VerdictFail: localize.Bad, "": localize.Open,
		v1alpha1.VerdictError: localize.Unknown, v1alpha1.VerdictInconclusive: localize.Unknown,
		v1alpha1.VerdictSkipped: localize.Unknown,
	} {
		if got := stage.OutcomeOf(verdict); got != want {
			t.Errorf("%q is %q to the planner, want %q", verdict, got, want)
		}
	}
}
