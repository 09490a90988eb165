package controllers

import (
	"slices"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// failedRun is a world whose first run is over with these verdicts by rank order; the last one repeats.
func failedRun(t *testing.T, nodes int, verdicts ...v1alpha1.Verdict) *world {
	t.Helper()
	group := testkit.Group()
	group.Spec.Run.MaxParallelNodes = int32(nodes)
	w := newWorld(group, testkit.Nodes(nodes))
	w.settle()
	w.reportFacts()
	w.settle()
	for i := range w.nodes {
		node := w.nodes[i].Name
		pod, ct := w.podOn(node), w.commTask(node)
		verdict := verdicts[min(i, len(verdicts)-1)]
		startPod(pod, node, w.now)
		if verdict == "" {
			endPod(pod, 137, w.now) // died without a word
			continue
		}
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, verdict, 300_000, w.now)
		code := int32(0)
		if verdict != v1alpha1.VerdictPass {
			ct.Status.Run.Reason, code = v1alpha1.ReasonWrongData, 1
		}
		endPod(pod, code, w.now)
	}
	w.settle()
	w.now = w.now.Add(podstate.ReportGrace + podstate.ExitGrace)
	w.settle()
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseFinished {
		t.Fatalf("run %+v", run)
	}
	return w
}

func TestEndedPodsOfBadNodesAreKeptUntilTheNextRun(t *testing.T) {
	w := failedRun(t, 4, v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictError, "")
	var on []string
	for _, pod := range w.pods {
		on = append(on, pod.Labels[v1alpha1.LabelNode])
	}
	slices.Sort(on)
	if !slices.Equal(on, []string{"n00001", "n00002", "n00003"}) {
		t.Fatalf("pods are left on %v; run %+v", on, w.group.Status.Run)
	}
	w.now = w.now.Add(5 * time.Minute)
	w.reportFacts()
	if w.settle(); len(w.pods) != 3 {
		t.Fatalf("%d pods some time later", len(w.pods))
	}
	w.group.Spec.Run.MaxParallelNodes = 1
	w.request("again")
	w.settle()
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("run %+v", run)
	}
	for name, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelRunID] != w.group.Status.Run.ID {
			t.Errorf("pod %s of run %s stays in run %s", name, pod.Labels[v1alpha1.LabelRunID], w.group.Status.Run.ID)
		}
	}
	if len(w.pods) != 1 {
		t.Errorf("%d pods run, want 1: kept pods hold up the next run", len(w.pods))
	}
}

// TestKeptPodOfAStaleResult: a node that rebooted has no verdict any more, and the log of what failed before is the
// more wanted.
func TestKeptPodOfAStaleResult(t *testing.T) {
	w := failedRun(t, 2, v1alpha1.VerdictFail)
	w.group.Spec.Run.State = v1alpha1.RunSuspended // so that no run follows
	w.factsOn("n00001").BootID = "rebooted"
	w.settle()
	if ct := w.commTask("n00001"); ct.Spec.Run.Stale == nil || w.podOn("n00001") == nil {
		t.Errorf("pod %v is left of assignment %+v", w.podOn("n00001"), ct.Spec.Run)
	}
}

// TestNoPodOfAnAbortedRunIsKept: nobody reads a run that was aborted.
func TestNoPodOfAnAbortedRunIsKept(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	w.settle()
	startPod(w.podOn("n00000"), "n00000", w.now)
	endPod(w.podOn("n00000"), 137, w.now)
	w.now = w.now.Add(podstate.ReportGrace)
	if w.settle(); w.podOn("n00000") == nil || w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("pods %v of run %+v", w.pods, w.group.Status.Run)
	}
	w.group.Spec.Run.State = v1alpha1.RunSuspended
	if w.settle(); w.group.Status.Run.Phase != v1alpha1.RunPhaseAborted || w.podOn("n00000") != nil {
		t.Errorf("run %+v, pod %v", w.group.Status.Run, w.podOn("n00000"))
	}
}

func TestKeptPodsAreBounded(t *testing.T) {
	if w := failedRun(t, 2*commrun.MaxKeptPods, v1alpha1.VerdictFail); len(w.pods) != commrun.MaxKeptPods {
		t.Errorf("%d pods are kept, want %d", len(w.pods), commrun.MaxKeptPods)
	}
}

func TestNoPodIsKeptThatStillRuns(t *testing.T) {
	group := testkit.Group()
	w := newWorld(group, testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.settle()
	startPod(w.podOn("n00000"), "n00000", w.now)
	w.settle()
	w.now = w.now.Add(decision.Seconds(group.Spec.Run.NodeDeadlineSeconds) + time.Second)
	w.settle()
	w.settle()
	if pod := w.podOn("n00000"); pod == nil || pod.DeletionTimestamp.IsZero() {
		t.Errorf("the pod holds GPUs after %+v", w.commTask("n00000").Spec.Run.Closed)
	}
}

// TestLogOfTheCulpritIsKept: a member that the group goes on without gets its moment to end by itself, so that the log
// of what was found is there; one that does not end so goes with its GPUs.
func TestLogOfTheCulpritIsKept(t *testing.T) {
	for _, ends := range []bool{true, false} {
		w := newGroupWorld(t, 6, faults{slowNodes: []int{5}}, nil)
		var held time.Duration // beyond the begin of the stage's next part
		w.meddle = func() {
			ct, pod := w.commTask("n00005"), w.groupPod("n00005")
			s := w.span()
			if s == nil || pod == nil || !pod.DeletionTimestamp.IsZero() || len(s.Culprits) == 0 {
				return
			}
			if !ends && ct.Status.Session != nil && ct.Spec.Session.State == v1alpha1.SessionClosed {
				ct.Status.Session.State = v1alpha1.SessionEnded // it says so, and its process stays
			}
			if podstate.Alive(pod) {
				held = max(held, w.now.Sub(s.StageStartTime.Time))
			}
		}
		w.play()
		w.now = w.now.Add(2 * podstate.ExitGrace)
		w.reportFacts()
		w.settle()
		pod := w.groupPod("n00005")
		if s := w.span(); len(s.Culprits) != 1 || s.Culprits[0].Node != "n00005" || (pod != nil) != ends ||
			pod != nil && podstate.Alive(pod) || held > podstate.ExitGrace {
			t.Errorf("it ends by itself: %v; culprits %v, pod left: %v, held for %s",
				ends, s.Culprits, pod != nil, held)
		}
	}
}

// TestKeptPodsOfTheGroupsStage: those that ended by themselves are kept after a failure; a pass leaves none.
func TestKeptPodsOfTheGroupsStage(t *testing.T) {
	for _, hang := range [][]int{nil, {5}} {
		w := newGroupWorld(t, 6, faults{hangNodes: hang}, nil)
		w.play()
		w.now = w.now.Add(2 * podstate.ExitGrace)
		w.reportFacts()
		w.settle()
		kept := map[string]bool{}
		for _, pod := range w.pods {
			kept[pod.Labels[v1alpha1.LabelNode]] = true
		}
		if verdict := w.span().Verdict; len(hang) > 0 && (verdict != v1alpha1.VerdictFail || len(kept) == 0) ||
			len(hang) == 0 && len(kept) > 0 {
			t.Errorf("hang %v: stage %s, pods of %v are kept", hang, verdict, kept)
		}
		if w.alive() > 0 {
			t.Errorf("%d pods hold GPUs", w.alive())
		}
	}
}
