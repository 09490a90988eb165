package runplan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// Defaults of fields that are pointers so that zero can be said; the CRD sets the same ones.
const (
	DefaultWarmupIterations       = 10
	DefaultNodeMinPercentOfMedian = 80
	defaultLinkMinPercent         = 70
	// defaultSizeFactor holds where neither factor nor step is set; the API leaves both out, since they exclude each
	// other.
	defaultSizeFactor = 4
	// maxSizes of a plan; the API refuses a step that gives more.
	maxSizes = 40
)

// For turns the spec into what one node has to do.
func For(spec *v1alpha1.CommGroupSpec) v1alpha1.RunPlan {
	b := &spec.Benchmark
	return v1alpha1.RunPlan{
		Variants:            variants(spec),
		Collectives:         slices.Clone(b.Collectives),
		Datatypes:           slices.Clone(b.Datatypes),
		Placements:          Placements(b.Placements),
		SizesBytes:          Sizes(b),
		WarmupIterations:    ptr.Deref(b.WarmupIterations, DefaultWarmupIterations),
		Iterations:          b.Iterations,
		DDA:                 *spec.DDA.DeepCopy(),
		LowPrecision:        *spec.LowPrecision.DeepCopy(),
		Env:                 spec.OwnVariables(),
		LibraryPath:         spec.Runtime.LibraryPath,
		InitDeadlineSeconds: spec.Run.InitDeadlineSeconds,
		StepDeadlineSeconds: spec.Run.StepDeadlineSeconds,
		RunDeadlineSeconds:  agentDeadlineSeconds(spec.Run.NodeDeadlineSeconds),
		LinkMinPercent:      ptr.Deref(b.LinkMinPercent, defaultLinkMinPercent),
		Thresholds:          ThresholdsOf(b, v1alpha1.SpanNode),
		References:          references(b.References),
		Repeats:             Repeats(b.Repeats),
	}
}

// ThresholdsOf one span: a node's agent judges its own, and the controller those over several nodes.
func ThresholdsOf(b *v1alpha1.BenchmarkSpec, span v1alpha1.Span) []v1alpha1.Threshold {
	var out []v1alpha1.Threshold
	for i := range b.Thresholds {
		if cmp.Or(b.Thresholds[i].Span, v1alpha1.SpanNode) == span {
			out = append(out, b.Thresholds[i])
		}
	}
	return out
}

// references and Repeats leave the usual values out, as plans before there was a choice did: they start no run again.
func references(m v1alpha1.JudgingMode) v1alpha1.JudgingMode {
	if m == v1alpha1.JudgingEnforce {
		return ""
	}
	return m
}

// Repeats of each measurement; 0 where it is made once.
func Repeats(n int32) int32 {
	if n <= 1 {
		return 0
	}
	return n
}

// Sizes lists the message sizes, by step or by factor.
func Sizes(b *v1alpha1.BenchmarkSpec) []int64 {
	if b.SizeStepBytes <= 0 {
		return rcclx.Sizes(b.MinSizeBytes, b.MaxSizeBytes, int(cmp.Or(b.SizeFactor, defaultSizeFactor)))
	}
	var sizes []int64
	for size := b.MinSizeBytes; size <= b.MaxSizeBytes && len(sizes) < maxSizes; size += b.SizeStepBytes {
		sizes = append(sizes, size)
	}
	return sizes
}

// Placements leaves the usual placement out, as plans before there was a choice did: it starts no run again.
func Placements(asked []v1alpha1.Placement) []v1alpha1.Placement {
	if !slices.Contains(asked, v1alpha1.InPlace) {
		return nil
	}
	return slices.Clone(asked)
}

// Measurements are the placements and, for each datatype, the sizes at which a plan measures a collective on a node.
func Measurements(plan *v1alpha1.RunPlan, c v1alpha1.Collective, d v1alpha1.Datatype,
	ranks int32) ([]rcclx.Placement, []int64) {
	asked := make([]rcclx.Placement, 0, len(plan.Placements))
	for _, p := range plan.Placements {
		asked = append(asked, rcclx.Placement(p))
	}
	return rcclx.MeasurablePlacements(rcclx.Collective(c), asked),
		rcclx.MeasurableSizes(rcclx.Collective(c), rcclx.Datatype(d), plan.SizesBytes, max(1, int(ranks)))
}

// Baseline is the Baseline measurements of one plan. They are worked out once for all nodes that have as many ranks.
type Baseline struct {
	// Plan is nil where it is not known: nothing is missing then.
	Plan   *v1alpha1.RunPlan
	ranks  int32
	series []baselineSeries
}

type baselineSeries struct {
	key         Key
	first, last int64
}

// of makes it that of a number of ranks.
func (p *Baseline) of(ranks int32) {
	if p.series != nil && p.ranks == ranks {
		return
	}
	p.ranks, p.series = ranks, []baselineSeries{}
	for _, c := range p.Plan.Collectives {
		for _, d := range p.Plan.Datatypes {
			placements, sizes := Measurements(p.Plan, c, d, ranks)
			if len(sizes) == 0 {
				continue
			}
			for _, placement := range placements {
				key := Key{v1alpha1.VariantBaseline, c, d, ShownPlacement(placement)}
				p.series = append(p.series, baselineSeries{key, sizes[0], sizes[len(sizes)-1]})
			}
		}
	}
}

// Missing names the first planned measurement that is not among the results: missing data is never a pass. The agent
// holds every size against the plan before it says Pass, and then leaves sizes between the first and the last out of a
// report that would be too large; so those two are what can be asked for here.
func (p *Baseline) Missing(results []v1alpha1.ResultSeries, ranks int32) string {
	if p.Plan == nil {
		return ""
	}
	p.of(ranks)
	for _, s := range p.series {
		i := slices.IndexFunc(results, func(r v1alpha1.ResultSeries) bool { return KeyOf(&r) == s.key })
		if i < 0 {
			return s.key.Measurement()
		}
		for _, size := range []int64{s.first, s.last} {
			if !slices.Contains(results[i].SizeBytes, size) {
				return fmt.Sprintf("%s at %d B", s.key.Measurement(), size)
			}
		}
	}
	if len(p.series) == 0 {
		return "anything"
	}
	return ""
}

// SpecHash identifies what a run's results depend on: the plan, the runtime and the ranks. What only schedules, gates
// or publishes is left out, so that changing it costs no GPU time. The agents' deadlines are in it: manager and agents
// of one run go by the same ones, and who raises one wants the run that failed by it made again.
func SpecHash(spec *v1alpha1.CommGroupSpec) string {
	parts := struct {
		Plan         v1alpha1.RunPlan
		Runtime      v1alpha1.RuntimeSpec
		RanksPerNode int32
		Span         v1alpha1.Span
		Group        *groupPlan `json:",omitempty"`
		// GroupThresholds start a run as a node's do, so that its verdict is by the thresholds of now.
		GroupThresholds []v1alpha1.Threshold `json:",omitempty"`
	}{For(spec), spec.Runtime, spec.RanksPerNode, spec.Span, groupPlanOf(spec),
		ThresholdsOf(&spec.Benchmark, v1alpha1.SpanGroup)}
	data, err := json.Marshal(parts)
	if err != nil {
		// Plain strings and numbers always encode; were it not so, each generation would count as another spec.
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// groupPlan is what the results over several nodes depend on beside the nodes' own plan.
type groupPlan struct {
	Mesh    []v1alpha1.MeshDimension
	Network v1alpha1.NetworkSpec
}

// groupPlanOf is nil without a group's stage, so that such a group's hash stays what it was before there was one.
func groupPlanOf(spec *v1alpha1.CommGroupSpec) *groupPlan {
	if spec.Span != v1alpha1.SpanGroup {
		return nil
	}
	return &groupPlan{spec.Mesh, spec.Network}
}

// variants puts Baseline first and leaves out the variants whose setting is Disabled.
func variants(spec *v1alpha1.CommGroupSpec) []v1alpha1.Variant {
	variants := []v1alpha1.Variant{v1alpha1.VariantBaseline}
	if spec.DDA.Mode != v1alpha1.FeatureDisabled && slices.Contains(spec.Benchmark.Variants, v1alpha1.VariantDDA) {
		variants = append(variants, v1alpha1.VariantDDA)
	}
	if spec.LowPrecision.Mode != v1alpha1.FeatureDisabled &&
		slices.Contains(spec.Benchmark.Variants, v1alpha1.VariantLowPrecision) {
		variants = append(variants, v1alpha1.VariantLowPrecision)
	}
	return variants
}

// agentDeadlineSeconds leaves the agent a tenth of the node's time, at most 30 s, to end its ranks and report before
// the controller gives up on it.
func agentDeadlineSeconds(nodeDeadlineSeconds int32) int32 {
	return nodeDeadlineSeconds - min(30, max(1, nodeDeadlineSeconds/10))
}
