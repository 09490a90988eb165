package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// memberSet holds ranges of members' indexes, ascending and apart, each with its first and last one.
type memberSet [][2]int

// parseMembers reads a set as the status has it, for example 0-57,232; ok is false where it is none.
func parseMembers(text string) (set memberSet, ok bool) {
	if text == "" {
		return nil, false
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 31)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(to, 10, 31)
		}
		if err != nil || last < first || len(set) > 0 && int(first) <= set[len(set)-1][1] {
			return nil, false
		}
		set = append(set, [2]int{int(first), int(last)})
	}
	return set, true
}

func (s memberSet) count() int {
	n := 0
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

func (s memberSet) has(index int) bool {
	return slices.ContainsFunc(s, func(r [2]int) bool { return r[0] <= index && index <= r[1] })
}

// first gives at most so many indexes.
func (s memberSet) first(limit int) []int {
	var out []int
	for _, r := range s {
		for i := r[0]; i <= r[1] && len(out) < limit; i++ {
			out = append(out, i)
		}
	}
	return out
}

// without takes the members of another set out.
func (s memberSet) without(other memberSet) memberSet {
	out := slices.Clone(s)
	for _, o := range other {
		var kept memberSet
		for _, r := range out {
			if o[1] < r[0] || o[0] > r[1] {
				kept = append(kept, r)
				continue
			}
			if r[0] < o[0] {
				kept = append(kept, [2]int{r[0], o[0] - 1})
			}
			if r[1] > o[1] {
				kept = append(kept, [2]int{o[1] + 1, r[1]})
			}
		}
		out = kept
	}
	return out
}

func (s memberSet) String() string {
	parts := make([]string, 0, len(s))
	for _, r := range s {
		if r[0] == r[1] {
			parts = append(parts, strconv.Itoa(r[0]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", r[0], r[1]))
	}
	return strings.Join(parts, ",")
}
