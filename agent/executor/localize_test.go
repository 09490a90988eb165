package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/rcclx"
)

// badTeams hang where the rule says so of their GPUs.
type badTeams func(gpus []int) bool

func (bad badTeams) Run(_ context.Context, team supervise.Team) supervise.Outcome {
	out := supervise.Outcome{Team: team.Name, Ranks: make([]supervise.RankOutcome, len(team.Specs))}
	var gpus []int
	for _, spec := range team.Specs {
		gpus = append(gpus, spec.Device)
	}
	if bad(gpus) {
		out.Failure = &supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "a step"}
		return out
	}
	out.Ranks[0].Measurements = []rank.Measurement{{SizeBytes: 1 << 10, Checks: []rcclx.CheckResult{{}}}}
	return out
}

func playSearch(t *testing.T, gpus int, bad badTeams) Search {
	t.Helper()
	pci := make([]string, gpus)
	for i := range pci {
		pci[i] = fmt.Sprintf("0000:%d5:00.0", i)
	}
	plan := defaultPlan()
	return search(t.Context(), bad, searchTask{node: "n0", plan: plan, pci: pci,
		what: "AllReduce BFloat16 1024 B hangs", step: repeatStep(nil, plan)}, nil)
}

// TestSearchBlamesNotHalfOfTheGPUs: where half of a node's GPUs or more fail in pairs, what they share is named and no
// GPU.
func TestSearchBlamesNotHalfOfTheGPUs(t *testing.T) {
	for _, gpus := range []int{6, 8, 16} {
		for broken := gpus / 2; broken < gpus; broken++ {
			s := playSearch(t, gpus, func(g []int) bool {
				return slices.ContainsFunc(g, func(x int) bool { return x >= gpus-broken })
			})
			if c := s.culprits("n0", "RankHung", nil); len(c) > 0 || s.why() == "" {
				t.Errorf("%d of %d GPUs fail: culprits %v (%s), expected none", broken, gpus, c, s.why())
			}
			if broken == gpus/2 && (!strings.Contains(s.why(), "what they share") || s.suspects() == "") {
				t.Errorf("%d of %d GPUs fail: why %q, suspects %q, expected what they share",
					broken, gpus, s.why(), s.suspects())
			}
		}
	}
}

func TestSearchIsInconclusive(t *testing.T) {
	for _, tc := range []struct {
		name          string
		gpus          int
		bad           badTeams
		why, suspects string
		rounds        int
	}{
		{"nothing reproduces it", 8, func([]int) bool { return false },
			"none of 16 smaller communicators in 5 rounds reproduces it", "", 5},
		{"everything fails", 8, func([]int) bool { return true }, "rather than one GPU",
			"GPUs 0,1 hung at a step; GPUs 2,3 hung", 1},
		{"two GPUs only", 2, func([]int) bool { return true }, "cannot be told from a link",
			"GPUs 0,1 hung at a step", 1},
		{"two GPUs that work", 2, func([]int) bool { return false }, "reproduces it", "", 1},
		{"one GPU", 1, func([]int) bool { return true }, "no communicator could be run", "", 0},
		{"fails only with four", 8, func(g []int) bool { return len(g) >= 4 }, "comes and goes", "", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := playSearch(t, tc.gpus, tc.bad)
			if c := s.culprits("n0", "RankHung", nil); len(c) > 0 {
				t.Errorf("culprits %v, expected none", c)
			}
			if !strings.Contains(s.why(), tc.why) || !strings.HasPrefix(s.suspects(), tc.suspects) ||
				(tc.suspects == "") != (s.suspects() == "") {
				t.Errorf("why %q, suspects %q, expected %q and %q in them", s.why(), s.suspects(), tc.why, tc.suspects)
			}
			if rounds := s.Finding.Evidence.Rounds; rounds > tc.rounds {
				t.Errorf("took %d rounds, expected at most %d", rounds, tc.rounds)
			}
		})
	}
}

func TestCulpritMessages(t *testing.T) {
	pci := []string{"", "", "0000:25:00.0", "0000:35:00.0", "", "", "", "0000:75:00.0"}
	s := playSearch(t, 8, func(g []int) bool { return slices.Contains(g, 3) })
	got := s.culprits("n0", "RankHung", pci)
	if len(got) != 1 || got[0].Kind != "GPU" || got[0].Name != "0000:35:00.0" || got[0].Node != "n0" {
		t.Fatalf("culprits = %+v", got)
	}
	for _, want := range []string{"hangs with every partner", "GPUs 2,3 hung at a step; GPUs ",
		"dmesg", "0000:35:00.0"} {
		if !strings.Contains(got[0].Message, want) {
			t.Errorf("message %q lacks %q", got[0].Message, want)
		}
	}
	s = playSearch(t, 8, func(g []int) bool { return slices.Contains(g, 2) && slices.Contains(g, 7) })
	got = s.culprits("n0", "RankHung", pci)
	if len(got) != 1 || got[0].Kind != "Link" || got[0].Name != "0000:25:00.0<->0000:75:00.0" ||
		!strings.Contains(got[0].Message, "GPUs 2,3 passed") {
		t.Fatalf("culprits = %+v", got)
	}
}
