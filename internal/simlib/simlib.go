// Package simlib gives tests the simulated ROCm libraries of hack/simrocm.
package simlib

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// Dir builds the libraries into bin/simrocm, where they are not current, and gives that folder. Several test binaries
// may ask at once: one builds, the others wait.
var Dir = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	dir := filepath.Join(root, "bin", "simrocm")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a folder of build results
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(root, "bin", ".simrocm.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	out, err := exec.Command("make", "-s", "-C", filepath.Join(root, "hack", "simrocm"), "OUT="+dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building hack/simrocm: %w (make setup installs what it needs)\n%s", err, out)
	}
	return dir, nil
})
