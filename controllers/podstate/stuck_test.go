package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestStuckIsBounded: however long a pod's grace period is, the wait for its end has a deadline, and FreeAt gives it.
func TestStuckIsBounded(t *testing.T) {
	told := testkit.Now
	for name, tc := range map[string]struct {
		graceSeconds int64
		givenUp      time.Duration // after it was told to end
	}{
		"none":            {0, StuckAfter},
		"short":           {10, StuckAfter + 10*time.Second},
		"as long as that": {300, 2 * StuckAfter},
		"a week":          {7 * 24 * 3600, 2 * StuckAfter},
		"a century":       {100 * 365 * 24 * 3600, 2 * StuckAfter},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp:          ptr.To(metav1.NewTime(told.Add(time.Duration(tc.graceSeconds) * time.Second))),
			DeletionGracePeriodSeconds: ptr.To(tc.graceSeconds)}}
		if Stuck(pod, told.Add(tc.givenUp)) || !Stuck(pod, told.Add(tc.givenUp+time.Second)) {
			t.Errorf("%s: not given up %s after it was told to end", name, tc.givenUp)
		}
		if at := FreeAt([]*corev1.Pod{pod}, told); !at.Equal(told.Add(tc.givenUp + time.Second)) {
			t.Errorf("%s: free after %s, want %s", name, at.Sub(told), tc.givenUp+time.Second)
		}
	}
}
