package localize

import "math/bits"

// bitset holds positions of members, of which the last few bits of its last word stay zero.
type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }

func (b bitset) has(position int) bool { return b[position>>6]>>(position&63)&1 == 1 }
func (b bitset) add(position int)      { b[position>>6] |= 1 << (position & 63) }

func (b bitset) addAll(other bitset) {
	for at := range b {
		b[at] |= other[at]
	}
}

func (b bitset) count() int {
	sum := 0
	for _, word := range b {
		sum += bits.OnesCount64(word)
	}
	return sum
}

// common counts what both have.
func (b bitset) common(other bitset) int {
	sum := 0
	for at, word := range b {
		sum += bits.OnesCount64(word & other[at])
	}
	return sum
}

func (b bitset) meets(other bitset) bool {
	for at, word := range b {
		if word&other[at] != 0 {
			return true
		}
	}
	return false
}

func (b bitset) within(other bitset) bool {
	for at, word := range b {
		if word&^other[at] != 0 {
			return false
		}
	}
	return true
}

func (b bitset) equal(other bitset) bool {
	for at, word := range b {
		if word != other[at] {
			return false
		}
	}
	return true
}

// without gives what is in b and not in the other.
func (b bitset) without(other bitset) bitset {
	left := make(bitset, len(b))
	for at, word := range b {
		left[at] = word &^ other[at]
	}
	return left
}

// positions of the bits that are set, ascending.
func (b bitset) positions() []int {
	list := make([]int, 0, b.count())
	for at, word := range b {
		for word != 0 {
			list = append(list, at<<6|bits.TrailingZeros64(word))
			word &= word - 1
		}
	}
	return list
}
