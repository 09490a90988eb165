package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestOwnWakesEndWhatHoldsGPUs: the manager sleeps until the time that it asked for, and nothing else wakes it. That is
// enough: at each end of a grace or a deadline it is there.
func TestOwnWakesEndWhatHoldsGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		state  string
		happen func(*groupWorld)
		within time.Duration
	}{
		"hangs": {fromRunning, func(*groupWorld) {}, 120 * time.Second},
		"has reported and does not end": {fromRunning, func(w *groupWorld) {
			for i := range w.nodes {
				ct := w.commTask(w.nodes[i].Name)
				ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
			}
		}, podstate.ExitGrace},
		"has ended without a report": {fromRunning, func(w *groupWorld) {
			for i := range w.nodes {
				endPod(w.podOn(w.nodes[i].Name), 1, w.now)
			}
		}, podstate.ReportGrace},
	} {
		t.Run(name, func(t *testing.T) {
			w := tableWorld(t, tc.state)
			w.group.Spec.Run.NodeDeadlineSeconds = 120
			w.settle()
			begin := w.now
			tc.happen(w)
			w.settle()
			for range 5 {
				run := w.group.Status.Run
				if run.Phase == v1alpha1.RunPhaseFinished && w.alive() == 0 {
					break
				}
				if w.decided.WakeAt.IsZero() {
					t.Fatalf("nothing wakes the manager; %d pods, run %+v", w.alive(), run)
				}
				if w.now = w.decided.WakeAt; w.now.Sub(begin) > tc.within+time.Second {
					t.Fatalf("it sleeps for %s, after %s there is something to end", w.now.Sub(begin), tc.within)
				}
				w.settle()
				w.endTold()
			}
			if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseFinished || w.alive() > 0 {
				t.Errorf("%d pods, run %+v", w.alive(), run)
			}
		})
	}
}

// endTold is what kubelets do with pods that were told to end.
func (w *groupWorld) endTold() {
	for name, pod := range w.pods {
		if !pod.DeletionTimestamp.IsZero() {
			delete(w.pods, name)
		}
	}
	w.settle()
}

// TestChangedSpecProvesNothingWhileSuspended: what passed was another spec, and no run follows while the group is
// suspended.
func TestChangedSpecProvesNothingWhileSuspended(t *testing.T) {
	w := tableWorld(t, fromReady)
	w.setState(v1alpha1.RunSuspended)
	w.settle()
	w.group.Spec.Benchmark.Iterations++
	w.group.Generation++
	w.settle()
	for _, kind := range []string{cReady, cValidated} {
		if c := meta.FindStatusCondition(w.group.Status.Conditions, kind); c.Status != metav1.ConditionUnknown ||
			c.Reason != v1alpha1.ReasonSuperseded {
			t.Errorf("%s is %s (%s): %s", kind, c.Status, c.Reason, c.Message)
		}
	}
}
