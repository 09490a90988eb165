package stage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// findings says what the tests prove: culprits, what is bad in the mesh, and what a search learns from.
type findings struct{ *rounds }

// history is what the planner learns from: the tests since the one that the search is for, and the pairs before them.
func (g *findings) history() []localize.Test {
	before := g.roundsBefore()
	var out []localize.Test
	if g.dimensionSearched() == "" {
		out = g.pairsHistory()
	}
	tests := g.span.Tests[g.searchBase()+1:]
	for i := range tests {
		t := &tests[i]
		kind := localize.KindSpan
		switch t.Kind {
		case v1alpha1.TestRails:
			kind = localize.KindRails
		case v1alpha1.TestSearch:
		default:
			continue
		}
		out = append(out, localize.Test{Round: int(t.Round) - before, Kind: kind, Set: g.readSet(t.Set),
			Outcome: OutcomeOf(t.Verdict)})
	}
	return out
}

func ownTests(history []localize.Test) int {
	n := 0
	for i := range history {
		if history[i].Round > 0 {
			n++
		}
	}
	return n
}

// OutcomeOf is a verdict as the planner takes it.
func OutcomeOf(v v1alpha1.Verdict) localize.Outcome {
	switch v {
	case v1alpha1.VerdictPass:
		return localize.Good
	case v1alpha1.VerdictFail:
		return localize.Bad
	case "":
		return localize.Open
	case v1alpha1.VerdictError, v1alpha1.VerdictInconclusive, v1alpha1.VerdictSkipped:
	}
	return localize.Unknown
}

// searchSet are the members that a search is among: all that are present; in a dimension of the mesh those of its bad
// communicators, and some more where they are too few to tell them apart.
func (g *findings) searchSet() localize.Set {
	present := g.presentSet()
	dimension := g.dimensionSearched()
	if dimension == "" {
		return present
	}
	_, numbers := g.untraced(dimension)
	l, err := g.layoutOf(&g.span.Tests[g.searchBase()])
	if err != nil {
		return present
	}
	var members []int
	for _, c := range l.communicators {
		if numbers.Has(numberOf(c.name)) {
			for _, s := range c.participants {
				members = append(members, s.index)
			}
		}
	}
	set := localize.NewSet(members...)
	for _, index := range present {
		if len(set) >= minPairsMembers {
			break
		}
		set = localize.NewSet(append(slices.Clone(set), index)...)
	}
	return set
}

// nodeCulprits names the bad node, or its GPUs' ways out where single rails are bad.
func (g *findings) nodeCulprits(s *participant, rails badRails, reason string, slow bool, step v1alpha1.Step,
	effort string) []v1alpha1.Culprit {
	fault := g.faultWords(reason, slow)
	if !rails.single() {
		figures := ""
		if slow {
			figures = g.slowWords(s.index)
		}
		message := fmt.Sprintf("%s %s in each communicator with %s, and those without are good (%s); alone the "+
			"node is fine.%s Look at what it shares for the way out: NICs, cables, switch port, routes, firewall.",
			step, fault, s.name, effort, figures)
		return []v1alpha1.Culprit{judge.NodeCulprit(s.name, reason, message)}
	}
	if slow {
		reason = v1alpha1.ReasonSlowRail
	}
	var out []v1alpha1.Culprit
	for _, device := range rails.bad {
		c := v1alpha1.Culprit{Node: s.name, Reason: reason}
		var way string
		c.Kind, c.Name, way = wayOut(s, device)
		c.Message = fmt.Sprintf("%s %s on rail %d alone of %s with %s, which is good elsewhere (%s; "+
			"%s).%s Look at that NIC's link speed and errors, its cable and its PCIe width.",
			step, fault, device, s.name, rails.partner, way, effort, g.railFigures(rails, device))
		out = append(out, c)
	}
	return out
}

// pairCulprit names two nodes that are bad together only, and the rails where single ones are bad between them. It is
// the path's fault, and neither node's.
func (g *findings) pairCulprit(a, b *participant, rails badRails, reason string, slow bool, step v1alpha1.Step,
	effort string) v1alpha1.Culprit {
	figures, look := "", "Look at the path between the two: cable, switch port, route."
	if slow {
		reason, figures = v1alpha1.ReasonSlowPair, g.slowWords(a.index, b.index)
	}
	if rails.single() {
		var ways []string
		for _, device := range rails.bad {
			_, _, onA := wayOut(a, device)
			_, _, onB := wayOut(b, device)
			ways = append(ways, fmt.Sprintf("%d (%s on %s; %s on %s)", device, onA, a.name, onB, b.name))
		}
		if own := g.railFigures(rails, slices.Min(rails.bad)); own != "" {
			figures = own
		}
		look = fmt.Sprintf("Of its %d rails these alone are bad: %s. Look at the path between these: "+
			"cables, switch ports, route.", rails.total, strings.Join(ways, ", "))
	}
	name := pairName(a.name, b.name)
	return v1alpha1.Culprit{Kind: "Pair", Pair: []string{a.name, b.name}, Name: name, Reason: reason,
		Message: fmt.Sprintf(
			"%s %s over %s and %s together, while each is good with others (%s).%s %s",
			step, g.faultWords(reason, slow), a.name, b.name, effort, figures, look)}
}

func pairName(a, b string) string { return clip.Head(a+"<->"+b, 253) }

// faultWords say what a step does in the communicators that are bad.
func (g *findings) faultWords(reason string, slow bool) string {
	switch {
	case slow:
		return "is far slower"
	case reason == v1alpha1.ReasonHangAcrossNodes || reason == v1alpha1.ReasonRankHung:
		return fmt.Sprintf("does not end within %d s", g.in.Group.Spec.Run.StepDeadlineSeconds)
	case reason == v1alpha1.ReasonWrongData:
		return "gives wrong data"
	case reason == v1alpha1.ReasonInitFailed:
		return "cannot begin, since no communicator forms,"
	}
	return "fails"
}

// slowWords are measured, expected and percent of the slowest small test of all these members.
func (g *findings) slowWords(members ...int) string {
	var worst *v1alpha1.SpanTest
	best, size := g.pairsSummary().best, 0
	for i := g.searchBase() + 1; i < len(g.span.Tests); i++ {
		t := &g.span.Tests[i]
		set := g.readSet(t.Set)
		if t.BusBandwidthMBps == nil || t.Kind != v1alpha1.TestSearch && t.Kind != v1alpha1.TestPairRecord {
			continue
		}
		if t.Verdict == v1alpha1.VerdictPass {
			best = max(best, *t.BusBandwidthMBps)
		}
		if t.Verdict == v1alpha1.VerdictFail && !slices.ContainsFunc(members, func(m int) bool {
			return !set.Has(m)
		}) && (worst == nil || len(set) < size) {
			worst, size = t, len(set)
		}
	}
	if worst == nil || best == 0 {
		return ""
	}
	return fmt.Sprintf(" Measured %s, expected at least %s, which is %d %% of the %s that good ones reach: %d %%.",
		units.Bandwidth(*worst.BusBandwidthMBps), units.Bandwidth(best*g.minPercent()/100), g.minPercent(),
		units.Bandwidth(best), *worst.BusBandwidthMBps*100/best)
}

// effort says what this search took, with the pairs that it learned from.
func (g *findings) effort() string {
	tests, rounds, begun := 0, map[int]bool{}, time.Time{}
	for i := range g.span.Tests[g.searchBase()+1:] {
		t := &g.span.Tests[g.searchBase()+1+i]
		if kind := t.Kind; kind == v1alpha1.TestSearch || kind == v1alpha1.TestRails {
			if tests++; tests == 1 {
				begun = t.StartTime.Time
			}
			rounds[int(t.Round)] = true
		}
	}
	text := fmt.Sprintf("%s in %s", units.Counted(tests, "test"), units.Counted(len(rounds), "round"))
	if tests > 0 {
		text += fmt.Sprintf(" of %d s", int(g.in.Now.Sub(begun)/time.Second))
	}
	if sum := g.pairsSummary(); sum.pairs > 0 && g.dimensionSearched() == "" {
		text = fmt.Sprintf("%s in %s of %d s, then %s",
			units.Counted(sum.pairs, "pair"), units.Counted(sum.rounds, "round"), sum.seconds, text)
	}
	return text
}

// symptom is what of the bad test is told beside its culprits: what one of its nodes saw says no more then, and often
// blames one that only waited.
func (g *findings) symptom(slow bool) string {
	t := &g.span.Tests[g.searchBase()]
	switch sum := g.pairsSummary(); {
	case slow && g.span.Reason == v1alpha1.ReasonSlowPair && g.dimensionSearched() == "" && sum.pairs > 0:
		return fmt.Sprintf("With all %d members %s; at least %d %% is expected.", len(g.present()), sum, g.minPercent())
	case slow:
		return clip.Sentences(g.span.Message, 300)
	case t.Kind == v1alpha1.TestMesh:
		return fmt.Sprintf("Communicators of dimension %s of the mesh failed (%s).", t.Dimension, t.Reason)
	}
	text := fmt.Sprintf("The communicator over %d nodes failed (%s).", len(g.readSet(t.Set)), t.Reason)
	if over := g.span.Transport; g.in.Group.Spec.Network.RequireTransport == v1alpha1.TransportRDMA &&
		(over == judge.TransportTCP || over == judge.TransportMixed) {
		text += fmt.Sprintf(" Its data went over TCP (%s), and network.requireTransport is RDMA.", over)
	}
	return text
}

// lookAt is the next step where pairs or the group are slow and no culprit is named; with a blank before, empty where
// what is bad is no matter of speed.
func (g *findings) lookAt() string {
	switch g.span.Reason {
	case v1alpha1.ReasonSlowPair:
		return " Look at the NICs, cables and switch ports of those nodes."
	case v1alpha1.ReasonSlowGroup:
		if notMet, _ := checks.Of(g.groupChecks()); len(notMet) > 0 && len(notMet[0].Causes) > 0 {
			return fmt.Sprintf(" Look at: %s.", notMet[0].Causes[0])
		}
	}
	return ""
}

// explained says whether a culprit that is known makes the communicator bad: a node in it, a GPU or NIC of its ranks,
// or a pair.
func (g *findings) explained(c *communicator, parts map[string]spans.Part) bool {
	here := func(node string) *participant {
		if at := slices.IndexFunc(c.participants, func(s *participant) bool { return s.name == node }); at >= 0 {
			return c.participants[at]
		}
		return nil
	}
	return slices.ContainsFunc(g.span.Culprits, func(known v1alpha1.Culprit) bool {
		if VerdictOf(known.Reason) != v1alpha1.VerdictFail || known.Reason == v1alpha1.ReasonTransportFallback {
			return false
		}
		switch known.Kind {
		case "Node", "Rank":
			return here(known.Node) != nil
		case "Pair":
			return !slices.ContainsFunc(known.Pair, func(node string) bool { return here(node) == nil })
		case "GPU", "NIC":
			s := here(known.Node)
			if s == nil {
				return false
			}
			part := parts[s.name]
			at := slices.IndexFunc(part.Communicators, func(own v1alpha1.TaskCommunicator) bool {
				return own.Name == c.name
			})
			return at >= 0 && slices.ContainsFunc(part.Communicators[at].Devices, func(device int32) bool {
				return isDevice(s, device, known.Name)
			})
		}
		return false
	})
}

// isDevice says whether a culprit's name is that of the node's device or of the NIC next to it.
func isDevice(s *participant, device int32, name string) bool {
	if name == fmt.Sprintf("GPU %d", device) {
		return true
	}
	f := s.facts()
	return f != nil && int(device) < len(f.GPUs) && (f.GPUs[device].PCIAddress == name || f.GPUs[device].NIC == name)
}

// tracedTo drops the communicators of the dimension that a search explained: it found what is bad and nothing is left
// over. Those that no named culprit makes bad stay.
func (g *findings) tracedTo(f localize.Finding) {
	dimension := g.dimensionSearched()
	if dimension == "" || f.State != localize.Found || len(f.Suspects) > 0 {
		return
	}
	culprit, numbers := g.untraced(dimension)
	base := &g.span.Tests[g.searchBase()]
	l, err := g.layoutOf(base)
	if culprit == nil || err != nil {
		return
	}
	var rest []int
	parts := g.partsOf(base)
	for _, c := range l.communicators {
		if n := numberOf(c.name); numbers.Has(n) && !g.explained(c, parts) {
			rest = append(rest, n)
		}
	}
	if len(rest) > 0 {
		if len(rest) < len(numbers) {
			culprit.Name = communicatorsName(dimension, rest)
			culprit.Message = clip.Head(fmt.Sprintf("What the search named does not make %s bad. %s",
				culprit.Name, culprit.Message), 512)
		}
		return
	}
	named := *culprit
	g.span.Culprits = slices.DeleteFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool { return same(&c, &named) })
}
