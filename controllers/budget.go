package controllers

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// asked says whether a CommRun asks for a run that has not started yet, whatever else it is due for.
func asked(in runInput) bool {
	return len(in.group.Status.Requests) > 0
}

// overBudget says why a run waits for the next day, and until when; empty where it may start. What a user asks for by
// a CommRun runs all the same, and counts; a run of some nodes is none that was asked for.
func overBudget(in runInput, trigger string, nodes int) (why string, until time.Time) {
	b := history.Budget(&in.group.Status, in.group.Spec.Run.MaxGPUMinutesPerDay, in.now)
	if b == nil || asked(in) && trigger != state.TriggerNodesChanged {
		return "", time.Time{}
	}
	needs, basis := history.Estimate(&in.group.Spec, in.group.Status.History, nodes)
	if b.UsedGPUMinutes+needs <= b.LimitGPUMinutes {
		return "", time.Time{}
	}
	figures := fmt.Sprintf("run.maxGPUMinutesPerDay is %s, %d used on %s (UTC), and the run would take about %d (%s)",
		units.Counted(b.LimitGPUMinutes, "GPU-minute"), b.UsedGPUMinutes, b.Day, needs, basis)
	until = history.NextDay(in.now)
	if needs > b.LimitGPUMinutes {
		return fmt.Sprintf("A run is due (%s) and does not fit into any day: %s. Raise the limit, measure less, or %s.",
			trigger, figures, runs.Ask(in.group)), until
	}
	return fmt.Sprintf("A run is due (%s) and waits until %s: %s. To run now, %s.",
		trigger, until.Format(time.RFC3339), figures, runs.Ask(in.group)), until
}
