package runner

import (
	"context"
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

// precheck holds what the node says before any process uses its GPUs against what the run needs.
func (x *execution) precheck(ctx context.Context, e *Evidence) *supervise.Failure {
	x.facts = preflight.Gather(ctx, x.Host, x.Environ)
	if d := x.facts.Discovered; d != nil {
		e.ROCm = &d.ROCm
	}
	return x.precondition(e, preflight.CheckNode(x.facts, x.need(nil)))
}

// lock keeps other runs off the GPUs that the probe found, and then holds what its ranks said against what the run needs.
// release is never nil.
func (x *execution) lock(e *Evidence, ranks []supervise.RankOutcome) (release func(), failure *supervise.Failure) {
	release, held := preflight.Lock(x.Config.LockDir, e.PCI, preflight.Holder{Run: x.base.ID, Start: x.Clock.Now()})
	if held != nil {
		if failure := x.precondition(e, []preflight.Finding{*held}); failure != nil {
			return release, failure
		}
	}
	return release, x.precondition(e, preflight.CheckRanks(x.facts, rankFacts(ranks), x.need(e.Library)))
}

// need is what the run asks of the node. lib is nil before a library was loaded.
func (x *execution) need(lib *rcclx.LibraryInfo) preflight.Need {
	n := preflight.Need{Ranks: x.ranks, Nodes: x.nodes, PodIP: podIP(x.Environ), Environ: supervise.RankEnvironment(x.Environ, SettingsOf(x.plan).Env, x.Config.Node)}
	for _, v := range Plan(x.plan, x.ranks) {
		n.Variants = append(n.Variants, v.Variant)
	}
	if lib != nil {
		n.Flavor, n.Environ = lib.Gates(), x.environment(lib, rcclx.Baseline)
		n.MemoryBytes = memoryNeedBytes(x.plan, lib.Gates(), x.ranks)
	}
	return n
}

// podIP is what the pod's downward API says (status.podIP); empty outside of Kubernetes.
func podIP(environ []string) string {
	for _, kv := range environ {
		if ip, ok := strings.CutPrefix(kv, "POD_IP="); ok {
			return ip
		}
	}
	return ""
}

func rankFacts(ranks []supervise.RankOutcome) []preflight.RankFacts {
	out := make([]preflight.RankFacts, len(ranks))
	for i, r := range ranks {
		out[i] = preflight.RankFacts{Rank: r.Rank, Device: r.Device, ProcessID: r.ProcessID, Library: r.Library}
	}
	return out
}

// precondition keeps and logs what was found, and makes the first that failed the run's failure.
func (x *execution) precondition(e *Evidence, findings []preflight.Finding) *supervise.Failure {
	e.Preconditions = preflight.Join(e.Preconditions, findings)
	for _, f := range findings {
		if f.State == preflight.Met {
			x.Log.Info("precondition", "name", f.Name, "state", f.State, "message", f.Message)
		} else {
			x.Log.Warn("precondition", "name", f.Name, "state", f.State, "rank", f.Rank, "message", f.Advised(audience.Pod))
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
	return &supervise.Failure{Kind: supervise.FailRankError, Rank: failed.Rank, Code: code, Step: "preconditions", Message: fmt.Sprintf("%s: node %s: %s", failed.Name, e.Node, failed.Advised(audience.Pod))}
}

// memoryNeedBytes is the most that a rank of any of the plan's variants allocates on its GPU.
func memoryNeedBytes(p api.RunPlan, gates rcclx.Flavor, ranks int) int64 {
	var need int64
	for _, v := range Plan(p, ranks) {
		need = max(need, rcclx.MemoryNeed(gates, v.Variant, SettingsOf(p), ranks, rank.MemoryCalls(v.Steps)).TotalBytes())
	}
	return need
}
