package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/words"
)

// quotaExceeded says whether a ResourceQuota has no room for a pod now. The API server has no status cause of its own for that; its
// quota admission begins the text so (k8s.io/apiserver, pkg/admission/plugin/resourcequota/controller.go). A quota that demands fields
// which the pod lacks ("failed quota") stays a refusal, since no wait helps.
func quotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), exceededQuota)
}

const exceededQuota = "exceeded quota"

// podRefusal is what the API server refused of a run's pods, and until when it is not asked again.
type podRefusal struct {
	runID string
	until time.Time
	// pods by name, with why; all is why no pod of the run is taken, as by a quota.
	pods map[string]error
	all  error
	// alive are the group's pods that held GPUs then; once there are fewer, a quota may have room again. admitted are those of nodes alone.
	alive, admitted int
}

// why the pod was refused; nil where it was not.
func (k *podRefusal) why(pod *corev1.Pod) error {
	if err := k.pods[pod.Name]; err != nil {
		return err
	}
	return k.all
}

// refusedPods is the refusal of each group's pods. No decision needs it: it spares a list of thousands of pods, and as many writes, in
// each reconcile, and a new manager does without.
type refusedPods struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]podRefusal
}

// of the group what still holds for its run; else an empty one, which holds for refusedRetry.
func (m *refusedPods) of(group types.NamespacedName, s *Snapshot) podRefusal {
	m.lock.Lock()
	defer m.lock.Unlock()
	known, ok := m.groups[group]
	left := known.until.Sub(s.Now)
	alive, _ := livingPods(s.RunPods, s.Now)
	if run := s.Group.Status.Run; !ok || run == nil || known.runID != run.ID || left <= 0 || left > refusedRetry || alive < known.alive {
		delete(m.groups, group)
		known = podRefusal{until: s.Now.Add(refusedRetry), pods: map[string]error{}}
		if run != nil {
			known.runID = run.ID
		}
	}
	known.pods = maps.Clone(known.pods)
	return known
}

// set keeps what refuses anything.
func (m *refusedPods) set(group types.NamespacedName, known podRefusal) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(known.pods) == 0 {
		delete(m.groups, group)
		return
	}
	if m.groups == nil {
		m.groups = map[types.NamespacedName]podRefusal{}
	}
	m.groups[group] = known
}

func (m *refusedPods) forget(group types.NamespacedName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.groups, group)
}

// quotaMessage says that the quota refused the pod, and what would fit it. admitted are the run's own pods that hold part of the quota.
func quotaMessage(cause error, admitted int, maxParallelNodes int32) string {
	fits := "None of the run's own pods hold any of it, so that no smaller run.maxParallelNodes would fit: raise the quota, or end what uses it."
	if admitted > 0 && admitted < int(maxParallelNodes) {
		fits = fmt.Sprintf("It admits %s of the run at a time: a run.maxParallelNodes of %d would fit instead of %d, or raise the quota.",
			words.Counted(admitted, "pod"), admitted, maxParallelNodes)
	}
	const causeBytes = 300                                   // the message of a RunWait has 512
	_, quota, _ := strings.Cut(cause.Error(), exceededQuota) // what comes before names the pod that was refused first
	return fmt.Sprintf("the run pod was refused: %s%s %s", exceededQuota, words.Sentence(words.Shorten(quota, causeBytes)), fits)
}

// noteQuotaWait records in the node's assignment that its run pod waits for the quota.
func (r *CommGroupReconciler) noteQuotaWait(ctx context.Context, ct *v1alpha1.CommTask, message string, now time.Time) error {
	if ct == nil || ct.Spec.Run == nil {
		return nil
	}
	desired := ct.DeepCopy()
	wait := &v1alpha1.RunWait{Reason: v1alpha1.ReasonRunPodNotStarted, Message: words.Shorten(message, 512), Since: *decision.Stamp(now)}
	if was := ct.Spec.Run.Waiting; was != nil && was.Reason == wait.Reason {
		wait.Since = was.Since
	}
	desired.Spec.Run.Waiting = wait
	if objects.SameSpec(&ct.Spec, &desired.Spec) {
		return nil
	}
	return r.writeCommTask(ctx, commrun.Change{Current: ct, Desired: desired})
}
