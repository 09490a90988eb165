package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rcclx.io/commgroup-operator/rcclx/compat"
)

// TestPageIsCurrent: the page in docs is what the tables say.
func TestPageIsCurrent(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, compat.Rules()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, b.Bytes()) {
		t.Error("docs/compatibility.md is out of date: run hack/generate.sh")
	}
}

func TestBarsInCells(t *testing.T) {
	var b bytes.Buffer
	rules := []compat.Rule{{Name: "N", Columns: []string{"a", "b"}, Rows: [][]string{{"x|y", "z"}}}}
	if err := write(&b, rules); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b.Bytes(), []byte("| x\\|y | z |\n")) {
		t.Errorf("got %s", b.String())
	}
}
