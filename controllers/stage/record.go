package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
)

// record is what the stage has written down: the tests, the verdict so far and the culprits in status.span; and the
// events and the next wake-up that come with it. A decision is written to the status first; what follows from it is
// derived from the written status (saved) in the next reconcile, so that a lost write loses nothing.
type record struct {
	in Input
	// saved is status.span of this run as the API has it, nil where it has none; span is what it becomes.
	saved, span *v1alpha1.SpanStatus
	out         State
}

func (g *record) tell(warning bool, reason, action, format string, args ...any) {
	g.out.Events = append(g.out.Events, decision.Event{Warning: warning, Reason: reason, Action: action,
		Note: clip.Head(fmt.Sprintf(format, args...), 1000)})
}

func (g *record) wake(at time.Time) { g.out.WakeAt = decision.Earlier(g.out.WakeAt, at) }

// enter begins a stage; a deadline of zero leaves the deadlines to its tests.
func (g *record) enter(stage v1alpha1.RunStage, limit time.Duration) {
	g.span.Stage, g.span.StageStartTime, g.span.StageDeadline = stage, decision.Stamp(g.in.Now), nil
	if limit > 0 {
		g.span.StageDeadline = decision.Stamp(g.in.Now.Add(limit))
	}
}

func (g *record) deadlinePassed() bool {
	return g.span.StageDeadline != nil && !g.in.Now.Before(g.span.StageDeadline.Time)
}

func (g *record) savedOver() bool { return g.saved != nil && g.saved.Stage == v1alpha1.StageEnded }

// written says whether the test is in the status that was read.
func (g *record) written(id string) bool {
	return slices.ContainsFunc(g.saved.Tests, func(t v1alpha1.SpanTest) bool { return t.ID == id })
}

// MaxTests bounds status.span.tests; the API allows for more, and the whole status has to stay small.
const MaxTests = 160

// MaxSetBytes bounds the sets of these tests all together.
const MaxSetBytes = 12 << 10

// testID names a test for users and tasks: group-2, localize-3-1, mesh-dp-1. Nothing reads it.
func testID(t *v1alpha1.SpanTest) string {
	switch t.Kind {
	case v1alpha1.TestMesh:
		return fmt.Sprintf("mesh-%s-%d", t.Dimension, t.Round)
	case v1alpha1.TestSearch:
		return fmt.Sprintf("localize-%d-%d", t.Round, t.Index)
	case v1alpha1.TestRails:
		return fmt.Sprintf("rails-%d-%d", t.Round, t.Index)
	case v1alpha1.TestPairs:
		return fmt.Sprintf("screen-%d", t.Round)
	case v1alpha1.TestPairRecord:
		return fmt.Sprintf("screen-%d-%d", t.Round, t.Index)
	case v1alpha1.TestDeparture:
		return fmt.Sprintf("left-%d", t.Round)
	}
	return fmt.Sprintf("group-%d", t.Round)
}

// open begins a test of this kind, round, index and dimension over the set; its tasks are given out once the status is
// written.
func (g *record) open(t v1alpha1.SpanTest, set string) bool {
	all := len(set)
	for i := range g.span.Tests {
		all += len(g.span.Tests[i].Set)
	}
	if len(g.span.Tests) >= MaxTests || len(set) > localize.MaxText || all > MaxSetBytes {
		return false
	}
	t.ID, t.Set, t.StartTime = testID(&t), set, *decision.Stamp(g.in.Now)
	g.span.Tests = append(g.span.Tests, t)
	return true
}

func (g *record) closeTest(t *v1alpha1.SpanTest, verdict v1alpha1.Verdict, reason string, busBWMBps *int64) {
	t.Verdict, t.Reason, t.BusBandwidthMBps, t.OverdueTime = verdict, reason, busBWMBps, nil
	if verdict == v1alpha1.VerdictPass {
		t.Reason = ""
	}
	t.Seconds = ptr.To(int32(max(0, g.in.Now.Sub(t.StartTime.Time)/time.Second)))
}

// closeOpen closes what is open as Error: it was not ended.
func (g *record) closeOpen(reason string) {
	for i := range g.span.Tests {
		if t := &g.span.Tests[i]; t.Verdict == "" {
			g.closeTest(t, v1alpha1.VerdictError, reason, nil)
		}
	}
}

// groupTests counts how often the group itself was formed.
func (g *record) groupTests() int {
	n := 0
	for i := range g.span.Tests {
		if g.span.Tests[i].Kind == v1alpha1.TestGroup {
			n++
		}
	}
	return n
}

// lastGroupTest is the place of the last one in the list; -1 where there is none.
func (g *record) lastGroupTest() int {
	for i := len(g.span.Tests) - 1; i >= 0; i-- {
		if g.span.Tests[i].Kind == v1alpha1.TestGroup {
			return i
		}
	}
	return -1
}

// searchBase is the place of the test that a search would be for: the last one of the group or of a dimension; -1 where
// there is none.
func (g *record) searchBase() int { return BaseOf(g.span.Tests) }

// BaseOf is the place of the last test of the group or of a dimension; -1 where there is none.
func BaseOf(tests []v1alpha1.SpanTest) int {
	for i := len(tests) - 1; i >= 0; i-- {
		if kind := tests[i].Kind; kind == v1alpha1.TestGroup || kind == v1alpha1.TestMesh {
			return i
		}
	}
	return -1
}

// dimensionSearched is the dimension that the tests since the last one of the group are about; empty where it is none.
func (g *record) dimensionSearched() string {
	if at := g.searchBase(); at >= 0 && g.span.Tests[at].Kind == v1alpha1.TestMesh {
		return g.span.Tests[at].Dimension
	}
	return ""
}

// roundsBefore counts the rounds of searches before the present one: their tests stand before the last test of the
// group.
func (g *record) roundsBefore() int {
	rounds := 0
	for i := range g.span.Tests[:g.searchBase()+1] {
		if kind := g.span.Tests[i].Kind; kind == v1alpha1.TestSearch || kind == v1alpha1.TestRails {
			rounds = max(rounds, int(g.span.Tests[i].Round))
		}
	}
	return rounds
}

// stopSearch notes how long the search took.
func (g *record) stopSearch() {
	l := g.span.Localization
	l.Seconds = ptr.To(int32(max(0, g.in.Now.Sub(l.StartTime.Time)/time.Second)))
}

// VerdictOf is what a reason of the group's stage means for its verdict. Whatever is not listed is why something could
// not be measured.
func VerdictOf(reason string) v1alpha1.Verdict {
	switch reason {
	case "", v1alpha1.ReasonAllPassed:
		return v1alpha1.VerdictPass
	case v1alpha1.ReasonRunPodUnschedulable, v1alpha1.ReasonNodeBusy, v1alpha1.ReasonPreempted,
		v1alpha1.ReasonWaitingForQueue, v1alpha1.ReasonTooFewMembers, v1alpha1.ReasonSuspended,
		v1alpha1.ReasonSuperseded:
		return v1alpha1.VerdictSkipped
	case v1alpha1.ReasonInconclusive, v1alpha1.ReasonMeshMismatch:
		return v1alpha1.VerdictInconclusive
	case v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonWrongData, v1alpha1.ReasonRankDied, v1alpha1.ReasonRankHung,
		v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonSlowGroup, v1alpha1.ReasonSlowNode,
		v1alpha1.ReasonSlowPair, v1alpha1.ReasonSlowRail, v1alpha1.ReasonSlowCommunicator, v1alpha1.ReasonSlowLink,
		v1alpha1.ReasonSlowGPU, v1alpha1.ReasonBelowThreshold, v1alpha1.ReasonTransportFallback,
		v1alpha1.ReasonMixedSettings, v1alpha1.ReasonMixedLibraryVersions:
		return v1alpha1.VerdictFail
	}
	return v1alpha1.VerdictError
}

// worsen keeps the worst that the stage has seen so far, in its reason and message; of two alike the first.
func (g *record) worsen(reason, message string) {
	if g.span.Reason != "" && judge.Rank(VerdictOf(reason)) <= judge.Rank(VerdictOf(g.span.Reason)) {
		return
	}
	g.explain(reason, message)
}

// maxMessage is what the API holds of the stage's message.
const maxMessage = 1024

// explain replaces what was said so far by something that says more.
func (g *record) explain(reason, message string) {
	g.span.Reason, g.span.Message = reason, clip.Sentences(explain.Sentence(message), maxMessage)
}

func (g *record) worstSoFar() (v1alpha1.Verdict, string) {
	reason := cmp.Or(g.span.Reason, v1alpha1.ReasonMemberLost)
	return VerdictOf(reason), reason
}

// found says whether something that failed has been named.
func (g *record) found() bool {
	return slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool {
		return VerdictOf(c.Reason) == v1alpha1.VerdictFail && !ofCommunicators(&c)
	})
}

// foundSlow says whether a culprit that was named was slow.
func (g *record) foundSlow() bool {
	return slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool {
		return c.Reason == v1alpha1.ReasonSlowNode || c.Reason == v1alpha1.ReasonSlowPair ||
			c.Reason == v1alpha1.ReasonSlowRail
	})
}

// slowReasons of a test are matters of speed.
var slowReasons = []string{v1alpha1.ReasonSlowGroup, v1alpha1.ReasonSlowPair, v1alpha1.ReasonSlowNode,
	v1alpha1.ReasonSlowRail, v1alpha1.ReasonSlowCommunicator}

// reasonOfBad is why the step that is searched for is bad, and whether it is a matter of speed.
func (g *record) reasonOfBad() (reason string, slow bool) {
	t := &g.span.Tests[g.searchBase()]
	if t.Verdict == v1alpha1.VerdictPass || slices.Contains(slowReasons, t.Reason) {
		return v1alpha1.ReasonSlowNode, true
	}
	return cmp.Or(t.Reason, v1alpha1.ReasonGroupStepFailed), false
}

func (g *record) need() int { return MembersNeeded(&g.in.Group.Spec) }

// minPercent is how far below its like a communicator may be.
func (g *record) minPercent() int64 {
	if p := ptr.Deref(g.in.Group.Spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian); p > 0 {
		return int64(p)
	}
	return runplan.DefaultNodeMinPercentOfMedian
}

// hasRails says whether nodes have more than one GPU in the group, so that a rail can be named, and no more than one
// task has communicators for.
func (g *record) hasRails() bool {
	n := g.in.Group.Spec.RanksPerNode
	return n > 1 && n <= spans.MaxNodeCommunicators
}

// comparesDimensions says whether communicators of a dimension are held against each other at all.
func (g *record) comparesDimensions() bool {
	return ptr.Deref(g.in.Group.Spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian) > 0
}
