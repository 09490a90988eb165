package demo

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func spanFault(t *testing.T, name string) *Fault {
	t.Helper()
	fault, _, err := FindFaults(name, true)
	if err != nil || fault == nil {
		t.Fatalf("%v, %v", fault, err)
	}
	return fault
}

func TestFaultsBelongToTheirSpan(t *testing.T) {
	for name, span := range map[string]bool{"slow-nic": false, "slow-link": true, "reboot": true,
		"slow-nic,no-rdma": true} {
		if fault, changes, err := FindFaults(name, span); err == nil {
			t.Errorf("FindFaults(%q, %t) = %v, %v", name, span, fault, changes)
		}
	}
	if strings.Contains(FaultNames(false), "no-rdma") || !strings.Contains(FaultNames(true), "no-rdma") {
		t.Errorf("names %s and %s", FaultNames(false), FaultNames(true))
	}
}

func TestJudgeSpan(t *testing.T) {
	finished, running := v1alpha1.RunPhaseFinished, v1alpha1.RunPhaseRunning
	node := v1alpha1.Culprit{Node: FaultyNode, Kind: "Node", Name: FaultyNode, Reason: v1alpha1.ReasonHangAcrossNodes}
	nic := v1alpha1.Culprit{Node: FaultyNode, Kind: "NIC", Name: "mlx5_1", Reason: v1alpha1.ReasonSlowRail}
	pair := v1alpha1.Culprit{Kind: "Pair", Pair: []string{pairedNode, FaultyNode},
		Name: pairedNode + "<->" + FaultyNode, Reason: v1alpha1.ReasonSlowPair}
	with := func(c v1alpha1.Culprit, change func(*v1alpha1.Culprit)) v1alpha1.Culprit {
		change(&c)
		return c
	}
	tests := map[string]struct {
		fault         string
		phase         v1alpha1.RunPhase
		stage         v1alpha1.RunStage
		culprits      []v1alpha1.Culprit
		done, reached bool
	}{
		"node": {"hang-across", finished, v1alpha1.StageEnded, []v1alpha1.Culprit{node}, true, true},
		"while it runs": {"hang-across", running, v1alpha1.StageReforming,
			[]v1alpha1.Culprit{node}, false, false},
		"no end of the stage": {"hang-across", finished, v1alpha1.StageReforming,
			[]v1alpha1.Culprit{node}, true, false},
		"nobody": {"hang-across", finished, v1alpha1.StageEnded, nil, true, false},
		"a healthy node beside it": {"hang-across", finished, v1alpha1.StageEnded, []v1alpha1.Culprit{node,
			with(node, func(c *v1alpha1.Culprit) { c.Node, c.Name = "sim-node-3", "sim-node-3" })}, true, false},
		"another reason": {"no-rdma", finished, v1alpha1.StageEnded, []v1alpha1.Culprit{node}, true, false},
		"NIC":            {"slow-nic", finished, v1alpha1.StageEnded, []v1alpha1.Culprit{nic}, true, true},
		"the NIC of another node": {"slow-nic", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(nic, func(c *v1alpha1.Culprit) { c.Node = pairedNode })}, true, false},
		"another NIC": {"slow-nic", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(nic, func(c *v1alpha1.Culprit) { c.Name = "mlx5_0" })}, true, false},
		"the node for its NIC": {"slow-nic", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(node, func(c *v1alpha1.Culprit) {
				c.Reason = v1alpha1.ReasonSlowRail
			})}, true, false},
		"pair": {"slow-pair", finished, v1alpha1.StageEnded, []v1alpha1.Culprit{pair}, true, true},
		"one of the pair": {"slow-pair", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(pair, func(c *v1alpha1.Culprit) { c.Name = pairedNode })}, true, false},
		"a pair with another": {"slow-pair", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(pair, func(c *v1alpha1.Culprit) {
				c.Name = FaultyNode + "<->sim-node-0"
			})}, true, false},
		"a node for its whole path": {"slow-node-net", finished, v1alpha1.StageEnded,
			[]v1alpha1.Culprit{with(node, func(c *v1alpha1.Culprit) {
				c.Reason = v1alpha1.ReasonSlowNode
			})}, true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := group(tc.phase, conditionOf(v1alpha1.ConditionReady, "False", "X", ""), tc.culprits...)
			g.Status.Span = confirmedSpan()
			g.Status.Span.Stage = tc.stage
			if got := Judge(g, spanFault(t, tc.fault), nil); got.Done != tc.done ||
				got.Reached != tc.reached || got.Seen == "" {
				t.Errorf("%+v, want done %t and reached %t, with words", got, tc.done, tc.reached)
			}
		})
	}
}

// confirmedSpan is of a search that ended well.
func confirmedSpan() *v1alpha1.SpanStatus {
	return &v1alpha1.SpanStatus{Stage: v1alpha1.StageEnded,
		Tests: []v1alpha1.SpanTest{{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1, Verdict: v1alpha1.VerdictPass},
			{ID: "screen-1", Kind: v1alpha1.TestPairs, Round: 1, Verdict: v1alpha1.VerdictFail},
			{ID: "group-2", Kind: v1alpha1.TestGroup, Round: 2, Verdict: v1alpha1.VerdictPass},
			{ID: "screen-3", Kind: v1alpha1.TestPairs, Round: 3, Verdict: v1alpha1.VerdictPass}},
		Localization: &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationFound,
			Message: "The culprit is X. Confirmed: Without X the group of 3 nodes is good."}}
}

// TestJudgeConfirmation: a culprit that is named is not enough; the search has to have found it, and the group to be
// good without it.
func TestJudgeConfirmation(t *testing.T) {
	node := v1alpha1.Culprit{Node: FaultyNode, Kind: "Node", Name: FaultyNode, Reason: v1alpha1.ReasonHangAcrossNodes}
	tcp := v1alpha1.Culprit{Node: FaultyNode, Kind: "Node", Name: FaultyNode, Reason: v1alpha1.ReasonTransportFallback}
	failed := func(s *v1alpha1.SpanStatus) {
		s.Localization, s.Tests = nil, []v1alpha1.SpanTest{{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1,
			Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonTransportFallback}}
	}
	for name, tc := range map[string]struct {
		fault   string
		culprit v1alpha1.Culprit
		change  func(*v1alpha1.SpanStatus)
		reached bool
	}{
		"confirmed": {"hang-across", node, func(*v1alpha1.SpanStatus) {}, true},
		"no search": {"hang-across", node, func(s *v1alpha1.SpanStatus) { s.Localization = nil }, false},
		"search found nothing": {"hang-across", node,
			func(s *v1alpha1.SpanStatus) { s.Localization.State = v1alpha1.LocalizationNotFound }, false},
		"search out of bounds": {"hang-across", node,
			func(s *v1alpha1.SpanStatus) { s.Localization.State = v1alpha1.LocalizationOutOfBounds }, false},
		"group not formed again": {"hang-across", node, func(s *v1alpha1.SpanStatus) { s.Tests = s.Tests[:2] }, false},
		"group still bad": {"hang-across", node,
			func(s *v1alpha1.SpanStatus) { s.Tests[2].Verdict = v1alpha1.VerdictFail }, false},
		"group without an end": {"hang-across", node, func(s *v1alpha1.SpanStatus) { s.Tests[2].Verdict = "" }, false},
		"not confirmed": {"hang-across", node, func(s *v1alpha1.SpanStatus) {
			s.Localization.Message = "Found. Not confirmed: it is as slow as before."
		}, false},
		"no word of it": {"hang-across", node,
			func(s *v1alpha1.SpanStatus) { s.Localization.Message = "The culprit is X." }, false},
		"transport":           {"no-rdma", tcp, failed, true},
		"transport, searched": {"no-rdma", tcp, func(*v1alpha1.SpanStatus) {}, false},
		"transport, passed": {"no-rdma", tcp,
			func(s *v1alpha1.SpanStatus) { failed(s); s.Tests[0].Verdict = v1alpha1.VerdictPass }, false},
		"transport, no test": {"no-rdma", tcp,
			func(s *v1alpha1.SpanStatus) { s.Localization, s.Tests = nil, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := group(v1alpha1.RunPhaseFinished, conditionOf(v1alpha1.ConditionReady, "False", "X", ""), tc.culprit)
			g.Status.Span = confirmedSpan()
			tc.change(g.Status.Span)
			if got := Judge(g, spanFault(t, tc.fault), nil); !got.Done || got.Reached != tc.reached || got.Seen == "" {
				t.Errorf("%+v, want reached %t, with words", got, tc.reached)
			}
		})
	}
}

// Ready is not enough: every dimension has to have been measured.
func TestJudgeHealthySpan(t *testing.T) {
	result := func(dimension string, mbps ...int64) v1alpha1.SpanResultSeries {
		return v1alpha1.SpanResultSeries{Dimension: dimension, BusBandwidthMBps: mbps}
	}
	for name, tc := range map[string]struct {
		change  func(*state.Group)
		reached bool
	}{
		"measured":         {func(*state.Group) {}, true},
		"no stage":         {func(g *state.Group) { g.Status.Span = nil }, false},
		"stage not ended":  {func(g *state.Group) { g.Status.Span.Stage = v1alpha1.StageMesh }, false},
		"no verdict":       {func(g *state.Group) { g.Status.Span.Verdict = "" }, false},
		"no dimension":     {func(g *state.Group) { g.Status.Span.Results = g.Status.Span.Results[:2] }, false},
		"nothing measured": {func(g *state.Group) { g.Status.Span.Results[1].BusBandwidthMBps = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := group(v1alpha1.RunPhaseFinished, conditionOf(v1alpha1.ConditionReady, "True", "Ready", ""))
			g.Spec.Span, g.Spec.Mesh = v1alpha1.SpanGroup,
				[]v1alpha1.MeshDimension{{Name: "dp", Size: 4}, {Name: "tp", Size: 2}}
			g.Status.Span = &v1alpha1.SpanStatus{Stage: v1alpha1.StageEnded, Verdict: v1alpha1.VerdictPass,
				Results: []v1alpha1.SpanResultSeries{result("group", 1, 40000), result("dp", 1, 40000),
					result("tp", 1, 40000)}}
			tc.change(g)
			if got := Judge(g, nil, nil); !got.Done || got.Reached != tc.reached {
				t.Errorf("%+v, want reached %t", got, tc.reached)
			}
		})
	}
}

func TestFitMesh(t *testing.T) {
	fitted, err := fitMesh([]byte("spec:\n  ranksPerNode: 2\n  mesh:\n  - {name: dp, size: 4}\n  - {name: "+
		"tp, size: 2}\n"), 7)
	if err != nil {
		t.Fatal(err)
	}
	var g v1alpha1.CommGroup
	if err := yaml.UnmarshalStrict(fitted, &g); err != nil || len(g.Spec.Mesh) != 2 || g.Spec.Mesh[0].Size != 7 ||
		g.Spec.Mesh[1].Size != 2 || g.Spec.RanksPerNode != 2 {
		t.Errorf("%v: %s", err, fitted)
	}
	for _, bad := range []string{"", "spec: {}", "spec: {mesh: []}", "spec: {mesh: [1]}", "[", "spec: {mesh: {}}"} {
		if fitted, err := fitMesh([]byte(bad), 7); err == nil {
			t.Errorf("%q gave %s", bad, fitted)
		}
	}
}

// The patch in the demo's own sample is of the API, and its mesh is what fitMesh expects.
func TestSpanSample(t *testing.T) {
	data, err := os.ReadFile("../../demo/group-span/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Patches []struct{ Patch string }
	}
	if err := yaml.Unmarshal(data, &k); err != nil || len(k.Patches) != 1 {
		t.Fatalf("%v: %+v", err, k)
	}
	var g v1alpha1.CommGroup
	if err := yaml.UnmarshalStrict([]byte(k.Patches[0].Patch), &g); err != nil {
		t.Fatal(err)
	}
	if _, err := fitMesh([]byte(k.Patches[0].Patch), 4); err != nil || g.Spec.Mesh[1].Size != g.Spec.RanksPerNode {
		t.Errorf("%v: the mesh %+v does not have the %d ranks of a node as its last dimension",
			err, g.Spec.Mesh, g.Spec.RanksPerNode)
	}
}

func TestSpanLine(t *testing.T) {
	g := group(v1alpha1.RunPhaseRunning,
		conditionOf(v1alpha1.ConditionReady, "Unknown", v1alpha1.ReasonRunInProgress, ""))
	g.Status.Span = &v1alpha1.SpanStatus{RunID: "2-1", Stage: v1alpha1.StageLocalizing, Present: 3, Members: 4,
		Tests: []v1alpha1.SpanTest{{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1},
			{ID: "localize-2-1", Kind: v1alpha1.TestSearch, Round: 2, Index: 1, Set: "0-1",
				Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonSlowGroup}},
		Localization: &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationRunning, Rounds: 2, Tests: 3}}
	const want = "RunInProgress: stage Localizing, 3 of 4 members; search Running, round 2, 3 tests; " +
		"test localize-2-1 over 0-1: Fail SlowGroup"
	if got := progressLine(g, nil); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	g.Status.Span.RunID = "2-0"
	if got := progressLine(g, nil); strings.Contains(got, "stage") {
		t.Errorf("the stage of another run shows: %q", got)
	}
}
