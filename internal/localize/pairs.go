package localize

import (
	"slices"
)

// maxPairTests of one bad set in a round of the search for a pair.
const maxPairTests = 16

// maxLoose members without a good test of more than two are looked at one by one.
const maxLoose = 64

// class is a set of members that were in the same good tests. Two classes that share no good test may hold the two ends
// of a bad pair; within a class, and between classes that share one, every pair was good.
type class struct {
	members []int
	tests   []uint64 // bits of the good tests
}

// searchPairs goes for a bad pair in a bad set whose members are all cleared, so that no two of the smaller tests held
// both ends.
//
// First the ends that are neighbours in rank order, since a ring joins those. Then halves that cut across the earlier
// parts, in each component of the graph of what may still be a pair: where all halves are good, a component between two
// sides falls into two of half the width, and all of them are halved in the next round. Components that are many are
// told apart whole.
func (p *plan) searchPairs(f *fact) {
	classes, known := p.parts(p.classes(f))
	if !known || p.neighbours(f, classes) {
		return
	}
	components := slices.DeleteFunc(connected(classes), func(component []*class) bool {
		both := union(component)
		return len(both) == 2 && p.goodBefore[[2]int(both)]
	})
	if 2*len(components) <= maxPairTests {
		for _, component := range components {
			for _, half := range halve(component) {
				p.add(p.set(half))
			}
		}
		return
	}
	for _, group := range groups(components, maxPairTests) {
		p.add(p.set(group))
	}
}

// parts makes sure that members that were in no good test of more than two are in one, since such tests are what tells
// pairs apart: members that only tests of neighbours cleared. It says no where it added tests to that end.
func (p *plan) parts(classes []*class) ([]*class, bool) {
	at := slices.IndexFunc(classes, func(c *class) bool {
		return len(c.members) > 1 && !bitset(c.tests).meets(bitset(c.tests))
	})
	if at < 0 {
		return classes, true
	}
	loose := classes[at].members
	added := false
	for _, part := range cut(loose, max(2, min(arity(len(loose)), len(loose)/2))) {
		added = p.add(p.set(part)) || added
	}
	if added || len(loose) > maxLoose {
		return nil, false
	}
	classes = slices.Delete(slices.Clone(classes), at, at+1)
	for _, member := range loose {
		classes = append(classes, &class{members: []int{member}, tests: make([]uint64, len(p.facts)/64+1)})
	}
	return classes, true
}

// classes of the bad set's members, by their first member.
func (p *plan) classes(f *fact) []*class {
	var good []*fact
	for _, other := range p.facts {
		if other.good && other.set.meets(f.set) {
			good = append(good, other)
		}
	}
	words := len(p.facts)/64 + 1
	byTests := map[string]*class{}
	var list []*class
	for _, member := range f.set.positions() {
		tests := make([]uint64, words)
		for at, other := range good {
			if other.set.has(member) {
				tests[at>>6] |= 1 << (at & 63)
			}
		}
		key := make([]byte, 0, 8*words)
		for _, word := range tests {
			for shift := 0; shift < 64; shift += 8 {
				key = append(key, byte(word>>shift))
			}
		}
		c := byTests[string(key)]
		if c == nil {
			c = &class{tests: tests}
			byTests[string(key)] = c
			list = append(list, c)
		}
		c.members = append(c.members, member)
	}
	return list
}

// mayHoldPair says whether the two classes share no good test.
func mayHoldPair(a, b *class) bool {
	return a != b && !bitset(a.tests).meets(b.tests)
}

// neighbours tries the pairs that are next to each other in rank order, where they are few and not tried yet.
func (p *plan) neighbours(f *fact, classes []*class) bool {
	if f.size <= maxParts {
		return false // so few members that halving is as quick
	}
	of := make([]*class, len(p.members))
	for _, c := range classes {
		for _, member := range c.members {
			of[member] = c
		}
	}
	var next [][2]int
	for member := range of {
		other := (member + 1) % len(of) // the ring closes
		if of[member] != nil && of[other] != nil && mayHoldPair(of[member], of[other]) {
			next = append(next, [2]int{member, other})
		}
	}
	if len(next) == 0 || len(next) > maxPairTests {
		return false
	}
	added := false
	for _, pair := range next {
		added = p.add(p.set(pair[:])) || added
	}
	return added
}

// connected gives the components of the graph of classes that may hold a pair; classes that cannot are in none.
func connected(classes []*class) [][]*class {
	var components [][]*class
	seen := map[*class]bool{}
	for _, start := range classes {
		if seen[start] {
			continue
		}
		seen[start] = true
		component := []*class{start}
		for at := 0; at < len(component); at++ {
			for _, other := range classes {
				if !seen[other] && mayHoldPair(component[at], other) {
					seen[other] = true
					component = append(component, other)
				}
			}
		}
		if len(component) > 1 {
			components = append(components, component)
		}
	}
	return components
}

// halve a component into two disjoint sets that hold about half of the pairs in question.
func halve(component []*class) []Set {
	left, right, twoSides := sides(component)
	if !twoSides {
		// Whole classes in rank order; what is left between the halves has two sides.
		members := 0
		for _, c := range component {
			members += len(c.members)
		}
		ordered := slices.Clone(component)
		slices.SortFunc(ordered, func(a, b *class) int { return a.members[0] - b.members[0] })
		first, at := 0, 0
		for ; at < len(ordered)-1 && 2*(first+len(ordered[at].members)) <= members+len(ordered[at].members); at++ {
			first += len(ordered[at].members)
		}
		return holding(component, union(ordered[:at]), union(ordered[at:]))
	}
	leftAll, rightAll := union(left), union(right)
	left0, left1 := leftAll[:(len(leftAll)+1)/2], leftAll[(len(leftAll)+1)/2:]
	right0, right1 := rightAll[:(len(rightAll)+1)/2], rightAll[(len(rightAll)+1)/2:]
	straight := holding(component, NewSet(append(slices.Clone(left0), right0...)...),
		NewSet(append(slices.Clone(left1), right1...)...))
	crossed := holding(component, NewSet(append(slices.Clone(left0), right1...)...),
		NewSet(append(slices.Clone(left1), right0...)...))
	if weight(component, crossed) > weight(component, straight) {
		return crossed
	}
	return straight
}

// sides parts the component so that pairs are only between the two sides, where that can be.
func sides(component []*class) (left, right []*class, twoSides bool) {
	side := map[*class]int{component[0]: 1}
	for _, c := range component { // connected gives each class after one that it may hold a pair with
		for _, other := range component {
			if !mayHoldPair(c, other) {
				continue
			}
			if side[other] == side[c] {
				return nil, nil, false
			}
			side[other] = 3 - side[c]
		}
	}
	for _, c := range component {
		if side[c] == 1 {
			left = append(left, c)
		} else {
			right = append(right, c)
		}
	}
	return left, right, true
}

func union(classes []*class) Set {
	var members Set
	for _, c := range classes {
		members = append(members, c.members...)
	}
	slices.Sort(members)
	return members
}

// holding keeps the sets that hold both ends of a pair in question.
func holding(component []*class, sets ...Set) []Set {
	return slices.DeleteFunc(sets, func(set Set) bool { return weight(component, []Set{set}) == 0 })
}

// weight counts the pairs in question that the sets hold.
func weight(component []*class, sets []Set) int {
	sum := 0
	for _, set := range sets {
		inside := make([]int, len(component))
		for at, c := range component {
			for _, member := range c.members {
				if set.Has(member) {
					inside[at]++
				}
			}
		}
		for at, a := range component {
			for further := at + 1; further < len(component) && inside[at] > 0; further++ {
				if inside[further] > 0 && mayHoldPair(a, component[further]) {
					sum += inside[at] * inside[further]
				}
			}
		}
	}
	return sum
}

// groups puts components together into so many sets. No pair in question is between two components.
func groups(components [][]*class, most int) [][]int {
	sets := make([][]int, min(most, len(components)))
	for at, component := range components {
		to := at * len(sets) / len(components)
		sets[to] = append(sets[to], union(component)...)
	}
	return sets
}
