package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rcclx.io/commgroup-operator/internal/report"
)

// The values of --color.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// useColour says whether to colour: a user's choice, else only on a terminal that can, and not with NO_COLOR
// (no-color.org).
func useColour(mode string, terminal bool, getenv func(string) string) (bool, error) {
	switch mode {
	case colourAlways:
		return true, nil
	case colourNever:
		return false, nil
	case colourAuto, "":
		return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", nil
	}
	return false, fmt.Errorf("--color %q: use auto, always or never", mode)
}

// out is the command's standard output, as the reports print to it.
func (o *options) out(cmd *cobra.Command) (*report.Terminal, error) {
	w := cmd.OutOrStdout()
	columns, terminal := terminalOf(w)
	colour, err := useColour(o.colour, terminal, os.Getenv)
	if err != nil {
		return nil, err
	}
	return &report.Terminal{Writer: w, Colour: colour, Columns: columns}, nil
}

// terminalOf says whether w is a terminal, and how wide; 0 where that is not known.
func terminalOf(w io.Writer) (columns int, terminal bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, true
	}
	return columns, true
}
