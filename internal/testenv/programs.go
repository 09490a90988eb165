package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Programs builds agent, rank and manager into bin/test, where they are not current, and gives that folder: linking
// them once in each package that needs them took longer than some of its tests. Several test binaries may ask at once:
// one builds, the others wait.
var Programs = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(Root(), "bin", "test")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of build results
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	build := exec.Command("go", "build", "-o", folder+string(filepath.Separator), "./cmd/agent",
		"./cmd/rank", "./cmd/manager")
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build agent, rank and manager: %w\n%s", err, out)
	}
	return folder, nil
})
