package localize

import (
	"slices"
	"testing"
)

// What comes and goes proves nothing: a set that was bad and lies in one that was good names nobody, and is not
// searched.
func TestWhatLiesInAGoodSetProvesNothing(t *testing.T) {
	bad := []Test{{Round: 2, Kind: KindSpan, Set: Set{2, 3}, Outcome: Bad},
		{Round: 3, Kind: KindSpan, Set: Set{2, 3}, Outcome: Bad}}
	rest := Test{Round: 1, Kind: KindSpan, Set: Range(8, 16), Outcome: Good}
	for name, good := range map[string][]Test{
		"a larger set": {rest, {Round: 1, Kind: KindSpan, Set: Range(0, 8), Outcome: Good}},
		"before the search": {rest, {Kind: KindSpan, Set: Set{2, 3}, Outcome: Good},
			{Kind: KindSpan, Set: Set{0, 2}, Outcome: Good}, {Kind: KindSpan, Set: Set{1, 3}, Outcome: Good}},
		"the same set, earlier": {rest, {Round: 1, Kind: KindSpan, Set: Set{2, 3}, Outcome: Good}},
	} {
		history := append(slices.Clone(good), bad...)
		finding, err := Conclude(all(16), history)
		if err != nil || len(finding.Members)+len(finding.Pairs) > 0 || finding.Evidence.Contradictions == 0 ||
			finding.State != OutOfBounds {
			t.Errorf("%s: %+v, %v", name, finding, err)
		}
		for _, test := range next(t, all(16), history).Tests {
			if slices.Equal(test.Set, Set{2, 3}) {
				t.Errorf("%s: %s is tried again: %+v", name, test.Set, test)
			}
		}
	}
}

// A bad test that holds a bad pair says nothing of the third member in it, however many such tests there are.
func TestBadPairInATestProvesNoNode(t *testing.T) {
	var history []Test
	for _, test := range []Test{
		{Round: 1, Set: Set{0, 2}, Outcome: Good}, {Round: 1, Set: Set{1, 3}, Outcome: Good},
		{Round: 1, Set: Range(6, 16), Outcome: Good},
		{Round: 2, Set: Set{0, 1}, Outcome: Bad}, {Round: 2, Set: Set{2, 3}, Outcome: Bad},
		{Round: 3, Set: Set{0, 8}, Outcome: Good}, {Round: 3, Set: Set{1, 9}, Outcome: Good},
		{Round: 3, Set: Set{2, 10}, Outcome: Good}, {Round: 3, Set: Set{3, 11}, Outcome: Good},
		{Round: 4, Set: Set{0, 1}, Outcome: Bad}, {Round: 4, Set: Set{2, 3}, Outcome: Bad},
		{Round: 5, Set: Set{0, 1, 5}, Outcome: Bad}, {Round: 6, Set: Set{2, 3, 5}, Outcome: Bad},
	} {
		test.Kind = KindSpan
		history = append(history, test)
	}
	finding, err := Conclude(all(16), history)
	if err != nil || len(finding.Members) > 0 || !slices.Equal(finding.Pairs, [][2]int{{0, 1}, {2, 3}}) {
		t.Errorf("%+v, %v", finding, err)
	}
}

// Where members have left since the test that is searched for, nothing says that the others are bad: good tests of all
// of them end the search, with nobody to suspect; what is bad among them is found all the same, and what was not tried
// yet is tried.
func TestFewerMembersThanTheBadTest(t *testing.T) {
	for _, n := range []int{3, 8, 16, 64, 232} {
		problem := all(n)
		problem.Fewer = true
		var history []Test
		for _, set := range cut(Range(0, n), 2) {
			if len(set) > 1 {
				history = append(history, Test{Round: 1, Kind: KindSpan, Set: set, Outcome: Good})
			}
		}
		finding, further := search(t, problem, history, func(Set) Outcome { return Good })
		if finding.State != NotFound || len(finding.Suspects) > 0 || len(further) > len(history)+1 ||
			finding.Evidence.AllBad {
			t.Errorf("N=%d, %d tests: %+v", n, len(further), finding)
		}
		if n < 8 {
			continue
		}
		for bad := range n {
			w := world{members: []int{bad}}
			first := next(t, all(n+1), nil).Tests // the member n was lost in the first round
			history = nil
			for _, test := range first {
				if test.Outcome = Unknown; !test.Set.Has(n) {
					test.Outcome = w.outcome(test.Set)
				}
				history = append(history, test)
			}
			if finding, _ := search(t, problem, history, w.outcome); exactly(&w, &finding) != "" {
				t.Errorf("N=%d, bad %d: %+v", n, bad, finding)
			}
		}
	}
}
