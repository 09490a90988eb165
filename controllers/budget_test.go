package controllers

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestBudgetWaitsForTheNextDay: a scheduled run that does not fit today starts right after midnight, and a user's at
// once.
func TestBudgetWaitsForTheNextDay(t *testing.T) {
	g := testkit.Group()
	g.Spec.Run.Schedule = "0 * * * *"
	g.Spec.Run.MaxGPUMinutesPerDay = 100
	w := newWorld(g, testkit.Nodes(2))
	w.step()
	w.reportFacts()
	w.runAll(300_000)
	w.group.Status.Budget.UsedGPUMinutes = 99
	w.now = w.now.Add(2 * time.Hour)
	w.reportFacts()
	w.settle()
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	if run := w.group.Status.Run; run.Number != 1 ||
		!w.decided.WakeAt.Equal(midnight) && w.decided.WakeAt.After(midnight) {
		t.Fatalf("run %+v, wake at %s", run, w.decided.WakeAt)
	}
	found := false
	for _, c := range w.group.Status.Conditions {
		found = found || c.Type == v1alpha1.ConditionRunning && c.Reason == v1alpha1.ReasonWaiting &&
			strings.Contains(c.Message, "99 used")
	}
	if !found {
		t.Errorf("nobody is told: %+v", w.group.Status.Conditions)
	}
	before := w.group.Status.DeepCopy()
	w.now = w.now.Add(time.Minute)
	if w.settle(); !objects.Same(before, &w.group.Status) {
		t.Error("the status changes while it waits")
	}
	w.now = midnight
	w.reportFacts()
	w.settle()
	if run := w.group.Status.Run; run.Number != 2 || run.Trigger != state.TriggerScheduled ||
		w.group.Status.Budget.UsedGPUMinutes != 0 {
		t.Errorf("after midnight: %+v, %+v", run, w.group.Status.Budget)
	}
	w.runAll(300_000)
	w.group.Status.Budget.UsedGPUMinutes = 100
	w.request("x")
	w.settle()
	if run := w.group.Status.Run; run.Number != 3 || run.Trigger != state.TriggerRequested {
		t.Errorf("a person's request waits: %+v", run)
	}
}

// TestBudgetBoundsAbortedRuns: a spec that is changed again and again in the middle of runs holds no more GPUs than the
// day's budget.
func TestBudgetBoundsAbortedRuns(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.group.Spec.Run.MaxGPUMinutesPerDay = 500
	w.step()
	w.reportFacts()
	held := int64(0)
	for range 40 {
		w.settle()
		if w.group.Status.Run.Phase == v1alpha1.RunPhaseRunning {
			for _, n := range w.nodes {
				startPod(w.podOn(n.Name), n.Name, w.now)
			}
			held += 2 * 8 * 10
		}
		w.now = w.now.Add(10 * time.Minute)
		w.reportFacts()
		w.group.Spec.Benchmark.Iterations++
		w.group.Generation++
		w.settle()
		maps.DeleteFunc(w.pods, func(_ string, pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() })
	}
	if b := w.group.Status.Budget; b.UsedGPUMinutes != held || held == 0 || held > b.LimitGPUMinutes+160 {
		t.Errorf("%d GPU-minutes were held, budget %+v", held, b)
	}
	if !strings.Contains(w.runningSays(), "waits until") {
		t.Errorf("Running says %q", w.runningSays())
	}
}
