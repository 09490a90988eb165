package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestStatusShowsAdvice: only where there is some.
func TestStatusShowsAdvice(t *testing.T) {
	const title = "\nSettings worth it, by the A/B numbers\n"
	group := &state.Group{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, false, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), title); got != want {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Status.Advice = []v1alpha1.SettingAdvice{{Name: "dda.AllReduce/BFloat16", State: v1alpha1.WorthYes}}
	}
}

// TestStatusShowsHistory: only once a run is over.
func TestStatusShowsHistory(t *testing.T) {
	group := &state.Group{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, false, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\nLast runs\n"); got != want {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Status.History = []v1alpha1.RunSummary{{ID: "1-1"}}
	}
}

// TestStatusShowsGating: whom a dry run would mark is seen without YAML.
func TestStatusShowsGating(t *testing.T) {
	group := &state.Group{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, false, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\nGating\n"); got != want ||
			want && !strings.Contains(b.String(), "would gate node-a") {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Spec.Gating.Mode, group.Status.WouldGate = v1alpha1.GatingDryRun, []string{"node-a"}
	}
}

// TestStatusOfManyMembers: the culprits and the worst members are seen first, and the others are counted.
func TestStatusOfManyMembers(t *testing.T) {
	group := &state.Group{}
	group.Status.Culprits = []v1alpha1.Culprit{{Kind: "Pair", Pair: []string{"n00007", "n12001"},
		Name: "n00007<->n12001", Reason: v1alpha1.ReasonSlowPair, Message: "slow"}}
	var nodes []report.Member
	for i := range 12500 {
		n := report.NoMember(fmt.Sprintf("n%05d", i))
		n.Spec.Ranks.First, n.Spec.Run = int32(8*i), &v1alpha1.RunAssignment{ID: "1-1"}
		n.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1", Phase: v1alpha1.NodeRunFinished,
			Verdict: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonAllPassed}
		if i == 9000 {
			n.Status.Run.Verdict, n.Status.Run.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink
		}
		nodes = append(nodes, n)
	}
	for _, all := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nodes, all, time.Now()); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		lines := strings.Count(text, "\n")
		if all != (lines > len(nodes)) || !all && lines > 60 {
			t.Errorf("all %v: %d lines", all, lines)
		}
		if strings.Contains(text, "and 12468 more: 12468 Pass. --all-members lists them") == all {
			t.Errorf("all %v: the others are not counted:\n%.3000s", all, text)
		}
		at := -1
		for _, want := range []string{"\nCulprits\n", "\nMembers\n", "\nn00007 ", "\nn12001 ",
			"\nn09000 ", "\nn00000 "} {
			next := strings.Index(text, want)
			if next <= at {
				t.Errorf("all %v: %q is not after what is more urgent:\n%.3000s", all, want, text)
			}
			at = next
		}
		_, after, _ := strings.Cut(text, "\nn12001 ")
		line, _, _ := strings.Cut(after, "\n")
		if got := strings.Join(strings.Fields(line), " "); !strings.Contains(got, "Pass alone culprit: SlowPair") {
			t.Errorf("the culprit's line says %s", got)
		}
	}
}

// TestStatusShowsTheStageBeforeTheMembers: who watches a search sees it in the first lines.
func TestStatusShowsTheStageBeforeTheMembers(t *testing.T) {
	group := &state.Group{Status: state.Status{Span: &v1alpha1.SpanStatus{RunID: "1-1",
		Stage: v1alpha1.StageLocalizing}}}
	var b bytes.Buffer
	if err := printStatus(&b, group, []report.Member{{}}, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	stage, members := strings.Index(b.String(), "\nOver several nodes\n"), strings.Index(b.String(), "\nMembers\n")
	if stage < 0 || members < stage {
		t.Errorf("%s", b.String())
	}
}
