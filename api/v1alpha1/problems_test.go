package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// constants gives each constant of a file by its name; one that is another's name has that one's value.
func constants(t *testing.T, file string, known map[string]string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			found[spec.Names[0].Name] = strings.Trim(value.Value, `"`)
		case *ast.Ident:
			found[spec.Names[0].Name] = known[value.Name]
		}
		return true
	})
	return found
}

// severitiesOf collects with which severity the agent's code states each problem, where a call says so by its name or
// by a constant; a severity in a variable is not seen.
func severitiesOf(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	see := func(code, severity string) {
		if severity == "" || code == "" {
			return
		}
		if found[code] == nil {
			found[code] = map[string]bool{}
		}
		found[code][severity] = true
	}
	ofAPI := func(e ast.Expr, prefix string) string {
		if s, ok := e.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, prefix) {
			return s.Sel.Name
		}
		return ""
	}
	severity := map[string]string{"error": SeverityError, "warn": SeverityWarning, "happened": SeverityWarning,
		"SeverityError": SeverityError, "SeverityWarning": SeverityWarning}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			code, level := "", ""
			switch n := n.(type) {
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok {
					if s.Sel.Name == "note" {
						return true // a line for the monitor's log: no problem of the facts
					}
					level = severity[s.Sel.Name]
				}
				for _, arg := range n.Args {
					if name := ofAPI(arg, "Problem"); name != "" {
						code = name
					} else if name := ofAPI(arg, "Severity"); name != "" {
						level = severity[name]
					}
				}
			case *ast.CompositeLit:
				for _, element := range n.Elts {
					field, ok := element.(*ast.KeyValueExpr)
					if !ok {
						continue
					}
					if name := ofAPI(field.Value, "Problem"); name != "" {
						code = name
					} else if name := ofAPI(field.Value, "Severity"); name != "" {
						level = severity[name]
					}
				}
			}
			see(code, level)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEveryProblemIsExplained holds the table of problem codes in docs/discovery.md against this package and the agent:
// each code has one row, with its reason, and with the severities that the agent gives it.
func TestEveryProblemIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/discovery.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Problem codes\n")
	if !found {
		t.Fatal("docs/discovery.md has no section Problem codes")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string][]string{}
	for _, line := range strings.Split(section, "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 5 || slices.Contains(cells, "") {
			t.Errorf("%q: want code, severity, reason, what was seen and the next step", line)
			continue
		}
		code := strings.Trim(cells[0], "`")
		if rows[code] != nil {
			t.Errorf("%s has two rows", code)
		}
		rows[code] = cells
	}
	codes := constants(t, "problems.go", constants(t, "conditions.go", nil))
	maps.DeleteFunc(codes, func(name, _ string) bool { return !strings.HasPrefix(name, "Problem") })
	if len(codes) < 40 {
		t.Fatalf("found only %d codes in problems.go: the test reads the wrong file", len(codes))
	}
	stated := severitiesOf(t, "../../agent")
	if len(stated) < 40 {
		t.Fatalf("found the severities of only %d codes in the agent: the test reads the wrong folder", len(stated))
	}
	for name, code := range codes {
		cells := rows[code]
		if cells == nil {
			t.Errorf("docs/discovery.md does not explain %q (constant %s)", code, name)
			continue
		}
		delete(rows, code)
		if want := "`" + ReasonOfProblem(code) + "`"; cells[2] != want {
			t.Errorf("%s: docs/discovery.md says reason %s, and it is %s", code, cells[2], want)
		}
		severities := strings.Split(cells[1], ", ")
		for _, severity := range severities {
			if severity != SeverityError && severity != SeverityWarning {
				t.Errorf("%s: severity %q is none", code, severity)
			}
		}
		for severity := range stated[name] {
			if !slices.Contains(severities, severity) {
				t.Errorf("%s: docs/discovery.md says %s, and the agent states it as %s, too", code, cells[1], severity)
			}
		}
	}
	for code := range rows {
		t.Errorf("docs/discovery.md explains %s, which problems.go does not have", code)
	}
}

func TestSubject(t *testing.T) {
	for want, p := range map[string]Problem{
		"":      {Message: "of the node"},
		"a":     {GPU: "a"},
		"a<->b": {GPU: "a", PeerGPU: "b"},
		"a b":   {GPUs: []string{"a", "b"}},
		"nic0":  {NIC: "nic0"},
		"sys":   {Path: "sys"},
	} {
		if got := p.Subject(); got != want {
			t.Errorf("%+v is about %q, want %q", p, got, want)
		}
	}
}
