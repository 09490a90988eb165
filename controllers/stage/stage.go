package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
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
	// RestsOn are the nodes by whose objects members are let go while the stage goes on: these have to be as they were
	// read.
	RestsOn []string
	Events  []decision.Event
	WakeAt  time.Time
	// Over: the stage of this run has ended.
	Over bool
}

// machine takes one step of the group's stage. All that a stage knows is in the objects: who takes part in the
// CommTasks' sessions, what was tried and what came of it in status.span. It stands on layers, each of which uses those
// below it alone: record, roster, planner, members, rounds, findings, summary.
type machine struct{ *summary }

func newMachine(in Input, span *v1alpha1.SpanStatus) *machine {
	planning := &planner{roster: &roster{record: &record{in: in, span: span}}, plans: map[planKey]*v1alpha1.NodeTask{}}
	return &machine{&summary{&findings{&rounds{members: &members{planning}}}}}
}

// Step moves the group's stage of the run one step on.
func Step(in Input) State {
	g := newMachine(in, nil)
	if s := in.Group.Status.Span; s != nil && in.Run != nil && s.RunID == in.Run.ID {
		g.saved = s
	}
	spanned := in.Group.Spec.Span == v1alpha1.SpanGroup
	switch {
	case in.Run == nil || !spanned:
		g.deletePods(func(*corev1.Pod) bool { return false })
		if g.saved != nil && g.saved.Stage == v1alpha1.StageEnded {
			// the spec has become one of span Node; what the run showed still decides its verdict
			g.out.Span = g.saved.DeepCopy()
		}
		return g.out
	case g.saved == nil:
		g.span = &v1alpha1.SpanStatus{RunID: in.Run.ID, Stage: v1alpha1.StageNodes}
	default:
		g.span = g.saved.DeepCopy()
	}
	g.readParticipants()
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
	g.writeDepartures()
	g.out.Span = g.span
	g.out.Over = g.span.Stage == v1alpha1.StageEnded
	g.assignTasks()
	g.planPods()
	g.out.Sessions = g.sessions()
	g.out.RestsOn = g.restsOn()
	return g.out
}

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
			"No communicator over the group was formed: %d of %d nodes passed alone and it takes %d. Not passed: "+
				"%s. Mend those, or what the spec holds them against; a new run follows once they or the "+
				"spec change, or %s.",
			eligible, len(g.in.Outcomes), g.need(), explain.Names(out, 5), runs.Ask(g.in.Group)))
		return
	}
	if g.awaitOthers() {
		return
	}
	g.span.Members, g.span.Present = int32(eligible), int32(eligible)
	g.enter(v1alpha1.StageWaitingForMembers, decision.Seconds(g.in.Group.Spec.Run.MembersDeadlineSeconds))
	g.tell(false, v1alpha1.ReasonWaitingForMembers, "StartGroupStage",
		"Run %s: the group's stage of %d nodes starts; their pods have %d s to be ready.",
		g.in.Run.ID, eligible, g.in.Group.Spec.Run.MembersDeadlineSeconds)
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
	g.noteDepartures()
	g.openGroup(v1alpha1.StageGroup)
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

// searching says whether a search among the group's members goes on, which goes on without one that is lost. One in the
// mesh does not, since the mesh needs all.
func (g *machine) searching() bool {
	return g.span.Stage == v1alpha1.StageLocalizing && g.dimensionSearched() == ""
}

// loseInSearch closes the open tests that hold members who are lost; the others go on.
func (g *machine) loseInSearch() {
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		if set, _ := localize.ParseSet(t.Set); t.Verdict == "" && slices.ContainsFunc(g.justDeparted, set.Has) {
			g.closeTest(t, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost, nil)
		}
	}
}

// goesOnWithout notes who was lost in a search, and says whether it goes on; else the search has been ended.
func (g *machine) goesOnWithout() bool {
	switch {
	case len(g.present()) < g.need():
		g.closeOpen(v1alpha1.ReasonMemberLost)
		g.endSearch(fmt.Sprintf("%d of %d members are left, and it takes %d",
			len(g.present()), g.span.Members, g.need()))
		return false
	case !g.noteDepartures():
		g.closeOpen(v1alpha1.ReasonMemberLost)
		g.endSearch("what was lost does not fit into the status")
		return false
	}
	return true
}

// evaluateOpen looks at the open tests; once all are done it closes them together, since they are compared with each
// other.
func (g *machine) evaluateOpen() roundState {
	var results []testResult
	open := false
	searching := g.span.Stage == v1alpha1.StageLocalizing
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		if t.Verdict != "" {
			continue
		}
		if !g.written(t.ID) {
			open = true // it was opened just now
			continue
		}
		if r := g.evaluate(t); r.done {
			results = append(results, r)
		} else {
			open = true
		}
	}
	if open && (!searching || !g.deadlinePassed()) {
		if searching {
			g.wake(g.span.StageDeadline.Time)
		}
		return roundOpen
	}
	broken, void := false, ""
	for i := range results {
		r := &results[i]
		for _, f := range r.out {
			broken = true
			g.drop(f.participant, f.reason, f.message)
			if f.silent {
				g.departedSilent++
			}
		}
	}
	for i := range results {
		switch r := &results[i]; {
		case r.unmeasurable:
			g.end(v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive, r.message)
			return roundOpen
		case r.void != "" && searching:
			void = r.void // what the other tests show is told all the same
		case r.void != "":
			g.end(v1alpha1.VerdictError, r.reason, r.void+" To try again, "+runs.Ask(g.in.Group)+".")
			return roundOpen
		}
	}
	g.round = slices.DeleteFunc(results, func(r testResult) bool { return r.void != "" })
	g.closeRound()
	g.closeOpen(v1alpha1.ReasonRunDeadlineExceeded) // of a search: what shows nothing, or has no time left
	if void != "" {
		g.endSearch(void)
		return roundOpen
	}
	if broken {
		return roundBroken
	}
	return roundClosed
}

// MaxGroupTests bounds how often the group is formed in one run: with each lost member or culprit it is formed again.
const MaxGroupTests = 8

// regroup forms the group again without those that fell out.
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
		g.end(verdict, reason,
			fmt.Sprintf("The group was formed %d times, and each time there was something to leave out.",
				MaxGroupTests))
		return
	}
	g.noteDepartures()
	stage := v1alpha1.StageGroup
	if g.found() {
		stage = v1alpha1.StageReforming
	}
	g.openGroup(stage)
}

func (g *machine) openGroup(stage v1alpha1.RunStage) {
	g.enter(stage, 0)
	if !g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestGroup, Round: int32(g.groupTests() + 1)}, g.wholeSet()) {
		g.end(v1alpha1.VerdictError, v1alpha1.ReasonGroupStepFailed, fmt.Sprintf(
			"No further test fits into the status: it has %d, and the members that left are noted there. "+
				"To try again, %s.", len(g.span.Tests), runs.Ask(g.in.Group)))
	}
}

// afterGroup decides what follows a communicator over the group, or the pairs of neighbours that it is made of.
func (g *machine) afterGroup() {
	if len(g.round) == 0 {
		g.end(v1alpha1.VerdictError, v1alpha1.ReasonGroupStepFailed, "The stage has no test that goes on.")
		return
	}
	r := &g.round[0]
	if r.test.Kind == v1alpha1.TestPairs {
		g.afterPairs()
		return
	}
	if r.bad {
		g.afterBadGroup(r)
		return
	}
	good := g.checkTransport(r.communicators)
	g.keepResults(judge.DimensionGroup, g.span.Transport, r.communicators)
	if !good {
		g.end(VerdictOf(g.span.Reason), g.span.Reason, "Nothing more was measured: the network is to be mended first.")
		return
	}
	all := g.groupChecks()
	notMet, notMeasured := checks.Of(all)
	if len(notMet) > 0 {
		r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowGroup
		g.worsen(v1alpha1.ReasonSlowGroup, fmt.Sprintf("The communicator over %d nodes is too slow: %s.",
			len(g.present()), explain.Checks(figuresOf(notMet))))
		// All pairs of neighbours at once tell soonest which nodes are slow, however many; else halves are tried.
		if !g.openPairs() {
			g.startSearch(g.stepOf(notMet[0].Step))
		}
		return
	}
	if len(notMeasured) > 0 {
		g.worsen(v1alpha1.ReasonInconclusive, explain.Checks(notMeasured))
	}
	if !metMark(all) && g.openPairs() {
		return
	}
	g.afterGoodGroup()
}

// afterBadGroup goes on with what the nodes know themselves; else the culprit is searched for.
func (g *machine) afterBadGroup(r *testResult) {
	message := fmt.Sprintf("The communicator over %d nodes failed: %s.",
		len(g.readSet(r.test.Set)), strings.TrimSuffix(r.message, ".")) + g.fallbackWords(r.communicators)
	if len(r.guilty) > 0 {
		g.worsen(r.reason, message)
		for _, name := range slices.Sorted(maps.Keys(r.guilty)) {
			g.blame(r.guilty[name])
			if s := g.participantOf(name); s != nil {
				g.release(s)
			}
		}
		g.explain(r.reason,
			message+" By what the nodes saw themselves: "+explain.Names(culpritNames(g.span.Culprits), 5)+".")
		g.tell(true, v1alpha1.ReasonCulpritFound, "NameCulprit", "Run %s: %s", g.in.Run.ID, g.span.Message)
		g.regroup()
		return
	}
	g.worsen(r.reason, message)
	g.startSearch(g.stepOf(r.step))
}

// afterPairs makes the next round of pairs, and searches where a pair was far slower than the best, or the group far
// slower than each of them.
func (g *machine) afterPairs() {
	if g.openPairs() {
		return
	}
	sum := g.pairsSummary()
	var bad []string
	for _, p := range g.screened() {
		for _, t := range p.bad {
			bad = append(bad, g.slowPairWords(t, sum.best))
		}
	}
	step := g.slowStep()
	group := g.groupFigure(step)
	underMark := g.span.Tests[g.lastGroupTest()].Reason == v1alpha1.ReasonSlowGroup
	switch {
	case len(bad) > 0:
		t := &g.span.Tests[g.lastGroupTest()]
		if !underMark {
			t.Verdict, t.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowPair
		}
		g.worsen(v1alpha1.ReasonSlowPair,
			fmt.Sprintf("Pairs are far slower than the best, which reach %s: %s; at least %d %% is expected.",
				units.Bandwidth(sum.best), explain.Names(bad, 4), g.minPercent()))
		g.startSearch(step)
	case underMark && group > 0 && sum.slowest > 0 && sum.slowest*g.minPercent() <= group*100:
		g.end(VerdictOf(g.span.Reason), g.span.Reason, fmt.Sprintf(
			"No pair stands out: %s. The slowest is not clearly faster than the group at %s (%s): it is slow as "+
				"a whole. Look at what all share: the switch, the transport (%s), the settings of the library, "+
				"the mark itself.",
			sum, step, units.Bandwidth(group), g.span.Transport))
	case underMark:
		g.startSearch(step)
	case group > 0 && group*100 < sum.slowest*groupMinPercentOfPair:
		g.worsen(v1alpha1.ReasonInconclusive,
			fmt.Sprintf("%s over %d nodes reaches %s, %d %% of its slowest pair (%s); at least %d %% is expected.",
				step, len(g.present()), units.Bandwidth(group), group*100/sum.slowest, units.Bandwidth(sum.slowest),
				groupMinPercentOfPair))
		g.startSearch(step)
	default:
		g.afterGoodGroup()
	}
}

// afterGoodGroup goes on to the mesh, or ends the stage.
func (g *machine) afterGoodGroup() {
	g.accuseSilent()
	if g.found() {
		g.confirm()
	} else if l, left := g.span.Localization, g.departedSinceBad(); l != nil && len(left) > 0 {
		l.Message = clip.Head(clip.Sentences(l.Message, 300)+" "+explain.Sentence(g.withoutDeparted())+
			" Look first at "+explain.Names(g.namesOf(left), 5)+".", 512)
	}
	g.startMesh()
}

// startMesh begins the mesh where there is one and it fits the members that are present, else it ends the stage.
func (g *machine) startMesh() {
	if len(g.in.Group.Spec.Mesh) == 0 {
		g.pass()
		return
	}
	if g.meshMismatch() != nil {
		g.worsen(v1alpha1.ReasonMeshMismatch, "The mesh does not fit the members")
		g.pass()
		return
	}
	g.enter(v1alpha1.StageMesh, 0)
	g.openMesh()
}

// openMesh begins the next dimension of the mesh that was not measured yet, or ends the stage.
func (g *machine) openMesh() {
	mesh := g.in.Group.Spec.Mesh
	for _, at := range spans.Measurable(mesh) {
		if meshTest(g.span.Tests, mesh[at].Name) != nil {
			continue
		}
		if err := g.meshShares(at); err != nil {
			g.worsen(v1alpha1.ReasonInconclusive,
				fmt.Sprintf("Dimension %s of the mesh was not measured: %v", mesh[at].Name, err))
			continue
		}
		if g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestMesh, Round: 1, Dimension: mesh[at].Name}, g.wholeSet()) {
			return
		}
		g.worsen(v1alpha1.ReasonInconclusive,
			fmt.Sprintf("Dimension %s of the mesh was not measured: no further test fits into the status.",
				mesh[at].Name))
		break
	}
	g.tellCommonNode()
	g.pass()
}

// afterMesh judges a dimension: each of its communicators has to work, by the transport that is asked for, and none may
// be far slower than those like it. What is bad is searched for among the members of the bad communicators.
func (g *machine) afterMesh() {
	if len(g.round) == 0 {
		g.openMesh()
		return
	}
	r := &g.round[0]
	dimension := r.test.Dimension
	transport := g.checkMeshTransport(r, dimension)
	if r.bad {
		g.worsen(r.reason, fmt.Sprintf("Dimension %s of the mesh: %s", dimension, r.message))
	} else {
		g.keepResults(dimension, transport, r.communicators)
		g.compareDimension(r, dimension, transport)
	}
	for _, name := range slices.Sorted(maps.Keys(r.guilty)) {
		g.blame(r.guilty[name])
	}
	g.blameCommunicators(r, dimension)
	if !g.searchMesh(r, dimension) {
		g.openMesh()
	}
}

// endMesh ends the stage where a member fell out while the mesh was measured: the rest does not fit the mesh.
func (g *machine) endMesh() {
	g.end(v1alpha1.VerdictInconclusive, v1alpha1.ReasonMeshMismatch, "A member fell out while the mesh was measured, "+
		"and the others do not fit it: what is missing of the mesh was not measured."+g.meshWords())
}

// pass ends the stage with what was reached; what is bad was kept before.
func (g *machine) pass() {
	text := fmt.Sprintf("One communicator over %d nodes: %s, transport %s.",
		len(g.present()), g.figure(), g.transportWords())
	if len(g.span.Left) > 0 && g.found() {
		text = explain.Sentence(g.withoutDeparted())
	}
	text += g.meshWords()
	g.span.SpeedJudged, g.span.SpeedNotJudged = g.speedJudged(), g.speedNotJudged()
	if unjudged := g.speedWords(); unjudged != "" {
		text = explain.Sentence(text) + " " + unjudged
	}
	g.end(v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed, explain.Sentence(text)+g.repeatsWords()+g.notCompared())
}
