package controllers

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// BenchmarkGate12500 is gating's look at 12,500 nodes that all say Pass: what a steady group costs.
func BenchmarkGate12500(b *testing.B) {
	w := bigWorld(12_500)
	w.group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: testkit.EveryAction}
	config := testConfig
	config.PrivilegedNamespaces = []string{"team"}
	for range 100 {
		d := Decide(w.snapshot(), config)
		if len(d.NodeMarks) == 0 {
			break
		}
		for _, m := range d.NodeMarks {
			*m.Node = *withStatements(b, m.Node,
				map[string]string{gating.Key(string(w.group.UID)): m.Statement.String()}, w.now)
		}
	}
	s := w.snapshot()
	b.ReportAllocs()
	for b.Loop() {
		if d := Decide(s, config); len(d.NodeMarks) > 0 {
			b.Fatal("a steady group writes")
		}
	}
}

func TestMarksAreWrittenInBatches(t *testing.T) {
	group := testkit.Group()
	group.Spec.Gating.Mode = v1alpha1.GatingDryRun
	w := newWorld(group, testkit.Nodes(500))
	w.settle()
	w.reportFacts()
	group.Spec.Run.MaxParallelNodes = 500
	w.runAll(300_000)
	config := testConfig
	config.PrivilegedNamespaces = []string{"team"}
	failing := w.commTask("n00499")
	failing.Status.Run.Verdict, failing.Status.Run.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink
	group.Spec.Gating.Mode = v1alpha1.GatingEnforce
	written := map[string]bool{}
	for i, want := range []int{200, 200, 100, 0} {
		d := Decide(w.snapshot(), config)
		if len(d.NodeMarks) != want || (i < 2) != d.WakeAt.Equal(w.now.Add(time.Second)) {
			t.Fatalf("reconcile %d writes %d nodes and wakes at %v", i, len(d.NodeMarks), d.WakeAt)
		}
		if i == 0 && d.NodeMarks[0].Node.Name != "n00499" {
			t.Fatalf("the failed node comes after %s", d.NodeMarks[0].Node.Name)
		}
		for _, m := range d.NodeMarks {
			if written[m.Node.Name] {
				t.Fatalf("node %s is written twice", m.Node.Name)
			}
			written[m.Node.Name] = true
			index := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Name == m.Node.Name })
			w.nodes[index] = *withStatements(t, m.Node,
				map[string]string{gating.Key(string(group.UID)): m.Statement.String()}, w.now)
		}
		group.Status = d.Status
	}
	if g := group.Status.Gating; g.Gated != 1 || g.Nodes[0] != "n00499" {
		t.Fatalf("%+v", g)
	}
}
