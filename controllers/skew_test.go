package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// written is what the API server and the cache make of a monitor's report: the record of its write, with the server's
// time.
func written(cn *v1alpha1.CommNode, at time.Time) {
	cn.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManagerMonitor,
		Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: decision.Stamp(at)}}
}

var clocksOff = []time.Duration{-24 * time.Hour, -11 * time.Minute, -6 * time.Minute, 6 * time.Minute,
	11 * time.Minute, 24 * time.Hour}

// TestClocksApartNeverFlap: whatever the clock of a node says, its monitor reports as long as it does; the clock is
// told once; and reports that only confirm make no write.
func TestClocksApartNeverFlap(t *testing.T) {
	for _, skew := range clocksOff {
		t.Run(skew.String(), func(t *testing.T) {
			w := newWorld(testkit.SpanGroup(4, nil), testkit.Nodes(4))
			w.settle()
			odd := w.nodes[2].Name
			report := func() {
				for _, ct := range w.commTasks {
					at := w.now
					if ct.Spec.NodeName == odd {
						at = at.Add(skew)
					}
					written(w.setFacts(ct.Spec.NodeName, testkit.Facts(at)), w.now)
				}
			}
			report()
			w.settle()
			before := w.group.Status.DeepCopy()
			for i := range 61 { // an hour, a look each minute, a report each five
				if i%5 == 0 {
					report()
				}
				w.settle()
				w.want(t, v1alpha1.ConditionAgentsReporting, metav1.ConditionTrue,
					v1alpha1.ReasonAllReporting, "ClockSkew")
				for j := range before.Conditions {
					a, b := before.Conditions[j], w.group.Status.Conditions[j]
					if a.Type == v1alpha1.ConditionAgentsReporting && a != b {
						t.Fatalf("after %d min: %+v, was %+v", i, b, a)
					}
				}
				w.now = w.now.Add(time.Minute)
			}
			told := 0
			for _, e := range w.events {
				if e.Reason == v1alpha1.ReasonClockSkew && e.Warning && strings.Contains(e.Note, odd) &&
					!strings.Contains(e.Note, w.nodes[1].Name) {
					told++
				}
			}
			if told != 1 {
				t.Errorf("told %d times", told)
			}
			// Its monitor dies: that is seen as late, or early, as of any other.
			last := w.now.Add(-time.Minute)
			cn := w.commNodes[odd]
			if end := last.Add(600 * time.Second); !nodefacts.Hold(cn, end.Add(-time.Second)) ||
				nodefacts.Hold(cn, end) {
				t.Errorf("the report holds until %s, want %s", nodefacts.HoldUntil(cn), end)
			}
		})
	}
}

// TestNodesTimesAreCorrected: deadlines that rest on what a node's kubelet or agent wrote end when they should.
func TestNodesTimesAreCorrected(t *testing.T) {
	for _, skew := range append(clocksOff, 0) {
		w := tableWorld(t, fromRunning)
		for i := range w.nodes {
			written(w.setFacts(w.nodes[i].Name, testkit.Facts(w.now.Add(skew))), w.now)
		}
		for _, pod := range w.pods {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: *decision.Stamp(w.now.Add(skew))}}}}
		}
		began := w.now
		limit := decision.Seconds(w.group.Spec.Run.NodeDeadlineSeconds)
		for _, at := range []struct {
			after time.Duration
			want  v1alpha1.RunPhase
		}{{limit - time.Second, v1alpha1.RunPhaseRunning}, {limit + time.Second, v1alpha1.RunPhaseFinished}} {
			w.now = began.Add(at.after)
			for i := range w.nodes {
				written(w.setFacts(w.nodes[i].Name, testkit.Facts(w.now.Add(skew))), w.now)
			}
			w.settle()
			if got := w.group.Status.Run.Phase; got != at.want {
				t.Errorf("clock %s ahead, %s after the start: %s, want %s", skew, at.after, got, at.want)
			}
		}
	}
}

// TestWhatTheCacheKeeps: of the managed fields only when the monitor wrote; a patch never carries them.
func TestWhatTheCacheKeeps(t *testing.T) {
	at := metav1.NewTime(testkit.Now)
	entry := func(manager string, op metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: "status", Time: &at,
			FieldsV1: &metav1.FieldsV1{}}
	}
	cn := &v1alpha1.CommNode{}
	cn.ManagedFields = []metav1.ManagedFieldsEntry{entry(v1alpha1.FieldManagerController,
		metav1.ManagedFieldsOperationUpdate), entry(v1alpha1.FieldManagerRun, metav1.ManagedFieldsOperationApply),
		entry(v1alpha1.FieldManagerMonitor, metav1.ManagedFieldsOperationApply)}
	if _, err := trimCommNode(cn); err != nil || len(cn.ManagedFields) != 1 ||
		cn.ManagedFields[0].Manager != v1alpha1.FieldManagerMonitor || cn.ManagedFields[0].FieldsV1 != nil {
		t.Errorf("kept %+v, error %v", cn.ManagedFields, err)
	}
	cn.ManagedFields = cn.ManagedFields[:0]
	if _, err := trimCommNode(cn); err != nil || len(cn.ManagedFields) != 0 {
		t.Errorf("kept %+v, error %v", cn.ManagedFields, err)
	}
}

// TestReportsOfClocksApartThatCount: such a report, too, is slept through while the one before holds; a clock that goes
// wrong is news.
func TestReportsOfClocksApartThatCount(t *testing.T) {
	report := func(age, skew time.Duration) *v1alpha1.CommNode {
		cn := &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: testkit.Facts(testkit.Now.Add(skew - age))}}
		written(cn, testkit.Now.Add(-age))
		return cn
	}
	r := New(Dependencies{Clock: clocktesting.NewFakePassiveClock(testkit.Now)})
	for _, skew := range clocksOff {
		if r.commNodeChanged(report(5*time.Minute, skew), report(0, skew)) {
			t.Errorf("%s: a report that confirms wakes the group", skew)
		}
		if !r.commNodeChanged(report(10*time.Minute, skew), report(0, skew)) {
			t.Errorf("%s: a report after a silence does not wake the group", skew)
		}
		if !r.commNodeChanged(report(5*time.Minute, 0), report(0, skew)) ||
			!r.commNodeChanged(report(5*time.Minute, skew), report(0, 0)) {
			t.Errorf("%s: a clock that goes wrong, or right, does not wake the group", skew)
		}
	}
}
