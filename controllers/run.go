package controllers

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/state"
)

// runInput is what the run state machine looks at.
type runInput struct {
	now   time.Time
	group *state.Group
	// runDeleted: the CommRun of the group's run was deleted.
	runDeleted bool
	// startRefused: the API server takes no CommRun for a run that starts.
	startRefused error
	accepted     bool
	members      []decision.Member
	hash         string
	// CommTasks and pods by node name.
	commTasks map[string]*v1alpha1.CommTask
	// commNodes by node name, of the Node objects of now.
	commNodes map[string]*v1alpha1.CommNode
	pods      map[string][]*corev1.Pod
	// groupPods are those of the group's stage, by node name.
	groupPods map[string][]*corev1.Pod
	// others is what other groups' runs do on the nodes; looked are the nodes whose pods were looked up just now, with who
	// holds GPUs there, nil before that; busyAt is when nodes were last seen busy, see Snapshot.
	others sharing.Elsewhere
	looked map[string]string
	// unread are nodes that were to be looked up just now and could not be, with why.
	unread map[string]string
	busyAt map[string]time.Time
}

// runState is what the state machine decided.
type runState struct {
	// run is the new status.run; nil while the group never ran.
	run *v1alpha1.GroupRunStatus
	// nodes of the run, in rank order; empty while there is none, or for a run that starts just now and measures all. For
	// one of the changed nodes that starts just now they are as the run before left them.
	nodes []nodeState
	// CreatePodsOn are the nodes that get a run pod now; DeletePods are pods to delete, by name.
	createPodsOn []string
	deletePods   []string
	// lookAt are nodes whose pods are to be looked up before it is decided whether they get a run pod.
	lookAt []string
	// waiting says why no run starts although one is due; empty otherwise.
	waiting string
	// outdated: some member is not what its last result was measured on, or is new, so that no earlier verdict may stand.
	outdated bool
	// NodesDone: each node of a run that goes on has its verdict; with span Group its group's stage follows, or goes on.
	nodesDone bool
	// span is the group's stage of the run.
	span   stage.State
	events []decision.Event
	wakeAt time.Time
}

// stepRun moves the group's run one step on. It keeps nothing in memory: a new manager goes on from the objects.
func stepRun(in runInput) runState {
	var out runState
	run := in.group.Status.Run.DeepCopy()
	hash := runplan.SpecHash(&in.group.Spec)
	if run != nil && run.Phase != v1alpha1.RunPhaseAborted && run.SpecHash != "" && run.SpecHash == hash {
		// The spec changed in nothing that a run depends on: this run measures the new generation, too.
		if run.Generation != in.group.Generation {
			run.Generation, run.ProvenRunID = in.group.Generation, "" // the verdict of the run before may be another by this spec
		}
	}
	suspended := in.group.Spec.Run.State == v1alpha1.RunSuspended
	// A run that ends in this step is written down first, to history and budget: the next one begins in the step after.
	over := run == nil || run.Phase != v1alpha1.RunPhaseRunning
	if !over {
		switch {
		case suspended:
			abort(&out, run, in, v1alpha1.ReasonSuspended, "run.state is Suspended")
		case in.group.Status.RunSuspended:
			abort(&out, run, in, v1alpha1.ReasonSuspended, fmt.Sprintf("spec.suspend of CommRun %s is true", run.Name))
		case in.runDeleted:
			abort(&out, run, in, v1alpha1.ReasonSuperseded, "its CommRun was deleted")
		case run.Generation != in.group.Generation:
			abort(&out, run, in, v1alpha1.ReasonSuperseded, fmt.Sprintf("the spec changed to generation %d", in.group.Generation))
		}
	}
	out.run = run
	if run != nil {
		evaluate(&out, run, in)
		out.events = append(out.events, staleEvent(out.nodes)...)
	}
	switch {
	case !over:
	case run != nil && !history.Has(in.group.Status.History, run):
		out.wakeAt = decision.Earlier(out.wakeAt, in.now) // its CommRun says so, and the group's status does not yet
	default:
		startIfDue(&out, in, hash, suspended)
	}
	if r := out.run; r != nil && r.Phase == v1alpha1.RunPhaseRunning && repeats(r) && r.ProvenRunID != "" && out.outdated {
		r.Moved = true
	}
	out.deletePods = podsToDelete(out.run, out.nodes, in, &out.wakeAt)
	return out
}

func abort(out *runState, run *v1alpha1.GroupRunStatus, in runInput, reason, why string) {
	run.Phase = v1alpha1.RunPhaseAborted
	run.Verdict = ""
	run.FinishTime = decision.Stamp(in.now)
	out.events = append(out.events, decision.Event{Warning: true, Reason: reason, Action: "AbortRun",
		Note: fmt.Sprintf("Run %s was aborted: %s.", run.ID, why)})
}

// startIfDue sets out.run to a new run where one is due and can start. The new run is written to the status first;
// CommTasks and pods follow in the next reconcile, so that a lost write never leaves two runs with one id.
func startIfDue(out *runState, in runInput, hash string, suspended bool) {
	if suspended {
		return
	}
	last := out.run
	if in.group.Status.RunSuspended {
		out.waiting = suspendedRun(last)
		return
	}
	trigger, due := dueTrigger(in, last, out.nodes, hash)
	if trigger == "" {
		out.wakeAt = decision.Earlier(out.wakeAt, due)
		return
	}
	if !in.accepted {
		return
	}
	nodes, wait := in.mayStart(trigger, last, out.nodes)
	if wait.why != "" && (trigger == state.TriggerScheduled || trigger == state.TriggerRequested) {
		// What a run of all waits for, as the budget's next day, may be no wait for a run of the few that changed. A request stays.
		if due, ready, _ := dueNodes(last, out.nodes, in); len(ready) > 0 && last.SpecHash == hash {
			if some, held := in.mayStart(state.TriggerNodesChanged, last, out.nodes); held.why == "" {
				trigger, nodes, wait = state.TriggerNodesChanged, some, runWait{}
			} else {
				wait.why = words.Shorten(wait.why+fmt.Sprintf(" A run of %s with stale results waits, too.", words.Counted(len(due), "node")), 1024)
				wait.until = decision.Earlier(wait.until, held.until)
			}
		}
	}
	if in.startRefused != nil {
		wait.why = words.Shorten(fmt.Sprintf("A run is due (%s), and its CommRun cannot be created: %v.", dueFor(in, trigger), in.startRefused), 1024)
	}
	if wait.why != "" {
		out.waiting, out.wakeAt = wait.why, decision.Earlier(out.wakeAt, wait.until)
		return
	}
	number := int64(1)
	if last != nil {
		number = last.Number + 1
	}
	since, name := number, v1alpha1.CommRunName(in.group.Name, number)
	if trigger == state.TriggerNodesChanged {
		since = runs.Since(last)
	} else {
		out.nodes = nil
		if asked(in) {
			name = in.group.Status.Requests[0] // whatever else it is due for
		}
	}
	out.run = &v1alpha1.GroupRunStatus{
		Name:        name,
		ID:          fmt.Sprintf("%d-%d", in.group.Generation, number),
		Number:      number,
		Since:       since,
		Generation:  in.group.Generation,
		Trigger:     trigger,
		MembersHash: in.hash,
		SpecHash:    hash,
		Phase:       v1alpha1.RunPhaseRunning,
		StartTime:   *decision.Stamp(in.now),
		ProvenRunID: provenBy(last, in.group),
	}
	if trigger == state.TriggerNodesChanged && in.group.Spec.Span == v1alpha1.SpanGroup {
		nodes += ", and then as a group on all members that pass"
	}
	out.events = append(out.events, decision.Event{Reason: "RunStarted", Action: "StartRun",
		Note: fmt.Sprintf("Run %s started on %s (%s).", out.run.ID, nodes, dueFor(in, trigger))})
}

// suspendedRun says that the group waits for a run that was suspended, and what to do.
func suspendedRun(run *v1alpha1.GroupRunStatus) string {
	return fmt.Sprintf("CommRun %s is suspended: set its spec.suspend to false and it starts again, or delete it.", run.Name)
}

// runWait says why a run that is due does not start, and until when at most where that is known; empty where it may.
type runWait struct {
	why   string
	until time.Time
}

// mayStart names the nodes that a run for the trigger is to measure, and says what it has to wait for.
func (in *runInput) mayStart(trigger string, last *v1alpha1.GroupRunStatus, nodes []nodeState) (names string, wait runWait) {
	names, count := words.Counted(len(in.members), "node"), len(in.members)
	if trigger == state.TriggerNodesChanged {
		due, ready, waiting := dueNodes(last, nodes, *in)
		if len(ready) == 0 && len(due) > 0 {
			return "", runWait{why: fmt.Sprintf("A run of %s with stale results is due and waits: %s.", words.Counted(len(due), "node"), words.SomeNames(waiting, 3)),
				until: pausedUntil(last, in.now)}
		}
		names, count = words.SomeNames(due, 5), len(due)
	} else if why := tooFewReport(*in, trigger); why != "" {
		return "", runWait{why: why}
	}
	if in.group.Spec.Span == v1alpha1.SpanGroup {
		count = len(in.members) // whoever it is for, the group's stage takes all
	}
	why, until := overBudget(*in, trigger, count)
	return names, runWait{why, until}
}

// dueFor is the trigger in words: that a person asks for the run, too, is told beside one that goes first. A run of some nodes is not
// the one that was asked for.
func dueFor(in runInput, trigger string) string {
	if asked(in) && trigger != state.TriggerRequested && trigger != state.TriggerNodesChanged {
		return trigger + " and requested"
	}
	return trigger
}

// provenBy is the id of the run that is over where it passed by the spec of now; empty where nothing is proven. It is kept with
// the run that follows: conditions are no memory, as a read that fails makes all of them Unknown.
func provenBy(last *v1alpha1.GroupRunStatus, group *state.Group) string {
	if last == nil || last.Phase != v1alpha1.RunPhaseFinished || last.Verdict != v1alpha1.VerdictPass ||
		last.Generation != group.Generation || group.Status.ObservedGeneration != group.Generation {
		return ""
	}
	return last.ID
}

// tooFewReport says that fewer monitors report than a run of all members needs; empty where enough do.
func tooFewReport(in runInput, trigger string) string {
	reporting := 0
	for i := range in.members {
		if nodefacts.Hold(in.commNodes[in.members[i].Name], in.now) {
			reporting++
		}
	}
	need := max(1, int(in.group.Spec.Members.MinMembers))
	if reporting >= need {
		return ""
	}
	return fmt.Sprintf("A run is due (%s) and waits until the monitors of at least %s report; %d of %d do. See `kubectl get commtasks` and the monitor pods.",
		dueFor(in, trigger), words.Counted(need, "node"), reporting, len(in.members))
}

// dueTrigger says why a run is due now; where none is, it gives the time at which the schedule is due next. A run of all
// members measures the changed ones, too, so that it goes first.
func dueTrigger(in runInput, last *v1alpha1.GroupRunStatus, nodes []nodeState, hash string) (trigger string, next time.Time) {
	resume := resumes(last, in, hash)
	if last == nil || (last.Generation != in.group.Generation && !resume) {
		return state.TriggerSpecChanged, time.Time{}
	}
	if last.MembersHash != in.hash {
		return state.TriggerMembersChanged, time.Time{}
	}
	if asked(in) {
		return state.TriggerRequested, time.Time{}
	}
	next = schedule.Next(in.group, schedule.Done(in.group, in.group.Status.History, last, in.now))
	if !next.IsZero() && !next.After(in.now) {
		return state.TriggerScheduled, time.Time{}
	}
	if due, _, _ := dueNodes(last, nodes, in); resume || len(due) > 0 {
		if last.SpecHash != hash {
			return state.TriggerSpecChanged, time.Time{} // another version of the operator plans otherwise: nothing measured counts
		}
		return state.TriggerNodesChanged, time.Time{}
	}
	return "", decision.Earlier(next, nextRetry(nodes, &in))
}

// evaluate looks at each node of the run, allots the free places, and finishes the run when every node is done.
func evaluate(out *runState, run *v1alpha1.GroupRunStatus, in runInput) {
	out.nodes = participants(run, in)
	out.outdated = in.hash != run.MembersHash
	running := run.Phase == v1alpha1.RunPhaseRunning
	open := 0
	free := int(in.group.Spec.Run.MaxParallelNodes) - nodesHoldingGPUs(in)
	for i := range out.nodes {
		n := &out.nodes[i]
		stepNode(n, run, in)
		if running {
			n.giveUp(run, in)
		}
		if n.phase == judge.Waiting && n.wakeAt.IsZero() {
			// What it waits for is an event, or a write that is tried again: this is for one that is lost.
			n.wakeAt = in.now.Add(decision.Seconds(in.group.Spec.Run.StartDeadlineSeconds))
		}
		out.outdated = out.outdated || n.moved || n.stale != nil
		if n.phase == judge.Done {
			continue
		}
		open++
		if !running {
			continue
		}
		out.wakeAt = decision.Earlier(out.wakeAt, n.wakeAt)
		if n.wantsPod && free > 0 {
			free--
			out.createPodsOn = append(out.createPodsOn, n.name)
		}
	}
	if running && in.looked == nil {
		out.lookAt = chooseLooks(out.nodes, free, in.now, in.busyAt)
	}
	if !running || open > 0 {
		return
	}
	if out.nodesDone = true; in.group.Spec.Span == v1alpha1.SpanGroup {
		return // the group's stage ends the run
	}
	run.Phase = v1alpha1.RunPhaseFinished
	run.FinishTime = decision.Stamp(in.now)
}

// participants are the nodes of the run. While the members are the ones that the run started with, they are the
// members; after a change, the nodes with an assignment that counts. A node that left, or was made anew, stays in the run as
// lost until the run ends.
func participants(run *v1alpha1.GroupRunStatus, in runInput) []nodeState {
	nodes := make([]nodeState, 0, len(in.members))
	isMember := make(map[string]bool, len(in.members))
	same := in.hash == run.MembersHash
	for i := range in.members {
		m := &in.members[i]
		ct := in.commTasks[m.Name]
		if ct != nil && ct.Spec.NodeUID != m.UID {
			continue // the CommTask of a node that was there before under the same name
		}
		isMember[m.Name] = true
		if same || runs.Counts(runs.AssignmentOf(ct), run) {
			nodes = append(nodes, nodeState{name: m.Name, member: m, commTask: ct, commNode: in.commNodes[m.Name]})
		}
	}
	if run.Phase != v1alpha1.RunPhaseRunning {
		return nodes
	}
	for _, name := range words.SortedKeys(in.commTasks) {
		if ct := in.commTasks[name]; !isMember[name] && runs.Assigned(ct, run.ID) {
			nodes = append(nodes, nodeState{name: name, commTask: ct, commNode: in.commNodes[name]})
		}
	}
	return nodes
}

// nodesHoldingGPUs counts the nodes with a run pod that is not over, of whatever run. A pod that has been told to end
// and has not for podstate.StuckAfter sits on a node that does not answer; it counts no longer, or one dead node would hold up
// all others.
func nodesHoldingGPUs(in runInput) int {
	count := 0
	for _, pods := range in.pods {
		if holdsGPUs(pods, in.now) {
			count++
		}
	}
	return count
}

func holdsGPUs(pods []*corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podstate.Alive(pod) && !podstate.Stuck(pod, now) })
}

// podsToDelete lists pods that no run needs: of other runs, of an aborted run, of nodes that are done.
func podsToDelete(run *v1alpha1.GroupRunStatus, nodes []nodeState, in runInput, wakeAt *time.Time) []string {
	byNode := make(map[string]*nodeState, len(nodes))
	for i := range nodes {
		byNode[nodes[i].name] = &nodes[i]
	}
	var names []string
	for _, nodeName := range words.SortedKeys(in.pods) {
		for _, pod := range in.pods[nodeName] {
			if !pod.DeletionTimestamp.IsZero() {
				continue
			}
			if !podNeeded(pod, run, byNode[nodeName], in.now, wakeAt) {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}

// podNeeded says whether the run still needs the pod: while its node is not done, and a little longer for an agent that
// has reported and ends by itself.
func podNeeded(pod *corev1.Pod, run *v1alpha1.GroupRunStatus, node *nodeState, now time.Time, wakeAt *time.Time) bool {
	if run == nil || node == nil || run.Phase == v1alpha1.RunPhaseAborted || node.closed() || pod.Labels[v1alpha1.LabelRunID] != run.ID {
		return false
	}
	if node.phase != judge.Done {
		return run.Phase == v1alpha1.RunPhaseRunning
	}
	if !podstate.Alive(pod) || node.report == nil || node.report.FinishTime == nil {
		return false
	}
	end := nodefacts.Corrected(node.commNode, node.report.FinishTime.Time).Add(podstate.ExitGrace)
	// Where the node's clock is ahead and that is not known, it must not keep the GPUs for as long.
	if !now.Before(end) || end.After(now.Add(2*podstate.ExitGrace)) {
		return false
	}
	*wakeAt = decision.Earlier(*wakeAt, end)
	return true
}
