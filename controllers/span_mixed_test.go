package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestMixedFaultsKeepTheirReasons draws faults of several kinds at once: nobody innocent is named, what hangs, dies or
// corrupts is not called slow, what is only slow is not said to hang, and nothing passes.
func TestMixedFaultsKeepTheirReasons(t *testing.T) {
	for seed := range testenv.Draws[uint64](15, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 77))
			nodes := 3 + random.IntN(30)
			f, kinds := drawFaults(random, nodes)
			w := newGroupWorld(t, nodes, f, nil)
			w.play()
			s := w.span()
			is := func(members []int, fits func(kind string) bool) bool {
				return slices.ContainsFunc(members, func(i int) bool { return slices.ContainsFunc(kinds[i], fits) })
			}
			for _, c := range s.Culprits {
				accused := w.accused(&c)
				slow := slices.Contains([]string{v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowPair,
					v1alpha1.ReasonSlowRail}, c.Reason)
				switch {
				case !is(accused, func(string) bool { return true }):
					t.Errorf("%s %s is good: %s", c.Kind, c.Name, c.Message)
				case slow && !is(accused, func(kind string) bool { return kind == "slow" }),
					!slow && stage.VerdictOf(c.Reason) == v1alpha1.VerdictFail &&
						!is(accused, func(kind string) bool { return kind != "slow" }):
					t.Errorf("%v is called %s: %s", accused, c.Reason, c.Message)
				}
			}
			if s.Verdict == v1alpha1.VerdictPass || t.Failed() {
				t.Errorf("%d nodes, %+v: %s %s %s\n%s", nodes, f, s.Verdict, s.Reason, s.Message, w.tests())
			}
		})
	}
}

// drawFaults gives one to three faults, and by member what kinds it has.
func drawFaults(random *rand.Rand, nodes int) (f faults, kinds map[int][]string) {
	kinds = map[int][]string{}
	pick := func(kind string) int {
		i := random.IntN(nodes)
		kinds[i] = append(kinds[i], kind)
		return i
	}
	for range 1 + random.IntN(3) {
		switch random.IntN(11) {
		case 0, 1:
			f.hangNodes = append(f.hangNodes, pick("hang"))
		case 2:
			f.slowNodes = append(f.slowNodes, pick("slow"))
		case 3:
			if a, b := pick("hang"), pick("hang"); a != b {
				f.hangPairs = append(f.hangPairs, [2]int{a, b})
			}
		case 4:
			f.slowRails = append(f.slowRails, [2]int{pick("slow"), random.IntN(8)})
		case 5:
			f.silentNodes = append(f.silentNodes, pick("silent"))
		case 6:
			f.wrongNodes = append(f.wrongNodes, pick("wrong"))
		case 7:
			if a, b := pick("slow"), pick("slow"); a != b {
				f.slowPairs = append(f.slowPairs, [2]int{min(a, b), max(a, b)})
			}
		case 8:
			f.crawlNodes = append(f.crawlNodes, pick("slow"))
		case 9:
			f.dieNodes = append(f.dieNodes, pick("die"))
		case 10:
			f.muteNodes = append(f.muteNodes, pick("silent"))
		}
	}
	if random.IntN(3) == 0 { // the bandwidth falls with the number of nodes
		f.figure = func(here []int, mbps int64) int64 { return mbps * 100 / int64(95+2*len(here)) }
	}
	return f, kinds
}
