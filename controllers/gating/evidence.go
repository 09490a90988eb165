package gating

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/stage"
)

// evidence is what speaks for or against a node when gating looks at it. Of several, the first in this order counts.
type evidence int

const (
	seenOff          evidence = iota // gating marks nothing: its mode, the namespace, or the result is simulated
	seenLeft                         // the node is no member
	seenReplaced                     // the statement is of another Node object of this name
	seenExempt                       // a person keeps gating from the node
	seenFailed                       // it failed, alone or as a culprit of the group's stage
	seenPassed                       // it passed everything of a finished run
	seenGPUsReplaced                 // its GPUs are others than those of the statement, and not fewer
	seenStale                        // it was rebooted or changed after the result
	seenError
	seenInconclusive
	seenSkipped
	// no result yet, a lost one, or one that is not complete without the others', or that does not look again at what
	// failed
	seenNothing
	evidenceCount
)

// held is what the group's statement on the node says so far.
type held int

const (
	heldNone held = iota
	heldPass
	heldFail
	heldCount
)

// nextStep is what is done.
type nextStep int

const (
	stepUndecided nextStep = iota // in no cell of the table
	stepKeep
	stepMark // state Fail, and mark the node
	stepPass // state Pass
	stepLift // withdraw the statement
)

// table has a step for each pair of a node's statement and what happened. docs/gating.md shows it to users.
var table = [evidenceCount][heldCount]nextStep{
	seenOff:          {heldNone: stepKeep, heldPass: stepLift, heldFail: stepLift},
	seenLeft:         {heldNone: stepKeep, heldPass: stepLift, heldFail: stepLift},
	seenReplaced:     {heldNone: stepKeep, heldPass: stepLift, heldFail: stepLift},
	seenExempt:       {heldNone: stepKeep, heldPass: stepLift, heldFail: stepLift},
	seenFailed:       {heldNone: stepMark, heldPass: stepMark, heldFail: stepMark},
	seenPassed:       {heldNone: stepPass, heldPass: stepPass, heldFail: stepPass},
	seenGPUsReplaced: {heldNone: stepKeep, heldPass: stepLift, heldFail: stepLift},
	// What passed before a reboot says nothing of now; what failed must first pass again.
	seenStale: {heldNone: stepKeep, heldPass: stepLift, heldFail: stepKeep},
	// What could not be measured neither gates nor lifts.
	seenError:        {heldNone: stepKeep, heldPass: stepKeep, heldFail: stepKeep},
	seenInconclusive: {heldNone: stepKeep, heldPass: stepKeep, heldFail: stepKeep},
	seenSkipped:      {heldNone: stepKeep, heldPass: stepKeep, heldFail: stepKeep},
	seenNothing:      {heldNone: stepKeep, heldPass: stepKeep, heldFail: stepKeep},
}

// judged is what gating holds of one member.
type judged struct {
	node *corev1.Node
	// statements of all groups by their keys; onNode is this group's, malformed one that cannot be read.
	statements map[string]Statement
	onNode     *Statement
	malformed  bool
	// own is what the group holds of the node: what stands on it, and in a dry run what would.
	own     *Statement
	seen    evidence
	outcome *judge.Outcome
	// culprit of the group's stage that the node is or has.
	culprit *v1alpha1.Culprit
	// simulated: the node or its result is.
	simulated bool
}

// judge collects what is known of one node.
func (g *look) judge(node *corev1.Node, own bool) judged {
	j := judged{node: node, outcome: g.outcomes[node.Name], culprit: g.culprits[node.Name]}
	if own {
		j.statements = Statements(node.Annotations)
		s, ok := j.statements[g.key]
		if j.malformed = !ok; ok {
			j.onNode = &s
		}
	}
	member, ct, cn := g.members[node.Name], g.in.CommTasks[node.Name], g.in.CommNodes[node.Name]
	if j.own = j.onNode; j.own == nil && g.named(node) {
		j.own = wouldStand(node, ct)
	}
	j.simulated = simulatedNode(cn, j.outcome)
	if index, known := sessionIndex(ct, g.in.Span); j.culprit == nil && known && g.culpritSet.Has(index) {
		c := judge.NodeCulprit(node.Name, g.in.Span.Reason, "It is among the culprits that the group's stage proved; "+
			"status.span.culprits has no room for more, status.span.culpritSet has all. "+g.in.Span.Message)
		j.culprit = &c
	}
	switch {
	case !g.in.MembersKnown:
		j.seen = seenNothing
	case member == nil:
		j.seen = seenLeft
	case j.own != nil && j.own.NodeUID != string(node.UID):
		j.seen = seenReplaced
	case exempt(node.Annotations):
		j.seen = seenExempt
	default:
		j.seen = g.measured(&j, ct, cn)
		if (j.seen == seenPassed || j.seen > seenStale) && g.rebootedUnseen(&j, ct, cn) {
			j.seen = seenStale
		}
		if j.seen >= seenStale && j.own != nil && gpusReplaced(j.own.GPUs, cn, g.in.Now) {
			j.seen = seenGPUsReplaced
		}
	}
	return j
}

// failed says whether the group holds the node failed so far.
func (j *judged) failed() bool { return j.own != nil && j.own.Verdict == v1alpha1.VerdictFail }

// wouldStand is what would stand on a node that a dry run named before.
func wouldStand(node *corev1.Node, ct *v1alpha1.CommTask) *Statement {
	s := &Statement{Verdict: v1alpha1.VerdictFail, NodeUID: string(node.UID)}
	if ct == nil {
		return s
	}
	s.NodeUID = ct.Spec.NodeUID
	if a := ct.Spec.Run; a != nil && a.Platform != nil {
		s.BootID, s.GPUs = a.Platform.BootID, a.Platform.GPUs
	}
	return s
}

// measured is what the last run showed of the node. A verdict that rests on a comparison with the other nodes, and
// every pass, waits for the run's end; what a node's agent saw by itself counts at once.
func (g *look) measured(j *judged, ct *v1alpha1.CommTask, cn *v1alpha1.CommNode) evidence {
	o, run := j.outcome, g.in.Run
	if o == nil || run == nil || ct == nil || ct.Spec.NodeUID != string(j.node.UID) ||
		run.Generation != g.in.Group.Generation {
		return seenNothing
	}
	if o.Stale {
		return seenStale
	}
	finished := run.Phase == v1alpha1.RunPhaseFinished
	switch o.Verdict {
	case v1alpha1.VerdictFail:
		byAgent := o.Report != nil && o.Report.Verdict == v1alpha1.VerdictFail
		here := slices.ContainsFunc(o.Culprits, func(c v1alpha1.Culprit) bool {
			return c.Node == o.Node && c.Kind != "Pair"
		})
		if here && (byAgent || finished) && originKnown(cn, j.simulated) {
			return seenFailed
		}
	case v1alpha1.VerdictPass:
		switch {
		case !originKnown(cn, j.simulated):
		case j.culprit != nil:
			return seenFailed
		case finished && g.passedInGroup(ct) && g.heldAgain(j):
			return seenPassed
		}
	case v1alpha1.VerdictError:
		return seenError
	case v1alpha1.VerdictInconclusive:
		return seenInconclusive
	case v1alpha1.VerdictSkipped:
		return seenSkipped
	}
	return seenNothing
}

// rebootedUnseen says whether what was measured was so on another boot than the kubelet's, and the node's monitor,
// which alone could say that nothing was rebooted (a container's kernel may have an id of its own), is silent: after a
// reboot its driver may be gone.
func (g *look) rebootedUnseen(j *judged, ct *v1alpha1.CommTask, cn *v1alpha1.CommNode) bool {
	was := ""
	switch {
	case nodefacts.Hold(cn, g.in.Now):
	case j.seen == seenPassed:
		was = measuredBoot(ct, cn, j.outcome)
	case j.own != nil:
		was = j.own.BootID
	}
	is := j.node.Status.NodeInfo.BootID
	return was != "" && is != "" && was != is
}

// measuredBoot is the boot that was measured, where it is known. A run that began after a reboot knows the new boot
// before the assignment does; a container with a kernel of its own reports an id that is never the node's.
func measuredBoot(ct *v1alpha1.CommTask, cn *v1alpha1.CommNode, o *judge.Outcome) string {
	if r := o.Report; r != nil && cn != nil && cn.Status.Facts != nil && r.BootID != "" &&
		r.BootID == cn.Status.Facts.BootID {
		return r.BootID
	}
	if a := ct.Spec.Run; a != nil && a.Platform != nil {
		return a.Platform.BootID
	}
	return ""
}

// passedInGroup says whether the group's stage clears the node: there is none; or it passed with the node; or it
// failed, its culprits were found, and what was left without them, the node in it, was then judged as a whole.
func (g *look) passedInGroup(ct *v1alpha1.CommTask) bool {
	s := g.in.Span
	if g.in.Group.Spec.Span != v1alpha1.SpanGroup && s == nil {
		return true
	}
	index, known := sessionIndex(ct, s)
	if !spanEnded(g.in) || !known || !g.leftKnown || g.left.Has(index) ||
		slices.ContainsFunc(g.pairs, func(c v1alpha1.Culprit) bool {
			return slices.Contains(c.Pair, ct.Spec.NodeName)
		}) {
		return false
	}
	found := s.Localization != nil && s.Localization.State == v1alpha1.LocalizationFound
	return s.Verdict == v1alpha1.VerdictPass || s.Verdict == v1alpha1.VerdictFail && found &&
		s.SpeedJudged && g.meshPassed()
}

// meshPassed says whether each dimension of the mesh was measured and passed: it takes all of its members, so that no
// test without the culprits shows that they are all.
func (g *look) meshPassed() bool {
	return stage.MeshPassed(g.in.Group.Spec.Mesh, g.in.Span.Tests)
}

// heldAgain says whether what a Fail statement rests on was checked again: where a node was slow beside others, or
// lost bandwidth, it takes others, or a baseline, to say that it no longer is.
func (g *look) heldAgain(j *judged) bool {
	if j.own == nil || j.own.Verdict != v1alpha1.VerdictFail {
		return true
	}
	switch j.own.Reason {
	case v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowRail:
		if g.in.Span != nil {
			return g.in.Span.SpeedJudged
		}
		return !j.outcome.Uncompared
	case v1alpha1.ReasonRegression:
		return !g.in.NoBaseline
	}
	return true
}

// sessionIndex is the node's index in the group's stage, where it has one.
func sessionIndex(ct *v1alpha1.CommTask, s *v1alpha1.SpanStatus) (int, bool) {
	if ct == nil || s == nil || ct.Spec.Session == nil || ct.Spec.Session.RunID != s.RunID {
		return 0, false
	}
	return int(ct.Spec.Session.Index), true
}

func simulatedNode(cn *v1alpha1.CommNode, o *judge.Outcome) bool {
	if cn != nil && cn.Status.Facts != nil && cn.Status.Facts.Origin == v1alpha1.OriginSimulated {
		return true
	}
	return o != nil && o.Report != nil && o.Report.Library != nil && o.Report.Library.Flavor == "simulated"
}

// originKnown: a result of which nobody says that it comes from hardware marks nothing.
func originKnown(cn *v1alpha1.CommNode, simulated bool) bool {
	return simulated || cn != nil && cn.Status.Facts != nil && cn.Status.Facts.Origin == v1alpha1.OriginHardware
}

// gpusReplaced says whether the node has other GPUs than those of the statement. Fewer are no repair: one that fell off
// the bus is lost, not replaced.
func gpusReplaced(was string, cn *v1alpha1.CommNode, now time.Time) bool {
	if was == "" || !nodefacts.Hold(cn, now) {
		return false
	}
	is := nodefacts.PlatformOf(cn.Status.Facts).GPUs
	return is != "" && is != was && gpuNumber(is) >= gpuNumber(was)
}

// gpuNumber is the number in count/hash.
func gpuNumber(gpus string) int {
	text, _, _ := strings.Cut(gpus, "/")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
