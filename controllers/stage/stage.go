package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
)

// Input is what the state machine of the group's stage looks at.
type Input struct {
	Now   time.Time
	Group *state.Group
	// Run as it will be written; NodesDone: each of its nodes has its verdict.
	Run       *v1alpha1.GroupRunStatus
	NodesDone bool
	// RunDeleted: the run's CommRun was deleted, and with it what the stage showed.
	RunDeleted bool
	// Members of now, and what the run shows of its nodes, both in rank order.
	Members  []decision.Member
	Outcomes []judge.Outcome
	// CommTasks and the pods of the group's stage, by node name.
	CommTasks map[string]*v1alpha1.CommTask
	CommNodes map[string]*v1alpha1.CommNode
	Pods      map[string][]*corev1.Pod
	// Others is what other groups' runs do on the nodes.
	Others *sharing.Elsewhere
	// Looked is who holds GPUs on the nodes that were looked up just now, empty where nobody does.
	Looked map[string]string
}

// State is what the state machine decided.
type State struct {
	// Span is the new status.span; nil for a group of span Node.
	Span *v1alpha1.SpanStatus
	// Sessions of the nodes as they should be, by node name; a node that is missing has none.
	Sessions map[string]*v1alpha1.SessionAssignment
	// CreatePodsOn are nodes that get a pod of the stage now; DeletePods are pods to delete, by name.
	CreatePodsOn []string
	DeletePods   []string
	// RestsOn are the nodes by whose objects members are let go while the stage goes on: these have to be as they were read.
	RestsOn []string
	Events  []decision.Event
	WakeAt  time.Time
	// Over: the stage of this run has ended.
	Over bool
}

// machine is one step of the group's stage. Everything that a stage knows is in the objects: the seats in the CommTasks'
// sessions, what was tried and what came of it in status.span. A decision is written to the status first; what follows from it
// is derived from the written status (saved) in the next reconcile, so that a lost write loses nothing.
type machine struct {
	in Input
	// saved is status.span of this run as the API has it, nil where it has none; span is what it becomes.
	saved, span *v1alpha1.SpanStatus
	// seats of the stage by index; nil where a node is gone or has none.
	seats []*seat
	// left are the indexes of the members that the group went on without; certain: they could be read.
	left    map[int]bool
	certain bool
	// unwritten: they are too many ranges for the status.
	unwritten bool
	// here caches the present members, plans what tests measure, and choice the network.
	here   []*seat
	plans  map[planKey]*v1alpha1.NodeTask
	choice *networkChoice
	// dropped are the members that fell out in this step, and what was said of the first.
	dropped []string
	// justLeft are those that left and are not noted in the tests yet; lost: some of them not as culprits; leftSilent of them were seen in
	// a bad test and heard of no more.
	justLeft   []int
	lost       bool
	leftSilent int
	why        decision.Event
	// round are the tests that were closed in this step.
	round []testResult
	out   State
}

// Step moves the group's stage of the run one step on.
func Step(in Input) State {
	g := &machine{in: in, plans: map[planKey]*v1alpha1.NodeTask{}}
	if s := in.Group.Status.Span; s != nil && in.Run != nil && s.RunID == in.Run.ID {
		g.saved = s
	}
	spanned := in.Group.Spec.Span == v1alpha1.SpanGroup
	switch {
	case in.Run == nil || !spanned:
		g.deletePods(func(*corev1.Pod) bool { return false })
		if g.saved != nil && g.saved.Stage == v1alpha1.StageEnded {
			g.out.Span = g.saved.DeepCopy() // the spec has become one of span Node; what the run showed still decides its verdict
		}
		return g.out
	case g.saved == nil:
		g.span = &v1alpha1.SpanStatus{RunID: in.Run.ID, Stage: v1alpha1.StageNodes}
	default:
		g.span = g.saved.DeepCopy()
	}
	g.takeSeats()
	switch {
	case g.span.Stage == v1alpha1.StageEnded:
	case in.Run.Phase == v1alpha1.RunPhaseAborted && g.span.Stage == v1alpha1.StageNodes:
		g.span.Stage, g.span.Verdict = v1alpha1.StageEnded, v1alpha1.VerdictSkipped // nothing had begun
	case in.Run.Phase == v1alpha1.RunPhaseAborted:
		reason := v1alpha1.ReasonSuperseded
		if in.Group.Spec.Run.State == v1alpha1.RunSuspended || in.Group.Status.RunSuspended {
			reason = v1alpha1.ReasonSuspended
		}
		g.end(v1alpha1.VerdictSkipped, reason, fmt.Sprintf("Run %s was aborted.", in.Run.ID))
	case in.Run.Phase == v1alpha1.RunPhaseFinished:
		g.end(v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive, "The run ended before the group's stage did.")
	case g.span.Stage == v1alpha1.StageNodes:
		if in.NodesDone {
			g.begin()
		}
	default:
		g.advance()
	}
	g.writeLeft()
	g.out.Span = g.span
	g.out.Over = g.span.Stage == v1alpha1.StageEnded
	g.assignTasks()
	g.planPods()
	g.out.Sessions = g.sessions()
	g.out.RestsOn = g.restsOn()
	return g.out
}

// LeastMembers of a communicator over several nodes.
const LeastMembers = 2

func (g *machine) need() int { return MembersNeeded(&g.in.Group.Spec) }

// MembersNeeded is how many members a communicator over the group takes.
func MembersNeeded(spec *v1alpha1.CommGroupSpec) int {
	return max(LeastMembers, int(spec.Members.MinMembers))
}

// begin fixes who takes part: the nodes that passed alone, in rank order.
func (g *machine) begin() {
	eligible := 0
	var out []string
	for i := range g.in.Outcomes {
		if o := &g.in.Outcomes[i]; Fit(o) {
			eligible++
		} else {
			out = append(out, fmt.Sprintf("%s (%s)", o.Node, cmp.Or(o.Reason, "no result")))
		}
	}
	if eligible < g.need() {
		g.end(v1alpha1.VerdictSkipped, v1alpha1.ReasonTooFewMembers, fmt.Sprintf(
			"No communicator over the group was formed: %d of %d nodes passed alone and it takes %d. Not passed: %s. Mend those, or what the spec holds them against; a new run follows once they or the spec change, or %s.",
			eligible, len(g.in.Outcomes), g.need(), words.SomeNames(out, 5), runs.Ask(g.in.Group)))
		return
	}
	if g.awaitOthers() {
		return
	}
	g.span.Members, g.span.Present = int32(eligible), int32(eligible)
	g.enter(v1alpha1.StageWaitingForMembers, decision.Seconds(g.in.Group.Spec.Run.MembersDeadlineSeconds))
	g.tell(false, v1alpha1.ReasonWaitingForMembers, "StartGroupStage", "Run %s: the group's stage of %d nodes starts; their pods have %d s to be ready.",
		g.in.Run.ID, eligible, g.in.Group.Spec.Run.MembersDeadlineSeconds)
}

// enter begins a stage; a deadline of zero leaves the deadlines to its tests.
func (g *machine) enter(stage v1alpha1.RunStage, limit time.Duration) {
	g.span.Stage, g.span.StageStartTime, g.span.StageDeadline = stage, decision.Stamp(g.in.Now), nil
	if limit > 0 {
		g.span.StageDeadline = decision.Stamp(g.in.Now.Add(limit))
	}
}

func (g *machine) deadlinePassed() bool {
	return g.span.StageDeadline != nil && !g.in.Now.Before(g.span.StageDeadline.Time)
}

func (g *machine) tell(warning bool, reason, action, format string, args ...any) {
	g.out.Events = append(g.out.Events, decision.Event{Warning: warning, Reason: reason, Action: action, Note: words.Shorten(fmt.Sprintf(format, args...), 1000)})
}

// advance goes on with a stage that has begun: first who is lost, then what the open tests show, then what comes next.
func (g *machine) advance() {
	lost := g.dropLost()
	if g.span.Stage == v1alpha1.StageWaitingForMembers {
		g.waitForMembers()
		return
	}
	switch {
	case len(lost) == 0:
	case g.searching():
		g.loseInSearch()
		if g.goesOnWithout() {
			break
		}
		return
	default:
		g.closeOpen(v1alpha1.ReasonMemberLost)
		g.regroup()
		return
	}
	switch g.evaluateOpen() {
	case roundOpen:
		return
	case roundBroken: // members fell out
		if g.searching() && g.goesOnWithout() {
			break
		}
		if g.span.Stage != v1alpha1.StageEnded {
			g.regroup()
		}
		return
	case roundClosed:
	}
	switch g.span.Stage {
	case v1alpha1.StageGroup, v1alpha1.StageReforming:
		g.afterGroup()
	case v1alpha1.StageLocalizing:
		g.search()
	case v1alpha1.StageMesh:
		g.afterMesh()
	case v1alpha1.StageNodes, v1alpha1.StageWaitingForMembers, v1alpha1.StageEnded:
	}
}

// searching says whether a search among the group's members goes on, which goes on without one that is lost. One in the mesh does
// not, since the mesh needs all.
func (g *machine) searching() bool {
	return g.span.Stage == v1alpha1.StageLocalizing && g.dimensionSearched() == ""
}

// loseInSearch closes the open tests that hold members who are lost; the others go on.
func (g *machine) loseInSearch() {
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		if set, _ := localize.ParseSet(t.Set); t.Verdict == "" && slices.ContainsFunc(g.justLeft, set.Has) {
			g.closeTest(t, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost, nil)
		}
	}
}

// goesOnWithout notes who was lost in a search, and says whether it goes on; else the search has been ended.
func (g *machine) goesOnWithout() bool {
	switch {
	case len(g.present()) < g.need():
		g.closeOpen(v1alpha1.ReasonMemberLost)
		g.endSearch(fmt.Sprintf("%d of %d members are left, and it takes %d", len(g.present()), g.span.Members, g.need()))
		return false
	case !g.noteLeft():
		g.closeOpen(v1alpha1.ReasonMemberLost)
		g.endSearch("what was lost does not fit into the status")
		return false
	}
	return true
}

// waitForMembers waits until each present member is ready, at most until the stage's deadline.
func (g *machine) waitForMembers() {
	if g.tooFew() {
		return
	}
	if g.dropBusy() && g.tooFew() {
		return
	}
	waiting := g.notReady()
	if len(waiting) > 0 {
		if !g.deadlinePassed() {
			g.wake(g.span.StageDeadline.Time)
			return
		}
		holders := g.occupancy()
		for _, s := range waiting {
			g.dropLate(s, holders)
		}
		if g.tooFew() {
			return
		}
	}
	if !g.fitTogether() {
		return
	}
	g.noteLeft()
	g.openGroup(v1alpha1.StageGroup)
}

// tooFew ends the stage where fewer members are present than it takes.
func (g *machine) tooFew() bool {
	if present := len(g.present()); present < g.need() {
		verdict, reason := g.worstSoFar()
		g.end(verdict, reason, fmt.Sprintf("%d of %d members are left for a communicator, and it takes %d.", present, g.span.Members, g.need()))
		return true
	}
	return false
}

// MaxGroupTests bounds how often the group is formed in one run: with each lost member or culprit it is formed anew.
const MaxGroupTests = 8

// regroup forms the group anew without those that fell out.
func (g *machine) regroup() {
	if g.tooFew() {
		return
	}
	if g.span.Stage == v1alpha1.StageMesh || g.span.Stage == v1alpha1.StageLocalizing && g.dimensionSearched() != "" {
		g.endMesh()
		return
	}
	if g.groupTests() >= MaxGroupTests {
		verdict, reason := g.worstSoFar()
		g.end(verdict, reason, fmt.Sprintf("The group was formed %d times, and each time there was something to leave out.", MaxGroupTests))
		return
	}
	g.noteLeft()
	stage := v1alpha1.StageGroup
	if g.found() {
		stage = v1alpha1.StageReforming
	}
	g.openGroup(stage)
}

// end ends the stage with the worse of the verdict and what fell out before.
func (g *machine) end(verdict v1alpha1.Verdict, reason, message string) {
	if worst, why := g.worstSoFar(); g.span.Reason != "" && judge.Rank(worst) >= judge.Rank(verdict) {
		verdict, reason = worst, why
		message = words.Clip(words.Sentence(g.span.Message), max(maxMessage/3, maxMessage-len(message)-2)) + " " + message
	}
	if len(g.seats) > 0 {
		g.span.Present = int32(len(g.present()))
	}
	g.closeOpen(reason)
	g.span.Stage, g.span.StageStartTime, g.span.StageDeadline = v1alpha1.StageEnded, decision.Stamp(g.in.Now), nil
	g.span.Verdict, g.span.Reason, g.span.Message = verdict, reason, words.Clip(words.Sentence(message), maxMessage)
	if l := g.span.Localization; l != nil && l.State == v1alpha1.LocalizationRunning {
		l.State = v1alpha1.LocalizationOutOfBounds
		l.Message = "The search was not ended."
		g.stopSearch()
	}
	if g.in.RunDeleted {
		return // nothing keeps that it was told
	}
	g.tell(verdict != v1alpha1.VerdictPass, reason, "EndGroupStage", "Run %s, the group's stage: %s. %s", g.in.Run.ID, verdict, g.span.Message)
}

func (g *machine) wake(at time.Time) { g.out.WakeAt = decision.Earlier(g.out.WakeAt, at) }
