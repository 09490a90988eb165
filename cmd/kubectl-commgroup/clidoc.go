//go:build clidoc

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// With the build tag clidoc the program writes docs/cli.md and does nothing else; hack/generate.sh calls it.
func init() {
	if err := writeDocs(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(exitFailed)
	}
	os.Exit(exitOK)
}

const docsHead = `# kubectl commgroup

Generated from the commands by hack/generate.sh. ` + "`make build`" +
	` makes bin/kubectl-commgroup; with that folder in ` + "`PATH`" + `
kubectl finds it as ` + "`kubectl commgroup`" + `.

| exit code | says |
|---|---|
| 0 | the answer is yes: the group is Ready, the run is as good, the bundle is whole |
| 1 | the answer is no; what is wrong was printed |
| 2 | there is no answer: the command failed, or gave up waiting |

Colours and a live line of progress are only for terminals: a pipe or file gets plain text, and NO_COLOR or ` +
	"`--color=never`" + ` turns
colours off. Figures that nobody measured are "-" in tables and empty in CSV, never zero.

For completion within kubectl, put an executable file kubectl_complete-commgroup into ` + "`PATH`" +
	` that has the two lines
` + "`#!/bin/sh` and `exec kubectl commgroup __complete \"$@\"`" + `.

`

func writeDocs() error {
	var b bytes.Buffer
	b.WriteString(docsHead)
	root := newRootCommand()
	root.DisableAutoGenTag = true
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeCommand(&b, c); err != nil {
			return err
		}
	}
	_, err := os.Stdout.WriteString(strings.TrimRight(b.String(), "\n") + "\n")
	return err
}

func writeCommand(b *bytes.Buffer, c *cobra.Command) error {
	c.DisableAutoGenTag = true
	var one bytes.Buffer
	if err := doc.GenMarkdownCustom(c, &one, func(string) string { return "" }); err != nil {
		return err
	}
	text := strings.ReplaceAll(one.String(), "kubectl-commgroup", "kubectl commgroup")
	text, _, _ = strings.Cut(text, "### SEE ALSO")
	text, _, _ = strings.Cut(text, "### Options inherited")
	b.WriteString(strings.TrimRight(text, "\n") + "\n\n")
	return nil
}
