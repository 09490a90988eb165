package envtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// pastStartDeadline is startDeadlineSeconds (600 s) and more: the API server stamps objects by its own clock, which
// goes on while the test's stands.
const pastStartDeadline = 700 * time.Second

func (w *world) configMap() *corev1.ConfigMap {
	w.Helper()
	cm := &corev1.ConfigMap{}
	err := admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "g-rccl-settings"}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return cm
}

// running brings the group to the point where the first run's pods are there.
func (w *world) running() {
	w.Helper()
	w.settle()
	w.reportAllFacts()
	w.settle()
	if w.group.Status.Run == nil {
		w.Fatal("no run started although all agents report")
	}
}

func TestFromApplyToReady(t *testing.T) {
	w := newWorld(t, 4, func(g *v1alpha1.CommGroup) { g.Spec.Run.MaxParallelNodes = 2 })
	w.settle()
	w.wantCondition(v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted, "4 nodes")
	w.wantCondition(v1alpha1.ConditionAgentsReporting, unknown, v1alpha1.ReasonWaitingForAgents)
	w.wantCondition(v1alpha1.ConditionRunning, no, v1alpha1.ReasonWaiting)
	w.wantCondition(v1alpha1.ConditionReady, unknown, v1alpha1.ReasonWaitingForAgents)
	last := w.commTask(w.nodes[3])
	if last.Spec.Ranks != (v1alpha1.RankRange{Summary: "24-31/32", First: 24, Count: 8, WorldSize: 32}) {
		t.Errorf("ranks of the last node: %+v", last.Spec.Ranks)
	}

	w.reportAllFacts()
	w.settle()
	w.wantCondition(v1alpha1.ConditionRunning, yes, v1alpha1.ReasonRunInProgress, "2 nodes have run pods, 2 wait")
	if run := w.group.Status.Run; run.ID != "1-1" || run.Trigger != "SpecChanged" {
		t.Errorf("run %+v", run)
	}
	if pods := w.pods(); len(pods) != 2 {
		t.Fatalf("%d run pods with maxParallelNodes 2", len(pods))
	}
	w.wantRunPod(w.podOn(w.nodes[0]), w.nodes[0])

	for i, node := range w.nodes {
		w.finish(node, 300_000+int64(i), nil)
		if n := len(w.pods()); n > 2 {
			t.Fatalf("%d run pods after node %d", n, i)
		}
	}
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, "1-1", "4")
	w.wantCondition(v1alpha1.ConditionValidated, yes, v1alpha1.ReasonAllPassed)
	w.wantCondition(v1alpha1.ConditionCompatible, yes, v1alpha1.ReasonAllCompatible)
	w.wantCondition(v1alpha1.ConditionSettingsInEffect, yes, v1alpha1.ReasonInEffect)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished, "g-rccl-settings")
	w.wantCondition(v1alpha1.ConditionSimulated, no, v1alpha1.ReasonHardware)
	w.wantCondition(v1alpha1.ConditionRunning, no, v1alpha1.ReasonRunFinished)
	s := &w.group.Status
	if s.Members.Summary != "4/4" || s.Effective != "DDA" || s.Run.Verdict != v1alpha1.VerdictPass ||
		s.Run.FinishTime == nil {
		t.Errorf("status: %+v %q %+v", s.Members, s.Effective, s.Run)
	}
	if s.Headline == nil || s.Headline.BusBandwidthMBps != 300_001 || s.Headline.SizeBytes != 1<<20 {
		t.Errorf("headline %+v", s.Headline)
	}
	cm := w.configMap()
	if cm == nil || cm.Data["RCCL_ENABLE_DDA_ALLREDUCE"] != "1" ||
		!strings.HasSuffix(cm.Data["rccl.conf"],
			"\nHSA_NO_SCRATCH_RECLAIM=1\nRCCL_DDA_NRANKS=0\nRCCL_ENABLE_DDA_ALLREDUCE=1\n") ||
		cm.Annotations[v1alpha1.AnnotationRun] != "1-1" || cm.Annotations[v1alpha1.AnnotationOrigin] != "Hardware" {
		t.Errorf("published: %+v", cm)
	}
	if n := len(w.pods()); n != 0 {
		t.Errorf("%d run pods left over", n)
	}
	sent := w.sentEvents()
	for _, want := range []string{"Normal RunStarted", "Normal RunFinished", "Normal Published", "Normal Ready"} {
		if !slices.ContainsFunc(sent, func(e string) bool { return strings.HasPrefix(e, want) }) {
			t.Errorf("no event %q among %q", want, sent)
		}
	}
	w.settle()
	if again := w.sentEvents(); len(again) != 0 {
		t.Errorf("events without a transition: %q", again)
	}
}

// wantRunPod checks what a run pod must and must not have.
func (w *world) wantRunPod(pod *corev1.Pod, node string) {
	w.Helper()
	main := pod.Spec.Containers[0]
	gpus := main.Resources.Limits[v1alpha1.ResourceGPU]
	security := main.SecurityContext
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	field := required.NodeSelectorTerms[0].MatchFields[0]
	for what, ok := range map[string]bool{
		"image": main.Image == "rocm:test" && pod.Spec.InitContainers[0].Image == agentImage,
		"command": strings.Join(main.Command, " ") == "/opt/commgroup/bin/agent run --group "+w.ns+
			"/g --node $(NODE_NAME) --run-id 1-1",
		"GPUs": gpus.Value() == 8,
		"node": pod.Spec.NodeName == "" && field.Key == "metadata.name" && field.Values[0] == node,
		"unprivileged": security.Privileged == nil && !*security.AllowPrivilegeEscalation &&
			security.Capabilities.Drop[0] == "ALL",
		"host":    !pod.Spec.HostNetwork && !pod.Spec.HostPID && !pod.Spec.HostIPC,
		"restart": pod.Spec.RestartPolicy == corev1.RestartPolicyNever && pod.Spec.ActiveDeadlineSeconds != nil,
		"account": pod.Spec.ServiceAccountName == runpod.ServiceAccount,
		"owner":   pod.OwnerReferences[0].Kind == "CommTask",
	} {
		if !ok {
			w.Errorf("run pod's %s is wrong: %+v", what, pod.Spec)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			w.Errorf("run pod mounts the host's %s", v.HostPath.Path)
		}
	}
}

func TestSpecChangeInTheMiddleOfARun(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	old := w.start(w.nodes[0])
	w.report(w.nodes[1], 300_000, nil)
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Benchmark.Iterations = 5 })
	w.settle()
	if run := w.group.Status.Run; run.ID != "2-2" || run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("run %+v", run)
	}
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(old), old))
	if old.DeletionTimestamp.IsZero() {
		t.Error("the old run's pod goes on")
	}
	// The node whose old pod still ends gets no second one.
	for _, pod := range w.pods() {
		if pod.Labels[v1alpha1.LabelRunID] == "2-2" && pod.Labels[v1alpha1.LabelNode] == w.nodes[0] {
			t.Error("the new run's pod was made beside the old one's")
		}
	}
	if got := w.commTask(w.nodes[1]).Spec.Run; got.ID != "2-2" || w.joined.Status.Plan.Iterations != 5 {
		t.Errorf("assignment %+v", got)
	}
	w.endPods()
	w.settle()
	for _, node := range w.nodes {
		w.finish(node, 300_000, nil)
	}
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, "2-2")
	if sent := w.sentEvents(); !slices.ContainsFunc(sent, func(e string) bool {
		return strings.HasPrefix(e, "Warning Superseded")
	}) {
		t.Errorf("no event of the aborted run: %q", sent)
	}
}

func TestManagerRestartInTheMiddleOfARun(t *testing.T) {
	w := newWorld(t, 3, func(g *v1alpha1.CommGroup) { g.Spec.Run.MaxParallelNodes = 1 })
	w.running()
	for _, node := range w.nodes {
		w.restart()
		w.settle()
		if n := len(w.pods()); n != 1 {
			t.Fatalf("%d run pods", n)
		}
		w.finish(node, 300_000, nil)
	}
	w.restart()
	w.settle()
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	if w.group.Status.Run.Number != 1 {
		t.Errorf("a restart made a new run: %+v", w.group.Status.Run)
	}
}

func TestReportOfAnotherRunDoesNotCount(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.start(w.nodes[0])
	for name, change := range map[string]func(*v1alpha1.NodeRunStatus){
		"run id":     func(r *v1alpha1.NodeRunStatus) { r.ID = "1-0" },
		"generation": func(r *v1alpha1.NodeRunStatus) { r.Generation = 7 },
		"unfinished": func(r *v1alpha1.NodeRunStatus) { r.Phase = v1alpha1.NodeRunRunning },
	} {
		w.report(w.nodes[0], 300_000, change)
		w.settle()
		if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseRunning || w.group.Status.Members.Passed != 0 {
			t.Fatalf("a report with another %s counted: %+v", name, run)
		}
	}
}

func TestPassWithoutResultsIsInconclusive(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, func(r *v1alpha1.NodeRunStatus) { r.Results = nil })
	w.wantCondition(v1alpha1.ConditionValidated, unknown, v1alpha1.ReasonInconclusive, "AllReduce")
	if w.configMap() != nil {
		t.Error("settings were published")
	}
}

func TestAgentNeverReports(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.settle()
	w.reportFacts(w.nodes[0], nil)
	w.settle()
	w.finish(w.nodes[0], 300_000, nil)
	if w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatal("the run ended without the silent node")
	}
	w.pass(pastStartDeadline)
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonAgentNotReporting, w.nodes[1], "never reported")
	w.wantCondition(v1alpha1.ConditionAgentsReporting, no, v1alpha1.ReasonAgentNotReporting, w.nodes[1])
	if c := w.group.Status.Culprits; len(c) != 1 || c[0].Node != w.nodes[1] {
		t.Errorf("culprits %+v", c)
	}
	if len(w.pods()) != 0 {
		t.Error("pods are left over")
	}
}

// refusesCommTasks answers the first patches of CommTasks with a conflict, as after a report of the run agent.
type refusesCommTasks struct {
	client.Client
	left int
}

func (c *refusesCommTasks) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	if _, ok := obj.(*v1alpha1.CommTask); ok && c.left > 0 {
		c.left--
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "commtasks"},
			obj.GetName(), nil)
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

func TestClosureIsWrittenBeforeTheRunEnds(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.start(w.nodes[0])
	w.settle()
	w.pass(1801 * time.Second)
	w.r.Client = &refusesCommTasks{Client: w.r.Client, left: 1}
	if _, err := w.r.Reconcile(w.ctx, w.request()); !apierrors.IsConflict(err) {
		t.Fatalf("error %v, expected a conflict", err)
	}
	w.refresh()
	if phase := w.group.Status.Run.Phase; phase != v1alpha1.RunPhaseRunning {
		t.Errorf("the run is %s, and no CommTask says how it ended", phase)
	}
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonRunDeadlineExceeded, w.nodes[0])
}

// hasNoPods is a cache that has not seen the run pods yet.
type hasNoPods struct{ client.Client }

func (c hasNoPods) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}

func TestPodMissingInTheCacheIsNotDeleted(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	if w.commTask(w.nodes[0]).Spec.Run.PodName == "" {
		t.Fatal("the CommTask does not name its pod")
	}
	w.r.Client = hasNoPods{w.r.Client}
	w.settle()
	if closed := w.commTask(w.nodes[0]).Spec.Run.Closed; closed != nil || len(w.pods()) != 1 {
		t.Fatalf("%d pods, closure %+v", len(w.pods()), closed)
	}
}

func TestNotAccepted(t *testing.T) {
	t.Run("no node matches", func(t *testing.T) {
		w := newWorld(t, 0, nil)
		w.settle()
		w.wantCondition(v1alpha1.ConditionAccepted, no, v1alpha1.ReasonNoNodesMatched, "kubectl get nodes")
		w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonNoNodesMatched)
		w.wantCondition(v1alpha1.ConditionCompatible, unknown, v1alpha1.ReasonFactsUnknown)
		w.addNode(w.ns+"-late", 8)
		w.settle()
		w.wantCondition(v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted)
	})
	t.Run("too few", func(t *testing.T) {
		w := newWorld(t, 1, func(g *v1alpha1.CommGroup) { g.Spec.Members.MinMembers = 2 })
		w.settle()
		w.wantCondition(v1alpha1.ConditionAccepted, no, v1alpha1.ReasonTooFewMembers)
	})
	t.Run("no GPU resource", func(t *testing.T) {
		w := newWorld(t, 0, nil)
		w.addNode(w.ns+"-bare", 0)
		w.settle()
		w.reportAllFacts()
		w.settle()
		w.wantCondition(v1alpha1.ConditionAccepted, no, v1alpha1.ReasonNoGPUResource, "device plugin")
		if w.group.Status.Run != nil {
			t.Error("a run started")
		}
	})
	t.Run("one node without GPU resource", func(t *testing.T) {
		w := newWorld(t, 1, nil)
		w.addNode(w.ns+"-z-bare", 4)
		w.running()
		w.finish(w.nodes[0], 300_000, nil)
		w.wantCondition(v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted, w.nodes[1])
		w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonNoGPUResource, w.nodes[1], "4 allocatable")
	})
	t.Run("no image", func(t *testing.T) {
		w := newWorld(t, 1, nil)
		w.r.Config.DefaultRuntimeImage = ""
		w.settle()
		w.wantCondition(v1alpha1.ConditionAccepted, no, v1alpha1.ReasonRuntimeImageMissing, "spec.runtime.image")
	})
}

func TestSuspendFreesTheGPUs(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	w.start(w.nodes[0])
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Run.State = v1alpha1.RunSuspended })
	w.settle()
	w.endPods()
	w.settle()
	if len(w.pods()) != 0 || w.group.Status.Run.Phase != v1alpha1.RunPhaseAborted {
		t.Fatalf("%d pods, run %+v", len(w.pods()), w.group.Status.Run)
	}
	w.wantCondition(v1alpha1.ConditionRunning, no, v1alpha1.ReasonSuspended)
	w.wantCondition(v1alpha1.ConditionReady, unknown, v1alpha1.ReasonSuspended)
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Run.State = v1alpha1.RunActive })
	w.settle()
	if w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning || len(w.pods()) != 2 {
		t.Fatalf("not resumed: %+v", w.group.Status.Run)
	}
}

func TestFurtherRuns(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) { g.Spec.Run.Schedule = "* * * * *" })
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	if w.group.Status.NextRunTime == nil {
		t.Fatal("no next run")
	}
	w.ask("please")
	w.settle()
	if run := w.group.Status.Run; run.Trigger != "Requested" || run.ID != "1-2" {
		t.Fatalf("run %+v", run)
	}
	// A repeat takes nothing back until it ends.
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
	w.finish(w.nodes[0], 300_000, nil)
	w.pass(61 * time.Second)
	w.settle()
	if run := w.group.Status.Run; run.Trigger != "Scheduled" || run.ID != "1-3" {
		t.Fatalf("run %+v", run)
	}
	w.finish(w.nodes[0], 100_000, func(r *v1alpha1.NodeRunStatus) {
		r.Verdict, r.Reason, r.Message = v1alpha1.VerdictFail, v1alpha1.ReasonBelowThreshold, "too slow"
	})
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonBelowThreshold)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonNotProven, "1-2")
	w.addNode(w.ns+"-late", 8)
	w.settle()
	w.reportAllFacts()
	w.settle()
	if run := w.group.Status.Run; run.Trigger != "MembersChanged" || run.ID != "1-4" {
		t.Fatalf("run %+v", run)
	}
}

func TestMemberLostInTheMiddleOfARun(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	w.start(w.nodes[1])
	w.must(admin.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.nodes[1]}}))
	w.settle()
	if got := w.commTask(w.nodes[1]).Spec.Run.Closed; got == nil || got.Reason != v1alpha1.ReasonMemberLost {
		t.Fatalf("closure %+v", got)
	}
	w.endPods()
	w.finish(w.nodes[0], 300_000, nil)
	run := w.group.Status.Run
	if run.Trigger != "MembersChanged" || run.ID != "1-2" {
		t.Fatalf("run %+v", run)
	}
	var nodes v1alpha1.CommTaskList
	w.must(admin.List(w.ctx, &nodes, client.InNamespace(w.ns)))
	if len(nodes.Items) != 1 {
		t.Errorf("%d CommTasks", len(nodes.Items))
	}
}

func TestReportRunsOut(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	result := w.settle()
	if result.RequeueAfter <= 0 || result.RequeueAfter > 601*time.Second {
		t.Errorf("wakes after %s, the report holds 600 s", result.RequeueAfter)
	}
	w.pass(601 * time.Second)
	w.settle()
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonAgentNotReporting)
	w.wantCondition(v1alpha1.ConditionCompatible, unknown, v1alpha1.ReasonFactsUnknown)
}
