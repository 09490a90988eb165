package runplan

import (
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestPlan(t *testing.T) {
	g := testkit.Group()
	if got := variants(&g.Spec); !slices.Equal(got, []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA}) {
		t.Errorf("FP8 is Disabled, the variants are %v", got)
	}
	g.Spec.LowPrecision.Mode = v1alpha1.FeatureRequired
	g.Spec.DDA.Mode = v1alpha1.FeatureDisabled
	g.Spec.Benchmark.Variants = []v1alpha1.Variant{v1alpha1.VariantLowPrecision}
	if got := variants(&g.Spec); !slices.Equal(got,
		[]v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantLowPrecision}) {
		t.Errorf("variants %v, Baseline always comes first", got)
	}
	p := For(&g.Spec)
	if !slices.Equal(p.SizesBytes, []int64{1024, 4096, 16384, 65536, 262144, 1048576}) {
		t.Errorf("sizes %v", p.SizesBytes)
	}
	for nodeDeadline, want := range map[int32]int32{10: 9, 100: 90, 1800: 1770} {
		if got := agentDeadlineSeconds(nodeDeadline); got != want {
			t.Errorf("of %d s the agent gets %d s, expected %d s", nodeDeadline, got, want)
		}
	}
}

// TestSpecHash: everything that a measurement depends on changes the hash, nothing else does.
func TestSpecHash(t *testing.T) {
	base := SpecHash(&testkit.Group().Spec)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CommGroupSpec)
		other  bool
	}{
		"nothing":     {func(*v1alpha1.CommGroupSpec) {}, false},
		"publish":     {func(s *v1alpha1.CommGroupSpec) { s.Publish.ConfigMapName = "other" }, false},
		"gating":      {func(s *v1alpha1.CommGroupSpec) { s.Gating.Mode = v1alpha1.GatingDryRun }, false},
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
		"step": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.SizeFactor, s.Benchmark.SizeStepBytes = 0, 1<<18
		}, true},
		"default factor": {func(s *v1alpha1.CommGroupSpec) { s.Benchmark.SizeFactor = 0 }, false},
		"in place": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.Placements = []v1alpha1.Placement{v1alpha1.OutOfPlace, v1alpha1.InPlace}
		}, true},
		"out of place": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.Placements = []v1alpha1.Placement{v1alpha1.OutOfPlace}
		}, false},
		"job counts": {func(s *v1alpha1.CommGroupSpec) { s.Publish.JobCounts = v1alpha1.JobCountsPadded }, false},
		"deadline":   {func(s *v1alpha1.CommGroupSpec) { s.Run.StepDeadlineSeconds = 9 }, true},
		"threshold": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.Thresholds = []v1alpha1.Threshold{{SizeBytes: 1}}
		}, true},
		"group threshold": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.Thresholds = []v1alpha1.Threshold{{Span: v1alpha1.SpanGroup, SizeBytes: 1}}
		}, true},
		"default references": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.References = v1alpha1.JudgingEnforce
		}, false},
		"references reported": {func(s *v1alpha1.CommGroupSpec) {
			s.Benchmark.References = v1alpha1.JudgingReport
		}, true},
		"one repeat": {func(s *v1alpha1.CommGroupSpec) { s.Benchmark.Repeats = 1 }, false},
		"repeats":    {func(s *v1alpha1.CommGroupSpec) { s.Benchmark.Repeats = 3 }, true},
		"regression": {func(s *v1alpha1.CommGroupSpec) { s.Benchmark.Regression.Mode = v1alpha1.JudgingEnforce },
			false},
	} {
		spec := testkit.Group().Spec.DeepCopy()
		tc.change(spec)
		if got := SpecHash(spec) != base; got != tc.other {
			t.Errorf("%s: hash differs: %v, expected %v", name, got, tc.other)
		}
	}
}

func TestPlanSizes(t *testing.T) {
	for name, tc := range map[string]struct {
		b    v1alpha1.BenchmarkSpec
		want []int64
	}{
		"factor": {v1alpha1.BenchmarkSpec{MinSizeBytes: 8, MaxSizeBytes: 100, SizeFactor: 3},
			[]int64{8, 24, 72}},
		"default factor": {v1alpha1.BenchmarkSpec{MinSizeBytes: 8, MaxSizeBytes: 128}, []int64{8, 32, 128}},
		"step": {v1alpha1.BenchmarkSpec{MinSizeBytes: 10, MaxSizeBytes: 35, SizeStepBytes: 10},
			[]int64{10, 20, 30}},
		"large step": {v1alpha1.BenchmarkSpec{MinSizeBytes: 10, MaxSizeBytes: 35, SizeStepBytes: 100}, []int64{10}},
	} {
		if got := Sizes(&tc.b); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, expected %v", name, got, tc.want)
		}
	}
	// However small the step, a plan stays within what a CommTask takes.
	if got := Sizes(&v1alpha1.BenchmarkSpec{MinSizeBytes: 8, MaxSizeBytes: 1 << 34,
		SizeStepBytes: 1}); len(got) != maxSizes {
		t.Errorf("%d sizes, expected %d", len(got), maxSizes)
	}
}

// TestMissingBaseline: each placement and each size that a collective has must be there; those that it has not are not
// missed.
func TestMissingBaseline(t *testing.T) {
	plan := &v1alpha1.RunPlan{Collectives: []v1alpha1.Collective{v1alpha1.AllGather, v1alpha1.AllToAll},
		Datatypes:  []v1alpha1.Datatype{v1alpha1.BFloat16},
		Placements: []v1alpha1.Placement{v1alpha1.OutOfPlace, v1alpha1.InPlace}, SizesBytes: []int64{8, 16, 64}}
	of := func(c v1alpha1.Collective, p v1alpha1.Placement, sizes ...int64) v1alpha1.ResultSeries {
		return v1alpha1.ResultSeries{Variant: v1alpha1.VariantBaseline, Collective: c, Datatype: v1alpha1.BFloat16,
			Placement: p, SizeBytes: sizes}
	}
	// 8 B leave eight ranks without an element each.
	all := []v1alpha1.ResultSeries{of(v1alpha1.AllGather, "", 16, 64), of(v1alpha1.AllGather, v1alpha1.InPlace, 16, 64),
		of(v1alpha1.AllToAll, v1alpha1.OutOfPlace, 16, 64)}
	for name, tc := range map[string]struct {
		plan    *v1alpha1.RunPlan
		results []v1alpha1.ResultSeries
		want    string
	}{
		"all there": {plan, all, ""},
		"in place":  {plan, []v1alpha1.ResultSeries{all[0], all[2]}, "AllGather BFloat16 in place"},
		"largest size": {plan, []v1alpha1.ResultSeries{all[0], all[1], of(v1alpha1.AllToAll, "", 16)},
			"AllToAll BFloat16 at 64 B"},
		"nothing planned": {&v1alpha1.RunPlan{Collectives: plan.Collectives[1:], Datatypes: plan.Datatypes,
			Placements: plan.Placements[1:], SizesBytes: plan.SizesBytes}, nil, "anything"},
	} {
		if got := (&Baseline{Plan: tc.plan}).Missing(tc.results, 8); got != tc.want {
			t.Errorf("%s: %q, expected %q", name, got, tc.want)
		}
	}
}
