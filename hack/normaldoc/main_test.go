package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TestPage: each mark is on the page with its number, in the table of its kind, and the committed page is the generated
// one.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	for _, p := range reference.Profiles() {
		if strings.Count(b.String(), "`"+p.Name+"`") != 1 {
			t.Errorf("%s is not once on the page", p.Name)
		}
	}
	if got := factors(); !strings.Contains(got, "| AllReduce | 1.000 | 1.750 | 1.875 | 1.969 |") ||
		!strings.Contains(got, "| Broadcast | 1.000 | 1.000 |") {
		t.Errorf("factors are\n%s", got)
	}
	committed, err := os.ReadFile("../../docs/normal-numbers.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, b.Bytes()) {
		t.Error("docs/normal-numbers.md is out of date: run hack/generate.sh")
	}
}

// TestSnippetIsPartOfACommGroup: what the page tells to patch in has no field that the API does not know, and asks for
// what the marks that decide are of.
func TestSnippetIsPartOfACommGroup(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(b.String(), "```yaml\n")
	snippet, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page has no yaml block")
	}
	var group v1alpha1.CommGroup
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(snippet, "\n   ", "\n")[len("   "):]),
		&group); err != nil {
		t.Fatal(err)
	}
	if bench := group.Spec.Benchmark; bench.MaxSizeBytes != 8<<30 || len(bench.Datatypes) != 1 ||
		bench.Datatypes[0] != v1alpha1.Float32 || group.Spec.Run.StepDeadlineSeconds == 0 {
		t.Errorf("the page's block asks for %+v, expected Float32 up to 8 GiB, with a deadline that fits", bench)
	}
}
