package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// Bad says whether something was measured or done that must not be.
func Bad(v v1alpha1.Verdict) bool {
	return v == v1alpha1.VerdictFail || v == v1alpha1.VerdictError
}

// Phase is where a run is on one node.
type Phase int

// The phases of a run on one node, in the order in which they come.
const (
	Waiting  Phase = iota // no pod yet: waits for the agent's facts or for a place
	Starting              // pod made, ranks not yet started
	Running               // ranks run
	Done                  // reported, or closed by the controller
)

// SpeedNotJudged begins the sentence that says so.
const SpeedNotJudged = "Speed over several nodes was not judged: "

// SpeedWords say why the speed was not judged; empty where it was.
func SpeedWords(why v1alpha1.SpeedNotJudged) string {
	const noMark = SpeedNotJudged + "no threshold or reference applies, and "
	switch why {
	case "":
		return ""
	case v1alpha1.SpeedLocalizationOff:
		return noMark + "with localization.mode Off no pairs are compared."
	case v1alpha1.SpeedComparisonOff:
		return noMark + "with benchmark.nodeMinPercentOfMedian 0 no pairs are compared."
	case v1alpha1.SpeedTooFewMembers:
		return noMark + "it takes three members to compare pairs. Set a threshold with span: Group."
	}
	return noMark + "no pairs were compared."
}

// BadResult says whether an assignment ended in Fail or Error.
func BadResult(a *v1alpha1.RunAssignment, report *v1alpha1.NodeRunStatus) bool {
	verdict := v1alpha1.Verdict("")
	switch {
	case a.Closed != nil:
		verdict = a.Closed.Verdict
	case report != nil:
		verdict = report.Verdict
	}
	return Bad(verdict)
}

// Outcome is what a run says of one node. An empty verdict means that there is none yet, or that it is lost.
type Outcome struct {
	Node     string
	Phase    Phase
	Verdict  v1alpha1.Verdict
	Reason   string
	Message  string
	Culprits []v1alpha1.Culprit
	// Report is nil where there is none, or none that still counts.
	Report *v1alpha1.NodeRunStatus
	// Stale: the result no longer counts; the message says why.
	Stale bool
	// Figures of the node in this run, also where its own result is stale since: the others were measured beside it.
	Figures []v1alpha1.ResultSeries
	// Kind says which other nodes' bandwidth the node's can be held against.
	Kind Kind
	// SpeedNotJudged is the group's stage's: why its speed was held against nothing.
	SpeedNotJudged v1alpha1.SpeedNotJudged
	// Uncompared: the node passed by itself, and its bandwidth was held against that of no other node, although the
	// spec asks for it.
	Uncompared bool
}

// NodeCulprit is a whole node as culprit.
func NodeCulprit(node, reason, message string) v1alpha1.Culprit {
	return v1alpha1.Culprit{Node: node, Kind: "Node", Name: node, Reason: reason, Message: clip.Head(message, 512)}
}

// Median sorts the values in place; of an even number it is the mean of the middle two. No values give zero, so
// callers ask only with some.
func Median(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return values[middle-1] + (values[middle]-values[middle-1])/2
}

// Rank orders verdicts, the one that decides for the group last. A node without a verdict ranks with
// Inconclusive.
func Rank(v v1alpha1.Verdict) int {
	switch v {
	case v1alpha1.VerdictPass:
		return 0
	case v1alpha1.VerdictSkipped:
		return 1
	case v1alpha1.VerdictError:
		return 3
	case v1alpha1.VerdictFail:
		return 4
	case v1alpha1.VerdictInconclusive:
	}
	return 2
}

// GroupVerdict is the worst of the nodes' verdicts, and the node that it comes from. Pass needs a Pass of every node,
// and the members of now to be those of the run.
func GroupVerdict(outcomes []Outcome, membersUnchanged bool) (v1alpha1.Verdict, *Outcome) {
	var decisive *Outcome
	for i := range outcomes {
		if decisive == nil || Rank(outcomes[i].Verdict) > Rank(decisive.Verdict) {
			decisive = &outcomes[i]
		}
	}
	if decisive == nil {
		return v1alpha1.VerdictInconclusive, nil
	}
	verdict := cmp.Or(decisive.Verdict, v1alpha1.VerdictInconclusive)
	if verdict == v1alpha1.VerdictPass && !membersUnchanged {
		return v1alpha1.VerdictInconclusive, nil
	}
	return verdict, decisive
}

// Validated is the condition of the same name, for a finished run; next says what follows where results are stale.
func Validated(run *v1alpha1.GroupRunStatus, outcomes []Outcome, span *Outcome, next string) decision.Finding {
	members, over := len(outcomes), ""
	if span != nil {
		outcomes, over = append(slices.Clip(outcomes), *span), " and the group over them"
	}
	verdict, decisive := GroupVerdict(outcomes, true)
	if run.Verdict == v1alpha1.VerdictPass && verdict == v1alpha1.VerdictPass {
		if runs.Partial(run) {
			return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPassed,
				Message: fmt.Sprintf("All %d members passed: run %s measured those that had changed, "+
					"and what the runs since number %d showed of the others still counts.%s",
					members, run.ID, runs.Since(run), uncomparedWords(outcomes))}
		}
		return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPassed,
			Message: fmt.Sprintf("Run %s passed on %s%s.%s%s",
				run.ID, allMembers(members), over, notJudgedWords(span), uncomparedWords(outcomes))}
	}
	if names := StaleNodes(outcomes); len(names) > 0 &&
		(decisive == nil || Rank(decisive.Verdict) < Rank(v1alpha1.VerdictError)) {
		return resultsStale(outcomes, names, next)
	}
	if decisive == nil || decisive.Verdict == v1alpha1.VerdictPass {
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInconclusive,
			Message: fmt.Sprintf("Run %s has no result for every member of now; a new run follows.", run.ID)}
	}
	return worstOf("Run "+run.ID, outcomes, decisive)
}

func allMembers(n int) string {
	if n == 1 {
		return "the only member"
	}
	return fmt.Sprintf("all %d members", n)
}

// notJudgedWords say of a stage over several nodes that passed that its speed was not judged; with a blank before.
func notJudgedWords(span *Outcome) string {
	if span == nil || span.SpeedNotJudged == "" {
		return ""
	}
	return " " + SpeedWords(span.SpeedNotJudged)
}

// worstOf is the finding for the decisive node and those like it.
func worstOf(what string, outcomes []Outcome, decisive *Outcome) decision.Finding {
	var alike []string
	for i := range outcomes {
		if outcomes[i].Verdict == decisive.Verdict && outcomes[i].Reason == decisive.Reason {
			alike = append(alike, outcomes[i].Node)
		}
	}
	reason := cmp.Or(decisive.Reason, v1alpha1.ReasonInconclusive)
	message := fmt.Sprintf("%s: %s (%s) on %s. %s", what, cmp.Or(decisive.Verdict, "no result"), reason,
		explain.Names(alike, 5), explain.Sentence(explain.Unnamed(decisive.Message, alike...)))
	status := metav1.ConditionFalse
	if Rank(decisive.Verdict) <= Rank(v1alpha1.VerdictInconclusive) {
		status = metav1.ConditionUnknown // nothing bad was measured, and not everything was measured
	}
	return decision.Finding{Status: status, Reason: reason, Message: clip.Head(strings.TrimSpace(message), 2048)}
}

// StaleNodes names the nodes whose results no longer count.
func StaleNodes(outcomes []Outcome) []string {
	var names []string
	for i := range outcomes {
		if outcomes[i].Stale {
			names = append(names, outcomes[i].Node)
		}
	}
	return names
}

// resultsStale is Validated where results no longer count and nothing that still counts is bad.
func resultsStale(outcomes []Outcome, names []string, next string) decision.Finding {
	first := slices.IndexFunc(outcomes, func(o Outcome) bool { return o.Stale })
	return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResultsStale,
		Message: clip.Head(fmt.Sprintf("The results of %d of %d members no longer count: %s. %s %s",
			len(names), len(outcomes), explain.Names(names, 5),
			explain.Sentence(explain.OfFirst(outcomes[first].Message, names)), next), 2048)}
}

// ValidatedAgain is Validated while a run measures the nodes that changed. What is bad elsewhere stays the louder news.
func ValidatedAgain(run *v1alpha1.GroupRunStatus, outcomes []Outcome) decision.Finding {
	if verdict, decisive := GroupVerdict(outcomes, true); Rank(verdict) >= Rank(v1alpha1.VerdictError) {
		return worstOf(fmt.Sprintf("Runs since number %d, of which %s goes on", runs.Since(run), run.ID),
			outcomes, decisive)
	}
	if names := StaleNodes(outcomes); len(names) > 0 {
		return resultsStale(outcomes, names, fmt.Sprintf("Run %s is going on.", run.ID))
	}
	var open []string
	for i := range outcomes {
		if outcomes[i].Phase != Done {
			open = append(open, outcomes[i].Node)
		}
	}
	return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResultsStale,
		Message: fmt.Sprintf("Run %s measures %d of %d members again, which were rebooted or changed after their "+
			"last run: %s.", run.ID, len(open), len(outcomes), explain.Names(open, 5))}
}

// GroupCulprits are the worst few over all nodes: what failed before what could not be measured, links and GPUs
// before whole nodes.
func GroupCulprits(outcomes []Outcome, odd []v1alpha1.Culprit) []v1alpha1.Culprit {
	const limit, messageLimit = 16, 512
	type ranked struct {
		v1alpha1.Culprit
		verdict, kind int
	}
	kinds := map[string]int{"Link": 0, "NIC": 0, "GPU": 1, "Pair": 1, "Rank": 2, "Node": 3}
	var all []ranked
	for i := range outcomes {
		for _, c := range outcomes[i].Culprits {
			all = append(all, ranked{c, -Rank(outcomes[i].Verdict), kinds[c.Kind]})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(a.kind, b.kind))
	})
	var out []v1alpha1.Culprit
	for _, c := range all {
		out = append(out, c.Culprit)
	}
	out = append(out, odd...)
	if len(out) > limit {
		out = out[:limit]
	}
	for i := range out {
		out[i].Message = clip.Head(out[i].Message, messageLimit)
	}
	return out
}
