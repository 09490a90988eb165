package testkit

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/state"
)

// PastRuns are runs of one baseline key, the newest first, with these bandwidths in MB/s; zero: not measured.
func PastRuns(mbps ...int64) []v1alpha1.RunSummary {
	out := make([]v1alpha1.RunSummary, len(mbps))
	for i, v := range mbps {
		number := len(mbps) - i
		out[i] = v1alpha1.RunSummary{ID: fmt.Sprintf("1-%d", number), Trigger: state.TriggerScheduled,
			Verdict: v1alpha1.VerdictPass, Members: "4/4", BaselineKey: "ROCm 7", Headline: "AllReduce", GPUMinutes: 40,
			FinishTime: decision.Stamp(Now.Add(-time.Duration(i+1) * 24 * time.Hour))}
		if v > 0 {
			out[i].BusBandwidthMBps = &v
		}
	}
	return out
}
