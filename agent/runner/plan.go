package runner

import (
	"slices"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// pairProbeMaxBytes bounds the message between two GPUs: large enough to fill a link, small enough that all pairs of
	// a node take well under a second.
	pairProbeMaxBytes   = 16 << 20
	pairProbeWarmup     = 2
	pairProbeIterations = 5
)

// VariantPlan is what each rank has to do in one variant.
type VariantPlan struct {
	Variant rcclx.Variant
	Steps   []rank.Step
}

// Plan turns a run's plan into steps for each variant. Baseline always comes first, since the others are compared with
// it, and ends with the probe of all pairs of GPUs.
func Plan(p api.RunPlan, ranks int) []VariantPlan {
	variants := []rcclx.Variant{rcclx.Baseline}
	for _, v := range p.Variants {
		if v := rcclx.Variant(v); !slices.Contains(variants, v) {
			variants = append(variants, v)
		}
	}
	out := make([]VariantPlan, 0, len(variants))
	for _, v := range variants {
		var steps []rank.Step
		for _, c := range p.Collectives {
			for _, d := range p.Datatypes {
				steps = append(steps, rank.Step{
					Kind: rank.StepMeasure, Collective: rcclx.Collective(c), Datatype: rcclx.Datatype(d),
					SizesBytes:       slices.Clone(p.SizesBytes),
					WarmupIterations: int(p.WarmupIterations), Iterations: int(p.Iterations),
				})
			}
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
		sc.Collectives = append(sc.Collectives, rcclx.Collective(c))
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
func groupSpecs(node string, p api.RunPlan, v VariantPlan, devices []int, pci []string, initDeadline, stepDeadline time.Duration) []rank.Spec {
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
