package commgroup

import (
	"encoding/json"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// MaxRunBytes bounds the JSON of a CommRun, without the managed fields.
	MaxRunBytes = 60 << 10
	// MaxGroupBytes bounds the JSON of a CommGroup's own status.
	MaxGroupBytes = 14 << 10
	// maxTestsOfPast is how many tests of a stage that has ended are kept where space is short.
	maxTestsOfPast = 40
	// conditionWords is how much of a condition's message is kept where nothing else makes room.
	conditionWords = 384
)

// fits says whether the JSON of an object takes no more than so many bytes.
func fits(object any, bytes int) bool {
	data, err := json.Marshal(object)
	return err != nil || len(data) <= bytes
}

// boundGroup shortens what the CommGroup's own status has until it fits: the ends of messages first, then lists, the
// least useful first.
func boundGroup(status *state.Status) {
	large := func() bool {
		own := status.GroupStatus()
		return !fits(&own, MaxGroupBytes)
	}
	cuts := []func() bool{
		func() bool { return shortenConditions(status) },
		func() bool { return halve(&status.WouldGate, 1) },
		func() bool { return status.Gating != nil && halve(&status.Gating.Nodes, 1) },
		func() bool { return halve(&status.History, 1) },
	}
	for _, cut := range cuts {
		for large() && cut() {
		}
	}
}

// boundRun shortens what the CommRun has until it fits: messages first, then the smaller sizes of the results, the
// errors with random data, and settings; then whole entries, the least useful first. The children keep everything.
// While the group's stage goes on, what it judges by stays: its tests, culprits and results; they are bounded where
// they are made. Of its results the sizes of thresholds stay as long as any does.
func boundRun(group *state.Group, status *state.Status) {
	thresholds := group.Spec.Benchmark.Thresholds
	fits := func() bool {
		next := state.Group{ObjectMeta: group.ObjectMeta, Spec: group.Spec, Status: *status}
		if status.Run == nil {
			return true
		}
		_, run := next.Objects()
		return fits(run, MaxRunBytes)
	}
	if fits() {
		return
	}
	if status.Baseline != nil {
		status.Baseline = status.Baseline.DeepCopy() // it may be the cache's
	}
	ended := status.Span == nil || status.Span.Stage == v1alpha1.StageEnded
	var judged []int64
	for i := range thresholds {
		if thresholds[i].Span == v1alpha1.SpanGroup {
			judged = append(judged, thresholds[i].SizeBytes)
		}
	}
	for _, limit := range []int{120, 40} {
		for i := range status.Settings {
			status.Settings[i].Message = clip.Head(status.Settings[i].Message, limit)
		}
		for i := range status.Culprits {
			status.Culprits[i].Message = clip.Head(status.Culprits[i].Message, 2*limit)
		}
		settings.BoundAdvice(status.Advice, limit)
		if fits() {
			return
		}
	}
	for i := range status.Checks {
		if i > 0 {
			status.Checks[i].Causes = nil
		}
	}
	if fits() {
		return
	}
	for sizes := 20; sizes >= 5; sizes -= 5 {
		boundResults(status.Results, sizes)
		if ended {
			boundSpanResults(status.Span, sizes, judged)
		}
		if fits() {
			return
		}
	}
	if status.DataErrors = nil; fits() {
		return
	}
	if s := status.Span; s != nil && ended && len(s.Tests) > maxTestsOfPast {
		s.Tests = s.Tests[len(s.Tests)-maxTestsOfPast:]
	}
	if fits() {
		return
	}
	if len(status.Settings) > 20 {
		status.Settings = status.Settings[:20]
	}
	for _, cut := range lastCuts(status, ended, judged) {
		for !fits() && cut() {
		}
	}
}

// lastCuts give up a part of one list each time they are called, in the order in which the lists are missed least;
// false once nothing more of theirs may go. What past runs left, the history and the baseline, goes after all that a
// new run shows again.
func lastCuts(status *state.Status, ended bool, judged []int64) []func() bool {
	cuts := []func() bool{
		func() bool { return halve(&status.Advice, 0) },
		func() bool { return boundResults(status.Results, 1) },
		func() bool { return halve(&status.Results, 0) },
		func() bool { return halve(&status.Settings, 0) },
		func() bool { return halve(&status.Inventory, 8) },
		func() bool { return halve(&status.Checks, 1) },
	}
	span := status.Span
	if span != nil && ended {
		cuts = append(cuts,
			func() bool { return halve(&span.Tests, 1) },
			func() bool { return shortenCulprits(span, 80) },
			func() bool { return boundSpanResults(span, 1, judged) },
			func() bool { return halve(&span.Results, 0) },
			func() bool { return halve(&span.Culprits, 1) })
	}
	cuts = append(cuts, func() bool { return halve(&status.Culprits, 1) })
	if span != nil {
		cuts = append(cuts, func() bool { return halve(&span.Left, 1) }, func() bool {
			return shortenCulprits(span, 80)
		})
	}
	if b := status.Baseline; b != nil {
		cuts = append(cuts, func() bool { return halve(&b.Series, 0) })
	}
	if span != nil {
		// The stage has judged these when they came; only what is shown of them is lost.
		cuts = append(cuts, func() bool { return boundSpanResults(span, 1, judged) }, func() bool {
			return halve(&span.Results, 0)
		})
	}
	return cuts
}

// halve takes the second half out of a list; false where no more than least are there.
func halve[T any](list *[]T, least int) bool {
	if len(*list) <= least {
		return false
	}
	*list = (*list)[:max(least, len(*list)/2)]
	return true
}

// shortenConditions keeps the beginnings of messages, those of remarks too.
func shortenConditions(status *state.Status) (any bool) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if short := clip.Head(c.Message, conditionWords); short != c.Message {
			c.Message, any = short, true
		}
	}
	for i := range status.Remarks {
		r := &status.Remarks[i]
		if short := clip.Head(r.Message, conditionWords); short != r.Message {
			r.Message, any = short, true
		}
	}
	return any
}

func shortenCulprits(span *v1alpha1.SpanStatus, limit int) (any bool) {
	for i := range span.Culprits {
		if c := &span.Culprits[i]; len(c.Message) > limit {
			c.Message, any = clip.Head(c.Message, limit), true
		}
	}
	return any
}

// boundResults keeps the largest sizes of each series, and says whether there were more.
func boundResults(results []v1alpha1.GroupResultSeries, sizes int) (any bool) {
	for i := range results {
		r := &results[i]
		any = lastOf(sizes, &r.SizeBytes, &r.LatencyNanoseconds, &r.BusBandwidthMBps, &r.MinBusBandwidthMBps) || any
	}
	return any
}

// boundSpanResults keeps the largest sizes of each series, and those that are judged.
func boundSpanResults(span *v1alpha1.SpanStatus, sizes int, judged []int64) (any bool) {
	if span == nil {
		return false
	}
	for i := range span.Results {
		r := &span.Results[i]
		first := len(r.SizeBytes) - sizes
		var keep []int
		for k, size := range r.SizeBytes {
			if k >= first || slices.Contains(judged, size) {
				keep = append(keep, k)
			}
		}
		if len(keep) == len(r.SizeBytes) {
			continue
		}
		any = true
		for _, list := range []*[]int64{&r.SizeBytes, &r.LatencyNanoseconds, &r.BusBandwidthMBps,
			&r.MinBusBandwidthMBps} {
			var kept []int64
			for _, k := range keep {
				kept = append(kept, (*list)[k])
			}
			*list = kept
		}
		var spread []int32
		for _, k := range keep {
			if k < len(r.SpreadPercent) {
				spread = append(spread, r.SpreadPercent[k])
			}
		}
		r.SpreadPercent = spread
	}
	return any
}

func lastOf(n int, lists ...*[]int64) (any bool) {
	for _, list := range lists {
		if drop := len(*list) - n; drop > 0 {
			*list, any = (*list)[drop:], true
		}
	}
	return any
}
