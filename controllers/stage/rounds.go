package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/explain"
)

// rounds evaluates the tests of a round, and compares them with each other.
type rounds struct {
	*members
	// round are the tests that were closed in this step.
	round []testResult
}

// roundState is where the open tests are.
type roundState int

const (
	roundOpen   roundState = iota
	roundClosed            // each has a verdict
	roundBroken            // and members fell out, so that it does not count
)

// testResult is what a test showed.
type testResult struct {
	test *v1alpha1.SpanTest
	done bool
	// communicators with what each showed, in the layout's order.
	communicators []commResult
	// bad: at least one failed; reason and message of the worst.
	bad             bool
	reason, message string
	// step that the worst one ended at.
	step *v1alpha1.Step
	// guilty by what their own nodes saw, by node name.
	guilty map[string]v1alpha1.Culprit
	// out are members that could not take part or did not answer.
	out []fallout
	// void says why the test shows nothing of its members, which ends the stage as Error; empty where it does.
	void string
	// unmeasurable: its communicators cannot measure anything at the sizes asked for.
	unmeasurable bool
}

type fallout struct {
	participant     *participant
	reason, message string
	// silent: it was seen to begin a test that others call bad, and not heard of again.
	silent bool
}

// commResult is what one communicator showed.
type commResult struct {
	*communicator
	// missing: some node said nothing, or could not take part.
	missing bool
	bad     bool
	reason  string
	message string
	step    *v1alpha1.Step
	// results and bus bandwidth at the largest size, from the node of rank 0; nil where it did not pass.
	results   []v1alpha1.ResultSeries
	repeats   int32
	busBWMBps *int64
	// transports that its nodes saw.
	transports []MemberTransport
}

// evaluate reads what the members say of a test. It is done once each member that was asked has answered, or is given
// up.
func (g *rounds) evaluate(t *v1alpha1.SpanTest) testResult {
	r := testResult{test: t, guilty: map[string]v1alpha1.Culprit{}}
	l, err := g.layoutOf(t)
	if err != nil {
		// Too few are present, or others than it was made for: that is no fault of theirs.
		r.done, r.reason, r.void = true, v1alpha1.ReasonGroupStepFailed,
			fmt.Sprintf("Test %s cannot be laid over the members that are present: %s.", t.ID, err)
		return r
	}
	if len(l.communicators) > 0 && nothingMeasurable(g.runPlanOf(t), l.communicators[0].ranks) {
		r.done, r.unmeasurable = true, true
		r.message = fmt.Sprintf("Test %s can measure nothing: no size of the benchmark gives each of %d ranks an "+
			"element. Raise benchmark.maxSizeBytes.", t.ID, l.communicators[0].ranks)
		return r
	}
	ids, reports := g.limits(t, len(l.shares))
	var silent []*participant
	// Some are waited for; measuring: for more than unique ids, so that a missing id ends nobody else's measurement.
	waited, measuring, ungiven := false, false, false
	for index, share := range l.shares {
		s := g.participants[index]
		asked := s.session != nil && s.session.Task != nil && s.session.Task.ID == t.ID
		status := s.taskStatus(t.ID)
		waits, never := l.waitsForID(&share, t.ID)
		switch {
		case status != nil && status.Phase == v1alpha1.TaskFinished:
		case asked:
			silent = append(silent, s)
			waited, measuring = true, measuring || status != nil || idOwed(&share) == ""
		case !never:
			waited, measuring = true, measuring || !waits && idOwed(&share) == ""
			ungiven = ungiven || !waits
		}
	}
	slices.SortFunc(silent, func(a, b *participant) int { return cmp.Compare(a.index, b.index) })
	if waited {
		until := t.StartTime.Add(ids)
		if measuring {
			until = t.StartTime.Add(reports)
		}
		if g.in.Now.Before(until) {
			t.OverdueTime = nil
			g.wake(until)
			return r
		}
		if g.graced(t) {
			return r
		}
	}
	r.done = true
	for _, c := range l.communicators {
		r.communicators = append(r.communicators, g.evaluateCommunicator(&r, c))
	}
	r.sumUp()
	seconds := int(g.in.Now.Sub(t.StartTime.Time).Seconds())
	switch {
	case ungiven:
		// Those that have it may only have waited for those that have not.
		r.bad, r.reason = false, v1alpha1.ReasonRunDeadlineExceeded
		r.void = fmt.Sprintf("Test %s was not given to all of its members before its deadline: "+
			"no manager was there to do so.", t.ID)
	case 2*len(silent) > len(l.shares) && !r.bad:
		r.reason = v1alpha1.ReasonRunDeadlineExceeded
		r.void = fmt.Sprintf("%d of %d nodes have not reported test %s within %d s, "+
			"and no other says that it failed: %s. Look whether their agents reach the API server.",
			len(silent), len(l.shares), t.ID, seconds, explain.Names(names(silent), 5))
	default:
		g.giveUp(&r, l, silent, seconds)
		if !r.bad && len(r.out) == 0 &&
			slices.ContainsFunc(r.communicators, func(c commResult) bool { return c.missing }) {
			r.reason = v1alpha1.ReasonRunDeadlineExceeded
			r.void = fmt.Sprintf("Test %s shows nothing bad, and yet not all of its members did it.", t.ID)
		}
	}
	return r
}

// graced says whether reports of a test whose deadline is past are still waited for: from the first look that saw so,
// for some seconds more, and so for one look more at least. The clock may have jumped, or the manager come back from a
// long absence.
func (g *rounds) graced(t *v1alpha1.SpanTest) bool {
	if t.OverdueTime == nil || g.in.Now.Before(t.OverdueTime.Time) {
		t.OverdueTime = decision.Stamp(g.in.Now)
	}
	until := t.OverdueTime.Add(podstate.ReportGrace)
	if g.in.Now.Before(until) {
		g.wake(until)
		return true
	}
	return false
}

// sumUp takes the worst of the communicators for the whole test.
func (r *testResult) sumUp() {
	r.bad, r.reason, r.message, r.step = false, "", "", nil
	for i := range r.communicators {
		if c := &r.communicators[i]; c.bad && (!r.bad || worseReason(c.reason, r.reason)) {
			r.bad, r.reason, r.message, r.step = true, c.reason, c.message, c.step
		}
	}
}

// fallOut notes once that a member could not take part.
func (r *testResult) fallOut(s *participant, reason, message string) {
	if !slices.ContainsFunc(r.out, func(f fallout) bool { return f.participant == s }) {
		r.out = append(r.out, fallout{participant: s, reason: reason, message: message})
	}
}

// giveUp lets the members fall out that have not reported. They may be what the others call bad, or only late: what is
// missing accuses nobody, unless the group without one of them is good (accuseSilent). Of one that was never seen at
// the task nothing was measured, and what hung may only have waited for it.
func (g *rounds) giveUp(r *testResult, l *layout, silent []*participant, seconds int) {
	unseen := map[*participant]bool{}
	ids, _ := g.limits(r.test, len(l.shares))
	for _, s := range silent {
		share := l.shares[s.index]
		status, owed := s.taskStatus(r.test.ID), idOwed(&share)
		missed := fmt.Sprintf("has not reported the end of task %s within %d s", r.test.ID, seconds)
		seen := "nothing was heard of it since it was given"
		switch {
		case status != nil:
			seen = fmt.Sprintf("it was last seen %s", status.Phase)
		case owed != "":
			missed = fmt.Sprintf("made no unique id of communicator %s of task %s within %d s, so that its ranks "+
				"could not form it", owed, r.test.ID, int(ids.Seconds()))
		}
		if status == nil {
			unseen[s] = true
		}
		r.fallOut(s, v1alpha1.ReasonMemberLost, fmt.Sprintf(
			"The agent of node %s %s (%s). Look whether it reaches the API server, "+
				"at its group pod's log, and in dmesg for GPU resets and hung tasks.",
			s.name, missed, seen))
		r.out[len(r.out)-1].silent = r.out[len(r.out)-1].participant == s && r.bad && !unseen[s]
	}
	if len(unseen) == 0 || len(r.guilty) > 0 {
		return
	}
	for i := range r.communicators {
		c := &r.communicators[i]
		if c.bad && slices.Contains(waitingReasons, c.reason) &&
			slices.ContainsFunc(c.participants, func(s *participant) bool { return unseen[s] }) {
			c.bad, c.missing = false, true
		}
	}
	r.sumUp()
}

// waitingReasons are what nodes see that wait for one that does not come.
var waitingReasons = []string{v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonInitFailed,
	v1alpha1.ReasonCollectiveFailed}

// idOwed is the first communicator over several nodes whose unique id the member is to make; empty where there is none.
func idOwed(share *spans.Part) string {
	for i := range share.Communicators {
		if c := &share.Communicators[i]; spans.IsRoot(c) && c.Nodes > 1 {
			return c.Name
		}
	}
	return ""
}

// badWithoutBlame are reasons for which a communicator counts as bad although an agent says Error: it did not form or
// ended early, and which node is to blame is to be found.
var badWithoutBlame = []string{v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonRankHung,
	v1alpha1.ReasonRankDied}

// evaluateCommunicator sums up what its nodes say. Each must have passed and have been asked; a node that could not
// take part for a reason of its own falls out.
func (g *rounds) evaluateCommunicator(r *testResult, c *communicator) commResult {
	out := commResult{communicator: c}
	fail := func(s *participant, status *v1alpha1.TaskCommunicatorStatus, reason, said, message string) {
		if !out.bad || worseReason(reason, out.reason) {
			out.bad, out.reason, out.step = true, reason, status.Step
			out.message = fmt.Sprintf("%s, as node %s saw it: %s",
				said, s.name, strings.TrimPrefix(message, "node "+s.name+": "))
		}
	}
	for _, s := range c.participants {
		task := s.taskStatus(r.test.ID)
		status := commStatus(task, c.name)
		if status == nil || status.Verdict == "" {
			out.missing = true
			if task != nil && task.Phase == v1alpha1.TaskFinished {
				r.fallOut(s, v1alpha1.ReasonGroupStepFailed,
					fmt.Sprintf("Node %s reports task %s as finished, and its report lacks the verdict "+
						"of communicator %s. Its agent may be of another version than the manager.",
						s.name, r.test.ID, c.name))
			}
			continue
		}
		if culprit := ownCulprit(s, status); culprit != nil {
			r.guilty[s.name] = *culprit
		}
		carried := MemberTransport{Node: s.name, Transport: status.Transport}
		if status.Verdict == v1alpha1.VerdictPass {
			carried.Said = status.Message // of one that failed it speaks of the failure
		}
		out.transports = append(out.transports, carried)
		said := cmp.Or(status.Reason, "no reason given")
		switch {
		case status.Verdict == v1alpha1.VerdictPass:
			if i := slices.IndexFunc(status.Results, func(x v1alpha1.ResultSeries) bool {
				return x.WrongElements != 0
			}); i >= 0 {
				x := &status.Results[i]
				fail(s, status, v1alpha1.ReasonWrongData, v1alpha1.ReasonWrongData,
					fmt.Sprintf("its report has %d wrong elements of %s, and yet calls it passed",
						x.WrongElements, runplan.KeyOf(x).Measurement()))
			}
		case status.Verdict == v1alpha1.VerdictFail, slices.Contains(badWithoutBlame, status.Reason):
			fail(s, status, atLeast(status.Verdict, acrossNodes(status.Reason)), said,
				cmp.Or(status.Message, "its agent gave no words"))
		default:
			out.missing = true
			r.fallOut(s, atLeast(status.Verdict, status.Reason), fmt.Sprintf("Node %s could not do task %s (%s): %s",
				s.name, r.test.ID, said, cmp.Or(status.Message, "its agent gave no words")))
		}
	}
	if out.bad || out.missing {
		return out
	}
	status := commStatus(c.participants[0].taskStatus(r.test.ID), c.name)
	if missing := g.missingResult(r.test, c, status); missing != "" {
		// All say Pass, and what they measured is not there: that is no pass.
		out.missing = true
		r.fallOut(c.participants[0], v1alpha1.ReasonGroupStepFailed, fmt.Sprintf("Node %s reports task %s, "+
			"communicator %s, as passed without %s. Its agent may be of another version than the manager.",
			c.participants[0].name, r.test.ID, c.name, missing))
		return out
	}
	out.results, out.repeats = status.Results, status.Repeats
	out.busBWMBps = mainBandwidth(runplan.SeriesOf(g.runPlanOf(r.test), c.ranks), status.Results)
	return out
}

// ownCulprit is what of the node its own agent found guilty; nil where there is none. An agent knows its own node only.
func ownCulprit(s *participant, status *v1alpha1.TaskCommunicatorStatus) *v1alpha1.Culprit {
	c := status.Guilty
	if c == nil || status.Verdict == v1alpha1.VerdictPass || c.Node != "" && c.Node != s.name ||
		c.Kind == "Node" && c.Name != s.name {
		return nil
	}
	own := *c
	own.Node, own.Reason = s.name, atLeast(status.Verdict, c.Reason)
	return &own
}

// atLeast is a reason that means at least the verdict: what an agent calls Error or Fail stays so, whatever word it has
// for it.
func atLeast(verdict v1alpha1.Verdict, reason string) string {
	switch {
	case judge.Rank(VerdictOf(reason)) >= judge.Rank(verdict):
		return reason
	case verdict == v1alpha1.VerdictFail:
		return v1alpha1.ReasonCollectiveFailed
	}
	return v1alpha1.ReasonGroupStepFailed
}

// acrossNodes is the reason in the words of the group's stage: what each node sees as its own hung rank is a hang
// across them.
func acrossNodes(reason string) string {
	switch reason {
	case v1alpha1.ReasonRankHung, v1alpha1.ReasonRunDeadlineExceeded:
		return v1alpha1.ReasonHangAcrossNodes
	}
	return reason
}

// worseReason orders reasons by how much they say: wrong data first, what a victim sees last.
func worseReason(a, b string) bool {
	order := []string{v1alpha1.ReasonWrongData, v1alpha1.ReasonRankDied, v1alpha1.ReasonInitFailed,
		v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonHangAcrossNodes}
	place := func(reason string) int {
		if i := slices.Index(order, reason); i >= 0 {
			return i
		}
		return len(order)
	}
	return place(a) < place(b)
}

// maxFigure is beyond every latency in nanoseconds (18 minutes) and bus bandwidth in MB/s; percentages of it fit an
// int64.
const maxFigure = 1 << 40

// missingResult names the first planned measurement that the results lack, but for the series that are said to have
// been left out: each of the repeats, and the first and the last size of each have to be there, with their figures.
func (g *rounds) missingResult(t *v1alpha1.SpanTest, c *communicator, status *v1alpha1.TaskCommunicatorStatus) string {
	if want, got := g.planOf(t).Repeats, status.Repeats; max(1, got) != max(1, want) {
		return fmt.Sprintf("each of the %d repeats of benchmark.repeats: it tells of %d", max(1, want), max(1, got))
	}
	for i := range status.Results {
		r := &status.Results[i]
		for _, list := range [][]int64{r.LatencyNanoseconds, r.BusBandwidthMBps} {
			if len(list) != len(r.SizeBytes) ||
				slices.ContainsFunc(list, func(v int64) bool { return v <= 0 || v > maxFigure }) {
				return fmt.Sprintf("a figure for each size of %s: it gives %d sizes, "+
					"latencies %v ns and bus bandwidths %v MB/s", runplan.KeyOf(r).Measurement(), len(r.SizeBytes),
					firstOf(r.LatencyNanoseconds, 4), firstOf(r.BusBandwidthMBps, 4))
			}
		}
	}
	omitted := status.OmittedSeries
	for _, p := range runplan.SeriesOf(g.runPlanOf(t), c.ranks) {
		i := slices.IndexFunc(status.Results, func(r v1alpha1.ResultSeries) bool { return runplan.KeyOf(&r) == p.Key })
		if i < 0 {
			if omitted--; omitted < 0 {
				return "a result of " + p.Key.Measurement()
			}
			continue
		}
		for _, size := range []int64{p.Sizes[0], p.Sizes[len(p.Sizes)-1]} {
			if !slices.Contains(status.Results[i].SizeBytes, size) {
				return fmt.Sprintf("a result of %s at %d B", p.Key.Measurement(), size)
			}
		}
	}
	return ""
}

func firstOf(list []int64, n int) []int64 { return list[:min(n, len(list))] }

func nothingMeasurable(plan *v1alpha1.RunPlan, ranks int32) bool {
	return len(runplan.SeriesOf(plan, ranks)) == 0
}

// mainBandwidth is that of the first series of AllReduce that was planned, else of the first of all, at its largest
// size; nil where the report had no place for it.
func mainBandwidth(all []runplan.Planned, results []v1alpha1.ResultSeries) *int64 {
	main := max(0, slices.IndexFunc(all, func(p runplan.Planned) bool {
		return p.Key.Collective == v1alpha1.AllReduce
	}))
	if main >= len(all) {
		return nil
	}
	at := slices.IndexFunc(results, func(r v1alpha1.ResultSeries) bool { return runplan.KeyOf(&r) == all[main].Key })
	if at < 0 || len(results[at].BusBandwidthMBps) == 0 {
		return nil
	}
	list := results[at].BusBandwidthMBps
	return ptr.To(list[len(list)-1])
}

// slowest is the bus bandwidth of the slowest communicator; nil where none was measured.
func (r *testResult) slowest() *int64 {
	var out *int64
	for i := range r.communicators {
		if bw := r.communicators[i].busBWMBps; bw != nil && (out == nil || *bw < *out) {
			out = bw
		}
	}
	return out
}

// silent says whether a communicator came to its end without its figure.
func (r *testResult) silent() bool {
	return slices.ContainsFunc(r.communicators, func(c commResult) bool { return !c.bad && c.busBWMBps == nil })
}
