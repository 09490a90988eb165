package commrun

import (
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

func TestOverBudget(t *testing.T) {
	today, yesterday := history.DayOf(testkit.Now), history.DayOf(testkit.Now.Add(-24*time.Hour))
	used := func(day string, minutes int64) *v1alpha1.BudgetStatus {
		return &v1alpha1.BudgetStatus{Day: day, UsedGPUMinutes: minutes}
	}
	for name, tc := range map[string]struct {
		limit   int64
		budget  *v1alpha1.BudgetStatus
		history []v1alpha1.RunSummary
		trigger string
		nodes   int
		words   string // of the reason to wait; empty: it runs
	}{
		"no limit": {0, used(today, 1<<40), nil, state.TriggerScheduled, 4, ""},
		"fits":     {100, used(today, 60), testkit.PastRuns(300), state.TriggerScheduled, 4, ""},
		"just too much": {100, used(today, 61), testkit.PastRuns(300), state.TriggerScheduled, 4,
			"61 used on 2026-03-01 (UTC), and the run would take about 40 (as run 1-1 held)"},
		"until when": {100, used(today, 61), testkit.PastRuns(300), state.TriggerScheduled, 4,
			"waits until 2026-03-02T00:00:00Z"},
		"another day's use is over": {100, used(yesterday, 99), testkit.PastRuns(300), state.TriggerScheduled, 4, ""},
		"a person's request":        {100, used(today, 100), testkit.PastRuns(300), state.TriggerRequested, 4, ""},
		"a changed spec": {100, used(today, 100), testkit.PastRuns(300), state.TriggerSpecChanged, 4,
			"(SpecChanged) and waits"},
		"one node of four": {100, used(today, 90), testkit.PastRuns(300),
			state.TriggerNodesChanged, 1, ""},
		"one node more than is left": {100, used(today, 91), testkit.PastRuns(300), state.TriggerNodesChanged, 1,
			"about 10 (as run 1-1 held on 4 nodes, for 1 node)"},
		"more nodes than were measured": {100, used(today, 10), testkit.PastRuns(300), state.TriggerMembersChanged, 10,
			"about 100 (as run 1-1 held on 4 nodes, for 10 nodes)"},
		"never fits": {39, used(today, 0), testkit.PastRuns(300), state.TriggerScheduled, 4,
			"does not fit into any day"},
		"few were measured": {1000, used(today, 0), []v1alpha1.RunSummary{{ID: "1-2", Trigger: state.TriggerScheduled,
			Verdict: v1alpha1.VerdictPass, Members: "10/100", MeasuredNodes: 10, GPUMinutes: 240}},
			state.TriggerScheduled, 100, "about 2400 (as run 1-2 held on 10 nodes, for 100 nodes)"},
		"no run yet": {95, nil, nil, state.TriggerSpecChanged, 4,
			"about 96 (a tenth of run.nodeDeadlineSeconds for each of 4 nodes"},
		"no run yet, and enough": {96, nil, nil, state.TriggerSpecChanged, 4, ""},
		"runs of some nodes tell none": {95, nil,
			[]v1alpha1.RunSummary{{ID: "1-2", Trigger: state.TriggerNodesChanged, Members: "4/4", GPUMinutes: 1}},
			state.TriggerScheduled, 4, "a tenth of"},
		"nor one that was aborted": {95, nil,
			[]v1alpha1.RunSummary{{ID: "1-2", Trigger: state.TriggerScheduled, MeasuredNodes: 4, GPUMinutes: 1}},
			state.TriggerScheduled, 4, "a tenth of"},
		"a limit that is new today": {100, nil, []v1alpha1.RunSummary{{ID: "1-2", Trigger: state.TriggerScheduled,
			Members: "4/4", GPUMinutes: 61, FinishTime: decision.Stamp(testkit.Now)}},
			state.TriggerScheduled, 4, "61 used"},
	} {
		g := testkit.Group()
		g.Spec.Run.MaxGPUMinutesPerDay, g.Status.Budget, g.Status.History = tc.limit, tc.budget, tc.history
		if tc.trigger == state.TriggerRequested {
			g.Status.Requests = []string{"now"}
		}
		why, until := overBudget(Input{Now: testkit.Now, Group: g}, tc.trigger, tc.nodes)
		if (why == "") != (tc.words == "") || !strings.Contains(why, tc.words) || (why == "") != until.IsZero() {
			t.Errorf("%s: %q until %s, expected %q", name, why, until, tc.words)
		}
	}
}
