package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

const limitsHead = "Limit                     Soft Limit           Hard Limit           Units     \n"

func TestParseLockedMemory(t *testing.T) {
	for text, want := range map[string]int64{
		limitsHead + "Max locked memory         8388608              8388608              bytes     \n":    8388608,
		limitsHead + "Max locked memory         unlimited            unlimited            bytes     \n":    -1,
		limitsHead + "Max locked memory         0                    unlimited            bytes     \nx\n": 0,
	} {
		if got, err := parseLockedMemory(text); err != nil || got != want {
			t.Errorf("%q gave %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", limitsHead, "Max locked memory", "Max locked memory  -1  -1 bytes",
		"Max locked memory  x  x bytes", "Max locked memory 9223372036854775808 1 bytes"} {
		if got, err := parseLockedMemory(text); err == nil {
			t.Errorf("%q gave %d", text, got)
		}
	}
}

func FuzzParseLockedMemory(f *testing.F) {
	f.Add(limitsHead + "Max locked memory         8388608              8388608              bytes     \n")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseLockedMemory(text); err == nil && n < -1 {
			t.Errorf("%q gave %d", text, n)
		}
	})
}

func TestLockedMemoryOfASimulatedNode(t *testing.T) {
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name, n.LockedMemoryBytes = "sim-node-0", 65536
	root := t.TempDir()
	if err := nodetree.Write(root, n); err != nil {
		t.Fatal(err)
	}
	if got, err := (PodHost{Root: root}).LockedMemoryLimitBytes(); err != nil || got != 65536 {
		t.Errorf("%d, %v; want the tree's 65536", got, err)
	}
	if err := os.Remove(filepath.Join(root, "proc/self/limits")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseLockedMemory(string(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []PodHost{{}, {Root: root}} {
		if got, err := h.LockedMemoryLimitBytes(); err != nil || got != want {
			t.Errorf("%+v: %d, %v; want this process's %d", h, got, err, want)
		}
	}
	if strings.Count(string(data), "Max locked memory") != 1 {
		t.Errorf("/proc/self/limits is not as it is read:\n%s", data)
	}
}
