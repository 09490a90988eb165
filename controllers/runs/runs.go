package runs

import (
	"cmp"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// Since is the number of the run from which on results count. Runs of versions before there was a since measured every
// member.
func Since(run *v1alpha1.GroupRunStatus) int64 { return cmp.Or(run.Since, run.Number) }

// Partial says whether the run measures only the nodes whose results no longer count.
func Partial(run *v1alpha1.GroupRunStatus) bool {
	return run != nil && run.Trigger == state.TriggerNodesChanged
}

// RunNumber is the number of an assignment's run; in objects of older versions only the id tells it.
func RunNumber(a *v1alpha1.RunAssignment) int64 {
	if a.Number != 0 {
		return a.Number
	}
	return NumberOf(a.ID)
}

// NumberOf is the number in a run's id; 0 where it is none of ours.
func NumberOf(id string) int64 {
	_, tail, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(tail, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// LatestNumber is the number of the run in the group's status; 0 before the first one.
func LatestNumber(group *state.Group) int64 {
	if group.Status.Run == nil {
		return 0
	}
	return group.Status.Run.Number
}

// Later says whether the id is of a later run than the one in the status that was read. A run is written to the status
// before anything else, so either that read is stale, or the controller did not write the id: only the API server can
// tell.
func Later(id string, group *state.Group) bool { return NumberOf(id) > LatestNumber(group) }

// Counts says whether a result of the assignment counts for the run: it is the run's own, or of a run since the last
// one that measured every member.
func Counts(a *v1alpha1.RunAssignment, run *v1alpha1.GroupRunStatus) bool {
	if a == nil {
		return false
	}
	if a.ID == run.ID {
		return true
	}
	number := RunNumber(a)
	return number >= Since(run) && number > 0 && number < run.Number
}

// AssignmentOf a node; nil while it has none.
func AssignmentOf(ct *v1alpha1.CommTask) *v1alpha1.RunAssignment {
	if ct == nil {
		return nil
	}
	return ct.Spec.Run
}

// Assigned says whether the node has an assignment of that run.
func Assigned(ct *v1alpha1.CommTask, runID string) bool {
	return ct != nil && ct.Spec.Run != nil && ct.Spec.Run.ID == runID
}

// Ask is the command that starts a run of the group.
func Ask(group *state.Group) string { return v1alpha1.AskRun(group.Namespace, group.Name) }

// FinishedReport returns the agent's report where it is of the node's assignment: the id that was assigned, of the
// generation that was assigned, finished with a verdict.
func FinishedReport(ct *v1alpha1.CommTask) *v1alpha1.NodeRunStatus {
	r, a := ct.Status.Run, ct.Spec.Run
	if r == nil || a == nil || r.ID != a.ID || r.Generation != a.Generation || r.Phase != v1alpha1.NodeRunFinished ||
		r.Verdict == "" {
		return nil
	}
	return r
}
