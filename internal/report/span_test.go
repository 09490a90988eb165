package report

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func TestSpan(t *testing.T) {
	var b bytes.Buffer
	g := &state.Group{}
	if err := Span(&b, g, nil); err != nil || b.Len() != 0 {
		t.Errorf("without a stage: %q, %v", b.String(), err)
	}
	g.Status.Span = &v1alpha1.SpanStatus{
		RunID: "1-1", Stage: v1alpha1.StageEnded, Members: 8, Present: 7, Left: []string{"node-c"}, LeftSet: "2",
		Verdict: v1alpha1.VerdictFail,
		Reason:  v1alpha1.ReasonSlowNode, Message: "The culprit is node-c. It is slow. Good without it (1 GB/s).",
		Network: "IPv4: every member has one", Transport: "RDMA",
		Tests: []v1alpha1.SpanTest{
			{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1, Set: "0-7", Verdict: v1alpha1.VerdictFail,
				Reason: v1alpha1.ReasonSlowGroup, BusBandwidthMBps: ptr.To[int64](17500), Seconds: ptr.To[int32](4)},
			{ID: "localize-1-1", Kind: v1alpha1.TestSearch, Round: 1, Index: 1, Set: "0-3"},
			{ID: "localize-2-1", Kind: v1alpha1.TestSearch, Round: 2, Index: 1, Set: "0-1",
				Verdict: v1alpha1.VerdictPass, BusBandwidthMBps: ptr.To[int64](40000)},
			{ID: "localize-2-2", Kind: v1alpha1.TestSearch, Round: 2, Index: 2, Set: "1-2",
				Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonSlowPair, BusBandwidthMBps: ptr.To[int64](10000)},
			{ID: "left-1", Kind: v1alpha1.TestDeparture, Round: 1, Set: "2", Verdict: v1alpha1.VerdictFail,
				Reason: v1alpha1.ReasonCulpritFound},
			{ID: "group-2", Kind: v1alpha1.TestGroup, Round: 2, Set: "0-7", Verdict: v1alpha1.VerdictPass,
				BusBandwidthMBps: ptr.To[int64](50000)},
		},
		Localization: &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationFound,
			Step:   &v1alpha1.Step{Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: 1 << 24},
			Rounds: 3, MaxRounds: 9, Tests: 5, Seconds: ptr.To[int32](75),
			Message: "The culprit is node-c. Confirmed: Good without it."},
		Results: []v1alpha1.SpanResultSeries{
			{Dimension: "dp", Communicators: 2, Ranks: 8, Nodes: 8, Collective: v1alpha1.AllReduce,
				Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1 << 10, 1 << 24},
				LatencyNanoseconds: []int64{1000, 400000}, BusBandwidthMBps: []int64{1, 43500},
				MinBusBandwidthMBps: []int64{1, 10900}, Slowest: "dp/1", Repeats: 3, SpreadPercent: []int32{9, 4}},
			{Dimension: "tp", Communicators: 8},
		},
	}
	var nodes []Member
	for i, name := range []string{"node-b", "node-a", "elsewhere", "no-session"} {
		n := NoMember(name)
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
		"went on without node-c (index 2)",
		"Confirmed.",
		"search for the culprit of AllReduce BFloat16 16 MiB: Found after 5 tests in 3 of at most 9 rounds, 1m15s",
		"TEST MEMBERS VERDICT REASON SLOWEST (GB/s) OF BEST PAIR SECONDS NODES",
		"group-1 0-7 Fail SlowGroup 17.5 - 4 8 nodes",
		"localize-1-1 0-3 running - - - - 4 nodes",
		"localize-2-1 0-1 Pass - 40.0 100 % - node-a, node-b",
		"localize-2-2 1-2 Fail SlowPair 10.0 25 % - node-b, member 2",
		"left-1 2 Fail CulpritFound - - - member 2: left out from here on",
		"group-2 0-1,3-7 Pass - 50.0 - - 7 nodes",
		"DIMENSION COMMUNICATORS RANKS NODES COLLECTIVE SIZE LATENCY (us) BUSBW (GB/s) SLOWEST (GB/s) REPEATS APART",
		"dp 2 8 8 AllReduce BFloat16 16M 400 43.5 10.9 dp/1 3 4 %",
	} {
		if !slices.ContainsFunc(text, func(line string) bool {
			return strings.Join(strings.Fields(line), " ") == want
		}) {
			t.Errorf("no line %q in\n%s", want, strings.Join(text, "\n"))
		}
	}
	if n := strings.Count(strings.Join(text, "\n"), "The culprit is node-c."); n != 1 {
		t.Errorf("the culprit is told %d times", n)
	}
	if strings.Contains(strings.Join(text, "\n"), "\ntp ") {
		t.Error("a series without sizes is shown as if it were measured")
	}
}

// TestSpanBeforeItsMembersAreFixed tells no count of them.
func TestSpanBeforeItsMembersAreFixed(t *testing.T) {
	var b bytes.Buffer
	g := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{RunID: "1-2", Stage: v1alpha1.StageNodes}}}
	if err := Span(&b, g, nil); err != nil || strings.TrimSpace(b.String()) != "run 1-2, stage Nodes" {
		t.Errorf("%q %v", b.String(), err)
	}
}

func TestIndexesAreBounded(t *testing.T) {
	var nodes []Member
	for i := range maxIndexes + 2 {
		n := NoMember("n")
		n.Spec.Session = &v1alpha1.SessionAssignment{RunID: "1-1", Index: int32(i)}
		nodes = append(nodes, n)
	}
	g := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{RunID: "1-1"}}}
	if got := Indexes(g, nodes); !strings.HasSuffix(got, "31 n, and 2 more (spec.session.index of each CommTask)") {
		t.Error(got)
	}
	// Whom the status names, and who was left out, are in the list whatever their index.
	nodes[32].Spec.NodeName, nodes[33].Spec.NodeName = "left", "culprit"
	g.Status.Span.Left = []string{"left"}
	g.Status.Culprits = []v1alpha1.Culprit{{Kind: "Pair", Pair: []string{"other", "culprit"}, Name: "other<->culprit",
		Reason: v1alpha1.ReasonSlowPair}}
	if got := Indexes(g, nodes); !strings.HasSuffix(got,
		"29 n, 32 left, 33 culprit, and 2 more (spec.session.index of each CommTask)") {
		t.Error(got)
	}
}

// TestWhoATestIsOver: who took part and what the figure is of is said in words, pairs are held against the best of
// their own kind since the group was formed, and nothing is said of a set that cannot be read.
func TestWhoATestIsOver(t *testing.T) {
	mbps := func(n int64) *int64 { return &n }
	const pass, fail = v1alpha1.VerdictPass, v1alpha1.VerdictFail
	group := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{RunID: "1-1", Tests: []v1alpha1.SpanTest{
		{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1, Set: "0-5", Verdict: fail, BusBandwidthMBps: mbps(10)},
		{ID: "screen-1", Kind: v1alpha1.TestPairs, Round: 1, Set: "0-5", Verdict: fail, BusBandwidthMBps: mbps(20)},
		{ID: "screen-1-0", Kind: v1alpha1.TestPairRecord, Round: 1, Set: "0-5", Verdict: pass,
			BusBandwidthMBps: mbps(80)},
		{ID: "screen-1-1", Kind: v1alpha1.TestPairRecord, Round: 1, Index: 1, Set: "2-3", Verdict: fail,
			BusBandwidthMBps: mbps(20)},
		{ID: "screen-1-2", Kind: v1alpha1.TestPairRecord, Round: 1, Index: 2, Set: "0-1,4-5", Verdict: fail,
			BusBandwidthMBps: mbps(40)},
		{ID: "localize-1-1", Kind: v1alpha1.TestSearch, Round: 1, Index: 1, Set: "0,3", Verdict: pass,
			BusBandwidthMBps: mbps(5)},
		{ID: "rails-2-1", Kind: v1alpha1.TestRails, Round: 2, Index: 1, Set: "0,3", Verdict: fail,
			BusBandwidthMBps: mbps(1)},
		{ID: "left-1", Kind: v1alpha1.TestDeparture, Round: 1, Set: "3", Verdict: fail},
		{ID: "group-2", Kind: v1alpha1.TestGroup, Round: 2, Set: "0-5", Verdict: pass, BusBandwidthMBps: mbps(10)},
		{ID: "screen-2", Kind: v1alpha1.TestPairs, Round: 2, Set: "0-5", Verdict: pass, BusBandwidthMBps: mbps(30)},
		{ID: "screen-2-0", Kind: v1alpha1.TestPairRecord, Round: 2, Set: "0-5", Verdict: pass,
			BusBandwidthMBps: mbps(40)},
		{ID: "screen-3", Kind: v1alpha1.TestPairs, Round: 3, Set: "0-5", Verdict: v1alpha1.VerdictError},
		{ID: "mesh-dp-1", Kind: v1alpha1.TestMesh, Dimension: "dp", Round: 1, Set: "5-0", Verdict: pass},
	}}}}
	want := []struct {
		set, nodes string
		percent    int64
		pair       bool
	}{
		{"0-5", "6 nodes", -1, false},
		{"0-5", "6 nodes in pairs: the slowest", 25, false},
		{"0-5", "6 nodes in pairs: the best", 100, false},
		{"2-3", "member 2, member 3", 25, true},
		{"0-1,4-5", "4 nodes in pairs: bad ones", 50, false},
		{"0,3", "member 0, member 3", 100, true},
		{"0,3", "member 0, member 3: by rails, the slowest", -1, false},
		{"3", "member 3: left out from here on", -1, false},
		{"0-2,4-5", "5 nodes", -1, false},
		{"0-2,4-5", "5 nodes in pairs: the slowest", 75, false},
		{"0-2,4-5", "5 nodes in pairs: the best", 100, false},
		{"0-2,4-5", "5 nodes in pairs: the slowest", -1, false},
		{"5-0", "", -1, false},
	}
	for i, got := range TestLines(group, nil) {
		percent := int64(-1)
		if got.OfBestPair != nil {
			percent = *got.OfBestPair
		}
		if w := want[i]; got.Set != w.set || got.Nodes != w.nodes || percent != w.percent ||
			(len(got.Pair) == 2) != w.pair {
			t.Errorf("%s: %+v, %d %%, expected %+v", got.ID, got, percent, w)
		}
	}
}

// TestWhoLeftWithoutANote: an older manager's list, or one that was cut, has no entry for it.
func TestWhoLeftWithoutANote(t *testing.T) {
	group := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{LeftSet: "2", Tests: []v1alpha1.SpanTest{
		{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1, Set: "0-3"},
		{ID: "localize-1-1", Kind: v1alpha1.TestSearch, Round: 1, Index: 1, Set: "2-3"},
		{ID: "group-2", Kind: v1alpha1.TestGroup, Round: 2, Set: "0-3"},
		{ID: "screen-1", Kind: v1alpha1.TestPairs, Round: 1, Set: "0-3"}}}}}
	var sets []string
	for _, line := range TestLines(group, nil) {
		sets = append(sets, line.Set)
	}
	if want := []string{"0-3", "2-3", "0-1,3", "0-1,3"}; !slices.Equal(sets, want) {
		t.Errorf("%q, expected %q", sets, want)
	}
	group.Status.Span.Tests = group.Status.Span.Tests[:1] // lost before it was formed again
	if got := TestLines(group, nil)[0].Set; got != "0-3" {
		t.Errorf("the group's first test is over %s", got)
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]string{"AllReduce BFloat16 16777216 B in place": "AllReduce BFloat16 16 " +
		"MiB in place", "8388608 bytes, RDMA": "8 MiB, RDMA", "AllReduce Float32 10000 B": "AllReduce Float32 10000 B",
		"": "", "a 99999999999999999 B": "a 99999999999999999 B", "8 B": "8 B", "16777216 Bytes": "16777216 Bytes"} {
		if got := Sizes(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// TestSpanMessageIsToldOnce: where a condition has it, the stage leads to that.
func TestSpanMessageIsToldOnce(t *testing.T) {
	g := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{Message: "slow"},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionValidated, Message: "Run 1-1: slow"}}}}
	if got := SpanMessage(g); got != "What came of it is in the condition Validated." {
		t.Error(got)
	}
	g.Status.Conditions[0].Message = "A new run goes on."
	if got := SpanMessage(g); got != "slow" {
		t.Error(got)
	}
}

// TestCulpritsLeadToTheirPages: each page once, and none that there is not.
func TestCulpritsLeadToTheirPages(t *testing.T) {
	var b bytes.Buffer
	culprits := []v1alpha1.Culprit{{Kind: "Node", Name: "a", Reason: v1alpha1.ReasonSlowNode, Message: "slow"},
		{Kind: "Node", Name: "b", Reason: v1alpha1.ReasonSlowNode, Message: "slow"},
		{Kind: "Node", Name: "c", Reason: "Odd", Message: "odd"}}
	if err := Culprits(&b, culprits); err != nil {
		t.Fatal(err)
	}
	if last := lines(&b)[6]; last != "  what to do, step by step: docs/runbooks/reasons/SlowNode.md" {
		t.Errorf("%q in\n%s", last, b.String())
	}
	for _, reason := range []string{v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowLink, v1alpha1.ReasonSlowRail,
		v1alpha1.ReasonHangAcrossNodes} {
		if _, err := os.Stat("../../" + RunbookPage(reason)); err != nil || RunbookPage(reason) == "" {
			t.Errorf("%s: %v", reason, err)
		}
	}
	b.Reset()
	if err := Culprits(&b, culprits[2:]); err != nil || strings.Contains(b.String(), "step by step") {
		t.Errorf("%v %s", err, b.String())
	}
}

// TestCulpritsWithoutRoom: of very many culprits the list names 16, and the others are told and shown as blamed, too.
func TestCulpritsWithoutRoom(t *testing.T) {
	group := &state.Group{Status: state.Status{
		Culprits: []v1alpha1.Culprit{{Node: "n0", Kind: "Node", Name: "n0", Reason: v1alpha1.ReasonSlowNode}},
		Span:     &v1alpha1.SpanStatus{RunID: "1-1", Reason: v1alpha1.ReasonHangAcrossNodes, CulpritSet: "0,2-3"}}}
	var nodes []Member
	for i := range 5 {
		n := NoMember(fmt.Sprint("n", i))
		n.Spec.Session = &v1alpha1.SessionAssignment{RunID: "1-1", Index: int32(i)}
		nodes = append(nodes, n)
	}
	nodes[3].Spec.Session.RunID = "1-0" // made anew
	if got, want := MoreCulprits(group, nodes),
		"more culprits than the list has room for (members 0,2-3 in all): n2"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if got := Blamed(group, nodes); len(got) != 2 || got["n0"] != v1alpha1.ReasonSlowNode ||
		got["n2"] != v1alpha1.ReasonHangAcrossNodes {
		t.Errorf("%v", got)
	}
	group.Status.Span.CulpritSet = "0"
	if got := MoreCulprits(group, nodes); got != "" {
		t.Error(got)
	}
}

func TestMemberSets(t *testing.T) {
	for text, ok := range map[string]bool{"0": true, "0-57,232": true, "3,5": true, "": false, "a": false, "3-1": false,
		"5,3": false, "1-": false, "-1": false, "1,,2": false, "99999999999": false} {
		set, got := parseMembers(text)
		if got != ok || ok && set.String() != text {
			t.Errorf("%q: %v %v", text, set, got)
		}
	}
	all, _ := parseMembers("0-9,20")
	for without, want := range map[string]string{"0": "1-9,20", "9": "0-8,20", "5": "0-4,6-9,20", "20": "0-9",
		"0-9,20": "", "11": "0-9,20", "8-20": "0-7"} {
		other, _ := parseMembers(without)
		if got := all.without(other); got.String() != want {
			t.Errorf("without %s: %s, expected %s", without, got, want)
		}
	}
	if n := all.count(); n != 11 {
		t.Errorf("%d members", n)
	}
}

// TestListShowsTheGroupsFigure: beside the members' median stands what they reached together, with the nodes where not
// all took part; what was not measured is no zero.
func TestListShowsTheGroupsFigure(t *testing.T) {
	group := state.Group{}
	group.Status.Members.Selected = 8
	for want, h := range map[string]*v1alpha1.Headline{
		"- -":              nil,
		"307.0 -":          {BusBandwidthMBps: 307000},
		"307.0 16.7":       {BusBandwidthMBps: 307000, GroupBusBandwidthMBps: ptr.To[int64](16700), GroupNodes: 8},
		"307.0 16.7 on 7 ": {BusBandwidthMBps: 307000, GroupBusBandwidthMBps: ptr.To[int64](16700), GroupNodes: 7},
	} {
		group.Status.Headline = h
		var b bytes.Buffer
		if err := Groups(&b, []state.Group{group}, false); err != nil {
			t.Fatal(err)
		}
		if row := strings.Join(strings.Fields(lines(&b)[1]), " "); !strings.Contains(row, " "+want) {
			t.Errorf("expected %q in %q", want, row)
		}
	}
}
