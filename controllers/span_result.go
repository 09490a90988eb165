package controllers

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/rcclx"
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
	step string
	// guilty by what their own nodes saw, by node name.
	guilty map[string]v1alpha1.Culprit
	// out are members that could not take part or did not answer.
	out []fallout
}

type fallout struct {
	seat            *seat
	reason, message string
}

// commResult is what one communicator showed.
type commResult struct {
	*communicator
	// missing: some node said nothing, or could not take part.
	missing bool
	bad     bool
	reason  string
	message string
	step    string
	// results and bus bandwidth at the largest size, from the node of rank 0; nil where it did not pass.
	results   []v1alpha1.ResultSeries
	busBWMBps *int64
	// transports that its nodes saw.
	transports []memberTransport
}

// badWithoutBlame are reasons for which a communicator counts as bad although an agent says Error: it did not form or ended
// early, and which node is to blame is to be found.
var badWithoutBlame = []string{v1alpha1.ReasonInitFailed, v1alpha1.ReasonCollectiveFailed, v1alpha1.ReasonRankHung, v1alpha1.ReasonRankDied}

// evaluateOpen looks at the open tests; once all are done it closes them together, since they are compared with each other.
func (g *groupStage) evaluateOpen() roundState {
	var results []testResult
	open := false
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		if t.Verdict != "" {
			continue
		}
		if !g.written(t.ID) {
			open = true // it was opened just now
			continue
		}
		r := g.evaluate(t)
		open = open || !r.done
		results = append(results, r)
	}
	if open {
		return roundOpen
	}
	broken := false
	for i := range results {
		r := &results[i]
		for _, f := range r.out {
			broken = true
			g.drop(f.seat, f.reason, f.message)
		}
	}
	for i := range results {
		if r := &results[i]; r.unanswered() {
			g.end(v1alpha1.VerdictError, v1alpha1.ReasonRunDeadlineExceeded, fmt.Sprintf(
				"Test %s was not given to its members before its deadline: no manager was there to do so. Ask for a new run by the annotation %s.", r.test.ID, v1alpha1.AnnotationRunRequested))
			return roundOpen
		}
	}
	g.round = results
	g.closeRound()
	if broken {
		return roundBroken
	}
	return roundClosed
}

// written says whether the test is in the status that was read.
func (g *groupStage) written(id string) bool {
	return slices.ContainsFunc(g.saved.Tests, func(t v1alpha1.SpanTest) bool { return t.ID == id })
}

// evaluate reads what the members say of a test. It is done once each member that was asked has answered, or is given up.
func (g *groupStage) evaluate(t *v1alpha1.SpanTest) testResult {
	r := testResult{test: t, guilty: map[string]v1alpha1.Culprit{}}
	l, err := g.layoutOf(t)
	if err != nil {
		r.done, r.bad, r.reason, r.message = true, true, v1alpha1.ReasonGroupStepFailed, err.Error()
		return r
	}
	idsBy, reportsBy := g.deadlines(t, len(l.shares))
	var silent []*seat
	pending, noID := false, false
	for index, share := range l.shares {
		s := g.seats[index]
		asked := s.session != nil && s.session.Task != nil && s.session.Task.ID == t.ID
		status := s.taskStatus(t.ID)
		switch {
		case status != nil && status.Phase == v1alpha1.TaskFinished:
		case asked:
			silent = append(silent, s)
		default:
			waits, never := l.waitsForID(&share, t.ID)
			noID = noID || waits
			pending = pending || !never
		}
	}
	slices.SortFunc(silent, func(a, b *seat) int { return cmp.Compare(a.index, b.index) })
	overdue := !g.in.now.Before(reportsBy) || noID && !g.in.now.Before(idsBy)
	if (pending || len(silent) > 0) && !overdue {
		if noID {
			g.wake(idsBy)
		}
		g.wake(reportsBy)
		return r
	}
	r.done = true
	for _, c := range l.communicators {
		r.communicators = append(r.communicators, g.evaluateCommunicator(&r, c))
	}
	for i := range r.communicators {
		if c := &r.communicators[i]; c.bad && (!r.bad || worseReason(c.reason, r.reason)) {
			r.bad, r.reason, r.message, r.step = true, c.reason, c.message, c.step
		}
	}
	for _, s := range g.unanswering(&r, silent, len(l.shares)) {
		reason := v1alpha1.ReasonMemberLost
		if r.bad {
			reason = r.reason // it failed with the others, and its agent can no longer say so
		}
		r.out = append(r.out, fallout{s, reason, fmt.Sprintf(
			"The agent of node %s did not end task %s within %d s (%s). Look at its group pod's log, and in dmesg for GPU resets and hung tasks.",
			s.name, t.ID, int(g.in.now.Sub(t.StartTime.Time).Seconds()), silentAt(s, t.ID))})
	}
	return r
}

// unanswered says whether nothing bad was seen, and yet not everyone said something good.
func (r *testResult) unanswered() bool {
	return !r.bad && len(r.out) == 0 && slices.ContainsFunc(r.communicators, func(c commResult) bool { return c.missing })
}

// unanswering are the members whose agents do not answer. Where some never took the task up, the others only wait for them;
// where most hang, it is no agent that is to blame but the task, which then counts as hung.
func (g *groupStage) unanswering(r *testResult, silent []*seat, asked int) []*seat {
	var never []*seat
	for _, s := range silent {
		if s.taskStatus(r.test.ID) == nil {
			never = append(never, s)
		}
	}
	switch {
	case len(never) > 0:
		return never
	case 2*len(silent) <= asked || r.bad:
		return silent
	}
	r.bad, r.reason = true, v1alpha1.ReasonHangAcrossNodes
	r.message = fmt.Sprintf("%d of %d nodes did not end it in time: %s", len(silent), asked, someNames(names(silent), 5))
	return nil
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

func silentAt(s *seat, test string) string {
	status := s.taskStatus(test)
	if status == nil {
		return "it never took it up"
	}
	return fmt.Sprintf("it was last seen %s", status.Phase)
}

// evaluateCommunicator sums up what its nodes say. Each must have passed and have been asked; a node that could not take part
// for a reason of its own falls out.
func (g *groupStage) evaluateCommunicator(r *testResult, c *communicator) commResult {
	out := commResult{communicator: c}
	missing := 0
	for _, s := range c.seats {
		status := commStatus(s.taskStatus(r.test.ID), c.name)
		if status == nil || status.Verdict == "" {
			missing++
			continue
		}
		if status.Guilty != nil {
			culprit := *status.Guilty
			culprit.Node = cmp.Or(culprit.Node, s.name)
			r.guilty[s.name] = culprit
		}
		out.transports = append(out.transports, memberTransport{s.name, status.Transport})
		switch {
		case status.Verdict == v1alpha1.VerdictPass:
		case status.Verdict == v1alpha1.VerdictFail, slices.Contains(badWithoutBlame, status.Reason):
			reason := acrossNodes(status.Reason)
			if !out.bad || worseReason(reason, out.reason) {
				out.bad, out.reason, out.step = true, reason, status.Step
				out.message = fmt.Sprintf("%s on node %s: %s", cmp.Or(status.Reason, "no reason given"), s.name, cmp.Or(status.Message, "its agent gave no words"))
			}
		default:
			missing++
			r.out = append(r.out, fallout{s, cmp.Or(status.Reason, v1alpha1.ReasonGroupStepFailed), fmt.Sprintf("Node %s could not do task %s: %s", s.name, r.test.ID, status.Message)})
		}
	}
	if out.missing = missing > 0; out.bad || out.missing {
		return out
	}
	status := commStatus(c.seats[0].taskStatus(r.test.ID), c.name)
	if missingSize := g.missingResult(r.test, c, status.Results); missingSize != "" {
		// All say Pass, and what they measured is not there: that is no pass.
		r.out = append(r.out, fallout{c.seats[0], v1alpha1.ReasonGroupStepFailed, fmt.Sprintf("Node %s reports task %s as passed without a result of %s.", c.seats[0].name, r.test.ID, missingSize)})
		return out
	}
	out.results = status.Results
	out.busBWMBps = mainBandwidth(status.Results)
	return out
}

// acrossNodes is the reason in the words of the group's stage: what each node sees as its own hung rank is a hang across them.
func acrossNodes(reason string) string {
	switch reason {
	case "":
		return v1alpha1.ReasonGroupStepFailed
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

// missingResult names the first planned measurement that the results lack: the first and the last size of each.
func (g *groupStage) missingResult(t *v1alpha1.SpanTest, c *communicator, results []v1alpha1.ResultSeries) string {
	task := g.planOf(t)
	plan := &v1alpha1.RunPlan{Collectives: task.Collectives, Datatypes: task.Datatypes, Placements: task.Placements, SizesBytes: task.SizesBytes}
	missing := missingBaseline(plan, results, c.ranks)
	if missing == "anything" && nothingMeasurable(plan, c.ranks) {
		return "anything: each size is too small for its ranks"
	}
	return missing
}

func nothingMeasurable(plan *v1alpha1.RunPlan, ranks int32) bool {
	for _, collective := range plan.Collectives {
		for _, datatype := range plan.Datatypes {
			if len(rcclx.MeasurableSizes(rcclx.Collective(collective), rcclx.Datatype(datatype), plan.SizesBytes, int(ranks))) > 0 {
				return false
			}
		}
	}
	return true
}

// mainBandwidth is that of AllReduce at its largest size, else of the first series.
func mainBandwidth(results []v1alpha1.ResultSeries) *int64 {
	at := max(0, slices.IndexFunc(results, func(r v1alpha1.ResultSeries) bool { return r.Collective == v1alpha1.AllReduce }))
	if at >= len(results) {
		return nil
	}
	last := min(len(results[at].SizeBytes), len(results[at].BusBandwidthMBps)) - 1
	if last < 0 {
		return nil
	}
	return ptr.To(results[at].BusBandwidthMBps[last])
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
