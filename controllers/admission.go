package controllers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

// What Kueue reads and writes on plain pods (kueue pkg/controller/jobs/pod/pod_controller.go, pkg/controller/constants).
const (
	// kueueGatePrefix begins the names of the scheduling gates that Kueue holds pods back with.
	kueueGatePrefix = "kueue.x-k8s.io/"
	// podGroupLabel and podGroupCountAnnotation have pods admitted together or not at all.
	podGroupLabel           = "kueue.x-k8s.io/pod-group-name"
	podGroupCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// notRetriableAnnotation ("false") has a pod group end with its last pod; else Kueue keeps the quota for pods in place of failed ones.
	notRetriableAnnotation = "kueue.x-k8s.io/retriable-in-group"
	// roleHashAnnotation has Kueue count pods as alike. It takes the annotation for its own hash, which has the node's affinity in it,
	// so that each pod of a stage would be a set of its own, of which a workload takes 18 (8 in earlier releases).
	roleHashAnnotation = "kueue.x-k8s.io/role-hash"
	// kueueTermination is the condition that Kueue sets on a pod that it ends for others.
	kueueTermination = "TerminationTarget"
)

// takenAway says why the cluster itself ends the pod for others or to empty the node; empty where it does not. That is no fault
// of the node. What the kubelet ends (TerminationByKubelet) is not in it: that is for want of memory or disk, or a node that
// shuts down.
func takenAway(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch {
		case c.Type == kueueTermination:
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
	return fmt.Sprintf("%s (%s: %s)", what, c.Reason, strings.TrimSuffix(words.Shorten(c.Message, 300), "."))
}

// stepTakenAway ends the node's part where its pod was taken away, unless the agent had reported before. That the agent was told
// to stop is no word of the node.
func (n *nodeState) stepTakenAway(run *v1alpha1.GroupRunStatus, in runInput) bool {
	if run.Phase != v1alpha1.RunPhaseRunning || n.member == nil || n.commNode.Spec.Run.Closed != nil {
		return false
	}
	if r := finishedReport(n.commNode); r != nil && r.Reason != v1alpha1.ReasonInterrupted {
		return false
	}
	pod := podOfRun(in.pods[n.name], run.ID)
	if pod == nil {
		return false
	}
	why := takenAway(pod)
	if why == "" {
		return false
	}
	n.podName = pod.Name
	n.close(in.now, v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted, "Run pod %s on node %s was taken away: %s. The node is measured again by itself.", pod.Name, n.name, why)
	n.closure.HeldSeconds = podHeldSeconds(n.commNode, pod, in.now)
	return true
}

// queueOf is the Kueue LocalQueue of a pod; empty where it is in none.
func queueOf(pod *corev1.Pod) string { return pod.Labels[queueLabel] }

// queued says whether Kueue still holds the pod back.
func queued(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return strings.HasPrefix(g.Name, kueueGatePrefix) })
}

// queueLimit is how long a pod may wait for Kueue: as long as a node's run may take, or its start, whichever is longer. A wait for
// a quota is a wait for others' work, not for an image.
func queueLimit(policy *v1alpha1.RunPolicySpec) time.Duration {
	return decision.Seconds(max(policy.NodeDeadlineSeconds, policy.StartDeadlineSeconds))
}

// startDeadline is until when the pod's ranks have to start. Of a pod that was in a queue only its place on a node tells when it
// left it; before that it has the queue's time and its own.
func startDeadline(pod *corev1.Pod, policy *v1alpha1.RunPolicySpec) time.Time {
	limit := decision.Seconds(policy.StartDeadlineSeconds)
	if queueOf(pod) == "" {
		return pod.CreationTimestamp.Add(limit)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(limit)
		}
	}
	return pod.CreationTimestamp.Add(queueLimit(policy) + limit)
}

// stepQueued decides for a pod that Kueue holds back. It holds no GPUs.
func (n *nodeState) stepQueued(pod *corev1.Pod, in runInput) bool {
	if !queued(pod) {
		return false
	}
	limit := queueLimit(&in.group.Spec.Run)
	deadline := pod.CreationTimestamp.Add(limit)
	if in.now.Before(deadline) {
		n.phase, n.wakeAt = nodeStarting, deadline
		n.hindrance = fmt.Sprintf("waits for Kueue's admission in queue %s.", queueOf(pod))
		return true
	}
	n.close(in.now, v1alpha1.VerdictSkipped, v1alpha1.ReasonWaitingForQueue,
		"Kueue has not admitted run pod %s for node %s in queue %s within %d s. Look at the queue's quota (`kubectl get workloads -n %s`); it is tried again by itself.",
		pod.Name, n.name, queueOf(pod), int64(limit/time.Second), pod.Namespace)
	return true
}

// queueTogether has Kueue admit the pods of a group's stage all at once or not at all: some of them alone would hold GPUs for
// nothing. Kueue wants the same number on each.
func queueTogether(pod *corev1.Pod, group *v1alpha1.CommGroup, runID string, members int32) {
	if queueOf(pod) == "" || members <= 0 {
		return
	}
	pod.Labels[podGroupLabel] = dnsName(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID, group.Name, runID)
	pod.Annotations[podGroupCountAnnotation] = strconv.Itoa(int(members))
	pod.Annotations[notRetriableAnnotation] = "false"
	pod.Annotations[roleHashAnnotation] = shortHash(string(group.UID) + "/" + runID)[:8]
}

// stagePods is how many pods of the group's stage are to be admitted together: what is said on those that are there, else one for
// each member that is present.
func (in *runInput) stagePods(st *runState) int32 {
	for _, pods := range in.groupPods {
		if pod := podOfRun(pods, st.run.ID); pod != nil {
			if n, err := strconv.ParseInt(pod.Annotations[podGroupCountAnnotation], 10, 32); err == nil {
				return int32(n)
			}
		}
	}
	return st.span.span.Present
}

const (
	// maxRetries bounds how often a node is tried again by itself after a run found no place on it, or lost it.
	maxRetries = 5
	// retryPause before the first time; each next one waits twice as long.
	retryPause = 5 * time.Minute
)

// retriable says whether a part of a run that ended so may be made up for by itself: nothing was measured, and the cause goes
// away without anyone's doing.
func retriable(c *v1alpha1.RunClosure) bool {
	if c == nil {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonPreempted, v1alpha1.ReasonNodeBusy, v1alpha1.ReasonWaitingForQueue, v1alpha1.ReasonRunPodUnschedulable:
		return true
	}
	return false
}

// leftToSchedule says whether nodes that had no place are left to the scheduled run of all: the group was formed without them, and a
// run for each of them would form it over all members again.
func (in *runInput) leftToSchedule() bool {
	spec, run, span := &in.group.Spec, in.group.Status.Run, in.group.Status.Span
	return spec.Span == v1alpha1.SpanGroup && spec.Run.Schedule != "" && run != nil && span != nil && span.RunID == run.ID && len(span.Tests) > 0
}

// retryAt is when the node is due again; zero where it is not.
func (n *nodeState) retryAt(in *runInput) time.Time {
	a := assignmentOf(n.commNode)
	if in.leftToSchedule() || a == nil || n.member == nil || n.closure == nil || !retriable(n.closure) || a.Retries >= maxRetries {
		return time.Time{}
	}
	return n.closure.Time.Add(retryPause << a.Retries)
}

func (n *nodeState) retryDue(in runInput) bool {
	at := n.retryAt(&in)
	return !at.IsZero() && !in.now.Before(at)
}

// nextRetry is the nearest time at which a node is due again.
func nextRetry(nodes []nodeState, in *runInput) time.Time {
	var next time.Time
	for i := range nodes {
		next = decision.Earlier(next, nodes[i].retryAt(in))
	}
	return next
}
