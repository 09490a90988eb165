package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// overNodes gives the runs the figures of the group on eight nodes.
func overNodes(history []v1alpha1.RunSummary, mbps ...int64) {
	for i, v := range mbps {
		history[i].GroupBusBandwidthMBps, history[i].GroupNodes = &v, 8
	}
}

func TestTrend(t *testing.T) {
	const rising, falling, stable, unknown = v1alpha1.TrendRising, v1alpha1.TrendFalling, v1alpha1.TrendStable,
		v1alpha1.TrendUnknown
	for name, tc := range map[string]struct {
		history []v1alpha1.RunSummary
		change  func([]v1alpha1.RunSummary)
		want    v1alpha1.Trend
	}{
		"none":            {testkit.PastRuns(), nil, unknown},
		"two":             {testkit.PastRuns(100, 300), nil, unknown},
		"three alike":     {testkit.PastRuns(300, 301, 299), nil, stable},
		"three that fall": {testkit.PastRuns(270, 285, 300), nil, falling},
		"three that rise": {testkit.PastRuns(330, 315, 300), nil, rising},
		"slow loss": {testkit.PastRuns(290, 292, 294, 296, 298, 300, 302, 304, 306, 308),
			nil, falling},
		"loss within the noise":  {testkit.PastRuns(297, 298, 299, 300, 301), nil, stable},
		"one odd run in between": {testkit.PastRuns(300, 301, 120, 299, 300, 300), nil, stable},
		"one odd run at the end": {testkit.PastRuns(150, 300, 301, 299, 300, 300), nil, stable},
		"a step that stays":      {testkit.PastRuns(200, 200, 200, 200, 300, 300, 300), nil, falling},
		"not measured":           {testkit.PastRuns(0, 270, 0, 300), nil, unknown},
		"another key before": {testkit.PastRuns(300, 300, 100, 100, 100),
			func(h []v1alpha1.RunSummary) {
				h[2].BaselineKey, h[3].BaselineKey, h[4].BaselineKey = "a", "a", "a"
			}, unknown},
		"other sizes before": {testkit.PastRuns(300, 300, 100, 100, 100),
			func(h []v1alpha1.RunSummary) { h[2].Headline, h[3].Headline, h[4].Headline = "a", "a", "a" }, unknown},
		"of some nodes only": {testkit.PastRuns(300, 300, 300),
			func(h []v1alpha1.RunSummary) { h[1].Trigger = state.TriggerNodesChanged }, unknown},
		"the group's falls": {testkit.PastRuns(300, 300, 300),
			func(h []v1alpha1.RunSummary) { overNodes(h, 200, 300, 400) }, falling},
		"the group's rises": {testkit.PastRuns(300, 300, 300),
			func(h []v1alpha1.RunSummary) { overNodes(h, 400, 300, 200) }, rising},
		"the group's falls while its nodes rise": {testkit.PastRuns(400, 350, 300),
			func(h []v1alpha1.RunSummary) { overNodes(h, 200, 300, 400) }, falling},
		"the group's is known alone": {testkit.PastRuns(0, 0, 0),
			func(h []v1alpha1.RunSummary) { overNodes(h, 300, 300, 300) }, stable},
		"the group's on fewer nodes": {testkit.PastRuns(300, 300, 300), func(h []v1alpha1.RunSummary) {
			overNodes(h, 200, 300, 400)
			h[1].GroupNodes = 7
		}, stable},
		"no key": {testkit.PastRuns(300, 300, 300), func(h []v1alpha1.RunSummary) { h[0].BaselineKey = "" }, unknown},
	} {
		if tc.change != nil {
			tc.change(tc.history)
		}
		if got := trend(tc.history); got != tc.want {
			t.Errorf("%s: %s, expected %s", name, got, tc.want)
		}
	}
}

// TestHistoryOrder: whatever runs end in whatever order and however often one is told, the history holds each once, the
// newest first, at most ten, and never loses the newest.
func TestHistoryOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var history []v1alpha1.RunSummary
		newest := int64(0)
		for range 60 {
			number := max(1, newest+int64(rng.IntN(5))-2) // also old ones, and the same again
			one := v1alpha1.RunSummary{ID: fmt.Sprintf("%d-%d", 1+rng.IntN(3), number),
				GPUMinutes: int64(rng.IntN(100))}
			before := history
			history = with(history, one)
			if number > newest {
				newest = number
				if history[0] != one {
					t.Fatalf("seed %d: the newest run %s is not first: %+v", seed, one.ID, history)
				}
				for i := 1; i < len(history); i++ {
					if history[i] != before[i-1] {
						t.Fatalf("seed %d: entry %d changed", seed, i)
					}
				}
			} else if len(history) != len(before) {
				t.Fatalf("seed %d: run %s was taken in again", seed, one.ID)
			}
			if len(history) > MaxRuns {
				t.Fatalf("seed %d: %d entries", seed, len(history))
			}
			for i := 1; i < len(history); i++ {
				if runs.NumberOf(history[i-1].ID) <= runs.NumberOf(history[i].ID) {
					t.Fatalf("seed %d: not in order: %s before %s", seed, history[i-1].ID, history[i].ID)
				}
			}
		}
	}
}

// TestSpendOnce: a run counts once, and on the day on which it ended.
func TestSpendOnce(t *testing.T) {
	run := func(id string, end time.Time) *v1alpha1.RunSummary {
		return &v1alpha1.RunSummary{ID: id, GPUMinutes: 10, FinishTime: decision.Stamp(end)}
	}
	b := &v1alpha1.BudgetStatus{Day: DayOf(testkit.Now), LastRunID: "1-4"}
	spend(b, run("1-4", testkit.Now))
	spend(b, run("1-5", testkit.Now))
	spend(b, run("1-5", testkit.Now))
	spend(b, run("1-3", testkit.Now))
	spend(b, &v1alpha1.RunSummary{ID: "1-6", GPUMinutes: 10})
	spend(nil, run("1-9", testkit.Now))
	if b.UsedGPUMinutes != 10 || b.LastRunID != "1-5" {
		t.Errorf("%+v", b)
	}
	spend(b, run("2-7", testkit.Now.Add(-24*time.Hour)))
	if b.UsedGPUMinutes != 10 || b.LastRunID != "2-7" {
		t.Errorf("a run of yesterday: %+v", b)
	}
}
