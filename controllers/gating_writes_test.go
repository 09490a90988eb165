package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestRepairs: what someone changed by hand is put back; a statement that nobody can read is written anew or lifted.
func TestRepairs(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.holds(t, 0, v1alpha1.VerdictFail)
	for i := 1; i < 10; i++ {
		in.holds(t, i, v1alpha1.VerdictPass)
	}
	if r := gate(in); len(r.marks) > 0 {
		t.Fatalf("a steady group writes %+v", r.marks)
	}
	in.nodes[0].Spec.Taints = nil
	delete(in.nodes[1].Labels, v1alpha1.LabelCommValidated)
	r := gate(in)
	if did(&r, in, 0) != "fail" || did(&r, in, 1) != "pass" || len(r.marks) != 2 {
		t.Fatalf("marks %+v", r.marks)
	}
	in = gateWorld()
	key := markKey(string(in.group.UID))
	for i := range 3 {
		in.nodes[i].Annotations = map[string]string{key: "{"}
	}
	in.result(1, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.closed(2, v1alpha1.VerdictError)
	if r := gate(in); did(&r, in, 0) != "pass!" || did(&r, in, 1) != "fail" || did(&r, in, 2) != "" {
		t.Fatalf("%s, %s, %s", did(&r, in, 0), did(&r, in, 1), did(&r, in, 2))
	}
}

func TestOtherActionsAreWritten(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.holds(t, 0, v1alpha1.VerdictFail)
	in.group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingTaint, v1alpha1.GatingCondition}
	r := gate(in)
	if did(&r, in, 0) != "fail" || !slices.Equal(r.marks[0].statement.Actions, []v1alpha1.GatingAction{v1alpha1.GatingCondition, v1alpha1.GatingTaint}) {
		t.Fatalf("%+v", r.marks)
	}
}

func TestMarksAreWrittenInBatches(t *testing.T) {
	group := testGroup()
	group.Spec.Gating.Mode = v1alpha1.GatingDryRun
	w := newWorld(group, testNodes(500))
	w.settle()
	w.reportFacts()
	group.Spec.Run.MaxParallelNodes = 500
	w.runAll(300_000)
	config := testConfig
	config.PrivilegedNamespaces = []string{"team"}
	failing := w.commNode("n00499")
	failing.Status.Run.Verdict, failing.Status.Run.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink
	group.Spec.Gating.Mode = v1alpha1.GatingEnforce
	written := map[string]bool{}
	for i, want := range []int{200, 200, 100, 0} {
		d := Decide(w.snapshot(), config)
		if len(d.NodeMarks) != want || (i < 2) != d.WakeAt.Equal(w.now.Add(marksPause)) {
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
			w.nodes[index] = *marked(t, m.Node, map[string]string{markKey(string(group.UID)): m.statement.String()}, w.now)
		}
		group.Status = d.Status
	}
	if g := group.Status.Gating; g.Gated != 1 || g.Nodes[0] != "n00499" {
		t.Fatalf("%+v", g)
	}
}
