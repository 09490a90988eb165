package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What is committed is what the generator writes.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Errorf("%v: run make generate", err)
		} else if string(got) != string(want) {
			t.Errorf("%s is out of date: run make generate", name)
		}
	}
}

func TestRunWritesAllFiles(t *testing.T) {
	out := t.TempDir()
	if err := run("../..", out); err != nil {
		t.Fatal(err)
	}
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
}
