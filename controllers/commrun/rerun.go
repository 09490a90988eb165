package commrun

import (
	"cmp"
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// recall fills in what is known of the node from its assignment: the report or closure, and whether that still counts.
func (n *nodeState) recall(a *v1alpha1.RunAssignment, in Input) {
	switch {
	case a.Closed != nil:
		n.phase, n.closure = judge.Done, a.Closed.DeepCopy()
	case runs.FinishedReport(n.commTask) != nil:
		n.phase, n.report = judge.Done, n.commTask.Status.Run
	default:
		n.moved = !nodefacts.Hold(n.commNode, in.Now) || nodefacts.Stale(a.Platform, nil, n.facts()) != nil
		return
	}
	// Once it is found, it stays until the result is replaced: a reboot is not undone.
	if n.stale = a.Stale; n.stale != nil || !nodefacts.Hold(n.commNode, in.Now) {
		return
	}
	found := nodefacts.Stale(a.Platform, n.report, n.facts())
	switch {
	case found == nil:
	case a.Repeats >= MaxRepeats && judge.BadResult(a, n.report):
		n.exhausted = found
	default:
		found.Time = *decision.Stamp(in.Now)
		n.stale, n.found = found, found
	}
}

// recovered says whether the run ended on the node for want of GPUs, of its monitor or of its CommTask, and all are
// there now. Where that has happened too often in a row, a user has to ask.
func (n *nodeState) recovered(in Input) bool {
	a := runs.AssignmentOf(n.commTask)
	if a == nil {
		return n.createdSince(in.Group.Status.Run) && n.unmeasurable(in) == ""
	}
	return n.closure != nil &&
		(n.closure.Reason == v1alpha1.ReasonNoGPUResource || n.closure.Reason == v1alpha1.ReasonAgentNotReporting) &&
		a.Repeats < MaxRepeats && n.unmeasurable(in) == ""
}

// needsResult says whether a run of the changed nodes has to measure the node: its result is stale, lost, or of a run
// that was aborted before it came to the node; or the node could not be measured and now can, or had no place and is
// due again.
func (n *nodeState) needsResult(in Input) bool {
	aborted := n.closure != nil &&
		(n.closure.Reason == v1alpha1.ReasonSuspended || n.closure.Reason == v1alpha1.ReasonSuperseded)
	return n.stale != nil || n.phase != judge.Done || aborted || n.recovered(in) || n.retryDue(in)
}

// unmeasurable says why a node cannot be measured now; empty where it can. Right after a boot the device plugin is
// often not there yet: to start then would only give an error.
func (n *nodeState) unmeasurable(in Input) string {
	switch {
	case n.member == nil:
		return "it is no member"
	case !nodefacts.Hold(n.commNode, in.Now):
		return "its monitor does not report"
	case n.member.AllocatableGPUs < int64(in.Group.Spec.RanksPerNode):
		return fmt.Sprintf("it has %d allocatable %s and needs %d",
			n.member.AllocatableGPUs, objects.GPUResource(&in.Group.Spec), in.Group.Spec.RanksPerNode)
	}
	if problems := nodefacts.ErrorProblems(n.facts()); len(problems) > 0 {
		return "its facts show " + problems[0].Code
	}
	return ""
}

// renew makes the node of a run of the changed nodes wait for its turn, where it needs a result and can be measured.
// Each node is measured at most once in a run, so that one that reboots again and again holds up no other.
func (n *nodeState) renew(run *v1alpha1.GroupRunStatus, in Input) bool {
	if run.Phase != v1alpha1.RunPhaseRunning || !n.needsResult(in) {
		return false
	}
	// After a change of the members a run of all follows anyway.
	if n.phase == judge.Done && (in.hash != run.MembersHash || n.stale != nil && n.unmeasurable(in) != "") {
		return false
	}
	n.phase, n.report, n.closure, n.stale, n.exhausted, n.podName = judge.Waiting, nil, nil, nil, nil, ""
	n.renewed = true
	return true
}

// newAssignment is the run's assignment to a node that has none of it.
func newAssignment(run *v1alpha1.GroupRunStatus, n *nodeState, in Input) *v1alpha1.RunAssignment {
	a := &v1alpha1.RunAssignment{ID: run.ID, Name: run.Name, Generation: run.Generation, Number: run.Number,
		PodName: n.podName, Closed: n.closure, Waiting: n.waiting}
	if nodefacts.Hold(n.commNode, in.Now) {
		a.Platform = nodefacts.PlatformOf(n.facts())
	}
	old := runs.AssignmentOf(n.commTask)
	if !runs.Partial(run) || !runs.Counts(old, run) {
		return a
	}
	switch {
	case judge.BadResult(old, runs.FinishedReport(n.commTask)):
		a.Repeats = old.Repeats + 1
	case old.Closed != nil:
		a.Repeats = old.Repeats // the run did not come to the node
	}
	switch {
	case retriable(old.Closed):
		a.Retries = old.Retries + 1
	case old.Closed != nil:
		a.Retries = old.Retries
	}
	return a
}

// keptAssignment is an assignment that stays: only what the controller itself adds to it changes. Where nothing does it
// is the very one that there is.
func keptAssignment(n *nodeState, run *v1alpha1.GroupRunStatus, starting bool, in Input) *v1alpha1.RunAssignment {
	now := n.commTask.Spec.Run
	a := *now
	a.Stale = n.stale
	if !starting {
		a.Closed = n.closure
	}
	if !starting && a.ID == run.ID {
		a.PodName, a.Waiting, a.Name = n.podName, n.waiting, cmp.Or(a.Name, run.Name)
		if a.Platform == nil && n.phase != judge.Done && nodefacts.Hold(n.commNode, in.Now) {
			a.Platform = nodefacts.PlatformOf(n.facts()) // its monitor had not reported when the run began
		}
	}
	if a.Stale == now.Stale && a.Closed == now.Closed && a.PodName == now.PodName && a.Waiting == now.Waiting &&
		a.Platform == now.Platform && a.Name == now.Name {
		return now
	}
	return &a
}

// staleEvent tells once of the results that were found stale just now.
func staleEvent(nodes []nodeState) []decision.Event {
	var names []string
	var first *v1alpha1.RunStaleness
	for i := range nodes {
		if found := nodes[i].found; found != nil {
			names = append(names, nodes[i].name)
			first = cmp.Or(first, found)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []decision.Event{{Warning: true, Reason: v1alpha1.ReasonResultsStale, Action: "MarkStale",
		Note: clip.Head(fmt.Sprintf("Results no longer count on %s. %s (%s)",
			explain.Names(names, 5), explain.OfFirst(first.Message, names), first.Reason), 1000)}}
}

// MaxRepeats bounds how often a bad result is measured again by itself: a run may be what makes the node reboot.
const MaxRepeats = 2
