package stage

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// closeRound gives the tests of a round their verdicts. Where speed is what is searched for, they are compared with
// each other and with the tests like them before.
func (g *rounds) closeRound() {
	slow := false
	if at := g.searchBase(); at >= 0 && g.span.Stage == v1alpha1.StageLocalizing {
		_, slow = g.reasonOfBad()
	}
	for i := range g.round {
		r := &g.round[i]
		switch {
		case len(r.out) > 0:
			g.closeTest(r.test, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost, nil)
			if r.bad {
				g.closeTest(r.test, v1alpha1.VerdictFail, r.reason, nil)
				g.worsen(r.reason, fmt.Sprintf("Test %s failed: %s", r.test.ID, r.message))
			}
		case r.test.Kind == v1alpha1.TestPairs:
			g.closePairs(r)
		case r.test.Kind == v1alpha1.TestRails:
			g.closeRails(r, slow)
		case r.bad:
			g.closeTest(r.test, v1alpha1.VerdictFail, r.reason, nil)
		case slow && r.silent(): // it came to its end, and how fast is not known
			g.closeTest(r.test, v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive, nil)
		default:
			g.closeTest(r.test, v1alpha1.VerdictPass, "", r.slowest())
		}
	}
	if slow {
		g.compareSearch()
	} else {
		g.findCrawling()
	}
}

// crawlPercent of what communicators over as many nodes reach is no working speed. A member that crawls makes a step
// over more nodes miss its deadline, and connections end with the first who gives up, although a smaller step comes to
// its end.
const crawlPercent = 5

// findCrawling makes those tests of a search that is for no speed bad that came to their end at a crawl.
func (g *rounds) findCrawling() {
	at := g.searchBase()
	if at < 0 || g.span.Stage != v1alpha1.StageLocalizing {
		return
	}
	after := g.span.Tests[at+1:]
	for i := range after {
		t := &after[i]
		if t.Kind != v1alpha1.TestSearch || t.BusBandwidthMBps == nil {
			continue
		}
		for j := range after {
			other := &after[j]
			if other.Kind == v1alpha1.TestSearch && other.BusBandwidthMBps != nil &&
				alike(len(g.readSet(t.Set)), len(g.readSet(other.Set))) &&
				*t.BusBandwidthMBps*100 < *other.BusBandwidthMBps*crawlPercent {
				t.Verdict, t.Reason = v1alpha1.VerdictFail, slowReason(len(g.readSet(t.Set)))
			}
		}
	}
}

// slowReason of a test of the search over so many nodes.
func slowReason(nodes int) string {
	if nodes == LeastMembers {
		return v1alpha1.ReasonSlowPair
	}
	return v1alpha1.ReasonSlowGroup
}

// badAs is why communicators with the members are bad, and whether it is a matter of speed. What hung or failed over
// more nodes may be a member so slow that it missed the deadline there: the smallest tests that hold it came to their
// end, at a crawl.
func (g *rounds) badAs(members ...int) (reason string, slow bool) {
	if reason, slow = g.reasonOfBad(); slow {
		return reason, true
	}
	smallest := 0
	for i := range g.span.Tests[g.searchBase()+1:] {
		t := &g.span.Tests[g.searchBase()+1+i]
		if t.Kind != v1alpha1.TestSearch || t.Verdict != v1alpha1.VerdictFail {
			continue
		}
		set := g.readSet(t.Set)
		if slices.ContainsFunc(members, func(m int) bool { return !set.Has(m) }) {
			continue
		}
		crawls := slices.Contains(slowReasons, t.Reason)
		switch {
		case smallest == 0 || len(set) < smallest:
			smallest, slow = len(set), crawls
		case len(set) == smallest:
			slow = slow && crawls
		}
	}
	if slow {
		reason = v1alpha1.ReasonSlowNode
	}
	return reason, slow
}

// compareSearch gives the tests of the search their verdicts by the best that is known now, so that an early test does
// not keep the verdict that it had while nothing fast was known. A test is good where it is as fast as smaller ones,
// and bad where it is far slower than one over as many nodes, or more. Where neither can be said, it is the size that
// may slow it: it is bad only where it is as slow as the whole group.
func (g *rounds) compareSearch() {
	step := g.searchStep()
	group := g.groupFigure(step)
	after := g.span.Tests[g.searchBase()+1:]
	ofMesh := g.bestOfMesh()
	if g.dimensionSearched() != "" {
		group = 0
	}
	nodes := make([]int, len(after)) // of the tests with a figure that counts
	for i := range after {
		t := &after[i]
		switch {
		case t.BusBandwidthMBps == nil:
		case t.Kind == v1alpha1.TestSearch:
			nodes[i] = len(g.readSet(t.Set))
		case t.Kind == v1alpha1.TestPairRecord && t.Index == 0:
			nodes[i] = 2
		}
	}
	for i := range after {
		t := &after[i]
		if nodes[i] == 0 || t.Kind != v1alpha1.TestSearch {
			continue
		}
		own := *t.BusBandwidthMBps
		like, smaller := ofMesh, int64(0)
		for j := range after {
			switch {
			case nodes[j] == 0:
			case nodes[j] > nodes[i], alike(nodes[i], nodes[j]):
				like = max(like, *after[j].BusBandwidthMBps)
			default:
				smaller = max(smaller, *after[j].BusBandwidthMBps)
			}
		}
		switch least := g.minPercent(); {
		case own*100 < like*least:
			t.Verdict, t.Reason = v1alpha1.VerdictFail, slowReason(nodes[i])
		case own*100 >= smaller*least:
			t.Verdict, t.Reason = v1alpha1.VerdictPass, ""
		case group > 0 && group*100 < own*likeGroupPercent:
			t.Verdict, t.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
		default:
			t.Verdict, t.Reason = v1alpha1.VerdictFail, slowReason(nodes[i])
		}
	}
}

// likeGroupPercent: a smaller communicator that is no faster than the group, but for this, is bad for the group's
// cause.
const likeGroupPercent = 90

// bySize says whether all tests of the round that was just closed are alike, and slower than smaller ones: then it is
// the number of nodes that slows them. It gives the fastest of them.
func (g *rounds) bySize() (slowest, nodes int64, all bool) {
	for i := range g.round {
		t := g.round[i].test
		if t.Kind != v1alpha1.TestSearch || t.Verdict != v1alpha1.VerdictInconclusive || t.BusBandwidthMBps == nil {
			return 0, 0, false
		}
		if slowest == 0 || *t.BusBandwidthMBps < slowest {
			slowest, nodes = *t.BusBandwidthMBps, int64(len(g.readSet(t.Set)))
		}
	}
	return slowest, nodes, len(g.round) > 0
}

// alike says whether communicators over so many nodes may be compared: ring bandwidth hardly depends on the number,
// latency does.
func alike(a, b int) bool {
	return 4*max(a, b) <= 5*min(a, b)+4
}

// topShare is how many of so many communicators may be faster than what is expected of all: with very many, some are so
// by chance.
func topShare(n int) int { return n / 16 }

// usual is what communicators of one kind can reach, so that those that are slow may be most of them. Of one nothing
// can be said.
func usual(values []int64) int64 {
	if len(values) < 2 {
		return 0
	}
	return bestOf(values)
}

// bestOf is the best of a few, and of many the one that a sixteenth surpass; zero of none.
func bestOf(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)-1-topShare(len(sorted))]
}

func bandwidths(communicators []commResult) []int64 {
	var out []int64
	for i := range communicators {
		if bw := communicators[i].busBWMBps; bw != nil {
			out = append(out, *bw)
		}
	}
	return out
}

// closeRails closes a test of the rails of two nodes: a rail is bad where it failed, or is far slower than the usual
// one.
func (g *rounds) closeRails(r *testResult, slow bool) {
	expected := max(usual(bandwidths(r.communicators)), g.bestOfMesh())
	verdict, reason := v1alpha1.VerdictPass, ""
	for i := range r.communicators {
		c := &r.communicators[i]
		if slow && !c.bad && c.busBWMBps != nil && *c.busBWMBps*100 < expected*g.minPercent() {
			c.bad, c.reason = true, v1alpha1.ReasonSlowRail
		}
		if c.bad {
			verdict, reason = v1alpha1.VerdictFail, c.reason
		}
	}
	g.closeTest(r.test, verdict, reason, r.slowest())
}

// bestOfMesh is the best that the dimension, and the tests of its search just closed, reach; zero outside of such a
// search.
func (g *rounds) bestOfMesh() int64 {
	dimension := g.dimensionSearched()
	best := int64(0)
	if dimension == "" {
		return best
	}
	step := g.searchStep()
	for i := range g.span.Results {
		s := &g.span.Results[i]
		if s.Dimension != dimension || s.Collective != step.Collective || s.Datatype != step.Datatype {
			continue
		}
		if at := slices.Index(s.SizeBytes, step.SizeBytes); at >= 0 && at < len(s.BusBandwidthMBps) {
			best = max(best, s.BusBandwidthMBps[at])
		}
	}
	for i := range g.round {
		for _, bw := range bandwidths(g.round[i].communicators) {
			best = max(best, bw)
		}
	}
	return best
}
