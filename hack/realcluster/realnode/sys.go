package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// sysDepth is down to which folder the tree's /sys and the machine's are merged: class/drm is one or the other.
const sysDepth = 2

// sysOp is one step that adds a part of the machine's /sys beside the simulated ones.
type sysOp struct {
	Path string // relative to /sys
	// Link is the target of a link to make; empty means that the machine's folder or file is shown there.
	Link string
	// File says that it is no folder.
	File bool
}

// planSys says what of the machine's /sys a node shows beside its tree: all that the tree has no part of, down to a
// depth. Of what both have, the simulated one is shown alone, so that no file of the machine's own devices mixes with
// it.
func planSys(tree, machine fs.FS) ([]sysOp, error) {
	var ops []sysOp
	return ops, planDir(tree, machine, ".", 0, &ops)
}

func planDir(tree, machine fs.FS, dir string, depth int, ops *[]sysOp) error {
	entries, err := fs.ReadDir(machine, dir)
	if err != nil {
		return fmt.Errorf("the machine's /sys/%s: %w", dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		has, err := fs.Stat(tree, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			op := sysOp{Path: name, File: !e.IsDir()}
			if e.Type()&fs.ModeSymlink != 0 {
				if op.Link, err = fs.ReadLink(machine, name); err != nil {
					return fmt.Errorf("the machine's /sys/%s: %w", name, err)
				}
			}
			*ops = append(*ops, op)
		case err != nil:
			return fmt.Errorf("the node's /sys/%s: %w", name, err)
		case has.IsDir() && e.IsDir() && depth+1 < sysDepth:
			if err := planDir(tree, machine, name, depth+1, ops); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareSys makes the links and the mount points of a plan in the node's tree. Parts from an earlier start are taken
// as they are. What is returned is to be mounted.
func prepareSys(tree string, ops []sysOp) (mounts []string, err error) {
	for _, op := range ops {
		at := filepath.Join(tree, op.Path)
		switch {
		case op.Link != "":
			err = os.Symlink(op.Link, at)
		case op.File:
			err = os.WriteFile(at, nil, 0o444)
			mounts = append(mounts, op.Path)
		default:
			err = os.Mkdir(at, 0o755)
			mounts = append(mounts, op.Path)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	slices.Sort(mounts)
	return mounts, nil
}
