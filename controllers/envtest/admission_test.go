package envtest

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// gpuJob makes a pod of someone else that holds GPUs of the node.
func (w *world) gpuJob(node, gpus string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: w.ns}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "train:1", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(gpus)}}}}}}
	w.must(admin.Create(w.ctx, pod))
	w.bind(pod, node)
	return pod
}

// TestJobIsLeftAlone: with run.nodes Idle no run starts on a node where a job holds some of the GPUs, the job goes on,
// and the run starts once it has ended.
func TestJobIsLeftAlone(t *testing.T) {
	w := newWorld(t, 2, func(g *v1alpha1.CommGroup) { g.Spec.RanksPerNode = 4 })
	job := w.gpuJob(w.nodes[0], "2")
	w.settle()
	w.reportAllFacts()
	w.settle()
	if pods := w.pods(); len(pods) != 1 || pods[0].Labels[v1alpha1.LabelNode] != v1alpha1.LabelValue(w.nodes[1]) {
		t.Fatalf("%d run pods beside a job: %v", len(pods), pods)
	}
	w.wantCondition(v1alpha1.ConditionRunning, yes, v1alpha1.ReasonRunInProgress, "Waiting for others: "+w.nodes[0],
		w.ns+"/train (2)")
	if a := w.commTask(w.nodes[0]).Spec.Run; a.Waiting == nil || a.Waiting.Reason != v1alpha1.ReasonNodeBusy {
		t.Errorf("waiting %+v", a.Waiting)
	}
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(job), job))
	if !job.DeletionTimestamp.IsZero() {
		t.Fatal("the job was touched")
	}
	w.must(admin.Delete(w.ctx, job, client.GracePeriodSeconds(0)))
	w.pass(time.Minute) // a busy node is looked at once in a while
	w.settle()
	if w.podOn(w.nodes[0]) == nil || w.commTask(w.nodes[0]).Spec.Run.Waiting != nil {
		t.Errorf("after the job: waiting %+v", w.commTask(w.nodes[0]).Spec.Run.Waiting)
	}
}

// TestBusyNodeIsSkipped: past the start's deadline the node is Skipped, with the job named, and tried again by itself
// later.
func TestBusyNodeIsSkipped(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) { g.Spec.RanksPerNode = 4 })
	job := w.gpuJob(w.nodes[0], "1")
	w.settle()
	w.reportAllFacts()
	w.settle()
	w.pass(pastStartDeadline)
	w.reportAllFacts()
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, unknown, v1alpha1.ReasonNodeBusy, w.nodes[0], w.ns+"/train (1)")
	w.must(admin.Delete(w.ctx, job, client.GracePeriodSeconds(0)))
	w.pass(6 * time.Minute)
	w.reportAllFacts()
	w.settle()
	// The API server's clock has not moved, so that by the manager's the new pod is past its deadline at once.
	if run, a := w.group.Status.Run, w.commTask(w.nodes[0]).Spec.Run; run.Number != 2 ||
		run.Trigger != "NodesChanged" || a.PodName == "" || a.Retries != 1 {
		t.Errorf("after the job: run %+v, assignment %+v", run, a)
	}
}

// TestPreemptedRunPod: a run pod that the scheduler takes away for another is no fault of the node.
func TestPreemptedRunPod(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	pod := w.start(w.nodes[0])
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonPreemptionByScheduler, Message: "preempting to accommodate a higher priority pod"})
	w.must(admin.Status().Update(w.ctx, pod))
	w.must(admin.Delete(w.ctx, pod))
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, unknown, v1alpha1.ReasonPreempted, w.nodes[0], "higher priority")
	if len(w.group.Status.Culprits) > 0 || w.group.Status.Run.Verdict != v1alpha1.VerdictSkipped {
		t.Errorf("run %+v, culprits %+v", w.group.Status.Run, w.group.Status.Culprits)
	}
	w.endPods()
	w.pass(6 * time.Minute)
	w.reportAllFacts()
	w.settle()
	w.finish(w.nodes[0], 300_000, nil)
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, yes, v1alpha1.ReasonAllPassed)
	h := w.group.Status.History
	if len(h) != 2 || h[0].Verdict != v1alpha1.VerdictPass || h[1].Verdict != v1alpha1.VerdictSkipped ||
		h[1].Reason != v1alpha1.ReasonPreempted {
		t.Errorf("history %+v", h)
	}
}

// TestOneRunOnANode: of two CommGroups with one node the second one's run waits for the first one's, and says so.
func TestOneRunOnANode(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	second := *w
	second.group = &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: w.ns},
		Spec: *w.group.Spec.DeepCopy()}
	w.must(admin.Create(w.ctx, second.group))
	second.settle() // the node's one CommNode serves both
	if n := len(w.pods()); n != 1 {
		t.Fatalf("%d run pods on one node", n)
	}
	second.wantCondition(v1alpha1.ConditionRunning, yes, v1alpha1.ReasonRunInProgress,
		"Waiting for others: "+w.nodes[0], "CommGroup "+w.ns+"/g")
	w.finish(w.nodes[0], 300_000, nil)
	w.settle()
	second.settle()
	var own corev1.PodList
	w.must(admin.List(w.ctx, &own, client.InNamespace(w.ns),
		client.MatchingLabels{v1alpha1.LabelGroupUID: string(second.group.UID), v1alpha1.LabelRole: v1alpha1.RoleRun}))
	if len(own.Items) != 1 {
		t.Errorf("%d run pods of the second group once the first one's run is over", len(own.Items))
	}
	w.must(admin.Delete(w.ctx, second.group))
}

// TestBudgetHolds: a run that does not fit into the day waits and says until when; a user's request runs, and counts.
func TestBudgetHolds(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) { g.Spec.Run.MaxGPUMinutesPerDay = 20 })
	w.settle()
	w.reportAllFacts()
	w.settle()
	w.wantCondition(v1alpha1.ConditionRunning, no, v1alpha1.ReasonWaiting, "run.maxGPUMinutesPerDay is 20", "about 24")
	if w.group.Status.Run != nil {
		t.Fatalf("run %+v", w.group.Status.Run)
	}
	w.ask("now")
	w.settle()
	if w.group.Status.Run == nil {
		t.Fatal("a person's request does not run")
	}
	w.finish(w.nodes[0],
		300_000, func(r *v1alpha1.NodeRunStatus) { r.StartTime = metav1.NewTime(r.FinishTime.Add(-2 * time.Minute)) })
	w.settle()
	b := w.group.Status.Budget
	if b == nil || b.UsedGPUMinutes != 16 || b.LimitGPUMinutes != 20 || !strings.HasPrefix(b.Day, "20") ||
		b.LastRunID != w.group.Status.Run.ID {
		t.Errorf("budget %+v", b)
	}
}
