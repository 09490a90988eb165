package executor

import (
	"fmt"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestBlameOfADeath: a rank that aborts points at its GPU; one that someone else killed points at no hardware.
func TestBlameOfADeath(t *testing.T) {
	evidence := func(killed bool) Evidence {
		return Evidence{Node: "node-a", Plan: defaultPlan(), Ranks: 8,
			Prepared: Prepared{PCI: []string{0: "0000:05:00.0", 2: "0000:5b:00.0", 7: ""}},
			Failure: &supervise.Failure{Kind: supervise.FailDied, Rank: 2, Step: "init", Killed: killed,
				Message: "rank 2 died"}}
	}
	for name, tc := range map[string]struct {
		killed     bool
		kind, want string
	}{
		"by its own signal": {false, "GPU", "0000:5b:00.0"},
		"by SIGKILL":        {true, "Rank", "rank 2"},
	} {
		j := Judge(evidence(tc.killed))
		if j.Verdict != api.VerdictFail || j.Reason != api.ReasonRankDied || len(j.Culprits) != 1 {
			t.Fatalf("%s: %+v, expected one culprit for RankDied", name, j)
		}
		if c := j.Culprits[0]; c.Kind != tc.kind || c.Name != tc.want || c.Node != "node-a" {
			t.Errorf("%s: culprit %+v, expected %s %s", name, c, tc.kind, tc.want)
		}
	}
}

// TestStoppedRanksBlameNoGPU: whoever does not run is what the others wait for, and no GPU is to blame.
func TestStoppedRanksBlameNoGPU(t *testing.T) {
	for _, stopped := range [][]int{{1}, {0, 3}} {
		f := supervise.Failure{Kind: supervise.FailHung, Rank: -1, Behind: stopped, Stopped: stopped,
			Message: "find who sent SIGSTOP"}
		j := Judge(Evidence{Node: "n", Plan: defaultPlan(), Ranks: 4,
			Prepared: Prepared{PCI: make([]string, 4)}, Failure: &f})
		if needsSearch(&f) || len(j.Culprits) != len(stopped) {
			t.Fatalf("%v: needs a search %v, culprits %+v", stopped, needsSearch(&f), j.Culprits)
		}
		for i, c := range j.Culprits {
			if c.Kind != "Rank" || c.Name != fmt.Sprintf("rank %d", stopped[i]) ||
				!strings.Contains(c.Message, "SIGSTOP") {
				t.Errorf("%v: culprit %+v", stopped, c)
			}
		}
	}
}

// TestNeedsSearch: a failure that names its rank needs none; RAS's word alone is not enough.
func TestNeedsSearch(t *testing.T) {
	for name, tc := range map[string]struct {
		failure *supervise.Failure
		want    bool
	}{
		"none":            {nil, false},
		"all hang":        {&supervise.Failure{Kind: supervise.FailHung, Rank: -1}, true},
		"some are behind": {&supervise.Failure{Kind: supervise.FailHung, Rank: -1, Behind: []int{1, 3}}, true},
		"one is behind":   {&supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}}, false},
		"one by RAS's word": {&supervise.Failure{Kind: supervise.FailHung, Rank: 3, Behind: []int{3},
			ByRAS: true}, true},
		"a rank died": {&supervise.Failure{Kind: supervise.FailDied, Rank: 2}, false},
		"a collective failed": {&supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeCollectiveFailed},
			true},
		"init failed": {&supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeInitFailed}, true},
		"the library is amiss": {&supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeLibraryMissing},
			false},
	} {
		if got := needsSearch(tc.failure); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
