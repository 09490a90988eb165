package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestSpan(t *testing.T) {
	var b bytes.Buffer
	g := &v1alpha1.CommGroup{}
	if err := Span(&b, g, nil); err != nil || b.Len() != 0 {
		t.Errorf("without a stage: %q, %v", b.String(), err)
	}
	g.Status.Span = &v1alpha1.SpanStatus{
		RunID: "1-1", Stage: v1alpha1.StageEnded, Members: 8, Present: 7, Left: []string{"node-c"}, LeftSet: "2", Verdict: v1alpha1.VerdictFail,
		Reason: v1alpha1.ReasonSlowNode, Message: "The culprit is node-c.", Network: "IPv4: every member has one", Transport: "RDMA",
		Tests: []v1alpha1.SpanTest{
			{ID: "group-1", Set: "0-7", Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonSlowGroup, BusBandwidthMBps: ptr.To[int64](17500), Seconds: ptr.To[int32](4)},
			{ID: "localize-1-1", Set: "0-3"},
		},
		Localization: &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationFound, Step: "AllReduce", Rounds: 3, MaxRounds: 9, Tests: 5, Seconds: ptr.To[int32](75)},
		Results: []v1alpha1.SpanResultSeries{
			{Dimension: "dp", Communicators: 2, Ranks: 8, Nodes: 8, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1 << 10, 1 << 24},
				LatencyNanoseconds: []int64{1000, 400000}, BusBandwidthMBps: []int64{1, 43500}, MinBusBandwidthMBps: []int64{1, 10900}, Slowest: "dp/1"},
			{Dimension: "tp", Communicators: 8},
		},
	}
	var nodes []v1alpha1.CommNode
	for i, name := range []string{"node-b", "node-a", "elsewhere", "no-session"} {
		n := v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeName: name}}
		if i < 3 {
			n.Spec.Session = &v1alpha1.SessionAssignment{RunID: "1-1", Index: int32(1 - i)}
		}
		if i == 2 {
			n.Spec.Session.RunID = "1-0"
		}
		nodes = append(nodes, n)
	}
	if err := Span(&b, g, nodes); err != nil {
		t.Fatal(err)
	}
	text := lines(&b)
	for _, want := range []string{
		"run 1-1, stage Ended: 7 of 8 members, transport RDMA; Fail (SlowNode)",
		"members by index: 0 node-a, 1 node-b",
		"went on without node-c (index 2); ranges of later tests still span it",
		"search for the culprit of AllReduce: Found after 5 tests in 3 of at most 9 rounds, 1m15s",
		"group-1 0-7 Fail SlowGroup 17.5 4",
		"localize-1-1 0-3 running - - -",
		"dp 2 8 8 AllReduce BFloat16 16M 400 43.5 10.9 dp/1",
	} {
		if !slices.ContainsFunc(text, func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("no line %q in\n%s", want, strings.Join(text, "\n"))
		}
	}
	if strings.Contains(strings.Join(text, "\n"), "\ntp ") {
		t.Error("a series without sizes is shown as if it were measured")
	}
}

// TestSpanBeforeItsMembersAreFixed tells no count of them.
func TestSpanBeforeItsMembersAreFixed(t *testing.T) {
	var b bytes.Buffer
	g := &v1alpha1.CommGroup{Status: v1alpha1.CommGroupStatus{Span: &v1alpha1.SpanStatus{RunID: "1-2", Stage: v1alpha1.StageNodes}}}
	if err := Span(&b, g, nil); err != nil || strings.TrimSpace(b.String()) != "run 1-2, stage Nodes" {
		t.Errorf("%q %v", b.String(), err)
	}
}

func TestIndexesAreBounded(t *testing.T) {
	var nodes []v1alpha1.CommNode
	for i := range maxIndexes + 2 {
		nodes = append(nodes, v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeName: "n", Session: &v1alpha1.SessionAssignment{RunID: "1-1", Index: int32(i)}}})
	}
	g := &v1alpha1.CommGroup{Status: v1alpha1.CommGroupStatus{Span: &v1alpha1.SpanStatus{RunID: "1-1"}}}
	if got := Indexes(g, nodes); !strings.HasSuffix(got, "31 n, and 2 more (spec.session.index of each CommNode)") {
		t.Error(got)
	}
	// Whom the status names, and who was left out, are in the list whatever their index.
	nodes[32].Spec.NodeName, nodes[33].Spec.NodeName = "left", "culprit"
	g.Status.Span.Left = []string{"left"}
	g.Status.Culprits = []v1alpha1.Culprit{{Kind: "Pair", Name: "other<->culprit", Reason: v1alpha1.ReasonSlowPair}}
	if got := Indexes(g, nodes); !strings.HasSuffix(got, "29 n, 32 left, 33 culprit, and 2 more (spec.session.index of each CommNode)") {
		t.Error(got)
	}
}
