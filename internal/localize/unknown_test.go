package localize

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Each test cannot be made the first time: all is found all the same, in twice the rounds.
func TestUnknownOnce(t *testing.T) {
	for _, n := range []int{5, 8, 16, 33, 232} {
		for _, w := range somewhere(n, 1+n/100, 100, 16) {
			problem := all(n)
			problem.MaxRounds = 2 * MaxRounds(n, false)
			seen := map[string]bool{}
			finding, _ := search(t, problem, nil, func(set Set) Outcome {
				if !seen[set.String()] {
					seen[set.String()] = true
					return Unknown
				}
				return w.outcome(set)
			})
			if complaint := exactly(&w, &finding); complaint != "" {
				t.Fatalf("N=%d, %v: %s: %+v", n, w, complaint, finding)
			}
		}
	}
}

// A member that no test can be made with is a suspect, never a culprit, and hides no culprit.
func TestUnknownForever(t *testing.T) {
	for n := 6; n <= 40; n++ {
		for bad := range n {
			for _, lost := range []int{0, n / 2, n - 1} {
				if lost == bad {
					continue
				}
				w := world{members: []int{bad}}
				problem := all(n)
				problem.MaxRounds = 40
				finding, history := search(t, problem, nil, func(set Set) Outcome {
					if set.Has(lost) {
						return Unknown
					}
					return w.outcome(set)
				})
				if !slices.Equal(finding.Members, w.members) || len(finding.Pairs) > 0 ||
					!slices.Equal(finding.Suspects, Set{lost}) {
					t.Fatalf("N=%d, bad %d, unknown %d: %+v\n%s", n, bad, lost, finding, listing(history))
				}
			}
		}
	}
}

func TestUnknownIsNeverGoodAndNeverBad(t *testing.T) {
	for _, n := range []int{2, 3, 8, 16, 232, 4096} {
		finding, history := search(t, all(n), nil, func(Set) Outcome { return Unknown })
		if finding.State == Found || !slices.Equal(finding.Suspects, Range(0, n)) {
			t.Errorf("N=%d: %+v", n, finding)
		}
		if n > 2 && len(history) == 0 {
			t.Errorf("N=%d: nothing was tried", n)
		}
	}
}

func TestUnknownNowAndThen(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 18))
	for range 1000 {
		n := 4 + random.IntN(300)
		w := somewhere(n, min(1+random.IntN(3), n-2), 1, random.Uint64())[0]
		finding, history := search(t, all(n), nil, func(set Set) Outcome {
			if random.IntN(4) == 0 {
				return Unknown
			}
			return w.outcome(set)
		})
		if complaint := innocent(&w, &finding); complaint != "" {
			t.Fatalf("N=%d, %v: %s: %+v\n%s", n, w, complaint, finding, listing(history))
		}
		for _, member := range w.members { // what is not named is a suspect, or hidden behind one that is named
			if len(finding.Members) == 0 && !finding.Suspects.Has(member) {
				t.Fatalf("N=%d: bad member %d is no suspect: %+v\n%s", n, member, finding, listing(history))
			}
		}
	}
}
