package localize

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
)

// The figures that others publish: every pair of 232 members is 26,796 tests, and NVIDIA's engine is designed for 22 to
// 57 tests in 3 to 7 rounds (ADR-055 of its repository, a calculation).
func TestFiguresAt232(t *testing.T) {
	t.Parallel()
	const exhaustive, fewest, most, fewestRounds, mostRounds = 232 * 231 / 2, 22, 57, 3, 7
	three := somewhere(232, 3, fewer(10000, 2000), 20)
	if os.Getenv("LOCALIZE_EXHAUSTIVE") != "" {
		three = combinations(232, 3)
	}
	for _, c := range []struct {
		worlds              []world
		tests, rounds       int // at most
		meanTests, meanBest float64
	}{
		{combinations(232, 1), 19, 3, 19, fewest},
		{combinations(232, 2), 31, 4, 30, most},
		{three, 43, 4, 40, most},
	} {
		f := explore(t, all(232), c.worlds, exactly)
		t.Log(len(c.worlds[0].members), "bad:", f)
		mean := float64(f.tests) / float64(f.searches)
		if f.maxTests > c.tests || f.maxRounds > c.rounds || mean > c.meanTests {
			t.Errorf("%d bad: %s, want at most %d tests, %.0f in the mean, and %d rounds",
				len(c.worlds[0].members), f, c.tests, c.meanTests, c.rounds)
		}
		if f.maxTests > most || f.minTests > fewest || mean > c.meanBest || f.minRounds > fewestRounds ||
			f.maxRounds > mostRounds {
			t.Errorf("%d bad: %s is more than %d to %d tests and %d to %d rounds",
				len(c.worlds[0].members), f, fewest, most, fewestRounds, mostRounds)
		}
		if f.maxTests*500 > exhaustive {
			t.Errorf("%d bad: %s is not a five-hundredth of %d", len(c.worlds[0].members), f, exhaustive)
		}
	}
	// A pair that is bad only together is harder, and these figures are not below the published ones.
	f := explore(t, all(232), allPairs(232), exactly)
	t.Log("a pair:", f)
	if f.maxRounds > 17 || f.maxTests > 89 || f.tests > 50*f.searches {
		t.Errorf("a pair: %s, want at most 89 tests, 50 in the mean, and 17 rounds", f)
	}
}

func TestManyBadNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, k int }{{16, 7}, {64, 20}, {232, 20}, {4096, 8}} {
		f := explore(t, all(c.n), somewhere(c.n, c.k, fewer(50, 10), 21), exactly)
		if c.n == 232 && (f.maxTests > 170 || f.maxRounds > 5) {
			t.Errorf("%d of %d: %s, want at most 170 tests and 5 rounds", c.k, c.n, f)
		}
	}
	// More than the tests do for: some by their names, and no good one.
	explore(t, all(12500), somewhere(12500, 20, 20, 22), func(w *world, finding *Finding) string {
		if finding.State != OutOfBounds || len(finding.Members) < 6 {
			return "want some of them by name, and that bounds ended it"
		}
		for _, member := range w.members {
			if !slices.Contains(finding.Members, member) && !finding.Suspects.Has(member) {
				return fmt.Sprintf("bad member %d is neither named nor a suspect", member)
			}
		}
		return innocent(w, finding)
	})
}

// Members that left long ago leave gaps.
func TestMembersWithGaps(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	for range 200 {
		var members Set
		for index := range 600 {
			if random.IntN(3) > 0 {
				members = append(members, index)
			}
		}
		w := world{members: []int{members[random.IntN(len(members))]}}
		finding, _ := search(t, Problem{Members: members}, nil, w.outcome)
		if complaint := exactly(&w, &finding); complaint != "" {
			t.Fatalf("%s: %v, %+v", complaint, w, finding)
		}
	}
}

// A set that has more runs than the API keeps of it is tried in pieces.
func TestRaggedMembers(t *testing.T) {
	var members Set
	for index := range 700 {
		members = append(members, 1_000_000+2*index)
	}
	for at := 0; at < len(members); at += 97 {
		w := world{members: []int{members[at]}}
		finding, _ := search(t, Problem{Members: members, MaxRounds: 30}, nil, w.outcome)
		if complaint := exactly(&w, &finding); complaint != "" {
			t.Fatalf("%s: %v, %+v", complaint, w, finding)
		}
	}
}

// A member that leaves in the middle of a search takes what was bad with it out of the history.
func TestMemberLeavesDuringSearch(t *testing.T) {
	for _, n := range []int{8, 16, 232} {
		for leaver := range n {
			w := world{members: []int{n / 3}}
			problem := all(n)
			step := next(t, problem, nil)
			var history []Test
			for _, test := range step.Tests {
				test.Outcome = w.outcome(test.Set)
				history = append(history, test)
			}
			problem.Members = problem.Members.Without(Set{leaver})
			if w.outcome(problem.Members) == Good {
				continue
			}
			finding, _ := search(t, problem, history, w.outcome)
			if complaint := exactly(&w, &finding); complaint != "" {
				t.Fatalf("N=%d without %d: %s: %+v", n, leaver, complaint, finding)
			}
		}
	}
}

// Rounds from before the search, such as a screening of neighbours, spare tests.
func TestSeedsAreLearnedFrom(t *testing.T) {
	var history []Test
	w := world{members: []int{100}}
	for member := 0; member < 232; member += 2 {
		set := Set{member, member + 1}
		history = append(history, Test{Kind: KindSpan, Set: set, Outcome: w.outcome(set)})
	}
	finding, further := search(t, all(232), history, w.outcome)
	if complaint := exactly(&w, &finding); complaint != "" || len(further) != len(history)+2 {
		t.Fatalf("%s: %d tests more, want 2: %+v", complaint, len(further)-len(history), finding)
	}
}

// A screening of all neighbours is many facts, and still a bad pair across them is found.
func TestManySeeds(t *testing.T) {
	const n = 12500
	w := world{pairs: [][2]int{{100, 7777}}}
	var history []Test
	for _, first := range []int{0, 1} {
		for member := first; member+1 < n; member += 2 {
			history = append(history, Test{Kind: KindSpan, Set: Set{member, member + 1}, Outcome: Good})
		}
	}
	problem := all(n)
	finding, further := search(t, Problem{Members: problem.Members, MaxTests: len(history) + DefaultMaxTests},
		history, w.outcome)
	if complaint := exactly(&w, &finding); complaint != "" {
		t.Fatalf("%s after %d tests: %+v", complaint, len(further)-len(history), finding)
	}
	// Nothing smaller than the whole is bad: the search ends all the same.
	finding, _ = search(t, Problem{Members: problem.Members, MaxTests: len(history) + DefaultMaxTests},
		history, func(Set) Outcome { return Good })
	if finding.State != NotFound || len(finding.Suspects) != n {
		t.Fatalf("%s: %+v", finding.State, finding.Evidence)
	}
}

func TestRails(t *testing.T) {
	problem := all(16)
	problem.Rails = true
	w := world{members: []int{5, 6}}
	finding, history := search(t, problem, nil, w.outcome)
	if complaint := exactly(&w, &finding); complaint != "" {
		t.Fatalf("%s: %+v", complaint, finding)
	}
	var rails []Test
	for _, test := range history {
		if test.Kind == KindRails {
			rails = append(rails, test)
		} else if len(rails) > 0 {
			t.Error("rails come last")
		}
	}
	if len(rails) != 2 || rails[0].Round != rails[1].Round || !slices.Equal(rails[0].Set, Set{4, 5}) ||
		!slices.Equal(rails[1].Set, Set{6, 7}) {
		t.Errorf("got %v, want 4-5 and 6-7 in one round", rails)
	}
	w = world{pairs: [][2]int{{2, 9}}}
	_, history = search(t, problem, nil, w.outcome)
	if last := history[len(history)-1]; last.Kind != KindRails || !slices.Equal(last.Set, Set{2, 9}) {
		t.Errorf("got %v, want the rails of the pair", last)
	}
	// Nothing named, no rails.
	if _, history = search(t, problem, nil, func(Set) Outcome {
		return Good
	}); history[len(history)-1].Kind == KindRails {
		t.Error("rails without a culprit")
	}
}

func TestOpenTestsAreWaitedFor(t *testing.T) {
	step := next(t, all(16), nil)
	history := slices.Clone(step.Tests)
	history[0].Outcome = Bad
	waiting, err := Next(all(16), history)
	if err != nil || waiting.Done || len(waiting.Tests) != 0 || waiting.Round != 1 {
		t.Errorf("got %+v, %v", waiting, err)
	}
}

func TestNextIsDeterministicAndKeepsNothing(t *testing.T) {
	w := world{members: []int{3, 77}, pairs: [][2]int{{10, 200}}}
	_, history := search(t, all(232), nil, w.outcome)
	for end := range history {
		if end > 0 && history[end].Round == history[end-1].Round {
			continue
		}
		before := fmt.Sprint(history)
		first, err := Next(all(232), history[:end])
		again, _ := Next(all(232), history[:end])
		if err != nil || !reflect.DeepEqual(first, again) || before != fmt.Sprint(history) {
			t.Fatalf("after %d tests: %+v, then %+v, %v", end, first, again, err)
		}
		if !slices.Equal(first.Tests[0].Set, history[end].Set) {
			t.Fatalf("after %d tests: %+v is not what was made", end, first.Tests[0])
		}
	}
}

func TestBounds(t *testing.T) {
	w := world{members: []int{100}}
	for _, c := range []struct {
		problem Problem
		tests   int
		bound   Bound
	}{
		{Problem{Members: Range(0, 232), MaxRounds: 1}, 7, BoundRounds},
		{Problem{Members: Range(0, 232), MaxRounds: 2}, 13, BoundRounds},
		{Problem{Members: Range(0, 232), MaxTests: 7}, 7, BoundTests},
	} {
		finding, history := search(t, c.problem, nil, w.outcome)
		if finding.State != OutOfBounds || len(history) != c.tests || !finding.Suspects.Has(100) ||
			len(finding.Suspects) > 34 || finding.Evidence.Bound != c.bound {
			t.Errorf("%d rounds, %d tests: %d tests, %+v",
				c.problem.MaxRounds, c.problem.MaxTests, len(history), finding)
		}
	}
	for members, rounds := range map[int]int{0: 0, 1: 0, 2: 11, 16: 14, 232: 18, 4096: 22, 12500: 24} {
		if got := MaxRounds(members, false); got != rounds {
			t.Errorf("MaxRounds(%d) is %d, want %d", members, got, rounds)
		}
	}
}

func TestNextRefuses(t *testing.T) {
	good := Test{Round: 1, Kind: KindSpan, Set: Set{1, 2}, Outcome: Good}
	for name, c := range map[string]struct {
		problem Problem
		change  func(test *Test)
	}{
		"one member":        {Problem{Members: Set{1}}, nil},
		"members unordered": {Problem{Members: Set{2, 1}}, nil},
		"negative member":   {Problem{Members: Set{-1, 1}}, nil},
		"negative bound":    {Problem{Members: Set{1, 2}, MaxRounds: -1}, nil},
		"negative tests":    {Problem{Members: Set{1, 2}, MaxTests: -1}, nil},
		"round below zero":  {all(4), func(test *Test) { test.Round = -1 }},
		"no set":            {all(4), func(test *Test) { test.Set = nil }},
		"set unordered":     {all(4), func(test *Test) { test.Set = Set{2, 2} }},
		"unknown kind":      {all(4), func(test *Test) { test.Kind = "Mesh" }},
		"unknown outcome":   {all(4), func(test *Test) { test.Outcome = "Fine" }},
	} {
		test := good
		if c.change != nil {
			c.change(&test)
		}
		if step, err := Next(c.problem, []Test{test}); err == nil {
			t.Errorf("%s: got %+v, want an error", name, step)
		}
	}
	if _, err := Next(all(4), []Test{good}); err != nil {
		t.Error(err)
	}
}

// FuzzNext takes any outcomes, and histories of other plans: no panic, an end in bounds, and steps that are valid.
func FuzzNext(f *testing.F) {
	f.Add(uint16(16), []byte{0, 1, 2}, []byte{0, 5, 1, 9})
	f.Add(uint16(232), []byte("GBGGGGGGGBU"), []byte{})
	f.Add(uint16(3), []byte{1, 1, 1, 1}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, members uint16, outcomes, seeds []byte) {
		problem := Problem{Members: Range(0, 2+int(members)%1000), Rails: true}
		if members&1 == 1 {
			problem.Members = problem.Members.Without(Range(1, len(problem.Members)/3))
		}
		if len(problem.Members) < 2 {
			return
		}
		draw := func(at int) Outcome {
			if len(outcomes) == 0 {
				return Good
			}
			return []Outcome{Good, Bad, Unknown}[outcomes[at%len(outcomes)]%3]
		}
		var history []Test
		for at := 0; at+2 < len(seeds) && at < 60; at += 3 {
			set := NewSet(int(seeds[at]), int(seeds[at+1]), int(seeds[at+2]))
			history = append(history, Test{Kind: KindSpan, Set: set, Outcome: draw(at)})
		}
		seeded := len(history)
		for rounds := 0; ; rounds++ {
			step, err := Next(problem, history)
			if err != nil {
				t.Fatal(err)
			}
			if complaint := stepComplaint(problem, history[seeded:], &step); complaint != "" {
				t.Fatalf("%s\n%+v\n%s", complaint, step, listing(history))
			}
			if step.Done {
				return
			}
			if rounds > MaxRounds(len(problem.Members), problem.Steady)+len(problem.Members) {
				t.Fatalf("no end\n%s", listing(history))
			}
			for _, test := range step.Tests {
				test.Outcome = draw(len(history))
				history = append(history, test)
			}
		}
	})
}
