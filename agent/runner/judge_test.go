package runner

import (
	"testing"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestBlameOfADeath: a rank that aborts points at its GPU; one that someone else killed points at no hardware.
func TestBlameOfADeath(t *testing.T) {
	evidence := func(killed bool) Evidence {
		return Evidence{Node: "node-a", Plan: defaultPlan(), Ranks: 8, PCI: []string{0: "0000:05:00.0", 2: "0000:5b:00.0", 7: ""},
			Failure: &Failure{Kind: FailDied, Rank: 2, Step: "init", Killed: killed, Message: "rank 2 died"}}
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
