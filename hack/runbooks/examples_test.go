package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// verb is one of fmt's, at which a format's text is cut.
var verb = regexp.MustCompile(`%[-+# 0]*[\d.*]*[a-zA-Z%]`)

const (
	// minFixedBytes of a format's own text, and minPieceBytes of its longest piece, keep it from being found by chance.
	minFixedBytes, minPieceBytes = 14, 10
	// minCoveredPercent of an example are texts of the code; the rest are names, figures, and others' words.
	minCoveredPercent = 12
)

// format is a text of the code, cut at its verbs.
type format []string

// formats are all texts of the code that writes messages; what is joined by + is one.
func formats(t *testing.T) []format {
	t.Helper()
	set := map[string]bool{}
	for _, folder := range []string{"agent", "api", "controllers", "internal", "rcclx"} {
		err := filepath.WalkDir(filepath.Join(testenv.Root(), folder),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				source, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if e, ok := n.(ast.Expr); ok {
						if text, ok := literal(e); ok {
							set[text] = true
							return false
						}
					}
					return true
				})
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	var out []format
	for _, text := range slices.Sorted(maps.Keys(set)) {
		out = append(out, verb.Split(text, -1))
	}
	return out
}

// literal is a string as it stands in the code, also in parts.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		right, okToo := literal(e.Y)
		return left + right, ok && okToo && e.Op == token.ADD
	}
	return "", false
}

// specific says whether the format has text enough not to be found by chance.
func (f format) specific() bool {
	fixed, longest := 0, 0
	for _, piece := range f {
		fixed, longest = fixed+len(piece), max(longest, len(piece))
	}
	return fixed >= minFixedBytes && longest >= minPieceBytes &&
		slices.ContainsFunc(f, func(piece string) bool { return strings.Contains(strings.TrimSpace(piece), " ") })
}

// mark marks what the format says of a text, where all of it stands there in its order; a message may end before the
// last full stop.
func (f format) mark(text string, hit []bool) bool {
	var spans [][2]int
	from := 0
	for i, piece := range f {
		if i == 0 {
			piece = strings.TrimLeft(piece, " ")
		}
		if i == len(f)-1 {
			piece = strings.TrimRight(piece, " .")
		}
		at := strings.Index(text[from:], piece)
		if at < 0 {
			return false
		}
		spans = append(spans, [2]int{from + at, from + at + len(piece)})
		from += at + len(piece)
	}
	for _, s := range spans {
		for i := s[0]; i < s[1]; i++ {
			hit[i] = true
		}
	}
	return true
}

// explained says how many percent of a text the code's own texts are; zero where none of them stands in it whole.
func explained(text string, all []format) int {
	hit := make([]bool, len(text))
	n := 0
	for _, f := range all {
		if f.specific() && f.mark(text, hit) {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	marked := 0
	for _, h := range hit {
		if h {
			marked++
		}
	}
	return marked * 100 / len(text)
}

// TestExamplesAreTheCodes: an example of a message is what the code writes, with names and figures put in, so that a
// reader finds it by search; a message that is worded again has to take its example along.
func TestExamplesAreTheCodes(t *testing.T) {
	all := formats(t)
	if len(all) < 1000 {
		t.Fatalf("found only %d texts in the code", len(all))
	}
	for text, want := range map[string]bool{
		"Something that nobody ever wrote into a message of any part of this.":                false,
		"3 nodes match and members.minMembers is 4: add nodes, or make minMembers lower.":     false,
		"3 nodes match and members.minMembers is 4: add or label nodes, or lower minMembers.": true,
	} {
		if got := explained(text, all) >= minCoveredPercent; got != want {
			t.Errorf("%q is taken for the code's: %v, expected %v", text, got, want)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		for _, seen := range words[reason].Seen {
			if percent := explained(seen, all); percent < minCoveredPercent {
				t.Errorf("%s: %d %% of this example are texts that the code has whole, expected at least %d %%. "+
					"Write it as the code does:\n%s", reason, percent, minCoveredPercent, seen)
			}
		}
	}
}
