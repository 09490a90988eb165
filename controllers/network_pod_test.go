package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestHostNetworkOnlyWhereAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		span    v1alpha1.Span
		mode    v1alpha1.NetworkMode
		allowed []string
		refused bool
	}{
		"allowed":               {v1alpha1.SpanGroup, v1alpha1.NetworkHost, []string{"other", "team"}, false},
		"not allowed":           {v1alpha1.SpanGroup, v1alpha1.NetworkHost, nil, true},
		"another is allowed":    {v1alpha1.SpanGroup, v1alpha1.NetworkHost, []string{"other"}, true},
		"the pod network":       {v1alpha1.SpanGroup, v1alpha1.NetworkPod, nil, false},
		"Multus":                {v1alpha1.SpanGroup, v1alpha1.NetworkMultus, nil, false},
		"no pod of it is made":  {v1alpha1.SpanNode, v1alpha1.NetworkHost, nil, false},
		"a name's part is none": {v1alpha1.SpanGroup, v1alpha1.NetworkHost, []string{"tea", "team-2"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := testkit.Group()
			g.Spec.Span, g.Spec.Network.Mode = tc.span, tc.mode
			cfg := testConfig
			cfg.PrivilegedNamespaces = tc.allowed
			d := Decide(&Snapshot{Now: testkit.Now, Group: g, Nodes: testkit.Nodes(3)}, cfg)
			c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAccepted)
			if refused := c.Reason == v1alpha1.ReasonHostNetworkNotAllowed; refused != tc.refused ||
				refused != (c.Status == metav1.ConditionFalse) {
				t.Errorf("Accepted is %s %s: %s", c.Status, c.Reason, c.Message)
			}
			if tc.refused && (!strings.Contains(c.Message, "namespace team") || !strings.Contains(c.Message,
				"--privileged-namespaces") || len(d.CreatePods) > 0 || d.Status.Run != nil) {
				t.Errorf("refused, but %d pods, run %+v: %s", len(d.CreatePods), d.Status.Run, c.Message)
			}
		})
	}
	// What is refused for another reason keeps it.
	g := testkit.Group()
	g.Spec.Span, g.Spec.Network.Mode = v1alpha1.SpanGroup, v1alpha1.NetworkHost
	d := Decide(&Snapshot{Now: testkit.Now, Group: g, Nodes: []corev1.Node{}}, testConfig)
	if c := meta.FindStatusCondition(d.Status.Conditions,
		v1alpha1.ConditionAccepted); c.Reason != v1alpha1.ReasonNoNodesMatched {
		t.Errorf("reason %s, want that no node matches", c.Reason)
	}
}
