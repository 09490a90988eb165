package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Command is a command line that a page tells its readers to type.
type Command struct {
	// Page is its file's path from the repository's root.
	Page string
	// Words of the line behind the program's name, without remarks, pipes and redirections.
	Words []string
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	// shellEnd is where a line goes on with something else: a remark, a pipe, a redirection, the next command.
	shellEnd = regexp.MustCompile(`\s#|\||[;&<>]|\$\(`)
)

// Commands are the lines of the repository's pages that begin with the program, in blocks and between backticks; what
// only names the program is none.
func Commands(t *testing.T, program string) []Command {
	t.Helper()
	var out []Command
	add := func(page, line string) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		rest, ok := strings.CutPrefix(line, program+" ")
		if !ok {
			return
		}
		if end := shellEnd.FindStringIndex(rest); end != nil {
			rest = rest[:end[0]]
		}
		if words := strings.Fields(rest); len(words) > 0 {
			out = append(out, Command{page, words})
		}
	}
	pages := []string{filepath.Join(Root(), "README.md")}
	err := filepath.WalkDir(filepath.Join(Root(), "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		relative, err := filepath.Rel(Root(), page)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
			switch {
			case strings.HasPrefix(strings.TrimSpace(line), "```"):
				fenced = !fenced
			case fenced:
				add(filepath.ToSlash(relative), line)
			default:
				for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
					add(filepath.ToSlash(relative), m[1])
				}
			}
		}
	}
	return out
}
