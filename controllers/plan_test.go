package controllers

import (
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestSpecHash: everything that a measurement depends on changes the hash, nothing else does.
func TestSpecHash(t *testing.T) {
	base := specHash(&testGroup().Spec)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CommGroupSpec)
		other  bool
	}{
		"nothing":     {func(*v1alpha1.CommGroupSpec) {}, false},
		"publish":     {func(s *v1alpha1.CommGroupSpec) { s.Publish.ConfigMapName = "other" }, false},
		"gating":      {func(s *v1alpha1.CommGroupSpec) { s.Gating.Mode = v1alpha1.GatingDryRun }, false},
		"health":      {func(s *v1alpha1.CommGroupSpec) { s.Health.ReportValidSeconds = 77 }, false},
		"schedule":    {func(s *v1alpha1.CommGroupSpec) { s.Run.Schedule = "@daily" }, false},
		"parallelism": {func(s *v1alpha1.CommGroupSpec) { s.Run.MaxParallelNodes = 3 }, false},
		"suspension":  {func(s *v1alpha1.CommGroupSpec) { s.Run.State = v1alpha1.RunSuspended }, false},
		"image":       {func(s *v1alpha1.CommGroupSpec) { s.Runtime.Image = "other:1" }, true},
		"library":     {func(s *v1alpha1.CommGroupSpec) { s.Runtime.LibraryPath = "/opt/x.so" }, true},
		"variable": {func(s *v1alpha1.CommGroupSpec) {
			s.Runtime.Env = []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}}
		}, true},
		"DDA":           {func(s *v1alpha1.CommGroupSpec) { s.DDA.Mode = v1alpha1.FeatureRequired }, true},
		"low precision": {func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.MaxRelativeErrorPPM = 5 }, true},
		"sizes":         {func(s *v1alpha1.CommGroupSpec) { s.Benchmark.MaxSizeBytes = 1 << 30 }, true},
		"ranks":         {func(s *v1alpha1.CommGroupSpec) { s.RanksPerNode = 4 }, true},
		"deadline":      {func(s *v1alpha1.CommGroupSpec) { s.Run.StepDeadlineSeconds = 9 }, true},
	} {
		spec := testGroup().Spec.DeepCopy()
		tc.change(spec)
		if got := specHash(spec) != base; got != tc.other {
			t.Errorf("%s: hash differs: %v, expected %v", name, got, tc.other)
		}
	}
}
