package discover

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"rcclx.io/commgroup-operator/internal/memfs"
)

// fixtures is the folder of sysfs trees beside the repository; the test is skipped where it is not there.
func fixtures(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
	found := filepath.Join(dir, "..", "shared", "fixtures")
	if _, err := os.Stat(found); err != nil {
		t.Skip("the sysfs fixtures are not beside the repository (../shared/fixtures)")
	}
	return found
}

func write(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func openRoot(t testing.TB, dir string) *RootFS {
	t.Helper()
	fs, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

func scan(t testing.TB, fs FS, opts Options) *Facts {
	t.Helper()
	facts, err := Scan(context.Background(), fs, opts)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// problemLines writes problems as "Severity Code Subject".
func problemLines(f *Facts) []string {
	lines := []string{}
	for _, p := range f.Problems {
		lines = append(lines, strings.TrimSpace(p.Severity+" "+p.Code+" "+p.Subject()))
	}
	return lines
}

// memFS is a tree in memory.
type memFS map[string]string

func (m memFS) ReadFile(name string) ([]byte, error)  { return memfs.Tree(m).ReadFile(name) }
func (m memFS) ReadDir(name string) ([]string, error) { return memfs.Tree(m).ReadDir(name) }
func (m memFS) ReadLink(name string) (string, error)  { return memfs.Tree(m).ReadLink(name) }

// memTree loads a fixture, a txtar or tar.gz, into memory.
func memTree(t testing.TB, name string) memFS {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures(t), name))
	if err != nil {
		t.Fatal(err)
	}
	m := memFS{}
	if strings.HasSuffix(name, ".txtar") {
		for _, f := range txtar.Parse(data).Files {
			m[f.Name] = string(f.Data)
		}
		return m
	}
	gz, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(gz); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			m[path.Clean(h.Name)] = string(content)
		}
	}
}

// hookFS asks hook before each read; an error of it is the read's.
type hookFS struct {
	FS
	hook func(name string) error
}

func (h hookFS) ReadFile(name string) ([]byte, error) {
	if err := h.hook(name); err != nil {
		return nil, err
	}
	return h.FS.ReadFile(name)
}

func (h hookFS) ReadDir(name string) ([]string, error) {
	if err := h.hook(name); err != nil {
		return nil, err
	}
	return h.FS.ReadDir(name)
}

func under(dir string) func(string) bool {
	return func(name string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
}

func nodePath(parts ...string) string { return path.Join(append([]string{nodesDir}, parts...)...) }
