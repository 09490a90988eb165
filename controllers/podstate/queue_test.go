package podstate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestTakenAway(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	for name, tc := range map[string]struct {
		conditions []corev1.PodCondition
		words      string // empty: it is not
	}{
		"none": {nil, ""},
		"preempted": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, yes,
			"PreemptionByScheduler")}, "higher priority"},
		"drained": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, yes, "EvictionByEvictionAPI")},
			"drain"},
		"tainted": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, yes, "DeletionByTaintManager")},
			"taint"},
		"Kueue": {[]corev1.PodCondition{testkit.PodCondition("TerminationTarget", yes,
			"WorkloadEvictedDueToPreempted")}, "Kueue"},
		"no longer so": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, no,
			"PreemptionByScheduler")}, ""},
		"the kubelet, for memory": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, yes,
			"TerminationByKubelet")}, ""},
		"garbage of a lost node": {[]corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget, yes,
			"DeletionByPodGC")}, ""},
		"ready, and then preempted": {[]corev1.PodCondition{testkit.PodCondition(corev1.PodReady, yes, ""),
			testkit.PodCondition(corev1.DisruptionTarget, yes, "PreemptionByScheduler")}, "as the cluster says"},
	} {
		got := TakenAway(&corev1.Pod{Status: corev1.PodStatus{Conditions: tc.conditions}})
		if (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
			t.Errorf("%s: %q, expected %q", name, got, tc.words)
		}
	}
}
