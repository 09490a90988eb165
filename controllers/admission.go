package controllers

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// stepTakenAway ends the node's part where its pod was taken away, unless the agent had reported before. That the agent was told
// to stop is no word of the node.
func (n *nodeState) stepTakenAway(run *v1alpha1.GroupRunStatus, in runInput) bool {
	if run.Phase != v1alpha1.RunPhaseRunning || n.member == nil || n.commTask.Spec.Run.Closed != nil {
		return false
	}
	if r := runs.FinishedReport(n.commTask); r != nil && r.Reason != v1alpha1.ReasonInterrupted {
		return false
	}
	pod := podstate.OfRun(in.pods[n.name], run.ID)
	if pod == nil {
		return false
	}
	why := podstate.TakenAway(pod)
	if why == "" {
		return false
	}
	n.podName = pod.Name
	n.close(in.now, v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted, "Run pod %s on node %s was taken away: %s. The node is measured again by itself.", pod.Name, n.name, why)
	n.closure.HeldSeconds = podHeldSeconds(n.commNode, pod, in.now)
	return true
}

// stepQueued decides for a pod that Kueue holds back. It holds no GPUs.
func (n *nodeState) stepQueued(pod *corev1.Pod, in runInput) bool {
	if !podstate.Queued(pod) {
		return false
	}
	limit := podstate.QueueLimit(&in.group.Spec.Run)
	deadline := pod.CreationTimestamp.Add(limit)
	if in.now.Before(deadline) {
		n.phase, n.wakeAt = judge.Starting, deadline
		n.hindrance = fmt.Sprintf("waits for Kueue's admission in queue %s.", podstate.QueueOf(pod))
		return true
	}
	n.close(in.now, v1alpha1.VerdictSkipped, v1alpha1.ReasonWaitingForQueue,
		"Kueue has not admitted run pod %s for node %s in queue %s within %d s. Look at the queue's quota (`kubectl get workloads -n %s`); it is tried again by itself.",
		pod.Name, n.name, podstate.QueueOf(pod), int64(limit/time.Second), pod.Namespace)
	return true
}

// queueTogether has Kueue admit the pods of a group's stage all at once or not at all: some of them alone would hold GPUs for
// nothing. Kueue wants the same number on each.
func queueTogether(pod *corev1.Pod, group *state.Group, runID string, members int32) {
	if podstate.QueueOf(pod) == "" || members <= 0 {
		return
	}
	pod.Labels[podstate.PodGroupLabel] = objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID, group.Name, runID)
	pod.Annotations[podstate.PodGroupCountAnnotation] = strconv.Itoa(int(members))
	pod.Annotations[podstate.NotRetriableAnnotation] = "false"
	pod.Annotations[podstate.RoleHashAnnotation] = objects.Hash(string(group.UID) + "/" + runID)[:8]
}

// stagePods is how many pods of the group's stage are to be admitted together: what is said on those that are there, else one for
// each member that is present.
func (in *runInput) stagePods(st *runState) int32 {
	for _, pods := range in.groupPods {
		if pod := podstate.OfRun(pods, st.run.ID); pod != nil {
			if n, err := strconv.ParseInt(pod.Annotations[podstate.PodGroupCountAnnotation], 10, 32); err == nil {
				return int32(n)
			}
		}
	}
	return st.span.Span.Present
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
	a := runs.AssignmentOf(n.commTask)
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
