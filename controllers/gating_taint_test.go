package controllers

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestNoGPUsOnATaintedNodeNamesTheTaint: it may be what keeps the device plugin away, and no run could ever lift it.
func TestNoGPUsOnATaintedNodeNamesTheTaint(t *testing.T) {
	const remark = "device plugin that does not tolerate it"
	for name, c := range map[string]struct {
		key  string
		gpus string
		want bool
	}{
		"gating's taint":                {v1alpha1.TaintCommFailed, "0", true},
		"the NodeReadinessRule's":       {v1alpha1.TaintReadiness, "0", true},
		"another taint":                 {"example.com/x", "0", false},
		"the plugin runs, GPUs are bad": {v1alpha1.TaintCommFailed, "7", false},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := testkit.Nodes(3)
			without := func(i int) {
				nodes[i].Status.Allocatable[v1alpha1.ResourceGPU] = resource.MustParse(c.gpus)
				nodes[i].Spec.Taints = []corev1.Taint{{Key: c.key, Effect: corev1.TaintEffectNoSchedule}}
			}
			without(1)
			w := newWorld(testkit.Group(), nodes)
			w.settle()
			w.reportFacts()
			w.runAll(300_000)
			closure := w.commTask("n00001").Spec.Run.Closed
			if closure == nil || closure.Reason != v1alpha1.ReasonNoGPUResource ||
				strings.Contains(closure.Message, remark) != c.want ||
				c.want && !strings.Contains(closure.Message, "Node n00001 has the taint "+c.key) {
				t.Errorf("one of three: %+v", closure)
			}
			without(0)
			without(2)
			w = newWorld(testkit.Group(), nodes)
			w.now = w.now.Add(time.Second)
			w.settle()
			if f := meta.FindStatusCondition(w.group.Status.Conditions,
				v1alpha1.ConditionAccepted); f.Reason != v1alpha1.ReasonNoGPUResource ||
				strings.Contains(f.Message, remark) != c.want {
				t.Errorf("all three: %+v", f)
			}
		})
	}
}

// TestTheSampleRuleFitsGating: the rule looks at the condition that gating sets, run pods tolerate its taint, and it
// never evicts.
func TestTheSampleRuleFitsGating(t *testing.T) {
	data, err := os.ReadFile("../config/samples/node-readiness-rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Conditions []struct {
				Type           string                 `json:"type"`
				RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`
				DefaultStatus  corev1.ConditionStatus `json:"defaultStatus"`
			} `json:"conditions"`
			Taint           corev1.Taint   `json:"taint"`
			EnforcementMode string         `json:"enforcementMode"`
			NodeSelector    map[string]any `json:"nodeSelector"`
			DryRun          bool           `json:"dryRun"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &rule); err != nil {
		t.Fatal(err)
	}
	s := &rule.Spec
	if rule.APIVersion != "readiness.node.x-k8s.io/v1alpha1" || rule.Kind != "NodeReadinessRule" ||
		s.EnforcementMode != "continuous" || !s.DryRun || len(s.NodeSelector) == 0 {
		t.Errorf("%+v", rule)
	}
	if len(s.Conditions) != 1 || s.Conditions[0].Type != v1alpha1.NodeConditionCommValidated ||
		s.Conditions[0].RequiredStatus != corev1.ConditionTrue ||
		s.Conditions[0].DefaultStatus != corev1.ConditionTrue {
		t.Errorf("conditions %+v", s.Conditions)
	}
	if s.Taint.Key != v1alpha1.TaintReadiness || s.Taint.Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("taint %+v", s.Taint)
	}
	if !slices.ContainsFunc(runpod.Tolerations(nil), func(t corev1.Toleration) bool {
		return t.Key == s.Taint.Key && t.Effect == s.Taint.Effect
	}) {
		t.Error("run pods do not tolerate it: a tainted node is never measured again")
	}
}
