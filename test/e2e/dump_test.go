//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	dumpDeadline = time.Minute
	dumpLines    = "60"
)

// dump prints what a user needs to see why a step failed: pods, events, groups, the managers' and monitors' logs, and
// the end of the nodes' own logs.
func (e *env) dump(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dumpDeadline)
	defer cancel()
	for _, args := range [][]string{
		{"get", "nodes", "-o", "wide"},
		{"get", "pods", "--all-namespaces", "-o", "wide"},
		{"get", "commgroups,commruns,commtasks,commnodes", "--all-namespaces"},
		{"get", "commgroups", "--all-namespaces", "-o", "yaml"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
		{"logs", "--namespace", operatorNamespace, "--selector", "app.kubernetes.io/name=commgroup-manager",
			"--all-containers", "--prefix", "--tail", dumpLines},
		{"logs", "--namespace", operatorNamespace, "--selector", "rcclx.io/role=monitor", "--prefix", "--tail", "10"},
	} {
		out, err := e.try(ctx, "", "kubectl", args...)
		t.Logf("--- kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			t.Logf("--- %v", err)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(e.StateDir, "logs", "*", "kubelet.log"))
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		t.Logf("--- %s\n%s", path, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
}
