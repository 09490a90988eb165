package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"
)

// Terminal is a writer that users look at: what is printed to it is coloured and fits its width. What is printed to
// any other writer is plain text, the same everywhere.
type Terminal struct {
	io.Writer
	// Colour says whether to colour; Columns is the width, 0 where it is not known.
	Colour  bool
	Columns int
	// rest of the last write: the begin of a character.
	rest []byte
}

// Tone is how a word is meant.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good
	Bad
	Warn
	Bold
	Faint
)

var attributes = map[Tone][]color.Attribute{
	Good: {color.FgGreen}, Bad: {color.FgRed, color.Bold}, Warn: {color.FgYellow}, Bold: {color.Bold},
	Faint: {color.Faint},
}

// Paint gives text in a tone, where w is a terminal with colours; else the text alone.
func Paint(w io.Writer, tone Tone, text string) string {
	t, ok := w.(*Terminal)
	if !ok || !t.Colour || tone == Plain || text == "" {
		return text
	}
	return fmt.Sprintf("%s%d%s%s%c", paintMark, tone, text, paintMark, paintEnd)
}

// Title prints the heading of a section, with an empty line before it.
func Title(w io.Writer, title string) error {
	_, err := fmt.Fprintf(w, "\n%s\n", Paint(w, Bold, title))
	return err
}

func columns(w io.Writer) int {
	if t, ok := w.(*Terminal); ok {
		return t.Columns
	}
	return 0
}

// toneOf is the tone of a word that a status uses; of several words the first counts.
func toneOf(text string) Tone {
	if text == "Pass alone" { // and a culprit among others
		return Warn
	}
	word, _, _ := strings.Cut(text, " ")
	switch strings.TrimRight(word, ",:;") {
	case "Pass", "Met", "Confirmed", "InEffect", "Usable", "Worth", "True", "Full", "faster":
		return Good
	case "Fail", "False", "NotMet", "Failed", "Error", "NotInEffect", "NotUsable", "Incomplete", "slower", "lost":
		return Bad
	case "Inconclusive", "Skipped", "Partial", "Mixed", "Unknown", "NotConfirmed", "NotMeasured", "NotWorth", "Warning",
		"aborted", "stale", "noisy":
		return Warn
	}
	return Plain
}

// tones are the columns whose words say whether something is good.
var tones = map[string]bool{
	"VERDICT": true, "STATE": true, "EFFECTIVE": true, "VERIFIED": true, "USABLE": true, "WORTH IT": true,
	"READY": true, "OUTCOME": true, "XGMI MESH": true,
}

// gap is what stands between two columns; lastMin the least width that a wrapped last column is worth.
const (
	gap     = 2
	lastMin = 30
)

// table writes rows in aligned columns, the first row being the heading. On a terminal whose width is too small the
// last column is wrapped, so that nothing is lost and the others stay aligned.
func table(w io.Writer, rows [][]string) error {
	return tonedTable(w, rows, func(heading, cell string, _ []string) Tone {
		if tones[heading] {
			return toneOf(cell)
		}
		return Plain
	})
}

// tonedTable is table with the tones that a caller chooses.
func tonedTable(w io.Writer, rows [][]string, tone func(heading, cell string, row []string) Tone) error {
	if len(rows) == 0 {
		return nil
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(Sizes(row[i]))
		}
		for i, cell := range row[:min(len(row), len(widths))] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	last := len(widths) - 1
	before := 0
	for _, width := range widths[:last] {
		before += width + gap
	}
	room := 0 // for the last column; 0: as it is
	if c := columns(w); c > 0 && before+widths[last] > c && c-before >= lastMin {
		room = c - before
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			style := Bold
			if n > 0 {
				style = tone(rows[0][min(i, last)], cell, row)
			}
			if i < last {
				line.WriteString(Paint(w, style, cell))
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
				continue
			}
			for j, part := range broken(cell, room) {
				if j > 0 {
					line.WriteString("\n" + strings.Repeat(" ", before))
				}
				line.WriteString(Paint(w, style, part))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// broken is text in lines of at most limit characters, broken between words; a longer word has a line of its own. Limit
// 0 breaks nothing.
func broken(text string, limit int) []string {
	if limit <= 0 || width(text) <= limit {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && width(line)+1+width(word) > limit {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// wrap breaks text into lines of at most 120 characters, or the terminal's width, each indented.
func wrap(w io.Writer, text string) string {
	const indent, width = "  ", 120
	room := width
	if c := columns(w); c > lastMin {
		room = min(room, c)
	}
	lines := broken(Sizes(strings.Join(strings.Fields(text), " ")), room-len(indent))
	return indent + strings.Join(lines, "\n"+indent)
}
