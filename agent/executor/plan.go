package executor

import (
	"slices"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// pairProbeMaxBytes bounds the message between two GPUs: large enough to fill a link, small enough that all pairs
	// of a node take well under a second.
	pairProbeMaxBytes   = 16 << 20
	pairProbeWarmup     = 2
	pairProbeIterations = 5
)

// VariantPlan is what each rank has to do in one variant.
type VariantPlan struct {
	Variant rcclx.Variant
	Steps   []rank.Step
}

// matrix is what to measure: each collective in each datatype and placement at all sizes.
type matrix struct {
	collectives                  []api.Collective
	datatypes                    []api.Datatype
	placements                   []api.Placement
	sizesBytes                   []int64
	warmupIterations, iterations int32
}

func planMatrix(p api.RunPlan) matrix {
	return matrix{p.Collectives, p.Datatypes, p.Placements, p.SizesBytes, p.WarmupIterations, p.Iterations}
}

func taskMatrix(t api.NodeTask) matrix {
	return matrix{t.Collectives, t.Datatypes, t.Placements, t.SizesBytes, t.WarmupIterations, t.Iterations}
}

// steps measure the matrix over so many ranks, checked with exact data. What a collective does not have, in place or
// at so small a size, is left out.
func (m matrix) steps(ranks int) []rank.Step {
	var out []rank.Step
	for _, c := range m.collectives {
		for _, d := range m.datatypes {
			sizes := rcclx.MeasurableSizes(rcclx.Collective(c), rcclx.Datatype(d), m.sizesBytes, ranks)
			if len(sizes) == 0 {
				continue
			}
			for _, placement := range rcclx.MeasurablePlacements(rcclx.Collective(c), placements(m.placements)) {
				out = append(out, rank.Step{
					Kind: rank.StepMeasure, Collective: rcclx.Collective(c), Datatype: rcclx.Datatype(d),
					Placement:  placement,
					SizesBytes: sizes, WarmupIterations: int(m.warmupIterations), Iterations: int(m.iterations),
					Data: []rcclx.Data{rcclx.DataExact},
				})
			}
		}
	}
	return out
}

// repeatsOf is how often all is measured; absent means once.
func repeatsOf(repeats int32) int { return max(1, int(repeats)) }

// Plan turns a run's plan into steps for each variant. Baseline always comes first, since the others are compared with
// it, and ends with the probe of all pairs of GPUs. LowPrecision ends with counts at which the library is known to lose
// data, in steps of their own.
func Plan(p api.RunPlan, ranks int) []VariantPlan {
	variants := []rcclx.Variant{rcclx.Baseline}
	for _, v := range p.Variants {
		if v := rcclx.Variant(v); !slices.Contains(variants, v) {
			variants = append(variants, v)
		}
	}
	fp8 := slices.Contains(variants, rcclx.LowPrecision)
	measured := planMatrix(p).steps(ranks)
	out := make([]VariantPlan, 0, len(variants))
	for _, v := range variants {
		var steps []rank.Step
		for i, step := range measured {
			if !fp8 || !takesFP8(p, step.Collective, step.Datatype) {
				steps = append(steps, step)
				continue
			}
			// Random data for the first placement only: the rounding is the same in place.
			first := i == 0 || measured[i-1].Collective != step.Collective || measured[i-1].Datatype != step.Datatype
			steps = append(steps, withFP8Data(step, v, first)...)
		}
		if v == rcclx.LowPrecision {
			sc := ScopeOf(p, ranks)
			steps = append(steps, HazardSteps(sc.Collectives, sc.Datatypes, placements(p.Placements), p.SizesBytes,
				SettingsOf(p).LowPrecision, ranks)...)
		}
		if v == rcclx.Baseline && ranks > 1 && len(p.SizesBytes) > 0 {
			steps = append(steps, rank.Step{
				Kind: rank.StepPairProbe, SizesBytes: []int64{min(pairProbeMaxBytes, slices.Max(p.SizesBytes))},
				WarmupIterations: pairProbeWarmup, Iterations: pairProbeIterations,
			})
		}
		out = append(out, VariantPlan{Variant: v, Steps: steps})
	}
	return out
}

// taskSteps are what each rank of a task's communicator has to do: all once, and all again for each repeat.
func taskSteps(t api.NodeTask, worldSize int) []rank.Step {
	return slices.Repeat(taskMatrix(t).steps(worldSize), repeatsOf(t.Repeats))
}

// withFP8Data splits a step of a collective and datatype that FP8 takes by what its sizes are checked with. In
// LowPrecision that is data that FP8 must round, and from its least size on random data as models have it, too.
// Baseline gets gradients at the largest size, so that the datatype's own error stands beside FP8's.
func withFP8Data(step rank.Step, v rcclx.Variant, random bool) []rank.Step {
	sizes := step.SizesBytes
	from, more := len(sizes), step.Data // index of the first size with more data
	switch {
	case v == rcclx.LowPrecision:
		step.Data = []rcclx.Data{rcclx.DataRounding}
		if random {
			from, _ = slices.BinarySearch(sizes, rcclx.LowPrecisionMinBytes)
			more = []rcclx.Data{rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations}
		}
	case v == rcclx.Baseline && random && len(sizes) > 0 && sizes[from-1] >= rcclx.LowPrecisionMinBytes:
		from--
		more = []rcclx.Data{rcclx.DataExact, rcclx.DataGradients}
	}
	var out []rank.Step
	if from > 0 {
		below := step
		below.SizesBytes = sizes[:from]
		out = append(out, below)
	}
	if from < len(sizes) {
		above := step
		above.SizesBytes, above.Data = sizes[from:], more
		out = append(out, above)
	}
	return out
}

// HazardSteps try the counts at which FP8's code loses a tail, once each and in the first placement that a collective
// has, where sizes are measured that FP8 takes. Sizes that are measured anyway are left out.
func HazardSteps(collectives []rcclx.Collective, datatypes []rcclx.Datatype, places []rcclx.Placement,
	sizesBytes []int64, fp8 rcclx.LowPrecisionSettings, ranks int) []rank.Step {
	if len(sizesBytes) == 0 || slices.Max(sizesBytes) < rcclx.LowPrecisionMinBytes {
		return nil
	}
	var out []rank.Step
	for _, c := range collectives {
		measurable := rcclx.MeasurablePlacements(c, places)
		if len(measurable) == 0 || len(fp8.Collectives) > 0 && !slices.Contains(fp8.Collectives, c) {
			continue
		}
		for _, d := range datatypes {
			if !rcclx.KnowsLowPrecision(c, d) {
				continue
			}
			sizes := slices.DeleteFunc(rcclx.HazardSizes(c, d, rcclx.LowPrecisionMinBytes, ranks),
				func(size int64) bool { return slices.Contains(sizesBytes, size) })
			if len(sizes) > 0 {
				out = append(out, rank.Step{Kind: rank.StepMeasure, Collective: c, Datatype: d,
					Placement: measurable[0], Data: []rcclx.Data{rcclx.DataRounding}, SizesBytes: sizes, Iterations: 1})
			}
		}
	}
	return out
}

// takesFP8 says whether FP8 is asked for and exists for a collective and datatype.
func takesFP8(p api.RunPlan, c rcclx.Collective, d rcclx.Datatype) bool {
	asked := len(p.LowPrecision.Collectives) == 0 || slices.Contains(p.LowPrecision.Collectives, string(c))
	return asked && rcclx.KnowsLowPrecision(c, d)
}

func placements(asked []api.Placement) []rcclx.Placement {
	var out []rcclx.Placement
	for _, x := range asked {
		out = append(out, rcclx.Placement(x))
	}
	return out
}

// SettingsOf gives the plan's settings as the library package takes them.
func SettingsOf(p api.RunPlan) rcclx.Settings {
	s := rcclx.Settings{
		DDA: rcclx.DDASettings{Mode: rcclx.Mode(p.DDA.Mode), AllReduceFlatMaxBytes: p.DDA.AllReduceFlatMaxBytes,
			AllReduceTreeMaxBytes: p.DDA.AllReduceTreeMaxBytes},
		LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.Mode(p.LowPrecision.Mode)},
	}
	for _, c := range p.LowPrecision.Collectives {
		s.LowPrecision.Collectives = append(s.LowPrecision.Collectives, rcclx.Collective(c))
	}
	for _, e := range p.Env {
		s.Env = append(s.Env, rcclx.EnvVar{Name: e.Name, Value: e.Value})
	}
	return s
}

// ScopeOf is what the gates are asked about for a plan on one node.
func ScopeOf(p api.RunPlan, ranks int) rcclx.Scope {
	sc := rcclx.Scope{Ranks: ranks, Nodes: 1, SizesBytes: p.SizesBytes}
	for _, c := range p.Collectives {
		if c := rcclx.Collective(c); slices.Contains(rcclx.Collectives(), c) {
			sc.Collectives = append(sc.Collectives, c)
		}
	}
	for _, d := range p.Datatypes {
		sc.Datatypes = append(sc.Datatypes, rcclx.Datatype(d))
	}
	return sc
}

// specs are the specs of a whole node's ranks: rank r on GPU ordinal r, which RCCLX's DDA demands.
func specs(node string, p api.RunPlan, v VariantPlan, pci []string) []rank.Spec {
	devices := make([]int, len(pci))
	for i := range devices {
		devices[i] = i
	}
	return groupSpecs(node, p, v, devices, pci, seconds(p.InitDeadlineSeconds), seconds(p.StepDeadlineSeconds))
}

// groupSpecs are the specs of a communicator over some of the node's GPUs.
func groupSpecs(node string, p api.RunPlan, v VariantPlan, devices []int, pci []string,
	initDeadline, stepDeadline time.Duration) []rank.Spec {
	out := make([]rank.Spec, len(devices))
	for r, d := range devices {
		out[r] = rank.Spec{
			Node: node, Variant: v.Variant, Rank: r, WorldSize: len(devices), Nodes: 1, Device: d, PCIAddress: pci[d],
			LibraryPath: p.LibraryPath, Settings: SettingsOf(p), Steps: v.Steps,
			InitDeadline: initDeadline, StepDeadline: stepDeadline,
		}
	}
	return out
}

func seconds(s int32) time.Duration { return time.Duration(s) * time.Second }
