package preflight

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx/compat"
)

// declaredNames are the string constants of names.go.
func declaredNames(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil || text != v.Names[0].Name {
				t.Errorf("constant %s is %q (%v)", v.Names[0].Name, text, err)
			}
			names = append(names, text)
		}
	}
	return names
}

// TestEveryNameIsKnown: every constant has an entry with all its parts, a case in TestPreconditions, and a page that says
// what to do.
func TestEveryNameIsKnown(t *testing.T) {
	declared := declaredNames(t)
	if len(declared) != len(Names()) || len(declared) < 15 {
		t.Errorf("%d constants, %d entries", len(declared), len(Names()))
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "preconditions.md"))
	if err != nil {
		t.Fatal(err)
	}
	cased := map[string]bool{}
	for _, c := range cases {
		cased[c.name] = true
	}
	for _, name := range declared {
		p, ok := table[name]
		if !ok || p.Holds == "" || p.Otherwise == "" || p.Source == "" || p.Next == "" {
			t.Errorf("%s: entry %+v", name, p)
		}
		if !cased[name] {
			t.Errorf("%s has no case in TestPreconditions", name)
		}
		_, section, found := strings.Cut(string(page), "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		for _, want := range []string{p.Holds, p.Otherwise, p.Next} {
			if !found || !strings.Contains(section, want) {
				t.Errorf("docs/preconditions.md, section %s lacks %q", name, want)
			}
		}
	}
}

// TestScratchReclaimNamesTheTable: the precondition's text has the numbers that are applied.
func TestScratchReclaimNamesTheTable(t *testing.T) {
	for _, target := range []string{"gfx942", "gfx950"} {
		least, ruled := compat.ScratchFirmware(target)
		if want := fmt.Sprintf("%d (%s)", least, target); !ruled || !strings.Contains(table[ScratchReclaim].Holds, want) {
			t.Errorf("%q lacks %q", table[ScratchReclaim].Holds, want)
		}
	}
	if code := compat.ScratchRuntimeCode; !strings.Contains(table[ScratchReclaim].Holds, fmt.Sprintf("%d.%d.%d", code/10_000_000, code/100_000%100, code%100_000)) {
		t.Errorf("%q lacks the runtime of %d", table[ScratchReclaim].Holds, code)
	}
}
