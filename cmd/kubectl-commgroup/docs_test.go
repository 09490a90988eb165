package main

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestPagesCommandsParse: each kubectl commgroup line that a page tells its readers to type has a subcommand, flags and
// arguments that there are. docs/cli.md is made from the commands.
func TestPagesCommandsParse(t *testing.T) {
	lines := 0
	for _, c := range testenv.Commands(t, "kubectl commgroup") {
		if c.Page == "docs/cli.md" {
			continue
		}
		lines++
		root := rootCommand(&options{clock: clock.RealClock{}})
		if err := parse(root, c.Words); err != nil {
			t.Errorf("%s: kubectl commgroup %q: %v", c.Page, c.Words, err)
		}
	}
	if lines < 150 {
		t.Errorf("found only %d lines", lines)
	}
	for _, wrong := range [][]string{{"results", "g", "--nodes", "n"}, {"explane", "g"},
		{"wait", "g", "h"}, {"explane"}} {
		if parse(rootCommand(&options{clock: clock.RealClock{}}), wrong) == nil {
			t.Errorf("%q parses", wrong)
		}
	}
}

// parse does all that comes before a command runs. A subcommand alone is its name, as in a sentence.
func parse(root *cobra.Command, words []string) error {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	command, rest, err := root.Find(words)
	if err != nil || len(words) == 1 {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}
