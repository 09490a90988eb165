package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/testenv"
)

func TestImages(t *testing.T) {
	for name, test := range map[string]struct {
		manifests string
		want      []string
	}{
		"all kinds of containers": {`
spec: {template: {spec: {
  initContainers: [{image: "b:1"}], containers: [{image: "registry.example:5000/a@sha256:0"}, {image: "b:1"}],
  ephemeralContainers: [{image: d}]}}}`, []string{"b:1", "d", "registry.example:5000/a@sha256:0"}},
		"arguments": {"args: [--agent-image=a:1, --default-runtime-image, b:2, --image-pull-policy=Always, -v]",
			[]string{"a:1", "b:2"}},
		"a variable": {"env: [{name: AGENT_IMAGE, value: a:1}, {name: OTHER, value: c}, {name: POD_IMAGE, " +
			"valueFrom: {x: y}}]", []string{"a:1"}},
		"several documents":    {"image: a\n---\n# nothing\n---\nspec: {runtime: {image: b}}\n", []string{"a", "b"}},
		"a schema of an image": {"properties: {image: {type: string}}", nil},
		"none":                 {"image: ''\nargs: [--agent-image]", nil},
	} {
		got, err := images(strings.NewReader(test.manifests))
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, expected %v", name, got, err, test.want)
		}
	}
	if _, err := images(strings.NewReader("a: [")); err == nil {
		t.Error("text that is no YAML is no error")
	}
	if err := run(strings.NewReader("kind: Role"), &bytes.Buffer{}); err == nil {
		t.Error("manifests without any image are no error: an empty list would pass for nothing to mirror")
	}
}

func FuzzImages(f *testing.F) {
	f.Add("spec: {containers: [{image: a}], args: [--x-image=b]}")
	f.Add("a\n---\n- image: [1, 2]\n")
	f.Fuzz(func(t *testing.T, manifests string) {
		found, err := images(strings.NewReader(manifests))
		if err == nil && (!slices.IsSorted(found) || slices.Contains(found, "")) {
			t.Errorf("%q: %q is not a sorted list of names", manifests, found)
		}
	})
}

// list is what list.sh prints of the chart.
func list(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(), "hack/images/list.sh"), arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list.sh %v: %v\n%s", arguments, err, stderr.String())
	}
	return strings.Fields(string(out))
}

// TestMirror: with a site's registry, digests or a base of its own, no image of the chart comes from anywhere else,
// whatever else is switched on.
func TestMirror(t *testing.T) {
	const mirror = "registry.example:5000/mirror"
	digest := "sha256:" + strings.Repeat("0", 64)
	everything := []string{
		"--api-versions=monitoring.coreos.com/v1", "--set=gating.enabled=true,privilegedNamespaces={ml}," +
			"sample.enabled=true,openshift.enabled=true,openshift.runNamespaces={ml}",
		"--set=networkPolicy.enabled=true,networkPolicy.runNamespaces={ml},prometheusRules.enabled=true," +
			"prometheusRules.runbookBaseURL=https://pages.example",
		"--set=metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true,metrics.bearerTokenSecret.name=x",
		"--set=sample.spec.runtime.image=" + mirror + "/rocm:7.0",
	}
	for name, test := range map[string]struct{ arguments, want []string }{
		"registry": {append([]string{"--set=global.imageRegistry=" + mirror,
			"--set=defaultRuntimeImage=" + mirror + "/rocm:7.0"}, everything...),
			[]string{mirror + "/commgroup-agent:dev", mirror + "/commgroup-manager:dev", mirror + "/rocm:7.0"}},
		"digests": {append([]string{"--set=global.imageRegistry=" + mirror, "--set=manager.image.digest=" + digest,
			"--set=agent.image.digest=" + digest}, everything...), []string{mirror + "/commgroup-agent@" + digest,
			mirror + "/commgroup-manager@" + digest, mirror + "/rocm:7.0"}},
		"a registry for each": {[]string{"--set=global.imageRegistry=unused.example",
			"--set=manager.image.registry=a.example,agent.image.registry=b.example",
			"--set=agent.image.repository=c/agent,agent.image.tag=v1"},
			[]string{"a.example/commgroup-manager:dev", "b.example/c/agent:v1"}},
	} {
		if got := list(t, test.arguments...); !slices.Equal(got, test.want) {
			t.Errorf("%s: the chart names %v, expected %v", name, got, test.want)
		}
	}
}

// TestList: images.txt, which lies in the chart for those who mirror without this repository, is what the chart names.
func TestList(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(testenv.Root(), "charts/commgroup-operator/images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t); !slices.Equal(strings.Fields(string(file)), got) {
		t.Errorf("images.txt has %q, the chart names %v: run make generate", file, got)
	}
}

// TestCode: the programs have no image and no address of the internet in them, so every image is the chart's or the
// CommGroup's, and nothing is downloaded at run time.
func TestCode(t *testing.T) {
	files := 0
	for _, folder := range []string{"agent", "api", "cmd/agent", "cmd/manager", "cmd/rank", "controllers",
		"internal", "rcclx"} {
		err := filepath.WalkDir(filepath.Join(testenv.Root(), folder),
			func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
					strings.HasSuffix(path, "_test.go") {
					return err
				}
				files++
				set := token.NewFileSet()
				file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if what := outside(n); what != "" {
						t.Errorf("%s: %s", set.Position(n.Pos()), what)
					}
					return true
				})
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Fatalf("only %d files were read: the folders have moved", files)
	}
}

// outside says what in a piece of Go code reaches for something that no value of the chart names.
func outside(n ast.Node) string {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		key, ok := n.Key.(*ast.Ident)
		if literal, fixed := n.Value.(*ast.BasicLit); ok && fixed && key.Name == "Image" && literal.Value != `""` {
			return "an image that nobody can override: " + literal.Value
		}
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		if n.Kind == token.STRING && err == nil &&
			(strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")) {
			return "an address that a closed site does not have: " + n.Value
		}
	}
	return ""
}

func TestOutside(t *testing.T) {
	for code, want := range map[string]bool{
		`T{Image: "busybox:1"}`:       true,
		`T{Image: cfg.Image}`:         false,
		`get("https://get.example/")`: true,
		`T{Name: "busybox"}`:          false,
	} {
		expression, err := parser.ParseExpr(code)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		ast.Inspect(expression, func(n ast.Node) bool {
			found = found || n != nil && outside(n) != ""
			return true
		})
		if found != want {
			t.Errorf("%s: found %v, expected %v", code, found, want)
		}
	}
}
