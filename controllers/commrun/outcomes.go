package commrun

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// judgeNodes turns the nodes' states into verdicts. Thresholds are judged by the node's agent; the comparison of the
// nodes with each other is made here.
func judgeNodes(nodes []nodeState, group *state.Group) []judge.Outcome {
	spec, out := &group.Spec, make([]judge.Outcome, len(nodes))
	plan := runplan.Baseline{Plan: group.Status.Plan}
	if plan.Plan == nil && SameSpecAs(group.Status.Run, spec) { // the CommRun is gone
		now := runplan.For(spec)
		plan.Plan = &now
	}
	for i := range nodes {
		out[i] = nodeOutcome(&nodes[i], &plan)
	}
	judge.AgainstMedian(out, ptr.Deref(spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian))
	return out
}

// lostPod says that a node was not measured because its run pod or the node itself went away: what took it is not
// known, and nothing is to blame on the node.
func lostPod(reason string) bool {
	switch reason {
	case v1alpha1.ReasonRunPodFailed, v1alpha1.ReasonInterrupted, v1alpha1.ReasonMemberLost, v1alpha1.ReasonPreempted:
		return true
	}
	return false
}

// writeRefused says that the node's run pod was never made, or its CommTask could not be written: a quota, an admission
// policy or a taken account name of the namespace refused it, which says nothing of the node. A pod that its kubelet
// could not start has a name.
func (n *nodeState) writeRefused() bool {
	return n.closure.Reason == v1alpha1.ReasonCommTasksRefused ||
		n.closure.Reason == v1alpha1.ReasonRunPodNotStarted && n.podName == ""
}

func nodeOutcome(n *nodeState, plan *runplan.Baseline) judge.Outcome {
	o := judge.Outcome{Node: n.name, Phase: n.phase}
	if n.report != nil {
		o.Figures = n.report.Results
	}
	if n.commTask != nil {
		o.Kind.Ranks = n.commTask.Spec.Ranks.Count
	}
	if f := n.facts(); f != nil {
		o.Kind.GPUModel, o.Kind.Partition = f.GPUModel, f.Partition
	}
	switch {
	case n.stale != nil:
		o.Stale, o.Reason, o.Message = true, v1alpha1.ReasonResultsStale, n.stale.Message
	case n.closure != nil:
		o.Verdict, o.Reason, o.Message = n.closure.Verdict, n.closure.Reason, n.closure.Message
		if o.Verdict == v1alpha1.VerdictError && !lostPod(o.Reason) && !n.writeRefused() {
			o.Culprits = []v1alpha1.Culprit{judge.NodeCulprit(n.name, o.Reason, o.Message)}
		}
	case n.report != nil:
		o.Report = n.report
		o.Verdict, o.Reason, o.Message = n.report.Verdict, n.report.Reason, n.report.Message
		o.Culprits = slices.Clone(n.report.Culprits)
		for i := range o.Culprits {
			o.Culprits[i].Node = cmp.Or(o.Culprits[i].Node, n.name)
		}
		if o.Verdict == v1alpha1.VerdictPass && n.commTask.Spec.Run != nil {
			if missing := plan.Missing(n.report.Results, n.commTask.Spec.Ranks.Count); missing != "" {
				o.Verdict, o.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
				o.Message = fmt.Sprintf("Node %s reports Pass without a result of Baseline %s.", n.name, missing)
			}
		}
		bad := judge.Bad(o.Verdict)
		if bad && len(o.Culprits) == 0 && !lostPod(o.Reason) {
			o.Culprits = []v1alpha1.Culprit{judge.NodeCulprit(n.name, o.Reason, o.Message)}
		}
	}
	if n.exhausted != nil {
		o.Message = explain.Sentence(o.Message) + fmt.Sprintf(" After %d bad results in a row, "+
			"each followed by a change of the node (the last: %s), no run starts by itself: %s.",
			MaxRepeats+1, n.exhausted.Reason, v1alpha1.AskRun(n.commTask.Namespace, n.commTask.Spec.Group.Name))
	}
	return o
}

// SameSpecAs says whether the run measures what the spec asks for by now.
func SameSpecAs(run *v1alpha1.GroupRunStatus, spec *v1alpha1.CommGroupSpec) bool {
	return run != nil && run.SpecHash == runplan.SpecHash(spec)
}
