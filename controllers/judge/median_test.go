package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestNodesAgainstTheirMedian(t *testing.T) {
	const x, a = "MI300X", "MI250X"
	none, all := []int(nil), []int{0, 1, 2, 3, 4, 5}
	for name, tc := range map[string]struct {
		busBWMBps  []int64 // below zero: without a result
		models     []string
		percent    int32
		slow       []int
		uncompared []int
	}{
		"one is slow":           {[]int64{100, 100, 79}, nil, 80, []int{2}, none},
		"just enough":           {[]int64{100, 100, 80}, nil, 80, none, none},
		"two nodes judge not":   {[]int64{100, 10}, nil, 80, none, all[:2]},
		"a figure is missing":   {[]int64{100, -1, 10}, nil, 80, none, []int{0, 2}},
		"switched off":          {[]int64{100, 100, 1}, nil, 0, none, none},
		"zeroes":                {[]int64{0, 0, 0}, nil, 80, none, all[:3]},
		"two of another model":  {[]int64{100, 100, 100, 40, 40}, []string{x, x, x, a, a}, 80, none, []int{3, 4}},
		"slow among each model": {[]int64{100, 100, 60, 40, 40, 20}, []string{x, x, x, a, a, a}, 80, []int{2, 5}, none},
		"a model is unknown":    {[]int64{100, 100, 100, 40}, []string{x, x, x, ""}, 80, none, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			var outcomes []Outcome
			for i, v := range tc.busBWMBps {
				o := reported(fmt.Sprint("n", i), v)
				if v < 0 {
					o = Outcome{Node: o.Node, Verdict: v1alpha1.VerdictError}
				}
				o.Kind = Kind{Partition: "SPX/NPS1", Ranks: 8}
				if tc.models != nil {
					o.Kind.GPUModel = tc.models[i]
				}
				outcomes = append(outcomes, o)
			}
			AgainstMedian(outcomes, tc.percent)
			for i, o := range outcomes {
				if got, want := o.Reason == v1alpha1.ReasonSlowNode, slices.Contains(tc.slow, i); got != want {
					t.Errorf("node %d: %+v", i, o)
				}
				if want := slices.Contains(tc.uncompared, i); o.Uncompared != want {
					t.Errorf("node %d: uncompared %v, want %v", i, o.Uncompared, want)
				}
			}
		})
	}
}

// TestOnlyBaselineIsCompared: a setting that is not in effect on one node makes it no slow node.
func TestOnlyBaselineIsCompared(t *testing.T) {
	var outcomes []Outcome
	for i, dda := range []int64{150, 150, 150, 100} {
		o := reported(fmt.Sprint("n", i), 100)
		variant := reported("", dda).Figures[0]
		variant.Variant = v1alpha1.VariantDDA
		o.Figures = append(o.Figures, variant)
		outcomes = append(outcomes, o)
	}
	AgainstMedian(outcomes, 80)
	for _, o := range outcomes {
		if o.Verdict != v1alpha1.VerdictPass || o.Uncompared {
			t.Errorf("%+v", o)
		}
	}
}

// TestStaleFiguresAreComparedWith: what was measured beside a node that has changed since does not become good by that.
func TestStaleFiguresAreComparedWith(t *testing.T) {
	outcomes := []Outcome{reported("n0", 300), reported("n1", 300), reported("n2", 100)}
	for i := range 2 {
		outcomes[i].Stale, outcomes[i].Verdict, outcomes[i].Report = true, "", nil
	}
	AgainstMedian(outcomes, 80)
	if outcomes[2].Reason != v1alpha1.ReasonSlowNode || outcomes[0].Verdict != "" || outcomes[0].Uncompared {
		t.Errorf("%+v", outcomes)
	}
	slow := []Outcome{reported("n0", 100), reported("n1", 300), reported("n2", 300)}
	slow[0].Stale, slow[0].Verdict, slow[0].Report = true, "", nil
	if AgainstMedian(slow, 80); slow[0].Verdict != "" || len(slow[0].Culprits) > 0 {
		t.Errorf("a stale result was judged: %+v", slow[0])
	}
}

// TestPassTellsWhoWasNotCompared: a pass of two nodes says nothing about which of them is slow.
func TestPassTellsWhoWasNotCompared(t *testing.T) {
	for _, tc := range []struct {
		models []string
		want   string
	}{
		{[]string{"MI300X", "MI300X", "MI300X"}, ""},
		{[]string{"MI300X", "MI300X"}, " Nodes were not compared with each other where fewer than 3 are alike: " +
			"2 of MI300X SPX/NPS1 with 8 ranks."},
		{[]string{"MI300X", "MI300X", "MI300X", "MI250X"}, ": 1 of MI250X SPX/NPS1 with 8 ranks."},
	} {
		var outcomes []Outcome
		for i, model := range tc.models {
			o := reported(fmt.Sprint("n", i), 100)
			o.Kind = Kind{model, "SPX/NPS1", 8}
			outcomes = append(outcomes, o)
		}
		AgainstMedian(outcomes, 80)
		run := &v1alpha1.GroupRunStatus{ID: "1-1", Verdict: v1alpha1.VerdictPass}
		if got := Validated(run, outcomes, nil, "").Message; !strings.HasSuffix(got, tc.want) ||
			strings.Contains(got, "compared") != (tc.want != "") {
			t.Errorf("%v: %q, want %q at its end", tc.models, got, tc.want)
		}
	}
}
