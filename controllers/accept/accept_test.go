package accept

import (
	"fmt"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestAcceptance(t *testing.T) {
	one := []decision.Member{{Name: "a", AllocatableGPUs: 8}}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.CommGroupSpec)
		members []decision.Member
		image   string
		reason  string
	}{
		"good": {nil, one, "i", v1alpha1.ReasonAccepted},
		"none": {nil, nil, "i", v1alpha1.ReasonNoNodesMatched},
		"few": {func(s *v1alpha1.CommGroupSpec) { s.Members.MinMembers = 2 }, one, "i",
			v1alpha1.ReasonTooFewMembers},
		"no image": {nil, one, "", v1alpha1.ReasonRuntimeImageMissing},
		"no GPU":   {nil, []decision.Member{{Name: "a", AllocatableGPUs: 7}}, "i", v1alpha1.ReasonNoGPUResource},
		"one GPU node": {nil, []decision.Member{{Name: "a", AllocatableGPUs: 7}, {Name: "b", AllocatableGPUs: 8}}, "i",
			v1alpha1.ReasonAccepted},
		"32 February": {func(s *v1alpha1.CommGroupSpec) { s.Run.Schedule = "0 0 32 2 *" }, one, "i",
			v1alpha1.ReasonInvalidSchedule},
		"30 February": {func(s *v1alpha1.CommGroupSpec) { s.Run.Schedule = "0 0 30 2 *" }, one, "i",
			v1alpha1.ReasonInvalidSchedule},
		"29 February": {func(s *v1alpha1.CommGroupSpec) { s.Run.Schedule = "0 0 29 2 *" }, one, "i",
			v1alpha1.ReasonAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			g := testkit.Group()
			if tc.change != nil {
				tc.change(&g.Spec)
			}
			if f := Spec(&g.Spec, tc.members, nil, tc.image, testkit.Now); f.Reason != tc.reason ||
				f.IsTrue() != (tc.reason == v1alpha1.ReasonAccepted) {
				t.Errorf("%+v, expected %s", f, tc.reason)
			}
		})
	}
}

// TestAcceptanceWords: what a user must do next depends on how far off the nodes are.
func TestAcceptanceWords(t *testing.T) {
	g := testkit.Group()
	g.Spec.RanksPerNode = 16
	few := []decision.Member{{Name: "a", AllocatableGPUs: 8}, {Name: "b", AllocatableGPUs: 4}}
	if f := Spec(&g.Spec, few, nil, "i", testkit.Now); f.Reason != v1alpha1.ReasonNoGPUResource ||
		!strings.Contains(f.Message, "the most is 8: lower ranksPerNode") {
		t.Errorf("%+v", f)
	}
	none := []decision.Member{{Name: "a"}, {Name: "b"}}
	if f := Spec(&g.Spec, none, nil, "i", testkit.Now); f.Reason != v1alpha1.ReasonNoGPUResource ||
		!strings.Contains(f.Message, "device plugin") {
		t.Errorf("%+v", f)
	}
}

// TestAcceptedSaysThatTheMeshDoesNotFit: nobody learns it only after hours of runs. Nodes without the GPUs do not
// count.
func TestAcceptedSaysThatTheMeshDoesNotFit(t *testing.T) {
	for _, tc := range []struct {
		gpus []int64
		fits bool
	}{
		{[]int64{8, 8}, true},
		{[]int64{8, 8, 8}, false},
		{[]int64{8, 8, 4}, true},
		{[]int64{8, 4}, false},
	} {
		g := testkit.Group()
		g.Spec.Span, g.Spec.Mesh = v1alpha1.SpanGroup,
			[]v1alpha1.MeshDimension{{Name: "dp", Size: 2}, {Name: "tp", Size: 8}}
		var members []decision.Member
		for i, gpus := range tc.gpus {
			members = append(members, decision.Member{Name: string(rune('a' + i)), AllocatableGPUs: gpus})
		}
		f := Spec(&g.Spec, members, nil, "i", testkit.Now)
		if !f.IsTrue() || strings.Contains(f.Message, "the mesh does not fit") == tc.fits {
			t.Errorf("%v: %+v, want that the mesh fits: %v", tc.gpus, f, tc.fits)
		}
	}
}

// TestAcceptedSaysThatNoGroupWillForm: where too few members have the GPUs, a user learns it before hours of runs,
// with the cure.
func TestAcceptedSaysThatNoGroupWillForm(t *testing.T) {
	for name, tc := range map[string]struct {
		span        v1alpha1.Span
		able, small int
		min         int32
		says        string
	}{
		"one of two": {v1alpha1.SpanGroup, 1, 1, 0,
			"it takes 2 nodes that can run, and 1 can: lower ranksPerNode, or choose other nodes."},
		"one of four": {v1alpha1.SpanGroup, 1, 3, 0,
			"it takes 2 nodes that can run, and 1 can: lower ranksPerNode, or"},
		"fewer than minMembers": {v1alpha1.SpanGroup, 3, 1, 4,
			"it takes 4 nodes that can run, and 3 can: lower ranksPerNode or members.minMembers, or"},
		"just enough":                  {v1alpha1.SpanGroup, 2, 2, 0, ""},
		"as many as minMembers":        {v1alpha1.SpanGroup, 3, 1, 3, ""},
		"each node alone":              {v1alpha1.SpanNode, 1, 3, 0, ""},
		"each node alone, minMembers":  {v1alpha1.SpanNode, 3, 1, 4, ""},
		"all, and what is needed fits": {v1alpha1.SpanGroup, 4, 0, 4, ""},
	} {
		g := testkit.Group()
		g.Spec.Span, g.Spec.Members.MinMembers = tc.span, tc.min
		var members []decision.Member
		for i := range tc.able + tc.small {
			m := decision.Member{Name: fmt.Sprint("n", i), AllocatableGPUs: 8}
			if i >= tc.able {
				m.AllocatableGPUs = 4
			}
			members = append(members, m)
		}
		f := Spec(&g.Spec, members, nil, "i", testkit.Now)
		if f.Reason != v1alpha1.ReasonAccepted ||
			strings.Contains(f.Message, "no communicator over the group") != (tc.says != "") ||
			!strings.Contains(f.Message, tc.says) {
			t.Errorf("%s: %s: %s", name, f.Reason, f.Message)
		}
	}
}
