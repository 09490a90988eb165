package controllers

import (
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// longFacts lets the monitors' facts hold for long, so that their end wakes nobody.
func (w *groupWorld) longFacts() {
	for _, ct := range w.commTasks {
		w.setFacts(ct.Spec.NodeName, testkit.Facts(w.now))
		w.factsOn(ct.Spec.NodeName).ValidForSeconds = 36_000
	}
	w.settle()
}

// TestOwnWakesOfTheStage: it checks again by itself when the wait for its members ends, and when a pod's last report is
// due.
func TestOwnWakesOfTheStage(t *testing.T) {
	w := tableWorld(t, fromWaiting)
	w.longFacts()
	if at, limit := w.decided.WakeAt, w.span().StageDeadline.Time; at.IsZero() || at.After(limit) {
		t.Errorf("members are waited for until %s, and the next look is at %s", limit, at)
	}
	w = tableWorld(t, fromStage)
	w.longFacts()
	endPod(w.groupPod(w.nodes[0].Name), 1, w.now)
	w.settle()
	if at, limit := w.decided.WakeAt, w.now.Add(podstate.ReportGrace); at.IsZero() || at.After(limit) ||
		w.span().LeftSet != "" {
		t.Errorf("the report of a pod that has ended is waited for until %s, and the next look is at %s; left %q",
			limit, at, w.span().LeftSet)
	}
}

// TestAnotherSpecProvesNothingHoweverLateItsRunStarts: the spec changed while no monitor reported, so that its run
// starts when the status has long seen the change.
func TestAnotherSpecProvesNothingHoweverLateItsRunStarts(t *testing.T) {
	w := tableWorld(t, fromReady)
	w.now = w.now.Add(time.Hour)
	w.group.Spec.Benchmark.Iterations++
	w.group.Generation++
	w.settle()
	if s := &w.group.Status; s.Run.Number != 1 || s.ObservedGeneration != w.group.Generation {
		t.Fatalf("run %+v, generation %d seen", s.Run, s.ObservedGeneration)
	}
	w.reportFacts()
	w.settle()
	if run := w.group.Status.Run; run.Number != 2 || run.ProvenRunID != "" ||
		condition(w.group, v1alpha1.ConditionSettingsPublished) != "False" {
		t.Errorf("run %+v, published %s", run, condition(w.group, v1alpha1.ConditionSettingsPublished))
	}
}

// TestASpecThatJudgesOtherwiseProvesNothingAtOnce: what only judges changes together with a request; the verdict by it
// is not known yet.
func TestASpecThatJudgesOtherwiseProvesNothingAtOnce(t *testing.T) {
	w := tableWorld(t, fromReady)
	*w.group.Spec.Benchmark.NodeMinPercentOfMedian = 99
	w.group.Generation++
	w.request("now")
	w.settle()
	if run := w.group.Status.Run; run.Number != 2 || run.ProvenRunID != "" ||
		condition(w.group, cValidated) != "Unknown" {
		t.Errorf("run %+v, Validated %s", run, condition(w.group, cValidated))
	}
}

// TestAReportWithoutAVerdictIsNone: it is finished, and says nothing.
func TestAReportWithoutAVerdictIsNone(t *testing.T) {
	w := tableWorld(t, fromRunning)
	for i := range w.nodes {
		ct := w.commTask(w.nodes[i].Name)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	}
	w.commTask(w.nodes[0].Name).Status.Run.Verdict = ""
	w.settle()
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("it ends with %+v", run)
	}
	w.now = w.now.Add(decision.Seconds(w.group.Spec.Run.NodeDeadlineSeconds))
	w.reportFacts()
	w.settle()
	if closed := w.commTask(w.nodes[0].Name).Spec.Run.Closed; closed == nil ||
		closed.Reason != v1alpha1.ReasonRunDeadlineExceeded {
		t.Errorf("closed %+v", closed)
	}
}
