package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestHistory: a run that was aborted has no verdict, and what was not measured shows no number.
func TestHistory(t *testing.T) {
	start := metav1.NewTime(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC))
	end := metav1.NewTime(start.Add(12 * time.Minute))
	s := &state.Status{
		History: []v1alpha1.RunSummary{
			{ID: "2-8", Trigger: "Scheduled", Verdict: v1alpha1.VerdictFail, Reason: "SlowNode", StartTime: start,
				FinishTime: &end, Members: "15/16", GPUMinutes: 640, BusBandwidthMBps: ptr.To(int64(301_000)),
				GroupBusBandwidthMBps: ptr.To(int64(48_000)), Culprit: "node-a"},
			{ID: "2-7", Trigger: "SpecChanged", Reason: "Superseded", StartTime: start},
		},
		Trend:  v1alpha1.TrendStable,
		Budget: &v1alpha1.BudgetStatus{Day: "2026-03-01", UsedGPUMinutes: 640, LimitGPUMinutes: 2000},
	}
	var b bytes.Buffer
	if err := History(&b, s); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"RUN  TRIGGER      VERDICT  REASON      STARTED               TOOK   MEMBERS  GPU-MINUTES  BUS GB/s  " +
			"GROUP GB/s  CULPRIT",
		"2-8  Scheduled    Fail     SlowNode    2026-03-01 03:00 UTC  12m0s  15/16    640          301.0     " +
			"48.0        node-a",
		"2-7  SpecChanged  aborted  Superseded  2026-03-01 03:00 UTC  -      -        0            " +
			"-         -           -",
		"  trend of the bus bandwidth under the present baseline: Stable",
		"  budget of 2026-03-01 (UTC): 640 of 2000 GPU-minutes used by runs that are over",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
