package controllers

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestRunsOfAllOutlastRunsOfSome: however many nodes reboot or are tried again, the trend and the budget's estimate
// keep what they rest on, the newest run is never lost, and archives go the same way.
func TestRunsOfAllOutlastRunsOfSome(t *testing.T) {
	w := passedOnce(t, 3, func(g *state.Group) { g.Spec.Run.MaxGPUMinutesPerDay = 1_000_000 })
	for i := range history.KeptWhole + 1 {
		w.request(fmt.Sprint(i))
		w.runAll(300_000)
	}
	for i := range w.group.Status.History {
		w.group.Status.History[i].GPUMinutes = 600
	}
	for i := range 2 * history.MaxRuns {
		w.rebooted("n00001", fmt.Sprint("boot-", i+2))
		w.runAll(300_000)
		h := w.group.Status.History
		whole := 0
		for j := range h {
			if h[j].Trigger != state.TriggerNodesChanged {
				whole++
			}
		}
		if run := w.group.Status.Run; run.Trigger != state.TriggerNodesChanged || h[0].ID != run.ID ||
			whole < history.KeptWhole || len(h) > history.MaxRuns {
			t.Fatalf("after %d runs of some: run %s %s, history %+v", i+1, run.ID, run.Trigger, h)
		}
	}
	if got := w.group.Status.Trend; got != v1alpha1.TrendStable {
		t.Errorf("trend %s", got)
	}
	if minutes, why := history.Estimate(&w.group.Spec, w.group.Status.History, 3); minutes != 600 {
		t.Errorf("estimate %d (%s)", minutes, why)
	}
}

// TestHistoryTellsTheGroupsFirstFigure: what a run showed of the whole group, not what is left without the culprit.
func TestHistoryTellsTheGroupsFirstFigure(t *testing.T) {
	for name, tc := range map[string]struct {
		faults faults
		mbps   int64
		nodes  int32
	}{
		"all good":   {faults{}, goodMBps, 6},
		"a slow one": {faults{slowNodes: []int{4}}, badMBps, 6},
		"one hangs":  {faults{hangNodes: []int{4}}, goodMBps, 5}, // the whole group gave no figure
	} {
		w := newGroupWorld(t, 6, tc.faults, nil)
		w.play()
		h := w.group.Status.History
		if len(h) != 1 || h[0].GroupBusBandwidthMBps == nil || *h[0].GroupBusBandwidthMBps != tc.mbps ||
			h[0].GroupNodes != tc.nodes {
			t.Errorf("%s: history %+v, tests %s", name, h, w.tests())
		}
		// kubectl get shows the same figure, while the run goes on and after it.
		if one := w.group.Status.Headline; one == nil || one.GroupBusBandwidthMBps == nil ||
			*one.GroupBusBandwidthMBps != tc.mbps || one.GroupNodes != tc.nodes {
			t.Errorf("%s: headline %+v, tests %s", name, one, w.tests())
		}
	}
}

// TestHistoryOfRuns: runs that end are in the history with what they held, also where the status write after them is
// lost.
func TestHistoryOfRuns(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.group.Spec.Run.MaxGPUMinutesPerDay = 10_000
	w.step()
	w.reportFacts()
	w.settle()
	for _, n := range w.nodes {
		startPod(w.podOn(n.Name), n.Name, w.now)
	}
	w.now = w.now.Add(3 * time.Minute)
	for _, n := range w.nodes {
		ct := w.commTask(n.Name)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
		ct.Status.Run.StartTime = *decision.Stamp(w.now.Add(-150 * time.Second))
		endPod(w.podOn(n.Name), 0, w.now)
	}
	lost := w.group.Status.DeepCopy() // the write of this reconcile's status
	w.step()
	first := w.group.Status.History
	w.group.Status = *lost
	w.settle()
	h := w.group.Status.History
	if len(h) != 1 || len(first) != 1 || h[0].GPUMinutes != first[0].GPUMinutes {
		t.Fatalf("history %+v, expected one entry as before the write was lost: %+v", h, first)
	}
	if want := int64(2 * 8 * 150 / 60); h[0].GPUMinutes != want || w.group.Status.Budget.UsedGPUMinutes != want {
		t.Errorf("%d GPU-minutes, budget %+v, expected %d", h[0].GPUMinutes, w.group.Status.Budget, want)
	}
	if one := w.group.Status.Headline; one == nil || one.GroupBusBandwidthMBps != nil || one.GroupNodes != 0 {
		t.Errorf("span Node: headline %+v", one)
	}
	if h[0].Members != "2/2" || h[0].Verdict != v1alpha1.VerdictPass || h[0].BusBandwidthMBps == nil ||
		h[0].Headline == "" || h[0].BaselineKey == "" {
		t.Errorf("entry %+v", h[0])
	}
	if got := w.group.Status.Trend; got != v1alpha1.TrendUnknown {
		t.Errorf("trend %q of one run", got)
	}
	// Aborted runs are in it, too, with what their pods have held by then: by run.state, and by a change of the spec,
	// after which the next one begins at once.
	w.request("now")
	w.settle()
	startPod(w.podOn(w.nodes[0].Name), w.nodes[0].Name, w.now)
	w.now = w.now.Add(60 * time.Second)
	w.group.Spec.Run.State = v1alpha1.RunSuspended
	w.settle()
	h = w.group.Status.History
	if len(h) != 2 || h[0].ID != "1-2" || h[0].Verdict != "" || h[0].GPUMinutes != 8 ||
		w.group.Status.Budget.UsedGPUMinutes != 48 {
		t.Errorf("after the abort: %+v, budget %+v", h, w.group.Status.Budget)
	}
	w.pods = map[string]*corev1.Pod{}
	w.group.Spec.Run.State = v1alpha1.RunActive
	w.request("once more")
	w.settle()
	startPod(w.podOn(w.nodes[1].Name), w.nodes[1].Name, w.now)
	w.now = w.now.Add(120 * time.Second)
	w.reportFacts()
	w.group.Spec.Benchmark.Iterations++
	w.group.Generation++
	w.settle()
	h = w.group.Status.History
	if len(h) != 3 || h[0].ID != "1-3" || h[0].Verdict != "" || h[0].Reason != v1alpha1.ReasonSuperseded ||
		h[0].GPUMinutes != 16 || w.group.Status.Budget.UsedGPUMinutes != 64 {
		t.Errorf("after a change of the spec: %+v, budget %+v", h, w.group.Status.Budget)
	}
	if run := w.group.Status.Run; run.ID != "2-4" || run.Phase != v1alpha1.RunPhaseRunning {
		t.Errorf("run %+v", run)
	}
}
