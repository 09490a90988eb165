package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/baseline"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// maxHistory is how many runs status.history holds.
	maxHistory = 10
	// keptWhole of them, the newest that measured all members, stay whatever runs of some nodes follow: they are what the trend
	// and the budget's estimate rest on.
	keptWhole = 5
	// minTrendRuns is how many runs it takes to see a direction.
	minTrendRuns = 3
	// trendNoisePercent is how far bandwidth may move over the runs that are compared, and still counts as stable.
	trendNoisePercent = 5
)

// recorded says whether the history has the run, or had it before later ones.
func recorded(history []v1alpha1.RunSummary, run *v1alpha1.GroupRunStatus) bool {
	return len(history) > 0 && runs.NumberOf(history[0].ID) >= run.Number
}

// withRun is the history with the run in it: the newest first, each once. A run that is there already stays as it was
// written, and one that is older than the newest is not taken in: the status that was read may be an old one.
func withRun(history []v1alpha1.RunSummary, one v1alpha1.RunSummary) []v1alpha1.RunSummary {
	if len(history) > 0 && runs.NumberOf(one.ID) <= runs.NumberOf(history[0].ID) {
		return history
	}
	out := append([]v1alpha1.RunSummary{one}, history...)
	for len(out) > maxHistory {
		at := leastWanted(out)
		out = slices.Delete(out, at, at+1)
	}
	return out
}

// leastWanted is the oldest run but for the newest ones that measured all members.
func leastWanted(history []v1alpha1.RunSummary) int {
	whole, at := 0, len(history)-1
	for i := range history {
		if h := &history[i]; h.Trigger != state.TriggerNodesChanged && h.Verdict != "" {
			if whole++; whole <= keptWhole {
				continue
			}
		}
		at = i
	}
	return at
}

// summaryOf is what the history keeps of a run that is over. The status is that of its end.
func summaryOf(run *v1alpha1.GroupRunStatus, status *state.Status, reason, baselineKey string, in runInput) v1alpha1.RunSummary {
	held, nodes := heldSeconds(run, status.Span, in)
	out := v1alpha1.RunSummary{ID: run.ID, Trigger: run.Trigger, Verdict: run.Verdict, Reason: words.Shorten(reason, 64),
		StartTime: run.StartTime, FinishTime: run.FinishTime, GPUMinutes: (held + 59) / 60, MeasuredNodes: nodes}
	if run.Phase == v1alpha1.RunPhaseAborted {
		return out
	}
	out.Members = status.Members.Summary
	out.BaselineKey = words.Shorten(baselineKey, baseline.MaxKey)
	if h := status.Headline; h != nil {
		mbps := h.BusBandwidthMBps
		key := runplan.Key{Variant: h.Variant, Collective: h.Collective, Datatype: h.Datatype, Placement: h.Placement}
		out.BusBandwidthMBps, out.Headline = &mbps, words.Shorten(fmt.Sprintf("%s %d B", key.String(), h.SizeBytes), 160)
	}
	if span := status.Span; span != nil && span.RunID == run.ID {
		out.GroupBusBandwidthMBps, out.GroupNodes = groupHeadline(span)
	}
	if len(status.Culprits) > 0 {
		c := &status.Culprits[0]
		out.Culprit = words.Shorten(c.Words(), 253)
	}
	return out
}

// groupHeadline is what the group reached before anybody was left out, in MB/s, and on how many nodes; where that was not measured,
// what the group that is left did.
func groupHeadline(span *v1alpha1.SpanStatus) (mbps *int64, nodes int32) {
	first := slices.IndexFunc(span.Tests, func(t v1alpha1.SpanTest) bool { return t.Kind == v1alpha1.TestGroup })
	if first >= 0 && span.Tests[first].BusBandwidthMBps != nil {
		return ptr.To(*span.Tests[first].BusBandwidthMBps), int32(len(stage.SetOf(span.Tests, first)))
	}
	for i := range span.Results {
		s := &span.Results[i]
		if last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1; last >= 0 && s.Dimension == judge.DimensionGroup && s.Collective == v1alpha1.AllReduce {
			return ptr.To(s.BusBandwidthMBps[last]), s.Nodes
		}
	}
	return nil, 0
}

// trendOf says where the bandwidth points, of nodes alone and over the group: the one that falls counts before the one that rises.
func trendOf(history []v1alpha1.RunSummary) v1alpha1.Trend {
	alone := trendOver(history, func(h *v1alpha1.RunSummary) (*int64, string) { return h.BusBandwidthMBps, h.Headline })
	over := trendOver(history, func(h *v1alpha1.RunSummary) (*int64, string) {
		return h.GroupBusBandwidthMBps, fmt.Sprintf("%s on %d nodes", h.Headline, h.GroupNodes)
	})
	for _, t := range []v1alpha1.Trend{v1alpha1.TrendFalling, v1alpha1.TrendRising, v1alpha1.TrendStable} {
		if alone == t || over == t {
			return t
		}
	}
	return v1alpha1.TrendUnknown
}

// trendOver is the trend of one figure over the runs that measured the same as the newest, under the same baseline key. It is the
// median slope over all pairs of runs, so that one odd run among several gives no direction.
func trendOver(history []v1alpha1.RunSummary, figure func(*v1alpha1.RunSummary) (mbps *int64, what string)) v1alpha1.Trend {
	var values []int64 // the newest first
	var key, newest string
	for i := range history {
		h := &history[i]
		mbps, what := figure(h)
		if h.BaselineKey == "" || mbps == nil || h.Trigger == state.TriggerNodesChanged {
			continue // a run of some nodes shows the others' old numbers again
		}
		if len(values) == 0 {
			key, newest = h.BaselineKey, what
		}
		if h.BaselineKey == key && what == newest {
			values = append(values, *mbps)
		}
	}
	if len(values) < minTrendRuns {
		return v1alpha1.TrendUnknown
	}
	const scale = 1 << 10 // slopes are fractions of MB/s a run
	var slopes []int64
	for newer := range values {
		for older := newer + 1; older < len(values); older++ {
			slopes = append(slopes, (values[newer]-values[older])*scale/int64(older-newer))
		}
	}
	moved := judge.Median(slopes) * int64(len(values)-1) / scale
	usual := judge.Median(slices.Clone(values))
	switch {
	case usual <= 0:
		return v1alpha1.TrendUnknown
	case moved*100 >= usual*trendNoisePercent:
		return v1alpha1.TrendRising
	case moved*100 <= -usual*trendNoisePercent:
		return v1alpha1.TrendFalling
	}
	return v1alpha1.TrendStable
}

// heldSeconds is for how long the run held GPUs, times GPUs, as far as the objects know it: the agents' reports tell their own
// times, closures what their pods had held, and pods that are still there when they started. A pod that was gone before
// anybody looked is not known and not in it. The nodes are those that held some for their own part.
func heldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in runInput) (total int64, nodes int32) {
	for name, ct := range in.commTasks {
		if !runs.Assigned(ct, run.ID) {
			continue
		}
		gpus := int64(cmp.Or(ct.Spec.Ranks.Count, in.group.Spec.RanksPerNode))
		pod, before := podstate.OfRun(in.pods[name], run.ID), total
		switch r := runs.FinishedReport(ct); {
		case r != nil && r.FinishTime != nil:
			total += gpus * max(0, int64(r.FinishTime.Sub(r.StartTime.Time)/time.Second))
		case pod != nil && (podstate.Alive(pod) || ct.Spec.Run.Closed == nil):
			total += gpus * podHeldSeconds(in.commNodes[name], pod, in.now)
		case ct.Spec.Run.Closed != nil: // a pod that is kept for its log may not say when it ended
			total += gpus * ct.Spec.Run.Closed.HeldSeconds
		}
		if total > before {
			nodes++
		}
	}
	return total + groupHeldSeconds(run, span, in), nodes
}

// groupHeldSeconds is that of the group's stage. Its pods are there until it ends; where they are gone already, the tests tell
// at least how long their members worked.
func groupHeldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in runInput) int64 {
	var byPods int64
	for name, pods := range in.groupPods {
		if pod := podstate.OfRun(pods, run.ID); pod != nil {
			byPods += gpusOf(pod, objects.GPUResource(&in.group.Spec)) * podHeldSeconds(in.commNodes[name], pod, in.now)
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
	return max(byPods, int64(last.Sub(first)/time.Second)*int64(span.Present)*int64(in.group.Spec.RanksPerNode))
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

// gpusOf is how many of the resource the pod's containers hold together. Init containers end before them, but for those that
// go on beside them (restartPolicy Always).
func gpusOf(pod *corev1.Pod, resource string) int64 {
	var running, starting int64
	of := func(c *corev1.Container) int64 {
		// For an extended resource a limit is a request, and there is none without the other.
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			if q, ok := list[corev1.ResourceName(resource)]; ok {
				return q.Value()
			}
		}
		return 0
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			running += of(c)
			continue
		}
		starting = max(starting, running+of(c))
	}
	for i := range pod.Spec.Containers {
		running += of(&pod.Spec.Containers[i])
	}
	return max(running, starting)
}

// recordRun takes a run that is over into the history and the day's budget, once, and works the trend out anew.
func recordRun(status *state.Status, run *v1alpha1.GroupRunStatus, reason, baselineKey string, in runInput) {
	was := &in.group.Status
	status.Budget = budgetNow(was, in.group.Spec.Run.MaxGPUMinutesPerDay, in.now)
	if run != nil && state.Over(run) && !recorded(was.History, run) {
		one := summaryOf(run, status, reason, baselineKey, in)
		status.History = withRun(was.History, one)
		spend(status.Budget, &one)
	}
	if status.Trend = ""; len(status.History) > 0 {
		status.Trend = trendOf(status.History)
	}
}
