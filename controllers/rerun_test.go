package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// readyWorld is a group of which every member passed run 1-1.
func readyWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := newWorld(testkit.Group(), testkit.Nodes(nodes))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.events = nil
	return w
}

func (w *world) want(t *testing.T, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	c := meta.FindStatusCondition(w.group.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		t.Fatalf("%s is %+v, expected %s/%s", kind, c, status, reason)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			t.Errorf("%s says %q, without %q", kind, c.Message, word)
		}
	}
}

func (w *world) reboot(node, boot string) { w.factsOn(node).BootID = boot }

// measure lets the nodes that have a pod report, as the agent would.
func (w *world) measure(verdict v1alpha1.Verdict, nodes ...string) {
	for _, node := range nodes {
		pod, ct := w.podOn(node), w.commTask(node)
		startPod(pod, node, w.now)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, verdict, 300_000, w.now)
		ct.Status.Run.BootID = w.factsOn(ct.Spec.NodeName).BootID
		endPod(pod, 0, w.now)
	}
	w.settle()
}

// assignedTo are the nodes whose assignment is of the present run.
func (w *world) assignedTo() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		if ct := w.commTasks[name]; runs.Assigned(ct, w.group.Status.Run.ID) {
			names = append(names, ct.Spec.NodeName)
		}
	}
	return names
}

func (w *world) count(reason string) int {
	n := 0
	for _, e := range w.events {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func TestOnlyTheRebootedNodeRunsAgain(t *testing.T) {
	w := readyWorld(t, 3)
	reports := w.commTask("n00000").Status.Run.DeepCopy()
	w.reboot("n00001", "boot-2")
	w.step()
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale, "n00001")
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale, "1 of 3", "n00001",
		"boot-1 and is boot-2", "Run 1-2 is going on")
	if s := w.group.Status; s.Run.ID != "1-2" || s.Run.Trigger != state.TriggerNodesChanged || s.Run.Since != 1 ||
		s.Members.Stale != 1 || s.Members.Passed != 2 {
		t.Fatalf("run %+v, members %+v", s.Run, s.Members)
	}
	if a := w.commTask("n00001").Spec.Run; a.Stale == nil ||
		a.Stale.Reason != v1alpha1.StaleNodeRebooted || a.ID != "1-1" {
		t.Errorf("assignment %+v", a)
	}
	w.settle()
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale,
		"Run 1-2 measures 1 of 3 members again", "n00001")
	if got := w.assignedTo(); !slices.Equal(got, []string{"n00001"}) || len(w.pods) != 1 {
		t.Fatalf("run 1-2 has %v and %d pods", got, len(w.pods))
	}
	if m := w.group.Status.Members; m.Stale != 0 || m.Passed != 2 || m.Running != 1 {
		t.Errorf("members %+v", m)
	}
	if a := w.commTask("n00001").Spec.Run; a.Platform.BootID != "boot-2" || a.Number != 2 ||
		a.Stale != nil || a.Repeats != 0 {
		t.Errorf("assignment %+v", a)
	}
	w.measure(v1alpha1.VerdictPass, "n00001")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionTrue, v1alpha1.ReasonAllPassed, "All 3 members",
		"run 1-2", "number 1")
	w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionTrue, v1alpha1.ReasonPublished, "1-2")
	if s := w.group.Status; s.Results[0].Nodes != 3 || s.Members.Summary != "3/3" || s.Headline == nil {
		t.Errorf("aggregated over %d nodes, members %+v", s.Results[0].Nodes, s.Members)
	}
	if got := w.commTask("n00000").Status.Run; got.ID != reports.ID || w.commTask("n00000").Spec.Run.ID != "1-1" {
		t.Errorf("node n00000 was touched: %+v", got)
	}
	if w.count(v1alpha1.ReasonResultsStale) != 1 || w.count("RunStarted") != 1 {
		t.Errorf("events %+v", w.events)
	}
	w.now = w.now.Add(time.Hour)
	w.reportFacts()
	w.reboot("n00001", "boot-2")
	w.settle()
	if w.group.Status.Run.ID != "1-2" {
		t.Errorf("run %+v without a change", w.group.Status.Run)
	}
}

func TestStaleWhileSuspended(t *testing.T) {
	w := readyWorld(t, 2)
	w.group.Generation, w.group.Spec.Run.State = 2, v1alpha1.RunSuspended
	w.reboot("n00000", "boot-2")
	w.settle()
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale,
		"run.state is Suspended")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale)
	if s := w.group.Status; s.Run.ID != "1-1" || s.Members.Stale != 1 || w.count(v1alpha1.ReasonResultsStale) != 1 {
		t.Fatalf("run %+v, members %+v, events %+v", s.Run, s.Members, w.events)
	}
	// What was found stays found, even while nobody reports.
	w.now = w.now.Add(time.Hour)
	w.settle()
	if w.group.Status.Members.Stale != 1 || w.count(v1alpha1.ReasonResultsStale) != 1 {
		t.Errorf("members %+v, events %+v", w.group.Status.Members, w.events)
	}
	w.group.Generation, w.group.Spec.Run.State = 3, v1alpha1.RunActive
	w.settle()
	w.want(t, v1alpha1.ConditionRunning, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "its monitor does not report")
	w.reportFacts()
	w.reboot("n00000", "boot-2")
	w.settle()
	if run := w.group.Status.Run; run.ID != "3-2" || run.Trigger != state.TriggerNodesChanged ||
		!slices.Equal(w.assignedTo(), []string{"n00000"}) {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
}

// TestSuspendedInTheMiddle: a run of one changed node that is suspended is taken up again, and not paid for by all.
func TestSuspendedInTheMiddle(t *testing.T) {
	w := readyWorld(t, 3)
	w.reboot("n00002", "boot-2")
	w.settle()
	w.group.Generation, w.group.Spec.Run.State = 2, v1alpha1.RunSuspended
	w.settle()
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseAborted {
		t.Fatalf("run %+v", run)
	}
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonSuspended)
	w.group.Generation, w.group.Spec.Run.State = 3, v1alpha1.RunActive
	finishDeletions(w)
	w.settle()
	if run := w.group.Status.Run; run.ID != "3-3" || run.Trigger != state.TriggerNodesChanged || run.Since != 1 ||
		!slices.Equal(w.assignedTo(), []string{"n00002"}) {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
	w.measure(v1alpha1.VerdictPass, "n00002")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestSpecChangeMeasuresAll(t *testing.T) {
	w := readyWorld(t, 2)
	w.reboot("n00001", "boot-2")
	w.settle()
	w.group.Generation++
	w.group.Spec.Benchmark.Iterations = 99
	w.settle()
	if run := w.group.Status.Run; run.ID != "2-3" || run.Trigger != state.TriggerSpecChanged || run.Since != 3 ||
		len(w.assignedTo()) != 2 {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
}

// TestAnotherNodeJoins: a node that gets stale while a run of another goes on is measured in it, once.
func TestAnotherNodeJoins(t *testing.T) {
	w := readyWorld(t, 3)
	w.reboot("n00001", "boot-2")
	w.settle()
	w.reboot("n00002", "boot-2")
	w.settle()
	if got := w.assignedTo(); w.group.Status.Run.ID != "1-2" || !slices.Equal(got, []string{"n00001", "n00002"}) {
		t.Fatalf("run %s has %v", w.group.Status.Run.ID, got)
	}
	w.measure(v1alpha1.VerdictPass, "n00002")
	w.reboot("n00002", "boot-3")
	w.settle()
	if a := w.commTask("n00002").Spec.Run; a.ID != "1-2" || a.Stale == nil {
		t.Fatalf("measured twice in one run: %+v", a)
	}
	w.measure(v1alpha1.VerdictPass, "n00001")
	if run := w.group.Status.Run; run.ID != "1-3" || run.Since != 1 ||
		!slices.Equal(w.assignedTo(), []string{"n00002"}) {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
	if got := w.count(v1alpha1.ReasonResultsStale); got != 3 {
		t.Errorf("%d events, expected one for each finding", got)
	}
	w.measure(v1alpha1.VerdictPass, "n00002")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// TestFailingNodeIsTheLouderNews: another node's stale result does not hide it, before and during the new run.
func TestFailingNodeIsTheLouderNews(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(3))
	w.settle()
	w.reportFacts()
	w.settle()
	w.measure(v1alpha1.VerdictFail, "n00000")
	w.measure(v1alpha1.VerdictPass, "n00001", "n00002")
	w.reboot("n00001", "boot-2")
	w.step()
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionFalse, v1alpha1.ReasonAllPassed, "n00000", "1-2 goes on")
	w.settle()
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonAllPassed, "n00000")
	if w.count(v1alpha1.ReasonResultsStale) != 1 {
		t.Errorf("events %+v", w.events)
	}
}

// TestClosedNodeIsDueAfterAReboot: a node that ended in an error is measured again once it was rebooted, but not
// without end, since the run may be what brings it down.
func TestClosedNodeIsDueAfterAReboot(t *testing.T) {
	w := readyWorld(t, 2)
	w.reboot("n00001", "boot-2")
	w.settle()
	for i := range commrun.MaxRepeats + 1 {
		if got := w.assignedTo(); !slices.Equal(got, []string{"n00001"}) {
			t.Fatalf("attempt %d: run %s has %v", i, w.group.Status.Run.ID, got)
		}
		pod := w.podOn("n00001")
		startPod(pod, "n00001", w.now)
		endPod(pod, 1, w.now.Add(-time.Hour))
		w.settle()
		if closed := w.commTask("n00001").Spec.Run.Closed; closed == nil ||
			closed.Reason != v1alpha1.ReasonRunPodFailed {
			t.Fatalf("attempt %d: closure %+v", i, closed)
		}
		w.want(t, v1alpha1.ConditionValidated, metav1.ConditionFalse, v1alpha1.ReasonRunPodFailed)
		w.reboot("n00001", fmt.Sprint("boot-", 3+i))
		w.settle()
	}
	run := w.group.Status.Run
	if run.Phase != v1alpha1.RunPhaseFinished || w.group.Status.Members.Stale != 0 {
		t.Fatalf("run %+v goes on after %d bad results, members %+v", run, commrun.MaxRepeats+1, w.group.Status.Members)
	}
	w.want(t, v1alpha1.ConditionValidated, metav1.ConditionFalse, v1alpha1.ReasonRunPodFailed,
		"After 3 bad results in a row", runs.Ask(w.group))
	w.request("mended")
	w.settle()
	if run := w.group.Status.Run; run.Trigger != state.TriggerRequested || w.commTask("n00001").Spec.Run.Repeats != 0 {
		t.Fatalf("run %+v", run)
	}
}

// TestNodeThatIsNotBackYet: after a boot the monitor reports before the device plugin does, and the driver may be late.
func TestNodeThatIsNotBackYet(t *testing.T) {
	for name, tc := range map[string]struct {
		unready, ready func(*world)
		words          string
	}{
		"device plugin": {
			func(w *world) { w.nodes[1].Status.Allocatable = corev1.ResourceList{} },
			func(w *world) {
				w.nodes[1].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("8")}
			},
			"it has 0 allocatable amd.com/gpu and needs 8"},
		"driver": {
			func(w *world) {
				problem(v1alpha1.ProblemDriverNotLoaded, v1alpha1.SeverityError)(w.factsOn("n00001"))
			},
			func(w *world) { w.factsOn("n00001").Problems = nil },
			"its facts show DriverNotLoaded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := readyWorld(t, 2)
			w.reboot("n00001", "boot-2")
			tc.unready(w)
			w.settle()
			w.want(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, v1alpha1.ReasonResultsStale, tc.words)
			w.want(t, v1alpha1.ConditionRunning, metav1.ConditionFalse, v1alpha1.ReasonWaiting, tc.words)
			if w.group.Status.Run.ID != "1-1" {
				t.Fatalf("run %+v", w.group.Status.Run)
			}
			tc.ready(w)
			w.settle()
			w.measure(v1alpha1.VerdictPass, "n00001")
			w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

// TestRepeatWithAChangedNode: a repeat takes back what was shown, where a node is no longer what showed it.
func TestRepeatWithAChangedNode(t *testing.T) {
	ask := func(w *world) { w.request("again") }
	for name, change := range map[string]func(*world){
		"before it starts":  func(w *world) { w.reboot("n00001", "boot-2"); ask(w); w.step() },
		"as it is assigned": func(w *world) { ask(w); w.step(); w.reboot("n00001", "boot-2"); w.step() },
		"while it waits":    func(w *world) { ask(w); w.settle(); w.reboot("n00001", "boot-2"); w.step() },
		"after its own turn": func(w *world) {
			ask(w)
			w.settle()
			w.measure(v1alpha1.VerdictPass, "n00001")
			w.reboot("n00001", "boot-2")
			w.step()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := readyWorld(t, 2)
			change(w)
			if run := w.group.Status.Run; run.ID != "1-2" || run.Trigger != state.TriggerRequested || run.Since != 2 {
				t.Fatalf("run %+v", run)
			}
			w.want(t, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonRunInProgress)
			for range 3 {
				w.settle()
				w.measureOpen()
			}
			w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

// measureOpen lets every node that has a living pod report.
func (w *world) measureOpen() {
	for i := range w.nodes {
		if pod := w.podOn(w.nodes[i].Name); pod != nil && podstate.Alive(pod) {
			w.measure(v1alpha1.VerdictPass, w.nodes[i].Name)
		}
	}
}

// TestObjectsOfOlderVersions have neither number nor since nor platform; the report's boot id still tells of a reboot.
func TestObjectsOfOlderVersions(t *testing.T) {
	w := readyWorld(t, 3)
	w.group.Status.Run.Since = 0
	for _, ct := range w.commTasks {
		ct.Spec.Run.Number, ct.Spec.Run.Platform = 0, nil
		ct.Status.Run.BootID = "boot-1"
	}
	w.settle()
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.reboot("n00001", "boot-2")
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Since != 1 ||
		!slices.Equal(w.assignedTo(), []string{"n00001"}) {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
	w.measure(v1alpha1.VerdictPass, "n00001")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// TestAnotherPlanOfANewVersion: where the operator now plans otherwise, results of the old plan do not stand beside new
// ones.
func TestAnotherPlanOfANewVersion(t *testing.T) {
	w := readyWorld(t, 2)
	w.group.Status.Run.SpecHash = "of-an-older-version"
	w.settle()
	if w.group.Status.Run.ID != "1-1" {
		t.Fatalf("an upgrade alone started run %+v", w.group.Status.Run)
	}
	w.reboot("n00001", "boot-2")
	w.settle()
	if run := w.group.Status.Run; run.Trigger != state.TriggerSpecChanged || run.Since != run.Number ||
		len(w.assignedTo()) != 2 {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
}

func TestRunNumber(t *testing.T) {
	for _, tc := range []struct {
		id   string
		have int64
		want int64
	}{{"3-17", 0, 17}, {"3-17", 18, 18}, {"", 0, 0}, {"x", 0, 0}, {"3-", 0, 0}, {"3-y", 0, 0}} {
		if got := runs.RunNumber(&v1alpha1.RunAssignment{ID: tc.id, Number: tc.have}); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
	run := &v1alpha1.GroupRunStatus{ID: "1-5", Number: 5, Since: 3}
	for number, want := range map[int64]bool{0: false, 2: false, 3: true, 4: true, 5: false, 6: false} {
		if got := runs.Counts(&v1alpha1.RunAssignment{ID: "other", Number: number}, run); got != want {
			t.Errorf("number %d counts: %v", number, got)
		}
	}
	if !runs.Counts(&v1alpha1.RunAssignment{ID: "1-5"}, run) || runs.Counts(nil, run) {
		t.Error("the run's own assignment counts, none does not")
	}
}

// TestChangedNodeLeaves: the members changed, so that all are measured; the run of the one that left ends first.
func TestChangedNodeLeaves(t *testing.T) {
	w := readyWorld(t, 3)
	w.reboot("n00001", "boot-2")
	w.settle()
	w.nodes = slices.Delete(slices.Clone(w.nodes), 1, 2)
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-3" || run.Trigger != state.TriggerMembersChanged || run.Since != 3 ||
		len(w.assignedTo()) != 2 {
		t.Fatalf("run %+v on %v", run, w.assignedTo())
	}
}

// TestNodeThatCouldNotBeMeasuredIsRunOnceItCan: without GPUs or without its monitor a node's part of the run ends in
// Error; once both are there, a run of just that node follows, a bounded number of times.
func TestNodeThatCouldNotBeMeasuredIsRunOnceItCan(t *testing.T) {
	for name, set := range map[string]func(w *world, well bool){
		v1alpha1.ReasonNoGPUResource: func(w *world, well bool) {
			gpus := "8"
			if !well {
				gpus = "0"
			}
			w.nodes[1].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(gpus)}
		},
		v1alpha1.ReasonAgentNotReporting: func(w *world, well bool) {
			w.setFacts(w.nodes[1].Name, nil)
			if well {
				w.setFacts(w.nodes[1].Name, testkit.Facts(w.now))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testkit.Group(), testkit.Nodes(2))
			w.settle()
			w.reportFacts()
			set(w, false)
			w.runAll(300_000)
			w.now = w.now.Add(decision.Seconds(w.group.Spec.Run.StartDeadlineSeconds) + time.Second)
			w.setFacts(w.nodes[0].Name, testkit.Facts(w.now))
			w.settle()
			run := w.group.Status.Run
			if run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictError ||
				w.commTask(w.nodes[1].Name).Spec.Run.Closed.Reason != name {
				t.Fatalf("run %+v, node %+v", run, w.commTask(w.nodes[1].Name).Spec.Run)
			}
			w.setFacts(w.nodes[1].Name, testkit.Facts(w.now))
			set(w, true)
			w.runAll(300_000)
			if run := w.group.Status.Run; run.Number != 2 || run.Trigger != state.TriggerNodesChanged ||
				run.Verdict != v1alpha1.VerdictPass {
				t.Errorf("after it was mended: run %+v", run)
			}
			if n := w.commTask(w.nodes[0].Name).Spec.Run.Number; n != 1 {
				t.Errorf("the good node was measured again, by run %d", n)
			}
		})
	}
}
