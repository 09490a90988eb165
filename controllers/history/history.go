package history

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// MaxRuns is how many runs status.history holds.
	MaxRuns = 10
	// KeptWhole of them, the newest that measured all members, stay whatever runs of some nodes follow: they are what
	// the trend and the budget's estimate rest on.
	KeptWhole = 5
	// minTrendRuns is how many runs it takes to see a direction.
	minTrendRuns = 3
	// trendNoisePercent is how far bandwidth may move over the runs that are compared, and still counts as stable.
	trendNoisePercent = 5
)

// End is what the history keeps of a run beside the status of its end.
type End struct {
	// Run as it is; nil before the first.
	Run *v1alpha1.GroupRunStatus
	// Reason of the condition Validated, and the baseline's key, of at most baseline.MaxKey bytes.
	Reason, BaselineKey string
	// Held gives for how many GPU-seconds the run held GPUs, and on how many nodes. It is called at most once.
	Held func() (gpuSeconds int64, nodes int32)
}

// Record takes a run that is over into the history and the day's budget, once, and computes the trend again.
func Record(status, was *state.Status, limitGPUMinutes int64, end *End, now time.Time) {
	status.Budget = Budget(was, limitGPUMinutes, now)
	if end.Run != nil && state.Over(end.Run) && !Has(was.History, end.Run) {
		one := summaryOf(status, end)
		status.History = with(was.History, one)
		spend(status.Budget, &one)
	}
	if status.Trend = ""; len(status.History) > 0 {
		status.Trend = trend(status.History)
	}
}

// Has says whether the history has the run, or had it before later ones.
func Has(history []v1alpha1.RunSummary, run *v1alpha1.GroupRunStatus) bool {
	return len(history) > 0 && runs.NumberOf(history[0].ID) >= run.Number
}

// with is the history with the run in it: the newest first, each once. A run that is there already stays as it was
// written, and one that is older than the newest is not taken in: the status that was read may be an old one.
func with(history []v1alpha1.RunSummary, one v1alpha1.RunSummary) []v1alpha1.RunSummary {
	if len(history) > 0 && runs.NumberOf(one.ID) <= runs.NumberOf(history[0].ID) {
		return history
	}
	out := append([]v1alpha1.RunSummary{one}, history...)
	for len(out) > MaxRuns {
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
			if whole++; whole <= KeptWhole {
				continue
			}
		}
		at = i
	}
	return at
}

// summaryOf is what the history keeps of a run that is over. The status is that of its end.
func summaryOf(status *state.Status, end *End) v1alpha1.RunSummary {
	run := end.Run
	held, nodes := end.Held()
	out := v1alpha1.RunSummary{ID: run.ID, Trigger: run.Trigger,
		Verdict: run.Verdict, Reason: clip.Head(end.Reason, 64),
		StartTime: run.StartTime, FinishTime: run.FinishTime, GPUMinutes: (held + 59) / 60, MeasuredNodes: nodes}
	if run.Phase == v1alpha1.RunPhaseAborted {
		return out
	}
	out.Members = status.Members.Summary
	out.BaselineKey = end.BaselineKey
	if h := status.Headline; h != nil {
		mbps := h.BusBandwidthMBps
		key := runplan.Key{Variant: h.Variant, Collective: h.Collective, Datatype: h.Datatype, Placement: h.Placement}
		out.BusBandwidthMBps, out.Headline = &mbps, clip.Head(fmt.Sprintf("%s %d B", key.String(), h.SizeBytes), 160)
	}
	if span := status.Span; span != nil && span.RunID == run.ID {
		out.GroupBusBandwidthMBps, out.GroupNodes = GroupFigure(span)
	}
	if len(status.Culprits) > 0 {
		c := &status.Culprits[0]
		out.Culprit = clip.Head(explain.Culprit(c), 253)
	}
	return out
}

// GroupFigure is what the group reached before anybody was left out, in MB/s, and on how many nodes; where that was not
// measured, what the group that is left did.
func GroupFigure(span *v1alpha1.SpanStatus) (mbps *int64, nodes int32) {
	first := slices.IndexFunc(span.Tests, func(t v1alpha1.SpanTest) bool { return t.Kind == v1alpha1.TestGroup })
	if first >= 0 && span.Tests[first].BusBandwidthMBps != nil {
		return ptr.To(*span.Tests[first].BusBandwidthMBps), int32(len(stage.SetOf(span.Tests, first)))
	}
	for i := range span.Results {
		s := &span.Results[i]
		if last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1; last >= 0 &&
			s.Dimension == judge.DimensionGroup && s.Collective == v1alpha1.AllReduce {
			return ptr.To(s.BusBandwidthMBps[last]), s.Nodes
		}
	}
	return nil, 0
}

// trend says where the bandwidth points, of nodes alone and over the group: the one that falls counts before the one
// that rises.
func trend(history []v1alpha1.RunSummary) v1alpha1.Trend {
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

// trendOver is the trend of one figure over the runs that measured the same as the newest, under the same baseline key.
// It is the median slope over all pairs of runs, so that one odd run among several gives no direction.
func trendOver(history []v1alpha1.RunSummary,
	figure func(*v1alpha1.RunSummary) (mbps *int64, what string)) v1alpha1.Trend {
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
