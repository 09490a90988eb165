// Package simtest gives tests simulated nodes, and real ranks of the simulated library to run on them.
package simtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/rank/worker"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simlib"
)

// realRank as the only argument makes a test binary a real rank.
const realRank = "real-rank"

// Main makes this test binary a real rank where Rank's command started it, and ends it then. TestMain calls it first.
func Main() {
	if len(os.Args) != 2 || os.Args[1] != realRank {
		return
	}
	if err := worker.Run(context.Background(), os.Stdin, os.NewFile(rank.EventFD, "events")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Rank is the command that starts this test binary as a real rank.
func Rank(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, realRank}
}

// Environ is the environment of a pod on the simulated node with this root.
func Environ(t testing.TB, root string) []string {
	t.Helper()
	libraries, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + libraries, "SIMROCM_ROOT=" + root}
}

// Node is the root of a simulated node with eight MI300X, which change may change. It is named sim-node-0.
func Node(t testing.TB, change func(*nodetree.Node)) string {
	t.Helper()
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	change(&n)
	root := t.TempDir()
	if err := nodetree.Write(root, n); err != nil {
		t.Fatal(err)
	}
	return root
}

var buses = []string{"05", "2b", "5b", "65", "7d", "ab", "d2", "e5"}

// PCI is the address of a GPU of a simulated node with eight MI300X.
func PCI(gpu int) string { return "0000:" + buses[gpu] + ":00.0" }

// Libraries is the root of a simulated node of which only the libraries know: it has no sysfs to look at.
func Libraries(t testing.TB, fault string) string {
	t.Helper()
	root := t.TempDir()
	conf := []string{"node = sim-node-0", "model = MI300X", "flavor = rcclx-dev", "fault = " + fault}
	for i := range buses {
		conf = append(conf, fmt.Sprintf("gpu.%d = %s", i, PCI(i)))
	}
	boot := filepath.Join(root, "proc", "sys", "kernel", "random")
	if err := os.MkdirAll(boot, 0o750); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(root, "simrocm.conf"): strings.Join(conf, "\n") + "\n",
		filepath.Join(boot, "boot_id"): "simulated-boot\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// NoChildren fails where a process that this test binary started is left: the kernel knows of children without a race.
func NoChildren(t testing.TB) {
	t.Helper()
	var ws syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("children are left: wait4 gave pid %d, %v", pid, err)
	}
}
