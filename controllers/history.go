package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

const (
	// maxHistory is how many runs status.history holds.
	maxHistory = 10
	// minTrendRuns is how many runs it takes to see a direction.
	minTrendRuns = 3
	// trendNoisePercent is how far bandwidth may move over the runs that are compared, and still counts as stable.
	trendNoisePercent = 5
)

// ended says whether the run is over, however it went.
func ended(run *v1alpha1.GroupRunStatus) bool {
	return run != nil && (run.Phase == v1alpha1.RunPhaseFinished || run.Phase == v1alpha1.RunPhaseAborted)
}

// withRun is the history with the run in it: the newest first, each once. A run that is there already stays as it was
// written, and one that is older than the newest is not taken in: the status that was read may be an old one.
func withRun(history []v1alpha1.RunSummary, one v1alpha1.RunSummary) []v1alpha1.RunSummary {
	if len(history) > 0 && numberOfRun(one.ID) <= numberOfRun(history[0].ID) {
		return history
	}
	out := append([]v1alpha1.RunSummary{one}, history...)
	return out[:min(len(out), maxHistory)]
}

// summaryOf is what the history keeps of a run that is over. The status is that of its end.
func summaryOf(run *v1alpha1.GroupRunStatus, status *v1alpha1.CommGroupStatus, reason, baselineKey string, heldSeconds int64) v1alpha1.RunSummary {
	out := v1alpha1.RunSummary{ID: run.ID, Trigger: run.Trigger, Verdict: run.Verdict, Reason: words.Shorten(reason, 64),
		StartTime: run.StartTime, FinishTime: run.FinishTime, GPUMinutes: (heldSeconds + 59) / 60}
	if run.Phase == v1alpha1.RunPhaseAborted {
		return out
	}
	out.Members = status.Members.Summary
	out.BaselineKey = words.Shorten(baselineKey, maxBaselineKey)
	if h := status.Headline; h != nil {
		mbps := h.BusBandwidthMBps
		key := seriesKey{h.Variant, h.Collective, h.Datatype, h.Placement}
		out.BusBandwidthMBps, out.Headline = &mbps, words.Shorten(fmt.Sprintf("%s %d B", key.String(), h.SizeBytes), 160)
	}
	if mbps := groupHeadline(spanResultsOf(status.Span, run)); mbps > 0 {
		out.GroupBusBandwidthMBps = &mbps
	}
	if len(status.Culprits) > 0 {
		c := &status.Culprits[0]
		out.Culprit = words.Shorten(cmp.Or(c.Node, c.Name), 253)
	}
	return out
}

// groupHeadline is AllReduce of the group's communicator at the largest size, in MB/s; zero where it was not measured.
func groupHeadline(span []v1alpha1.SpanResultSeries) int64 {
	for i := range span {
		s := &span[i]
		if last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1; last >= 0 && s.Dimension == dimensionGroup && s.Collective == v1alpha1.AllReduce {
			return s.BusBandwidthMBps[last]
		}
	}
	return 0
}

// trendOf says where the headline's bandwidth points over the runs that measured the same as the newest, under the same
// baseline key. It is the median slope over all pairs of runs, so that one odd run among several gives no direction.
func trendOf(history []v1alpha1.RunSummary) v1alpha1.Trend {
	var values []int64 // the newest first
	var key, headline string
	for i := range history {
		h := &history[i]
		if h.BaselineKey == "" || h.BusBandwidthMBps == nil || h.Trigger == triggerNodesChanged {
			continue // a run of some nodes shows the others' old numbers again
		}
		if len(values) == 0 {
			key, headline = h.BaselineKey, h.Headline
		}
		if h.BaselineKey == key && h.Headline == headline {
			values = append(values, *h.BusBandwidthMBps)
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
	moved := medianOf(slopes) * int64(len(values)-1) / scale
	usual := medianOf(slices.Clone(values))
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
// anybody looked is not known and not in it.
func heldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in runInput) int64 {
	var total int64
	for name, cn := range in.commNodes {
		if !assigned(cn, run.ID) {
			continue
		}
		gpus := int64(cmp.Or(cn.Spec.Ranks.Count, in.group.Spec.RanksPerNode))
		pod := podOfRun(in.pods[name], run.ID)
		switch r := finishedReport(cn); {
		case r != nil && r.FinishTime != nil:
			total += gpus * max(0, int64(r.FinishTime.Sub(r.StartTime.Time)/time.Second))
		case pod != nil && (podAlive(pod) || cn.Spec.Run.Closed == nil):
			total += gpus * podHeldSeconds(cn, pod, in.now)
		case cn.Spec.Run.Closed != nil: // a pod that is kept for its log may not say when it ended
			total += gpus * cn.Spec.Run.Closed.HeldSeconds
		}
	}
	return total + groupHeldSeconds(run, span, in)
}

// groupHeldSeconds is that of the group's stage. Its pods are there until it ends; where they are gone already, the tests tell
// at least how long their members worked.
func groupHeldSeconds(run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus, in runInput) int64 {
	var byPods int64
	for name, pods := range in.groupPods {
		if pod := podOfRun(pods, run.ID); pod != nil {
			byPods += gpusOf(pod, gpuResource(&in.group.Spec)) * podHeldSeconds(in.commNodes[name], pod, in.now)
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
	from, until := corrected(cn, ranksStarted(pod)), now
	if from.IsZero() {
		return 0
	}
	if end := corrected(cn, podEnded(pod)); !podAlive(pod) && !end.IsZero() {
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
func recordRun(status *v1alpha1.CommGroupStatus, run *v1alpha1.GroupRunStatus, reason, baselineKey string, in runInput) {
	was := &in.group.Status
	status.Budget = budgetNow(was, in.group.Spec.Run.MaxGPUMinutesPerDay, in.now)
	if ended(run) && (len(was.History) == 0 || numberOfRun(run.ID) > numberOfRun(was.History[0].ID)) {
		one := summaryOf(run, status, reason, baselineKey, heldSeconds(run, status.Span, in))
		status.History = withRun(was.History, one)
		spend(status.Budget, &one)
	}
	if status.Trend = ""; len(status.History) > 0 {
		status.Trend = trendOf(status.History)
	}
}
