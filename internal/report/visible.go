package report

import (
	"crypto/rand"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"

	"rcclx.io/commgroup-operator/internal/units"
)

// What a status says is partly written by nodes, and a node that was taken over may write what a terminal obeys:
// sequences that move the cursor, set its title or its clipboard, or turn the direction of text. A Terminal prints each
// such character as an escape that users see (\u001b). Colours of our own are marked in what is written to it, by a
// word that nobody can know beforehand.

// paintMark begins and ends what is painted; a tone's digit, or '.', follows.
var paintMark = "\x00" + rand.Text() + "\x00"

const paintEnd = '.'

// Visible is text without a character that a terminal may obey: all but letters, marks, numbers, punctuation, symbols,
// plain spaces, tabs and line ends is shown by its code. In JSON these codes mean the same characters.
func Visible(text string) string { return units.Visible(text, "\n\t") }

// oneLine is Visible for text that belongs into one line: a line end in it is shown, too.
func oneLine(text string) string { return units.Visible(text, "") }

// Write prints p so that the terminal obeys nothing in it but the tones of Paint.
func (t *Terminal) Write(p []byte) (int, error) {
	text := string(t.rest) + string(p)
	t.rest = nil
	if cut := len(text) - incomplete(text); cut < len(text) {
		text, t.rest = text[:cut], []byte(text[cut:])
	}
	var out strings.Builder
	end := ""
	for i, part := range strings.Split(text, paintMark) {
		if i > 0 {
			if part == "" {
				continue
			}
			if part[0] == paintEnd {
				out.WriteString(end)
				end = ""
			} else {
				var begin string
				begin, end = codes(Tone(part[0] - '0'))
				out.WriteString(begin)
			}
			part = part[1:]
		}
		out.WriteString(Visible(part))
	}
	if _, err := io.WriteString(t.Writer, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// incomplete is how many bytes at the end begin a character whose rest is still to come.
func incomplete(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// codes are the sequences that begin and end a tone.
func codes(tone Tone) (begin, end string) {
	c := color.New(attributes[tone]...)
	c.EnableColor() // the caller has decided; the library's own look at stdout does not count
	begin, end, _ = strings.Cut(c.Sprint("\x00"), "\x00")
	return begin, end
}

// width is how many characters of text are seen.
func width(text string) int {
	marks := strings.Count(text, paintMark)
	return utf8.RuneCountInString(text) - marks*(utf8.RuneCountInString(paintMark)+1)
}
