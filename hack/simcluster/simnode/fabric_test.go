package simnode

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func TestSweepFabricLeavesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"simrocm-used", "simrocm-left", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "simrocm-used"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return strings.Join(out, " ")
	}
	sweepFabric(dir)
	if got := names(); got != "other simrocm-used" {
		t.Errorf("left %s, want what is no segment and what is locked", got)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	sweepFabric(dir)
	if got := names(); got != "other" {
		t.Errorf("left %s once nobody uses it, want other", got)
	}
	sweepFabric(filepath.Join(dir, "missing"))
}

// Pods of several nodes meet in one directory, whatever their own /dev/shm is, and pods without GPUs know of none.
func TestPodsWithGPUsShareAFabric(t *testing.T) {
	shm := []Mount{{Path: "/dev/shm", Real: "/pods/a/shm"}}
	c := &corev1.Container{Name: "main", Command: []string{"true", "/dev/shm/x"}}
	for fabric, want := range map[string]bool{"/fabric": true, "": false} {
		line, err := buildCommand(containerInput{container: c, mounts: shm, fabric: fabric})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(line.env, "SIMROCM_SHM_DIR=/fabric"); got != want {
			t.Errorf("fabric %q: environment %q", fabric, line.env)
		}
		if line.argv[1] != "/pods/a/shm/x" {
			t.Errorf("the pod's own /dev/shm is %s", line.argv[1])
		}
	}
	if a, b := (Config{SharedMemoryDir: "/shm/x", Dir: "/d"}).FabricDir(),
		(Config{Dir: "/d"}).FabricDir(); a != "/shm/x/.fabric" || b != "/d/.fabric" {
		t.Errorf("directories %s and %s", a, b)
	}
}
