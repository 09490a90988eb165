package localize

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// DefaultMaxTests bounds the tests of a search: a CommGroup's status keeps 256, those of the group and its mesh
	// with them.
	DefaultMaxTests = 200
	// sharedPairs that are all bad, and no test good: no single member is to blame. They are of three rounds or more,
	// each with other partners: two would not do where each second member is bad.
	sharedPairs = 40
	// sharedTests in a round while no test is good, so that a few branches come to their end before the tests run out.
	sharedTests = 16
)

// MaxRounds is the bound on the rounds of a search among so many members: log2, and ten more for what no single bad
// member explains. One bad member takes a third of log2. A steady fault needs no test twice: two rounds for each
// halving do for a pair.
func MaxRounds(members int, steady bool) int {
	switch {
	case members < 2:
		return 0
	case steady:
		return 2*bits.Len(uint(members-1)) - 1
	}
	return bits.Len(uint(members-1)) + 10
}

// Next gives the round that follows from the tests made so far, or the end. It is deterministic, and reads the history
// as facts only: tests of other plans, of members that have left, or of before the search are learned from as they are.
// It refuses a problem of fewer than two members, sets out of order, and outcomes and kinds that it does not know.
func Next(problem Problem, history []Test) (Step, error) {
	if len(problem.Members) < 2 || !problem.Members.sorted() {
		return Step{},
			fmt.Errorf("localize: members %.80q: want at least two, by indexes that rise", problem.Members.String())
	}
	if problem.MaxRounds < 0 || problem.MaxTests < 0 {
		return Step{}, errors.New("localize: a bound below zero: want zero for the default, or a bound")
	}
	k, err := learn(problem, history)
	if err != nil {
		return Step{}, fmt.Errorf("localize: %w", err)
	}
	if k.open {
		return Step{Round: k.openRound}, nil
	}
	maxRounds, maxTests := problem.MaxRounds, problem.MaxTests
	if maxRounds == 0 {
		maxRounds = MaxRounds(len(problem.Members), problem.Steady)
	}
	if maxTests == 0 {
		maxTests = DefaultMaxTests
	}
	if k.shared() {
		return k.end(NotFound, ""), nil
	}
	p := planRound(k, max(0, maxTests-k.tests))
	step := Step{Round: k.rounds + 1}
	switch {
	case len(p.sets) == 0 && !p.short:
		return k.finish(problem, step, NotFound, ""), nil
	case k.rounds >= maxRounds:
		return k.finish(problem, step, OutOfBounds, BoundRounds), nil
	case len(p.sets) == 0:
		return k.finish(problem, step, OutOfBounds, BoundTests), nil
	}
	slices.SortFunc(p.sets, func(a, b bitset) int { return a.positions()[0] - b.positions()[0] })
	for _, set := range p.sets {
		step.Tests = append(step.Tests, Test{Round: step.Round, Kind: KindSpan, Set: k.indexes(set)})
	}
	return step, nil
}

// Conclude ends a search before its end: with what the tests that were made prove. Those that are open tell nothing.
func Conclude(problem Problem, history []Test) (Finding, error) {
	if len(problem.Members) < 2 || !problem.Members.sorted() {
		return Finding{},
			fmt.Errorf("localize: members %.80q: want at least two, by indexes that rise", problem.Members.String())
	}
	k, err := learn(problem, history)
	if err != nil {
		return Finding{}, fmt.Errorf("localize: %w", err)
	}
	return k.end(OutOfBounds, "").Finding, nil
}

// shared says whether so much is bad that single members are no explanation.
func (k *knowledge) shared() bool {
	enough := sharedPairs
	if k.steady {
		enough = max(4, len(k.members)/2) // all that can be made at once
	}
	return k.goods == 0 && k.badPairs() >= enough
}

func (k *knowledge) indexes(set bitset) Set {
	positions := set.positions()
	indexes := make(Set, len(positions))
	for at, position := range positions {
		indexes[at] = k.members[position]
	}
	return indexes
}

// finish with the rails of the culprits first, where they are asked for.
func (k *knowledge) finish(problem Problem, step Step, state State, bound Bound) Step {
	if problem.Rails {
		if step.Tests = k.rails(step.Round); len(step.Tests) > 0 {
			return step
		}
	}
	return k.end(state, bound)
}

// rails gives a test of each culprit that had none: a bad member with the nearest good one, and a bad pair as it is.
func (k *knowledge) rails(round int) []Test {
	used := newBitset(len(k.members))
	var tests []Test
	add := func(a, b int) {
		used.add(a)
		used.add(b)
		tests = append(tests, Test{Round: round, Kind: KindRails, Set: NewSet(k.members[a], k.members[b])})
	}
	for _, pair := range k.pairs {
		if !used.has(pair[0]) && !used.has(pair[1]) && !k.wasRailed(pair[0], pair[1]) {
			add(pair[0], pair[1])
		}
	}
	for _, member := range k.named.positions() {
		if k.wasRailed(member) {
			continue
		}
		if at := slices.IndexFunc(k.ill, func(f *fact) bool {
			return f.set.has(member) && !f.set.meets(used)
		}); at >= 0 {
			pair := ends(k.ill[at].set)
			add(pair[0], pair[1]) // with others it is good
			continue
		}
		for distance := 1; distance < len(k.members); distance++ {
			if other := member - distance; other >= 0 && k.cleared.has(other) && !used.has(other) {
				add(member, other)
				break
			}
			if other := member + distance; other < len(k.members) && k.cleared.has(other) && !used.has(other) {
				add(member, other)
				break
			}
		}
	}
	slices.SortFunc(tests, func(a, b Test) int { return slices.Compare(a.Set, b.Set) })
	return tests
}

func (k *knowledge) wasRailed(positions ...int) bool {
	return slices.ContainsFunc(k.railed, func(set Set) bool {
		return !slices.ContainsFunc(positions, func(position int) bool { return !set.Has(k.members[position]) })
	})
}

// end with what is known: culprits that have a name make it Found, unless bounds ended it.
func (k *knowledge) end(state State, bound Bound) Step {
	finding := Finding{State: state}
	finding.Members = k.indexes(k.named)
	for _, pair := range k.pairs {
		finding.Pairs = append(finding.Pairs, [2]int{k.members[pair[0]], k.members[pair[1]]})
	}
	suspects := k.gap()
	for _, f := range k.live {
		if f.doubtful > 0 {
			suspects.addAll(f.suspects)
		} else {
			suspects.addAll(f.set)
		}
	}
	finding.Suspects = k.indexes(suspects)
	if state == NotFound && len(finding.Members)+len(finding.Pairs) > 0 {
		finding.State = Found
	}
	finding.Evidence = Evidence{
		Among: len(k.members), Tests: k.tests, Rounds: k.rounds,
		Good: k.goods, BadPairs: k.badPairs(), Contradictions: k.contradictions, AllBad: k.whole.bad,
		Shared: finding.State == NotFound && k.shared(), SuspectsCleared: suspects.within(k.cleared), Bound: bound,
	}
	return Step{Round: k.rounds, Done: true, Finding: finding}
}
