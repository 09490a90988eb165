package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/agent/bench"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// newProgress shows progress in one line that is written over on a terminal, else in a line for each result.
func newProgress(w io.Writer) bench.Progress {
	f, ok := w.(*os.File)
	if !ok {
		return &progress{w: w}
	}
	fd := int(f.Fd()) //nolint:gosec // a file descriptor fits an int
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return &progress{w: w}
	}
	p := &progress{w: w, terminal: true, columns: 80}
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && size.Col > 1 {
		p.columns = int(size.Col)
	}
	return p
}

// progress implements bench.Progress.
type progress struct {
	w        io.Writer
	terminal bool
	columns  int // of the terminal
	width    int // of the line that stands there
}

// Note implements bench.Progress.
func (p *progress) Note(text string) { p.show(text) }

// Measured implements bench.Progress.
func (p *progress) Measured(done, total int, r results.Result) {
	text := fmt.Sprintf("[%d/%d] %s %s %s %d B", done, total, r.Variant, r.Collective, r.Datatype, r.SizeBytes)
	if r.Placement == rcclx.InPlace {
		text += " in place"
	}
	text += fmt.Sprintf(": %.2f us", float64(r.Latency.MedianNanoseconds)/1e3)
	if r.BusBandwidthMBps > 0 {
		text += fmt.Sprintf(", busbw %.3f GB/s", float64(r.BusBandwidthMBps)/1e3)
	}
	if wrong := r.Unexplained(); wrong > 0 {
		text += fmt.Sprintf(", %d WRONG elements", wrong)
	}
	if r.HazardElements > 0 {
		text += fmt.Sprintf(", %d wrong elements of a known hazard", r.HazardElements)
	}
	p.show(text)
}

func (p *progress) show(text string) {
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	text = text[:min(len(text), p.columns-1)] // a longer line would wrap, and could not be written over
	pad := max(p.width-len(text), 0)
	p.width = len(text)
	_, _ = fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", pad))
}

// End clears the terminal's line, so that what follows begins at its start.
func (p *progress) End() {
	if p.terminal && p.width > 0 {
		_, _ = fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}
