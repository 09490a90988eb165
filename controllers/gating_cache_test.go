package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// withStatements is the Node as the API server has it once the statements and their marks are written; an empty value
// removes one.
func withStatements(t testing.TB, node *corev1.Node, statements map[string]string, now time.Time) *corev1.Node {
	t.Helper()
	annotations := map[string]*string{}
	for key, value := range statements {
		if annotations[key] = nil; value != "" {
			annotations[key] = &value
		}
	}
	object, status, err := gating.Patches(node, annotations, now)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Patched(t, node, object, status)
}

// TestTheCacheKeepsWhatGatingLooksAt and nothing else of annotations and conditions.
func TestTheCacheKeepsWhatGatingLooksAt(t *testing.T) {
	s := gating.Statement{Verdict: v1alpha1.VerdictFail, Group: "a/g", Run: "1-1", NodeUID: "uid-n",
		Actions: testkit.EveryAction}
	node := testkit.Node("n", nil)
	node = *withStatements(t, &node, map[string]string{gating.Key("a"): s.String()}, testkit.Now)
	node.Annotations["example.com/large"] = strings.Repeat("x", 10000)
	node.Annotations[v1alpha1.AnnotationGatingExempt] = "false"
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
	before := node.DeepCopy()
	trimmed, err := trimNode(&node)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := trimmed.(*corev1.Node)
	if !ok || len(got.Annotations) != 2 || len(got.Status.Conditions) != 2 || gating.Changed(before, got) {
		t.Fatalf("annotations %v, conditions %v", got.Annotations, got.Status.Conditions)
	}
	// With what the cache keeps, nothing is to be written either.
	if object, status, err := gating.Patches(got, nil, testkit.Now); object != nil || status != nil || err != nil {
		t.Fatalf("%s, %s, %v", object, status, err)
	}
}

// TestOnlyMarksWakeTheController: a heartbeat does not, a mark that someone removed by hand does.
func TestOnlyMarksWakeTheController(t *testing.T) {
	s := gating.Statement{Verdict: v1alpha1.VerdictFail, Group: "a/g", Run: "1-1", NodeUID: "uid-n",
		Actions: testkit.EveryAction}
	plain := testkit.Node("n", nil)
	base := withStatements(t, &plain, map[string]string{gating.Key("a"): s.String()}, testkit.Now)
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":          {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"another annotation": {func(n *corev1.Node) { n.Annotations["example.com/x"] = "y" }, false},
		"another taint": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "x", Effect: "NoSchedule"})
		}, false},
		"the kubelet's boot id":  {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }, true},
		"the taint is gone":      {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
		"the statement is gone":  {func(n *corev1.Node) { delete(n.Annotations, gating.Key("a")) }, true},
		"the node is exempt now": {func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationGatingExempt] = "" }, true},
		"the condition is True":  {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
		"the label is gone":      {func(n *corev1.Node) { delete(n.Labels, v1alpha1.LabelCommValidated) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := base.DeepCopy()
			c.change(after)
			if got := nodeChanged(base, after); got != c.want {
				t.Errorf("nodeChanged = %v, want %v", got, c.want)
			}
		})
	}
}
