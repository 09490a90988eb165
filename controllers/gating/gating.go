package gating

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
)

// Change is what a write tells users.
type Change int

// The changes.
const (
	Quiet   Change = iota // a repair, a pass, or another reason than before
	Gated                 // the group's mark is new
	Ungated               // the group's mark is lifted
)

// Mark is the group's statement on one Node as it should be; the Node's marks follow from it.
type Mark struct {
	// Node as it was read.
	Node *corev1.Node
	// Statement to write; nil withdraws it.
	Statement *Statement
	Change    Change
	// Why is half a sentence for the event.
	Why string
}

// maxMarksAtOnce bounds the Nodes that one reconcile writes: a group of thousands that turns gating on must not take
// the API server's time from everyone else. The next reconcile goes on.
const maxMarksAtOnce = 200

// marksPause is between two such reconciles.
const marksPause = time.Second

// Input is what gating rests on.
type Input struct {
	Now   time.Time
	Group *state.Group
	Nodes []corev1.Node
	// Members of the group; MembersKnown is false where they could not be selected.
	Members      []decision.Member
	MembersKnown bool
	CommTasks    map[string]*v1alpha1.CommTask
	CommNodes    map[string]*v1alpha1.CommNode
	Run          *v1alpha1.GroupRunStatus
	Outcomes     []judge.Outcome
	Span         *v1alpha1.SpanStatus
	// NoBaseline: a baseline is asked for, and this run could be held against none.
	NoBaseline bool
	// Privileged are the namespaces whose groups may mark nodes.
	Privileged []string
}

// Result is what gating wants done and told.
type Result struct {
	Status    *v1alpha1.GatingStatus
	WouldGate []string
	Marks     []Mark
	WakeAt    time.Time
	Events    []decision.Event
}

// Decide works out which nodes to mark and which marks to lift. It does no I/O.
func Decide(in *Input) Result {
	mode := in.Group.Spec.Gating.Mode
	key := Key(string(in.Group.UID))
	if mode == v1alpha1.GatingOff || mode == "" {
		if !slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool { _, ok := n.Annotations[key]; return ok }) {
			return Result{}
		}
	}
	return newLook(in, key).result()
}

// look is one look at all nodes.
type look struct {
	in      *Input
	key     string
	actions []v1alpha1.GatingAction
	// off says why gating marks nothing at all; empty where it does.
	off      string
	members  map[string]*decision.Member
	outcomes map[string]*judge.Outcome
	culprits map[string]*v1alpha1.Culprit // of the group's stage, by node
	// culpritSet are all of its culprits, by index: the list has no room for more than some.
	culpritSet localize.Set
	pairs      []v1alpha1.Culprit // nodes that are bad only together
	// left are the indexes of the members that the group's stage went on without, where all are known.
	left      localize.Set
	leftKnown bool
	marks     []Mark
	// failed members by name, exempt ones left out: the mark is on them, or would be. exempted ones failed, too.
	failed, exempted []string
	gated            []string // carry the mark now
	would            []string // carried the mark if the mode was Enforce, by a dry run
	simulated        []string // failed in the simulator
	reasons          map[string]int
	breaker          breaker
}

func newLook(in *Input, key string) *look {
	g := &look{in: in, key: key, off: markingOff(in), actions: actionsOf(&in.Group.Spec.Gating),
		reasons: map[string]int{}, breaker: newBreaker(in), members: make(map[string]*decision.Member, len(in.Members)),
		outcomes: make(map[string]*judge.Outcome, len(in.Outcomes))}
	for i := range in.Members {
		g.members[in.Members[i].Name] = &in.Members[i]
	}
	for i := range in.Outcomes {
		g.outcomes[in.Outcomes[i].Node] = &in.Outcomes[i]
	}
	if s := in.Span; spanEnded(in) {
		left, err := localize.ParseSet(s.LeftSet)
		g.left, g.leftKnown = left, err == nil && len(left) >= len(s.Left) // it is empty where it is too long to hold
	}
	if s := in.Span; spanEnded(in) && s.Verdict == v1alpha1.VerdictFail {
		if set, err := localize.ParseSet(s.CulpritSet); err == nil {
			g.culpritSet = set
		}
		g.culprits = make(map[string]*v1alpha1.Culprit, len(s.Culprits))
		for i := range s.Culprits {
			c := &s.Culprits[i]
			switch {
			case stage.VerdictOf(c.Reason) != v1alpha1.VerdictFail: // what could not be measured gates nobody
			case c.Kind == "Pair":
				g.pairs = append(g.pairs, *c)
			case c.Kind == "Link": // what several nodes share is no node's
			case c.Node != "" && g.culprits[c.Node] == nil:
				g.culprits[c.Node] = c
			}
		}
	}
	return g
}

// markingOff says why mode, or the namespace, keeps gating from marking; empty where it may.
func markingOff(in *Input) string {
	switch in.Group.Spec.Gating.Mode {
	case v1alpha1.GatingEnforce:
		if slices.Contains(in.Privileged, in.Group.Namespace) {
			return ""
		}
		return fmt.Sprintf("namespace %s is not among the manager's --privileged-namespaces", in.Group.Namespace)
	case v1alpha1.GatingDryRun:
		return "gating.mode is DryRun"
	case v1alpha1.GatingOff:
	}
	return "gating.mode is Off"
}

// actionsOf are the actions in a fixed order, so that the same set is always written alike.
func actionsOf(spec *v1alpha1.GatingSpec) []v1alpha1.GatingAction {
	if len(spec.Actions) == 0 {
		return []v1alpha1.GatingAction{v1alpha1.GatingCondition}
	}
	return slices.Sorted(slices.Values(spec.Actions))
}

// spanEnded says whether the group's stage of the present run has ended.
func spanEnded(in *Input) bool {
	return in.Span != nil && in.Run != nil && in.Span.RunID == in.Run.ID && in.Span.Stage == v1alpha1.StageEnded
}

func (g *look) result() Result {
	all := make([]judged, 0, len(g.members))
	for i := range g.in.Nodes {
		node := &g.in.Nodes[i]
		_, own := node.Annotations[g.key]
		if g.members[node.Name] == nil && !own && !g.named(node) || !node.DeletionTimestamp.IsZero() {
			continue
		}
		all = append(all, g.judge(node, own))
	}
	slices.SortFunc(all, func(a, b judged) int { return strings.Compare(a.node.Name, b.node.Name) })
	for i := range all {
		g.count(&all[i])
	}
	open := g.breakerOpen()
	for i := range all {
		g.step(&all[i], open)
	}
	slices.SortStableFunc(g.marks, func(a, b Mark) int { return cmp.Compare(a.order(), b.order()) })
	out := Result{Marks: g.marks}
	if len(out.Marks) > maxMarksAtOnce {
		out.Marks = out.Marks[:maxMarksAtOnce]
		out.WakeAt = g.in.Now.Add(marksPause)
	}
	if !g.judges() && len(g.gated) == 0 {
		return out
	}
	out.Status = g.status(open)
	if out.WouldGate = firstNames(g.simulated); g.dry() {
		out.WouldGate = firstNames(g.would)
	}
	out.Events = g.breakerEvents(out.Status)
	return out
}

// judges says whether gating judges nodes; dry that it then only tells what Enforce would do.
func (g *look) judges() bool {
	mode := g.in.Group.Spec.Gating.Mode
	return mode != v1alpha1.GatingOff && mode != ""
}

func (g *look) dry() bool { return g.off != "" && g.judges() }

// named says whether a dry run has named the node before.
func (g *look) named(node *corev1.Node) bool {
	return g.dry() && slices.Contains(g.in.Group.Status.WouldGate, node.Name)
}

// order puts what keeps jobs from a bad node first, and what only confirms a good one last.
func (m *Mark) order() int {
	switch {
	case m.Change == Gated:
		return 0
	case m.Change == Ungated:
		return 1
	case m.Statement == nil || m.Statement.Verdict == v1alpha1.VerdictFail:
		return 2
	}
	return 3
}

// count sorts the node into the lists that status and breaker go by.
func (g *look) count(j *judged) {
	name := j.node.Name
	if j.onNode != nil && j.onNode.Verdict == v1alpha1.VerdictFail {
		g.gated = append(g.gated, name)
	}
	fails := j.seen == seenFailed
	switch {
	case j.seen == seenExempt:
		if o := j.outcome; o != nil && o.Verdict == v1alpha1.VerdictFail || j.culprit != nil {
			g.exempted = append(g.exempted, name)
		}
	case fails && g.judges() && !g.allowed(j):
		g.simulated = append(g.simulated, name)
	case fails, j.failed() && table[j.seen][heldFail] == stepKeep && g.judges():
		g.failed = append(g.failed, name)
		if fails {
			reason, _ := g.cause(j)
			g.reasons[reason]++
			g.breaker.results++
		}
	case j.seen == seenStale, j.seen == seenGPUsReplaced, j.seen == seenError:
		g.breaker.doubtful++
	case (j.seen == seenPassed || j.seen == seenNothing) && j.outcome != nil &&
		j.outcome.Verdict == v1alpha1.VerdictPass:
		g.breaker.passed++
		g.breaker.results++
	}
	g.breaker.failed = len(g.failed)
}

// allowed says whether a result of the node's origin may mark it.
func (g *look) allowed(j *judged) bool {
	return !j.simulated || g.in.Group.Spec.Gating.Simulated == v1alpha1.SimulatedAllow
}

// counted is what counts of what was seen: nothing where gating is off, or the result must not mark nodes.
func (g *look) counted(j *judged) evidence {
	if !g.judges() || !g.allowed(j) {
		return seenOff
	}
	return j.seen
}

// next is what follows for one node. While the breaker is open nothing is newly marked.
func (g *look) next(j *judged, open bool) nextStep {
	state := heldNone
	switch {
	case j.malformed, j.failed():
		state = heldFail // of what cannot be read, the graver is assumed
	case j.own != nil:
		state = heldPass
	}
	next := table[g.counted(j)][state]
	if next == stepMark && open && !j.failed() {
		return stepKeep
	}
	return next
}

// step decides for one node, and carries it out; a dry run only keeps whom Enforce would hold marked, and lifts what
// stands on the node.
func (g *look) step(j *judged, open bool) {
	next := g.next(j, open)
	ends := Quiet // what it tells people that the statement says Fail no more
	if j.malformed || j.onNode != nil && j.onNode.Verdict == v1alpha1.VerdictFail {
		ends = Ungated
	}
	if g.dry() {
		if next == stepMark || next == stepKeep && j.failed() {
			g.would = append(g.would, j.node.Name)
		}
		if j.onNode != nil || j.malformed {
			g.write(j, nil, ends, g.off)
		}
		return
	}
	switch next {
	case stepMark:
		s := g.statement(j, v1alpha1.VerdictFail)
		if j.failed() && sameStatement(j.own, &s) {
			break
		}
		change := Gated
		if j.failed() {
			change = Quiet
		}
		g.write(j, &s, change, s.Reason+": "+s.Message)
		return
	case stepPass:
		s := g.statement(j, v1alpha1.VerdictPass)
		if j.own != nil && j.own.Verdict == v1alpha1.VerdictPass && sameStatement(j.own, &s) {
			break
		}
		g.write(j, &s, ends, "it passed run "+s.Run)
		return
	case stepLift:
		g.write(j, nil, ends, g.whyLifted(j))
		return
	case stepKeep, stepUndecided:
	}
	if j.own == nil {
		return
	}
	// What stands stays, by the actions that the spec has now.
	own := *j.own
	own.Actions = g.actions
	if !slices.Equal(own.Actions, j.own.Actions) || marksFor(j.statements) != marksOn(j.node) {
		g.write(j, &own, Quiet, "")
	}
}

func (g *look) write(j *judged, s *Statement, change Change, why string) {
	g.marks = append(g.marks, Mark{Node: j.node, Statement: s, Change: change, Why: why})
}

func (g *look) whyLifted(j *judged) string {
	switch g.counted(j) {
	case seenLeft:
		return "it is no longer a member"
	case seenReplaced:
		return "another node has its name now"
	case seenExempt:
		return "annotation " + v1alpha1.AnnotationGatingExempt + " is on it"
	case seenGPUsReplaced:
		return "its GPUs were replaced after run " + j.own.Run
	case seenStale:
		return "it was rebooted or changed after it passed"
	case seenOff:
		if g.off == "" {
			return "its result is simulated and gating.simulated is Forbid"
		}
		return g.off
	case seenFailed, seenPassed, seenError, seenInconclusive, seenSkipped, seenNothing, evidenceCount:
	}
	return "gating no longer holds it failed"
}

// cause is the reason and message for which a node failed.
func (g *look) cause(j *judged) (reason, message string) {
	if c := j.culprit; c != nil && j.outcome.Verdict != v1alpha1.VerdictFail {
		if c.Kind == "Node" {
			return c.Reason, c.Message
		}
		return c.Reason, fmt.Sprintf("%s %s: %s", c.Kind, c.Name, c.Message)
	}
	return cmp.Or(j.outcome.Reason, v1alpha1.ReasonCommFailed), j.outcome.Message
}

// statement is what the group holds of the node now.
func (g *look) statement(j *judged, verdict v1alpha1.Verdict) Statement {
	s := Statement{Verdict: verdict, Group: g.in.Group.Namespace + "/" + g.in.Group.Name, Run: g.in.Run.ID,
		Time: *decision.Stamp(g.in.Now), NodeUID: string(j.node.UID), Actions: g.actions}
	ct := g.in.CommTasks[j.node.Name]
	s.BootID = measuredBoot(ct, g.in.CommNodes[j.node.Name], j.outcome)
	if a := ct.Spec.Run; a != nil {
		if a.Platform != nil {
			s.GPUs = a.Platform.GPUs
		}
		s.Run = a.ID
	}
	if verdict == v1alpha1.VerdictFail {
		reason, message := g.cause(j)
		s.Reason, s.Message = clip.Head(reason, 64), clip.Head(message, statementMessageBytes)
		if j.culprit != nil {
			s.Run = g.in.Run.ID
		}
	}
	return s
}

// sameStatement says whether a new statement on the same Node adds nothing: the same cause and the same actions. Run,
// time and figures of a repetition are no news, or every scheduled run would write to each node.
func sameStatement(old, next *Statement) bool {
	known := func(was, is string) bool { return is == "" || was == is }
	return old.Verdict == next.Verdict && old.Reason == next.Reason && old.Group == next.Group &&
		known(old.BootID, next.BootID) && known(old.GPUs, next.GPUs) && slices.Equal(old.Actions, next.Actions)
}
