package e2e

import (
	"errors"
	"fmt"
	"strings"
)

// quickstartMark stands before the README's block of commands that the test runs.
const quickstartMark = "<!-- quickstart -->"

// quickstart gives the commands of the fenced block that follows the mark in a Markdown text: a line each, with lines
// that end in a backslash joined to the next. Lines that are empty or only a comment are left out.
func quickstart(markdown string) ([]string, error) {
	_, rest, found := strings.Cut(markdown, quickstartMark)
	if !found {
		return nil, fmt.Errorf("there is no line %s", quickstartMark)
	}
	rest = strings.TrimLeft(rest, "\n")
	fence, rest, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(fence, "```") {
		return nil, fmt.Errorf("after %s comes %q, expected a fenced block", quickstartMark, fence)
	}
	block, _, closed := strings.Cut(rest, "\n```")
	if !closed {
		return nil, fmt.Errorf("the block after %s does not end", quickstartMark)
	}
	var commands []string
	joined := ""
	for line := range strings.Lines(block + "\n") {
		line = strings.TrimRight(line, "\n")
		if part, continued := strings.CutSuffix(line, "\\"); continued {
			joined += part
			continue
		}
		line = strings.TrimSpace(joined + line)
		joined = ""
		if line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	if joined != "" {
		return nil, errors.New("the block's last line ends in a backslash")
	}
	if len(commands) == 0 {
		return nil, fmt.Errorf("the block after %s has no command", quickstartMark)
	}
	return commands, nil
}
