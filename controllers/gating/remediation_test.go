package gating

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// remediated are the conditions of a Node that AMD's Auto Node Remediation starts a workflow for: those that are True
// and whose type is in its ConfigMap (ROCm/gpu-operator@6df13c1, internal/controllers/remediation_handler.go,
// validateNodeConditions).
func remediated(node *corev1.Node, mapped ...corev1.NodeConditionType) []corev1.NodeConditionType {
	var out []corev1.NodeConditionType
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Status == corev1.ConditionTrue && slices.Contains(mapped, c.Type) {
			out = append(out, c.Type)
		}
	}
	return out
}

// TestRemediationOfBadNodesOnly: mapped by CommProblem a node is remediated while a group holds it failed, and only
// then. Mapped by CommValidated, which the documentation forbids, the good ones would be.
func TestRemediationOfBadNodesOnly(t *testing.T) {
	const problem, validated = v1alpha1.NodeConditionCommProblem, v1alpha1.NodeConditionCommValidated
	text := func(verdict v1alpha1.Verdict, actions ...v1alpha1.GatingAction) string {
		s := testStatement(verdict, "a/g", actions...)
		return s.String()
	}
	fails, passes := text(v1alpha1.VerdictFail, v1alpha1.GatingCondition),
		text(v1alpha1.VerdictPass, v1alpha1.GatingCondition)
	now := testkit.Now
	node := testkit.Node("n", nil)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	is := &node
	for _, step := range []struct {
		name       string
		statements map[string]string
		problem    bool
		validated  bool
	}{
		{"nobody has judged it", nil, false, false},
		{"passed", map[string]string{Key("a"): passes}, false, true},
		{"failed", map[string]string{Key("a"): fails}, true, false},
		{"another group passed it", map[string]string{Key("b"): passes}, true, false},
		{"passed again", map[string]string{Key("a"): passes}, false, true},
		{"failed by another group", map[string]string{Key("b"): fails}, true, false},
		{"the groups are gone", map[string]string{Key("a"): "", Key("b"): ""}, false, false},
		{"failed by a group that only taints",
			map[string]string{Key("a"): text(v1alpha1.VerdictFail, v1alpha1.GatingTaint)}, false, false},
	} {
		now = now.Add(time.Minute)
		is = marked(t, is, step.statements, now)
		if got := remediated(is, problem); (len(got) > 0) != step.problem {
			t.Errorf("%s: mapped by %s, remediated for %v", step.name, problem, got)
		}
		if got := remediated(is, validated); (len(got) > 0) != step.validated {
			t.Errorf("%s: mapped by %s, remediated for %v", step.name, validated, got)
		}
	}
}

// TestConditionOfAnOlderRelease: a Node that has CommValidated alone gets the other, which is in the same message.
func TestConditionOfAnOlderRelease(t *testing.T) {
	s := testStatement(v1alpha1.VerdictFail, "a/g", v1alpha1.GatingCondition)
	node := testkit.Node("n", nil)
	is := marked(t, &node, map[string]string{Key("a"): s.String()}, testkit.Now)
	before := is.DeepCopy()
	is.Status.Conditions = slices.DeleteFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeConditionCommProblem
	})
	if !Changed(before, is) {
		t.Error("a condition that was taken off by hand is no change")
	}
	writes := Orphaned([]corev1.Node{*is}, map[string]bool{"a": true})
	if len(writes) != 1 {
		t.Fatalf("the sweep writes %v", writes)
	}
	again := marked(t, is, nil, testkit.Now.Add(time.Hour))
	want, got := conditionOn(again, v1alpha1.NodeConditionCommValidated),
		conditionOn(again, v1alpha1.NodeConditionCommProblem)
	if got == nil || got.Status != corev1.ConditionTrue || got.Reason != want.Reason || got.Message != want.Message ||
		!want.LastTransitionTime.Time.Equal(testkit.Now) {
		t.Errorf("%+v beside %+v", got, want)
	}
}
