package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// MeshPassed says whether each dimension of the mesh that can be measured was, and passed.
func MeshPassed(mesh []v1alpha1.MeshDimension, tests []v1alpha1.SpanTest) bool {
	return !slices.ContainsFunc(spans.Measurable(mesh), func(at int) bool {
		t := meshTest(tests, mesh[at].Name)
		return t == nil || t.Verdict != v1alpha1.VerdictPass
	})
}

// meshTest is the test of a dimension of the mesh; nil where there is none.
func meshTest(tests []v1alpha1.SpanTest, dimension string) *v1alpha1.SpanTest {
	for i := range tests {
		if tests[i].Kind == v1alpha1.TestMesh && tests[i].Dimension == dimension {
			return &tests[i]
		}
	}
	return nil
}

// checkTransport notes what carried the data, and says whether the group may be taken further with it.
func (g *findings) checkTransport(communicators []commResult) bool {
	var members []MemberTransport
	for i := range communicators {
		members = append(members, communicators[i].transports...)
	}
	choice := TransportFor(g.in.Group.Spec.Network.RequireTransport, members)
	g.span.Transport = choice.Transport
	if choice.Reason == "" {
		return true
	}
	g.worsen(choice.Reason, choice.Message)
	if choice.Verdict != v1alpha1.VerdictFail {
		return true
	}
	g.blameTransport(members, choice)
	g.round[0].test.Verdict, g.round[0].test.Reason = choice.Verdict, choice.Reason
	return false
}

// checkMeshTransport holds what carried the data between nodes against what is asked for, and returns what it was;
// empty where nothing left a node.
func (g *findings) checkMeshTransport(r *testResult, dimension string) string {
	worst := map[string]MemberTransport{} // by node, over its communicators
	for i := range r.communicators {
		c := &r.communicators[i]
		if len(c.participants) < 2 {
			continue // nothing leaves the node
		}
		for _, m := range c.transports {
			if before, seen := worst[m.Node]; !seen || worseTransport(m.Transport, before.Transport) > 0 {
				worst[m.Node] = m
			}
		}
	}
	if len(worst) == 0 {
		return ""
	}
	members := make([]MemberTransport, 0, len(worst))
	for _, name := range slices.Sorted(maps.Keys(worst)) {
		members = append(members, worst[name])
	}
	choice := TransportFor(g.in.Group.Spec.Network.RequireTransport, members)
	g.span.Transport = joinTransports(g.span.Transport, choice.Transport)
	if choice.Reason != "" {
		g.worsen(choice.Reason, fmt.Sprintf("Dimension %s of the mesh: %s", dimension, choice.Message))
	}
	if choice.Verdict == v1alpha1.VerdictFail {
		g.blameTransport(members, choice)
		if r.test.Verdict == v1alpha1.VerdictPass {
			r.test.Verdict, r.test.Reason = choice.Verdict, choice.Reason
		}
	}
	return choice.Transport
}

// blameTransport names the nodes whose data went over TCP; where all fell back, the cause is shared and no node is the
// culprit.
func (g *findings) blameTransport(members []MemberTransport, choice TransportChoice) {
	if !slices.ContainsFunc(members, func(m MemberTransport) bool { return m.Transport == judge.TransportRDMA }) {
		return
	}
	for _, m := range members {
		if m.Transport == judge.TransportTCP || m.Transport == judge.TransportMixed {
			g.blame(judge.NodeCulprit(m.Node, choice.Reason, choice.Message))
		}
	}
}

// fallbackWords say, of a communicator that failed, that its data went over TCP against what is asked for.
func (g *findings) fallbackWords(communicators []commResult) string {
	var members []MemberTransport
	for i := range communicators {
		members = append(members, communicators[i].transports...)
	}
	choice := TransportFor(g.in.Group.Spec.Network.RequireTransport, members)
	if choice.Verdict != v1alpha1.VerdictFail {
		return ""
	}
	g.span.Transport = choice.Transport
	return " " + choice.Message
}

// compareDimension holds the communicators of a dimension against those over as many nodes, and its results against
// what was asked for.
func (g *findings) compareDimension(r *testResult, dimension, transport string) {
	byNodes := map[int][]*commResult{}
	for i := range r.communicators {
		if c := &r.communicators[i]; c.busBWMBps != nil && g.comparesDimensions() {
			byNodes[len(c.participants)] = append(byNodes[len(c.participants)], c)
		}
	}
	for _, nodes := range slices.Sorted(maps.Keys(byNodes)) {
		alike := byNodes[nodes]
		figures := make([]int64, len(alike))
		for i, c := range alike {
			figures[i] = *c.busBWMBps
		}
		expected := usual(figures)
		for i, c := range alike {
			if figures[i]*100 >= expected*g.minPercent() {
				continue
			}
			c.bad, c.reason = true, v1alpha1.ReasonSlowCommunicator
			c.message = fmt.Sprintf("%s reaches %s, %d %% of what the others of dimension %s usually reach (%s); "+
				"at least %d %% is expected", c.name, units.Bandwidth(figures[i]), figures[i]*100/expected, dimension,
				units.Bandwidth(expected), g.minPercent())
			g.worsen(c.reason, c.message)
			r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, c.reason
		}
	}
	var own []v1alpha1.SpanResultSeries
	for i := range g.span.Results {
		if g.span.Results[i].Dimension == dimension {
			own = append(own, g.span.Results[i])
		}
	}
	all := judge.SpanChecks(&g.in.Group.Spec, own, judge.PlaceOfMembers(g.in.Outcomes, transport))
	notMet, _ := checks.Of(all)
	if len(notMet) > 0 {
		if r.test.Verdict == v1alpha1.VerdictPass {
			r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonBelowThreshold
		}
		g.worsen(v1alpha1.ReasonBelowThreshold, explain.Checks(notMet))
	}
}

// blameCommunicators names the node of each bad communicator that lies within one. Those over several nodes are kept by
// their numbers as a culprit that is on no node: which node makes them bad is to be found.
func (g *findings) blameCommunicators(r *testResult, dimension string) {
	var across []*commResult
	parts := g.partsOf(r.test)
	for i := range r.communicators {
		switch c := &r.communicators[i]; {
		case !c.bad:
		case len(c.participants) == 1:
			g.blame(judge.NodeCulprit(c.participants[0].name, c.reason,
				fmt.Sprintf("Communicator %s within the node: %s", c.name, c.message)))
		case !g.explained(c.communicator, parts):
			across = append(across, c)
		}
	}
	if len(across) == 0 {
		return
	}
	worst := slices.MinFunc(across, func(a, b *commResult) int {
		switch {
		case worseReason(a.reason, b.reason):
			return -1
		case worseReason(b.reason, a.reason):
			return 1
		}
		return cmp.Compare(numberOf(a.name), numberOf(b.name))
	})
	numbers := make([]int, len(across))
	for i, c := range across {
		numbers[i] = numberOf(c.name)
	}
	g.blame(v1alpha1.Culprit{Kind: kindCommunicators, Name: communicatorsName(dimension, numbers), Reason: worst.reason,
		Message: fmt.Sprintf(
			"%d of %d communicators of dimension %s are bad; %s over %s: %s.%s No single node is known to be to "+
				"blame: look at what their members share, NICs, links and switches.",
			len(across), len(r.communicators), dimension, worst.name, explain.Names(names(worst.participants), 4),
			strings.TrimSuffix(clip.Head(worst.message, 200), "."), deviceWords(across, parts))})
}

// deviceWords say which GPUs the communicators take, where they take no other ones on any node, and leave some out.
func deviceWords(bad []*commResult, parts map[string]spans.Part) string {
	var taken []int
	most := 0
	for _, c := range bad {
		for _, s := range c.participants {
			here := 0
			for _, own := range parts[s.name].Communicators {
				here += len(own.Devices)
				if own.Name != c.name {
					continue
				}
				for _, device := range own.Devices {
					taken = append(taken, int(device))
				}
			}
			most = max(most, here)
		}
	}
	set := localize.NewSet(taken...)
	if len(set) == 0 || len(set) >= most {
		return ""
	}
	return fmt.Sprintf(" They take GPUs %s of their nodes only.", set)
}

// eachHasLike says whether each communicator has another one over as many nodes to be compared with.
func eachHasLike(l *layout) bool {
	count := map[int]int{}
	for _, c := range l.communicators {
		count[len(c.participants)]++
	}
	for _, n := range count {
		if n < 2 {
			return false
		}
	}
	return true
}

// tellCommonNode tells of the node that is in every bad communicator, and in none that is good, where communicators of
// two dimensions at least are bad: those of one dimension alone have other nodes in common as well. It is a hint and no
// culprit: two faults elsewhere may look the same, a bad pair in each of the dimensions.
func (g *findings) tellCommonNode() {
	common := map[*participant]bool{}
	for _, s := range g.present() {
		common[s] = true
	}
	reason, bad := "", []string(nil)
	for at := range g.in.Group.Spec.Mesh {
		dimension := g.in.Group.Spec.Mesh[at].Name
		t := meshTest(g.span.Tests, dimension)
		if t == nil {
			continue
		}
		culprit, numbers := g.untraced(dimension)
		l, err := g.layoutOf(t)
		if err != nil || culprit == nil && t.Verdict != v1alpha1.VerdictPass {
			return // what is bad in it is not known, or has another cause
		}
		if culprit != nil {
			reason = culprit.Reason
			bad = append(bad, dimension)
		} else if !eachHasLike(l) || !g.comparesDimensions() {
			continue // it works, and how fast it should be is not known
		}
		for _, c := range l.communicators {
			if len(c.participants) < LeastMembers {
				continue
			}
			isBad := numbers.Has(numberOf(c.name))
			for s := range common {
				if slices.Contains(c.participants, s) != isBad {
					delete(common, s)
				}
			}
		}
	}
	if len(bad) < 2 || len(common) != 1 {
		return
	}
	for s := range common {
		g.explain(reason, fmt.Sprintf("Look first at node %s: of the dimensions %s it is in every communicator that "+
			"is bad, it is in none that is good, and no other node is so. No smaller test shows it, so that it is no "+
			"culprit yet. %s", s.name, strings.Join(bad, ", "), g.span.Message))
	}
}

// meshWords say what of the mesh was measured, and what was not or could not be compared; with a blank before, or
// nothing where there is no mesh.
func (g *findings) meshWords() string {
	mesh := g.in.Group.Spec.Mesh
	asked := spans.Measurable(mesh)
	var measured, alone []string
	for _, at := range asked {
		t := meshTest(g.span.Tests, mesh[at].Name)
		if t == nil || t.Verdict != v1alpha1.VerdictPass && t.Verdict != v1alpha1.VerdictFail {
			continue
		}
		measured = append(measured, mesh[at].Name)
		if l, err := g.layoutOf(t); err == nil && !eachHasLike(l) {
			alone = append(alone, mesh[at].Name)
		}
	}
	switch {
	case len(mesh) == 0:
		return ""
	case len(measured) == 0:
		text := " The mesh was not measured."
		if err := g.meshMismatch(); err != nil {
			text = fmt.Sprintf(" The mesh was not measured: %s.", strings.TrimPrefix(err.Error(), "mesh: "))
		}
		return text
	}
	text := fmt.Sprintf(" %s of the mesh measured", units.Counted(len(measured), "dimension"))
	if len(measured) < len(asked) {
		text += fmt.Sprintf(", of %d", len(asked))
	}
	if !g.comparesDimensions() {
		return text +
			"; benchmark.nodeMinPercentOfMedian is 0, so that the speeds of their communicators were not compared."
	}
	if len(alone) > 0 {
		text += fmt.Sprintf("; in %s not all speeds were compared, since that takes two communicators over "+
			"as many nodes", explain.Names(alone, 4))
	}
	return text + "."
}
