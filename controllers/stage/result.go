package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/words"
)

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
	seat            *seat
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

// badWithoutBlame are reasons for which a communicator counts as bad although an agent says Error: it did not form or ended
// early, and which node is to blame is to be found.
var badWithoutBlame = []string{v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonRankHung, v1alpha1.ReasonRankDied}

// evaluateOpen looks at the open tests; once all are done it closes them together, since they are compared with each other.
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
			g.drop(f.seat, f.reason, f.message)
			if f.silent {
				g.leftSilent++
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

// written says whether the test is in the status that was read.
func (g *machine) written(id string) bool {
	return slices.ContainsFunc(g.saved.Tests, func(t v1alpha1.SpanTest) bool { return t.ID == id })
}

// evaluate reads what the members say of a test. It is done once each member that was asked has answered, or is given up.
func (g *machine) evaluate(t *v1alpha1.SpanTest) testResult {
	r := testResult{test: t, guilty: map[string]v1alpha1.Culprit{}}
	l, err := g.layoutOf(t)
	if err != nil {
		// Too few are present, or others than it was made for: that is no fault of theirs.
		r.done, r.reason, r.void = true, v1alpha1.ReasonGroupStepFailed, fmt.Sprintf("Test %s cannot be laid over the members that are present: %s.", t.ID, err)
		return r
	}
	if len(l.communicators) > 0 && nothingMeasurable(g.runPlanOf(t), l.communicators[0].ranks) {
		r.done, r.unmeasurable = true, true
		r.message = fmt.Sprintf("Test %s can measure nothing: no size of the benchmark gives each of %d ranks an element. Raise benchmark.maxSizeBytes.", t.ID, l.communicators[0].ranks)
		return r
	}
	ids, reports := g.limits(t, len(l.shares))
	var silent []*seat
	// Some are waited for; measuring: for more than unique ids, so that a missing id ends nobody else's measurement.
	waited, measuring, ungiven := false, false, false
	for index, share := range l.shares {
		s := g.seats[index]
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
	slices.SortFunc(silent, func(a, b *seat) int { return cmp.Compare(a.index, b.index) })
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
		r.void = fmt.Sprintf("Test %s was not given to all of its members before its deadline: no manager was there to do so.", t.ID)
	case 2*len(silent) > len(l.shares) && !r.bad:
		r.reason = v1alpha1.ReasonRunDeadlineExceeded
		r.void = fmt.Sprintf("%d of %d nodes have not reported test %s within %d s, and no other says that it failed: %s. Look whether their agents reach the API server.",
			len(silent), len(l.shares), t.ID, seconds, words.SomeNames(names(silent), 5))
	default:
		g.giveUp(&r, l, silent, seconds)
		if !r.bad && len(r.out) == 0 && slices.ContainsFunc(r.communicators, func(c commResult) bool { return c.missing }) {
			r.reason = v1alpha1.ReasonRunDeadlineExceeded
			r.void = fmt.Sprintf("Test %s shows nothing bad, and yet not all of its members did it.", t.ID)
		}
	}
	return r
}

// graced says whether reports of a test whose deadline is past are still waited for: from the first look that saw so, for some
// seconds more, and so for one look more at least. The clock may have jumped, or the manager come back from a long absence.
func (g *machine) graced(t *v1alpha1.SpanTest) bool {
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
func (r *testResult) fallOut(s *seat, reason, message string) {
	if !slices.ContainsFunc(r.out, func(f fallout) bool { return f.seat == s }) {
		r.out = append(r.out, fallout{seat: s, reason: reason, message: message})
	}
}

// giveUp lets the members fall out that have not reported. They may be what the others call bad, or only late: what is missing
// accuses nobody, unless the group without one of them is good (accuseSilent). Of one that was never seen at the task nothing
// was measured, and what hung may only have waited for it.
func (g *machine) giveUp(r *testResult, l *layout, silent []*seat, seconds int) {
	unseen := map[*seat]bool{}
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
			missed = fmt.Sprintf("made no unique id of communicator %s of task %s within %d s, so that its ranks could not form it", owed, r.test.ID, int(ids.Seconds()))
		}
		if status == nil {
			unseen[s] = true
		}
		r.fallOut(s, v1alpha1.ReasonMemberLost, fmt.Sprintf(
			"The agent of node %s %s (%s). Look whether it reaches the API server, at its group pod's log, and in dmesg for GPU resets and hung tasks.", s.name, missed, seen))
		r.out[len(r.out)-1].silent = r.out[len(r.out)-1].seat == s && r.bad && !unseen[s]
	}
	if len(unseen) == 0 || len(r.guilty) > 0 {
		return
	}
	for i := range r.communicators {
		c := &r.communicators[i]
		if c.bad && slices.Contains(waitingReasons, c.reason) && slices.ContainsFunc(c.seats, func(s *seat) bool { return unseen[s] }) {
			c.bad, c.missing = false, true
		}
	}
	r.sumUp()
}

// waitingReasons are what nodes see that wait for one that does not come.
var waitingReasons = []string{v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed}

// idOwed is the first communicator over several nodes whose unique id the member is to make; empty where there is none.
func idOwed(share *spans.Part) string {
	for i := range share.Communicators {
		if c := &share.Communicators[i]; spans.IsRoot(c) && c.Nodes > 1 {
			return c.Name
		}
	}
	return ""
}

// waitsForID says whether a member waits for unique ids of others, and whether it waits for one that never comes, since the
// node of rank 0 ended without.
func (l *layout) waitsForID(share *spans.Part, test string) (waits, never bool) {
	for i := range share.Communicators {
		c := l.places[place{share.Index, share.Communicators[i].Name}]
		if spans.IsRoot(&share.Communicators[i]) || c.uniqueID(test) != nil {
			continue
		}
		if root := c.seats[0].taskStatus(test); root != nil && root.Phase == v1alpha1.TaskFinished {
			return false, true
		}
		waits = true
	}
	return waits, false
}

// evaluateCommunicator sums up what its nodes say. Each must have passed and have been asked; a node that could not take part
// for a reason of its own falls out.
func (g *machine) evaluateCommunicator(r *testResult, c *communicator) commResult {
	out := commResult{communicator: c}
	fail := func(s *seat, status *v1alpha1.TaskCommunicatorStatus, reason, said, message string) {
		if !out.bad || worseReason(reason, out.reason) {
			out.bad, out.reason, out.step = true, reason, status.Step
			out.message = fmt.Sprintf("%s, as node %s saw it: %s", said, s.name, strings.TrimPrefix(message, "node "+s.name+": "))
		}
	}
	for _, s := range c.seats {
		task := s.taskStatus(r.test.ID)
		status := commStatus(task, c.name)
		if status == nil || status.Verdict == "" {
			out.missing = true
			if task != nil && task.Phase == v1alpha1.TaskFinished {
				r.fallOut(s, v1alpha1.ReasonGroupStepFailed, fmt.Sprintf("Node %s reports task %s as finished, and its report lacks the verdict of communicator %s. Its agent may be of another version than the manager.",
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
			if i := slices.IndexFunc(status.Results, func(x v1alpha1.ResultSeries) bool { return x.WrongElements != 0 }); i >= 0 {
				x := &status.Results[i]
				fail(s, status, v1alpha1.ReasonWrongData, v1alpha1.ReasonWrongData, fmt.Sprintf("its report has %d wrong elements of %s, and yet calls it passed", x.WrongElements, runplan.KeyOf(x).Measurement()))
			}
		case status.Verdict == v1alpha1.VerdictFail, slices.Contains(badWithoutBlame, status.Reason):
			fail(s, status, atLeast(status.Verdict, acrossNodes(status.Reason)), said, cmp.Or(status.Message, "its agent gave no words"))
		default:
			out.missing = true
			r.fallOut(s, atLeast(status.Verdict, status.Reason), fmt.Sprintf("Node %s could not do task %s (%s): %s", s.name, r.test.ID, said, cmp.Or(status.Message, "its agent gave no words")))
		}
	}
	if out.bad || out.missing {
		return out
	}
	status := commStatus(c.seats[0].taskStatus(r.test.ID), c.name)
	if missing := g.missingResult(r.test, c, status); missing != "" {
		// All say Pass, and what they measured is not there: that is no pass.
		out.missing = true
		r.fallOut(c.seats[0], v1alpha1.ReasonGroupStepFailed, fmt.Sprintf("Node %s reports task %s, communicator %s, as passed without %s. Its agent may be of another version than the manager.",
			c.seats[0].name, r.test.ID, c.name, missing))
		return out
	}
	out.results, out.repeats = status.Results, status.Repeats
	out.busBWMBps = mainBandwidth(runplan.SeriesOf(g.runPlanOf(r.test), c.ranks), status.Results)
	return out
}

// ownCulprit is what of the node its own agent found guilty; nil where there is none. An agent knows its own node only.
func ownCulprit(s *seat, status *v1alpha1.TaskCommunicatorStatus) *v1alpha1.Culprit {
	c := status.Guilty
	if c == nil || status.Verdict == v1alpha1.VerdictPass || c.Node != "" && c.Node != s.name || c.Kind == "Node" && c.Name != s.name {
		return nil
	}
	own := *c
	own.Node, own.Reason = s.name, atLeast(status.Verdict, c.Reason)
	return &own
}

// atLeast is a reason that means at least the verdict: what an agent calls Error or Fail stays so, whatever word it has for it.
func atLeast(verdict v1alpha1.Verdict, reason string) string {
	switch {
	case judge.Rank(VerdictOf(reason)) >= judge.Rank(verdict):
		return reason
	case verdict == v1alpha1.VerdictFail:
		return v1alpha1.ReasonCollectiveFailed
	}
	return v1alpha1.ReasonGroupStepFailed
}

// acrossNodes is the reason in the words of the group's stage: what each node sees as its own hung rank is a hang across them.
func acrossNodes(reason string) string {
	switch reason {
	case v1alpha1.ReasonRankHung, v1alpha1.ReasonRunDeadlineExceeded:
		return v1alpha1.ReasonHangAcrossNodes
	}
	return reason
}

// worseReason orders reasons by how much they say: wrong data first, what a victim sees last.
func worseReason(a, b string) bool {
	order := []string{v1alpha1.ReasonWrongData, v1alpha1.ReasonRankDied, v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonHangAcrossNodes}
	place := func(reason string) int {
		if i := slices.Index(order, reason); i >= 0 {
			return i
		}
		return len(order)
	}
	return place(a) < place(b)
}
