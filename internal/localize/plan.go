package localize

import "strconv"

const (
	// maxParts that a bad set is split into at once: eight keep 232 members at three rounds, and a round's tests few.
	maxParts = 8
	// maxUnknown times that a test is tried: one more try once it could not be made.
	maxUnknown = 2
)

// plan is a round in the making.
type plan struct {
	*knowledge
	// room is how many more tests fit into the bound.
	room int
	used bitset
	sets []bitset
	// short: something was left out for want of room.
	short bool
	// avoid are members that are no good partners while others are at hand: something that they are in is not explained
	// yet.
	avoid bitset
}

// planRound gives the sets to try at once: each live bad set's parts, the smallest first, and what was never tried.
func planRound(k *knowledge, room int) *plan {
	p := &plan{knowledge: k, room: room, used: newBitset(len(k.members)), avoid: newBitset(len(k.members))}
	for _, f := range k.live {
		if f != k.whole {
			p.avoid.addAll(f.set)
		}
	}
	reserved := 0
	for _, f := range k.live {
		if k.goods == 0 && k.rounds > 0 && len(p.sets) >= sharedTests {
			break
		}
		if f.doubtful == 0 {
			if f.size == 2 {
				p.ensure(f)
			} else {
				p.searchPairs(f)
			}
			continue
		}
		// Where the tests that are left do for some branches only, these go first to their end: a name is worth more
		// than many sets that are half as wide.
		reserved += cost(f.doubtful)
		if reserved > room && len(p.sets) > 0 {
			continue
		}
		p.narrow(f)
	}
	gap := k.gap()
	for range maxParts { // one piece, but for a ragged gap
		piece := p.trim(gap)
		if piece.count() == 0 {
			break
		}
		gap = gap.without(piece)
		p.try(piece.positions(), nil)
	}
	return p
}

// add the set, unless a member of it is in use in this round, or its test tells nothing new. Of a set that is too
// ragged for what the API keeps, the first members are taken; the others are for a later round.
func (p *plan) add(set bitset) bool {
	set = p.trim(set)
	size := set.count()
	if size < 2 || set.meets(p.used) || (size == 2 && p.goodBefore[ends(set)]) {
		return false
	}
	if f := p.find(set, size); f != nil && (f.good || f.bad || f.unknown >= maxUnknown) {
		return false
	}
	return p.put(set)
}

// put the set into the round, if there is room.
func (p *plan) put(set bitset) bool {
	if p.room == 0 {
		p.short = true
		return false
	}
	p.room--
	p.used.addAll(set)
	p.sets = append(p.sets, set)
	return true
}

// thirdTimes that each of two members must be good with a third one after they were bad together: a member that passes
// half of its tests passes three of them once in eight. With one, a quarter of such members' searches named a pair with
// a good one.
const thirdTimes = 3

// ensure goes on with two members that were bad together, and were good with others. One of them may only come and go,
// so each is tried with others, one by one, since it was good with such before that only. Then both are tried together
// once more: one bad test may be chance.
func (p *plan) ensure(f *fact) {
	other := func(member int) bool { return p.cleared.has(member) && !f.set.has(member) && !p.avoid.has(member) }
	tried := false
	for _, member := range ends(f.set) {
		if p.pairedSince(member, f.badRound) < thirdTimes && !p.used.has(member) {
			tried = p.nearest(member, other) || tried
		}
	}
	if !tried && f.unknown < maxUnknown && !f.set.meets(p.used) {
		p.put(f.set)
	}
}

// pairedSince counts the members that the member was good with alone after the round.
func (p *plan) pairedSince(member, round int) int {
	count := 0
	for _, paired := range p.pairedRounds[member] {
		if paired > round {
			count++
		}
	}
	return count
}

// trim the set to what MaxText holds.
func (p *plan) trim(set bitset) bitset {
	positions := set.positions()
	length := 0
	for at, position := range positions {
		index := p.members[position]
		if at == 0 || index != p.members[positions[at-1]]+1 {
			length += 2 * len(",1234567890") // first-last of a run, at the longest
			if index < 1_000_000 {
				length += 2 * (len(strconv.Itoa(index)) + 1 - len(",1234567890"))
			}
		}
		if length > MaxText {
			return p.set(positions[:at])
		}
	}
	return set
}

// narrow splits those members of the bad set that no good test has cleared.
func (p *plan) narrow(f *fact) {
	suspects := f.suspects.positions()
	for _, part := range p.split(suspects) {
		p.try(part, f)
	}
}

// split into as few parts as the least number of rounds allows, at most maxParts. Parts of one member need a partner
// each; where there are too few, parts of two members do, and a third member waits.
func (p *plan) split(members []int) [][]int {
	if len(members) <= maxParts {
		if p.partners(members) >= len(members) || len(members) < 3 {
			return cut(members, len(members))
		}
		if len(members) == 3 {
			return [][]int{members[:2]}
		}
		return cut(members, len(members)/2)
	}
	return cut(members, arity(len(members)))
}

// arity is the least number of parts with which repeated splitting takes no more rounds than with maxParts.
func arity(members int) int {
	rounds, reach := 1, maxParts
	for reach < members {
		rounds, reach = rounds+1, reach*maxParts
	}
	for parts := 2; parts < maxParts; parts++ {
		reach = 1
		for range rounds {
			reach *= parts
		}
		if reach >= members {
			return parts
		}
	}
	return maxParts
}

// cost is about how many tests it takes to find one bad member among so many.
func cost(members int) int {
	tests := 0
	for ; members > maxParts; members = (members + maxParts - 1) / maxParts {
		tests += maxParts
	}
	return tests + members
}

// cut into runs of about the same length, so that neighbours in rank order stay together.
func cut(members []int, parts int) [][]int {
	runs := make([][]int, 0, parts)
	for at := range parts {
		runs = append(runs, members[at*len(members)/parts:(at+1)*len(members)/parts])
	}
	return runs
}

// partners counts the members that are known to be good and not in use.
func (p *plan) partners(of []int) int {
	free := p.cleared.without(p.used)
	count := free.count()
	for _, member := range of {
		if free.has(member) {
			count--
		}
	}
	return count
}

// try the members as one test; where that could not be made, in parts. The bad set that they are of may be nil.
func (p *plan) try(members []int, of *fact) {
	if len(members) == 1 {
		p.single(members[0], of)
		return
	}
	set := p.set(members)
	if f := p.find(set, len(members)); f != nil && (f.unknown >= maxUnknown || f.bad) {
		for _, part := range p.split(members) {
			if len(part) < len(members) {
				p.try(part, of)
			}
		}
		return
	}
	p.add(set)
}

func (p *plan) set(members []int) bitset {
	set := newBitset(len(p.members))
	for _, member := range members {
		set.add(member)
	}
	return set
}

// single tries the member with a partner: one that is good and outside the bad set, so that a bad pair inside is told
// from a bad member; else one that is good; else, where none is known to be good, one of another bad set.
func (p *plan) single(member int, of *fact) {
	if p.used.has(member) || p.singleUnknown[member] >= maxUnknown {
		return
	}
	inside := func(other int) bool { return of != nil && of.set.has(other) }
	good := p.cleared.count() > 0
	for _, fits := range []func(other int) bool{
		func(other int) bool { return p.cleared.has(other) && !inside(other) && !p.avoid.has(other) },
		func(other int) bool { return p.cleared.has(other) && !inside(other) },
		func(other int) bool { return p.cleared.has(other) },
		func(other int) bool { return !good && !inside(other) },
		func(int) bool { return !good },
	} {
		if p.nearest(member, fits) {
			return
		}
	}
}

// nearest adds the test of the member with the nearest other that fits. It says no where there is none.
func (p *plan) nearest(member int, fits func(other int) bool) bool {
	if p.room == 0 {
		p.short = true
		return true
	}
	n := len(p.members)
	for distance := 1; distance < n; distance++ {
		for _, other := range [2]int{member - distance, member + distance} {
			if other >= 0 && other < n && !p.used.has(other) && fits(other) && p.add(p.set([]int{member, other})) {
				return true
			}
		}
	}
	return false
}
