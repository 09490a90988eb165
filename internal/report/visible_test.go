package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// obeyed says which character of text a terminal may obey; empty where none.
func obeyed(text string) string {
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r != '\n' && r != '\t' &&
			(unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || r == utf8.RuneError && size == 1) {
			return fmt.Sprintf("%q at %d", r, i)
		}
	}
	return ""
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"plain, é ü 日本 → ✓ 😀":            "plain, é ü 日本 → ✓ 😀",
		"two\nlines\tand a tab":          "two\nlines\tand a tab",
		"\x1b]0;title\a\x1b[2J\x1b[31m":  `\u001b]0;title\u0007\u001b[2J\u001b[31m`,
		"back\b\rover":                   `back\u0008\u000dover`,
		"\u009b31m \x9b31m":              `\u009b31m \x9b31m`,
		"\u202eturned\u2066\u2069\u200f": `\u202eturned\u2066\u2069\u200f`,
		"hidden\u200b\ufeff\u00ad":       `hidden\u200b\ufeff\u00ad`,
		"tag\U000e0041":                  `tag\udb40\udc41`,
		"\ufffd is a character":          "\ufffd is a character",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	if got := oneLine("Pass\nVERDICT\tFail"); got != `Pass\u000aVERDICT\u0009Fail` {
		t.Errorf("in one line: %q", got)
	}
}

// TestJSONStaysItself: what a Terminal makes of JSON means the same.
func TestJSONStaysItself(t *testing.T) {
	want := "\x1b[2J \u202e \x7f \U000e0041 \u0085 \" \\ \n"
	var b bytes.Buffer
	if err := json.NewEncoder(&Terminal{Writer: &b}).Encode(want); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got != want || obeyed(b.String()) != "" {
		t.Errorf("%q became %q (%v)", want, got, err)
	}
}

// TestCharactersMayComeInParts: a character that two writes share is no broken one.
func TestCharactersMayComeInParts(t *testing.T) {
	const text = "é日😀\u202e."
	var b bytes.Buffer
	w := &Terminal{Writer: &b}
	for i := range len(text) {
		if n, err := w.Write([]byte(text[i : i+1])); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if b.String() != `é日😀\u202e.` {
		t.Errorf("%q", b.String())
	}
}

// FuzzTerminalObeysNothing: whatever nodes write, a terminal obeys our own colours only; and a table of it stays in its
// lines.
func FuzzTerminalObeysNothing(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b]0;pwned\a", "\x1b[32mTrue\x1b[0m", "\u202e", "\xff\xe2\x80", "a\r\nb",
		"\x00A\x00", paintMark, paintMark + "1", paintMark + "9x" + paintMark + "."} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, colour bool) {
		if strings.Contains(text, paintMark) {
			t.Skip("nobody can know the mark")
		}
		var b bytes.Buffer
		w := &Terminal{Writer: &b, Colour: colour, Columns: 60}
		if err := table(w, [][]string{{"NAME", "VERDICT", "MESSAGE"}, {"n", text, "-"}}); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(b.String(), "\n"); lines != 2 {
			t.Errorf("a table of two rows has %d lines", lines)
		}
		for _, write := range []func() error{
			func() error {
				return Culprits(w,
					[]v1alpha1.Culprit{{Node: text, Kind: "GPU", Name: text, Reason: text, Message: text}})
			},
			func() error { _, err := io.WriteString(w, Paint(w, Bad, text)); return err },
			func() error { _, err := io.WriteString(w, text+"."); return err },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		shown := b.String()
		if strings.Contains(shown, strings.Trim(paintMark, "\x00")) {
			t.Errorf("marks are shown: %q", shown)
		}
		ours := escapes.ReplaceAllString(shown, "")
		if what := obeyed(ours); what != "" {
			t.Errorf("%s in %q", what, ours)
		}
		if !colour && ours != shown {
			t.Errorf("colours where none were asked for: %q", shown)
		}
		// As many sequences as an innocent text brings, each of ours.
		if colour && len(escapes.FindAllString(shown, -1))%2 != 0 {
			t.Errorf("a colour does not end: %q", shown)
		}
	})
}

// TestPaintedTextKeepsItsWidth: marks count for nothing where lines are broken.
func TestPaintedTextKeepsItsWidth(t *testing.T) {
	w := &Terminal{Writer: io.Discard, Colour: true}
	text := Paint(w, Good, "InEffect") + " (Active)"
	if got := width(text); got != len("InEffect (Active)") {
		t.Errorf("width %d", got)
	}
	if lines := broken(text, 20); len(lines) != 1 {
		t.Errorf("broken into %q", lines)
	}
}
