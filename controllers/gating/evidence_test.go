package gating

import (
	"fmt"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func (in *Input) spanOf(verdict v1alpha1.Verdict, culprits ...v1alpha1.Culprit) {
	in.Group.Spec.Span = v1alpha1.SpanGroup
	in.Span = &v1alpha1.SpanStatus{RunID: in.Run.ID, Stage: v1alpha1.StageEnded, Verdict: verdict, Culprits: culprits,
		SpeedJudged: true}
	for i := range in.Nodes {
		if ct := in.CommTasks[in.Nodes[i].Name]; ct != nil {
			ct.Spec.Session = &v1alpha1.SessionAssignment{RunID: in.Run.ID, Index: int32(i),
				State: v1alpha1.SessionClosed}
		}
	}
	if verdict == v1alpha1.VerdictFail {
		in.Span.Localization = &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationFound}
	}
}

// meshed is a mesh of which dimension tp passed and dp has the verdict.
func (in *Input) meshed(dp v1alpha1.Verdict) {
	in.Group.Spec.Mesh = []v1alpha1.MeshDimension{{Name: "dp", Size: 10}, {Name: "tp", Size: 8}, {Name: "pp", Size: 1}}
	in.Span.Tests = []v1alpha1.SpanTest{{Kind: v1alpha1.TestGroup, Verdict: v1alpha1.VerdictPass},
		{Kind: v1alpha1.TestMesh, Dimension: "dp", Verdict: dp},
		{Kind: v1alpha1.TestMesh, Dimension: "tp", Verdict: v1alpha1.VerdictPass}}
}

// manyLeft is a group's stage that passed without so many members that not all names are in the status.
func (in *Input) manyLeft(set string) {
	in.spanOf(v1alpha1.VerdictPass)
	for i := range maxNamedNodes {
		in.Span.Left = append(in.Span.Left, fmt.Sprint("gone", i))
	}
	in.Span.LeftSet = set
}

// TestAComparisonIsLiftedByAComparison: a node that failed beside others, or beside what it was, stays marked where it
// passed and was held against nothing; what failed otherwise is lifted.
func TestAComparisonIsLiftedByAComparison(t *testing.T) {
	const span, nodes, before = "over the nodes", "between nodes", "with a baseline"
	rests := map[string][]string{ // on what it takes to lift it, without a group's stage and with one
		v1alpha1.ReasonSlowNode:          {nodes, span},
		v1alpha1.ReasonSlowRail:          {nodes, span},
		v1alpha1.ReasonRegression:        {before, before},
		v1alpha1.ReasonSlowLink:          {"", ""},
		v1alpha1.ReasonHangAcrossNodes:   {"", ""},
		v1alpha1.ReasonTransportFallback: {"", ""},
	}
	for reason, on := range rests {
		for staged, needed := range on {
			for _, missing := range []string{"", span, nodes, before} {
				in := gateWorld()
				if staged == 1 {
					in.spanOf(v1alpha1.VerdictPass)
					in.Span.SpeedJudged = missing != span
				}
				in.Outcomes[0].Uncompared, in.NoBaseline = missing == nodes, missing == before
				in.holdsFor(t, 0, v1alpha1.VerdictFail, reason)
				want := "pass!"
				if missing != "" && missing == needed {
					want = ""
				}
				if r := Decide(in); did(&r, in, 0) != want {
					t.Errorf("%s, staged %d, no comparison %s: %q, want %q",
						reason, staged, missing, did(&r, in, 0), want)
				}
			}
		}
	}
}
