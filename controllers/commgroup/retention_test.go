package commgroup

import (
	"fmt"
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func commRuns(phase v1alpha1.RunPhase, verdict v1alpha1.Verdict, numbers ...int64) []v1alpha1.CommRun {
	var out []v1alpha1.CommRun
	for _, n := range numbers {
		run := v1alpha1.CommRun{Status: v1alpha1.CommRunStatus{GroupRunStatus: v1alpha1.GroupRunStatus{
			ID: fmt.Sprint("1-", n), Number: n, Phase: phase, Verdict: verdict, Trigger: state.TriggerScheduled}}}
		run.Name = fmt.Sprint("g-", n)
		out = append(out, run)
	}
	return out
}

// TestHistoryLimits: of the runs that passed and of those that did not as many stay as the group's limits say, and the
// last two whatever the limits are.
func TestHistoryLimits(t *testing.T) {
	const pass, fail = v1alpha1.VerdictPass, v1alpha1.VerdictFail
	finished := func(verdict v1alpha1.Verdict, numbers ...int64) []v1alpha1.CommRun {
		return commRuns(v1alpha1.RunPhaseFinished, verdict, numbers...)
	}
	some := finished(pass, 10, 11, 12)
	for i := range some {
		some[i].Status.Trigger = state.TriggerNodesChanged
	}
	pending := commRuns("", "", 0)
	pending[0].Status = v1alpha1.CommRunStatus{}
	for name, tc := range map[string]struct {
		have   []v1alpha1.CommRun
		remove []string
	}{
		"none":                     {nil, nil},
		"within the limits":        {finished(pass, 1, 2, 3), nil},
		"the oldest passed one":    {finished(pass, 1, 2, 3, 4), []string{"g-1"}},
		"failed ones have a limit": {slices.Concat(finished(fail, 1, 2, 3), finished(pass, 4)), []string{"g-1"}},
		"passed ones stay":         {slices.Concat(finished(pass, 1, 2), finished(fail, 7, 8)), nil},
		"one under way is not over": {slices.Concat(finished(pass, 1, 2, 3),
			commRuns(v1alpha1.RunPhaseRunning, "", 4)), nil},
		"one that has not started": {slices.Concat(finished(pass, 1, 2, 3), pending), nil},
		"a suspended one": {slices.Concat(finished(fail, 1, 2),
			commRuns(v1alpha1.RunPhaseSuspended, "", 3)), nil},
		"runs of some nodes go first": {slices.Concat(finished(pass, 1, 2), some), []string{"g-10"}},
		"aborted runs go first": {slices.Concat(finished(fail, 1, 2), commRuns(v1alpha1.RunPhaseAborted, "", 3, 4, 5)),
			[]string{"g-3"}},
		"a limit that was lowered": {finished(fail, 3, 4, 5, 6, 7), []string{"g-5", "g-4", "g-3"}},
		"verdicts other than Fail": {slices.Concat(finished(v1alpha1.VerdictError, 4, 5, 6), finished(pass, 7)),
			[]string{"g-4"}},
	} {
		latest := &v1alpha1.GroupRunStatus{Number: 99}
		remove := beyondLimits(&v1alpha1.HistoryLimits{Passed: 3, Failed: 2}, latest, tc.have)
		var names []string
		for _, r := range remove {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, tc.remove) {
			t.Errorf("%s: remove %v; want %v", name, names, tc.remove)
		}
	}
}
