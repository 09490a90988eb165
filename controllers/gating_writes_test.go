package controllers

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
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

// TestOtherActionsAreWrittenForWhatStands: also where the node has no new result, or none that counts.
func TestOtherActionsAreWrittenForWhatStands(t *testing.T) {
	for _, verdict := range []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictFail} {
		for e := range evidenceCount {
			state := map[v1alpha1.Verdict]held{v1alpha1.VerdictPass: heldPass, v1alpha1.VerdictFail: heldFail}[verdict]
			if gatingTable[e][state] != stepKeep {
				continue
			}
			for _, c := range gatingCases[e] {
				t.Run(string(verdict)+"/"+c.name, func(t *testing.T) {
					in := gateWorld()
					in.holds(t, 0, verdict)
					before := statementsOf(in.nodes[0].Annotations)[markKey(string(in.group.UID))]
					c.change(in)
					in.group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingCondition}
					r := gate(in)
					if got := did(&r, in, 0); got != strings.ToLower(string(verdict)) {
						t.Fatalf("gate does %q: the taint and label of %s stay", got, before.Group)
					}
					i := slices.IndexFunc(r.marks, func(m NodeMark) bool { return m.Node.Name == in.nodes[0].Name })
					want := before
					want.Actions = in.group.Spec.Gating.Actions
					if got := r.marks[i].statement.String(); got != want.String() {
						t.Errorf("written is %s, want %s", got, want.String())
					}
				})
			}
		}
	}
	in := gateWorld()
	in.group.Spec.Gating.MaxPercent = ptr.To(int32(0))
	for i := range 3 {
		in.holds(t, i, v1alpha1.VerdictPass)
		in.result(i, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	}
	in.group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingCondition}
	if r := gate(in); r.status.Breaker != breakerOpen || did(&r, in, 0) != "pass" {
		t.Errorf("with the breaker open: %q, %+v", did(&r, in, 0), r.status)
	}
}

// TestStatementsBootIsTheNodes: an agent in a container with a kernel of its own reports an id that is never the node's.
func TestStatementsBootIsTheNodes(t *testing.T) {
	in := gateWorld()
	in.commNodes["n0"].Status.Run.BootID = "kernel-of-the-container"
	r := gate(in)
	for _, m := range r.marks {
		if m.statement.BootID != "boot-1" {
			t.Errorf("%s: the statement is of boot %q", m.Node.Name, m.statement.BootID)
		}
	}
	if len(r.marks) != len(in.nodes) {
		t.Errorf("%d marks", len(r.marks))
	}
}

// TestNodesThatGoAreNotMarked: a write to a Node that is being deleted is for nobody.
func TestNodesThatGoAreNotMarked(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.nodes[0].DeletionTimestamp = decision.Stamp(testkit.Now)
	if r := gate(in); did(&r, in, 0) != "" || did(&r, in, 1) != "pass" {
		t.Errorf("%q, %q", did(&r, in, 0), did(&r, in, 1))
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
