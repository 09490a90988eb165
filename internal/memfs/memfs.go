// Package memfs is a host's files in memory, for tests of what reads them.
package memfs

import (
	"strings"
	"syscall"
)

// Tree has a text for each file. A value "!EPERM" or the like is that error on reading the file, and on a folder's name
// on listing it. A link's text is its target.
type Tree map[string]string

var errorOf = map[string]error{"!EPERM": syscall.EPERM, "!EINVAL": syscall.EINVAL, "!EBUSY": syscall.EBUSY,
	"!EIO": syscall.EIO, "!ENODEV": syscall.ENODEV}

// ReadFile gives the file's text, or the error that stands for it.
func (t Tree) ReadFile(name string) ([]byte, error) {
	text, ok := t[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	if err := errorOf[text]; err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// ReadDir lists what is right below a folder.
func (t Tree) ReadDir(name string) ([]string, error) {
	if err := errorOf[t[name]]; err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var names []string
	for file := range t {
		if rest, ok := strings.CutPrefix(file, name+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			if !seen[first] {
				seen[first] = true
				names = append(names, first)
			}
		}
	}
	if names == nil {
		return nil, syscall.ENOENT
	}
	return names, nil
}

// ReadLink gives the link's target.
func (t Tree) ReadLink(name string) (string, error) {
	if target, ok := t[name]; ok {
		return target, nil
	}
	return "", syscall.ENOENT
}
