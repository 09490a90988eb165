package localize

import (
	"cmp"
	"fmt"
	"slices"
)

// fact is what one tried set showed. Positions count the members that are present.
type fact struct {
	set  bitset
	size int
	// bad and good: the set was so at least once. Both at once is a fault that comes and goes.
	bad, good bool
	// times that it was bad, first in the round badRound; goodRound is the last in which it was good.
	times, badRound, goodRound int
	// unknown counts the times that the test could not be made.
	unknown int
	// suspects are the members of a bad set that no good test cleared.
	suspects bitset
	doubtful int
}

// knowledge is what the tests made so far show of the members that are present.
type knowledge struct {
	steady  bool
	members Set
	facts   []*fact
	bySize  map[int][]*fact
	ofTwo   map[[2]int]*fact
	// goodBefore are pairs that were good before the search. They are many where neighbours were screened, so they are
	// kept apart from the facts.
	goodBefore map[[2]int]bool
	// whole is the fact that the search starts from.
	whole *fact
	// cleared members were in a good test.
	cleared bitset
	// pairedRounds of a member are those in which it was good with one other alone, each pair's last.
	pairedRounds [][]int
	// named members and pairs are culprits.
	named bitset
	pairs [][2]int
	// ill are bad tests of two members that are both good with others: of a pair, or of a member that comes and goes.
	ill []*fact
	// minimal bad sets hold no smaller bad set; those that hold no culprit with a name are live.
	minimal, live []*fact

	rounds, tests  int
	goods          int
	open           bool
	openRound      int
	contradictions int // bad sets that lie in a good one: something comes and goes
	railed         []Set
	singleUnknown  []int // times that a test of the member with a good partner could not be made
}

// learn reads the history. Of tests that hold members who left, only the good ones still count.
func learn(problem Problem, history []Test) (*knowledge, error) {
	n := len(problem.Members)
	k := &knowledge{
		steady: problem.Steady, members: problem.Members, bySize: map[int][]*fact{}, ofTwo: map[[2]int]*fact{},
		goodBefore: map[[2]int]bool{}, cleared: newBitset(n), named: newBitset(n), pairedRounds: make([][]int, n),
		singleUnknown: make([]int, n),
	}
	all := newBitset(n)
	for position := range n {
		all.add(position)
	}
	k.whole = k.fact(all, n)
	k.whole.bad = !problem.Fewer
	for at := range history {
		if err := k.take(&history[at]); err != nil {
			return nil, fmt.Errorf("test %d of the history: %w", at, err)
		}
	}
	for _, f := range k.facts {
		if f.good {
			k.cleared.addAll(f.set)
			if f.size == 2 {
				for _, member := range ends(f.set) {
					k.pairedRounds[member] = append(k.pairedRounds[member], f.goodRound)
				}
			}
		}
	}
	k.conclude()
	return k, nil
}

// take one test of the history.
func (k *knowledge) take(test *Test) error {
	if test.Round < 0 || len(test.Set) == 0 || !test.Set.sorted() {
		return fmt.Errorf("round %d with set %.80q: want a round from 0, and indexes that rise",
			test.Round, test.Set.String())
	}
	if test.Kind != KindSpan && test.Kind != KindRails {
		return fmt.Errorf("kind %.40q is none of %s and %s", test.Kind, KindSpan, KindRails)
	}
	if test.Round > k.rounds {
		k.rounds = test.Round
	}
	if test.Round > 0 {
		k.tests++
	}
	if test.Outcome == Open {
		k.open, k.openRound = true, max(k.openRound, test.Round)
		return nil
	}
	if test.Outcome != Good && test.Outcome != Bad && test.Outcome != Unknown {
		return fmt.Errorf("outcome %.40q is none of %s, %s and %s", test.Outcome, Good, Bad, Unknown)
	}
	if test.Kind == KindRails {
		k.railed = append(k.railed, test.Set)
		return nil
	}
	if test.Round == 0 && test.Outcome == Good && len(test.Set) <= 2 {
		k.takeGoodBefore(test.Set)
		return nil
	}
	set, size := k.positions(test.Set)
	if size == 0 || (test.Outcome != Good && size < len(test.Set)) {
		return nil
	}
	f := k.fact(set, size)
	switch test.Outcome {
	case Good:
		f.good, f.goodRound = true, max(f.goodRound, test.Round)
		k.goods++
	case Bad:
		if f.times == 0 || test.Round < f.badRound {
			f.badRound = test.Round
		}
		f.bad = true
		f.times++
	default:
		f.unknown++
	}
	return nil
}

// takeGoodBefore takes a good test of two members that was made before the search.
func (k *knowledge) takeGoodBefore(set Set) {
	var present []int
	for _, index := range set {
		if position, found := slices.BinarySearch(k.members, index); found {
			k.cleared.add(position)
			present = append(present, position)
		}
	}
	if len(present) == 2 {
		k.goodBefore[[2]int{present[0], present[1]}] = true
	}
	if len(present) > 0 {
		k.goods++
	}
}

// positions of those of the set that are present.
func (k *knowledge) positions(set Set) (bitset, int) {
	n := len(k.members)
	found, size := newBitset(n), 0
	if k.members[n-1]-k.members[0] == n-1 { // no gaps
		for _, index := range set {
			if position := index - k.members[0]; position >= 0 && position < n {
				found.add(position)
				size++
			}
		}
		return found, size
	}
	at, _ := slices.BinarySearch(k.members, set[0])
	for _, index := range set {
		for at < n && k.members[at] < index {
			at++
		}
		if at == n {
			break
		}
		if k.members[at] == index {
			found.add(at)
			size++
		}
	}
	return found, size
}

// fact gives the fact of the set, a new one where there is none.
func (k *knowledge) fact(set bitset, size int) *fact {
	if f := k.find(set, size); f != nil {
		return f
	}
	f := &fact{set: set, size: size}
	k.facts = append(k.facts, f)
	if size == 2 {
		k.ofTwo[ends(set)] = f
	} else {
		k.bySize[size] = append(k.bySize[size], f)
	}
	return f
}

// ends of a set of two.
func ends(set bitset) [2]int { return [2]int(set.positions()) }

func (k *knowledge) find(set bitset, size int) *fact {
	if size == 2 {
		return k.ofTwo[ends(set)]
	}
	for _, f := range k.bySize[size] {
		if f.set.equal(set) {
			return f
		}
	}
	return nil
}

// conclude names what the facts prove, and finds what is left to explain.
func (k *knowledge) conclude() {
	var bad []*fact
	for _, f := range k.facts {
		if f.unknown > 0 && f.size == 2 && !f.good && !f.bad {
			if doubtful := f.set.without(k.cleared).positions(); len(doubtful) == 1 {
				k.singleUnknown[doubtful[0]] += f.unknown
			}
		}
		if !f.bad {
			continue
		}
		if f != k.whole && k.contradicted(f) {
			k.contradictions++
			continue
		}
		f.suspects = f.set.without(k.cleared)
		f.doubtful = f.suspects.count()
		bad = append(bad, f)
		if f.size == 2 && f.doubtful == 0 && f != k.whole {
			k.ill = append(k.ill, f)
		}
	}
	k.judgeIll()
	slices.SortStableFunc(bad, func(a, b *fact) int {
		return cmp.Or(cmp.Compare(a.size, b.size), slices.Compare(b.set, a.set))
	})
	k.name(bad)
	for at, f := range bad {
		if slices.ContainsFunc(bad[:at], func(smaller *fact) bool {
			return smaller.size < f.size && smaller.set.within(f.set)
		}) {
			continue
		}
		k.minimal = append(k.minimal, f)
		if !f.set.meets(k.named) && !k.holdsPair(f.set) {
			k.live = append(k.live, f)
		}
	}
}

// illTimes that two members must be bad together before they are named as a pair: one bad test may be chance, or a
// member that comes and goes, and the other one is innocent.
const illTimes = 2

// judgeIll names a member that is ill with two others or more, and otherwise the two that were ill together twice. What
// is steady is never good, so it is a pair at once.
func (k *knowledge) judgeIll() {
	times := illTimes
	if k.steady {
		times = 1
	}
	count := map[int]int{}
	for _, f := range k.ill {
		for _, member := range ends(f.set) {
			count[member]++
		}
	}
	for member, others := range count {
		if others > 1 && !k.steady {
			k.named.add(member)
		}
	}
	for _, f := range k.ill {
		if f.times >= times && !f.set.meets(k.named) {
			k.pairs = append(k.pairs, ends(f.set))
		}
	}
	slices.SortFunc(k.pairs, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
}

// badPairs counts the bad tests of two members.
func (k *knowledge) badPairs() int {
	count := 0
	for _, f := range k.ofTwo {
		if f.bad && f != k.whole {
			count++
		}
	}
	return count
}

// contradicted says whether the bad set lies in a good one.
func (k *knowledge) contradicted(f *fact) bool {
	if f.size == 2 && k.goodBefore[ends(f.set)] {
		return true
	}
	return slices.ContainsFunc(k.facts, func(other *fact) bool {
		return other.good && other.size >= f.size && f.set.within(other.set)
	})
}

// name the members that two bad tests prove: in each, every other member is cleared, and the two have nothing else in
// common, so that one bad pair cannot be what made both bad.
func (k *knowledge) name(bad []*fact) {
	proofs := map[int][]*fact{}
	for _, f := range bad {
		if f.doubtful == 1 && !slices.ContainsFunc(k.ill, func(pair *fact) bool { return pair.set.within(f.set) }) {
			member := f.suspects.positions()[0]
			proofs[member] = append(proofs[member], f)
		}
	}
	for member, list := range proofs {
		for at, f := range list {
			if slices.ContainsFunc(list[:at], func(other *fact) bool { return other.set.common(f.set) == 1 }) {
				k.named.add(member)
				break
			}
		}
	}
}

func (k *knowledge) holdsPair(set bitset) bool {
	return slices.ContainsFunc(k.pairs, func(pair [2]int) bool { return set.has(pair[0]) && set.has(pair[1]) })
}

// gap gives the members that no test has cleared and no minimal bad set holds: their own test could not be made.
func (k *knowledge) gap() bitset {
	rest := k.whole.set.without(k.cleared)
	for _, f := range k.minimal {
		rest = rest.without(f.set)
	}
	return rest
}
