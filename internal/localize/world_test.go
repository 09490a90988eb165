package localize

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world is what is really bad, by indexes.
type world struct {
	members []int
	pairs   [][2]int
}

// outcome of a test by the model.
func (w *world) outcome(set Set) Outcome {
	for _, member := range w.members {
		if set.Has(member) {
			return Bad
		}
	}
	for _, pair := range w.pairs {
		if set.Has(pair[0]) && set.Has(pair[1]) {
			return Bad
		}
	}
	return Good
}

// figures of many searches.
type figures struct {
	searches, tests, rounds int
	minTests, maxTests      int
	minRounds, maxRounds    int
}

func (f *figures) add(tests, rounds int) {
	if f.searches == 0 {
		f.minTests, f.minRounds = tests, rounds
	}
	f.searches++
	f.tests += tests
	f.rounds += rounds
	f.minTests, f.maxTests = min(f.minTests, tests), max(f.maxTests, tests)
	f.minRounds, f.maxRounds = min(f.minRounds, rounds), max(f.maxRounds, rounds)
}

func (f *figures) String() string {
	return fmt.Sprintf("%d searches: tests %d/%.1f/%d, rounds %d/%.1f/%d", f.searches,
		f.minTests, float64(f.tests)/float64(f.searches), f.maxTests, f.minRounds,
		float64(f.rounds)/float64(f.searches), f.maxRounds)
}

// explore searches in all worlds at once: worlds that answered alike so far share their next round, so that every
// reachable history is planned once.
func explore(t *testing.T, problem Problem, worlds []world, check func(w *world, finding *Finding) string) *figures {
	t.Helper()
	total := &figures{}
	var walk func(history []Test, worlds []world)
	walk = func(history []Test, worlds []world) {
		step := next(t, problem, history)
		if step.Done {
			for at := range worlds {
				if complaint := check(&worlds[at], &step.Finding); complaint != "" {
					t.Fatalf("N=%d, really bad %v: %s\nfinding %+v\n%s",
						len(problem.Members), worlds[at], complaint, step.Finding, listing(history))
				}
				total.add(len(history), step.Round)
			}
			return
		}
		branches := map[string][]world{}
		var order []string
		for at := range worlds {
			key := make([]byte, len(step.Tests))
			for number := range step.Tests {
				key[number] = worlds[at].outcome(step.Tests[number].Set)[0]
			}
			if _, known := branches[string(key)]; !known {
				order = append(order, string(key))
			}
			branches[string(key)] = append(branches[string(key)], worlds[at])
		}
		for _, key := range order {
			further := slices.Clone(history)
			for number, test := range step.Tests {
				test.Outcome = map[byte]Outcome{'G': Good, 'B': Bad}[key[number]]
				further = append(further, test)
			}
			walk(further, branches[key])
		}
	}
	walk(nil, worlds)
	return total
}

// next plans, and holds the step against what every step must be.
func next(t *testing.T, problem Problem, history []Test) Step {
	t.Helper()
	step, err := Next(problem, history)
	if err != nil {
		t.Fatal(err)
	}
	if complaint := stepComplaint(problem, history, &step); complaint != "" {
		t.Fatalf("N=%d: %s\n%+v\n%s", len(problem.Members), complaint, step, listing(history))
	}
	return step
}

func stepComplaint(problem Problem, history []Test, step *Step) string {
	if step.Done != (len(step.Tests) == 0) {
		return "a step must have tests or be done"
	}
	bound := problem.MaxRounds
	if bound == 0 {
		bound = MaxRounds(len(problem.Members), problem.Steady)
	}
	used := map[int]bool{}
	for at, test := range step.Tests {
		if test.Kind == KindSpan && (test.Round != step.Round || test.Round > bound) {
			return fmt.Sprintf("round %d of test %d is not the step's, or beyond %d", test.Round, at, bound)
		}
		if len(test.Set.String()) > MaxText || len(test.Set) < 2 ||
			!test.Set.sorted() || !test.Set.Within(problem.Members) ||
			len(test.Set) == len(problem.Members) && test.Kind == KindSpan && !problem.Fewer {
			return fmt.Sprintf("set %s of test %d is none", test.Set, at)
		}
		for _, member := range test.Set {
			if used[member] {
				return fmt.Sprintf("member %d is in two tests of a round", member)
			}
			used[member] = true
		}
	}
	most := problem.MaxTests
	if most == 0 {
		most = DefaultMaxTests
	}
	if len(step.Tests) > 0 && step.Tests[0].Kind == KindSpan && len(history)+len(step.Tests) > most {
		return fmt.Sprintf("%d tests, and %d is the bound", len(history)+len(step.Tests), most)
	}
	return ""
}

func listing(history []Test) string {
	text := ""
	for _, test := range history {
		text += fmt.Sprintf("  round %d %s %s: %s\n", test.Round, test.Kind, test.Set, test.Outcome)
	}
	return text
}

// exactly wants all that is bad by name, and nothing else.
func exactly(w *world, finding *Finding) string {
	if finding.State != Found || !slices.Equal(finding.Members, w.members) || !slices.Equal(finding.Pairs, w.pairs) ||
		len(finding.Suspects) > 0 {
		return "want exactly what is bad"
	}
	return ""
}

// combinations of k indexes below n.
func combinations(n, k int) []world {
	var worlds []world
	chosen := make([]int, 0, k)
	var choose func(from int)
	choose = func(from int) {
		if len(chosen) == k {
			worlds = append(worlds, world{members: slices.Clone(chosen)})
			return
		}
		for index := from; index < n; index++ {
			chosen = append(chosen, index)
			choose(index + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	choose(0)
	return worlds
}

// somewhere puts k bad members among n, at random but the same for the same seed.
func somewhere(n, k, count int, seed uint64) []world {
	random := rand.New(rand.NewPCG(seed, uint64(n)<<8|uint64(k)))
	worlds := make([]world, count)
	for at := range worlds {
		for len(worlds[at].members) < k {
			worlds[at].members = NewSet(append(worlds[at].members, random.IntN(n))...)
		}
	}
	return worlds
}

// allPairs gives a world for each bad pair among n.
func allPairs(n int) []world {
	var worlds []world
	for a := range n {
		for b := a + 1; b < n; b++ {
			worlds = append(worlds, world{pairs: [][2]int{{a, b}}})
		}
	}
	return worlds
}
