package commrun

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
)

// stepTakenAway ends the node's part where its pod was taken away, unless the agent had reported before. That the agent
// was told to stop is no word of the node.
func (n *nodeState) stepTakenAway(run *v1alpha1.GroupRunStatus, in Input) bool {
	if run.Phase != v1alpha1.RunPhaseRunning || n.member == nil || n.commTask.Spec.Run.Closed != nil {
		return false
	}
	if r := runs.FinishedReport(n.commTask); r != nil && r.Reason != v1alpha1.ReasonInterrupted {
		return false
	}
	pod := podstate.OfRun(in.Pods[n.name], run.ID)
	if pod == nil {
		return false
	}
	why := podstate.TakenAway(pod)
	if why == "" {
		return false
	}
	n.podName = pod.Name
	n.close(in.Now, v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted,
		"Run pod %s on node %s was taken away: %s. The node is measured again by itself.", pod.Name, n.name, why)
	n.closure.HeldSeconds = podHeldSeconds(n.commNode, pod, in.Now)
	return true
}

// stepQueued decides for a pod that Kueue holds back. It holds no GPUs.
func (n *nodeState) stepQueued(pod *corev1.Pod, in Input) bool {
	if !podstate.Queued(pod) {
		return false
	}
	limit := podstate.QueueLimit(&in.Group.Spec.Run)
	deadline := pod.CreationTimestamp.Add(limit)
	if in.Now.Before(deadline) {
		n.phase, n.wakeAt = judge.Starting, deadline
		n.hindrance = fmt.Sprintf("waits for Kueue's admission in queue %s.", podstate.QueueOf(pod))
		return true
	}
	n.close(in.Now, v1alpha1.VerdictSkipped, v1alpha1.ReasonWaitingForQueue,
		"Kueue has not admitted run pod %s for node %s in queue %s within %d s. "+
			"Look at the queue's quota (`kubectl get workloads -n %s`); it is tried again by itself.",
		pod.Name, n.name, podstate.QueueOf(pod), int64(limit/time.Second), pod.Namespace)
	return true
}

const (
	// MaxRetries bounds how often a node is tried again by itself after a run found no place on it, or lost it.
	MaxRetries = 5
	// RetryPause before the first time; each next one waits twice as long.
	RetryPause = 5 * time.Minute
)

// retriable says whether a part of a run that ended so may be made up for by itself: nothing was measured, and the
// cause goes away without anyone's doing.
func retriable(c *v1alpha1.RunClosure) bool {
	if c == nil {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonPreempted, v1alpha1.ReasonNodeBusy, v1alpha1.ReasonWaitingForQueue,
		v1alpha1.ReasonRunPodUnschedulable:
		return true
	}
	return false
}

// leftToSchedule says whether nodes that had no place are left to the scheduled run of all: the group was formed
// without them, and a run for each of them would form it over all members again.
func (in *Input) leftToSchedule() bool {
	spec, run, span := &in.Group.Spec, in.Group.Status.Run, in.Group.Status.Span
	return spec.Span == v1alpha1.SpanGroup && spec.Run.Schedule != "" && run != nil && span != nil &&
		span.RunID == run.ID && len(span.Tests) > 0
}

// retryAt is when the node is due again; zero where it is not.
func (n *nodeState) retryAt(in *Input) time.Time {
	a := runs.AssignmentOf(n.commTask)
	if in.leftToSchedule() || a == nil || n.member == nil || n.closure == nil || !retriable(n.closure) ||
		a.Retries >= MaxRetries {
		return time.Time{}
	}
	return n.closure.Time.Add(RetryPause << a.Retries)
}

func (n *nodeState) retryDue(in Input) bool {
	at := n.retryAt(&in)
	return !at.IsZero() && !in.Now.Before(at)
}

// nextRetry is the nearest time at which a node is due again.
func nextRetry(nodes []nodeState, in *Input) time.Time {
	var next time.Time
	for i := range nodes {
		next = decision.Earlier(next, nodes[i].retryAt(in))
	}
	return next
}
