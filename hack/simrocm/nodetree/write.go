package nodetree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// simrocmConf marks a tree as simulated.
const simrocmConf = "simrocm.conf"

// Write writes the node's tree into dir, which is made if missing. A tree that is there already is replaced: sys, proc,
// opt and simrocm.conf below dir are removed first, other files stay. Errors name the file.
func Write(dir string, n Node) error {
	t, err := Generate(n)
	if err != nil {
		return err
	}
	return t.Write(dir)
}

// Write writes the tree into dir, as the function Write does.
func (t *Tree) Write(dir string) error {
	parts := []string{"sys", "proc", "opt"}
	if _, err := os.Stat(filepath.Join(dir, simrocmConf)); errors.Is(err, fs.ErrNotExist) {
		for _, part := range parts {
			// A tree without the mark of simulation may be a real root.
			if _, err := os.Lstat(filepath.Join(dir, part)); err == nil {
				return fmt.Errorf("%s has %s but no %s, so it is not a simulated node; choose another directory",
					dir, part, simrocmConf)
			}
		}
	}
	for _, part := range parts {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The mark comes first: it says that the rest is ours, should this be cut short.
	if err := os.WriteFile(filepath.Join(dir, simrocmConf), []byte(t.files[simrocmConf]), 0o644); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.dirs)) { // a directory sorts before what is in it
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for name, text := range t.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, target := range t.links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
