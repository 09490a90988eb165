package nodefacts

import (
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestHealthInEffectKeepsTheBudget: whatever the spec asks for, the monitors write no more than the budget, and the defaults are in
// effect as they are up to 16,384 members.
func TestHealthInEffectKeepsTheBudget(t *testing.T) {
	for _, members := range []int{1, 2, 8, 959, 960, 961, 1024, 1025, 4096, 12_500, 16_384, 16_385, 100_000} {
		got := HealthInEffect(v1alpha1.HealthSpec{IntervalSeconds: 5, ReportValidSeconds: 30}, members)
		steady, burst := 2*float64(members)/float64(got.ReportValidSeconds), float64(members)/float64(got.IntervalSeconds)
		if steady > steadyWritesPerSecond || burst > burstWritesPerSecond {
			t.Errorf("%d members: %+v is %.0f reports/s and %.0f changes/s", members, got, steady, burst)
		}
		if usual := (v1alpha1.HealthSpec{IntervalSeconds: 30, ReportValidSeconds: 600}); members <= 16_384 && HealthInEffect(usual, members) != usual {
			t.Errorf("%d members: the defaults become %+v", members, HealthInEffect(usual, members))
		}
	}
	for members, want := range map[int]v1alpha1.HealthSpec{
		0:      {IntervalSeconds: 5, ReportValidSeconds: 30},
		100:    {IntervalSeconds: 5, ReportValidSeconds: 30},
		1024:   {IntervalSeconds: 5, ReportValidSeconds: 32},
		12_500: {IntervalSeconds: 16, ReportValidSeconds: 512},
	} {
		if got := HealthInEffect(v1alpha1.HealthSpec{IntervalSeconds: 5, ReportValidSeconds: 30}, members); got != want {
			t.Errorf("%d members: %+v, want %+v", members, got, want)
		}
	}
}
