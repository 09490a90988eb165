package htmlreport

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestConditionsAreToldOnce: Ready takes over the words of another condition, and a page does not print hundreds of
// characters twice.
func TestConditionsAreToldOnce(t *testing.T) {
	for _, name := range []string{"good", "failed", "span"} {
		in := load(t, name)
		said := map[string]string{}
		for _, row := range conditionsGrid(in.Group, in.Now).Rows {
			kind, message := row.Cells[0].Text, row.Cells[3].Text
			if first := said[message]; first != "" && len(message) > 40 {
				t.Errorf("%s: %s repeats %s: %s", name, kind, first, message)
			}
			said[message] = kind
		}
	}
}

// TestPairs: a pair with a figure of its own has one bar, of its last test; the best pair is the line they are held
// against, and what is no pair of nodes has none.
func TestPairs(t *testing.T) {
	if pairBars(nil) != nil {
		t.Error("bars without a test")
	}
	in := load(t, "span")
	tests := report.TestLines(in.Group, in.Nodes)
	bars := pairBars(tests)
	if bars == nil {
		t.Fatal("no bars")
	}
	want := map[string]bool{}
	best := int64(0)
	for _, one := range tests {
		if len(one.Pair) == 2 && one.BusMBps != nil {
			want[one.Pair[0]+"–"+one.Pair[1]] = true
		}
		if strings.HasPrefix(one.ID, "screen") && one.BusMBps != nil {
			best = max(best, *one.BusMBps)
		}
	}
	if len(want) == 0 || len(bars.Bars) != len(want) || best == 0 || bars.Guide == nil ||
		!strings.HasPrefix(bars.Guide.Label, "best ") {
		t.Errorf("%d pairs, best %d; bars %+v", len(want), best, bars)
	}
	for _, b := range bars.Bars {
		if !want[b.Label] || b.Class != string(toneBad) && b.Class != string(toneGood) {
			t.Errorf("bar %+v", b)
		}
	}
	again := slices.Clone(tests)
	for i := range again {
		if len(again[i].Pair) == 2 && again[i].BusMBps != nil {
			again = append(again, again[i])
			again[len(again)-1].BusMBps, again[len(again)-1].Verdict = ptr.To(best), v1alpha1.VerdictPass
			break
		}
	}
	if b := pairBars(again); len(b.Bars) != len(bars.Bars) || b.Bars[len(b.Bars)-1].Class != string(toneGood) {
		t.Errorf("measured again: %+v", b)
	}
}

// TestRepeatsOnThePage: how many repeats a figure is the median of, and how far they are apart, for the group and for
// the nodes.
func TestRepeatsOnThePage(t *testing.T) {
	in := load(t, "span")
	for i := range in.Group.Status.Span.Results {
		r := &in.Group.Status.Span.Results[i]
		r.Repeats, r.SpreadPercent = 3, slices.Repeat([]int32{7}, len(r.SizeBytes))
	}
	plain := parse(t, render(t, load(t, "span")))
	in.Group.Status.Plan = &v1alpha1.RunPlan{Repeats: 3}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for j := range n.Status.Run.Results {
			r := &n.Status.Run.Results[j]
			r.SpreadPercent = slices.Repeat([]int32{int32(i)}, len(r.SizeBytes))
		}
	}
	d := checkPage(t, render(t, in))
	for _, want := range []string{"Repeats Apart", "3 7 %", "medians of 3 repeats, at most"} {
		if !strings.Contains(d.text, want) || strings.Contains(plain.text, want) {
			t.Errorf("%q is missing, or there without repeats", want)
		}
	}
}

// TestNothingIsNoMark: where there is nothing to say, no character stands for it.
func TestNothingIsNoMark(t *testing.T) {
	for _, name := range []string{"good", "failed", "span"} {
		if d := parse(t, render(t, load(t, name))); strings.ContainsRune(d.text, '\uFFFD') {
			t.Errorf("%s: %q", name, d.text)
		}
	}
}

// TestPairsHaveCommands for both of their nodes.
func TestPairsHaveCommands(t *testing.T) {
	in := load(t, "span")
	in.Group.Status.Culprits = []v1alpha1.Culprit{{Kind: "Pair", Pair: []string{"sim-node-1", "sim-node-2"},
		Name: "sim-node-1<->sim-node-2", Reason: v1alpha1.ReasonSlowPair, Message: "slow"}}
	for _, want := range []string{"kubectl commgroup topology sim-node-1 -n default",
		"kubectl commgroup topology sim-node-2 -n default"} {
		if c := newCulprits(in.Group); !slices.Contains(c[0].Commands, want) {
			t.Errorf("%q lacks %q", c[0].Commands, want)
		}
	}
}

// TestTileOverAllNodes: the figure at the top is of the whole group, as lists and history have it; what is left without
// the culprit stands beside it.
func TestTileOverAllNodes(t *testing.T) {
	s := load(t, "span").Group.Status
	after := overNodes(&s)
	s.Headline.GroupBusBandwidthMBps, s.Headline.GroupNodes, s.Span.Left = ptr.To[int64](16700), 4,
		[]string{"sim-node-2"}
	got := overNodes(&s)
	if got.Value != "16.7 GB/s" ||
		!strings.Contains(got.Note, "over 4 nodes; without sim-node-2 "+after.Value+"; transport ") {
		t.Errorf("%+v, the group that is left %+v", got, after)
	}
	s.Headline, s.Span.Results = nil, nil
	if got = overNodes(&s); got.Value != unknown || !strings.HasPrefix(got.Note, "not measured; ") {
		t.Errorf("%+v", got)
	}
}

// TestSpanBeforeItsMembersAreFixed tells no count of them.
func TestSpanBeforeItsMembersAreFixed(t *testing.T) {
	group := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{RunID: "1-2", Stage: v1alpha1.StageNodes}}}
	if v := newSpan(group, nil); v.Head != "Run 1-2, stage Nodes" || v.Pairs != nil || len(v.Tests.Rows) != 0 {
		t.Errorf("%+v", v)
	}
}
