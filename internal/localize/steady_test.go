package localize

import (
	"testing"
)

// steady is the search among the GPUs of a node for what hangs or gives wrong data.
func steady(n int) Problem { return Problem{Members: Range(0, n), Steady: true, Fewer: n == 2} }

func TestSteadyMember(t *testing.T) {
	for n := 3; n <= 64; n++ {
		most := 2
		if n == 3 || n == 5 {
			most = n - n/4 // 3 and 4: few partners
		}
		if f := explore(t, steady(n), combinations(n, 1), exactly); f.maxRounds > most {
			t.Errorf("N=%d: %s, want at most %d rounds", n, f, most)
		}
	}
}

// Every pair is found within the bound on rounds: five for the eight GPUs of a usual node.
func TestSteadyPair(t *testing.T) {
	for n := 3; n <= 64; n += fewer(1, 3) {
		explore(t, steady(n), allPairs(n), exactly)
	}
	if got := MaxRounds(8, true); got != 5 {
		t.Errorf("bound of eight members: %d rounds, want 5", got)
	}
}

func TestSteadyTwoMembers(t *testing.T) {
	for n := 5; n <= 16; n++ {
		explore(t, steady(n), combinations(n, 2), exactly)
	}
}

func TestSteadyBlamesNoGoodMember(t *testing.T) {
	for n := 2; n <= 10; n++ {
		for k := range n {
			explore(t, steady(n), combinations(n, k+1), innocent)
		}
	}
}

func TestSteadyNamesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		members, most  int
		outcome        func(set Set) Outcome
		shared, allBad bool
	}{
		"nothing is bad":    {8, 5, func(Set) Outcome { return Good }, false, true},
		"everything is bad": {8, 1, func(Set) Outcome { return Bad }, true, true},
		"two that are bad":  {2, 1, func(Set) Outcome { return Bad }, false, true},
		"two that are good": {2, 1, func(Set) Outcome { return Good }, false, false},
		"bad from four members only": {8, 5,
			func(set Set) Outcome { return map[bool]Outcome{true: Bad, false: Good}[len(set) >= 4] }, false, true},
	} {
		f, _ := search(t, steady(c.members), nil, c.outcome)
		if e := &f.Evidence; f.State != NotFound || len(f.Members)+len(f.Pairs) > 0 || e.Rounds > c.most ||
			e.Shared != c.shared || e.AllBad != c.allBad {
			t.Errorf("%s: %+v, want nobody named after at most %d rounds", name, f, c.most)
		}
	}
}
