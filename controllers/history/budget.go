package history

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// Budget is the budget of today before this run: what is left of an earlier day's does not carry over. Nil without a
// limit. Where there was none so far, the history tells what today's runs have used.
func Budget(status *state.Status, limit int64, now time.Time) *v1alpha1.BudgetStatus {
	if limit <= 0 {
		return nil
	}
	out := &v1alpha1.BudgetStatus{Day: DayOf(now), LimitGPUMinutes: limit}
	switch b := status.Budget; {
	case b == nil:
		for i := range status.History {
			if h := &status.History[i]; h.FinishTime != nil && DayOf(h.FinishTime.Time) == out.Day {
				out.UsedGPUMinutes += h.GPUMinutes
			}
		}
		if len(status.History) > 0 {
			out.LastRunID = status.History[0].ID
		}
	case b.Day == out.Day:
		out.UsedGPUMinutes, out.LastRunID = b.UsedGPUMinutes, b.LastRunID
	default:
		out.LastRunID = b.LastRunID
	}
	return out
}

// spend counts a run that is over, once: on the day on which it ended.
func spend(b *v1alpha1.BudgetStatus, one *v1alpha1.RunSummary) {
	if b == nil || one.FinishTime == nil || runs.NumberOf(one.ID) <= runs.NumberOf(b.LastRunID) {
		return
	}
	b.LastRunID = one.ID
	if DayOf(one.FinishTime.Time) == b.Day {
		b.UsedGPUMinutes += one.GPUMinutes
	}
}

// Estimate is what a run of so many nodes will hold of GPUs, in minutes, and what that rests on.
func Estimate(spec *v1alpha1.CommGroupSpec, history []v1alpha1.RunSummary, nodes int) (minutes int64, basis string) {
	for i := range history {
		h := &history[i]
		measured := cmp.Or(int(h.MeasuredNodes), selectedIn(h.Members)) // nodes that were busy held nothing
		if h.Trigger == state.TriggerNodesChanged || h.Verdict == "" || measured == 0 || h.GPUMinutes == 0 {
			continue // one that was aborted tells no more than how far it came
		}
		basis = "as run " + h.ID + " held"
		if nodes != measured {
			basis += fmt.Sprintf(" on %s, for %s", units.Counted(measured, "node"), units.Counted(nodes, "node"))
		}
		return (h.GPUMinutes*int64(nodes) + int64(measured) - 1) / int64(measured), basis
	}
	// The deadline is what a run never takes when all is well.
	perNode := max(1, int64(spec.Run.NodeDeadlineSeconds)/600) * int64(spec.RanksPerNode)
	return perNode * int64(nodes),
		fmt.Sprintf("a tenth of run.nodeDeadlineSeconds for each of %s, since no run of all members has ended yet",
			units.Counted(nodes, "node"))
}

// selectedIn is the number of members in "passed/selected"; zero where it is not one.
func selectedIn(members string) int {
	_, selected, _ := strings.Cut(members, "/")
	n, err := strconv.Atoi(selected)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// DayOf is the UTC day of a time, as status.budget names it.
func DayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// NextDay is when the UTC day after that of a time begins.
func NextDay(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}
