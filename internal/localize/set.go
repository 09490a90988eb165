package localize

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxText is the longest text of a set that Next plans, in bytes: what the API keeps of a test.
const MaxText = 512

// MaxIndex is the largest index that a Set may hold.
const MaxIndex = math.MaxInt32

// maxSetMembers bounds what ParseSet takes: a range costs nothing to write and much to hold.
const maxSetMembers = 1 << 20

// Set holds indexes of members, ascending and each once. Indexes are in rank order.
type Set []int

// NewSet gives the set of the indexes, in any order and repeated as they may be.
func NewSet(indexes ...int) Set {
	set := slices.Clone(indexes)
	slices.Sort(set)
	return slices.Compact(set)
}

// Range gives the set of the indexes from first up to and without end.
func Range(first, end int) Set {
	if end <= first {
		return nil
	}
	set := make(Set, 0, end-first)
	for index := first; index < end; index++ {
		set = append(set, index)
	}
	return set
}

// String gives the set as ranges of indexes, for example 0-57,232; the empty set as "".
func (s Set) String() string {
	var text strings.Builder
	for at := 0; at < len(s); {
		end := at + 1
		for end < len(s) && s[end] == s[end-1]+1 {
			end++
		}
		if text.Len() > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strconv.Itoa(s[at]))
		if end-at > 1 {
			text.WriteByte('-')
			text.WriteString(strconv.Itoa(s[end-1]))
		}
		at = end
	}
	return text.String()
}

// ParseSet reads what String writes: ranges ascending and apart. It refuses everything else, and sets of more than
// about a million members.
func ParseSet(text string) (Set, error) {
	if text == "" {
		return nil, nil
	}
	var set Set
	previous := -2
	for part := range strings.SplitSeq(text, ",") {
		firstText, lastText, isRange := strings.Cut(part, "-")
		first, err := parseIndex(firstText)
		if err != nil {
			return nil, fmt.Errorf("set %.80q: %w", text, err)
		}
		last := first
		if isRange {
			if last, err = parseIndex(lastText); err != nil {
				return nil, fmt.Errorf("set %.80q: %w", text, err)
			}
			if last <= first {
				return nil, fmt.Errorf("set %.80q: range %.40q must rise: write it like 3-7", text, part)
			}
		}
		if first <= previous+1 {
			return nil,
				fmt.Errorf("set %.80q: %.40q must come after %d and leave a gap: write 0-57,232", text, part, previous)
		}
		if last-first >= maxSetMembers-len(set) {
			return nil, fmt.Errorf("set %.80q: more than %d members", text, maxSetMembers)
		}
		for index := first; index <= last; index++ {
			set = append(set, index)
		}
		previous = last
	}
	return set, nil
}

// parseIndex takes digits only, without signs and leading zeros.
func parseIndex(text string) (int, error) {
	if text == "" || len(text) > 10 || strings.Trim(text, "0123456789") != "" || (len(text) > 1 && text[0] == '0') {
		return 0, fmt.Errorf("%.40q is not an index: want digits", text)
	}
	index, err := strconv.Atoi(text)
	if err != nil || index > MaxIndex {
		return 0, fmt.Errorf("%.40q is not an index: want at most %d", text, MaxIndex)
	}
	return index, nil
}

// Has says whether the index is in the set.
func (s Set) Has(index int) bool {
	_, found := slices.BinarySearch(s, index)
	return found
}

// sorted says whether the set is what it promises to be.
func (s Set) sorted() bool {
	for at, index := range s {
		if index < 0 || index > MaxIndex || (at > 0 && s[at-1] >= index) {
			return false
		}
	}
	return true
}
