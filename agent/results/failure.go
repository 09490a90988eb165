package results

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// WriteFailure tells users why a run failed: what and where first, then what each rank was doing, RAS' verdict and the
// end of the log.
func (f Failure) WriteFailure(w io.Writer) error { return f.write(w, true) }

// WriteFailureDetails leaves out the message, for those to whom a table's line "# FAILED" told it.
func (f Failure) WriteFailureDetails(w io.Writer) error { return f.write(w, false) }

func (f Failure) write(w io.Writer, message bool) error {
	out := &printer{w: w}
	title := "FAILED"
	if f.Variant != "" {
		title += " in " + string(f.Variant)
	}
	if f.Step != "" {
		title += " at " + f.Step
	}
	if f.Rank != nil {
		title += fmt.Sprintf(": rank %d (GPU %s)", *f.Rank, orMissing(f.Device))
	}
	if f.Code != "" {
		title += ": " + f.Code
	}
	out.line("%s", title)
	if message {
		out.line("  %s", flat(f.Message))
	}
	if len(f.Ranks) > 0 {
		out.line("What each rank was doing:")
		for _, r := range f.Ranks {
			text := fmt.Sprintf("  rank %2d  GPU %s  %s", r.Rank, orMissing(r.Device), r.Doing)
			if r.Exit != "" {
				text += "; it " + r.Exit
			}
			out.line("%s", text)
		}
	}
	if f.FreedNanoseconds > 0 {
		out.line("All ranks were gone and their GPUs free %.3f s after that.", float64(f.FreedNanoseconds)/1e9)
	}
	out.block("What the library's RAS service says:", f.RAS)
	out.block("The end of its log:", f.LogTail)
	if f.Next != "" {
		out.line("Next: %s", flat(f.Next))
	}
	return out.err
}

// block prints a text of several lines under a title; nothing where it is empty.
func (o *printer) block(title, text string) {
	text = strings.TrimRight(text, "\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	o.line("%s", title)
	for line := range strings.SplitSeq(text, "\n") {
		o.line("  | %s", strings.TrimRight(line, "\r"))
	}
}

// Printable keeps what a log, or a report from elsewhere, may hold from steering a terminal: it replaces control
// characters, line ends too.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
