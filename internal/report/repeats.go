package report

import (
	"cmp"
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// HasRepeats says whether any of the results is of more than one repeat.
func HasRepeats(results []v1alpha1.SpanResultSeries) bool {
	for i := range results {
		if results[i].Repeats > 1 {
			return true
		}
	}
	return false
}

// RepeatsWords says how many repeats a figure is the median of, and how far they are apart at the size at this place.
func RepeatsWords(r *v1alpha1.SpanResultSeries, at int) (repeats, apart string) {
	return fmt.Sprint(max(1, r.Repeats)), spread(r.SpreadPercent, at)
}

func spread(percent []int32, at int) string {
	if at < 0 || at >= len(percent) {
		return unknown
	}
	return fmt.Sprintf("%d %%", percent[at])
}

// Apart says of a group's series how many repeats each node's figures are the median of, and on which node and at which
// size they are furthest apart. Empty without repeats.
func Apart(r *v1alpha1.GroupResultSeries, plan *v1alpha1.RunPlan, nodes []Member) string {
	if plan == nil || plan.Repeats < 2 {
		return ""
	}
	var repeats, most int32
	var node string
	var size int64
	for i := range nodes {
		run, report := nodes[i].Spec.Run, nodes[i].Status.Run
		if run == nil || run.Stale != nil || report == nil || report.ID != run.ID {
			continue
		}
		repeats = plan.Repeats
		for j := range report.Results {
			s := &report.Results[j]
			if s.Variant != r.Variant || s.Collective != r.Collective || s.Datatype != r.Datatype ||
				cmp.Or(s.Placement, v1alpha1.OutOfPlace) != cmp.Or(r.Placement, v1alpha1.OutOfPlace) {
				continue
			}
			for k := range min(len(s.SizeBytes), len(s.SpreadPercent)) {
				if p := s.SpreadPercent[k]; node == "" || p > most {
					most, node, size = p, nodes[i].Spec.NodeName, s.SizeBytes[k]
				}
			}
		}
	}
	switch {
	case repeats < 2:
		return ""
	case node == "":
		return fmt.Sprintf("medians of %d repeats; how far they are apart is in no report", repeats)
	}
	return fmt.Sprintf("medians of %d repeats, at most %d %% apart (%s at %s)", repeats, most, node, units.Bytes(size))
}
