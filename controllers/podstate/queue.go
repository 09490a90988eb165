package podstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/clip"
)

// What Kueue reads and writes on plain pods (kueue pkg/controller/jobs/pod/pod_controller.go,
// pkg/controller/constants).
const (
	// KueueGatePrefix begins the names of the scheduling gates that Kueue holds pods back with.
	KueueGatePrefix = "kueue.x-k8s.io/"
	// PodGroupLabel and PodGroupCountAnnotation have pods admitted together or not at all.
	PodGroupLabel           = "kueue.x-k8s.io/pod-group-name"
	PodGroupCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// NotRetriableAnnotation ("false") has a pod group end with its last pod; else Kueue keeps the quota for pods in
	// place of failed ones.
	NotRetriableAnnotation = "kueue.x-k8s.io/retriable-in-group"
	// RoleHashAnnotation has Kueue count pods as alike. It takes the annotation for its own hash, which has the node's
	// affinity in it, so that each pod of a stage would be a set of its own, of which a workload takes 18 (8 in earlier
	// releases).
	RoleHashAnnotation = "kueue.x-k8s.io/role-hash"
	// KueueTermination is the condition that Kueue sets on a pod that it ends for others.
	KueueTermination = "TerminationTarget"
)

// TakenAway says why the cluster itself ends the pod for others or to empty the node; empty where it does not. That is
// no fault of the node. What the kubelet ends (TerminationByKubelet) is not in it: that is for want of memory or disk,
// or a node that shuts down.
func TakenAway(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch {
		case c.Type == KueueTermination:
			return because("Kueue ended it", c)
		case c.Type != corev1.DisruptionTarget:
		case c.Reason == corev1.PodReasonPreemptionByScheduler:
			return because("the scheduler gave its GPUs to a pod of higher priority", c)
		case c.Reason == "EvictionByEvictionAPI":
			return because("it was evicted, as in a drain of the node", c)
		case c.Reason == "DeletionByTaintManager":
			return because("a taint of the node that it does not tolerate ended it", c)
		}
	}
	return ""
}

func because(what string, c *corev1.PodCondition) string {
	if c.Message == "" {
		return fmt.Sprintf("%s (%s)", what, c.Reason)
	}
	return fmt.Sprintf("%s (%s: %s)", what, c.Reason, strings.TrimSuffix(clip.Head(c.Message, 300), "."))
}

// QueueOf is the Kueue LocalQueue of a pod; empty where it is in none.
func QueueOf(pod *corev1.Pod) string { return pod.Labels[QueueLabel] }

// Queued says whether Kueue still holds the pod back.
func Queued(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return strings.HasPrefix(g.Name, KueueGatePrefix)
	})
}

// QueueLimit is how long a pod may wait for Kueue: as long as a node's run may take, or its start, whichever is longer.
// A wait for a quota is a wait for others' work, not for an image.
func QueueLimit(policy *v1alpha1.RunPolicySpec) time.Duration {
	return decision.Seconds(max(policy.NodeDeadlineSeconds, policy.StartDeadlineSeconds))
}

// StartDeadline is until when the pod's ranks have to start. Of a pod that was in a queue only its place on a node
// tells when it left it; before that it has the queue's time and its own.
func StartDeadline(pod *corev1.Pod, policy *v1alpha1.RunPolicySpec) time.Time {
	limit := decision.Seconds(policy.StartDeadlineSeconds)
	if QueueOf(pod) == "" {
		return pod.CreationTimestamp.Add(limit)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(limit)
		}
	}
	return pod.CreationTimestamp.Add(QueueLimit(policy) + limit)
}

// QueueLabel names the LocalQueue that Kueue admits a pod through.
const QueueLabel = "kueue.x-k8s.io/queue-name"
