package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestBadInput: what cannot run says so, holds no GPUs and comes to rest; what can run does.
func TestBadInput(t *testing.T) {
	fewGPUs := func(m *machine) {
		for i := range m.nodes {
			m.blame(m.nodes[i].Name, "the device plugin offers fewer GPUs than there are")
			m.nodes[i].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("4")}
		}
	}
	foreign := func(m *machine) {
		m.configMap = &corev1.ConfigMap{Data: map[string]string{"theirs": "1"}}
		m.configMap.Name, m.configMap.Namespace = publish.ConfigMapName(m.group), m.group.Namespace
	}
	apart := func(m *machine) {
		m.skew[m.nodes[0].Name], m.skew[m.nodes[1].Name] = 5*time.Minute, -5*time.Minute
	}
	for name, tc := range map[string]struct {
		span      v1alpha1.Span
		nodes     int
		spoil     func(*machine)
		condition string
		want      string
		runs      bool
	}{
		"group of one": {v1alpha1.SpanNode, 1, nil, cReady, v1alpha1.ReasonReady, true},
		"group of one, span Group": {v1alpha1.SpanGroup, 1, nil, cAccepted,
			v1alpha1.ReasonTooFewMembers, false},
		"8 ranks on 4 GPUs": {v1alpha1.SpanNode, 3, fewGPUs, cAccepted,
			v1alpha1.ReasonNoGPUResource, false},
		"8 ranks on 4 GPUs, span Group": {v1alpha1.SpanGroup, 3, fewGPUs, cAccepted,
			v1alpha1.ReasonNoGPUResource, false},
		"clocks apart":             {v1alpha1.SpanNode, 3, apart, cReady, v1alpha1.ReasonReady, true},
		"clocks apart, span Group": {v1alpha1.SpanGroup, 3, apart, cReady, v1alpha1.ReasonReady, true},
		"someone else's ConfigMap": {v1alpha1.SpanNode, 2, foreign, cPublished,
			v1alpha1.ReasonConfigMapNotOwned, true},
		"someone else's ConfigMap, in Group": {v1alpha1.SpanGroup, 2, foreign, cPublished,
			v1alpha1.ReasonConfigMapNotOwned, true},
	} {
		t.Run(name, func(t *testing.T) {
			group := testkit.SpanGroup(tc.nodes, func(g *state.Group) { g.Spec.Span = tc.span })
			m := newMachine(t, 1, group, tc.nodes)
			if tc.spoil != nil {
				tc.spoil(m)
			}
			theirs := m.configMap.DeepCopy()
			for range 60 {
				m.work1()
				m.quiet()
			}
			c := meta.FindStatusCondition(m.group.Status.Conditions, tc.condition)
			if c.Reason != tc.want {
				t.Errorf("%s is %s (%s), want %s: %s", tc.condition, c.Status, c.Reason, tc.want, c.Message)
			}
			if run := m.group.Status.Run; (run != nil) != tc.runs || !tc.runs && len(m.pods) > 0 {
				t.Errorf("run %+v, %d pods", run, len(m.pods))
			}
			if theirs != nil && m.configMap.Data["theirs"] != "1" {
				t.Errorf("the ConfigMap of someone else is %+v", m.configMap)
			}
			m.endHistory()
		})
	}
}

// work1 lets everyone do what is to be done next.
func (m *machine) work1() {
	m.kubelets()
	for _, node := range m.nodeNames() {
		m.monitor(node)
		m.runAgent(node, v1alpha1.VerdictPass)
	}
	m.playAgents()
	m.now = m.now.Add(time.Second)
}
