package chart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden renders anew")

// leftOut are templates whose content is made, and tested, elsewhere: of these the objects' names alone are held.
var leftOut = map[string]bool{"crd-commgroups.yaml": true, "crd-commtasks.yaml": true, "crd-commnodes.yaml": true,
	"dashboards.yaml": true, "prometheusrule.yaml": true}

// TestGolden holds what the chart renders for the main ways to install, so that no change comes about unseen.
func TestGolden(t *testing.T) {
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, d := range documents(t, rendered) {
				text := d.text
				if leftOut[d.source] {
					text = fmt.Sprintf("# Source: %s: %s", d.source, d.name())
				}
				got.WriteString("---\n" + text + "\n")
			}
			path := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("%s differs from what the chart renders now, from this line on:\n"+
					"%s\nIf that is meant: go test ./test/chart -run TestGolden -update",
					path, firstDifference(got.String(), string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d: got %q, expected %q", i+1, a, b)
		}
	}
	return "none"
}

// TestLint: Helm's own check finds nothing.
func TestLint(t *testing.T) {
	for name := range valueSets(t) {
		if out, err := helm(t, "lint", "--strict", chartPath(), "--namespace", namespace,
			"--values", filepath.Join("testdata", "values", name+".yaml")); err != nil &&
			!strings.Contains(out, "--api-versions "+prometheusAPI) { // lint has no such flag
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestNotes: the next steps name what there is.
func TestNotes(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"{}", "name spec.runtime.image"},
		{"defaultRuntimeImage: r", "kubectl -n default get commgroup first -w"},
		{"namespaces: [ml]", "kubectl -n ml get commgroup first -w"},
		{"{defaultRuntimeImage: r, sample: {enabled: true, namespace: ml}}", "kubectl -n ml get commgroup sample"},
		{"{defaultRuntimeImage: r, namespaces: [ml], sample: {enabled: true}}", "kubectl commgroup wait sample -n ml"},
		{"{defaultRuntimeImage: r, sample: {enabled: true}}", "kubectl -n default get commgroup sample"},
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(c.values), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := helm(t, "install", release, chartPath(), "--namespace", namespace,
			"--dry-run=client", "--values", file)
		if err != nil {
			t.Fatal(err)
		}
		_, notes, ok := strings.Cut(out, "NOTES:")
		if !ok || !strings.Contains(notes, c.want) || strings.Contains(notes, "<no value>") {
			t.Errorf("%s: the notes lack %q:\n%s", c.values, c.want, notes)
		}
	}
}
