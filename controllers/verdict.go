package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// outcome is what a run says of one node. An empty verdict means that there is none yet, or that it is lost.
type outcome struct {
	node     string
	phase    nodePhase
	verdict  v1alpha1.Verdict
	reason   string
	message  string
	culprits []v1alpha1.Culprit
	// report is nil where there is none, or none that still counts.
	report *v1alpha1.NodeRunStatus
	// stale: the result no longer counts; the message says why.
	stale bool
}

// minNodesForMedian is the least number of nodes whose median says what is usual.
const minNodesForMedian = 3

// judge turns the nodes' states into verdicts. Thresholds are judged by the node's agent; the comparison of the nodes
// with each other is made here.
func judge(nodes []nodeState, spec *v1alpha1.CommGroupSpec) []outcome {
	out := make([]outcome, len(nodes))
	var plan baselinePlan
	for i := range nodes {
		out[i] = nodeOutcome(&nodes[i], &plan)
	}
	judgeAgainstMedian(out, ptr.Deref(spec.Benchmark.NodeMinPercentOfMedian, defaultNodeMinPercentOfMedian))
	return out
}

func nodeOutcome(n *nodeState, plan *baselinePlan) outcome {
	o := outcome{node: n.name, phase: n.phase}
	switch {
	case n.stale != nil:
		o.stale, o.reason, o.message = true, v1alpha1.ReasonResultsStale, n.stale.Message
	case n.closure != nil:
		o.verdict, o.reason, o.message = n.closure.Verdict, n.closure.Reason, n.closure.Message
		if o.verdict == v1alpha1.VerdictError {
			o.culprits = []v1alpha1.Culprit{nodeCulprit(n.name, o.reason, o.message)}
		}
	case n.report != nil:
		o.report = n.report
		o.verdict, o.reason, o.message = n.report.Verdict, n.report.Reason, n.report.Message
		o.culprits = slices.Clone(n.report.Culprits)
		for i := range o.culprits {
			o.culprits[i].Node = cmp.Or(o.culprits[i].Node, n.name)
		}
		if o.verdict == v1alpha1.VerdictPass && n.commNode.Spec.Run != nil {
			plan.of(&n.commNode.Spec.Run.Plan, n.commNode.Spec.Ranks.Count)
			if missing := plan.missing(n.report.Results); missing != "" {
				o.verdict, o.reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
				o.message = fmt.Sprintf("Node %s reports Pass without a result of Baseline %s.", n.name, missing)
			}
		}
		bad := badVerdict(o.verdict)
		if bad && len(o.culprits) == 0 {
			o.culprits = []v1alpha1.Culprit{nodeCulprit(n.name, o.reason, o.message)}
		}
	}
	if n.exhausted != nil {
		o.message = words.Sentence(o.message) + fmt.Sprintf(" After %d bad results in a row, each followed by a change of the node (the last: %s), no run starts by itself: %s.",
			maxRepeats+1, n.exhausted.Reason, v1alpha1.AskRun(n.commNode.Namespace, n.commNode.Spec.Group.Name))
	}
	return o
}

func nodeCulprit(node, reason, message string) v1alpha1.Culprit {
	return v1alpha1.Culprit{Node: node, Kind: "Node", Name: node, Reason: reason, Message: words.Shorten(message, 512)}
}

// seriesKey names a series; an empty placement is out of place.
type seriesKey struct {
	variant    v1alpha1.Variant
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
	placement  v1alpha1.Placement
}

func keyOf(r *v1alpha1.ResultSeries) seriesKey {
	k := seriesKey{r.Variant, r.Collective, r.Datatype, r.Placement}
	if k.placement == v1alpha1.OutOfPlace {
		k.placement = ""
	}
	return k
}

func shownPlacement(p rcclx.Placement) v1alpha1.Placement {
	if p == rcclx.InPlace {
		return v1alpha1.InPlace
	}
	return ""
}

// measurement is the key without its variant.
func (k seriesKey) measurement() string {
	if k.placement == v1alpha1.InPlace {
		return fmt.Sprintf("%s %s in place", k.collective, k.datatype)
	}
	return fmt.Sprintf("%s %s", k.collective, k.datatype)
}

func (k seriesKey) String() string { return fmt.Sprintf("%s %s", k.variant, k.measurement()) }

// judgeAgainstMedian fails the nodes that passed by themselves but whose bus bandwidth at the largest size stays below
// the given share of the members' median.
func judgeAgainstMedian(out []outcome, minPercent int32) {
	if minPercent <= 0 {
		return
	}
	type point struct {
		index     int
		sizeBytes int64
		busBWMBps int64
	}
	series := map[seriesKey][]point{}
	for i := range out {
		if out[i].report == nil {
			continue
		}
		for _, r := range out[i].report.Results {
			if last := min(len(r.SizeBytes), len(r.BusBandwidthMBps)) - 1; last >= 0 {
				key := keyOf(&r)
				series[key] = append(series[key], point{i, r.SizeBytes[last], r.BusBandwidthMBps[last]})
			}
		}
	}
	worst := make(map[int]int64, 4) // by index of the node: its lowest share
	for key, points := range series {
		largest := slices.MaxFunc(points, func(a, b point) int { return cmp.Compare(a.sizeBytes, b.sizeBytes) }).sizeBytes
		points = slices.DeleteFunc(points, func(p point) bool { return p.sizeBytes != largest })
		if len(points) < minNodesForMedian {
			continue
		}
		values := make([]int64, len(points))
		for i, p := range points {
			values[i] = p.busBWMBps
		}
		median := medianOf(values)
		for _, p := range points {
			o := &out[p.index]
			if median <= 0 || p.busBWMBps*100 >= median*int64(minPercent) {
				continue
			}
			percent := p.busBWMBps * 100 / median
			before, seen := worst[p.index]
			message := fmt.Sprintf("%s at %s: node %s reaches %s, %d %% of the members' median of %s; at least %d %% is expected. Compare its clocks, power cap and links with a good node's.",
				key, units.Size(largest), o.node, units.Bandwidth(p.busBWMBps), percent, units.Bandwidth(median), minPercent)
			switch {
			case seen && (percent > before || (percent == before && message >= o.message)):
			case seen || o.verdict == v1alpha1.VerdictPass:
				worst[p.index] = percent
				o.verdict, o.reason, o.message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode, message
				o.culprits = []v1alpha1.Culprit{nodeCulprit(o.node, o.reason, o.message)}
			}
		}
	}
}

// medianOf sorts the values in place; of an even number it is the mean of the middle two. No values give zero, so
// callers ask only with some.
func medianOf(values []int64) int64 {
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

// verdictRank orders verdicts, the one that decides for the group last. A node without a verdict ranks with
// Inconclusive.
func verdictRank(v v1alpha1.Verdict) int {
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

// groupVerdict is the worst of the nodes' verdicts, and the node that it comes from. Pass needs a Pass of every node,
// and the members of now to be those of the run.
func groupVerdict(outcomes []outcome, membersUnchanged bool) (v1alpha1.Verdict, *outcome) {
	var decisive *outcome
	for i := range outcomes {
		if decisive == nil || verdictRank(outcomes[i].verdict) > verdictRank(decisive.verdict) {
			decisive = &outcomes[i]
		}
	}
	if decisive == nil {
		return v1alpha1.VerdictInconclusive, nil
	}
	verdict := cmp.Or(decisive.verdict, v1alpha1.VerdictInconclusive)
	if verdict == v1alpha1.VerdictPass && !membersUnchanged {
		return v1alpha1.VerdictInconclusive, nil
	}
	return verdict, decisive
}

// validated is the condition of the same name, for a finished run; next says what follows where results are stale.
func validated(run *v1alpha1.GroupRunStatus, outcomes []outcome, span *outcome, next string) decision.Finding {
	members, over := len(outcomes), ""
	if span != nil {
		outcomes, over = append(slices.Clip(outcomes), *span), " and the group over them"
	}
	verdict, decisive := groupVerdict(outcomes, true)
	if run.Verdict == v1alpha1.VerdictPass && verdict == v1alpha1.VerdictPass {
		if partial(run) {
			return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPassed,
				Message: fmt.Sprintf("All %d members passed: run %s measured those that had changed, and what the runs since number %d showed of the others still counts.", members, run.ID, sinceOf(run))}
		}
		return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPassed,
			Message: fmt.Sprintf("Run %s passed on all %d members%s.%s", run.ID, members, over, notJudgedWords(span))}
	}
	if names := staleNodes(outcomes); len(names) > 0 && (decisive == nil || verdictRank(decisive.verdict) < verdictRank(v1alpha1.VerdictError)) {
		return resultsStale(outcomes, names, next)
	}
	if decisive == nil || decisive.verdict == v1alpha1.VerdictPass {
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInconclusive,
			Message: fmt.Sprintf("Run %s has no result for every member of now; a new run follows.", run.ID)}
	}
	return worstOf("Run "+run.ID, outcomes, decisive)
}

// notJudgedWords repeats of a stage over several nodes that passed that its speed was not judged; with a blank before.
func notJudgedWords(span *outcome) string {
	if span != nil {
		if at := strings.Index(span.message, speedNotJudged); at >= 0 {
			return " " + span.message[at:]
		}
	}
	return ""
}

// worstOf is the finding for the decisive node and those like it.
func worstOf(what string, outcomes []outcome, decisive *outcome) decision.Finding {
	var alike []string
	for i := range outcomes {
		if outcomes[i].verdict == decisive.verdict && outcomes[i].reason == decisive.reason {
			alike = append(alike, outcomes[i].node)
		}
	}
	reason := cmp.Or(decisive.reason, v1alpha1.ReasonInconclusive)
	message := fmt.Sprintf("%s: %s (%s) on %s. %s", what, cmp.Or(decisive.verdict, "no result"), reason,
		words.SomeNames(alike, 5), words.Sentence(decisive.message))
	status := metav1.ConditionFalse
	if verdictRank(decisive.verdict) <= verdictRank(v1alpha1.VerdictInconclusive) {
		status = metav1.ConditionUnknown // nothing bad was measured, and not everything was measured
	}
	return decision.Finding{Status: status, Reason: reason, Message: words.Shorten(strings.TrimSpace(message), 2048)}
}

func staleNodes(outcomes []outcome) []string {
	var names []string
	for i := range outcomes {
		if outcomes[i].stale {
			names = append(names, outcomes[i].node)
		}
	}
	return names
}

// resultsStale is Validated where results no longer count and nothing that still counts is bad.
func resultsStale(outcomes []outcome, names []string, next string) decision.Finding {
	first := slices.IndexFunc(outcomes, func(o outcome) bool { return o.stale })
	return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResultsStale, Message: words.Shorten(fmt.Sprintf("The results of %d of %d members no longer count: %s. On %s: %s %s",
		len(names), len(outcomes), words.SomeNames(names, 5), names[0], words.Sentence(outcomes[first].message), next), 2048)}
}

// validatedAgain is Validated while a run measures the nodes that changed. What is bad elsewhere stays the louder news.
func validatedAgain(run *v1alpha1.GroupRunStatus, outcomes []outcome) decision.Finding {
	if verdict, decisive := groupVerdict(outcomes, true); verdictRank(verdict) >= verdictRank(v1alpha1.VerdictError) {
		return worstOf(fmt.Sprintf("Runs since number %d, of which %s goes on", sinceOf(run), run.ID), outcomes, decisive)
	}
	if names := staleNodes(outcomes); len(names) > 0 {
		return resultsStale(outcomes, names, fmt.Sprintf("Run %s is going on.", run.ID))
	}
	var open []string
	for i := range outcomes {
		if outcomes[i].phase != nodeDone {
			open = append(open, outcomes[i].node)
		}
	}
	return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResultsStale,
		Message: fmt.Sprintf("Run %s measures %d of %d members again, which were rebooted or changed after their last run: %s.", run.ID, len(open), len(outcomes), words.SomeNames(open, 5))}
}

// groupCulprits are the worst few over all nodes: what failed before what could not be measured, links and GPUs
// before whole nodes.
func groupCulprits(outcomes []outcome, odd []v1alpha1.Culprit) []v1alpha1.Culprit {
	const limit, messageLimit = 16, 512
	type ranked struct {
		v1alpha1.Culprit
		verdict, kind int
	}
	kinds := map[string]int{"Link": 0, "NIC": 0, "GPU": 1, "Pair": 1, "Rank": 2, "Node": 3}
	var all []ranked
	for i := range outcomes {
		for _, c := range outcomes[i].culprits {
			all = append(all, ranked{c, -verdictRank(outcomes[i].verdict), kinds[c.Kind]})
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
		out[i].Message = words.Shorten(out[i].Message, messageLimit)
	}
	return out
}
