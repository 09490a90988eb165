package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
)

func TestParseEffective(t *testing.T) {
	for text, want := range map[string]uint64{
		"Name:\tagent\nCapEff:\t0000000000004000\nCapBnd:\t000001ffffffffff\n": 1 << 14,
		"CapEff:\t0000000000000000":               0,
		"CapInh:\t1\nCapEff:\tffffffffffffffff\n": 1<<64 - 1,
	} {
		if got, err := parseEffective(text); err != nil || got != want {
			t.Errorf("%q gives %x, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "CapEff:\n", "CapEff:\tx\n", "CapBnd:\t1\n", "CapEff:\t1ffffffffffffffff\n"} {
		if got, err := parseEffective(text); err == nil {
			t.Errorf("%q gives %x", text, got)
		}
	}
	for text, want := range map[string]bool{"         0          0 4294967295\n": true, "0 100000 65536\n": false,
		"": false, "0 0 65536\n": false, "0 0 1\n1 1 4294967294\n": false} {
		if got := firstUserNamespace(text); got != want {
			t.Errorf("%q: first user namespace %t", text, got)
		}
	}
}

func TestLocksPastLimitOfASimulatedNode(t *testing.T) {
	root := t.TempDir()
	h := PodHost{Root: root}
	if free, err := h.LocksPastLimit(); free || err != nil {
		t.Errorf("a tree without proc/self/status: %t, %v", free, err)
	}
	path := filepath.Join(root, "proc/self/status")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"CapEff:\t0000000000004000\n": true, "CapEff:\t0000000000000001\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if free, err := h.LocksPastLimit(); free != want || err != nil {
			t.Errorf("%q: %t, %v", text, free, err)
		}
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if free, err := h.LocksPastLimit(); free || err == nil {
		t.Errorf("a file that is none: %t, %v", free, err)
	}
	if _, err := (PodHost{}).LocksPastLimit(); err != nil {
		t.Errorf("of this process: %v", err)
	}
}

// A capability that is effective makes the limit not matter; one that is not known does not.
func TestLockedMemoryWithCapability(t *testing.T) {
	low := NodeFacts{LockedMemoryLimitBytes: ptr.To(int64(8 << 20))}
	if f := checkLockedMemory(low); f.State != Warning {
		t.Errorf("without: %s %s", f.State, f.Message)
	}
	low.LocksPastLimit = true
	if f := checkLockedMemory(low); f.State != Met || !strings.Contains(f.Message, "CAP_IPC_LOCK") ||
		!strings.Contains(f.Message, "8388608 bytes") {
		t.Errorf("with: %s %s", f.State, f.Message)
	}
	if f := checkLockedMemory(NodeFacts{LocksPastLimit: true}); f.State != Unknown {
		t.Errorf("a limit that is not known: %s %s", f.State, f.Message)
	}
}
