package main

import (
	"testing"
	"time"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestARunCostsFewRequests: bounds on what a run costs the API server, in requests and bytes. Times are no matter of a
// test.
func TestARunCostsFewRequests(t *testing.T) {
	bin, err := testenv.Programs()
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 60
	r, err := measure(
		t.Context(),
		&options{nodes: nodes, parallel: nodes, workers: 8, bin: bin, deadline: 5 * time.Minute},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			r.print()
		}
	}()
	// Of each CommTask: created, its pod noted. Of each pod: created, deleted. The rest is the CommGroup's and the
	// CommRun's.
	if got := perNode(r.manager(), nodes); got > 6 {
		t.Errorf("the manager writes %.1f times a node, at most 6 are expected", got)
	}
	if got := r.requests.code("429"); got > 0 {
		t.Errorf("%d requests were throttled", got)
	}
	// What other pods hold of a node's GPUs is in no cache: one list a node, where run.nodes is Idle.
	var lists int64
	for _, line := range r.requests.lines() {
		if line.verb == "LIST" && line.code == "200" {
			lists += line.count
		}
	}
	if got := perNode(lists, nodes); got > 1.5 {
		t.Errorf("%.1f LISTs a node, expected about one, of its pods", got)
	}
	budget := map[string]int{"CommGroup": 16 << 10, "CommRun": 64 << 10, "CommTask": 13 << 10, "CommNode": 4 << 10}
	for _, s := range r.sizes {
		if s.bytes > budget[s.kind] {
			t.Errorf("%s %s has %d bytes, at most %d are expected", s.kind, s.name, s.bytes, budget[s.kind])
		}
		delete(budget, s.kind)
	}
	if len(budget) > 0 {
		t.Errorf("no object of %v was seen", budget)
	}
}
