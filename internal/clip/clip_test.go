package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	long := "Node a is slow. Expected 40 GB/s, measured 20 GB/s; check the link."
	for name, tc := range map[string]struct {
		clip  func(string, int) string
		in    string
		limit int
		want  string
	}{
		"head, short":            {Head, "abc", 3, "abc"},
		"head, long":             {Head, "abcdef", 5, "ab..."},
		"head, in a character":   {Head, "aüßöä", 6, "aü..."},
		"tail, long":             {Tail, "abcdef", 3, "def"},
		"tail, in a character":   {Tail, "äöü", 3, "ü"},
		"sentences, short":       {Sentences, " abc ", 3, "abc"},
		"sentences, whole one":   {Sentences, long, 24, "Node a is slow."},
		"sentences, whole words": {Sentences, long, 50, "Node a is slow. Expected 40 GB/s, measured 20 ..."},
		"sentences, one word":    {Sentences, strings.Repeat("x", 9), 8, "xxxx ..."},
	} {
		got := tc.clip(tc.in, tc.limit)
		if got != tc.want || len(got) > tc.limit || !utf8.ValidString(got) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
