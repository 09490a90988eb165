package controllers

import (
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// Defaults of fields that are pointers so that zero can be said; the CRD sets the same ones.
const (
	defaultWarmupIterations       = 10
	defaultNodeMinPercentOfMedian = 80
	defaultLinkMinPercent         = 70
)

// planFor turns the spec into what one node has to do.
func planFor(spec *v1alpha1.CommGroupSpec) v1alpha1.RunPlan {
	b := &spec.Benchmark
	return v1alpha1.RunPlan{
		Variants:            planVariants(spec),
		Collectives:         slices.Clone(b.Collectives),
		Datatypes:           slices.Clone(b.Datatypes),
		SizesBytes:          rcclx.Sizes(b.MinSizeBytes, b.MaxSizeBytes, int(b.SizeFactor)),
		WarmupIterations:    ptr.Deref(b.WarmupIterations, defaultWarmupIterations),
		Iterations:          b.Iterations,
		DDA:                 *spec.DDA.DeepCopy(),
		LowPrecision:        *spec.LowPrecision.DeepCopy(),
		Env:                 slices.Clone(spec.Runtime.Env),
		LibraryPath:         spec.Runtime.LibraryPath,
		InitDeadlineSeconds: spec.Run.InitDeadlineSeconds,
		StepDeadlineSeconds: spec.Run.StepDeadlineSeconds,
		RunDeadlineSeconds:  agentDeadlineSeconds(spec.Run.NodeDeadlineSeconds),
		LinkMinPercent:      ptr.Deref(b.LinkMinPercent, defaultLinkMinPercent),
		Thresholds:          slices.Clone(b.Thresholds),
	}
}

// planVariants puts Baseline first and leaves out the variants whose setting is Disabled.
func planVariants(spec *v1alpha1.CommGroupSpec) []v1alpha1.Variant {
	variants := []v1alpha1.Variant{v1alpha1.VariantBaseline}
	if spec.DDA.Mode != v1alpha1.FeatureDisabled && slices.Contains(spec.Benchmark.Variants, v1alpha1.VariantDDA) {
		variants = append(variants, v1alpha1.VariantDDA)
	}
	if spec.LowPrecision.Mode != v1alpha1.FeatureDisabled && slices.Contains(spec.Benchmark.Variants, v1alpha1.VariantLowPrecision) {
		variants = append(variants, v1alpha1.VariantLowPrecision)
	}
	return variants
}

// agentDeadlineSeconds leaves the agent a tenth of the node's time, at most 30 s, to end its ranks and report before
// the controller gives up on it.
func agentDeadlineSeconds(nodeDeadlineSeconds int32) int32 {
	return nodeDeadlineSeconds - min(30, max(1, nodeDeadlineSeconds/10))
}
