package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// manyRanksWorld has nodes of so many GPUs, as partition modes give.
func manyRanksWorld(t *testing.T, nodes, ranks int, f faults, change func(*state.Group)) *groupWorld {
	t.Helper()
	group := testkit.SpanGroup(nodes, func(g *state.Group) {
		g.Spec.RanksPerNode = int32(ranks)
		change(g)
	})
	w := groupWorldOf(t, newWorld(group, testkit.Nodes(nodes)))
	w.faults = f
	for i := range w.nodes {
		w.nodes[i].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(int64(ranks),
			resource.DecimalSI)}
		w.index[w.nodes[i].Name] = i
	}
	w.settle()
	w.reportFacts()
	w.settle()
	return w
}

// TestTasksFitTheCommTask: no task has more communicators of a node than its CommTask holds. A dimension with more is
// said not to be measured, before the run and after it, and is no pass; the others are measured, and a culprit is found
// without its rail.
func TestTasksFitTheCommTask(t *testing.T) {
	for name, tc := range map[string]struct {
		faults  faults
		change  func(*state.Group)
		verdict v1alpha1.Verdict
		words   string
		culprit string
		passed  []string
	}{
		"a dimension over all nodes": {change: testkit.Mesh("dp", 4, "tp", 64), verdict: v1alpha1.VerdictInconclusive,
			words: "Dimension dp of the mesh was not measured: a node's ranks are in 64 of its communicators, " +
				"and at most 16 fit", passed: []string{"mesh-tp-1"}},
		"both within": {change: testkit.Mesh("dp", 64, "tp", 4), verdict: v1alpha1.VerdictPass,
			words: "2 dimensions of the mesh measured", passed: []string{"mesh-dp-1", "mesh-tp-1"}},
		"a rail hangs": {faults: faults{hangRails: [][2]int{{2, 40}}}, change: func(*state.Group) {},
			verdict: v1alpha1.VerdictFail, words: "n00002", culprit: "n00002"},
	} {
		t.Run(name, func(t *testing.T) {
			w := manyRanksWorld(t, 4, 64, tc.faults, tc.change)
			most := 0
			w.meddle = func() {
				for _, ct := range w.commTasks {
					if s := ct.Spec.Session; s != nil && s.Task != nil {
						most = max(most, len(s.Task.Communicators))
					}
				}
			}
			w.play()
			s := w.span()
			if s.Verdict != tc.verdict || !strings.Contains(s.Message, tc.words) {
				t.Errorf("%s: %s", s.Verdict, s.Message)
			}
			if most == 0 || most > spans.MaxNodeCommunicators {
				t.Errorf("a node has %d communicators at once, at most %d fit", most, spans.MaxNodeCommunicators)
			}
			if tc.culprit != "" &&
				(len(s.Culprits) == 0 || s.Culprits[0].Node != tc.culprit || s.Culprits[0].Kind != "Node") {
				t.Errorf("culprits %+v", s.Culprits)
			}
			for _, id := range tc.passed {
				if k := slices.IndexFunc(s.Tests, func(t v1alpha1.SpanTest) bool { return t.ID == id }); k < 0 ||
					s.Tests[k].Verdict != v1alpha1.VerdictPass {
					t.Errorf("test %s: %+v", id, s.Tests)
				}
			}
			accepted := ""
			for _, c := range w.group.Status.Conditions {
				if c.Type == v1alpha1.ConditionAccepted {
					accepted = c.Message
				}
			}
			if told := strings.Contains(accepted,
				"will not be measured"); told != (tc.verdict == v1alpha1.VerdictInconclusive) {
				t.Errorf("Accepted says: %s", accepted)
			}
		})
	}
}

// TestGoodGroupsOfManyRanks: a group whose nodes give 16 or 64 ranks passes with all of them, its mesh too where a node
// is in few enough of its communicators, each rank in one place; names nobody; and keeps both objects' sizes.
func TestGoodGroupsOfManyRanks(t *testing.T) {
	for _, tc := range []struct {
		nodes, ranks int
		mesh         []any
		tests        string // kinds of tests that run
	}{
		{4, 16, nil, "[Group PairRecord Pairs]"},
		{4, 64, nil, "[Group PairRecord Pairs]"},
		{2, 64, nil, "[Group]"},
		{4, 16, []any{"dp", 4, "tp", 16}, "[Group Mesh PairRecord Pairs]"},
		{4, 64, []any{"dp", 16, "tp", 16}, "[Group Mesh PairRecord Pairs]"},
		// dp is 64 communicators a node, which do not fit
		{96, 64, []any{"dp", 96, "tp", 64}, "[Group Mesh PairRecord Pairs]"},
	} {
		t.Run(fmt.Sprintf("%d nodes of %d ranks, mesh %v", tc.nodes, tc.ranks, tc.mesh), func(t *testing.T) {
			w := manyRanksWorld(t, tc.nodes, tc.ranks, faults{}, func(g *state.Group) {
				if tc.mesh != nil {
					testkit.Mesh(tc.mesh...)(g)
				}
				g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather,
					v1alpha1.ReduceScatter, v1alpha1.AllToAll}
			})
			held := map[string]map[int32]string{} // by test: which node has a rank of the group
			w.meddle = func() {
				for _, ct := range w.commTasks {
					s := ct.Spec.Session
					if s == nil || s.Task == nil {
						continue
					}
					used := map[int32]bool{}
					for i := range s.Task.Communicators {
						c := &s.Task.Communicators[i]
						for k, device := range c.Devices {
							if used[device] || int(device) >= tc.ranks || c.Ranks[k] >= c.WorldSize {
								t.Fatalf("%s of %s: rank %d of %d on device %d",
									s.Task.ID, ct.Name, c.Ranks[k], c.WorldSize, device)
							}
							used[device] = true
							if w.test(s.Task.ID).Kind != v1alpha1.TestGroup {
								continue
							}
							if held[s.Task.ID] == nil {
								held[s.Task.ID] = map[int32]string{}
							}
							if other := held[s.Task.ID][c.Ranks[k]]; other != "" && other != ct.Name ||
								int(c.WorldSize) != tc.nodes*tc.ranks {
								t.Fatalf("rank %d of %d is of %s and of %s", c.Ranks[k], c.WorldSize, other, ct.Name)
							}
							held[s.Task.ID][c.Ranks[k]] = ct.Name
						}
					}
					if len(used) != tc.ranks {
						t.Fatalf("%s of %s works with %d of %d devices", s.Task.ID, ct.Name, len(used), tc.ranks)
					}
					if n := testkit.SizeOf(t, s); n > 3<<10 {
						t.Fatalf("%s of %s: the session takes %d bytes", s.Task.ID, ct.Name, n)
					}
				}
			}
			w.play()
			s := w.span()
			want := v1alpha1.VerdictPass
			if tc.nodes == 96 {
				want = v1alpha1.VerdictInconclusive
			}
			if s.Verdict != want || len(s.Culprits) > 0 || len(s.Left) > 0 || int(s.Present) != tc.nodes {
				t.Errorf("%s (%d members, left %v), culprits %v: %s",
					s.Verdict, s.Present, s.Left, s.Culprits, s.Message)
			}
			kinds := map[v1alpha1.TestKind]bool{}
			for i := range s.Tests {
				if kinds[s.Tests[i].Kind] = true; s.Tests[i].Verdict != v1alpha1.VerdictPass {
					t.Errorf("test %+v", s.Tests[i])
				}
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(kinds))); got != tc.tests {
				t.Errorf("tests of kinds %s, expected %s", got, tc.tests)
			}
			if len(held) != 1 || len(held["group-1"]) != tc.nodes*tc.ranks {
				t.Errorf("%d ranks of the group were given out, expected %d", len(held["group-1"]), tc.nodes*tc.ranks)
			}
			for i := range s.Results {
				if r := &s.Results[i]; r.Dimension == judge.DimensionGroup &&
					(int(r.Ranks) != tc.nodes*tc.ranks || int(r.Nodes) != tc.nodes) {
					t.Errorf("a result of %d ranks over %d nodes", r.Ranks, r.Nodes)
				}
			}
			checkSize(t, "many ranks", &w.group.Status)
		})
	}
}
