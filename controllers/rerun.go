package controllers

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

// sinceOf is the number of the run from which on results count. Runs of versions before there was a since measured every
// member.
func sinceOf(run *v1alpha1.GroupRunStatus) int64 { return cmp.Or(run.Since, run.Number) }

// partial says whether the run measures only the nodes whose results no longer count.
func partial(run *v1alpha1.GroupRunStatus) bool {
	return run != nil && run.Trigger == triggerNodesChanged
}

// runNumber is the number of an assignment's run; in objects of older versions only the id tells it.
func runNumber(a *v1alpha1.RunAssignment) int64 {
	if a.Number != 0 {
		return a.Number
	}
	return numberOfRun(a.ID)
}

// numberOfRun is the number in a run's id; 0 where it is none of ours.
func numberOfRun(id string) int64 {
	_, tail, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(tail, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// laterRun says whether a run is later than the status that was read. A run is written to the status before anything else: the
// read is old then, and nothing of the run may be taken away by it.
func laterRun(id string, group *v1alpha1.CommGroup) bool {
	read := int64(0)
	if group.Status.Run != nil {
		read = group.Status.Run.Number
	}
	return read > 0 && numberOfRun(id) > read
}

// counts says whether a result of the assignment counts for the run: it is the run's own, or of a run since the last one
// that measured every member.
func counts(a *v1alpha1.RunAssignment, run *v1alpha1.GroupRunStatus) bool {
	if a == nil {
		return false
	}
	if a.ID == run.ID {
		return true
	}
	number := runNumber(a)
	return number >= sinceOf(run) && number > 0 && number < run.Number
}

func assignmentOf(cn *v1alpha1.CommNode) *v1alpha1.RunAssignment {
	if cn == nil {
		return nil
	}
	return cn.Spec.Run
}

// recall fills in what is known of the node from its assignment: the report or closure, and whether that still counts.
func (n *nodeState) recall(a *v1alpha1.RunAssignment, in runInput) {
	switch {
	case a.Closed != nil:
		n.phase, n.closure = nodeDone, a.Closed.DeepCopy()
	case finishedReport(n.commNode) != nil:
		n.phase, n.report = nodeDone, n.commNode.Status.Run
	default:
		n.moved = !factsHold(n.commNode, in.now) || stale(a.Platform, nil, n.commNode.Status.Facts) != nil
		return
	}
	// Once it is found, it stays until the result is replaced: a reboot is not undone.
	if n.stale = a.Stale; n.stale != nil || !factsHold(n.commNode, in.now) {
		return
	}
	found := stale(a.Platform, n.report, n.commNode.Status.Facts)
	switch {
	case found == nil:
	case a.Repeats >= maxRepeats && badResult(a, n.report):
		n.exhausted = found
	default:
		found.Time = *decision.Stamp(in.now)
		n.stale, n.found = found, found
	}
}

// recovered says whether the run ended on the node for want of GPUs or of its monitor, and both are there now. Where that has
// happened too often in a row, a person has to ask.
func (n *nodeState) recovered(in runInput) bool {
	a := assignmentOf(n.commNode)
	return n.closure != nil && (n.closure.Reason == v1alpha1.ReasonNoGPUResource || n.closure.Reason == v1alpha1.ReasonAgentNotReporting) &&
		a != nil && a.Repeats < maxRepeats && n.unmeasurable(in) == ""
}

// needsResult says whether a run of the changed nodes has to measure the node: its result is stale, lost, or of a run that
// was aborted before it came to the node; or the node could not be measured and now can, or had no place and is due again.
func (n *nodeState) needsResult(in runInput) bool {
	aborted := n.closure != nil && (n.closure.Reason == v1alpha1.ReasonSuspended || n.closure.Reason == v1alpha1.ReasonSuperseded)
	return n.stale != nil || n.phase != nodeDone || aborted || n.recovered(in) || n.retryDue(in)
}

// unmeasurable says why a node cannot be measured now; empty where it can. Right after a boot the device plugin is often
// not there yet: to start then would only give an error.
func (n *nodeState) unmeasurable(in runInput) string {
	switch {
	case n.member == nil:
		return "it is no member"
	case !factsHold(n.commNode, in.now):
		return "its monitor does not report"
	case n.member.AllocatableGPUs < int64(in.group.Spec.RanksPerNode):
		return fmt.Sprintf("it has %d allocatable %s and needs %d", n.member.AllocatableGPUs, gpuResource(&in.group.Spec), in.group.Spec.RanksPerNode)
	}
	if problems := errorProblems(n.commNode.Status.Facts); len(problems) > 0 {
		return "its facts show " + problems[0].Code
	}
	return ""
}

// renew makes the node of a run of the changed nodes wait for its turn, where it needs a result and can be measured. Each
// node is measured at most once in a run, so that one that reboots again and again holds up no other.
func (n *nodeState) renew(run *v1alpha1.GroupRunStatus, in runInput) bool {
	if run.Phase != v1alpha1.RunPhaseRunning || !n.needsResult(in) {
		return false
	}
	// After a change of the members a run of all follows anyway.
	if n.phase == nodeDone && (in.hash != run.MembersHash || n.stale != nil && n.unmeasurable(in) != "") {
		return false
	}
	n.phase, n.report, n.closure, n.stale, n.exhausted, n.podName = nodeWaiting, nil, nil, nil, nil, ""
	n.renewed = true
	return true
}

// dueNodes are the nodes for which a run of the changed nodes is due: all of them, those that can be measured now, and for
// the others why they cannot.
func dueNodes(last *v1alpha1.GroupRunStatus, nodes []nodeState, in runInput) (due, ready, waiting []string) {
	aborted := last.Phase == v1alpha1.RunPhaseAborted
	for i := range nodes {
		n := &nodes[i]
		if n.stale == nil && !n.recovered(in) && !n.retryDue(in) && (!aborted || !n.needsResult(in)) {
			continue
		}
		due = append(due, n.name)
		if why := n.unmeasurable(in); why != "" {
			waiting = append(waiting, n.name+" ("+why+")")
		} else {
			ready = append(ready, n.name)
		}
	}
	return due, ready, waiting
}

// resumes says whether the aborted run is to be taken up again: it measured only the changed nodes, and what the others
// have shown still counts.
func resumes(last *v1alpha1.GroupRunStatus, in runInput, hash string) bool {
	return last != nil && last.Phase == v1alpha1.RunPhaseAborted && partial(last) && hash != "" && last.SpecHash == hash && last.MembersHash == in.hash
}

// newAssignment is the run's assignment to a node that has none of it.
func newAssignment(run *v1alpha1.GroupRunStatus, n *nodeState, plan v1alpha1.RunPlan, in runInput) *v1alpha1.RunAssignment {
	a := &v1alpha1.RunAssignment{ID: run.ID, Generation: run.Generation, Number: run.Number, Plan: plan,
		PodName: n.podName, Closed: n.closure, Waiting: n.waiting}
	if in.group.Spec.Span == v1alpha1.SpanGroup {
		a.Span = v1alpha1.SpanGroup
	}
	if factsHold(n.commNode, in.now) {
		a.Platform = platformOf(n.commNode.Status.Facts)
	}
	old := assignmentOf(n.commNode)
	if !partial(run) || !counts(old, run) {
		return a
	}
	switch {
	case badResult(old, finishedReport(n.commNode)):
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

// keptAssignment is an assignment that stays: only what the controller itself adds to it changes. Where nothing does it is the
// very one that there is.
func keptAssignment(n *nodeState, run *v1alpha1.GroupRunStatus, starting bool, in runInput) *v1alpha1.RunAssignment {
	now := n.commNode.Spec.Run
	a := *now
	a.Stale = n.stale
	if !starting {
		a.Closed = n.closure
	}
	if !starting && a.ID == run.ID {
		a.PodName, a.Waiting = n.podName, n.waiting
		if a.Platform == nil && n.phase != nodeDone && factsHold(n.commNode, in.now) {
			a.Platform = platformOf(n.commNode.Status.Facts) // its monitor had not reported when the run began
		}
	}
	if a.Stale == now.Stale && a.Closed == now.Closed && a.PodName == now.PodName && a.Waiting == now.Waiting && a.Platform == now.Platform {
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
		Note: words.Shorten(fmt.Sprintf("Results no longer count on %s. %s: %s (%s)", words.SomeNames(names, 5), names[0], first.Message, first.Reason), 1000)}}
}
