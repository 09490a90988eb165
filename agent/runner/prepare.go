package runner

import (
	"context"
	"slices"
	"time"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// Preparation is what must be known and hold before the first communicator of a group over several nodes is formed.
type Preparation struct {
	// RunID that the node's GPUs are locked for.
	RunID string
	// Ranks on this node; Nodes that the group reaches over.
	Ranks, Nodes int
	// Env are the group's own variables, then those of the network, which win.
	Env []api.EnvVar
	// LibraryPath to load; empty means librccl.so.1 by the loader's search.
	LibraryPath string
	// InitDeadline bounds the loading of the library, Deadline everything.
	InitDeadline time.Duration
	Deadline     time.Time
}

// Prepared is a node that can take part.
type Prepared struct {
	// Library that the ranks load.
	Library *rcclx.LibraryInfo
	// PCI addresses by GPU ordinal.
	PCI []string
	// Preconditions as they were found, those that hold too.
	Preconditions []preflight.Finding
	// Release gives the GPUs' lock back; never nil.
	Release func()
}

// Prepare looks at the node, loads the library once on each GPU and locks the GPUs, as a run does. Release is to be called
// with a failure, too.
func (r *Runner) Prepare(ctx context.Context, p Preparation) (Prepared, *supervise.Failure) {
	plan := api.RunPlan{Env: slices.Clone(p.Env), LibraryPath: p.LibraryPath, DDA: api.DDASpec{Mode: api.FeatureDisabled},
		LowPrecision:        api.LowPrecisionSpec{Mode: api.FeatureDisabled},
		InitDeadlineSeconds: int32(p.InitDeadline / time.Second), StepDeadlineSeconds: int32(p.InitDeadline / time.Second)}
	x := &execution{Runner: r, base: api.NodeRunStatus{ID: p.RunID}, plan: plan, ranks: p.Ranks, nodes: p.Nodes, runDeadline: p.Deadline}
	e := Evidence{Node: r.Config.Node, Plan: plan, Ranks: p.Ranks, PCI: make([]string, p.Ranks)}
	out := Prepared{Release: func() {}}
	if f := x.precheck(ctx, &e); f != nil {
		return out, f
	}
	probed, f := x.probe(ctx, &e)
	if f != nil {
		return out, f
	}
	out.Release, f = x.lock(&e, probed)
	out.Library, out.PCI, out.Preconditions = e.Library, e.PCI, e.Preconditions
	return out, f
}

// BaselineEnvironment is the whole environment of ranks in Baseline settings, with the variables of env, of which later ones
// win.
func BaselineEnvironment(environ []string, lib rcclx.LibraryInfo, env []api.EnvVar, node string) []string {
	off := rcclx.Settings{DDA: rcclx.DDASettings{Mode: rcclx.ModeDisabled}, LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.ModeDisabled}}
	for _, e := range env {
		off.Env = append(off.Env, rcclx.EnvVar{Name: e.Name, Value: e.Value})
	}
	return supervise.RankEnvironment(environ, rcclx.Environment(lib.Gates(), rcclx.Baseline, off), node)
}

// LibraryFacts are what the API says of a library; nil where none was loaded.
func LibraryFacts(lib *rcclx.LibraryInfo) *api.LibraryFacts { return libraryFacts(lib) }
