package executor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// playSearch plays the whole search against a rule that says which communicators fail, and checks that each round is
// disjoint and that the rounds are bounded.
func playSearch(t *testing.T, gpus int, bad func(group []int) bool) (Finding, int) {
	t.Helper()
	var probes []Probe
	round := 0
	for ; round < MaxRounds(gpus); round++ {
		groups := NextRound(gpus, probes)
		if len(groups) == 0 {
			break
		}
		used := map[int]bool{}
		for _, g := range groups {
			if len(g) < 2 {
				t.Fatalf("round %d: group %v has fewer than two GPUs", round+1, g)
			}
			for _, x := range g {
				if used[x] {
					t.Fatalf("round %d: GPU %d is in two groups of %v", round+1, x, groups)
				}
				used[x] = true
			}
			probes = append(probes, Probe{Round: round + 1, GPUs: g, Bad: bad(g), Saw: "hung"})
		}
	}
	return Conclude(gpus, probes), round
}

func TestSearchFindsEverySingleGPU(t *testing.T) {
	for gpus := 3; gpus <= 16; gpus++ {
		for culprit := range gpus {
			f, rounds := playSearch(t, gpus, func(g []int) bool { return slices.Contains(g, culprit) })
			if !slices.Equal(f.GPUs, []int{culprit}) || len(f.Links) > 0 {
				t.Errorf("%d GPUs, GPU %d at fault: got GPUs %v, links %v (%s)", gpus, culprit, f.GPUs, f.Links, f.Why)
			}
			if rounds > 3 {
				t.Errorf("%d GPUs, GPU %d at fault: took %d rounds", gpus, culprit, rounds)
			}
		}
	}
}

func TestSearchFindsEverySingleLink(t *testing.T) {
	for gpus := 3; gpus <= 16; gpus++ {
		worst := 0
		for a := range gpus {
			for b := a + 1; b < gpus; b++ {
				f, rounds := playSearch(t, gpus, func(g []int) bool { return slices.Contains(g, a) && slices.Contains(g, b) })
				worst = max(worst, rounds)
				if !slices.Equal(f.Links, []Pair{{a, b}}) || len(f.GPUs) > 0 {
					t.Errorf("%d GPUs, link %d-%d at fault: got GPUs %v, links %v (%s %s)", gpus, a, b, f.GPUs, f.Links, f.Why, f.Suspects)
				}
			}
		}
		t.Logf("%d GPUs: at most %d rounds", gpus, worst)
	}
}

func TestSearchFindsTwoGPUs(t *testing.T) {
	for a := range 8 {
		for b := a + 1; b < 8; b++ {
			f, _ := playSearch(t, 8, func(g []int) bool { return slices.Contains(g, a) || slices.Contains(g, b) })
			want := []int{a, b}
			if a/2 == b/2 {
				// Both in one pair: each fails beside a good one.
				want = []int{a, b}
			}
			if !slices.Equal(f.GPUs, want) {
				t.Errorf("GPUs %d and %d at fault: got GPUs %v, links %v (%s)", a, b, f.GPUs, f.Links, f.Why)
			}
		}
	}
}

// TestSearchBlamesNotHalfOfTheGPUs: where half of a node's GPUs or more fail in pairs, what they share is named and no GPU.
func TestSearchBlamesNotHalfOfTheGPUs(t *testing.T) {
	for _, gpus := range []int{6, 8, 16} {
		for broken := gpus / 2; broken < gpus; broken++ {
			f, _ := playSearch(t, gpus, func(g []int) bool { return slices.ContainsFunc(g, func(x int) bool { return x >= gpus-broken }) })
			if len(f.GPUs)+len(f.Links) > 0 || f.Why == "" {
				t.Errorf("%d of %d GPUs fail: got GPUs %v, links %v (%s), expected none", broken, gpus, f.GPUs, f.Links, f.Why)
			}
			if broken == gpus/2 && (!strings.Contains(f.Why, "what they share") || f.Suspects == "") {
				t.Errorf("%d of %d GPUs fail: why %q, suspects %q, expected what they share", broken, gpus, f.Why, f.Suspects)
			}
		}
	}
}

func TestSearchIsInconclusive(t *testing.T) {
	for _, tc := range []struct {
		name       string
		gpus       int
		bad        func([]int) bool
		why        string
		wantRounds int
	}{
		{"nothing reproduces it", 8, func([]int) bool { return false }, "reproduces it", 5},
		{"everything fails", 8, func([]int) bool { return true }, "rather than one GPU", 1},
		{"two GPUs only", 2, func([]int) bool { return true }, "cannot be told from a link", 1},
		{"two GPUs that work", 2, func([]int) bool { return false }, "reproduces it", 1},
		{"one GPU", 1, func([]int) bool { return true }, "no communicator could be run", 0},
		{"fails only with four", 8, func(g []int) bool { return len(g) >= 4 }, "contradict each other", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, rounds := playSearch(t, tc.gpus, tc.bad)
			if len(f.GPUs)+len(f.Links) > 0 {
				t.Errorf("got GPUs %v, links %v, expected none", f.GPUs, f.Links)
			}
			if !strings.Contains(f.Why, tc.why) {
				t.Errorf("why = %q, expected %q in it", f.Why, tc.why)
			}
			if rounds > MaxRounds(tc.gpus) || tc.wantRounds < rounds {
				t.Errorf("took %d rounds, expected at most %d", rounds, tc.wantRounds)
			}
		})
	}
}

func TestCulpritMessages(t *testing.T) {
	pci := make([]string, 8)
	for i := range pci {
		pci[i] = fmt.Sprintf("0000:%d5:00.0", i)
	}
	f, _ := playSearch(t, 8, func(g []int) bool { return slices.Contains(g, 3) })
	got := f.Culprits("n0", "RankHung", "AllReduce BFloat16 1024 B hangs", pci)
	if len(got) != 1 || got[0].Kind != "GPU" || got[0].Name != "0000:35:00.0" || got[0].Node != "n0" {
		t.Fatalf("culprits = %+v", got)
	}
	for _, want := range []string{"hangs", "GPUs 2,3 hung", "dmesg", "0000:35:00.0"} {
		if !strings.Contains(got[0].Message, want) {
			t.Errorf("message %q lacks %q", got[0].Message, want)
		}
	}
	f, _ = playSearch(t, 8, func(g []int) bool { return slices.Contains(g, 2) && slices.Contains(g, 7) })
	got = f.Culprits("n0", "WrongData", "wrong data", pci)
	if diff := cmp.Diff("0000:25:00.0<->0000:75:00.0", got[0].Name); diff != "" {
		t.Error(diff)
	}
}
