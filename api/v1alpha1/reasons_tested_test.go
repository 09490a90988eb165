package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestEveryReasonIsInATest: a reason that no test knows may come or stay away unseen.
func TestEveryReasonIsInATest(t *testing.T) {
	words := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "reasons_"):
			return nil
		}
		text, err := os.ReadFile(path)
		for word := range strings.FieldsFuncSeq(string(text), func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			words[word] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons++
		name := spec.Names[0].Name
		if !words[name] && !words[value] && !words["Code"+value] { // the last as agents name it
			t.Errorf("%s (%s) is in no test", name, value)
		}
		return true
	})
	if reasons < 50 {
		t.Fatalf("found only %d reasons: the test reads the wrong file", reasons)
	}
}
