package stage

import (
	"cmp"
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// VerdictOf is what a reason of the group's stage means for its verdict. Whatever is not listed is why something could
// not be measured.
func VerdictOf(reason string) v1alpha1.Verdict {
	switch reason {
	case "", v1alpha1.ReasonAllPassed:
		return v1alpha1.VerdictPass
	case v1alpha1.ReasonRunPodUnschedulable, v1alpha1.ReasonNodeBusy, v1alpha1.ReasonPreempted, v1alpha1.ReasonWaitingForQueue, v1alpha1.ReasonTooFewMembers, v1alpha1.ReasonSuspended, v1alpha1.ReasonSuperseded:
		return v1alpha1.VerdictSkipped
	case v1alpha1.ReasonInconclusive, v1alpha1.ReasonMeshMismatch:
		return v1alpha1.VerdictInconclusive
	case v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonWrongData, v1alpha1.ReasonRankDied, v1alpha1.ReasonRankHung,
		v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonSlowGroup, v1alpha1.ReasonSlowNode,
		v1alpha1.ReasonSlowPair, v1alpha1.ReasonSlowRail, v1alpha1.ReasonSlowCommunicator, v1alpha1.ReasonSlowLink, v1alpha1.ReasonSlowGPU,
		v1alpha1.ReasonBelowThreshold, v1alpha1.ReasonTransportFallback, v1alpha1.ReasonMixedSettings, v1alpha1.ReasonMixedLibraryVersions:
		return v1alpha1.VerdictFail
	}
	return v1alpha1.VerdictError
}

// worsen keeps the worst that the stage has seen so far, in its reason and message; of two alike the first.
func (g *machine) worsen(reason, message string) {
	if g.span.Reason != "" && judge.Rank(VerdictOf(reason)) <= judge.Rank(VerdictOf(g.span.Reason)) {
		return
	}
	g.explain(reason, message)
}

// maxMessage is what the API holds of the stage's message.
const maxMessage = 1024

// explain replaces what was said so far by something that says more.
func (g *machine) explain(reason, message string) {
	g.span.Reason, g.span.Message = reason, words.Clip(words.Sentence(message), maxMessage)
}

func (g *machine) worstSoFar() (v1alpha1.Verdict, string) {
	reason := cmp.Or(g.span.Reason, v1alpha1.ReasonMemberLost)
	return VerdictOf(reason), reason
}

// MaxCulprits bounds status.span.culprits.
const MaxCulprits = 16

// blame names a culprit, once. Where the list is full, a node that is not in it takes the place of another node's second entry; what is
// left out stands in culpritSet.
func (g *machine) blame(c v1alpha1.Culprit) {
	isIt := func(o v1alpha1.Culprit) bool { return same(&o, &c) }
	if slices.ContainsFunc(g.span.Culprits, isIt) {
		return
	}
	if s := g.seatOf(c.Node); s != nil && VerdictOf(c.Reason) == v1alpha1.VerdictFail && c.Kind != "Pair" && !ofCommunicators(&c) {
		set, err := localize.ParseSet(g.span.CulpritSet)
		if text := localize.NewSet(append(set, s.index)...).String(); err == nil && len(text) <= MaxLeftSet {
			g.span.CulpritSet = text
		}
	}
	c.Message = words.Shorten(c.Message, 512)
	if len(g.span.Culprits) < MaxCulprits {
		g.span.Culprits = append(g.span.Culprits, c)
		return
	}
	of := func(node string) int { // entries of the node
		n := 0
		for i := range g.span.Culprits {
			if g.span.Culprits[i].Node == node && g.span.Culprits[i].Kind != "Pair" {
				n++
			}
		}
		return n
	}
	for at := MaxCulprits - 1; at >= 0 && of(c.Node) == 0; at-- {
		if o := &g.span.Culprits[at]; o.Kind != "Pair" && of(o.Node) > 1 {
			g.span.Culprits = append(slices.Delete(g.span.Culprits, at, at+1), c)
			return
		}
	}
}

// found says whether something that failed has been named.
func (g *machine) found() bool {
	return slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool {
		return VerdictOf(c.Reason) == v1alpha1.VerdictFail && !ofCommunicators(&c)
	})
}

// foundSlow says whether a culprit that was named was slow.
func (g *machine) foundSlow() bool {
	return slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool {
		return c.Reason == v1alpha1.ReasonSlowNode || c.Reason == v1alpha1.ReasonSlowPair || c.Reason == v1alpha1.ReasonSlowRail
	})
}

// named are the names of all culprits: first those of the list, then the nodes that it has no room for.
func (g *machine) named() []string {
	names := culpritNames(g.span.Culprits)
	set, err := localize.ParseSet(g.span.CulpritSet)
	if err != nil {
		return names
	}
	for _, name := range g.namesOf(set) {
		if !slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool { return c.Node == name }) {
			names = append(names, name)
		}
	}
	return names
}

func culpritNames(culprits []v1alpha1.Culprit) []string {
	var out []string
	for i := range culprits {
		if c := &culprits[i]; VerdictOf(c.Reason) == v1alpha1.VerdictFail && !ofCommunicators(c) {
			name := c.Name
			if c.Kind != "Node" && c.Kind != "Pair" {
				name = fmt.Sprintf("%s %s on %s", c.Kind, c.Name, c.Node)
			}
			out = append(out, name)
		}
	}
	return out
}

// Outcome is the group's stage as one more outcome beside those of so many nodes: it decides with them.
func Outcome(spec *v1alpha1.CommGroupSpec, run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, nodes int) *judge.Outcome {
	if run == nil || spec.Span != v1alpha1.SpanGroup && (span == nil || span.RunID != run.ID) {
		return nil
	}
	o := &judge.Outcome{Node: "the group", Phase: judge.Done}
	switch {
	case span == nil || span.RunID != run.ID || span.Stage != v1alpha1.StageEnded || span.Verdict == "":
		// No result is never a pass.
		o.Reason, o.Message = v1alpha1.ReasonInconclusive, fmt.Sprintf("Run %s has no result over several nodes.", run.ID)
	case span.Verdict == v1alpha1.VerdictPass && int(span.Members) < nodes:
		// A node's result may have come, or come again, after the members were fixed.
		o.Verdict, o.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
		o.Message = fmt.Sprintf("The communicator of run %s was over %d of its %d nodes: the others had no result when it was formed. A new run takes them in: kubectl commgroup run.",
			run.ID, span.Members, nodes)
	default:
		// Whoever tells of it has named the group.
		o.Verdict, o.Reason, o.Message = span.Verdict, span.Reason, units.Unnamed(span.Message, judge.DimensionGroup)
		o.Culprits, o.SpeedNotJudged = span.Culprits, span.SpeedNotJudged
	}
	return o
}

// WithSpan adds the group's stage to the nodes' outcomes.
func WithSpan(outcomes []judge.Outcome, spec *v1alpha1.CommGroupSpec, run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus) []judge.Outcome {
	o := Outcome(spec, run, span, len(outcomes))
	if o == nil {
		return outcomes
	}
	return append(slices.Clip(outcomes), *o)
}

// Progress says in a few words where the group's stage is, for the condition Running.
func Progress(span *v1alpha1.SpanStatus) string {
	if span == nil || span.Stage == v1alpha1.StageNodes || span.Stage == v1alpha1.StageEnded {
		return ""
	}
	text := fmt.Sprintf(" Stage %s: %d of %d members", span.Stage, span.Present, span.Members)
	open := 0
	for i := range span.Tests {
		if span.Tests[i].Verdict == "" {
			open++
		}
	}
	if l := span.Localization; l != nil && span.Stage == v1alpha1.StageLocalizing {
		text += fmt.Sprintf(", round %d of at most %d, %s of %s made", l.Rounds, l.MaxRounds, words.Counted(int(l.Tests), "test"), l.Step)
	} else if open > 0 {
		text += ", test " + span.Tests[len(span.Tests)-1].ID
	}
	if span.Stage == v1alpha1.StageWaitingForMembers && span.StageDeadline != nil {
		text += ", until " + span.StageDeadline.UTC().Format("15:04:05") + " UTC"
	}
	return text + "."
}

// same says whether two culprits are one.
func same(a, b *v1alpha1.Culprit) bool {
	return a.Node == b.Node && a.Kind == b.Kind && a.Name == b.Name
}
