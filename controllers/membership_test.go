package controllers

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/explain"
)

func TestUnknownNames(t *testing.T) {
	nodes := testkit.Nodes(2)
	for _, tc := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"n00000", "n00001"}, ""},
		{[]string{"n00000", "n0001"}, " No node has the name n0001 (members.nodeNames)."},
		{[]string{"a", "b", "c", "d", "e", "f", "g"},
			" No node has the name a, b, c, d, e and 2 more (members.nodeNames)."},
	} {
		g := testkit.Group()
		g.Spec.Members.NodeNames = tc.names
		if got := membership.UnknownNames(&g.Spec, nodes); got != tc.want {
			t.Errorf("%v: %q, expected %q", tc.names, got, tc.want)
		}
		d := Decide(&Snapshot{Now: testkit.Now, Group: g, Nodes: nodes}, testConfig)
		accepted := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAccepted)
		if accepted == nil || !strings.HasSuffix(accepted.Message, tc.want) {
			t.Errorf("%v: condition %+v, expected it to end with %q", tc.names, accepted, tc.want)
		}
	}
}

func TestNamesAreDNSLabels(t *testing.T) {
	g := testkit.Group()
	for _, name := range []string{"g", "a.b.c", strings.Repeat("x.", 100) + "x", strings.Repeat("long-", 12) + "x"} {
		g.Name = name
		for _, got := range []string{runpod.Name(g, "12-345", strings.Repeat("n.", 60)+"n")} {
			if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
				t.Errorf("%q: %v", got, problems)
			}
		}
		if problems := validation.IsDNS1123Subdomain(publish.ConfigMapName(g)); len(problems) > 0 {
			t.Errorf("%q: %v", publish.ConfigMapName(g), problems)
		}
	}
	h := g.DeepCopy()
	h.UID = "other"
	if runpod.Name(g, "1-1", "n") == runpod.Name(h, "1-1", "n") {
		t.Error("run pods of two groups of one name have one name")
	}
}

// TestConditionsShowNoRawCharacters: an object from before the rules on names may hold what a terminal obeys.
func TestConditionsShowNoRawCharacters(t *testing.T) {
	group := testkit.Group()
	group.Spec.Members.NodeNames = []string{"n\x1b[2J\nReady: True"}
	w := newWorld(group, testkit.Nodes(1))
	conditions := w.step().Status.Conditions
	if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return strings.Contains(c.Message, `n\u001b[2J Ready: True`)
	}) {
		t.Errorf("no condition names the node: %+v", conditions)
	}
	for _, c := range conditions {
		if c.Message != explain.OneLine(c.Message) {
			t.Errorf("%s: %q", c.Type, c.Message)
		}
	}
}
