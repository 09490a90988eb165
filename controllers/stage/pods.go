package stage

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
)

// planPods makes the pods that are missing while members are waited for, and deletes those that the stage needs no
// longer.
func (g *members) planPods() {
	if g.saved != nil && g.saved.Stage == v1alpha1.StageWaitingForMembers &&
		g.span.Stage == v1alpha1.StageWaitingForMembers {
		for _, s := range g.present() {
			if s.session != nil && s.pod == nil && !g.held(s.name) {
				g.out.CreatePodsOn = append(g.out.CreatePodsOn, s.name)
			}
		}
	}
	needed, leaving := make(map[string]bool, len(g.participants)), make(map[string]bool, len(g.participants))
	for _, s := range g.participants {
		switch {
		case s == nil || s.pod == nil:
		case g.letGo(s):
			leaving[s.pod.Name] = true
		default:
			needed[s.pod.Name] = true
		}
	}
	g.deletePods(func(pod *corev1.Pod) bool {
		return needed[pod.Name] || leaving[pod.Name] && g.endsByItself(pod)
	})
}

// endsByItself says whether a pod whose session has just ended still has time to end by itself, and so to leave its
// log: all have at the stage's end, and members that are let go from the begin of the next part of the stage, which
// follows.
func (g *members) endsByItself(pod *corev1.Pod) bool {
	if g.in.Run.Phase == v1alpha1.RunPhaseAborted || !podstate.Alive(pod) || podstate.RanksStarted(pod).IsZero() ||
		g.span.StageStartTime == nil {
		return false
	}
	end := g.span.StageStartTime.Add(podstate.ExitGrace)
	if !g.in.Now.Before(end) {
		return false
	}
	g.wake(end)
	return true
}

// held says whether another run's pod still holds the node's GPUs.
func (g *members) held(node string) bool {
	at := podstate.FreeAt(g.in.Pods[node], g.in.Now)
	if !at.After(g.in.Now) {
		return false
	}
	g.wake(at)
	return true
}

func (g *members) deletePods(needed func(*corev1.Pod) bool) {
	for _, node := range slices.Sorted(maps.Keys(g.in.Pods)) {
		for _, pod := range g.in.Pods[node] {
			if pod.DeletionTimestamp.IsZero() && !needed(pod) {
				g.out.DeletePods = append(g.out.DeletePods, pod.Name)
			}
		}
	}
}

// PodSeconds bounds a pod of the stage should no manager be there to end it: every wait of the stage, one after the
// other.
func PodSeconds(spec *v1alpha1.CommGroupSpec) int64 {
	task := int64(taskLimit(spec, spec.Run.NodeDeadlineSeconds) / time.Second)
	return int64(spec.Run.MembersDeadlineSeconds) + int64(localizationDeadlineSeconds(spec)) +
		task*int64(3+len(spec.Mesh)) + podstate.SlackSeconds
}
