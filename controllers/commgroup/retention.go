package commgroup

import (
	"cmp"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// beyondLimits are the CommRuns that the history limits leave no place for. Neither the latest run goes nor the one
// before it, whose results stand while it is repeated.
func beyondLimits(
	limits *v1alpha1.HistoryLimits, latest *v1alpha1.GroupRunStatus, all []v1alpha1.CommRun,
) (remove []*v1alpha1.CommRun) {
	var over []*v1alpha1.CommRun
	for i := range all {
		r := &all[i]
		created := runs.NumberOf(r.Labels[v1alpha1.LabelRunID])
		if created > 0 && r.Status.ID == "" && latest != nil && created < latest.Number {
			remove = append(remove, r) // it was created for a run that did not start
		}
		if r.Status.Number > 0 && state.Over(&r.Status.GroupRunStatus) && !state.Pending(r) {
			over = append(over, r)
		}
	}
	// Runs of some nodes, and those that came to no verdict, shall not push out those that measured all.
	whole := func(r *v1alpha1.CommRun) int {
		if r.Status.Verdict != "" && r.Status.Trigger != state.TriggerNodesChanged {
			return 1
		}
		return 0
	}
	newest := func(a, b *v1alpha1.CommRun) int { return cmp.Compare(b.Status.Number, a.Status.Number) }
	slices.SortFunc(over, newest)
	kept := map[string]bool{}
	for _, r := range over {
		if len(kept) < 2 && (latest == nil || r.Status.Number <= latest.Number) {
			kept[r.Name] = true
		}
	}
	slices.SortStableFunc(over, func(a, b *v1alpha1.CommRun) int { return cmp.Compare(whole(b), whole(a)) })
	left := map[bool]int32{
		true:  cmp.Or(limits.Passed, defaultHistoryLimit),
		false: cmp.Or(limits.Failed, defaultHistoryLimit),
	}
	for _, r := range over {
		passed := r.Status.Verdict == v1alpha1.VerdictPass
		if r.Status.Summary != nil {
			passed = r.Status.Summary.Verdict == v1alpha1.VerdictPass // at its end, whatever became of its nodes
		}
		if left[passed]--; left[passed] < 0 && !kept[r.Name] {
			remove = append(remove, r)
		}
	}
	return remove
}

// defaultHistoryLimit is that of a group from before the limits.
const defaultHistoryLimit = 5
