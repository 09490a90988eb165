package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestEveryReasonIsExplained keeps docs/reasons.md complete: a reason that a person meets in a condition has a row
// there.
func TestEveryReasonIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		found++
		if word := strings.Trim(literal.Value, `"`); !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("docs/reasons.md does not explain %s (constant %s)", word, spec.Names[0].Name)
		}
		return true
	})
	if found < 50 {
		t.Fatalf("found only %d constants in conditions.go: the test reads the wrong file", found)
	}
}

func TestCommTaskName(t *testing.T) {
	long := strings.Repeat("n", 250)
	for _, tc := range []struct{ group, node, want string }{
		{"pool", "node-1", "pool.node-1"},
	} {
		if got := CommTaskName(tc.group, tc.node); got != tc.want {
			t.Errorf("CommTaskName(%q, %q) = %q, want %q", tc.group, tc.node, got, tc.want)
		}
	}
	// Dots in either name must not make two pairs one.
	seen := map[string][2]string{}
	parts := []string{"a", "b", "a.b", "b.a", "a.b.a", "b.a.b", "a.a", "b.b", "a.a.b", "b.b.a", "a-b", "a-b.a"}
	for _, group := range append(parts, long, "a."+long) {
		for _, node := range append(parts, long, "a."+long) {
			got := CommTaskName(group, node)
			if other, ok := seen[got]; ok {
				t.Errorf("%q and %q share the name %q", other, [2]string{group, node}, got)
			}
			seen[got] = [2]string{group, node}
			if len(got) > 200 {
				t.Errorf("%q has %d characters, want at most 200", got, len(got))
			}
		}
	}
	if got := CommTaskName("pool", long); len(got) > 253 || got == CommTaskName("pool", long+"m") {
		t.Errorf("long names must stay distinct and within 253 characters, got %q", got)
	}
	if got := LabelValue(long); len(got) > 63 {
		t.Errorf("LabelValue gives %d characters, want at most 63", len(got))
	}
}
