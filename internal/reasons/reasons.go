// Package reasons gives what docs/reasons.md says of a reason: what was seen and what to do next. Commands, reports and
// the runbooks all quote that one page.
package reasons

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"rcclx.io/commgroup-operator/docs"
)

// Entry is one row of the page.
type Entry struct {
	// Section is the heading that the row stands under, without markup, for example "Condition Accepted".
	Section string
	// Reason is the word.
	Reason string
	// Seen says what the reason stands for, and Next what to do; both with the page's markup. Next is empty in the
	// tables of settings, which say only why.
	Seen, Next string
}

// Section is one table of the page.
type Section struct {
	// Title is the heading without markup; Anchor is its anchor on the page.
	Title, Anchor string
	// Text stands between heading and table, with markup.
	Text    string
	Entries []Entry
}

// All gives the page's sections in their order.
var All = sync.OnceValue(func() []Section {
	sections, err := Parse(docs.Reasons)
	if err != nil {
		panic("docs/reasons.md, which this program was built with: " + err.Error()) // a test parses it
	}
	return sections
})

// Find gives each row of a reason; one reason may stand in several sections.
func Find(reason string) []Entry {
	var found []Entry
	for _, s := range All() {
		for _, e := range s.Entries {
			if e.Reason == reason {
				found = append(found, e)
			}
		}
	}
	return found
}

// NextStep is the first next step that a user can take by the page, without markup; "" where it has none.
func NextStep(reason string) string {
	for _, e := range Find(reason) {
		if next := Plain(e.Next); next != "" && next != "none" {
			return next
		}
	}
	return ""
}

// Parse reads a page of headings and tables. A row's first cell is a word in backticks.
func Parse(page string) ([]Section, error) {
	var sections []Section
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			title := strings.TrimSpace(line[3:])
			sections = append(sections, Section{Title: Plain(title), Anchor: Anchor(title)})
		case strings.HasPrefix(line, "|"):
			cells := Cells(line)
			word, isRow := reasonCell(cells)
			if !isRow {
				continue // the table's head
			}
			if len(sections) == 0 {
				return nil, fmt.Errorf("line %d: a row before the first heading", i+1)
			}
			if len(cells) != 2 && len(cells) != 3 {
				return nil,
					fmt.Errorf("line %d: %d cells in the row of %s, expected two or three", i+1, len(cells), word)
			}
			s := &sections[len(sections)-1]
			e := Entry{Section: s.Title, Reason: word, Seen: cells[1]}
			if len(cells) == 3 {
				e.Next = cells[2]
			}
			s.Entries = append(s.Entries, e)
		case len(sections) > 0 && strings.TrimSpace(line) != "":
			s := &sections[len(sections)-1]
			s.Text = strings.TrimSpace(s.Text + "\n" + line)
		}
	}
	return slices.DeleteFunc(sections, func(s Section) bool { return len(s.Entries) == 0 }), nil
}

// reasonCell is the word of a row: its first cell is nothing but one word in backticks.
func reasonCell(cells []string) (string, bool) {
	if len(cells) == 0 {
		return "", false
	}
	word, ok := strings.CutPrefix(cells[0], "`")
	if !ok {
		return "", false
	}
	word, ok = strings.CutSuffix(word, "`")
	return word, ok && word != "" && !strings.ContainsAny(word, "` \t")
}

// Cells splits a table's line; a bar behind a backslash or within backticks is no border.
func Cells(line string) []string {
	line = strings.TrimSpace(line)
	line = strings.TrimPrefix(line, "|")
	var cells []string
	var cell strings.Builder
	escaped, code := false, false
	for _, r := range line {
		switch {
		case escaped:
			escaped = false
			if r != '|' {
				cell.WriteByte('\\')
			}
			cell.WriteRune(r)
		case r == '\\':
			escaped = true
		case r == '|' && !code:
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			if r == '`' {
				code = !code
			}
			cell.WriteRune(r)
		}
	}
	if escaped {
		cell.WriteByte('\\')
	}
	if rest := strings.TrimSpace(cell.String()); rest != "" {
		cells = append(cells, rest)
	}
	return cells
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// Plain is text without backticks and with links' words only.
func Plain(text string) string {
	return strings.ReplaceAll(link.ReplaceAllString(text, "$1"), "`", "")
}

// Anchor is what a heading is linked by: lower case, without punctuation, dashes for spaces.
func Anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(Plain(title)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' ||
			r > 127 && !strings.ContainsRune("–—…“”’", r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
