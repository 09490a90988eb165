package realnode

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNodeChangesNoKernelSettingOfTheMachine: a kubelet makes the machine reboot itself on an oops, which outlives the
// cluster.
func TestNodeChangesNoKernelSettingOfTheMachine(t *testing.T) {
	if dir := os.Getenv("REALNODE_TEST_ROOT"); dir != "" {
		changeSettings(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	before := map[string][]byte{}
	for _, name := range append([]string{"fs/file-max"}, kernelSettings...) {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Skip(err)
		}
		before[name] = value
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "REALNODE_TEST_ROOT="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "NO MOUNTS") {
		t.Skipf("mounts are not allowed here: %v\n%s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for name, value := range before {
		now, err := os.ReadFile("/proc/sys/" + name)
		if err != nil || !bytes.Equal(now, value) {
			t.Errorf("%s of the machine was %q and is %q, %v", name, value, now, err)
			if err := os.WriteFile("/proc/sys/"+name, value, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

// changeSettings is the node's side.
func changeSettings(t *testing.T, dir string) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skip("NO MOUNTS", err)
	}
	if err := unix.Mount("node", dir, "tmpfs", 0, ""); err != nil {
		t.Skip("NO MOUNTS", err)
	}
	proc := filepath.Join(dir, "proc")
	if err := os.Mkdir(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		t.Skip("NO MOUNTS", err)
	}
	r := root{dir: dir}
	r.kernelSettings()
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, name := range kernelSettings {
		setting := filepath.Join(proc, "sys", name)
		machine, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// Every one takes 1 and 0, and one of them is another value than the machine's.
		other := "1\n"
		if string(machine) == other {
			other = "0\n"
		}
		if seen, err := os.ReadFile(setting); err != nil || !bytes.Equal(seen, machine) {
			t.Errorf("the node sees %s as %q, %v; expected the machine's %q", name, seen, err, machine)
		}
		if err := os.WriteFile(setting, []byte(other), 0o644); err != nil {
			t.Errorf("a kubelet could not set %s: %v", name, err)
		}
		if seen, err := os.ReadFile(setting); err != nil || string(seen) != other {
			t.Errorf("the node set %s to %q and sees %q, %v", name, other, seen, err)
		}
	}
	if err := os.WriteFile(filepath.Join(proc, "sys/fs/file-max"), []byte("123456\n"),
		0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("another setting of the machine could be written to: %v", err)
	}
}
