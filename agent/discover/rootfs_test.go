package discover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRootFS runs over both ways to resolve links: the kernel's, and by hand where the kernel has none.
func TestRootFS(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "secret", []byte("of the container"))
	dir := t.TempDir()
	write(t, dir, "etc/real", []byte("of the host"))
	write(t, dir, "big", make([]byte, MaxFileBytes+1))
	write(t, dir, "limit", make([]byte, MaxFileBytes))
	write(t, dir, "empty", nil)
	for name, target := range map[string]string{
		"opt/rocm":  "/etc/alternatives/rocm", // absolute, as update-alternatives writes them
		"etc/out":   filepath.Join(outside, "secret"),
		"etc/up":    "../../../../../../etc/real",
		"etc/loop":  "loop",
		"etc/alias": "real",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "opt/rocm-6.4.1/.info/version", []byte("6.4.1-83"))
	if err := os.MkdirAll(filepath.Join(dir, "etc/alternatives"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/opt/rocm-6.4.1", filepath.Join(dir, "etc/alternatives/rocm")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, inRoot := range []bool{true, false} {
		fs := openRoot(t, dir)
		if inRoot && !fs.inRoot {
			t.Log("this kernel has no openat2: links are resolved by hand in both runs")
		}
		fs.inRoot = fs.inRoot && inRoot
		t.Run(fmt.Sprintf("kernel=%v", fs.inRoot), func(t *testing.T) {
			for name, want := range map[string]string{"etc/real": "of the host", "etc/alias": "of the host",
				"etc/up": "of the host", "opt/rocm/.info/version": "6.4.1-83", "empty": "",
				"../../etc/real": "of the host", "fifo": ""} {
				data, err := fs.ReadFile(name)
				if err != nil || string(data) != want {
					t.Errorf("%s is %q, %v; want %q", name, data, err, want)
				}
			}
			if data, err := fs.ReadFile("limit"); err != nil || len(data) != MaxFileBytes {
				t.Errorf("a file at the limit: %d bytes, %v", len(data), err)
			}
			for name, want := range map[string]Class{"etc/out": ClassMissing, "etc/loop": ClassMissing,
				"none": ClassMissing, "big": ClassMalformed, "etc/real/x": ClassMissing, "etc": ClassFailed} {
				if data, err := fs.ReadFile(name); Classify(err) != want {
					t.Errorf("%s is %q, class %q (%v); want class %q", name, data, Classify(err), err, want)
				}
			}
			names, err := fs.ReadDir("opt/rocm")
			if err != nil || strings.Join(names, " ") != ".info" {
				t.Errorf("opt/rocm has %v, %v", names, err)
			}
			if target, err := fs.ReadLink("etc/alias"); err != nil || target != "real" {
				t.Errorf("etc/alias leads to %q, %v", target, err)
			}
			if _, err := fs.ReadDir("etc/real"); Classify(err) != ClassMissing {
				t.Errorf("a file as a directory: %v", err)
			}
		})
	}
	if _, err := OpenRoot(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a root that is not there: %v", err)
	}
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]Class{syscall.ENOENT: ClassMissing, syscall.EPERM: ClassForbidden,
		syscall.EACCES: ClassForbidden, syscall.EINVAL: ClassUnsupported,
		syscall.EOPNOTSUPP: ClassUnsupported, syscall.ENODEV: ClassUnsupported, syscall.EBUSY: ClassBusy,
		syscall.EAGAIN: ClassBusy, errBusyText: ClassBusy, errEmpty: ClassMalformed, ErrTooLarge: ClassMalformed,
		errTimeout{"x"}: ClassTimeout, malformedf("x"): ClassMalformed, syscall.EIO: ClassFailed} {
		if got := Classify(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
	if Classify(nil) != "" {
		t.Error("nil has a class")
	}
}
