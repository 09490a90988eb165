package localize

import (
	"slices"
	"strings"
	"testing"
)

func TestSetText(t *testing.T) {
	for text, set := range map[string]Set{
		"":                nil,
		"0":               {0},
		"0-1":             {0, 1},
		"0-2,4,7-8":       {0, 1, 2, 4, 7, 8},
		"5,2147483647":    {5, MaxIndex},
		"12499":           {12499},
		"3,5,7,9":         {3, 5, 7, 9},
		"0-57,232":        append(Range(0, 58), 232),
		"10-11,1000-1003": {10, 11, 1000, 1001, 1002, 1003},
	} {
		if got := set.String(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
		got, err := ParseSet(text)
		if err != nil || !slices.Equal(got, set) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestParseSetRefuses(t *testing.T) {
	for _, text := range []string{
		" ", ",", "-", "1,", ",1", "a", "-1", "1-", "+1", "1-1", "2-1", "1,1", "2,1", "0-5,3", "0-5,5", "0-5,6",
		"0,1", "1--3", "1-2-3",
		"01", "00", "1 -2", "2147483648", "99999999999", "0-2147483647", "0-1048576", strings.Repeat("9", 500),
		"0-9,\xff", "1\n",
	} {
		if set, err := ParseSet(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, set)
		}
	}
	if set, err := ParseSet("0-1048575"); err != nil || len(set) != 1<<20 {
		t.Errorf("got %d members, %v", len(set), err)
	}
}

func TestSetOperations(t *testing.T) {
	set := NewSet(5, 1, 3, 1)
	if !slices.Equal(set, Set{1, 3, 5}) || !set.Has(3) || set.Has(2) || set.Has(9) {
		t.Errorf("got %v", set)
	}
	if !set.Within(Range(0, 6)) || set.Within(Range(0, 5)) || set.Within(nil) || !Set(nil).Within(set) {
		t.Error("Within")
	}
	if got := set.Without(Set{0, 3, 9}); !slices.Equal(got, Set{1, 5}) {
		t.Errorf("got %v", got)
	}
	if got := Range(3, 3); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func FuzzParseSet(f *testing.F) {
	for _, text := range []string{"", "0-57,232", "1,3", "7-9", "0-1048575", "01", "5-4", "1,2", "-", ",,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := ParseSet(text)
		if err != nil {
			return
		}
		if !set.sorted() || len(set) > maxSetMembers {
			t.Fatalf("%q: %d members, out of order or too many", text, len(set))
		}
		if got := set.String(); got != text {
			t.Fatalf("%q reads as what is written %q", text, got)
		}
	})
}

// Within says whether all of the set is in the other.
func (s Set) Within(other Set) bool {
	at := 0
	for _, index := range s {
		for at < len(other) && other[at] < index {
			at++
		}
		if at == len(other) || other[at] != index {
			return false
		}
	}
	return true
}

// Without gives what is in the set and not in the other.
func (s Set) Without(other Set) Set {
	var left Set
	at := 0
	for _, index := range s {
		for at < len(other) && other[at] < index {
			at++
		}
		if at == len(other) || other[at] != index {
			left = append(left, index)
		}
	}
	return left
}
