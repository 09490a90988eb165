package commrun

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/baseline"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// Input is what the run state machine looks at.
type Input struct {
	Now   time.Time
	Group *state.Group
	// RunDeleted: the CommRun of the group's run was deleted.
	RunDeleted bool
	// StartRefused: the API server takes no CommRun for a run that starts.
	StartRefused error
	Accepted     bool
	Members      []decision.Member
	hash         string
	// CommTasks and pods by node name.
	CommTasks map[string]*v1alpha1.CommTask
	// CommNodes by node name, of the Node objects of now.
	CommNodes map[string]*v1alpha1.CommNode
	Pods      map[string][]*corev1.Pod
	// GroupPods are those of the group's stage, by node name.
	GroupPods map[string][]*corev1.Pod
	// Others is what other groups' runs do on the nodes; Looked are the nodes whose pods were looked up just now, with
	// who holds GPUs there, nil before that; BusyAt is when nodes were last seen busy.
	Others sharing.Elsewhere
	Looked map[string]string
	// Unread are nodes that were to be looked up just now and could not be, with why.
	Unread map[string]string
	BusyAt map[string]time.Time
}

// Decision is what should be of the run: its state, and what follows from the state that was read.
type Decision struct {
	// Run is the new status.run, nil while the group never ran; Span is that of its group's stage.
	Run  *v1alpha1.GroupRunStatus
	Span *v1alpha1.SpanStatus
	// Outcomes of the nodes, their results together, and how these compare with the baseline.
	Outcomes []judge.Outcome
	Results  []v1alpha1.GroupResultSeries
	Compared baseline.Comparison
	// Changes of CommTasks, in rank order, and those to delete, by name.
	Changes         []Change
	DeleteCommTasks []string
	// CreatePodsOn are the nodes that get a run pod now, CreateGroupPodsOn those that get a pod of the group's stage,
	// of which GroupPods are to be admitted together. DeletePods are pods to delete, by name.
	CreatePodsOn, CreateGroupPodsOn []string
	GroupPods                       int32
	DeletePods                      []string
	// LookAt are nodes whose pods are to be looked up before it is decided whether they get a run pod.
	LookAt []string
	// RestsOn are the nodes whose objects have to be as they were read.
	RestsOn []string
	// Waiting says why no run starts although one is due, Progress what a run that goes on waits for; empty otherwise.
	Waiting, Progress string
	Events            []decision.Event
	WakeAt            time.Time
}

// Next takes the group's run one step on, or starts one that is due. It keeps nothing in memory: a new manager goes on
// from the objects.
func Next(in Input) Decision {
	in.hash = membership.Hash(in.Members)
	state := stepRun(in)
	outcomes := judgeNodes(state.nodes, in.Group)
	decideSpan(&state, outcomes, in)
	state.admitGroupPods(in)
	run, span := state.run, state.span.Span
	out := Decision{Run: run, Span: span, Outcomes: outcomes, Results: judge.AggregateResults(outcomes),
		CreatePodsOn: state.createPodsOn, CreateGroupPodsOn: state.span.CreatePodsOn, LookAt: state.lookAt,
		Waiting: state.waiting, Events: slices.Concat(state.events, state.span.Events),
		WakeAt: decision.Earlier(state.wakeAt, state.span.WakeAt)}
	if run != nil &&
		(run.Phase == v1alpha1.RunPhaseFinished || run.Phase == v1alpha1.RunPhaseRunning && runs.Partial(run)) {
		out.Compared = baseline.Compare(baseline.Input{Group: in.Group, Run: run, Outcomes: outcomes,
			Results: out.Results, Span: judge.SpanResultsOf(span, run)})
	}
	if run != nil && run.Phase == v1alpha1.RunPhaseFinished {
		told, worse := settleVerdict(run, stage.WithSpan(out.Compared.With(outcomes), &in.Group.Spec, run, span), in)
		if out.Events = append(out.Events, told...); worse != "" {
			out.RestsOn = []string{worse}
		}
		run.BaselineKey = out.Compared.Key
	}
	out.Changes, out.DeleteCommTasks = planCommTasks(&state, in)
	out.DeletePods = withoutKept(slices.Concat(state.deletePods, state.span.DeletePods), &state, outcomes, in)
	if len(out.CreateGroupPodsOn) > 0 {
		out.GroupPods = in.stagePods(&state)
	}
	out.RestsOn = slices.Concat(out.RestsOn, lostNodes(state.nodes), state.span.RestsOn)
	out.RestsOn = out.RestsOn[:min(len(out.RestsOn), maxRestsOn)]
	out.Progress = hindered(state.nodes) + heldUp(state.nodes) + stage.Progress(span)
	return out
}

// Change is one CommTask as it should be. Current is nil where it has to be created.
type Change struct {
	Current *v1alpha1.CommTask
	Desired *v1alpha1.CommTask
}

// maxRestsOn bounds the nodes that are looked up before much is concluded from what was read: a cache that is behind is
// so with many.
const maxRestsOn = 64

// lostNodes are those that the run ends on just now since they, or their pods, are not there.
func lostNodes(nodes []nodeState) (names []string) {
	for i := range nodes {
		n := &nodes[i]
		if a := runs.AssignmentOf(n.commTask); n.closure == nil || a != nil && a.Closed != nil {
			continue
		}
		if n.closure.Reason == v1alpha1.ReasonRunPodFailed || n.closure.Reason == v1alpha1.ReasonMemberLost {
			names = append(names, n.name)
		}
	}
	return names
}

// decideSpan moves the group's stage on, which follows the nodes' own and ends the run.
func decideSpan(state *runState, outcomes []judge.Outcome, in Input) {
	state.span = stage.Step(stage.Input{Now: in.Now, Group: in.Group, Run: state.run, NodesDone: state.nodesDone,
		Members: in.Members, Outcomes: outcomes, CommTasks: in.CommTasks, CommNodes: in.CommNodes, Pods: in.GroupPods,
		RunDeleted: in.RunDeleted, Others: &in.Others, Looked: in.Looked})
	if run := state.run; state.nodesDone && state.span.Over && run.Phase == v1alpha1.RunPhaseRunning {
		run.Phase = v1alpha1.RunPhaseFinished
		run.FinishTime = decision.Stamp(in.Now)
	}
}

// settleVerdict writes the verdict of a finished run, again each time, from the children. Where it becomes worse than
// it was, it gives the node that it rests on.
func settleVerdict(
	run *v1alpha1.GroupRunStatus,
	outcomes []judge.Outcome,
	in Input,
) (told []decision.Event, worse string) {
	unchanged := in.hash == run.MembersHash
	verdict, decisive := judge.GroupVerdict(outcomes, unchanged)
	was, justFinished := run.Verdict, run.Verdict == ""
	if unchanged || justFinished || run.Verdict == v1alpha1.VerdictPass {
		run.Verdict = verdict
	}
	if !justFinished {
		if decisive != nil && judge.Rank(run.Verdict) > judge.Rank(was) {
			worse = decisive.Node
		}
		return nil, worse
	}
	note := fmt.Sprintf("Run %s finished: %s.", run.ID, run.Verdict)
	if run.Verdict != v1alpha1.VerdictPass && decisive != nil {
		note += fmt.Sprintf(" %s on %s: %s",
			decisive.Reason, decisive.Node, explain.Unnamed(decisive.Message, decisive.Node))
	}
	return []decision.Event{
		{
			Warning: run.Verdict != v1alpha1.VerdictPass,
			Reason:  v1alpha1.ReasonRunFinished,
			Action:  "FinishRun",
			Note:    clip.Head(note, 1000),
		},
	}, ""
}
