package controllers

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/localize"
)

// minPairsMembers is the least number of members whose neighbouring pairs are compared with each other: two pairs at once.
const minPairsMembers = 4

// pairsRounds cover the ring: each member once with the one before it and once with the one behind.
const pairsRounds = 2

func (g *groupStage) openPairs() bool {
	if g.in.group.Spec.Localization.Mode == v1alpha1.LocalizationOff {
		return false
	}
	round := 1
	for i := range g.span.Tests {
		if testKind(g.span.Tests[i].ID) == testPairsKind && !isRecord(g.span.Tests[i].ID) {
			round++
		}
	}
	return g.open(fmt.Sprintf("%s-%d", testPairsKind, round), g.writeSet(g.presentSet()))
}

// pairsMade counts the rounds of pairs since the last test of the group.
func (g *groupStage) pairsMade() int {
	n := 0
	for i := range g.span.Tests[g.lastGroupTest()+1:] {
		if t := &g.span.Tests[g.lastGroupTest()+1+i]; testKind(t.ID) == testPairsKind && !isRecord(t.ID) {
			n++
		}
	}
	return n
}

// afterPairs makes the second round of pairs, and searches where a pair was far slower than its like.
func (g *groupStage) afterPairs() {
	if g.pairsMade() < pairsRounds && g.openPairs() {
		return
	}
	var bad []string
	for i := range g.span.Tests[g.lastGroupTest()+1:] {
		t := &g.span.Tests[g.lastGroupTest()+1+i]
		if !isRecord(t.ID) {
			continue
		}
		text := ""
		for j, name := range g.namesOf(g.readSet(t.Set)) {
			if j > 0 {
				text += "<->"
			}
			text += name
		}
		if t.BusBandwidthMBps != nil {
			text += fmt.Sprintf(" (%d MB/s)", *t.BusBandwidthMBps)
		}
		bad = append(bad, text)
	}
	step := g.slowStep()
	underMark := g.span.Tests[g.lastGroupTest()].Reason == v1alpha1.ReasonSlowGroup
	switch {
	case len(bad) == 0 && !underMark:
		g.afterGoodGroup()
		return
	case len(bad) == 0 && !g.pairsFaster(step):
		g.end(verdictOfReason(g.span.Reason), g.span.Reason, fmt.Sprintf(
			"All pairs of neighbours are alike, and none is faster than the group at %s: it is slow as a whole. Look at what all share: the switch, the transport (%s), the settings of the library, the mark itself.", step, g.span.Transport))
		return
	case len(bad) == 0:
		g.startSearch(step)
		return
	}
	g.worsen(v1alpha1.ReasonSlowPair, fmt.Sprintf("Neighbours in rank order are far slower with each other than the other pairs: %s; at least %d %% of the usual is expected.",
		someNames(bad, 4), g.minPercent()))
	g.startSearch(step)
}

// pairsFaster says whether the slowest of the pairs is clearly faster than the group is.
func (g *groupStage) pairsFaster(step searchedStep) bool {
	figure := g.groupFigure(step)
	if figure == 0 {
		return true // not known: then it is searched
	}
	for i := range g.span.Tests[g.lastGroupTest()+1:] {
		t := &g.span.Tests[g.lastGroupTest()+1+i]
		if testKind(t.ID) == testPairsKind && t.BusBandwidthMBps != nil && *t.BusBandwidthMBps*g.minPercent() <= figure*100 {
			return false
		}
	}
	return true
}

// closeRound gives the tests of a round their verdicts. Where speed is what is searched for, they are compared with each other
// and with the tests like them before.
func (g *groupStage) closeRound() {
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
		case testKind(r.test.ID) == testPairsKind:
			g.closePairs(r)
		case testKind(r.test.ID) == testRailsKind:
			g.closeRails(r, slow)
		case r.bad:
			g.closeTest(r.test, v1alpha1.VerdictFail, r.reason, nil)
		default:
			g.closeTest(r.test, v1alpha1.VerdictPass, "", r.slowest())
		}
	}
	if slow {
		g.compareRound()
	}
}

// compareRound fails the tests of the round that are far slower than the best of their like.
func (g *groupStage) compareRound() {
	after := g.span.Tests[g.searchBase()+1:]
	ofMesh := g.bestOfMesh()
	for i := range g.round {
		t := g.round[i].test
		if testKind(t.ID) != testSearchKind || t.BusBandwidthMBps == nil {
			continue
		}
		nodes := len(g.readSet(t.Set))
		best, bestOfAny := ofMesh, ofMesh
		for j := range after {
			o := &after[j]
			if kind := testKind(o.ID); o.BusBandwidthMBps == nil || kind != testSearchKind && kind != testPairsKind {
				continue
			}
			others := len(g.readSet(o.Set))
			if testKind(o.ID) == testPairsKind {
				others = 2
			}
			bestOfAny = max(bestOfAny, *o.BusBandwidthMBps)
			if alike(nodes, others) {
				best = max(best, *o.BusBandwidthMBps)
			}
		}
		if best == *t.BusBandwidthMBps {
			best = bestOfAny // it is the only one of its size
		}
		if *t.BusBandwidthMBps*100 < best*g.minPercent() {
			t.Verdict, t.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowGroup
		}
	}
}

// alike says whether communicators over so many nodes may be compared: ring bandwidth hardly depends on the number, latency
// does.
func alike(a, b int) bool {
	return 4*max(a, b) <= 5*min(a, b)+4
}

// usual is what communicators of one kind usually reach: their median, or of two the faster. Of one nothing can be said.
func usual(values []int64) int64 {
	switch len(values) {
	case 0, 1:
		return 0
	case 2:
		return max(values[0], values[1])
	}
	return medianOf(slices.Clone(values))
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

// maxPairRecords bounds the slow pairs that are kept one by one.
const maxPairRecords = 32

// closePairs closes a test over all pairs, and records the pairs that failed or are far slower than the usual one. The test's
// own figure is that of the slowest of the others.
func (g *groupStage) closePairs(r *testResult) {
	expected := usual(bandwidths(r.communicators))
	var least *int64
	var bad []*commResult
	for i := range r.communicators {
		c := &r.communicators[i]
		switch {
		case c.bad, c.busBWMBps != nil && *c.busBWMBps*100 < expected*g.minPercent():
			bad = append(bad, c)
		case c.busBWMBps != nil && (least == nil || *c.busBWMBps < *least):
			least = c.busBWMBps
		}
	}
	verdict, reason := v1alpha1.VerdictPass, ""
	if len(bad) > 0 {
		verdict, reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowPair
	}
	g.closeTest(r.test, verdict, reason, least)
	start := r.test.StartTime
	id := r.test.ID
	for i, c := range bad[:min(len(bad), maxPairRecords)] {
		set := localize.NewSet(c.seats[0].index, c.seats[1].index)
		why := v1alpha1.ReasonSlowPair
		if c.bad {
			why = c.reason
		}
		if !g.open(fmt.Sprintf("%s-%d", id, i+1), g.writeSet(set)) {
			break
		}
		record := &g.span.Tests[len(g.span.Tests)-1]
		record.StartTime = start
		g.closeTest(record, v1alpha1.VerdictFail, why, c.busBWMBps)
	}
}

// closeRails closes a test of the rails of two nodes: a rail is bad where it failed, or is far slower than the usual one.
func (g *groupStage) closeRails(r *testResult, slow bool) {
	expected := usual(bandwidths(r.communicators))
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
