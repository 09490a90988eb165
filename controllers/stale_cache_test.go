package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestForeignRunIDIsReplaced: an assignment, session or pod with a higher run number that the controller did not write
// is no reason to wait. The live CommGroup settles it, and the next reconcile puts things right.
func TestForeignRunIDIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		state   string
		foreign func(w *groupWorld)
		right   func(ct *v1alpha1.CommTask, pods map[string]string, runID string) bool
	}{
		"assignment in mid-run": {fromRunning,
			func(w *groupWorld) { w.commTask(w.nodes[0].Name).Spec.Run.ID = "9-9" },
			func(ct *v1alpha1.CommTask, _ map[string]string, runID string) bool { return ct.Spec.Run.ID == runID }},
		"assignment before the first run": {fromNeverRan,
			func(w *groupWorld) {
				w.commTask(w.nodes[0].Name).Spec.Run = &v1alpha1.RunAssignment{ID: "9-9", Generation: 9}
			},
			func(ct *v1alpha1.CommTask, _ map[string]string, runID string) bool {
				return ct.Spec.Run == nil || ct.Spec.Run.ID == runID
			}},
		"session in the stage": {fromStage,
			func(w *groupWorld) { w.commTask(w.nodes[0].Name).Spec.Session.RunID = "9-9" },
			func(ct *v1alpha1.CommTask, _ map[string]string, runID string) bool {
				return ct.Spec.Session == nil || ct.Spec.Session.RunID == runID
			}},
		"run pod": {fromRunning,
			func(w *groupWorld) { w.podOn(w.nodes[0].Name).Labels[v1alpha1.LabelRunID] = "9-9" },
			func(_ *v1alpha1.CommTask, pods map[string]string, _ string) bool {
				for _, id := range pods {
					if id == "9-9" {
						return false
					}
				}
				return true
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := tableWorld(t, tc.state)
			tc.foreign(w)
			r, cache := managerOf(t, w)
			key := client.ObjectKeyFromObject(w.group)
			for range 3 { // the status is written first, what follows from it next
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
					t.Logf("reconcile: %v", err)
				}
			}
			var ct v1alpha1.CommTask
			group := storedGroup(t, cache.api, key)
			if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(w.commTask(w.nodes[0].Name)),
				&ct); err != nil {
				t.Fatal(err)
			}
			pods := map[string]string{}
			for podName, pod := range w.pods {
				live := pod.DeepCopy()
				if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(pod), live); err == nil &&
					live.DeletionTimestamp.IsZero() {
					pods[podName] = live.Labels[v1alpha1.LabelRunID]
				}
			}
			runID := ""
			if group.Status.Run != nil {
				runID = group.Status.Run.ID
			}
			if !tc.right(&ct, pods, runID) {
				t.Errorf("run %q: assignment %+v, session %+v, pods %v", runID, ct.Spec.Run, ct.Spec.Session, pods)
			}
		})
	}
}

// TestForeignTimesPutNoDeadlineOff: a time in the future, of a node's clock or of another writer, does not put a
// deadline off.
func TestForeignTimesPutNoDeadlineOff(t *testing.T) {
	const far = 365 * 24 * time.Hour
	for name, set := range map[string]func(w *groupWorld, pod *corev1.Pod){
		"the ranks' start": func(w *groupWorld, pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now.Add(far))}}}}
		},
		"the pod's end": func(w *groupWorld, pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(w.now.Add(far))}}}}
		},
	} {
		w := tableWorld(t, fromRunning)
		node := w.nodes[0].Name
		set(w, w.podOn(node))
		policy := &w.group.Spec.Run
		w.now = w.now.Add(time.Duration(policy.NodeDeadlineSeconds+policy.StartDeadlineSeconds) * time.Second)
		w.settle()
		if a := w.commTask(node).Spec.Run; a.Closed == nil {
			t.Errorf("%s: the run goes on on %s: %+v", name, node, a)
		}
	}
}
