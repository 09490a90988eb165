package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// drawAgain is the least time between two looks at a group, and drawLarge at one of more than maxSteps members,
	// each of which the API server has to give.
	drawAgain = time.Second
	drawLarge = 15 * time.Second
	// lookTimeout bounds one look: a server that does not answer is told instead of waited for in silence.
	lookTimeout = 30 * time.Second
)

// frame is a status as it was shown.
type frame struct {
	text  string
	state error // what the exit code says of it
}

// watcher shows a status again whenever it says something else.
type watcher struct {
	view   *statusView
	out    *report.Terminal
	errs   io.Writer
	screen *screen // nil where the output is no terminal
	last   *frame
	// looked is when the cluster was looked at last, changed when it showed what is shown now; due: something has
	// changed since.
	looked, changed time.Time
	due             bool
	// trouble is what keeps the status from being read, since when, and until then it is as shown last.
	trouble string
}

// watchStatus shows the view's status until the command is interrupted or its time is over.
func watchStatus(cmd *cobra.Command, v *statusView, out *report.Terminal, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	w := &watcher{view: v, out: out, errs: cmd.ErrOrStderr(), screen: screenOf(cmd.OutOrStdout())}
	err := w.run(ctx)
	if w.screen != nil && w.last != nil {
		w.screen.close()
		if _, again := fmt.Fprint(out.Writer, w.last.text); again != nil {
			return again
		}
	}
	switch {
	case ctx.Err() == nil:
		return err
	case w.last == nil:
		return fmt.Errorf("watching %s: nothing was read before %s",
			watched(v.namespace, v.name), map[bool]string{true: "the interrupt",
				false: timeout.String() + " were over (--timeout)"}[errors.Is(ctx.Err(), context.Canceled)])
	}
	if w.trouble != "" {
		fmt.Fprintln(w.errs, "The last status was read before this:", w.trouble)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintf(w.errs, "Watched for %s (--timeout).\n", timeout)
	}
	return w.last.state
}

// run watches until its context ends, or something is wrong that waiting does not fix.
func (w *watcher) run(ctx context.Context) error {
	v := w.view
	f := &follower{options: v.options, client: v.client, namespace: v.namespace, name: v.name, out: w.out}
	for {
		err := f.each(ctx, func(*state.Group) (bool, error) {
			w.due = true
			return false, w.look(ctx)
		}, func() error { return w.look(ctx) })
		if ctx.Err() != nil || w.last == nil || !passing(err) {
			return err
		}
		if err := w.tell(err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.options.clock.After(redrawAfter):
		}
	}
}

// look reads the status, not too often, and shows it where it says something else than the last one. What nodes report
// shows in the group's own status only at its end, so that a small group is looked at each time.
func (w *watcher) look(ctx context.Context) error {
	v, now := w.view, w.view.options.clock.Now()
	wait := drawAgain
	if v.members > maxSteps {
		wait = drawLarge
	}
	if w.last != nil && now.Sub(w.looked) < wait {
		return nil
	}
	if !w.due && w.last != nil && (v.name == "" || v.members > maxSteps) && now.Sub(w.looked) < 2*drawLarge {
		return w.fit()
	}
	out := *w.out
	if w.screen != nil {
		out.Columns = w.screen.size()
	}
	var b bytes.Buffer
	out.Writer = &b
	reading, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	state, err := v.print(reading, &out)
	if err != nil {
		return err
	}
	w.due, w.looked = false, now
	next := frame{b.String(), state}
	if v.name == "" && b.Len() == 0 && state != nil {
		next.text = state.Error() + "\n"
		if w.last == nil {
			return state
		}
	}
	same, troubled := w.last != nil && unaged(w.last.text) == unaged(next.text), w.trouble != ""
	w.trouble = ""
	switch {
	case same && troubled && w.screen == nil:
		_, err = fmt.Fprintf(w.errs, "NOTE: read again at %s: nothing has changed\n", now.UTC().Format("15:04:05 UTC"))
		return err
	case same && !troubled:
		return w.fit()
	}
	return w.show(next)
}

// show shows a status: over the last one on a terminal, else behind it.
func (w *watcher) show(next frame) error {
	first := w.last == nil
	if first || w.last.text != next.text {
		w.changed = w.looked
	}
	w.last = &next
	if w.screen != nil {
		return w.screen.draw(w.head()+next.text, first)
	}
	between := ""
	switch {
	case w.view.output == outputYAML:
		between = "---\n"
	case w.view.output == outputTable && !first:
		between = "\n"
	}
	if w.view.output == outputTable {
		between += w.head()
	}
	_, err := io.WriteString(w.out.Writer, between+next.text)
	return err
}

// fit draws the last status again where the terminal has another size now.
func (w *watcher) fit() error {
	if w.screen == nil || w.last == nil || !w.screen.resized() {
		return nil
	}
	return w.screen.draw(w.head()+w.last.text, false)
}

// head says what is shown, and as of when.
func (w *watcher) head() string {
	var b bytes.Buffer
	out := *w.out
	out.Writer = &b
	text := watched(w.view.namespace, w.view.name) + " as of "
	if w.screen != nil {
		text = watched(w.view.namespace, w.view.name) + ", Ctrl-C ends; last change "
	}
	text += w.changed.UTC().Format("2006-01-02 15:04:05 UTC")
	fmt.Fprintln(&out, report.Paint(&out, report.Faint, text))
	if w.trouble != "" {
		_ = report.Note(&out, w.trouble) // a buffer takes it
	}
	return b.String()
}

// tell says once that the status cannot be read for now.
func (w *watcher) tell(err error) error {
	if w.trouble != "" {
		return nil
	}
	w.trouble = fmt.Sprintf("not read since %s, and tried again: %v",
		w.view.options.clock.Now().UTC().Format("15:04:05 UTC"), err)
	if w.screen != nil {
		return w.screen.draw(w.head()+w.last.text, false)
	}
	_, err = fmt.Fprintln(w.errs, "NOTE: "+report.Visible(w.trouble))
	return err
}

// passing says whether an error may be over by itself: the API server is away, or has too much to do.
func passing(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var address *url.Error
	var network net.Error
	return errors.As(err, &address) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// ages are what grows in a note without any news.
var ages = regexp.MustCompile(`([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?s\b`)

// unaged is a status without the ages in its notes.
func unaged(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, "NOTE: ") || strings.Contains(line, " after it was made") ||
			strings.Contains(line, ": being deleted since ") {
			lines[i] = ages.ReplaceAllString(line, "")
		}
	}
	return strings.Join(lines, "\n")
}

// screen is a terminal that is drawn over. It keeps what stood there before, and gives it back at the end.
type screen struct {
	file          *os.File
	columns, rows int
	open          bool
}

// screenOf is the terminal that w is; nil where it is none, or one that can only write on.
func screenOf(w io.Writer) *screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{file: f}
}

// size asks for the terminal's size and gives its columns; 0 where it does not say.
func (s *screen) size() int {
	s.columns, s.rows = s.ask()
	return s.columns
}

func (s *screen) ask() (columns, rows int) {
	columns, rows, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

func (s *screen) resized() bool {
	columns, rows := s.ask()
	return columns != s.columns || rows != s.rows
}

// draw shows as much of the text as fits, and says how much does not.
func (s *screen) draw(text string, first bool) error {
	s.size()
	var b strings.Builder
	if first || !s.open {
		b.WriteString("\x1b[?1049h")
		s.open = true
	}
	b.WriteString("\x1b[H")
	for i, line := range fitting(strings.Split(strings.TrimRight(text, "\n"), "\n"), s.columns, s.rows) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.file, b.String())
	return err
}

func (s *screen) close() {
	if s.open {
		_, _ = io.WriteString(s.file, "\x1b[?1049l") // what follows tells of a terminal that is gone
		s.open = false
	}
}

// fitting are the first lines that fit into so many columns and rows; the last row says how many do not. A size of zero
// is not known.
func fitting(lines []string, columns, rows int) []string {
	if columns <= 0 || rows <= 1 {
		return lines
	}
	height := func(line string) int { return max(1, (seen(line)+columns-1)/columns) }
	used, whole := 0, 0
	for _, line := range lines {
		used += height(line)
	}
	if used <= rows {
		return lines
	}
	for used = 0; whole < len(lines) && used+height(lines[whole]) < rows; whole++ {
		used += height(lines[whole])
	}
	more := fmt.Sprintf("... %d more lines: all of it comes at the end (Ctrl-C), or in a larger window",
		len(lines)-whole)
	return append(lines[:whole:whole], cut(more, columns))
}

// sequences are what colours a line.
var sequences = regexp.MustCompile("\x1b\\[[0-9;]*m")

// seen is how many characters of a line take a place on the terminal.
func seen(line string) int { return utf8.RuneCountInString(sequences.ReplaceAllString(line, "")) }
