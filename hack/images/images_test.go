// Package images tests what build.sh makes of the Dockerfile, by buildah as it is on the machine.
package images

import (
	"archive/tar"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The limits that the project sets itself, in bytes of the image uncompressed.
const (
	managerLimit = 80_000_000
	agentLimit   = 40_000_000
)

type image struct {
	name     string
	config   config
	layer    []byte
	archived int64
}

type config struct {
	Config struct {
		User       string
		Entrypoint []string
		Volumes    map[string]any
		Labels     map[string]string
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// build runs build.sh, with the given environment beside this process's own.
func build(t *testing.T, dir string, environment ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./build.sh", dir)
	cmd.Env = append(os.Environ(), environment...)
	// Ended as a user would end it, so that it removes its storage.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func needBuildah(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("buildah is not installed: apt-get install --no-install-recommends buildah")
	}
	if os.Getuid() != 0 {
		t.Skip("not root: buildah's chroot isolation and the chroot of this test need it")
	}
}

func TestImages(t *testing.T) {
	needBuildah(t)
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if out, err := build(t, dir, "VERSION=v1.2.3"); err != nil {
			t.Fatalf("build.sh: %v\n%s", err, out)
		}
	}
	for _, test := range []struct {
		name       string
		limit      int64
		files      []string
		entrypoint string
	}{
		{"commgroup-manager", managerLimit, []string{"manager"}, "/manager"},
		{"commgroup-agent", agentLimit, []string{"agent", "rank"}, "/agent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := read(t, filepath.Join(first, test.name+".tar"))
			if want := "docker.io/library/" + test.name + ":dev"; i.name != want {
				t.Errorf("the archive names %s, expected %s", i.name, want)
			}
			if i.archived >= test.limit {
				t.Errorf("%d bytes, expected less than %d", i.archived, test.limit)
			}
			if got := i.config.Config.User; got != "65532:65532" {
				t.Errorf("user %q, expected the number of one that is not root", got)
			}
			if got := i.config.Config.Entrypoint; !slices.Equal(got, []string{test.entrypoint}) {
				t.Errorf("entrypoint %v, expected %s", got, test.entrypoint)
			}
			if got := i.config.Config.Volumes; len(got) != 0 {
				t.Errorf("volumes %v, expected none: nothing is written", got)
			}
			for key, want := range map[string]string{"title": test.name, "version": "v1.2.3",
				"licenses": "Apache-2.0"} {
				if got := i.config.Config.Labels["org.opencontainers.image."+key]; got != want {
					t.Errorf("label %s is %q, expected %q", key, got, want)
				}
			}
			root := t.TempDir()
			if got := extract(t, i.layer, root); !slices.Equal(got, test.files) {
				t.Errorf("files %v, expected %v", got, test.files)
			}
			static(t, filepath.Join(root, test.entrypoint))
			runs(t, root, test.entrypoint)
			if again := read(t, filepath.Join(second, test.name+".tar")); !slices.Equal(again.config.RootFS.DiffIDs,
				i.config.RootFS.DiffIDs) {
				t.Errorf("a second build of the same sources has layers %v, the first had %v",
					again.config.RootFS.DiffIDs, i.config.RootFS.DiffIDs)
			}
		})
	}
}

// TestTooLarge: an image over its limit is a failure, and no archive of it is left to be shipped.
func TestTooLarge(t *testing.T) {
	needBuildah(t)
	script, err := os.ReadFile("build.sh")
	if err != nil {
		t.Fatal(err)
	}
	const limit = "agent_limit_bytes=40000000"
	if !strings.Contains(string(script), limit) {
		t.Fatalf("build.sh does not set %s", limit)
	}
	dir := t.TempDir()
	// Under build.sh's name, since it finds the sources from where it lies.
	out, err := exec.CommandContext(t.Context(), "sh", "-c",
		strings.Replace(string(script), limit, "agent_limit_bytes=1000000", 1), "./build.sh", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "expected less than 1000000") {
		t.Errorf("an agent over its limit: error %v and output\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "commgroup-agent.tar")); !os.IsNotExist(err) {
		t.Errorf("the archive of an image over its limit is still there (%v)", err)
	}
}

// read takes a docker archive apart. Ours have one layer: the base is empty and one COPY fills it.
func read(t *testing.T, archive string) image {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(strings.NewReader(string(data))); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatalf("manifest.json of %s: %v", archive, err)
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("%s holds %+v, expected one image of one name and one layer", archive, manifest)
	}
	i := image{name: manifest[0].RepoTags[0], layer: files[manifest[0].Layers[0]], archived: int64(len(data))}
	if err := json.Unmarshal(files[manifest[0].Config], &i.config); err != nil {
		t.Fatalf("configuration of %s: %v", archive, err)
	}
	return i
}

// extract writes a layer to dir and returns the files' names; all belong to root and only root may write them.
func extract(t *testing.T, layer []byte, dir string) []string {
	t.Helper()
	var names []string
	for r := tar.NewReader(strings.NewReader(string(layer))); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.FileInfo().Mode() != 0o755 || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s: type %c, mode %o, owner %d:%d, expected a file of root with mode 755",
				header.Name, header.Typeflag, header.Mode, header.Uid, header.Gid)
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// static fails where a binary asks for a loader, which an image without a C library does not have.
func static(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a loader: it was built with cgo or imports a C library", filepath.Base(path))
		}
	}
}

// runs starts the image's binary where there is nothing else, as the image's user, who may write nowhere.
func runs(t *testing.T, root, binary string) {
	t.Helper()
	// Folders of the test's temporary directory are for their owner alone; what is tested is the image's root.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "--version")
	cmd.Env, cmd.Dir = []string{"PATH=/"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v1.2.3") {
		t.Errorf("%s --version in the image: %v\n%s", binary, err, out)
	}
}
