package controllers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// at calls do once, when the stage has a test of the kind that goes on and whose nodes have their tasks.
func (w *groupWorld) at(kind v1alpha1.TestKind, do func()) {
	done := false
	w.meddle = func() {
		s := w.span()
		if done || s == nil || len(s.Tests) == 0 {
			return
		}
		if t := &s.Tests[len(s.Tests)-1]; t.Verdict == "" && t.Kind == kind && len(w.tasks[t.ID]) > 0 {
			done = true
			do()
		}
	}
}

func (w *groupWorld) losePod(node int) {
	if pod := w.groupPod(w.nodes[node].Name); pod != nil {
		delete(w.pods, pod.Name)
	}
}

// TestMembersAreLost: whenever a member goes, the group goes on without it, or says why it does not.
func TestMembersAreLost(t *testing.T) {
	for _, tc := range []struct {
		name    string
		faults  faults
		change  func(*state.Group)
		kind    v1alpha1.TestKind
		lose    func(*groupWorld)
		verdict v1alpha1.Verdict
		reason  string
		left    string
	}{
		{name: "pod in the group", kind: v1alpha1.TestGroup, lose: func(w *groupWorld) { w.losePod(3) },
			verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonMemberLost, left: "3"},
		{name: "two pods in the group", kind: v1alpha1.TestGroup,
			lose: func(w *groupWorld) { w.losePod(3); w.losePod(4) }, verdict: v1alpha1.VerdictError,
			reason: v1alpha1.ReasonMemberLost, left: "3-4"},
		{name: "more than minMembers allows", kind: v1alpha1.TestGroup, lose: func(w *groupWorld) { w.losePod(3) },
			verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonMemberLost, left: "3",
			change: func(g *state.Group) { g.Spec.Members.MinMembers = 8 }},
		{name: "pod in the search", faults: faults{hangNodes: []int{5}}, kind: v1alpha1.TestSearch,
			lose: func(w *groupWorld) { w.losePod(3) }, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, left: "3,5"},
		{name: "the culprit in the search", faults: faults{hangNodes: []int{5}}, kind: v1alpha1.TestSearch,
			lose: func(w *groupWorld) { w.losePod(5) }, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, left: "5"},
		{name: "pod in the mesh", change: testkit.Mesh("dp", 8, "tp", 8), kind: v1alpha1.TestMesh,
			lose: func(w *groupWorld) { w.losePod(3) }, verdict: v1alpha1.VerdictError,
			reason: v1alpha1.ReasonMemberLost, left: "3"},
		{name: "pod among the pairs", kind: v1alpha1.TestPairs, lose: func(w *groupWorld) { w.losePod(3) },
			verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonMemberLost, left: "3"},
		{name: "the agent dies", kind: v1alpha1.TestGroup, lose: func(w *groupWorld) {
			endPod(w.groupPod(w.nodes[3].Name), 137, w.now)
		}, verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonRunPodFailed, left: "3"},
		{name: "the agent is told to stop", kind: v1alpha1.TestGroup, lose: func(w *groupWorld) {
			s := w.commTask(w.nodes[3].Name).Status.Session
			s.State, s.Reason, s.Message = v1alpha1.SessionFailed, v1alpha1.ReasonInterrupted, "SIGTERM"
		}, verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonInterrupted, left: "3"},
		{name: "the CommTask is deleted", kind: v1alpha1.TestGroup, lose: func(w *groupWorld) {
			delete(w.commTasks, v1alpha1.CommTaskName("g", w.nodes[3].Name))
		}, verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonMemberLost, left: "3"},
		{name: "never takes a task up", faults: faults{muteNodes: []int{3}}, verdict: v1alpha1.VerdictError,
			reason: v1alpha1.ReasonMemberLost, left: "3"},
		{name: "never makes the unique id", faults: faults{muteNodes: []int{0}}, verdict: v1alpha1.VerdictError,
			reason: v1alpha1.ReasonMemberLost, left: "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 8, tc.faults, tc.change)
			if tc.lose != nil {
				w.at(tc.kind, func() { tc.lose(w) })
			}
			w.play()
			s := w.span()
			if s.Verdict != tc.verdict || s.Reason != tc.reason || s.LeftSet != tc.left {
				t.Errorf("%s (%s), left %s, want %s (%s), left %s: %s\n%s",
					s.Verdict, s.Reason, s.LeftSet, tc.verdict, tc.reason, tc.left, s.Message, w.tests())
			}
			if condition(w.group, v1alpha1.ConditionReady) == "True" {
				t.Error("Ready although a member was lost")
			}
			for _, c := range s.Culprits {
				if i := w.index[c.Node]; !slices.Contains(strings.Split(strings.ReplaceAll(tc.left, "-", ","), ","),
					fmt.Sprint(i)) {
					t.Errorf("culprit %s, who is still there", c.Node)
				}
			}
		})
	}
}

// TestNodeIsDeletedInTheStage: it is lost, indexes stay, and the run of the new members follows.
func TestNodeIsDeletedInTheStage(t *testing.T) {
	w := newGroupWorld(t, 8, faults{}, nil)
	gone := w.nodes[2].Name
	w.at(v1alpha1.TestGroup, func() {
		w.nodes = slices.Delete(slices.Clone(w.nodes), 2, 3)
		for _, pod := range w.pods {
			if pod.Labels[v1alpha1.LabelNode] == gone {
				delete(w.pods, pod.Name)
			}
		}
	})
	w.play()
	if run := w.group.Status.Run; run.Number != 2 || run.Verdict != v1alpha1.VerdictPass || w.span().RunID != run.ID ||
		w.span().Members != 7 {
		t.Errorf("run %+v, span %+v", run, w.span())
	}
}

// TestAbortFreesGPUs: however a run ends, its sessions end and its pods go.
func TestAbortFreesGPUs(t *testing.T) {
	ends := map[string]func(*groupWorld){
		"suspended": func(w *groupWorld) { w.group.Spec.Run.State = v1alpha1.RunSuspended },
		"span Node": func(w *groupWorld) { w.group.Spec.Span = v1alpha1.SpanNode; w.group.Generation++ },
		"new spec":  func(w *groupWorld) { w.group.Spec.Benchmark.Iterations++; w.group.Generation++ },
	}
	for name, end := range ends {
		for _, kind := range []v1alpha1.TestKind{"waiting", v1alpha1.TestGroup, v1alpha1.TestSearch,
			v1alpha1.TestMesh} {
			t.Run(name+" in "+string(kind), func(t *testing.T) {
				f := faults{}
				if kind == v1alpha1.TestSearch {
					f.hangNodes = []int{5}
				}
				w := newGroupWorld(t, 8, f, testkit.Mesh("dp", 8, "tp", 8))
				var first string
				if kind == "waiting" {
					w.meddle = func() {
						if first == "" && w.span() != nil &&
							w.span().Stage == v1alpha1.StageWaitingForMembers && w.alive() > 0 {
							first = w.group.Status.Run.ID
							end(w)
						}
					}
				} else {
					w.at(kind, func() { first = w.group.Status.Run.ID; end(w) })
				}
				w.play()
				if first == "" {
					t.Fatalf("it never came to %s: %s", kind, w.tests())
				}
				if n := w.alive(); n != 0 {
					t.Errorf("%d pods hold GPUs", n)
				}
				for _, ct := range w.commTasks {
					if s := ct.Spec.Session; s != nil && s.State != v1alpha1.SessionClosed {
						t.Errorf("session of %s is %s", ct.Spec.NodeName, s.State)
					}
				}
				switch {
				case name == "suspended" && w.group.Status.Run.Phase != v1alpha1.RunPhaseAborted,
					name != "suspended" && w.group.Status.Run.ID == first:
					t.Errorf("run %+v", w.group.Status.Run)
				case name == "span Node" && w.span() != nil:
					t.Errorf("span %+v of a group of span Node", w.span())
				}
			})
		}
	}
}

// TestOldReadsUndoNothing: a decision on a status that is older than the CommTasks opens no ended session, and gives no
// older task out.
func TestOldReadsUndoNothing(t *testing.T) {
	w := newGroupWorld(t, 16, faults{hangNodes: []int{11}}, nil)
	var past []*state.Group
	w.meddle = func() {
		if n := len(past); n == 0 || !objects.Same(&past[n-1].Status, &w.group.Status) {
			past = append(past, w.group.DeepCopy())
		}
		for back := 1; back <= 3 && back < len(past); back++ {
			s := w.snapshot()
			s.Group = past[len(past)-1-back]
			for _, change := range Decide(s, testConfig).CommTasks {
				if change.Current == nil || change.Current.Spec.Session == nil {
					continue
				}
				was, is := change.Current.Spec.Session, change.Desired.Spec.Session
				if is == nil {
					t.Fatalf("%d statuses back: the session of %s is taken away", back, change.Current.Spec.NodeName)
				}
				if was.State == v1alpha1.SessionClosed && is.State != v1alpha1.SessionClosed {
					t.Fatalf("%d statuses back: the session of %s is opened again", back, change.Current.Spec.NodeName)
				}
				if was.Task != nil && is.Task != nil && was.Task.ID != is.Task.ID && len(w.tasks[is.Task.ID]) > 0 &&
					w.tasks[was.Task.ID] != nil && later(past, was.Task.ID, is.Task.ID) {
					t.Fatalf("%d statuses back: task %s of %s is replaced by the older %s",
						back, was.Task.ID, change.Current.Spec.NodeName, is.Task.ID)
				}
			}
		}
	}
	w.play()
	if len(past) < 6 {
		t.Fatalf("only %d statuses", len(past))
	}
}

// later says whether test a was begun after test b.
func later(past []*state.Group, a, b string) bool {
	at := func(id string) int {
		return slices.IndexFunc(past, func(g *state.Group) bool {
			return g.Status.Span != nil &&
				slices.ContainsFunc(g.Status.Span.Tests, func(t v1alpha1.SpanTest) bool { return t.ID == id })
		})
	}
	return at(a) > at(b)
}

// TestRandomFaults: no innocent node is ever named, each run ends, what hangs never passes, and what is slow neither
// where something measured was not.
func TestRandomFaults(t *testing.T) {
	for seed := range testenv.Draws[uint64](12, 60) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := 4 + r.IntN(30)
		var f faults
		var bad []int
		pick := func() int { i := r.IntN(nodes); bad = append(bad, i); return i }
		for range 1 + r.IntN(3) {
			switch r.IntN(8) {
			case 0, 1:
				f.hangNodes = append(f.hangNodes, pick())
			case 2:
				f.slowNodes = append(f.slowNodes, pick())
			case 3:
				if a, b := pick(), pick(); a != b {
					f.hangPairs = append(f.hangPairs, [2]int{a, b})
				}
			case 4:
				f.slowRails = append(f.slowRails, [2]int{pick(), r.IntN(8)})
			case 5:
				f.silentNodes = append(f.silentNodes, pick())
			case 6:
				f.wrongNodes = append(f.wrongNodes, pick())
			case 7:
				if a, b := pick(), pick(); a != b {
					f.slowPairs = append(f.slowPairs, [2]int{min(a, b), max(a, b)})
				}
			}
		}
		w := newGroupWorld(t, nodes, f, nil)
		w.play()
		s := w.span()
		for _, c := range s.Culprits {
			if !slices.ContainsFunc(w.accused(&c), func(i int) bool { return slices.Contains(bad, i) }) {
				t.Errorf("seed %d, %d nodes, %+v: an innocent is named: %+v\n%s", seed, nodes, f, c, w.tests())
			}
		}
		if s.Verdict == v1alpha1.VerdictPass &&
			len(f.hangNodes)+len(f.hangPairs)+len(f.silentNodes)+len(f.wrongNodes) > 0 {
			t.Errorf("seed %d, %+v: passed\n%s", seed, f, w.tests())
		}
		if s.Verdict == v1alpha1.VerdictPass && len(f.slowNodes)+len(f.slowPairs)+len(f.slowRails) > 0 {
			t.Errorf("seed %d, %d nodes, %+v: passed: %s\n%s", seed, nodes, f, s.Message, w.tests())
		}
	}
}

// TestGroupStageAtScale: the dearest step of the stage costs in proportion to the members, and a step writes only what
// changes. What is compared is allocations: time depends on what else the machine does.
func TestGroupStageAtScale(t *testing.T) {
	few := testenv.Draws(100, 200)
	fewObjects, fewBytes := playAtScale(t, few)
	manyObjects, manyBytes := playAtScale(t, 4*few)
	if manyObjects > 5*fewObjects || manyBytes > 5*fewBytes {
		t.Errorf("with four times the members the dearest step costs %d allocations, %d B instead of %d, %d B",
			manyObjects, manyBytes, fewObjects, fewBytes)
	}
}

// playAtScale is a run with one node that hangs; it gives the most that one step allocated.
func playAtScale(t *testing.T, nodes int) (allocations, bytes uint64) {
	t.Helper()
	const bad = 77
	w := newGroupWorld(t, nodes, faults{hangNodes: []int{bad}}, func(g *state.Group) {
		g.Spec.Run.NodeDeadlineSeconds = 86400
	})
	writes, steps := 0, 0
	for range 400 {
		for range 6 {
			status := w.group.Status.DeepCopy()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d := w.step()
			runtime.ReadMemStats(&after)
			allocations, bytes = max(allocations, after.Mallocs-before.Mallocs),
				max(bytes, after.TotalAlloc-before.TotalAlloc)
			steps++
			for _, c := range d.CommTasks {
				if c.Current != nil && c.Current.Spec.Session != nil && c.Desired.Spec.Session != nil {
					writes++
				}
			}
			if objects.Same(status, &d.Status) && len(d.CommTasks)+len(d.CreatePods)+len(d.DeletePods) == 0 {
				break
			}
		}
		nodesMoved, agentsMoved := w.playNodes(), w.playAgents()
		if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseRunning {
			break
		}
		if !nodesMoved && !agentsMoved {
			w.now = w.now.Add(time.Second)
		}
	}
	s := w.span()
	t.Logf("%d members: %d steps, the dearest %d allocations and %d kB, %d writes of sessions; %s",
		nodes, steps, allocations, bytes/1e3, writes, s.Message)
	if s.Verdict != v1alpha1.VerdictFail || len(s.Culprits) != 1 || w.index[s.Culprits[0].Node] != bad {
		t.Errorf("%s: %s, culprits %+v\n%s", s.Verdict, s.Message, s.Culprits, w.tests())
	}
	// Each test writes its members once with their task, those of group-1 once more to withdraw or end it.
	tasks := 0
	for _, nodes := range w.tasks {
		tasks += len(nodes)
	}
	if limit := tasks + 2*nodes; writes > limit {
		t.Errorf("%d writes of sessions for %d tasks, want at most %d", writes, tasks, limit)
	}
	checkSize(t, "after a search", &w.group.Status)
	return allocations, bytes
}

// TestPodsOfTheStageAreBounded: should no manager be there, the kubelet ends them.
func TestPodsOfTheStageAreBounded(t *testing.T) {
	w := newGroupWorld(t, 2, faults{}, nil)
	w.at(v1alpha1.TestGroup, func() {
		var pod *corev1.Pod
		if pod = w.groupPod(w.nodes[0].Name); pod == nil {
			t.Fatal("no pod")
		}
		spec := &w.group.Spec.Run
		least := int64(spec.MembersDeadlineSeconds) + int64(spec.NodeDeadlineSeconds)
		if d := pod.Spec.ActiveDeadlineSeconds; d == nil || *d < least || *d > 86400 {
			t.Errorf("activeDeadlineSeconds %v, want at least %d", d, least)
		}
	})
	w.play()
}
