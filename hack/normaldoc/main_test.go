package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TestPage: each mark is on the page with its number, in the table of its kind, and the committed page is the generated one.
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
	if got := factors(); !strings.Contains(got, "| AllReduce | 1.000 | 1.750 | 1.875 | 1.969 |") || !strings.Contains(got, "| Broadcast | 1.000 | 1.000 |") {
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
