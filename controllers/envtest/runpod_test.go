package envtest

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestRunPodTroubles(t *testing.T) {
	for name, tc := range map[string]struct {
		trouble func(*world, string)
		wait    time.Duration
		status  metav1.ConditionStatus
		reason  string
		words   []string
	}{
		"exits without a report": {
			func(w *world, node string) { w.end(w.start(node), 3, "librccl.so.1: cannot open") }, 20 * time.Second,
			no, v1alpha1.ReasonRunPodFailed, []string{"code 3", "cannot open"}},
		"is deleted": {
			func(w *world, node string) { w.must(admin.Delete(w.ctx, w.podOn(node), client.GracePeriodSeconds(0))) }, 0,
			no, v1alpha1.ReasonRunPodFailed, []string{"was deleted before the agent reported"}},
		"is evicted": {
			func(w *world, node string) {
				pod := w.podOn(node)
				pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
				w.must(admin.Status().Update(w.ctx, pod))
			}, 0, no, v1alpha1.ReasonRunPodFailed, []string{"Evicted: low on memory"}},
		"finds no place": {
			func(w *world, node string) {
				pod := w.podOn(node)
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
					Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes: Insufficient amd.com/gpu"}}
				w.must(admin.Status().Update(w.ctx, pod))
			}, pastStartDeadline, unknown, v1alpha1.ReasonRunPodUnschedulable, []string{"Insufficient amd.com/gpu"}},
		"cannot pull": {
			func(w *world, node string) {
				pod := w.podOn(node)
				w.bind(pod, node)
				w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", Image: "rocm:test",
					State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such tag"}}}}
				w.must(admin.Status().Update(w.ctx, pod))
			}, pastStartDeadline, no, v1alpha1.ReasonRunPodNotStarted, []string{"ImagePullBackOff", "no such tag"}},
		"hangs": {
			func(w *world, node string) { w.start(node) }, 1801 * time.Second,
			no, v1alpha1.ReasonRunDeadlineExceeded, []string{"nodeDeadlineSeconds (1800 s)"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, nil)
			w.running()
			tc.trouble(w, w.nodes[0])
			w.settle()
			if tc.wait > 0 {
				if w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
					t.Fatal("given up before the deadline")
				}
				if tc.wait == pastStartDeadline { // what is already known is said at once
					w.wantCondition(v1alpha1.ConditionRunning, yes, v1alpha1.ReasonRunInProgress,
						append(tc.words, "Not started yet: "+w.nodes[0])...)
				}
				w.pass(tc.wait)
				w.settle()
			}
			w.wantCondition(v1alpha1.ConditionValidated, tc.status, tc.reason, append(tc.words, w.nodes[0])...)
			if blamed := len(w.group.Status.Culprits) > 0; blamed != (name == "cannot pull" || name == "hangs") {
				t.Errorf("culprits %+v", w.group.Status.Culprits)
			}
			w.endPods()
			w.settle()
			// A pod that ended by itself stays for its log; one that would hold GPUs does not.
			kept := slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
			if ended := name == "exits without a report" || name == "is evicted"; len(kept) != 0 ||
				(len(w.pods()) == 1) != ended {
				t.Errorf("left over: %+v", w.pods())
			}
			if w.group.Status.Run.Verdict == v1alpha1.VerdictPass {
				t.Error("passed")
			}
		})
	}
}

func TestRefusedPodOverrides(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) { g.Spec.Runtime.Pod.PriorityClassName = "no-such-class" })
	w.running()
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonRunPodNotStarted, "no-such-class")
	w.wantNoCulprit()
}

// wantNoCulprit: what refuses a run pod is the namespace's or the spec's, and says nothing of the node.
func (w *world) wantNoCulprit() {
	w.Helper()
	if len(w.group.Status.Culprits) > 0 {
		w.Errorf("culprits %+v", w.group.Status.Culprits)
	}
}
