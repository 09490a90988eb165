package nodetree

import (
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

// maxLinks bounds the symbolic links of one name, as the kernel does.
const maxLinks = 40

// Tree is a node's files in memory. Names are slash-separated and relative to the node's root. It can be read like a
// file system; symbolic links resolve inside it.
type Tree struct {
	files map[string]string
	links map[string]string          // target, relative to the link's directory as in sysfs
	dirs  map[string]map[string]bool // the names in each directory
}

func newTree() *Tree {
	return &Tree{files: map[string]string{}, links: map[string]string{}, dirs: map[string]map[string]bool{".": {}}}
}

// Generate makes the tree of a node in memory.
func Generate(n Node) (*Tree, error) {
	p, err := n.validate()
	if err != nil {
		return nil, err
	}
	w := &writer{Tree: newTree(), node: &n, product: p}
	w.all()
	return w.Tree, nil
}

// add enters a name into its directory, and that into its own.
func (t *Tree) add(name string) {
	for name != "." {
		dir := path.Dir(name)
		names := t.dirs[dir]
		if names == nil {
			names = map[string]bool{}
			t.dirs[dir] = names
		}
		base := path.Base(name)
		if names[base] {
			return
		}
		names[base] = true
		name = dir
	}
}

// Set makes a file, or replaces its text.
func (t *Tree) Set(name, text string) {
	t.files[name] = text
	t.add(name)
}

// Remove takes a file, a link or a directory with all below it away; a link's target stays.
func (t *Tree) Remove(name string) {
	for child := range t.dirs[name] {
		t.Remove(path.Join(name, child))
	}
	delete(t.files, name)
	delete(t.links, name)
	delete(t.dirs, name)
	delete(t.dirs[path.Dir(name)], path.Base(name))
}

// Files lists the files' names in order; links and directories are not among them.
func (t *Tree) Files() []string { return slices.Sorted(maps.Keys(t.files)) }

func (t *Tree) folder(name string) {
	t.add(name)
	if t.dirs[name] == nil {
		t.dirs[name] = map[string]bool{}
	}
}

// symlink makes name point at target, both relative to the root, by a relative link as in sysfs.
func (t *Tree) symlink(name, target string) {
	from, to := strings.Split(path.Dir(name), "/"), strings.Split(path.Clean(target), "/")
	same := 0
	for same < min(len(from), len(to)-1) && from[same] == to[same] {
		same++
	}
	t.links[name] = strings.Repeat("../", len(from)-same) + strings.Join(to[same:], "/")
	t.add(name)
}

// Resolve gives the real name behind the links of a name. ".." stays inside the tree.
func (t *Tree) Resolve(name string) (string, error) {
	if _, ok := t.files[name]; ok {
		return name, nil
	}
	rest := strings.Split(name, "/") // not cleaned: ".." behind a link leads up from the link's target
	done := "."
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case ".", "":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		target, isLink := t.links[next]
		if !isLink {
			if _, isFile := t.files[next]; isFile && len(rest) > 0 {
				return "", syscall.ENOTDIR
			}
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// ReadFile gives a file's content.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	found, err := t.Resolve(name)
	if err != nil {
		return nil, err
	}
	text, ok := t.files[found]
	switch {
	case ok:
		return []byte(text), nil
	case t.dirs[found] != nil:
		return nil, syscall.EISDIR
	}
	return nil, syscall.ENOENT
}

// ReadDir gives the names in a directory, in order.
func (t *Tree) ReadDir(name string) ([]string, error) {
	found, err := t.Resolve(name)
	if err != nil {
		return nil, err
	}
	names, ok := t.dirs[found]
	if !ok {
		if _, isFile := t.files[found]; isFile {
			return nil, syscall.ENOTDIR
		}
		return nil, syscall.ENOENT
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ReadLink gives the target of the link that the name's last element is.
func (t *Tree) ReadLink(name string) (string, error) {
	dir, err := t.Resolve(path.Dir(name))
	if err != nil {
		return "", err
	}
	found := path.Join(dir, path.Base(name))
	if target, ok := t.links[found]; ok {
		return target, nil
	}
	if _, ok := t.files[found]; ok || t.dirs[found] != nil {
		return "", syscall.EINVAL
	}
	return "", syscall.ENOENT
}
