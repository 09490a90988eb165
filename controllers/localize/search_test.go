package localize

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
		// Eight parts a round; below nine members no good partner is known in the first round, and below six few are in the next.
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
		explore(t, all(n), append(somewhere(n, 1, 32, 4), world{nodes: []int{0}}, world{nodes: []int{n - 1}}), exactly)
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

// What a ring joins are neighbours in rank order: these are found in as few rounds as a node, and eight more.
func TestBadPairOfNeighbours(t *testing.T) {
	t.Parallel()
	for _, n := range []int{16, 64, 232, fewer(4096, 1000)} {
		worlds := []world{{pairs: [][2]int{{0, n - 1}}}}
		for node := range n - 1 {
			worlds = append(worlds, world{pairs: [][2]int{{node, node + 1}}})
		}
		nodes, pairs := explore(t, all(n), combinations(n, 1), exactly), explore(t, all(n), worlds, exactly)
		if pairs.maxRounds > nodes.maxRounds+8 {
			t.Errorf("N=%d: %s for pairs, %s for nodes", n, pairs, nodes)
		}
	}
}

// innocent complains of a named node that is neither bad nor an end of a bad pair, and of a named pair that is not bad.
func innocent(w *world, finding *Finding) string {
	for _, node := range finding.Nodes {
		isEnd := slices.ContainsFunc(w.pairs, func(pair [2]int) bool { return len(w.pairs) > 1 && (pair[0] == node || pair[1] == node) })
		if !slices.Contains(w.nodes, node) && !isEnd {
			return fmt.Sprintf("member %d is good", node)
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
	if finding.State != Found || len(finding.Nodes)+len(finding.Pairs) == 0 {
		return "nothing is named"
	}
	return innocent(w, finding)
}

func TestBadNodeAndBadPair(t *testing.T) {
	for n := 4; n <= 24; n++ {
		var worlds []world
		for _, pair := range allPairs(n) {
			for node := range n {
				worlds = append(worlds, world{nodes: []int{node}, pairs: pair.pairs})
			}
		}
		explore(t, all(n), worlds, named)
	}
	var worlds []world
	for _, nodes := range somewhere(232, 4, 1000, 10) { // two nodes and a pair
		worlds = append(worlds, world{nodes: []int{nodes.nodes[0], nodes.nodes[2]}, pairs: [][2]int{{nodes.nodes[1], nodes.nodes[3]}}})
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
	for _, nodes := range somewhere(232, 7, fewer(400, 60), 11) {
		w := world{nodes: nodes.nodes[:3], pairs: [][2]int{{nodes.nodes[3], nodes.nodes[6]}, {nodes.nodes[4], nodes.nodes[5]}}}
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
			problem.Members = problem.Members.Without(finding.Nodes)
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
		if finding.State != NotFound || len(finding.Nodes)+len(finding.Pairs) > 0 || !slices.Equal(finding.Suspects, Range(0, n)) {
			t.Errorf("N=%d: %+v", n, finding)
		}
		if n == 12500 && (len(history) > 62 || history[len(history)-1].Round > 8) {
			t.Errorf("N=%d: %d tests in %d rounds, want at most 62 in 8", n, len(history), history[len(history)-1].Round)
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
		if len(finding.Nodes)+len(finding.Pairs) > 0 || !slices.Equal(finding.Suspects, Range(0, n)) || finding.State != NotFound {
			t.Errorf("N=%d: %+v", n, finding)
		}
		if n >= 16 && !strings.Contains(finding.Why, "look for what all members share") {
			t.Errorf("N=%d, %d tests: %s", n, len(history), finding.Why)
		}
	}
}

// Where many are bad, evenly or at random, it is still not what all share: some are named, and nobody who is good.
func TestManyAreBad(t *testing.T) {
	for _, n := range []int{16, 64, 232, 4096, 12500} {
		for _, every := range []int{2, 3, 4, 5, 20, 64, 195} {
			var worlds []world
			for from := range min(every, 5) {
				even := world{nodes: make([]int, 0, n/every)}
				for node := from; node < n; node += every {
					even.nodes = append(even.nodes, node)
				}
				worlds = append(worlds, even, somewhere(n, max(1, n/every), 1, uint64(from))[0])
			}
			for _, w := range worlds {
				if len(w.nodes) > n-2 {
					continue
				}
				problem := all(n)
				problem.MaxTests = 140
				finding, history := search(t, problem, nil, w.outcome)
				if complaint := innocent(&w, &finding); complaint != "" || len(finding.Nodes) == 0 {
					t.Errorf("N=%d, %d bad, one in %d: %s, %d named, %d tests in %d rounds: %s", n, len(w.nodes), every, complaint, len(finding.Nodes), len(history), history[len(history)-1].Round, finding.Why)
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
					t.Errorf("N=%d, really bad %v, test %d is bad by chance: %s: %+v\n%s", n, w, at, complaint, finding, listing(history))
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

// A node that sometimes passes never puts a node that is good to blame alone, and seldom, with it, its partner of a test: two bad
// tests of the same two nodes, while each is good with others, are what a pair shows, too.
func TestBadNodeThatSometimesPasses(t *testing.T) {
	random := rand.New(rand.NewPCG(14, 15))
	for _, passes := range []float64{0.1, 0.25, 0.5, 0.75} {
		const searches = 500
		byName, asPair := 0, 0
		for range searches {
			n := 8 + random.IntN(200)
			w := world{nodes: []int{random.IntN(n)}}
			finding, _ := search(t, all(n), nil, func(set Set) Outcome {
				if random.Float64() < passes {
					return Good
				}
				return w.outcome(set)
			})
			for _, node := range finding.Nodes {
				if node != w.nodes[0] {
					t.Fatalf("N=%d: member %d is good, %v is bad: %+v", n, node, w.nodes, finding)
				}
				byName++
			}
			for _, pair := range finding.Pairs {
				if pair[0] != w.nodes[0] && pair[1] != w.nodes[0] {
					t.Fatalf("N=%d: pair %v without %v: %+v", n, pair, w.nodes, finding)
				}
				asPair++
			}
		}
		t.Logf("passes %.0f %% of its tests: named alone in %d of %d, with a good one in %d", 100*passes, byName, searches, asPair)
		if float64(asPair) > 0.2*searches || passes < 0.3 && asPair > byName/8 {
			t.Errorf("passes %.0f %% of its tests: named with a good one in %d searches of %d, and alone in %d", 100*passes, asPair, searches, byName)
		}
	}
}
