package localize

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// fewer under the race detector.
func fewer(plain, underRace int) int {
	if raced {
		return underRace
	}
	return plain
}

func all(n int) Problem { return Problem{Members: Range(0, n)} }

func TestOneBadNodeAnywhere(t *testing.T) {
	t.Parallel()
	sizes := []int{1024, 4096}
	for n := 3; n <= 512; n++ {
		if raced && n > 100 && n%23 > 0 {
			continue
		}
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		f := explore(t, all(n), combinations(n, 1), exactly)
		if f.searches != n {
			t.Fatalf("N=%d: %d searches", n, f.searches)
		}
		// Eight parts a round; below nine members no good partner is known in the first round, and below six few are in
		// the next.
		rounds := 1
		for reach := maxParts; reach < n; reach *= maxParts {
			rounds++
		}
		if n <= maxParts {
			rounds++
		}
		if n < 6 {
			rounds += 2
		}
		if f.maxRounds > rounds {
			t.Errorf("N=%d: %s, want at most %d rounds", n, f, rounds)
		}
	}
}

func TestOneBadNodeInGroupsOfAnySize(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 3))
	for n := 513; n <= 4096; n += 1 + random.IntN(fewer(64, 640)) {
		explore(t, all(n),
			append(somewhere(n, 1, 32, 4), world{members: []int{0}}, world{members: []int{n - 1}}), exactly)
	}
}

func TestTwoBadNodes(t *testing.T) {
	t.Parallel()
	for n := 4; n <= 64; n += fewer(1, 3) {
		explore(t, all(n), combinations(n, 2), exactly)
	}
	for _, n := range []int{65, 100, 513, 1000, 2049, 4096} {
		explore(t, all(n), somewhere(n, 2, 300, 5), exactly)
	}
}

func TestThreeBadNodes(t *testing.T) {
	t.Parallel()
	for n := 5; n <= 20; n++ {
		explore(t, all(n), combinations(n, 3), exactly)
	}
	explore(t, all(232), somewhere(232, 3, 5000, 6), exactly)
	explore(t, all(4096), somewhere(4096, 3, 300, 7), exactly)
}

func TestBadPair(t *testing.T) {
	t.Parallel()
	for n := 3; n <= 64; n += fewer(1, 3) {
		explore(t, all(n), allPairs(n), exactly)
	}
	random := rand.New(rand.NewPCG(8, 9))
	for _, n := range []int{65, 127, 232, 513, 1836, 2029, 4096} {
		var worlds []world
		for range fewer(200, 40) {
			pair := NewSet(random.IntN(n), random.IntN(n))
			if len(pair) == 2 {
				worlds = append(worlds, world{pairs: [][2]int{{pair[0], pair[1]}}})
			}
		}
		explore(t, all(n), worlds, exactly)
	}
}

// What a ring joins are neighbours in rank order: these are found in as few rounds as a member, and eight more.
func TestBadPairOfNeighbours(t *testing.T) {
	t.Parallel()
	for _, n := range []int{16, 64, 232, fewer(4096, 1000)} {
		worlds := []world{{pairs: [][2]int{{0, n - 1}}}}
		for member := range n - 1 {
			worlds = append(worlds, world{pairs: [][2]int{{member, member + 1}}})
		}
		members, pairs := explore(t, all(n), combinations(n, 1), exactly), explore(t, all(n), worlds, exactly)
		if pairs.maxRounds > members.maxRounds+8 {
			t.Errorf("N=%d: %s for pairs, %s for members", n, pairs, members)
		}
	}
}

// innocent complains of a named member that is neither bad nor an end of a bad pair, and of a named pair that is not
// bad.
func innocent(w *world, finding *Finding) string {
	for _, member := range finding.Members {
		isEnd := slices.ContainsFunc(w.pairs, func(pair [2]int) bool {
			return len(w.pairs) > 1 && (pair[0] == member || pair[1] == member)
		})
		if !slices.Contains(w.members, member) && !isEnd {
			return fmt.Sprintf("member %d is good", member)
		}
	}
	for _, pair := range finding.Pairs {
		if !slices.Contains(w.pairs, pair) {
			return fmt.Sprintf("pair %v is good", pair)
		}
	}
	return ""
}

func TestNoGoodNodeIsNamedWhateverIsBad(t *testing.T) {
	for n := 2; n <= 10; n++ {
		for k := range n {
			explore(t, all(n), combinations(n, k+1), func(w *world, finding *Finding) string {
				if k+1 <= 3 && n-k-1 >= 2 {
					return exactly(w, finding)
				}
				return innocent(w, finding)
			})
		}
	}
}

// named complains where nothing is named, or something good is.
func named(w *world, finding *Finding) string {
	if finding.State != Found || len(finding.Members)+len(finding.Pairs) == 0 {
		return "nothing is named"
	}
	return innocent(w, finding)
}

func TestBadNodeAndBadPair(t *testing.T) {
	for n := 4; n <= 24; n++ {
		var worlds []world
		for _, pair := range allPairs(n) {
			for member := range n {
				worlds = append(worlds, world{members: []int{member}, pairs: pair.pairs})
			}
		}
		explore(t, all(n), worlds, named)
	}
	var worlds []world
	for _, four := range somewhere(232, 4, 1000, 10) { // two members and a pair
		m := four.members
		worlds = append(worlds, world{members: []int{m[0], m[2]}, pairs: [][2]int{{m[1], m[3]}}})
	}
	explore(t, all(232), worlds, named)
}

func TestTwoBadPairs(t *testing.T) {
	for n := 4; n <= 14; n++ {
		var worlds []world
		pairs := allPairs(n)
		for at := range pairs {
			for _, other := range pairs[:at] {
				worlds = append(worlds, world{pairs: [][2]int{pairs[at].pairs[0], other.pairs[0]}})
			}
		}
		explore(t, all(n), worlds, func(w *world, finding *Finding) string {
			if n == 4 && finding.State == NotFound { // two pairs among four may leave no two that are good together
				return innocent(w, finding)
			}
			return named(w, finding)
		})
	}
}

// What one search leaves behind another finds, in the group without the culprits, from the same history.
func TestSearchGoesOnWithoutTheCulprits(t *testing.T) {
	t.Parallel()
	for _, seven := range somewhere(232, 7, fewer(400, 60), 11) {
		m := seven.members
		w := world{members: m[:3], pairs: [][2]int{{m[3], m[6]}, {m[4], m[5]}}}
		problem := all(232)
		problem.MaxRounds = 40
		var history []Test
		searches := 0
		for ; w.outcome(problem.Members) == Bad; searches++ {
			if searches > 5 {
				t.Fatalf("%v: still bad after %d searches", w, searches)
			}
			finding, further := search(t, problem, history, w.outcome)
			if complaint := named(&w, &finding); complaint != "" {
				t.Fatalf("%v: %s: %+v", w, complaint, finding)
			}
			history = further
			problem.Members = problem.Members.Without(finding.Members)
			for _, pair := range finding.Pairs {
				problem.Members = problem.Members.Without(Set{pair[1]})
			}
		}
		if len(problem.Members) < 232-5 {
			t.Fatalf("%v: %d members were taken out", w, 232-len(problem.Members))
		}
	}
}

// search to the end, with outcomes from the function.
func search(t *testing.T, problem Problem, history []Test, outcome func(set Set) Outcome) (Finding, []Test) {
	t.Helper()
	for {
		step := next(t, problem, history)
		if step.Done {
			return step.Finding, history
		}
		for _, test := range step.Tests {
			test.Outcome = Good
			if test.Kind == KindSpan {
				test.Outcome = outcome(test.Set)
			}
			history = append(history, test)
		}
	}
}

func TestFaultThatDoesNotComeBack(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 9, 16, 33, 64, 232, 1000, 4096, 12500} {
		finding, history := search(t, all(n), nil, func(Set) Outcome { return Good })
		if finding.State != NotFound || len(finding.Members)+len(finding.Pairs) > 0 ||
			!slices.Equal(finding.Suspects, Range(0, n)) {
			t.Errorf("N=%d: %+v", n, finding)
		}
		if n == 12500 && (len(history) > 62 || history[len(history)-1].Round > 8) {
			t.Errorf("N=%d: %d tests in %d rounds, want at most 62 in 8",
				n, len(history), history[len(history)-1].Round)
		}
		if n == 2 && len(history) > 0 || n > 2 && len(history) == 0 {
			t.Errorf("N=%d: %d tests", n, len(history))
		}
	}
}

func TestAllIsBad(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7, 8, 16, 32, 232, 4096, 12500} {
		problem := all(n)
		problem.MaxTests = 140 // what a run has left of its 160
		finding, history := search(t, problem, nil, func(Set) Outcome { return Bad })
		if len(finding.Members)+len(finding.Pairs) > 0 || !slices.Equal(finding.Suspects, Range(0, n)) ||
			finding.State != NotFound {
			t.Errorf("N=%d: %+v", n, finding)
		}
		if n >= 16 && !finding.Evidence.Shared {
			t.Errorf("N=%d, %d tests: %+v", n, len(history), finding.Evidence)
		}
	}
}

// Where many are bad, evenly or at random, it is still not what all share: some are named, and nobody who is good.
func TestManyAreBad(t *testing.T) {
	for _, n := range []int{16, 64, 232, 4096, 12500} {
		for _, every := range []int{2, 3, 4, 5, 20, 64, 195} {
			var worlds []world
			for from := range min(every, 5) {
				even := world{members: make([]int, 0, n/every)}
				for member := from; member < n; member += every {
					even.members = append(even.members, member)
				}
				worlds = append(worlds, even, somewhere(n, max(1, n/every), 1, uint64(from))[0])
			}
			for _, w := range worlds {
				if len(w.members) > n-2 {
					continue
				}
				problem := all(n)
				problem.MaxTests = 140
				finding, history := search(t, problem, nil, w.outcome)
				if complaint := innocent(&w, &finding); complaint != "" || len(finding.Members) == 0 {
					t.Errorf("N=%d, %d bad, one in %d: %s, %d named, %d tests in %d rounds: %+v",
						n, len(w.members), every, complaint, len(finding.Members), len(history),
						history[len(history)-1].Round, finding.Evidence)
				}
			}
		}
	}
}

// One test that says bad by chance puts nobody good to blame, whichever test it is.
func TestOneTestThatIsBadByChance(t *testing.T) {
	for _, n := range []int{3, 4, 5, 8, 16, 64, 232} {
		worlds := append([]world{{}}, somewhere(n, 1, 20, 16)...)
		for _, w := range worlds {
			for at := 0; ; at++ {
				made := 0
				finding, history := search(t, all(n), nil, func(set Set) Outcome {
					made++
					if made-1 == at {
						return Bad
					}
					return w.outcome(set)
				})
				if at >= len(history) {
					break
				}
				if complaint := innocent(&w, &finding); complaint != "" {
					t.Errorf("N=%d, really bad %v, test %d is bad by chance: %s: %+v\n%s",
						n, w, at, complaint, finding, listing(history))
				}
			}
		}
	}
}

// The same test that is now good, now bad: in bounds, with words, and bounds hold.
func TestFlapping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(12, 13))
	for range fewer(2000, 300) {
		n := 2 + random.IntN(300)
		share := random.Float64()
		search(t, all(n), nil, func(Set) Outcome {
			if random.Float64() < share {
				return Bad
			}
			return Good
		})
	}
}

// A member that sometimes passes never puts a member that is good to blame alone, and seldom, with it, its partner of a
// test: two bad tests of the same two members, while each is good with others, are what a pair shows, too.
func TestBadNodeThatSometimesPasses(t *testing.T) {
	random := rand.New(rand.NewPCG(14, 15))
	for _, passes := range []float64{0.1, 0.25, 0.5, 0.75} {
		const searches = 500
		byName, asPair := 0, 0
		for range searches {
			n := 8 + random.IntN(200)
			w := world{members: []int{random.IntN(n)}}
			finding, _ := search(t, all(n), nil, func(set Set) Outcome {
				if random.Float64() < passes {
					return Good
				}
				return w.outcome(set)
			})
			for _, member := range finding.Members {
				if member != w.members[0] {
					t.Fatalf("N=%d: member %d is good, %v is bad: %+v", n, member, w.members, finding)
				}
				byName++
			}
			for _, pair := range finding.Pairs {
				if pair[0] != w.members[0] && pair[1] != w.members[0] {
					t.Fatalf("N=%d: pair %v without %v: %+v", n, pair, w.members, finding)
				}
				asPair++
			}
		}
		t.Logf("passes %.0f %% of its tests: named alone in %d of %d, with a good one in %d",
			100*passes, byName, searches, asPair)
		if float64(asPair) > 0.2*searches || passes < 0.3 && asPair > byName/8 {
			t.Errorf("passes %.0f %% of its tests: named with a good one in %d searches of %d, and alone in %d",
				100*passes, asPair, searches, byName)
		}
	}
}
