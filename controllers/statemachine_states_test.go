package controllers

import (
	"maps"
	"slices"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// States that a group of four nodes is in before an event of the table. TestConditionsAfterEvents holds that each phase
// of a run and each part of the group's stage is among them.
const (
	fromNeverRan    = "Never ran"    // its monitors have not reported
	fromNotAccepted = "Not accepted" // no node has the GPUs
	fromReady       = "Ready"        // span Node, run 1 passed on all
	fromFailed      = "Failed"       // span Node, run 1 failed on one
	fromRunning     = "Running"      // span Node, run 1 goes on, ranks run on all
	fromAborted     = "Aborted"      // it was suspended meanwhile
	fromRepeat      = "Repeat"       // run 2 repeats what passed
	fromPartial     = "Partial"      // run 2 measures a node that was rebooted
	fromAlone       = "Alone"        // span Group, each node runs alone
	fromWaiting     = "Waiting"      // span Group, members are waited for
	fromStage       = "Group stage"  // span Group, all passed alone, the communicator over the group is being formed
	fromMesh        = "Mesh"         // the group is good, a dimension of the mesh is measured
	fromSearch      = "Search"       // the group hangs, and the culprit is searched for
	fromReforming   = "Reforming"    // it was found, and the group is formed without it
	fromGroupReady  = "Group ready"  // span Group, run 1 passed
	fromGroupFailed = "Group failed" // span Group, run 1 found a culprit
)

var tableStates = []string{fromNeverRan, fromNotAccepted, fromReady,
	fromFailed, fromRunning, fromAborted, fromRepeat, fromPartial,
	fromAlone, fromWaiting, fromStage, fromMesh, fromSearch, fromReforming, fromGroupReady, fromGroupFailed}

// tableWorld is a group in the state.
func tableWorld(t *testing.T, from string) *groupWorld {
	t.Helper()
	span, f := v1alpha1.SpanNode, faults{}
	change := func(g *state.Group) { g.Spec.Span = span }
	switch from {
	case fromMesh:
		change = testkit.Mesh("dp", 4, "tp", 8)
	case fromSearch, fromReforming, fromGroupFailed:
		f.hangNodes = []int{2}
		fallthrough
	case fromAlone, fromWaiting, fromStage, fromGroupReady:
		span = v1alpha1.SpanGroup
	case fromNeverRan, fromNotAccepted:
		w := groupWorldOf(t, newWorld(testkit.SpanGroup(4, change), testkit.Nodes(4)))
		if from == fromNotAccepted {
			w.fewerGPUs()
		}
		for i := range w.nodes {
			w.index[w.nodes[i].Name] = i
		}
		w.settle()
		return w
	}
	w := newGroupWorld(t, 4, f, change)
	at := func(stage v1alpha1.RunStage, tasks int) {
		t.Helper()
		w.playUntil(func() bool { return w.span() != nil && w.span().Stage == stage && len(w.tasks) >= tasks })
	}
	switch from {
	case fromReady, fromRepeat, fromPartial:
		w.runAll(300_000)
		for name, pod := range w.pods {
			if podstate.Alive(pod) {
				t.Fatalf("pod %s is left", name)
			}
		}
	case fromFailed:
		w.startAll()
		w.everyoneReports(v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	case fromRunning, fromAborted, fromAlone:
		w.startAll()
	case fromWaiting:
		at(v1alpha1.StageWaitingForMembers, 0)
	case fromStage:
		at(v1alpha1.StageGroup, 1)
	case fromMesh:
		at(v1alpha1.StageMesh, 2)
	case fromSearch:
		at(v1alpha1.StageLocalizing, 2)
	case fromReforming:
		at(v1alpha1.StageReforming, 3)
	case fromGroupReady, fromGroupFailed:
		w.play()
	}
	w.settle()
	switch from {
	case fromAborted:
		w.setState(v1alpha1.RunSuspended)
	case fromRepeat:
		w.request("first")
	case fromPartial:
		w.factsOn(w.nodes[0].Name).BootID = "boot-2"
	}
	w.settle()
	if from == fromRepeat || from == fromPartial {
		w.startAll()
		w.settle()
	}
	return w
}

// clone is the same cluster: what happens in the one changes nothing in the other. Nobody has looked at its nodes yet.
func (w *groupWorld) clone(t *testing.T) *groupWorld {
	is := w.objects()
	out := groupWorldOf(t, newWorld(is.group, is.nodes))
	out.runs, out.deletedRun = is.runs, w.deletedRun
	out.now, out.commNodes, out.commTasks, out.pods, out.configMap, out.decided = is.now, is.commNodes, is.commTasks,
		is.pods, is.configMap, w.decided
	out.faults, out.events = w.faults, slices.Clone(w.events)
	for id, nodes := range w.tasks {
		out.tasks[id] = maps.Clone(nodes)
	}
	out.taken, out.family, out.free, out.index = maps.Clone(w.taken), maps.Clone(w.family), maps.Clone(w.free),
		maps.Clone(w.index)
	return out
}

// startAll starts the run pods that there are.
func (w *groupWorld) startAll() {
	for _, pod := range w.pods {
		if podstate.Alive(pod) && !ofGroupStage(pod) {
			startPod(pod, pod.Labels[v1alpha1.LabelNode], w.now)
		}
	}
}

// playUntil goes on until the group is as wanted.
func (w *groupWorld) playUntil(done func() bool) {
	w.t.Helper()
	for range 500 {
		if w.settle(); done() {
			return
		}
		if nodes, agents := w.playNodes(), w.playAgents(); !nodes && !agents {
			w.now = w.now.Add(10 * time.Second)
			w.reportFacts()
		}
	}
	w.t.Fatalf("it does not come there: %+v", w.span())
}
