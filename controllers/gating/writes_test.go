package gating

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestRepairs: what someone changed by hand is put back; a statement that nobody can read is written again or lifted.
func TestRepairs(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.holds(t, 0, v1alpha1.VerdictFail)
	for i := 1; i < 10; i++ {
		in.holds(t, i, v1alpha1.VerdictPass)
	}
	if r := Decide(in); len(r.Marks) > 0 {
		t.Fatalf("a steady group writes %+v", r.Marks)
	}
	in.Nodes[0].Spec.Taints = nil
	delete(in.Nodes[1].Labels, v1alpha1.LabelCommValidated)
	r := Decide(in)
	if did(&r, in, 0) != "fail" || did(&r, in, 1) != "pass" || len(r.Marks) != 2 {
		t.Fatalf("marks %+v", r.Marks)
	}
	in = gateWorld()
	key := Key(string(in.Group.UID))
	for i := range 3 {
		in.Nodes[i].Annotations = map[string]string{key: "{"}
	}
	in.result(1, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.closed(2, v1alpha1.VerdictError)
	if r := Decide(in); did(&r, in, 0) != "pass!" || did(&r, in, 1) != "fail!" || did(&r, in, 2) != "" {
		t.Fatalf("%s, %s, %s", did(&r, in, 0), did(&r, in, 1), did(&r, in, 2))
	}
}

// TestAStatementThatCannotBeReadHoldsNobody: with the breaker open its node is not newly marked either.
func TestAStatementThatCannotBeReadHoldsNobody(t *testing.T) {
	in := gateWorld()
	in.fail(0, 1, 2, 3, 4)
	in.Nodes[0].Annotations = map[string]string{Key(string(in.Group.UID)): "{"}
	if r := Decide(in); r.Status.Breaker != breakerOpen || did(&r, in, 0) != "" {
		t.Errorf("breaker %s, n0 %q", r.Status.Breaker, did(&r, in, 0))
	}
}

func TestOtherActionsAreWritten(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.holds(t, 0, v1alpha1.VerdictFail)
	in.Group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingTaint, v1alpha1.GatingCondition}
	r := Decide(in)
	if did(&r, in, 0) != "fail" || !slices.Equal(r.Marks[0].Statement.Actions,
		[]v1alpha1.GatingAction{v1alpha1.GatingCondition, v1alpha1.GatingTaint}) {
		t.Fatalf("%+v", r.Marks)
	}
}

// TestOtherActionsAreWrittenForWhatStands: also where the node has no new result, or none that counts.
func TestOtherActionsAreWrittenForWhatStands(t *testing.T) {
	for _, verdict := range []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictFail} {
		for e := range evidenceCount {
			state := map[v1alpha1.Verdict]held{v1alpha1.VerdictPass: heldPass, v1alpha1.VerdictFail: heldFail}[verdict]
			if table[e][state] != stepKeep {
				continue
			}
			for _, c := range gatingCases[e] {
				t.Run(string(verdict)+"/"+c.name, func(t *testing.T) {
					in := gateWorld()
					in.holds(t, 0, verdict)
					before := Statements(in.Nodes[0].Annotations)[Key(string(in.Group.UID))]
					c.change(in)
					in.Group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingCondition}
					r := Decide(in)
					if got := did(&r, in, 0); got != strings.ToLower(string(verdict)) {
						t.Fatalf("gate does %q: the taint and label of %s stay", got, before.Group)
					}
					i := slices.IndexFunc(r.Marks, func(m Mark) bool { return m.Node.Name == in.Nodes[0].Name })
					want := before
					want.Actions = in.Group.Spec.Gating.Actions
					if got := r.Marks[i].Statement.String(); got != want.String() {
						t.Errorf("written is %s, want %s", got, want.String())
					}
				})
			}
		}
	}
	in := gateWorld()
	in.Group.Spec.Gating.MaxPercent = ptr.To(int32(0))
	for i := range 3 {
		in.holds(t, i, v1alpha1.VerdictPass)
		in.result(i, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	}
	in.Group.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingCondition}
	if r := Decide(in); r.Status.Breaker != breakerOpen || did(&r, in, 0) != "pass" {
		t.Errorf("with the breaker open: %q, %+v", did(&r, in, 0), r.Status)
	}
}

// TestStatementsBootIsTheNodes: an agent in a container with a kernel of its own reports an id that is never the
// node's.
func TestStatementsBootIsTheNodes(t *testing.T) {
	in := gateWorld()
	in.CommTasks["n0"].Status.Run.BootID = "kernel-of-the-container"
	r := Decide(in)
	for _, m := range r.Marks {
		if m.Statement.BootID != "boot-1" {
			t.Errorf("%s: the statement is of boot %q", m.Node.Name, m.Statement.BootID)
		}
	}
	if len(r.Marks) != len(in.Nodes) {
		t.Errorf("%d marks", len(r.Marks))
	}
}

// TestNodesThatGoAreNotMarked: a write to a Node that is being deleted is for nobody.
func TestNodesThatGoAreNotMarked(t *testing.T) {
	in := gateWorld()
	in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.Nodes[0].DeletionTimestamp = decision.Stamp(testkit.Now)
	if r := Decide(in); did(&r, in, 0) != "" || did(&r, in, 1) != "pass" {
		t.Errorf("%q, %q", did(&r, in, 0), did(&r, in, 1))
	}
}
