package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// TestPortRangesAreNoNodePorts: on a node's network kube-proxy takes what comes to a NodePort (30000-32767 by default),
// and an agent that looks whether the port is free does not see it: no example may lead there.
func TestPortRangesAreNoNodePorts(t *testing.T) {
	example := regexp.MustCompile(`portRange: \{first: (\d+), last: (\d+)\}|make it larger, for\s+example (\d+)-(\d+)`)
	root := "../.."
	found := 0
	for _, pattern := range []string{"docs/*.md", "config/samples/*.yaml", "config/crd/bases/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range example.FindAllStringSubmatch(string(text), -1) {
				found++
				first, _ := strconv.Atoi(m[1] + m[3])
				last, _ := strconv.Atoi(m[2] + m[4])
				if first <= 32767 && last >= 30000 {
					t.Errorf("%s: %q lies among the NodePorts", file, m[0])
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d examples found, want those of network.md, the full sample and the CRD", found)
	}
}
