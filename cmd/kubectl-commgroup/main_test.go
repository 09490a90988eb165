package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"done":      {nil, 0},
		"not ready": {fmt.Errorf("wrapped: %w", errNotReady), 1},
		"failed":    {errors.New("no cluster"), 2},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", name, got, tc.want)
		}
	}
}

// TestRunOver: a run of an older spec, or one while another is asked for, is not the one that a user waits for.
func TestRunOver(t *testing.T) {
	group := func(generation, observed, ofRun int64, phase v1alpha1.RunPhase, requests ...string) *state.Group {
		return &state.Group{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status: state.Status{ObservedGeneration: observed, Requests: requests,
				Run: &v1alpha1.GroupRunStatus{Generation: ofRun, Phase: phase}},
		}
	}
	behind := group(2, 2, 2, v1alpha1.RunPhaseFinished)
	behind.Status.Behind = true
	for name, tc := range map[string]struct {
		group *state.Group
		want  bool
	}{
		"no run yet":     {&state.Group{}, false},
		"not yet judged": {behind, false},
		"finished":       {group(2, 2, 2, v1alpha1.RunPhaseFinished), true},
		"aborted":        {group(2, 2, 2, v1alpha1.RunPhaseAborted), true},
		"going on":       {group(2, 2, 2, v1alpha1.RunPhaseRunning), false},
		"older spec":     {group(2, 2, 1, v1alpha1.RunPhaseFinished), false},
		"not yet seen":   {group(2, 1, 2, v1alpha1.RunPhaseFinished), false},
		"before request": {group(2, 2, 2, v1alpha1.RunPhaseFinished, "pool-asked"), false},
	} {
		if got := runOver(tc.group); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestResultsOutputs(t *testing.T) {
	group := &state.Group{Status: state.Status{
		Origin: v1alpha1.OriginSimulated, Run: &v1alpha1.GroupRunStatus{ID: "1-1"}, ResultsRunID: "1-1",
		Results: []v1alpha1.GroupResultSeries{{Variant: "Baseline", Collective: "AllReduce", Datatype: "BFloat16",
			Nodes: 4, SizeBytes: []int64{1024, 4096}, LatencyNanoseconds: []int64{20000}, BusBandwidthMBps: []int64{90},
			MinBusBandwidthMBps: []int64{80}}},
	}}
	var b bytes.Buffer
	if err := printResults(&b, group, nil, nil, resultsChoice{output: "csv"}); err != nil {
		t.Fatal(err)
	}
	want := "origin,run,variant,collective,datatype,placement,sizeBytes,latencyNanoseconds,busBandwidthMBps," +
		"minBusBandwidthMBps,nodes\n" +
		"Simulated,1-1,Baseline,AllReduce,BFloat16,OutOfPlace,1024,20000,90,80,4\n" +
		"Simulated,1-1,Baseline,AllReduce,BFloat16,OutOfPlace,4096,,,,4\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	// What the group reached over several nodes stands below the figures of the nodes alone.
	group.Status.Span = &v1alpha1.SpanStatus{RunID: "1-1", Results: []v1alpha1.SpanResultSeries{{Dimension: "group",
		Communicators: 1, Ranks: 8, Nodes: 4, Collective: "AllReduce",
		Datatype: "BFloat16", SizeBytes: []int64{1 << 24}, LatencyNanoseconds: []int64{694000},
		BusBandwidthMBps: []int64{42292}, MinBusBandwidthMBps: []int64{42292}}}}
	b.Reset()
	if err := printResults(&b, group, nil, nil, resultsChoice{output: "table"}); err != nil {
		t.Fatal(err)
	}
	_, over, ok := strings.Cut(b.String(), "Over several nodes, run 1-1 (the tables above are of each node alone)\n")
	if got := strings.Join(strings.Fields(over), " "); !ok ||
		!strings.HasSuffix(got, "group 1 8 4 AllReduce BFloat16 16M 694 42.3 42.3") {
		t.Errorf("the group's own figures are missing:\n%s", b.String())
	}
	if err := printResults(&b, group, nil, nil, resultsChoice{output: "xml"}); err == nil ||
		!strings.Contains(err.Error(), "table, json or csv") {
		t.Errorf("an unknown output must name the known ones, got %v", err)
	}
	if err := printResults(&b, group, nil, nil, resultsChoice{output: "table", node: "nowhere"}); err == nil ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("an unknown node must be named, got %v", err)
	}
}
