package discover

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// openCase unpacks a tree of testdata/cases. A file of mode 0 answers EPERM, as KFD does outside of a container's
// cgroup.
func openCase(t *testing.T, name string) FS {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "cases", name+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, hidden := t.TempDir(), map[string]bool{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Clean(strings.TrimPrefix(strings.TrimPrefix(h.Name, "tree"), "/"))
		if !filepath.IsLocal(name) {
			t.Fatalf("the archive has %q", h.Name)
		}
		path := filepath.Join(dir, name)
		switch h.Typeflag {
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(archive); err == nil {
				write(t, dir, name, data)
			}
			hidden[name] = h.Mode&0o777 == 0
		case tar.TypeSymlink:
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.Symlink(h.Linkname, path)
			}
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return hookFS{openRoot(t, dir), func(name string) error {
		if hidden[name] {
			return syscall.EPERM
		}
		return nil
	}}
}

// TestCases are trees in the form of public reports: the report, and what is right.
func TestCases(t *testing.T) {
	for name, c := range map[string]struct {
		gpus, devices int
		mesh          string
		problems      []string
		nics          string
	}{
		// ROCm/k8s-gpu-dra-driver#21: GPUs of one bus and device number in several domains were taken for one.
		"same-bdf-in-several-domains": {8, 16, MeshFull, []string{}, "8 of 8 near"},
		// ROCm/clr#106: MI300A, one bus number in four domains.
		"mi300a-four-domains": {4, 4, MeshFull, []string{}, "4 of 4 near"},
		// ROCm/legacy-rocm-build#4261: one MI300A in TPX.
		"mi300a-tpx-one-package": {1, 3, MeshIncomplete, []string{"Warning GPUMissing"}, "1 of 4 near"},
		// ROCm/legacy-rocm-build#1482: a container with two of eight GPUs.
		"docker-subset-mi100": {2, 2, MeshUnknown, []string{"Error GPUHidden"}, "2 of 8 near"},
		// ROCm/rocm-systems#5016: ionic NICs on MI355X.
		"nic-names": {8, 8, MeshFull, []string{}, "8 of 8 near"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, openCase(t, name), Options{})
			if len(f.GPUs) != c.gpus || len(f.Devices) != c.devices || f.Mesh.State != c.mesh {
				t.Errorf("%d GPUs, %d devices, mesh %s; expected %d, %d, %s",
					len(f.GPUs), len(f.Devices), f.Mesh.State, c.gpus, c.devices, c.mesh)
			}
			if diff := cmp.Diff(c.problems, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			near := map[string]bool{}
			for i := range f.GPUs {
				near[f.GPUs[i].NIC] = f.GPUs[i].NIC != ""
			}
			if got := fmt.Sprintf("%d of %d near", len(near), len(f.NICs)); got != c.nics {
				t.Errorf("NICs: %s, expected %s", got, c.nics)
			}
			for _, n := range f.NICs {
				if n.State != "Active" {
					t.Errorf("%s is %s", n.Name, n.State)
				}
			}
		})
	}
}
