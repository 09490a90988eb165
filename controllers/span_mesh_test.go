package controllers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// marks says which nodes gating would mark as failed now, were it enforced.
func (w *groupWorld) marks() map[string]string {
	w.group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: testkit.EveryAction,
		MaxPercent: ptr.To(int32(100))}
	cfg := testConfig
	cfg.PrivilegedNamespaces = []string{w.group.Namespace}
	out := map[string]string{}
	for _, m := range Decide(w.snapshot(), cfg).NodeMarks {
		if m.Statement != nil && m.Statement.Verdict == v1alpha1.VerdictFail {
			out[m.Node.Name] = m.Statement.Reason
		}
	}
	return out
}

// guiltyOnly holds that gating marks exactly the nodes at these places, and that no culprit of a failure is on another
// one.
func (w *groupWorld) guiltyOnly(t *testing.T, guilty []int) {
	t.Helper()
	marks := w.marks()
	for i := range w.nodes {
		name := w.nodes[i].Name
		reason, marked := marks[name]
		if marked != slices.Contains(guilty, i) {
			t.Errorf("node %d marked: %v (%s), want only %v", i, marked, reason, guilty)
		}
	}
}

// at calls f once, when a test of the kind is open and was taken up.
func (w *groupWorld) whenOpen(kind v1alpha1.TestKind, f func()) {
	done := false
	w.meddle = func() {
		s := w.span()
		if done || s == nil || len(s.Tests) == 0 {
			return
		}
		if last := &s.Tests[len(s.Tests)-1]; last.Verdict == "" && last.Kind == kind && len(w.tasks[last.ID]) > 0 {
			done = true
			f()
		}
	}
}

func (w *groupWorld) deletePod(node int) {
	if pod := w.groupPod(w.nodes[node].Name); pod != nil {
		delete(w.pods, pod.Name)
	}
}

func (w *groupWorld) log(t *testing.T) {
	s := w.span()
	t.Log(w.tests())
	t.Log(s.Verdict, s.Reason, s.Message)
	for i := range s.Culprits {
		t.Log(s.Culprits[i])
	}
	if s.Localization != nil {
		t.Log(s.Localization.State, s.Localization.Message)
	}
}

func TestOnlyGuiltyNodesAreMarked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  int
		faults faults
		change func(*state.Group)
		// when and losing: a node whose pod goes while a test of this kind is open.
		when   v1alpha1.TestKind
		losing int
		guilty []int
	}{
		{name: "good", nodes: 8},
		{name: "a node hangs", nodes: 8, faults: faults{hangNodes: []int{5}}, guilty: []int{5}},
		{name: "the first hangs", nodes: 8, faults: faults{hangNodes: []int{0}}, guilty: []int{0}},
		{name: "two hang", nodes: 16, faults: faults{hangNodes: []int{3, 12}}, guilty: []int{3, 12}},
		{name: "a node is slow", nodes: 8, faults: faults{slowNodes: []int{2}}, guilty: []int{2}},
		{name: "a rail is slow", nodes: 8, faults: faults{slowRails: [][2]int{{3, 5}}}, guilty: []int{3}},
		{name: "a rail hangs", nodes: 8, faults: faults{hangRails: [][2]int{{3, 5}}}, guilty: []int{3}},
		{name: "a pair hangs", nodes: 8, faults: faults{hangPairs: [][2]int{{2, 6}}}},
		{name: "neighbours are slow together", nodes: 8, faults: faults{slowPairs: [][2]int{{2, 3}}}},
		{name: "wrong data", nodes: 8, faults: faults{wrongNodes: []int{4}}, guilty: []int{4}},
		{name: "a rank dies", nodes: 8, faults: faults{dieNodes: []int{4}}, guilty: []int{4}},
		{name: "TCP on one", nodes: 8, faults: faults{tcpNodes: []int{1}}, guilty: []int{1},
			change: func(g *state.Group) { g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA }},
		{name: "TCP on all", nodes: 4, faults: faults{tcpNodes: []int{0, 1, 2, 3}},
			change: func(g *state.Group) { g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA }},
		{name: "a node hangs, another one's pod is evicted in the search", nodes: 8,
			faults: faults{hangNodes: []int{5}}, when: v1alpha1.TestSearch, losing: 3, guilty: []int{5}},
		{name: "a node hangs, another one's pod is evicted in the group", nodes: 8, faults: faults{hangNodes: []int{5}},
			when: v1alpha1.TestGroup, losing: 3, guilty: []int{5}},
		{name: "a node hangs, another one is never ready", nodes: 8,
			faults: faults{hangNodes: []int{5}, neverReady: []int{2}}, guilty: []int{5}},
		{name: "a node hangs, another one lacks the interface", nodes: 8, guilty: []int{5},
			faults: faults{hangNodes: []int{5}, quirk: func(n int, s *v1alpha1.SessionStatus) {
				if n == 2 {
					s.State, s.Reason, s.Message = v1alpha1.SessionFailed, v1alpha1.ReasonInterfaceNotFound,
						"no such interface"
				}
			}}},
		{name: "in the mesh a node hangs", nodes: 8, faults: faults{hangNodes: []int{5}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{5}},
		{name: "in the mesh a rail is slow", nodes: 8, faults: faults{slowRails: [][2]int{{3, 5}}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{3}},
		{name: "in the mesh a rail hangs", nodes: 8, faults: faults{hangRails: [][2]int{{3, 5}}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{3}},
		{name: "in the mesh two rails are slow", nodes: 8,
			faults: faults{slowRails: [][2]int{{3, 5}, {6, 2}}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{3, 6}},
		{name: "in the mesh a pair hangs", nodes: 8, faults: faults{hangPairs: [][2]int{{1, 6}}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8)},
		{name: "in the mesh a node gives wrong data", nodes: 8, faults: faults{wrongNodes: []int{4}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{4}},
		{name: "in the mesh a rank dies", nodes: 8, faults: faults{dieNodes: []int{4}, sideBySide: true},
			change: testkit.Mesh("dp", 8, "tp", 8), guilty: []int{4}},
		{name: "in the mesh of three a node is slow", nodes: 8, faults: faults{slowNodes: []int{5}, sideBySide: true},
			change: testkit.Mesh("pp", 2, "dp", 4, "tp", 8), guilty: []int{5}},
		{name: "in the mesh of three a node hangs", nodes: 8, faults: faults{hangNodes: []int{6}, sideBySide: true},
			change: testkit.Mesh("pp", 2, "dp", 4, "tp", 8), guilty: []int{6}},
		{name: "in the mesh of three two nodes hang", nodes: 8,
			faults: faults{hangNodes: []int{1, 6}, sideBySide: true}, change: testkit.Mesh("pp", 2, "dp", 4, "tp", 8),
			guilty: []int{1, 6}},
		{name: "in the mesh and nowhere else a node hangs", nodes: 8,
			faults: faults{hangNodes: []int{5}, meshOnly: true}, change: testkit.Mesh("dp", 8, "tp", 8)},
		{name: "in the mesh and nowhere else a rail is slow", nodes: 8,
			faults: faults{slowRails: [][2]int{{3, 5}}, meshOnly: true}, change: testkit.Mesh("dp", 8, "tp", 8)},
		{name: "in the mesh and nowhere else a node is slow", nodes: 8,
			faults: faults{slowNodes: []int{5}, meshOnly: true}, change: testkit.Mesh("pp", 2, "dp", 4, "tp", 8)},
		{name: "in the mesh and nowhere else two nodes are slow", nodes: 8,
			faults: faults{slowNodes: []int{1, 6}, meshOnly: true}, change: testkit.Mesh("pp", 2, "dp", 4, "tp", 8)},
		{name: "in the mesh a node hangs, and nothing is searched for", nodes: 8,
			faults: faults{hangNodes: []int{5}, sideBySide: true}, change: func(g *state.Group) {
				testkit.Mesh("dp", 8, "tp", 8)(g)
				g.Spec.Localization.Mode = v1alpha1.LocalizationOff
			}},
		{name: "in the mesh over node borders a node hangs", nodes: 6,
			faults: faults{hangNodes: []int{2}, meshOnly: true}, change: testkit.Mesh("dp", 4, "tp", 12)},
		{name: "in the mesh over node borders, nowhere else, a rail hangs", nodes: 6,
			faults: faults{hangRails: [][2]int{{2, 3}}, meshOnly: true}, change: testkit.Mesh("dp", 4, "tp", 12)},
		{name: "in the mesh over node borders, nowhere else, two nodes hang", nodes: 6,
			faults: faults{hangNodes: []int{0, 2}, meshOnly: true}, change: testkit.Mesh("dp", 4, "tp", 12)},
		{name: "in the mesh of two a rail is slow", nodes: 2,
			faults: faults{slowRails: [][2]int{{1, 5}}, sideBySide: true}, change: testkit.Mesh("dp", 2, "tp", 8)},
		{name: "a pod is evicted in the mesh", nodes: 8, change: testkit.Mesh("dp", 8, "tp", 8),
			when: v1alpha1.TestMesh, losing: 3},
		{name: "in the mesh a node hangs, another one's pod is evicted in its search", nodes: 8,
			faults: faults{hangNodes: []int{5}, sideBySide: true}, change: testkit.Mesh("dp", 8, "tp", 8),
			when: v1alpha1.TestSearch, losing: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, tc.faults, tc.change)
			if tc.when != "" {
				w.whenOpen(tc.when, func() { w.deletePod(tc.losing) })
			}
			w.play()
			w.log(t)
			w.guiltyOnly(t, tc.guilty)
			if bad := tc.name != "good"; bad == (w.span().Verdict == v1alpha1.VerdictPass) {
				t.Errorf("verdict %s", w.span().Verdict)
			}
			if n := len(w.span().Culprits); n > 5 {
				t.Errorf("%d culprits", n)
			}
		})
	}
}

// TestMeshFaults: what shows in the mesh only and in no smaller test is named by its communicators, on no node.
func TestMeshFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults faults
		reason string
		want   string
		gpus   string
	}{
		{"a rail is slow", faults{slowRails: [][2]int{{3, 5}}, meshOnly: true}, v1alpha1.ReasonSlowCommunicator, "dp/5",
			"They take GPUs 5 of their nodes only."},
		{"a rail hangs", faults{hangRails: [][2]int{{3, 5}}, meshOnly: true}, v1alpha1.ReasonHangAcrossNodes, "dp/5",
			"They take GPUs 5 of their nodes only."},
		{"a node hangs", faults{hangNodes: []int{3}, meshOnly: true}, v1alpha1.ReasonHangAcrossNodes, "dp/0-7", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 8, tc.faults, testkit.Mesh("dp", 8, "tp", 8))
			w.play()
			s := w.span()
			w.log(t)
			if s.Verdict != v1alpha1.VerdictFail || s.Reason != tc.reason || len(s.Culprits) != 1 ||
				s.Culprits[0].Name != tc.want || s.Culprits[0].Node != "" {
				t.Errorf("%s (%s) %s, culprits %+v", s.Verdict, s.Reason, s.Message, s.Culprits)
			}
			if told := s.Culprits[0].Message; !strings.Contains(told, tc.gpus) ||
				strings.Contains(told, "They take GPUs") != (tc.gpus != "") {
				t.Errorf("%q, want that it says %q", told, tc.gpus)
			}
			if l := s.Localization; l == nil || l.Rounds == 0 || l.State != v1alpha1.LocalizationNotFound {
				t.Errorf("search %+v", l)
			}
		})
	}
}

// TestMeshTellsTheCommonNode: where no smaller test shows it, the node at which bad communicators of several dimensions
// cross is told as a place to look at, and is no culprit.
func TestMeshTellsTheCommonNode(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  int
		hung   []int
		change func(*state.Group)
		told   string
	}{
		{"one", 8, []int{5}, testkit.Mesh("pp", 2, "dp", 4, "tp", 8), "Look first at node n00005:"},
		{"two that do not cross", 8, []int{1, 6}, testkit.Mesh("pp", 2, "dp", 4, "tp", 8), ""},
		{"one dimension alone", 8, []int{5}, testkit.Mesh("dp", 8, "tp", 8), ""},
		{"over node borders", 6, []int{2}, testkit.Mesh("dp", 4, "tp", 12), "Look first at node n00002:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, faults{hangNodes: tc.hung, meshOnly: true}, tc.change)
			w.play()
			w.log(t)
			s := w.span()
			if told := strings.Contains(s.Message, "Look first at"); told != (tc.told != "") ||
				!strings.Contains(s.Message, tc.told) {
				t.Errorf("%s", s.Message)
			}
			if slices.ContainsFunc(s.Culprits, func(c v1alpha1.Culprit) bool { return c.Node != "" }) {
				t.Errorf("culprits %+v", s.Culprits)
			}
		})
	}
}

// TestMeshCulpritsAreNamed: a dimension that is bad leads to rounds, and the other dimensions are measured all the
// same.
func TestMeshCulpritsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults faults
		change func(*state.Group)
		want   []string
		reason string
	}{
		{"a rail is slow", faults{slowRails: [][2]int{{3, 5}}, sideBySide: true}, testkit.Mesh("dp", 8, "tp", 8),
			[]string{"GPU 3/0000:a5:00.0"}, v1alpha1.ReasonSlowRail},
		{"a node hangs", faults{hangNodes: []int{3}, sideBySide: true}, testkit.Mesh("dp", 8, "tp", 8),
			[]string{"Node 3"}, v1alpha1.ReasonHangAcrossNodes},
		{"a pair hangs", faults{hangPairs: [][2]int{{1, 6}}, sideBySide: true}, testkit.Mesh("dp", 8, "tp", 8),
			[]string{"Pair 1<->6"}, v1alpha1.ReasonHangAcrossNodes},
		{"a node of three dimensions is slow", faults{slowNodes: []int{5}, sideBySide: true},
			testkit.Mesh("pp", 2, "dp", 4, "tp", 8), []string{"Node 5"}, v1alpha1.ReasonSlowNode},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 8, tc.faults, tc.change)
			w.play()
			w.log(t)
			s := w.span()
			if got := w.culprits(); !slices.Equal(got, tc.want) || s.Reason != tc.reason {
				t.Errorf("culprits %v (%s), want %v (%s)", got, s.Reason, tc.want, tc.reason)
			}
			for _, d := range w.group.Spec.Mesh {
				if !slices.ContainsFunc(s.Tests, func(one v1alpha1.SpanTest) bool {
					return one.Kind == v1alpha1.TestMesh && one.Dimension == d.Name && one.Verdict != ""
				}) {
					t.Errorf("dimension %s was not measured: %s", d.Name, w.tests())
				}
			}
		})
	}
}

// TestMeshIsToldAsItWasMeasured: the words never speak of a dimension that was not measured, and say why it was not.
func TestMeshIsToldAsItWasMeasured(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  int
		faults faults
		change func(*state.Group)
		lose   v1alpha1.TestKind
		want   []string
		tests  int
	}{
		{name: "good", nodes: 8, change: testkit.Mesh("dp", 8, "tp", 8),
			want: []string{"2 dimensions of the mesh measured."}, tests: 2},
		{name: "a member is lost before", nodes: 8, change: testkit.Mesh("dp", 8, "tp", 8), lose: v1alpha1.TestGroup,
			want: []string{"The mesh was not measured", "64 ranks", "have 56"}},
		{name: "a member is lost before, and the mesh fits the rest", nodes: 9, change: testkit.Mesh("dp", 8, "tp", 8),
			lose: v1alpha1.TestGroup, want: []string{"2 dimensions of the mesh measured."}, tests: 2},
		{name: "a culprit is left out, and the mesh fits the rest", nodes: 9,
			faults: faults{hangNodes: []int{4}}, change: testkit.Mesh("dp", 8, "tp", 8),
			want: []string{"Without n00004", "2 dimensions of the mesh measured."}, tests: 2},
		{name: "a culprit is left out, and the mesh does not fit the rest", nodes: 8,
			faults: faults{hangNodes: []int{4}}, change: testkit.Mesh("dp", 8, "tp", 8),
			want: []string{"Without n00004", "The mesh was not measured", "have 56"}},
		{name: "a member is lost within", nodes: 8, change: testkit.Mesh("dp", 8, "tp", 8), lose: v1alpha1.TestMesh,
			want: []string{"fell out while the mesh was measured", "The mesh was not measured"}},
		{name: "one communicator alone", nodes: 8, change: testkit.Mesh("dp", 64),
			want: []string{"1 dimension of the mesh measured; in dp not all speeds were compared"}, tests: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, tc.faults, tc.change)
			if tc.lose != "" {
				w.whenOpen(tc.lose, func() { w.deletePod(3) })
			}
			w.play()
			w.log(t)
			for _, want := range tc.want {
				if !strings.Contains(w.span().Message, want) {
					t.Errorf("%q lacks %q", w.span().Message, want)
				}
			}
			measured := 0
			for _, one := range w.span().Tests {
				if one.Kind == v1alpha1.TestMesh && one.Verdict == v1alpha1.VerdictPass {
					measured++
				}
			}
			if measured != tc.tests {
				t.Errorf("%d dimensions measured, want %d", measured, tc.tests)
			}
		})
	}
}

// TestCommunicatorsOfFewNodesAreCompared: it takes several communicators, not several members.
func TestCommunicatorsOfFewNodesAreCompared(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		w := newGroupWorld(t, nodes, faults{slowRails: [][2]int{{1, 5}}, sideBySide: true},
			testkit.Mesh("dp", nodes, "tp", 8))
		w.play()
		if s := w.span(); s.Verdict != v1alpha1.VerdictFail ||
			!strings.Contains(fmt.Sprint(s.Message, s.Culprits), "dp/5") {
			t.Errorf("%d nodes: %s (%s) %s", nodes, s.Verdict, s.Reason, s.Message)
		}
	}
}

// TestRandomMeshFaults: whatever shows in meshes of any shape, no innocent node is marked, and what hangs never passes.
func TestRandomMeshFaults(t *testing.T) {
	for seed := range testenv.Draws[uint64](20, 120) {
		r := rand.New(rand.NewPCG(seed, 9))
		nodes := 2 + r.IntN(11)
		rest, sizes := nodes*8, []any{}
		for _, name := range []string{"a", "b", "c"} {
			var fits []int
			for size := 1; size <= rest; size++ {
				if rest%size == 0 {
					fits = append(fits, size)
				}
			}
			size := fits[r.IntN(len(fits))]
			rest /= size
			sizes = append(sizes, name, size)
		}
		sizes = append(sizes, "d", rest)
		f := faults{meshOnly: r.IntN(2) == 0}
		f.sideBySide = !f.meshOnly
		guilty := map[int]bool{}
		pick := func() int { i := r.IntN(nodes); guilty[i] = true; return i }
		for range 1 + r.IntN(2) {
			switch r.IntN(6) {
			case 0:
				f.hangNodes = append(f.hangNodes, pick())
			case 1:
				f.slowNodes = append(f.slowNodes, pick())
			case 2:
				f.slowRails = append(f.slowRails, [2]int{pick(), r.IntN(8)})
			case 3:
				f.hangRails = append(f.hangRails, [2]int{pick(), r.IntN(8)})
			case 4:
				f.wrongNodes = append(f.wrongNodes, pick())
			case 5:
				if a, b := r.IntN(nodes), r.IntN(nodes); a != b {
					f.hangPairs = append(f.hangPairs, [2]int{min(a, b), max(a, b)})
				}
			}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newGroupWorld(t, nodes, f, testkit.Mesh(sizes...))
			w.play()
			for name := range w.marks() {
				if !guilty[w.index[name]] {
					t.Errorf("node %s is marked, guilty are %v", name, slices.Sorted(maps.Keys(guilty)))
				}
			}
			bad := slices.ContainsFunc(w.span().Tests, func(one v1alpha1.SpanTest) bool {
				return one.Verdict == v1alpha1.VerdictFail
			})
			if bad && w.span().Verdict == v1alpha1.VerdictPass {
				t.Error("it passed with a test that failed")
			}
			if t.Failed() {
				t.Log(nodes, sizes, f)
				w.log(t)
			}
		})
	}
}

// playLosing plays a run whose n-th status write is lost, all else being applied; -1 loses none. It gives what came of
// it, and the number of writes.
func playLosing(t *testing.T, lost int, f faults, change func(*state.Group)) (string, int) {
	t.Helper()
	w := newGroupWorld(t, 8, f, change)
	writes := 0
	for range 3000 {
		for range 10 {
			before := w.group.Status.DeepCopy()
			d := w.step()
			same := objects.Same(before, &d.Status)
			if !same {
				if writes == lost {
					w.group.Status = *before
				}
				writes++
			}
			if same && len(d.CommTasks)+len(d.CreatePods)+len(d.DeletePods) == 0 {
				break
			}
		}
		if nodes, agents := w.playNodes(), w.playAgents(); nodes || agents {
			continue
		}
		if run := w.group.Status.Run; run != nil && run.Phase != v1alpha1.RunPhaseRunning && w.alive() == 0 {
			s := w.span()
			return fmt.Sprint(s.Verdict, " ", s.Reason, " ", w.culprits(), " ",
				condition(w.group, v1alpha1.ConditionReady), " ", w.marks()), writes
		}
		w.now = w.now.Add(time.Second)
		w.reportFacts()
	}
	t.Fatalf("write %d lost: the run does not end: %+v", lost, w.span())
	return "", 0
}

// TestALostWriteChangesNoVerdictOfAMesh: what a search in the mesh showed is decided again from the same reports.
func TestALostWriteChangesNoVerdictOfAMesh(t *testing.T) {
	every := testenv.Draws(8, 1)
	for name, f := range map[string]faults{
		"good":               {},
		"a node hangs":       {hangNodes: []int{5}, sideBySide: true},
		"a rail is slow":     {slowRails: [][2]int{{3, 5}}, sideBySide: true},
		"nothing is found":   {slowRails: [][2]int{{3, 5}}, meshOnly: true},
		"a culprit was left": {hangNodes: []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			want, writes := playLosing(t, -1, f, testkit.Mesh("dp", 8, "tp", 8))
			for lost := len(name) % every; lost < writes; lost += every {
				if got, _ := playLosing(t, lost, f, testkit.Mesh("dp", 8, "tp", 8)); got != want {
					t.Errorf("write %d of %d lost: %s, want %s", lost, writes, got, want)
				}
			}
		})
	}
}

// TestMeshOfOnesDoesNotFit: a mesh that has nothing to measure fits no better than any other that does not cover the
// members.
func TestMeshOfOnesDoesNotFit(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, testkit.Mesh("dp", 1, "tp", 1))
	w.play()
	if s := w.span(); s.Verdict != v1alpha1.VerdictInconclusive || s.Reason != v1alpha1.ReasonMeshMismatch ||
		!strings.Contains(s.Message, "dp: 1, tp: 1 is 1 ranks, and the members that are present have 32") {
		t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
}

// TestWhatTheSearchDoesNotTraceStays: dp/2 is slow by node 3's rail, which the search names; dp/5 is slow at full size
// only, which no smaller test shows. docs/groups.md: what the search does not trace stays in status.span.culprits as
// kind Link.
func TestWhatTheSearchDoesNotTraceStays(t *testing.T) {
	f := faults{sideBySide: true, slowRails: [][2]int{{3, 2}}, report: func(_ int, ct *v1alpha1.CommTask) {
		task := ct.Status.Session.Task
		if !strings.HasPrefix(task.ID, "mesh-dp") {
			return
		}
		for i := range task.Communicators {
			if c := &task.Communicators[i]; c.Name == "dp/5" {
				for k := range c.Results {
					for j := range c.Results[k].BusBandwidthMBps {
						c.Results[k].BusBandwidthMBps[j] /= 4
					}
				}
			}
		}
	}}
	w := newGroupWorld(t, 8, f, testkit.Mesh("dp", 8, "tp", 8))
	w.play()
	if got := w.culprits(); !slices.Equal(got, []string{"GPU 3/0000:45:00.0", "Link dp/5"}) {
		t.Errorf("culprits %v, message %s\n%s\n%+v", got, w.span().Message, w.tests(), w.span().Localization)
	}
}

// TestDimensionNamedGroup: the API server refuses the name, and where it is there all the same, the figures of the
// communicator over all stay.
func TestDimensionNamedGroup(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, testkit.Mesh("group", 4, "tp", 8))
	w.play()
	for _, r := range w.span().Results {
		if r.Dimension != judge.DimensionGroup || r.Ranks != 32 {
			t.Errorf("results of %s over %d ranks", r.Dimension, r.Ranks)
		}
	}
	if s := w.span(); len(s.Results) == 0 || s.Reason != v1alpha1.ReasonMeshMismatch ||
		!strings.Contains(s.Message, "give it another name") {
		t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
}
