package preflight

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/audience"
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

// TestEveryNameIsKnown: every constant has an entry with all its parts, a case in TestPreconditions, and a page that
// says what to do.
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
		if !ok || p.Holds == "" || p.Otherwise == "" || p.Source == "" || p.Next.Pod == "" || p.Next.Shell == "" {
			t.Errorf("%s: entry %+v", name, p)
		}
		if !cased[name] {
			t.Errorf("%s has no case in TestPreconditions", name)
		}
		_, section, found := strings.Cut(string(page), "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		for _, want := range []string{p.Holds, p.Otherwise, p.Next.Pod, p.Next.Shell} {
			if !found || !strings.Contains(section, want) {
				t.Errorf("docs/preconditions.md, section %s lacks %q", name, want)
			}
		}
	}
}

// TestAdviceSuitsItsAudience: who has no Kubernetes is told of no field and no pod, and who has is told of no flag.
func TestAdviceSuitsItsAudience(t *testing.T) {
	foreign := map[audience.Audience]*regexp.Regexp{
		audience.Shell: regexp.MustCompile(
			`spec\.|runtime\.pod|benchmark\.|\b[Pp]ods?\b|image|device plugin|CommGroup`),
		audience.Pod: regexp.MustCompile(`--(library|runtime|ranks|sizes|devices)\b|ulimit -l`),
	}
	for _, name := range Names() {
		for who, words := range foreign {
			if text := table[name].Next.For(who); words.MatchString(text) {
				t.Errorf("%s advises %q: %q", name, who, text)
			}
		}
	}
}

// TestScratchReclaimNamesTheTable: the precondition's text has the numbers that are applied.
func TestScratchReclaimNamesTheTable(t *testing.T) {
	for _, target := range []string{"gfx942", "gfx950"} {
		least, ruled := compat.ScratchFirmware(target)
		if want := fmt.Sprintf("%d (%s)", least, target); !ruled ||
			!strings.Contains(table[ScratchReclaim].Holds, want) {
			t.Errorf("%q lacks %q", table[ScratchReclaim].Holds, want)
		}
	}
	if code := compat.ScratchRuntimeCode; !strings.Contains(table[ScratchReclaim].Holds,
		fmt.Sprintf("%d.%d.%d", code/10_000_000, code/100_000%100, code%100_000)) {
		t.Errorf("%q lacks the runtime of %d", table[ScratchReclaim].Holds, code)
	}
}
