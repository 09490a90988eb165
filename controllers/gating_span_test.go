package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// enforced turns gating on, for so many percent of the members.
func enforced(percent int32) v1alpha1.GatingSpec {
	return v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, MaxPercent: ptr.To(percent)}
}

// stated are the nodes on which the decision newly writes the verdict.
func (w *world) stated(verdict v1alpha1.Verdict) []string {
	var out []string
	for i := range w.decided.NodeMarks {
		if m := &w.decided.NodeMarks[i]; m.Statement != nil && m.Statement.Verdict == verdict {
			out = append(out, m.Node.Name)
		}
	}
	slices.Sort(out)
	return out
}

// writeMarks writes the decision's statements onto the nodes.
func (w *world) writeMarks(t *testing.T) {
	t.Helper()
	for _, m := range w.decided.NodeMarks {
		value := ""
		if m.Statement != nil {
			value = m.Statement.String()
		}
		for i := range w.nodes {
			if w.nodes[i].Name == m.Node.Name {
				w.nodes[i] = *withStatements(t, m.Node,
					map[string]string{gating.Key(string(w.group.UID)): value}, w.now)
			}
		}
	}
}

// again asks for one more run.
func (w *world) again(value string) {
	w.request(value)
	w.now = w.now.Add(time.Minute)
	w.reportFacts()
}

// TestPassOnlyAfterTheGroupPassedWithoutTheCulprit: whoever was in no communicator over the group that passed has no
// pass of it.
func TestPassOnlyAfterTheGroupPassedWithoutTheCulprit(t *testing.T) {
	change := func(f func(*state.Group)) func(*state.Group) {
		return func(g *state.Group) {
			g.Spec.Gating = enforced(50)
			f(g)
		}
	}
	for _, tc := range []struct {
		name   string
		nodes  int
		faults faults
		change func(*state.Group)
	}{
		{"minMembers is all", 4, faults{hangNodes: []int{2}}, func(g *state.Group) { g.Spec.Members.MinMembers = 4 }},
		{"minMembers is all, slow", 4, faults{slowNodes: []int{2}},
			func(g *state.Group) { g.Spec.Members.MinMembers = 4 }},
		{"three nodes, two bad", 3, faults{hangNodes: []int{1, 2}}, func(*state.Group) {}},
		{"16 of 16 needed", 16, faults{hangNodes: []int{7}}, func(g *state.Group) { g.Spec.Members.MinMembers = 16 }},
		{"16, the bound of rounds", 16, faults{hangNodes: []int{7}},
			func(g *state.Group) { g.Spec.Localization.MaxRounds = 3 }},
		{"short time", 16, faults{hangNodes: []int{7}}, func(g *state.Group) { g.Spec.Run.NodeDeadlineSeconds = 300 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, tc.faults, change(tc.change))
			w.play()
			w.step()
			formed := slices.ContainsFunc(w.span().Tests, func(t v1alpha1.SpanTest) bool {
				return t.Kind == v1alpha1.TestGroup && t.Verdict == v1alpha1.VerdictPass
			})
			if passed := w.stated(v1alpha1.VerdictPass); !formed && len(passed) > 0 {
				t.Errorf("no communicator over the group passed, and %v carry Pass: %s\n%s",
					passed, w.span().Message, w.tests())
			}
		})
	}
}

// TestSlowMarkStaysUntilSpeedIsJudged: a node that was slow over several nodes stays marked until it was held against
// others again, also where another node hangs.
func TestSlowMarkStaysUntilSpeedIsJudged(t *testing.T) {
	for name, least := range map[string]int32{"the group without the culprit is formed": 1,
		"minMembers is all, so that it is not": 16} {
		t.Run(name, func(t *testing.T) {
			w := newGroupWorld(t, 16, faults{slowNodes: []int{3}}, func(g *state.Group) {
				g.Spec.Gating = enforced(50)
				g.Spec.Members.MinMembers = least
			})
			w.play()
			w.step()
			if got := w.stated(v1alpha1.VerdictFail); !slices.Equal(got, []string{"n00003"}) {
				t.Fatalf("marked %v: %s", got, w.span().Message)
			}
			w.writeMarks(t)
			w.faults.hangNodes = []int{7}
			w.again("with another fault")
			w.settle()
			w.play()
			w.step()
			if w.group.Status.Run.Number != 2 || slices.Contains(w.stated(v1alpha1.VerdictPass), "n00003") {
				t.Errorf("n00003, which is still as slow, says Pass after run %s: %s",
					w.group.Status.Run.ID, w.span().Message)
			}
		})
	}
}

// TestSlowMarkStaysWhereNothingIsCompared: where the others were not measured, a slow node's pass by itself lifts no
// mark.
func TestSlowMarkStaysWhereNothingIsCompared(t *testing.T) {
	g := testkit.Group()
	g.Spec.Gating = enforced(50)
	w := newWorld(g, testkit.Nodes(3))
	w.step()
	w.reportFacts()
	w.runAll(300_000, 300_000, 100_000)
	if got := w.stated(v1alpha1.VerdictFail); !slices.Equal(got, []string{"n00002"}) {
		t.Fatalf("marked %v", got)
	}
	w.writeMarks(t)
	gpus := w.nodes[0].Status.Allocatable
	// its device plugin is gone for a while
	w.nodes[0].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "0")
	w.again("without n00000")
	w.runAll(300_000, 300_000, 100_000)
	if got := w.stated(v1alpha1.VerdictPass); slices.Contains(got, "n00002") {
		t.Errorf("n00002 is as slow as before, was compared with nobody, and says Pass")
	}
	w.writeMarks(t)
	w.nodes[0].Status.Allocatable = gpus
	w.again("all, and the slow one is mended")
	w.runAll(300_000, 300_000, 300_000)
	if got := w.stated(v1alpha1.VerdictPass); !slices.Contains(got, "n00002") {
		t.Errorf("n00002 is mended, was compared, and is not unmarked: %v", got)
	}
}

// TestMarksOfRandomFaults: no node that is bad over several nodes carries Pass, and no good one Fail, whatever one or
// two faults there are.
func TestMarksOfRandomFaults(t *testing.T) {
	for seed := range testenv.Draws[uint64](15, 400) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := []int{4, 8, 16, 24}[r.IntN(4)]
		var f faults
		nodes := []*[]int{&f.slowNodes, &f.hangNodes, &f.wrongNodes, &f.dieNodes, &f.silentNodes, &f.neverReady,
			&f.muteNodes, &f.crawlNodes}
		rails := []*[][2]int{&f.slowRails, &f.hangRails}
		bad := map[string]bool{}
		for _, i := range r.Perm(n)[:1+r.IntN(2)] {
			if kind := r.IntN(len(nodes) + len(rails)); kind < len(nodes) {
				*nodes[kind] = append(*nodes[kind], i)
			} else {
				rail := rails[kind-len(nodes)]
				*rail = append(*rail, [2]int{i, r.IntN(8)})
			}
			bad[fmt.Sprintf("n%05d", i)] = true
		}
		withMesh := r.IntN(4) == 0
		w := newGroupWorld(t, n, f, func(g *state.Group) {
			if withMesh {
				testkit.Mesh("dp", n, "tp", 8)(g)
			}
			g.Spec.Gating = enforced(60)
		})
		w.play()
		w.step()
		for _, name := range w.stated(v1alpha1.VerdictPass) {
			if bad[name] {
				t.Errorf("seed %d: bad node %s says Pass: %s\n%+v", seed, name, w.span().Message, f)
			}
		}
		for _, name := range w.stated(v1alpha1.VerdictFail) {
			if !bad[name] {
				t.Errorf("seed %d: good node %s says Fail: %s\n%+v", seed, name, w.span().Message, f)
			}
		}
	}
}
