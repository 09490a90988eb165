// Package htmlreport writes one CommGroup as one HTML page that needs nothing else: no script, no font, no address of
// any server. Whoever opens it sees first what is wrong and what to do. It takes values and a time and gives bytes.
package htmlreport

import (
	"bytes"
	_ "embed" // the page and its style
	"fmt"
	"html/template"
	"io"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// unknown stands for what nobody measured or reported.
const unknown = "–"

// Input is what a report is made of.
type Input struct {
	Group *state.Group
	Nodes []report.Member
	// Unread says why the nodes' CommNodes could not be read; empty where they were.
	Unread string
	// Now is when the report is made, and Version the one of the program that makes it.
	Now     time.Time
	Version string
}

//go:embed page.html
var pageSource string

//go:embed style.css
var style string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"sizes": report.Sizes}).Parse(pageSource))

// Write writes the page.
func Write(w io.Writer, in Input) error {
	if in.Group == nil {
		return fmt.Errorf("no CommGroup to report on")
	}
	var b bytes.Buffer
	if err := page.Execute(&b, newView(in)); err != nil {
		return fmt.Errorf("making the report of CommGroup %s/%s: %w", in.Group.Namespace, in.Group.Name, err)
	}
	// Logs may hold any bytes, and names what turns the direction of text.
	_, err := io.WriteString(w, report.Visible(string(bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")))))
	return err
}

// tone is how something is shown; each has a word or sign beside its colour.
type tone string

const (
	toneGood tone = "good"
	toneBad  tone = "bad"
	toneWarn tone = "warn"
	toneInfo tone = "info"
	toneMute tone = "mute"
)

// verdictTone is the tone of a verdict; none is muted.
func verdictTone(v v1alpha1.Verdict) tone {
	switch v {
	case v1alpha1.VerdictPass:
		return toneGood
	case v1alpha1.VerdictFail, v1alpha1.VerdictError:
		return toneBad
	case v1alpha1.VerdictInconclusive, v1alpha1.VerdictSkipped:
		return toneWarn
	default:
		return toneMute
	}
}

// grid is a table.
type grid struct {
	Caption string
	Head    []string
	// Titled: a heading right above says what the caption does. Stack: on a narrow screen each row is a block with a
	// line for each cell.
	Titled, Stack bool
	Rows          []gridRow
	// More says what was left out; empty where nothing was.
	More string
}

type gridRow struct {
	Cells []cell
	// Note stands under the row over its whole width.
	Note string
}

type cell struct {
	Text string
	// Tone makes the cell a badge.
	Tone tone
	// Number cells stand to the right.
	Number bool
}

// Numbers says which columns, by their heads, hold numbers.
func (g grid) Numbers() map[string]bool {
	out := map[string]bool{}
	if len(g.Rows) > 0 {
		for i, c := range g.Rows[0].Cells {
			if c.Number && i < len(g.Head) {
				out[g.Head[i]] = true
			}
		}
	}
	return out
}

func plain(text string) cell {
	if text == "" {
		text = unknown
	}
	return cell{Text: text}
}

func number(text string) cell { return cell{Text: text, Number: true} }

func badge(text string, t tone) cell {
	if text == "" {
		text, t = unknown, toneMute
	}
	return cell{Text: text, Tone: t}
}

// when is a time as users on call read it, with its age.
func when(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	text := t.UTC().Format("2006-01-02 15:04:05 UTC")
	if age := now.Sub(t); age >= 0 {
		text += " (" + ago(age) + " before this report)"
	}
	return text
}

// ago is a duration in its largest unit that says enough.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
