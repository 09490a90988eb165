package commrun

import (
	"slices"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// givesUp is when the run goes on without the nodes whose CommTasks are refused.
func givesUp(refused *v1alpha1.RunRefusal, spec *v1alpha1.CommGroupSpec) time.Time {
	return refused.Since.Add(decision.Seconds(spec.Run.StartDeadlineSeconds))
}

// GaveUp says whether the status that was read has the refusal of the node's CommTask, and it has lasted for too long.
func GaveUp(group *state.Group, node string, exists bool, now time.Time) bool {
	run := group.Status.Run
	if run == nil || run.Refused == nil || now.Before(givesUp(run.Refused, &group.Spec)) {
		return false
	}
	return !exists || run.Refused.More || slices.Contains(run.Refused.Nodes, node)
}

// RefusedPause is how long after a run that gave a node up the next one for that node comes by itself.
const RefusedPause = time.Hour

// pausedUntil is when a run of the nodes that the last one gave up may come by itself; zero where it may now.
func pausedUntil(last *v1alpha1.GroupRunStatus, now time.Time) time.Time {
	if last.Refused == nil || last.FinishTime == nil || !now.Before(last.FinishTime.Add(RefusedPause)) {
		return time.Time{}
	}
	return last.FinishTime.Add(RefusedPause)
}

// paused says that the last run gave the node up not long ago; empty where it did not.
func (n *nodeState) paused(last *v1alpha1.GroupRunStatus, now time.Time) string {
	until := pausedUntil(last, now)
	if until.IsZero() || !last.Refused.More && !slices.Contains(last.Refused.Nodes, n.name) {
		return ""
	}
	return "its CommTask was refused in run " + last.ID + ", the next one comes at " + until.UTC().Format(time.RFC3339)
}

// giveUp ends the node's part in the run where its CommTask was refused for too long, whatever the node waits for. What
// has a result there, or a pod that is not over, goes on.
func (n *nodeState) giveUp(run *v1alpha1.GroupRunStatus, in Input) {
	a := runs.AssignmentOf(n.commTask)
	switch written := n.report != nil || a != nil && a.Closed != nil && runs.Counts(a, run) && !n.renewed; {
	case run.Refused == nil || written:
	case n.phase != judge.Done && n.phase != judge.Waiting:
	case GaveUp(in.Group, n.name, n.commTask != nil, in.Now):
		n.closeRefused(run, in)
	case n.phase == judge.Waiting && in.Now.Before(givesUp(run.Refused, &in.Group.Spec)):
		n.wakeAt = decision.Earlier(n.wakeAt, givesUp(run.Refused, &in.Group.Spec))
	}
}

// createdSince says whether the run gave the node up as its CommTask could not be created, and that is there now. One
// that is there and cannot be changed would be given up again.
func (n *nodeState) createdSince(run *v1alpha1.GroupRunStatus) bool {
	return n.commTask != nil && n.closure != nil && n.closure.Reason == v1alpha1.ReasonCommTasksRefused &&
		run != nil && run.Refused != nil && !run.Refused.More && !slices.Contains(run.Refused.Nodes, n.name)
}

func (n *nodeState) closeRefused(run *v1alpha1.GroupRunStatus, in Input) {
	next := "Mend what these words name, then " + runs.Ask(in.Group)
	if n.commTask == nil {
		next = "Once it is mended, a run of the node starts by itself; to have one of all, " + runs.Ask(in.Group)
	}
	n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonCommTasksRefused,
		"Run %s has no result of node %s, since what it needs of CommTask %s was refused from %s on. %s %s.",
		run.ID, n.name, v1alpha1.CommTaskName(in.Group.Name, n.name), run.Refused.Since.UTC().Format(time.RFC3339),
		run.Refused.Message, next)
}
