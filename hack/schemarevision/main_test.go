package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const crd = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.23.0
  name: things.rcclx.io
spec:
  group: rcclx.io
  versions:
  - name: v1alpha1
    schema:
      openAPIV3Schema:
        description: A thing.
        properties:
          description:
            description: What it is.
            type: string
          size:
            minimum: 1
            type: integer
        type: object
`

// generate is one run of hack/generate.sh as far as this command is concerned: the CRD comes fresh from controller-gen.
func generate(t *testing.T, dir, text string) (state, string) {
	t.Helper()
	path, constants := filepath.Join(dir, "crds", "things.yaml"), filepath.Join(dir, "schema.go")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(filepath.Dir(path), constants, constants); err != nil {
		t.Fatal(err)
	}
	s, err := readState(constants)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(out)
}

func TestCount(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		name, text string
		want       int
	}{
		{"first", crd, 1},
		{"the same again", crd, 1},
		{"other words", strings.Replace(crd, "A thing.", "A very good thing.", 1), 1},
		{"other order", strings.Replace(crd, "            minimum: 1\n            type: integer\n",
			"            type: integer\n            minimum: 1\n", 1), 1},
		{"other controller-gen", strings.Replace(crd, "v0.23.0", "v0.24.0", 1), 1},
		{"a limit changes", strings.Replace(crd, "minimum: 1", "minimum: 2", 1), 2},
		{"a field goes that is called description", strings.Replace(crd,
			"          description:\n            description: What it is.\n            type: string\n", "", 1), 3},
		{"the first one comes back", crd, 4},
		{"and stays", crd, 4},
	} {
		s, out := generate(t, dir, step.text)
		if s.revision != step.want {
			t.Errorf("%s: revision %d, expected %d", step.name, s.revision, step.want)
		}
		line := "    rcclx.io/schema-revision: \"" + string(rune('0'+step.want)) + "\"\n"
		if got := strings.Replace(out, line, "", 1); got != step.text || !strings.Contains(out, line) {
			t.Errorf("%s: the CRD is not the one from controller-gen and this line: %s\n%s", step.name, line, out)
		}
	}
}

func TestRefused(t *testing.T) {
	good := string(constants(state{revision: 7, hash: strings.Repeat("a", 64)}))
	if s, err := parseState([]byte(good)); err != nil || s.revision != 7 {
		t.Fatalf("what constants writes reads as %+v, %v", s, err)
	}
	for name, text := range map[string]string{
		"empty":       "",
		"zero":        strings.Replace(good, "= 7", "= 0", 1),
		"too large":   strings.Replace(good, "= 7", "= 99999999999999999999", 1),
		"no hash":     strings.Replace(good, "aaaa", "zzzz", 1),
		"after merge": good + "\n=======\n" + good,
	} {
		if s, err := parseState([]byte(text)); err == nil {
			t.Errorf("%s: read as %+v, expected an error", name, s)
		}
	}
	for name, text := range map[string]string{
		"no annotations": strings.Replace(crd,
			"  annotations:\n    controller-gen.kubebuilder.io/version: v0.23.0\n", "", 1),
		"annotated": strings.Replace(crd, "v0.23.0\n", "v0.23.0\n    rcclx.io/schema-revision: \"3\"\n", 1),
	} {
		if _, err := annotate([]byte(text), 1); err == nil {
			t.Errorf("%s: annotated, expected an error", name)
		}
	}
	for name, text := range map[string]string{"no YAML": "\t{",
		"another object": "metadata: {name: x}\n", "empty": ""} {
		if _, err := schema([]byte(text)); err == nil {
			t.Errorf("%s: has a schema, expected an error", name)
		}
	}
	if err := run(t.TempDir(), "none", "none"); err == nil {
		t.Error("a folder without CRDs is no error")
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(constants(state{revision: 1, hash: strings.Repeat("0", 64)}))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseState(text); err == nil && (s.revision < 1 || len(s.hash) != 64) {
			t.Errorf("read as %+v without an error", s)
		}
	})
}
