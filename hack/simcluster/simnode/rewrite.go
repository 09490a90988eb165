package simnode

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Mount maps a path that a container sees to the real one.
type Mount struct{ Path, Real string }

// Rewriter replaces paths of a container's file system by real ones. It takes the place of a mount namespace, which a
// process without privileges cannot have everywhere.
type Rewriter struct {
	mounts []Mount
	image  string
	exists func(path string) bool
}

// NewRewriter makes one from a container's mounts and its image's directory.
func NewRewriter(mounts []Mount, image string) *Rewriter {
	r := &Rewriter{image: image, exists: func(path string) bool { _, err := os.Lstat(path); return err == nil }}
	for _, m := range mounts {
		r.mounts = append(r.mounts, Mount{Path: filepath.Clean(m.Path), Real: m.Real})
	}
	// The longest first: a mount below another one hides it.
	sort.SliceStable(r.mounts, func(i, j int) bool { return len(r.mounts[i].Path) > len(r.mounts[j].Path) })
	return r
}

// Path gives the real path of one path of the container: that of the mount it lies in, else that of the image where it
// has it, else the same path.
func (r *Rewriter) Path(path string) string {
	for _, m := range r.mounts {
		if path == m.Path || strings.HasPrefix(path, m.Path+"/") {
			return m.Real + path[len(m.Path):]
		}
	}
	if real, ok := r.parent(path); ok {
		return real
	}
	if r.image != "" && path != "/" && r.exists(filepath.Join(r.image, path)) {
		return filepath.Join(r.image, path)
	}
	return path
}

// parent gives the real path of a directory that holds mounts without being one, such as /host of /host/sys and
// /host/proc, where all of them come from one tree.
func (r *Rewriter) parent(path string) (string, bool) {
	real, found := "", false
	for _, m := range r.mounts {
		rest, below := strings.CutPrefix(m.Path, strings.TrimSuffix(path, "/")+"/")
		if !below || path == "/" {
			continue
		}
		tree, same := strings.CutSuffix(m.Real, "/"+rest)
		if !same || (found && tree != real) {
			return "", false
		}
		real, found = tree, true
	}
	return real, found
}

// String replaces every absolute path in a string: at its start, and behind anything that cannot be part of a path,
// such as the = of --flag=/path, the colons of a list, or a space of a shell line. The path of a URL is left alone.
func (r *Rewriter) String(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '/' || (i > 0 && pathByte(s[i-1])) {
			out.WriteByte(s[i])
			i++
			continue
		}
		end := i
		for end < len(s) && pathByte(s[end]) {
			end++
		}
		path := s[i:end]
		if strings.HasPrefix(path, "//") {
			out.WriteString(path)
		} else {
			out.WriteString(r.Path(path))
		}
		i = end
	}
	return out.String()
}

// Strings replaces the paths in each string.
func (r *Rewriter) Strings(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = r.String(s)
	}
	return out
}

func pathByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80:
		return true
	}
	return strings.IndexByte("/._-~@%+", c) >= 0
}

// BindAddress turns an argument that listens on every address, such as --metrics-bind-address=:8080, into one that
// listens on the pod's own: all pods share the machine's network, and two would take each other's ports.
func BindAddress(arg, podIP string) string {
	head, value, found := strings.Cut(arg, "=")
	if !found {
		head, value = "", arg
	} else {
		head += "="
	}
	host, port, ok := strings.Cut(value, ":")
	if !ok || (host != "" && host != "0.0.0.0") || port == "" || len(port) > 5 ||
		strings.Trim(port, "0123456789") != "" || port == "0" {
		return arg
	}
	if host == "" || host == "0.0.0.0" {
		return head + podIP + ":" + port
	}
	return arg
}
