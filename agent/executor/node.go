package executor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

// Node is the machine that a task is carried out on, and the way to its ranks.
type Node struct {
	Name  string
	Host  preflight.Host
	Teams supervise.TeamRunner
	// LockDir is where runs on this machine keep each other off their GPUs (preflight.Lock).
	LockDir string
	Clock   clock.Clock
	// Environ is the pod's environment, as os.Environ gives it.
	Environ []string
	Log     *slog.Logger
}

// podIP is what the pod's downward API says (status.podIP); empty outside of Kubernetes.
func (n Node) podIP() string {
	for _, kv := range n.Environ {
		if ip, ok := strings.CutPrefix(kv, "POD_IP="); ok {
			return ip
		}
	}
	return ""
}

// rankEnvironment is the whole environment of a variant's ranks.
func (n Node) rankEnvironment(p api.RunPlan, lib rcclx.LibraryInfo, v rcclx.Variant) []string {
	return supervise.RankEnvironment(n.Environ, rcclx.Environment(lib.Gates(), v, SettingsOf(p)), n.Name)
}

// Preparation is what must be known and hold before the first communicator is formed.
type Preparation struct {
	// RunID that the node's GPUs are locked for.
	RunID string
	// Ranks on this node; Nodes that the communicators reach over.
	Ranks, Nodes int
	// Plan of which the variants, their settings and sizes, the library and the deadlines count.
	Plan api.RunPlan
	// Deadline of everything.
	Deadline time.Time
}

// Prepared is what is known of a node that can take part, or of one that cannot, as far as it came.
type Prepared struct {
	// Discovered of the machine before any rank was started; nil where it could not be looked at.
	Discovered *discover.Facts
	// Library that the ranks load; nil where none was loaded.
	Library *rcclx.LibraryInfo
	// PCI addresses by GPU ordinal; empty strings where unknown.
	PCI []string
	// Preconditions as they were found, those that hold too.
	Preconditions []preflight.Finding
	// Release gives the GPUs' lock back; never nil.
	Release func()
}

// Prepare looks at the node, loads the library once on each GPU and locks the GPUs. Release is to be called with a
// failure, too.
func (n Node) Prepare(ctx context.Context, p Preparation) (Prepared, *supervise.Failure) {
	out := Prepared{PCI: make([]string, p.Ranks), Release: func() {}}
	// What the node says before any process uses its GPUs.
	facts := preflight.Gather(ctx, n.Host, n.Environ)
	out.Discovered = facts.Discovered
	if f := n.precondition(&out, preflight.CheckNode(facts, n.need(p, nil))); f != nil {
		return out, f
	}
	ranks, f := n.probe(ctx, p, &out)
	if f != nil {
		return out, f
	}
	release, held := preflight.Lock(n.LockDir, out.PCI, preflight.Holder{Run: p.RunID, Start: n.Clock.Now()})
	out.Release = release
	if held != nil {
		if f := n.precondition(&out, []preflight.Finding{*held}); f != nil {
			return out, f
		}
	}
	return out, n.precondition(&out, preflight.CheckRanks(facts, rankFacts(ranks), n.need(p, out.Library)))
}

// probe starts one process on each GPU that only loads the library: what it says decides the environment of all others.
func (n Node) probe(ctx context.Context, p Preparation, out *Prepared) ([]supervise.RankOutcome, *supervise.Failure) {
	team := supervise.Team{Node: n.Name, Name: "probe", RunDeadline: p.Deadline,
		Env: supervise.RankEnvironment(n.Environ, SettingsOf(p.Plan).Env, n.Name)}
	for i := range p.Ranks {
		team.Specs = append(team.Specs, rank.Spec{
			Node: n.Name, Variant: rcclx.Baseline, Rank: i, WorldSize: 0, Nodes: 1, Device: i,
			LibraryPath:  p.Plan.LibraryPath,
			InitDeadline: seconds(p.Plan.InitDeadlineSeconds), StepDeadline: seconds(p.Plan.StepDeadlineSeconds),
		})
	}
	o := n.Teams.Run(ctx, team)
	for i, r := range o.Ranks {
		if r.Library != nil {
			out.PCI[i] = r.PCIAddress
			if out.Library == nil {
				out.Library = r.Library
			}
		}
	}
	return o.Ranks, o.Failure
}

// need is what the work asks of the node. lib is nil before a library was loaded.
func (n Node) need(p Preparation, lib *rcclx.LibraryInfo) preflight.Need {
	need := preflight.Need{Ranks: p.Ranks, Nodes: p.Nodes, PodIP: n.podIP(),
		Environ: supervise.RankEnvironment(n.Environ, SettingsOf(p.Plan).Env, n.Name)}
	for _, v := range Plan(p.Plan, p.Ranks) {
		need.Variants = append(need.Variants, v.Variant)
	}
	if lib != nil {
		need.Flavor, need.Environ = lib.Gates(), n.rankEnvironment(p.Plan, *lib, rcclx.Baseline)
		need.MemoryBytes = memoryNeedBytes(p.Plan, lib.Gates(), p.Ranks)
	}
	return need
}

// precondition keeps and logs what was found, and makes the first that failed a failure.
func (n Node) precondition(out *Prepared, findings []preflight.Finding) *supervise.Failure {
	out.Preconditions = preflight.Join(out.Preconditions, findings)
	for _, f := range findings {
		if f.State == preflight.Met {
			n.Log.Info("precondition", "name", f.Name, "state", f.State, "message", f.Message)
		} else {
			n.Log.Warn("precondition", "name", f.Name, "state", f.State, "rank", f.Rank,
				"message", f.Advised(audience.Pod))
		}
	}
	failed := preflight.FirstFailed(findings)
	if failed == nil {
		return nil
	}
	code := rank.CodePreconditionFailed
	if failed.Name == preflight.GPUMemory {
		code = rank.CodeInsufficientMemory
	}
	return &supervise.Failure{Kind: supervise.FailRankError, Rank: failed.Rank, Code: code, Step: "preconditions",
		Message: fmt.Sprintf("%s: node %s: %s", failed.Name, n.Name, failed.Advised(audience.Pod))}
}

func rankFacts(ranks []supervise.RankOutcome) []preflight.RankFacts {
	out := make([]preflight.RankFacts, len(ranks))
	for i, r := range ranks {
		out[i] = preflight.RankFacts{Rank: r.Rank, Device: r.Device, ProcessID: r.ProcessID, Library: r.Library}
	}
	return out
}

// memoryNeedBytes is the most that a rank of any of the plan's variants allocates on its GPU.
func memoryNeedBytes(p api.RunPlan, gates rcclx.Flavor, ranks int) int64 {
	var need int64
	for _, v := range Plan(p, ranks) {
		need = max(need,
			rcclx.MemoryNeed(gates, v.Variant, SettingsOf(p), ranks, rank.MemoryCalls(v.Steps)).TotalBytes())
	}
	return need
}

// baselinePlan is a plan of ranks in Baseline settings: env are the group's own variables, then those of the network,
// which win.
func baselinePlan(env []api.EnvVar, libraryPath string, initDeadlineSeconds int32) api.RunPlan {
	return api.RunPlan{Env: slices.Clone(env), LibraryPath: libraryPath, DDA: api.DDASpec{Mode: api.FeatureDisabled},
		LowPrecision:        api.LowPrecisionSpec{Mode: api.FeatureDisabled},
		InitDeadlineSeconds: initDeadlineSeconds, StepDeadlineSeconds: initDeadlineSeconds}
}
