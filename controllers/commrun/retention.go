package commrun

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
)

// MaxKeptPods bounds the ended pods of one group that are kept for their logs.
const MaxKeptPods = 16

// withoutKept takes out of the pods to delete those whose logs tell why the present run failed: pods that ended by
// themselves, on nodes with a bad result, or of a group's stage with one. An ended pod holds no GPUs, and no run waits
// for it. They go when the next run begins, since they are of no present run then, and with the group.
func withoutKept(remove []string, state *runState, outcomes []judge.Outcome, in Input) []string {
	run := state.run
	if run == nil || run.Phase == v1alpha1.RunPhaseAborted || len(remove) == 0 {
		return remove
	}
	going := make(map[string]bool, len(remove))
	for _, name := range remove {
		going[name] = true
	}
	bad, culprit := map[string]bool{}, map[string]bool{}
	for i := range outcomes {
		if judge.Bad(outcomes[i].Verdict) {
			bad[outcomes[i].Node] = true
		}
	}
	stage := false
	if span := state.span.Span; span != nil {
		stage = span.Stage != v1alpha1.StageEnded || judge.Bad(span.Verdict) // of a stage at work it is not known yet
		for i := range span.Culprits {
			for _, name := range span.Culprits[i].Nodes() {
				culprit[name] = true
			}
		}
	}
	type candidate struct {
		name  string
		class int // the lowest are kept first
	}
	var kept []candidate
	collect := func(pods map[string][]*corev1.Pod, class func(node string) (int, bool)) {
		for _, node := range slices.Sorted(maps.Keys(pods)) {
			pod := podstate.OfRun(pods[node], run.ID)
			if pod == nil || podstate.Alive(pod) || !going[pod.Name] {
				continue
			}
			if class, wanted := class(node); wanted {
				kept = append(kept, candidate{pod.Name, class})
			}
		}
	}
	collect(in.Pods, func(node string) (int, bool) {
		// A bad result that went stale, as by a reboot, still has its log until the node runs again.
		ct := in.CommTasks[node]
		return 1, bad[node] || runs.Assigned(ct, run.ID) && judge.BadResult(ct.Spec.Run, runs.FinishedReport(ct))
	})
	collect(in.GroupPods, func(node string) (int, bool) {
		if culprit[node] {
			return 0, stage
		}
		return 2, stage
	})
	slices.SortStableFunc(kept, func(a, b candidate) int { return cmp.Compare(a.class, b.class) })
	for _, c := range kept[:min(len(kept), MaxKeptPods)] {
		going[c.name] = false
	}
	return slices.DeleteFunc(remove, func(name string) bool { return !going[name] })
}
