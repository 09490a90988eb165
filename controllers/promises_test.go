package controllers

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// What could be taken out of the code with all other tests still green.

// TestOldStatusTakesNoStageAway: a status of run 1 says nothing of pods of run 2's group stage.
func TestOldStatusTakesNoStageAway(t *testing.T) {
	w := tableWorld(t, fromGroupReady)
	past := w.group.DeepCopy()
	w.request("2")
	w.playUntil(func() bool {
		return w.span() != nil && w.span().RunID == "1-2" && w.span().Stage == v1alpha1.StageGroup && w.alive() == 4
	})
	takesNothingAway(t, w, past)
}

// TestNoNodeIsMeasuredThatARunOfAllMeasuresNext: once the members have changed, a run of the changed nodes takes no
// further node.
func TestNoNodeIsMeasuredThatARunOfAllMeasuresNext(t *testing.T) {
	w := readyWorld(t, 3)
	w.reboot("n00001", "boot-2")
	w.settle()
	w.nodes = append(slices.Clone(w.nodes), testkit.Node("n00009", nil))
	w.settle()
	w.reboot("n00002", "boot-2")
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Phase != v1alpha1.RunPhaseRunning ||
		!slices.Equal(w.assignedTo(), []string{"n00001"}) {
		t.Errorf("run %+v on %v", run, w.assignedTo())
	}
	w.measure(v1alpha1.VerdictPass, "n00001")
	if run := w.group.Status.Run; run.Trigger != state.TriggerMembersChanged {
		t.Errorf("run %+v", run)
	}
}

// TestAChangedNodeIsTakenIntoTheRunOnceItCanBeMeasured, and not before: right after a boot its GPUs are often not there
// yet.
func TestAChangedNodeIsTakenIntoTheRunOnceItCanBeMeasured(t *testing.T) {
	w := readyWorld(t, 3)
	w.reboot("n00001", "boot-2")
	w.settle()
	w.reboot("n00002", "boot-2")
	w.nodes = slices.Clone(w.nodes)
	w.nodes[2].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "0")
	w.settle()
	if closed := w.commTask("n00002").Spec.Run.Closed; closed != nil ||
		!slices.Equal(w.assignedTo(), []string{"n00001"}) || w.group.Status.Members.Stale != 1 {
		t.Fatalf("closed %+v, run on %v, members %+v", closed, w.assignedTo(), w.group.Status.Members)
	}
	w.nodes[2].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "8")
	w.settle()
	if got := w.assignedTo(); w.group.Status.Run.ID != "1-2" || !slices.Equal(got, []string{"n00001", "n00002"}) {
		t.Errorf("run %s on %v", w.group.Status.Run.ID, got)
	}
}

// TestALostResultTellsWhatToDo: a CommTask that someone deletes takes the node's result along; nothing measures it
// again by itself.
func TestALostResultTellsWhatToDo(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"CommTask": func(w *world) { delete(w.commTasks, v1alpha1.CommTaskName(w.group.Name, "n00001")) },
		"report":   func(w *world) { w.commTask("n00001").Status.Run = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := readyWorld(t, 3)
			lose(w)
			w.settle()
			w.reportFacts()
			w.settle()
			w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonInconclusive,
				"The result of n00001 is gone", runs.Ask(w.group))
			if run := w.group.Status.Run; run.ID != "1-1" {
				t.Errorf("and yet run %s follows", run.ID)
			}
			w.request("now")
			w.runAll(300_000)
			w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

// TestAReadyReportOfAnEarlierPodIsNoReadyMember: the agent was ready, its pod was lost while others were waited for,
// and the next one has not started.
func TestAReadyReportOfAnEarlierPodIsNoReadyMember(t *testing.T) {
	w := tableWorld(t, fromWaiting)
	w.settle()
	w.faults.neverReady = []int{2}
	w.playAgents()
	w.losePod(3)
	w.settle()
	w.faults.neverReady = nil
	w.playAgents()
	w.settle()
	pod := w.groupPod(w.nodes[3].Name)
	if s := w.span(); pod == nil || pod.Spec.NodeName != "" || s.Stage != v1alpha1.StageWaitingForMembers ||
		s.Present != 4 {
		t.Fatalf("pod %v, %+v", pod, s)
	}
	startPod(pod, w.nodes[3].Name, w.now)
	if w.settle(); w.span().Stage != v1alpha1.StageGroup {
		t.Errorf("all are ready: %+v", w.span())
	}
}

// TestAnAbortBeforeTheStageTellsNothingOfIt: nothing of it had begun.
func TestAnAbortBeforeTheStageTellsNothingOfIt(t *testing.T) {
	w := tableWorld(t, fromAlone)
	w.events = nil
	w.setState(v1alpha1.RunSuspended)
	w.settle()
	for _, e := range w.events {
		if e.Action == "EndGroupStage" {
			t.Errorf("%+v", e)
		}
	}
	if s := w.span(); s.Stage != v1alpha1.StageEnded || s.Verdict != v1alpha1.VerdictSkipped {
		t.Errorf("%+v", s)
	}
}

// TestBinaryDataIsAChangeByHand: pods get it as files and variables, too.
func TestBinaryDataIsAChangeByHand(t *testing.T) {
	w := readyWorld(t, 1)
	w.configMap.BinaryData = map[string][]byte{"NCCL_DEBUG": []byte("TRACE")}
	w.request("now")
	w.step()
	w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionFalse, v1alpha1.ReasonConfigMapChanged)
}

// TestACommTaskThatLostWhatTiesItToTheGroupGetsItBack: without its owner it would outlive the group, without its labels
// nobody finds it.
func TestACommTaskThatLostWhatTiesItToTheGroupGetsItBack(t *testing.T) {
	for name, lose := range map[string]func(*v1alpha1.CommTask){
		"owner":         func(ct *v1alpha1.CommTask) { ct.OwnerReferences = nil },
		"another owner": func(ct *v1alpha1.CommTask) { ct.OwnerReferences[0].UID = "uid-of-another" },
		"label":         func(ct *v1alpha1.CommTask) { delete(ct.Labels, v1alpha1.LabelGroupUID) },
		"node's label":  func(ct *v1alpha1.CommTask) { ct.Labels[v1alpha1.LabelNode] = "another" },
	} {
		w := readyWorld(t, 1)
		ct := w.commTask("n00000")
		labels, owner := ct.DeepCopy().Labels, ct.DeepCopy().OwnerReferences[0]
		lose(ct)
		w.settle()
		is := w.commTask("n00000")
		for key, value := range labels {
			if is.Labels[key] != value {
				t.Errorf("%s: label %s is %q, want %q", name, key, is.Labels[key], value)
			}
		}
		if !slices.ContainsFunc(is.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
			t.Errorf("%s: owners %+v", name, is.OwnerReferences)
		}
	}
}

// TestATaskWhoseTestIsOverIsWithdrawn: a member is lost in a search, and with it the test that it was in; the agents
// that wait for it there are told that nobody waits for theirs any more.
func TestATaskWhoseTestIsOverIsWithdrawn(t *testing.T) {
	w := newGroupWorld(t, 8, faults{hangNodes: []int{5}}, nil)
	w.playUntil(func() bool {
		s := w.span()
		return s.Stage == v1alpha1.StageLocalizing && len(w.tasks[s.Tests[len(s.Tests)-1].ID]) > 0
	})
	var id string
	var others []string
	for i := range w.nodes {
		task := w.commTask(w.nodes[i].Name).Spec.Session.Task
		switch {
		case task == nil:
		case id == "":
			id = task.ID
			w.losePod(i)
		case task.ID == id:
			others = append(others, w.nodes[i].Name)
		}
	}
	w.settle()
	if len(others) == 0 {
		t.Fatalf("nobody else has task %q: %s", id, w.tests())
	}
	for _, node := range others {
		if task := w.commTask(node).Spec.Session.Task; task != nil && task.ID == id {
			t.Errorf("%s still has task %s: %s", node, id, w.tests())
		}
	}
}

// TestAReasonThatMeansPassIsNone: an agent that could not take part, and gives a reason that would be good or none,
// makes no stage good.
func TestAReasonThatMeansPassIsNone(t *testing.T) {
	for _, reason := range []string{"", v1alpha1.ReasonAllPassed} {
		for want, spoil := range map[string]func(*groupWorld){
			v1alpha1.ReasonPreconditionFailed: func(w *groupWorld) {
				w.at(v1alpha1.TestGroup, func() {
					s := w.commTask(w.nodes[2].Name).Status.Session
					s.State, s.Reason = v1alpha1.SessionFailed, reason
				})
			},
			v1alpha1.ReasonGroupStepFailed: func(w *groupWorld) {
				w.faults.report = func(node int, ct *v1alpha1.CommTask) {
					if c := &ct.Status.Session.Task.Communicators[0]; node == 2 {
						c.Verdict, c.Reason = v1alpha1.VerdictError, reason
					}
				}
			},
		} {
			w := newGroupWorld(t, 4, faults{}, nil)
			spoil(w)
			w.play()
			if s := w.span(); s.Verdict != v1alpha1.VerdictError ||
				w.group.Status.Run.Verdict != v1alpha1.VerdictError || s.Reason != want {
				t.Errorf("reason %q: %s (%s), want %s; run %s",
					reason, s.Verdict, s.Reason, want, w.group.Status.Run.Verdict)
			}
		}
	}
}

// TestNoPodHoldsGPUsWithoutAResultOfARunThatIsOver: the report is lost, and with it the time that its agent had to end
// by itself.
func TestNoPodHoldsGPUsWithoutAResultOfARunThatIsOver(t *testing.T) {
	w := tableWorld(t, fromRunning)
	for i := range w.nodes {
		ct := w.commTask(w.nodes[i].Name)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	}
	w.settle()
	pod := w.podOn(w.nodes[0].Name)
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseFinished || !pod.DeletionTimestamp.IsZero() {
		t.Fatalf("run %+v, pod %v", run, pod.DeletionTimestamp)
	}
	w.commTask(w.nodes[0].Name).Status.Run = nil
	if w.settle(); pod.DeletionTimestamp.IsZero() {
		t.Error("the pod keeps its GPUs")
	}
}

// TestAPodThatDoesNotEndIsWaitedForAndNoLonger: run 2 waits on each node for the pod of run 1, which its kubelet does
// not end; the manager's own wakes take it on, in the nodes' part and in the group's stage.
func TestAPodThatDoesNotEndIsWaitedForAndNoLonger(t *testing.T) {
	for _, state := range []string{fromRunning, fromStage} {
		t.Run(state, func(t *testing.T) {
			w := tableWorld(t, state)
			w.setState(v1alpha1.RunSuspended)
			w.settle()
			begin := w.now
			w.setState(v1alpha1.RunActive)
			w.settle()
			newPods := func() (n int) {
				for _, pod := range w.pods {
					if pod.DeletionTimestamp.IsZero() && pod.Labels[v1alpha1.LabelRunID] == w.group.Status.Run.ID {
						n++
					}
				}
				return n
			}
			if n := newPods(); n > 0 || w.alive() != 4 || w.group.Status.Run.Number != 2 {
				t.Fatalf("%d pods of run %+v, %d alive", n, w.group.Status.Run, w.alive())
			}
			for range 5 {
				if newPods() == 4 {
					return
				}
				at := w.decided.WakeAt
				if limit := begin.Add(podstate.StuckAfter + 5*time.Second); at.IsZero() || at.After(limit) {
					t.Fatalf("the next look is at %s, and after %s the pods are given up", at, limit)
				}
				w.now = at
				w.settle()
			}
			t.Errorf("%d new pods %s after the old ones were told to end", newPods(), w.now.Sub(begin))
		})
	}
}

// TestNoStageIsMadeWhileAnotherRunsPodHoldsTheNode: it has its GPUs, and the manager checks again by itself.
func TestNoStageIsMadeWhileAnotherRunsPodHoldsTheNode(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, nil)
	w.playUntil(func() bool {
		s := w.span()
		return s != nil && s.Stage == v1alpha1.StageWaitingForMembers && w.groupPod(w.nodes[1].Name) != nil
	})
	one := w.groupPod(w.nodes[1].Name)
	old := one.DeepCopy()
	old.Name, old.Labels[v1alpha1.LabelRunID] = "of-an-earlier-run", "0-9"
	startPod(old, w.nodes[1].Name, w.now)
	old.DeletionTimestamp = decision.Stamp(w.now)
	delete(w.pods, one.Name)
	w.pods[old.Name] = old
	w.settle()
	if pod := w.groupPod(w.nodes[1].Name); pod.Name != old.Name || w.decided.WakeAt.IsZero() ||
		w.decided.WakeAt.After(w.now.Add(podstate.StuckAfter+time.Second)) {
		t.Errorf("pod %s, wake at %s", pod.Name, w.decided.WakeAt)
	}
	w.now = w.now.Add(podstate.StuckAfter + time.Second)
	w.reportFacts()
	w.settle()
	if !slices.ContainsFunc(w.decided.CreatePods, func(p *corev1.Pod) bool { return p.Name == one.Name }) &&
		w.pods[one.Name] == nil {
		t.Errorf("no pod is made beside one that does not end: %+v",
			meta.FindStatusCondition(w.group.Status.Conditions, cRunning))
	}
}

// TestOwnWakesCloseWhatNeverStarts: a monitor that never reports and a pod that never starts hold up a run until their
// deadlines, which the manager keeps by its own wakes.
func TestOwnWakesCloseWhatNeverStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		silent bool
		reason string
	}{
		"monitor": {true, v1alpha1.ReasonAgentNotReporting},
		"pod":     {false, v1alpha1.ReasonRunPodUnschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testkit.Group(), testkit.Nodes(2))
			w.settle()
			// so that the wait for the monitors, which begins with their CommTasks, ends before
			w.now = w.now.Add(100 * time.Second)
			for i := range w.nodes {
				if i == 0 || !tc.silent {
					facts := testkit.Facts(w.now)
					facts.ValidForSeconds = 7200
					w.setFacts(w.nodes[i].Name, facts)
				}
			}
			w.settle()
			w.measure(v1alpha1.VerdictPass, w.nodes[0].Name)
			run := w.group.Status.Run
			limit := run.StartTime.Add(decision.Seconds(w.group.Spec.Run.StartDeadlineSeconds) + time.Second)
			for range 10 {
				if run = w.group.Status.Run; run.Phase == v1alpha1.RunPhaseFinished {
					break
				}
				if at := w.decided.WakeAt; at.IsZero() || at.After(limit) {
					t.Fatalf("the next look is at %s, and the deadline at %s", at, limit)
				}
				w.now = w.decided.WakeAt
				w.settle()
			}
			if closed := w.commTask(w.nodes[1].Name).Spec.Run.Closed; run.Phase != v1alpha1.RunPhaseFinished ||
				closed == nil || closed.Reason != tc.reason {
				t.Errorf("run %+v, closed %+v", run, closed)
			}
		})
	}
}

// TestCulpritsOfTheRunThatIsRepeated stay until the repeat ends, under its id.
func TestCulpritsOfTheRunThatIsRepeated(t *testing.T) {
	w := readyWorld(t, 2)
	w.nodes[1].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "7")
	w.settle()
	if s := w.group.Status; len(s.Culprits) != 1 || s.CulpritsRunID != "1-1" || s.EarlierCulpritsRun() != "" {
		t.Fatalf("culprits %+v of run %q in run %s", s.Culprits, s.CulpritsRunID, s.Run.ID)
	}
	w.request("now")
	w.settle()
	s := &w.group.Status
	if s.Run.ID != "1-2" || s.Run.Phase != v1alpha1.RunPhaseRunning || len(s.Culprits) != 1 ||
		s.EarlierCulpritsRun() != "1-1" {
		t.Errorf("culprits %+v of run %q in run %s (%s)", s.Culprits, s.CulpritsRunID, s.Run.ID, s.Run.Phase)
	}
}
