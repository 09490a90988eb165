package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestPreemptedNode: a node whose pod is taken away is Skipped, whatever its agent says of it, is no culprit, and is
// tried again by itself after a pause, a bounded number of times.
func TestPreemptedNode(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	w.settle()
	bad, good := w.nodes[1].Name, w.nodes[0].Name
	finish := func(node string) {
		ct := w.commTask(node)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
		endPod(w.podOn(node), 0, w.now)
	}
	preempt := func() {
		pod := w.podOn(bad)
		startPod(pod, bad, w.now.Add(-30*time.Second))
		pod.Status.Conditions = []corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget,
			corev1.ConditionTrue, "PreemptionByScheduler")}
		pod.DeletionTimestamp = decision.Stamp(w.now)
		ct := w.commTask(bad)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictError, 0, w.now)
		ct.Status.Run.Reason = v1alpha1.ReasonInterrupted
	}
	startPod(w.podOn(good), good, w.now)
	finish(good)
	preempt()
	w.settle()
	for retry := int32(0); ; retry++ {
		a := w.commTask(bad).Spec.Run
		if a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonPreempted ||
			a.Closed.Verdict != v1alpha1.VerdictSkipped || a.Closed.HeldSeconds != 30 || a.Retries != retry {
			t.Fatalf("retry %d: %+v, closed %+v", retry, a, a.Closed)
		}
		run := w.group.Status.Run
		if run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictSkipped ||
			len(w.group.Status.Culprits) > 0 {
			t.Fatalf("retry %d: run %+v, culprits %+v", retry, run, w.group.Status.Culprits)
		}
		delete(w.pods, a.PodName)
		pause := commrun.RetryPause << retry
		w.now = w.now.Add(pause - time.Second)
		w.reportFacts()
		if w.settle(); w.group.Status.Run.Number != run.Number {
			t.Fatalf("retry %d: started before the pause of %s was over", retry, pause)
		}
		if retry == commrun.MaxRetries {
			w.now = w.now.Add(24 * time.Hour)
			w.reportFacts()
			if w.settle(); w.group.Status.Run.Number != run.Number {
				t.Fatalf("tried again after %d times", retry)
			}
			return
		}
		if got := w.decided.WakeAt; got.IsZero() || got.After(w.now.Add(time.Second)) {
			t.Errorf("retry %d: wakes at %s, now is %s", retry, got, w.now)
		}
		w.now = w.now.Add(time.Second)
		w.settle()
		next := w.group.Status.Run
		if next.Number != run.Number+1 || next.Trigger != state.TriggerNodesChanged || w.podOn(bad) == nil ||
			w.podOn(good) != nil && podstate.Alive(w.podOn(good)) {
			t.Fatalf("retry %d: run %+v", retry, next)
		}
		preempt()
		w.settle()
	}
}

// TestReportBeforePreemption: a report that was whole before the pod was taken away counts.
func TestReportBeforePreemption(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.settle()
	node := w.nodes[0].Name
	startPod(w.podOn(node), node, w.now)
	ct := w.commTask(node)
	ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	w.podOn(node).Status.Conditions = []corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget,
		corev1.ConditionTrue, "PreemptionByScheduler")}
	w.settle()
	if run := w.group.Status.Run; run.Verdict != v1alpha1.VerdictPass {
		t.Errorf("run %+v", run)
	}
}

// TestQueuedPod: a pod that waits for Kueue is told as such, has its own time, and its start deadline counts from its
// place on.
func TestQueuedPod(t *testing.T) {
	g := testkit.Group()
	g.Spec.Run.QueueName = "gpus"
	w := newWorld(g, testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.settle()
	node := w.nodes[0].Name
	pod := w.podOn(node)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	w.now = w.now.Add(decision.Seconds(g.Spec.Run.StartDeadlineSeconds) + time.Minute) // 11 of 30 minutes
	w.reportFacts()
	w.settle()
	found := false
	for _, c := range w.group.Status.Conditions {
		found = found || c.Type == v1alpha1.ConditionRunning &&
			strings.Contains(c.Message, "Kueue's admission in queue gpus")
	}
	if !found || w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("while it is queued: %+v", w.group.Status.Conditions)
	}
	admitted := *pod.DeepCopy()
	w.now = pod.CreationTimestamp.Add(1800 * time.Second)
	w.reportFacts()
	w.settle()
	if a := w.commTask(node).Spec.Run; a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonWaitingForQueue ||
		a.Closed.Verdict != v1alpha1.VerdictSkipped {
		t.Fatalf("after its time: %+v", a.Closed)
	}
	// What the start deadline counts from.
	policy := &g.Spec.Run
	admitted.Spec.SchedulingGates = nil
	created := admitted.CreationTimestamp.Time
	if got := podstate.StartDeadline(&admitted, policy); !got.Equal(created.Add(2400 * time.Second)) {
		t.Errorf("admitted, with no place yet: %s after its creation", got.Sub(created))
	}
	admitted.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(created.Add(700 * time.Second))}}
	if got := podstate.StartDeadline(&admitted, policy); !got.Equal(created.Add(1300 * time.Second)) {
		t.Errorf("with a place after 700 s: %s after its creation", got.Sub(created))
	}
	delete(admitted.Labels, podstate.QueueLabel)
	if got := podstate.StartDeadline(&admitted, policy); !got.Equal(created.Add(600 * time.Second)) {
		t.Errorf("without a queue: %s after its creation", got.Sub(created))
	}
}

// inQueue is a group of so many nodes in a queue, whose stage waits for its members; taken are the GPUs of a node's
// eight.
func inQueue(t *testing.T, nodes int, taken int32, holders map[string]string) *groupWorld {
	t.Helper()
	w := newGroupWorld(t, nodes, faults{}, func(g *state.Group) {
		g.Spec.RanksPerNode, g.Spec.Run.Nodes, g.Spec.Run.QueueName, g.Spec.Members.MinMembers = taken,
			v1alpha1.NodeUseIdle, "gpus", 2
	})
	w.playNodes()
	w.holders = holders
	if w.settle(); w.span() == nil || w.span().Stage != v1alpha1.StageWaitingForMembers {
		t.Fatalf("span %+v", w.span())
	}
	return w
}

// stageInQueue is how many pods the stage has, and what Kueue reads on them.
func (w *groupWorld) stageInQueue() (pods int, marks map[string]bool) {
	marks = map[string]bool{}
	for _, pod := range w.pods {
		if ofGroupStage(pod) {
			pods++
			marks[strings.Join([]string{pod.Labels[podstate.QueueLabel], pod.Labels[podstate.PodGroupLabel],
				pod.Annotations[podstate.PodGroupCountAnnotation], pod.Annotations[podstate.NotRetriableAnnotation],
				pod.Annotations[podstate.RoleHashAnnotation]}, " ")] = true
		}
	}
	return pods, marks
}

// TestStageIsQueuedTogether: the pods that a decision makes for a stage in a queue are one group of pods, and one set
// in it, of as many as there are.
func TestStageIsQueuedTogether(t *testing.T) {
	const nodes = 20 // more than the sets that a workload takes
	w := inQueue(t, nodes, 8, nil)
	pods, marks := w.stageInQueue()
	if pods != nodes || len(marks) != 1 {
		t.Fatalf("%d pods, marks %v", pods, marks)
	}
	for mark := range marks {
		if parts := strings.Split(mark, " "); parts[0] != "gpus" || parts[1] == "" || parts[2] != "20" ||
			parts[3] != "false" || len(parts[4]) != 8 {
			t.Errorf("marks %q", mark)
		}
	}
}

// TestBusyMemberOfAQueuedStage: Kueue would wait for ever for the pod of a busy member, so that none is made before all
// can be; after half of the wait the stage goes on without it, with as many pods as it says.
func TestBusyMemberOfAQueuedStage(t *testing.T) {
	for name, getsFree := range map[string]bool{"it gets free": true, "it stays busy": false} {
		w := inQueue(t, 4, 4, map[string]string{"n00002": "prod/train (4)"})
		limit := decision.Seconds(w.group.Spec.Run.MembersDeadlineSeconds)
		want, begin := 3, w.now
		for w.now.Sub(begin) < limit/2 {
			if pods, _ := w.stageInQueue(); pods > 0 {
				t.Fatalf("%s: %d pods after %s", name, pods, w.now.Sub(begin))
			}
			if w.now = w.now.Add(sharing.BusyPoll); getsFree && w.now.Sub(begin) > limit/4 {
				w.holders, want = nil, 4
				w.reportFacts()
				w.settle()
				break
			}
			w.reportFacts()
			w.settle()
		}
		pods, marks := w.stageInQueue()
		if span := w.span(); pods != want || len(marks) != 1 || span.Stage != v1alpha1.StageWaitingForMembers ||
			int(span.Present) != want {
			t.Fatalf("%s: %d pods, marks %v, span %+v", name, pods, marks, span)
		}
		for mark := range marks {
			if !strings.Contains(mark, fmt.Sprintf(" %d false", want)) {
				t.Errorf("%s: marks %q", name, mark)
			}
		}
		if !getsFree && (!slices.Equal(w.span().Left, []string{"n00002"}) ||
			!strings.Contains(w.span().Message, "prod/train (4)")) {
			t.Errorf("%s: span %+v", name, w.span())
		}
	}
}

// TestQueuedStageTellsWhosePodIsMissing: where a pod of the stage was not made, the queue is not to blame.
func TestQueuedStageTellsWhosePodIsMissing(t *testing.T) {
	w := inQueue(t, 4, 8, nil)
	for name, pod := range w.pods {
		if ofGroupStage(pod) {
			if pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{
				{Name: "kueue.x-k8s.io/admission"}}; pod.Labels[v1alpha1.LabelNode] == "n00003" {
				delete(w.pods, name)
			}
		}
	}
	w.now = w.now.Add(decision.Seconds(w.group.Spec.Run.MembersDeadlineSeconds))
	w.reportFacts()
	w.step()
	told := false
	for _, e := range w.events {
		if strings.Contains(e.Note, "Kueue") {
			told = told || strings.Contains(e.Note, "not made: of n00003")
		}
	}
	if !told || w.span().Stage != v1alpha1.StageEnded {
		t.Errorf("span %+v", w.span())
	}
}
