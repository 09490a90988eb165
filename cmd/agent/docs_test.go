package main

import (
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestPagesCommandsParse: each agent line that a page tells its readers to type has a subcommand and flags that there
// are.
func TestPagesCommandsParse(t *testing.T) {
	lines := slices.Concat(testenv.Commands(t, "agent"), testenv.Commands(t, "bin/agent"),
		testenv.Commands(t, "go run ./cmd/agent"))
	for _, c := range lines {
		if err := parse(c.Words); err != nil {
			t.Errorf("%s: agent %q: %v", c.Page, c.Words, err)
		}
	}
	if len(lines) < 40 {
		t.Errorf("found only %d lines", len(lines))
	}
	for _, wrong := range [][]string{{"discover", "--rot", "/"}, {"explane"}, {"explain", "--ranks", "many"},
		{"discover", "/"}} {
		if parse(wrong) == nil {
			t.Errorf("%q parses", wrong)
		}
	}
}

// parse does all that comes before a command runs. A subcommand alone, or with one flag's name, is named as in a
// sentence; N is a number.
func parse(words []string) error {
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	command, rest, err := root.Find(words)
	if err != nil || len(words) == 1 && command.HasParent() {
		return err
	}
	command.InitDefaultHelpFlag()
	if flag, ok := strings.CutPrefix(words[len(words)-1], "--"); ok && len(words) == 2 &&
		command.Flags().Lookup(flag) != nil {
		return nil
	}
	rest = slices.Clone(rest)
	for i, word := range rest {
		if word == "N" {
			rest[i] = "1"
		}
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}
