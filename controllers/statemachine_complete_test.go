package controllers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/controllers/commgroup"
)

// The table's lists are held complete against the code: a new type of condition, phase, part of the group's stage,
// trigger, verdict or watch that the table does not know fails here.

// constantsOf gives the string constants of the package whose type has the name, or whose own name begins with the
// prefix.
func constantsOf(t *testing.T, folder, kind, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range parsed(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				typed, _ := spec.Type.(*ast.Ident)
				if i >= len(spec.Values) || kind != "" && (typed == nil || typed.Name != kind) ||
					!strings.HasPrefix(name.Name, prefix) {
					continue
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					value, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					out[name.Name] = value
				}
			}
			return true
		})
	}
	if len(out) == 0 {
		t.Fatalf("no constants %s%s in %s: the test reads the wrong place", kind, prefix, folder)
	}
	return out
}

// parsed are the files of a package, tests left out.
func parsed(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, file)
	}
	return out
}

// TestConditionTypesAreThoseOfTheAPI: the controller sets each type of condition that the API has, and no other.
func TestConditionTypesAreThoseOfTheAPI(t *testing.T) {
	api := constantsOf(t, "../api/v1alpha1", "", "Condition")
	if got, want := slices.Sorted(slices.Values(commgroup.ConditionTypes)),
		slices.Sorted(maps.Values(api)); !slices.Equal(got, want) {
		t.Errorf("conditionTypes has %v, the API has %v", got, want)
	}
}

// makers are the functions that make a controller.
func makers(t *testing.T) []ast.Node {
	t.Helper()
	var out []ast.Node
	for _, file := range parsed(t, ".") {
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok && name.Name == "NewControllerManagedBy" {
					out = append(out, d)
				}
				return true
			})
		}
	}
	return out
}

// watched are the kinds of objects whose changes wake the manager.
func watched(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, function := range makers(t) {
		ast.Inspect(function, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"For", "Owns", "Watches", "WatchesRawSource", "WatchesMetadata"},
				selector.Sel.Name) {
				return true
			}
			kind := ""
			if pointer, ok := call.Args[0].(*ast.UnaryExpr); ok && pointer.Op == token.AND {
				if literal, ok := pointer.X.(*ast.CompositeLit); ok {
					if of, ok := literal.Type.(*ast.SelectorExpr); ok {
						kind = of.Sel.Name
					}
				}
			}
			if kind == "" {
				t.Errorf("%s is called with what this test cannot read", selector.Sel.Name)
			}
			out[kind] = true
			return true
		})
	}
	return out
}

// TestEventsAreThoseOfTheWatches: the table and the random histories have an event of each kind of objects that the
// manager watches, and of no other.
func TestEventsAreThoseOfTheWatches(t *testing.T) {
	kinds := watched(t)
	if len(kinds) < 6 {
		t.Fatalf("found only %v: the test reads the wrong place", kinds)
	}
	table := map[string]bool{}
	for name, event := range tableEvents {
		if table[event.of] = true; event.of != viaTime && event.of != viaRead && !kinds[event.of] {
			t.Errorf("event %s is of a %s, which nobody watches", name, event.of)
		}
	}
	for kind := range kinds {
		if !table[kind] {
			t.Errorf("the table has no event of a %s, which is watched", kind)
		}
		if !slices.Contains(happenings, kind) {
			t.Errorf("in random histories nothing happens to a %s, which is watched", kind)
		}
	}
}

// check: over all cells each phase, part of the stage, trigger and verdict was there, and each status of each condition
// that can be.
func (seen *tableSeen) check(t *testing.T) {
	t.Helper()
	for _, list := range []struct {
		what, folder, kind, prefix string
		seen                       map[string]bool
	}{
		{"phase of a run", "../api/v1alpha1", "RunPhase", "", seen.phases},
		{"part of the group's stage", "../api/v1alpha1", "RunStage", "", seen.stages},
		{"trigger", "../internal/state", "", "Trigger", seen.triggers},
		{"verdict", "../api/v1alpha1", "Verdict", "", seen.verdicts},
	} {
		for name, value := range constantsOf(t, list.folder, list.kind, list.prefix) {
			if !list.seen[value] {
				t.Errorf("no cell of the table comes to %s %s (%s)", list.what, value, name)
			}
		}
	}
	for _, kind := range commgroup.ConditionTypes {
		for _, status := range []string{"True", "False", "Unknown"} {
			if neverUnknown := kind == cAccepted || kind == cRunning ||
				kind == cPublished; !seen.statuses[kind][status] && (status != "Unknown" || !neverUnknown) {
				t.Errorf("in no cell is %s %s, but for reads that fail", kind, status)
			}
		}
	}
}
