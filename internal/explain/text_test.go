package explain

import "testing"

// TestOneLine: what names and reports hold reaches a condition without line ends, and no character that is not seen
// reaches it raw.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"All 4 members passed.":        "All 4 members passed.",
		"größer 10⁹ µs":                "größer 10⁹ µs",
		"a\nb\tc\r\nd":                 "a b c d",
		"a\x1b[2J\x07":                 `a\u001b[2J\u0007`,
		"x\u202ey\u0085z\u2028w\ufeff": `x\u202ey\u0085z\u2028w\ufeff`,
		"\xff":                         `\xff`,
	} {
		if got := OneLine(in); got != want {
			t.Errorf("%q gives %q, expected %q", in, got, want)
		}
	}
}
