package commrun

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
)

// HeldSeconds is for how long the run held GPUs, times GPUs, as far as the objects know it: the agents' reports tell
// their own times, closures what their pods had held, and pods that are still there when they started. A pod that was
// gone before anybody looked is not known and not in it. The nodes are those that held some for their own part.
func HeldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in Input) (total int64, nodes int32) {
	for name, ct := range in.CommTasks {
		if !runs.Assigned(ct, run.ID) {
			continue
		}
		gpus := int64(cmp.Or(ct.Spec.Ranks.Count, in.Group.Spec.RanksPerNode))
		pod, before := podstate.OfRun(in.Pods[name], run.ID), total
		switch r := runs.FinishedReport(ct); {
		case r != nil && r.FinishTime != nil:
			total += gpus * max(0, int64(r.FinishTime.Sub(r.StartTime.Time)/time.Second))
		case pod != nil && (podstate.Alive(pod) || ct.Spec.Run.Closed == nil):
			total += gpus * podHeldSeconds(in.CommNodes[name], pod, in.Now)
		case ct.Spec.Run.Closed != nil: // a pod that is kept for its log may not say when it ended
			total += gpus * ct.Spec.Run.Closed.HeldSeconds
		}
		if total > before {
			nodes++
		}
	}
	return total + groupHeldSeconds(run, span, in), nodes
}

// groupHeldSeconds is that of the group's stage. Its pods are there until it ends; where they are gone already, the
// tests tell at least how long their members worked.
func groupHeldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in Input) int64 {
	var byPods int64
	for name, pods := range in.GroupPods {
		if pod := podstate.OfRun(pods, run.ID); pod != nil {
			byPods += podstate.GPUs(pod,
				objects.GPUResource(&in.Group.Spec)) * podHeldSeconds(in.CommNodes[name], pod, in.Now)
		}
	}
	if span == nil || span.RunID != run.ID || len(span.Tests) == 0 {
		return byPods
	}
	first, last := span.Tests[0].StartTime.Time, span.Tests[0].StartTime.Time
	for i := range span.Tests {
		t := &span.Tests[i]
		end := t.StartTime.Time
		if t.Seconds != nil {
			end = end.Add(decision.Seconds(*t.Seconds))
		}
		if end.After(last) {
			last = end
		}
	}
	return max(byPods, int64(last.Sub(first)/time.Second)*int64(span.Present)*int64(in.Group.Spec.RanksPerNode))
}

// podHeldSeconds is how long the pod's ranks have held GPUs until now or their end; zero where they never started.
func podHeldSeconds(cn *v1alpha1.CommNode, pod *corev1.Pod, now time.Time) int64 {
	from, until := nodefacts.Corrected(cn, podstate.RanksStarted(pod)), now
	if from.IsZero() {
		return 0
	}
	if end := nodefacts.Corrected(cn, podstate.Ended(pod)); !podstate.Alive(pod) && !end.IsZero() {
		until = end
	}
	return max(0, int64(until.Sub(from)/time.Second))
}
