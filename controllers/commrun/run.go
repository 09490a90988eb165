package commrun

import (
	"fmt"
	"maps"
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
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/state"
)

// runState is what the state machine decided.
type runState struct {
	// run is the new status.run; nil while the group never ran.
	run *v1alpha1.GroupRunStatus
	// nodes of the run, in rank order; empty while there is none, or for a run that starts just now and measures all.
	// For one of the changed nodes that starts just now they are as the run before left them.
	nodes []nodeState
	// CreatePodsOn are the nodes that get a run pod now; DeletePods are pods to delete, by name.
	createPodsOn []string
	deletePods   []string
	// lookAt are nodes whose pods are to be looked up before it is decided whether they get a run pod.
	lookAt []string
	// waiting says why no run starts although one is due; empty otherwise.
	waiting string
	// outdated: some member is not what its last result was measured on, or is new, so that no earlier verdict may
	// stand.
	outdated bool
	// NodesDone: each node of a run that goes on has its verdict; with span Group its group's stage follows, or goes
	// on.
	nodesDone bool
	// span is the group's stage of the run.
	span   stage.State
	events []decision.Event
	wakeAt time.Time
}

// stepRun moves the group's run one step on. It keeps nothing in memory: a new manager goes on from the objects.
func stepRun(in Input) runState {
	var out runState
	run := in.Group.Status.Run.DeepCopy()
	hash := runplan.SpecHash(&in.Group.Spec)
	if run != nil && run.Phase != v1alpha1.RunPhaseAborted && run.SpecHash != "" && run.SpecHash == hash {
		// The spec changed in nothing that a run depends on: this run measures the new generation, too.
		if run.Generation != in.Group.Generation {
			// the verdict of the run before may be another by this spec
			run.Generation, run.ProvenRunID = in.Group.Generation, ""
		}
	}
	suspended := in.Group.Spec.Run.State == v1alpha1.RunSuspended
	// A run that ends in this step is written down first, to history and budget: the next one begins in the step after.
	over := run == nil || run.Phase != v1alpha1.RunPhaseRunning
	if !over {
		switch {
		case suspended:
			abort(&out, run, in, v1alpha1.ReasonSuspended, "run.state is Suspended")
		case in.Group.Status.RunSuspended:
			abort(&out, run, in, v1alpha1.ReasonSuspended, fmt.Sprintf("spec.suspend of CommRun %s is true", run.Name))
		case in.RunDeleted:
			abort(&out, run, in, v1alpha1.ReasonSuperseded, "its CommRun was deleted")
		case run.Generation != in.Group.Generation:
			abort(&out, run, in, v1alpha1.ReasonSuperseded,
				fmt.Sprintf("the spec changed to generation %d", in.Group.Generation))
		}
	}
	out.run = run
	if run != nil {
		evaluate(&out, run, in)
		out.events = append(out.events, staleEvent(out.nodes)...)
	}
	switch {
	case !over:
	case run != nil && !history.Has(in.Group.Status.History, run):
		out.wakeAt = decision.Earlier(out.wakeAt, in.Now) // its CommRun says so, and the group's status does not yet
	default:
		startIfDue(&out, in, hash, suspended)
	}
	if r := out.run; r != nil && r.Phase == v1alpha1.RunPhaseRunning && state.Repeats(r) &&
		r.ProvenRunID != "" && out.outdated {
		r.Moved = true
	}
	out.deletePods = podsToDelete(out.run, out.nodes, in, &out.wakeAt)
	return out
}

func abort(out *runState, run *v1alpha1.GroupRunStatus, in Input, reason, why string) {
	run.Phase = v1alpha1.RunPhaseAborted
	run.Verdict = ""
	run.FinishTime = decision.Stamp(in.Now)
	out.events = append(out.events, decision.Event{Warning: true, Reason: reason, Action: "AbortRun",
		Note: fmt.Sprintf("Run %s was aborted: %s.", run.ID, why)})
}

// evaluate looks at each node of the run, allots the free places, and finishes the run when every node is done.
func evaluate(out *runState, run *v1alpha1.GroupRunStatus, in Input) {
	out.nodes = participants(run, in)
	out.outdated = in.hash != run.MembersHash
	running := run.Phase == v1alpha1.RunPhaseRunning
	open := 0
	free := int(in.Group.Spec.Run.MaxParallelNodes) - nodesHoldingGPUs(in)
	for i := range out.nodes {
		n := &out.nodes[i]
		stepNode(n, run, in)
		if running {
			n.giveUp(run, in)
		}
		if n.phase == judge.Waiting && n.wakeAt.IsZero() {
			// What it waits for is an event, or a write that is tried again: this is for one that is lost.
			n.wakeAt = in.Now.Add(decision.Seconds(in.Group.Spec.Run.StartDeadlineSeconds))
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
	if running && in.Looked == nil {
		out.lookAt = chooseLooks(out.nodes, free, in.Now, in.BusyAt)
	}
	if !running || open > 0 {
		return
	}
	if out.nodesDone = true; in.Group.Spec.Span == v1alpha1.SpanGroup {
		return // the group's stage ends the run
	}
	run.Phase = v1alpha1.RunPhaseFinished
	run.FinishTime = decision.Stamp(in.Now)
}

// participants are the nodes of the run. While the members are the ones that the run started with, they are the
// members; after a change, the nodes with an assignment that counts. A node that left, or was re-created, stays in the
// run as lost until the run ends.
func participants(run *v1alpha1.GroupRunStatus, in Input) []nodeState {
	nodes := make([]nodeState, 0, len(in.Members))
	isMember := make(map[string]bool, len(in.Members))
	same := in.hash == run.MembersHash
	for i := range in.Members {
		m := &in.Members[i]
		ct := in.CommTasks[m.Name]
		if ct != nil && ct.Spec.NodeUID != m.UID {
			continue // the CommTask of a node that was there before under the same name
		}
		isMember[m.Name] = true
		if same || runs.Counts(runs.AssignmentOf(ct), run) {
			nodes = append(nodes, nodeState{name: m.Name, member: m, commTask: ct, commNode: in.CommNodes[m.Name]})
		}
	}
	if run.Phase != v1alpha1.RunPhaseRunning {
		return nodes
	}
	for _, name := range slices.Sorted(maps.Keys(in.CommTasks)) {
		if ct := in.CommTasks[name]; !isMember[name] && runs.Assigned(ct, run.ID) {
			nodes = append(nodes, nodeState{name: name, commTask: ct, commNode: in.CommNodes[name]})
		}
	}
	return nodes
}

// nodesHoldingGPUs counts the nodes with a run pod that is not over, of whatever run. A pod that has been told to end
// and has not for podstate.StuckAfter sits on a node that does not answer; it counts no longer, or one dead node would
// hold up all others.
func nodesHoldingGPUs(in Input) int {
	count := 0
	for _, pods := range in.Pods {
		if holdsGPUs(pods, in.Now) {
			count++
		}
	}
	return count
}

func holdsGPUs(pods []*corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return podstate.Alive(pod) && !podstate.Stuck(pod, now)
	})
}

// podsToDelete lists pods that no run needs: of other runs, of an aborted run, of nodes that are done.
func podsToDelete(run *v1alpha1.GroupRunStatus, nodes []nodeState, in Input, wakeAt *time.Time) []string {
	byNode := make(map[string]*nodeState, len(nodes))
	for i := range nodes {
		byNode[nodes[i].name] = &nodes[i]
	}
	var names []string
	for _, nodeName := range slices.Sorted(maps.Keys(in.Pods)) {
		for _, pod := range in.Pods[nodeName] {
			if !pod.DeletionTimestamp.IsZero() {
				continue
			}
			if !podNeeded(pod, run, byNode[nodeName], in.Now, wakeAt) {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}

// podNeeded says whether the run still needs the pod: while its node is not done, and a little longer for an agent that
// has reported and ends by itself.
func podNeeded(pod *corev1.Pod, run *v1alpha1.GroupRunStatus, node *nodeState, now time.Time, wakeAt *time.Time) bool {
	if run == nil || node == nil || run.Phase == v1alpha1.RunPhaseAborted || node.closed() ||
		pod.Labels[v1alpha1.LabelRunID] != run.ID {
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
