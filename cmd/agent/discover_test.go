package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// exitCodeOf is what main exits with; the error goes to the output, too.
func exitCodeOf(err error, out *bytes.Buffer) int {
	if err != nil {
		out.WriteString(err.Error())
	}
	return exitCode(err)
}

func tree(t *testing.T, change func(*nodetree.Node)) string {
	t.Helper()
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	if change != nil {
		change(&n)
	}
	dir := t.TempDir()
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDiscoverCommand(t *testing.T) {
	good := tree(t, nil)
	bad := tree(t, func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 0, B: 7, Kind: nodetree.LinkPCIe}} })
	part := tree(t, func(n *nodetree.Node) { n.GPUs = n.GPUs[:4] })
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"unproven": {[]string{"--root", part}, exitUnproven,
			[]string{"no error found, but not proven healthy: 4 x MI300X", "--expected-gpus"}},
		"healthy": {[]string{"--root", good}, 0, []string{"SIMULATED", "8 x MI300X (gfx942)",
			"Link Type between two GPUs", "XGMI         XGMI", "8 devices: 8 Active", "Verdict: SIMULATED: healthy"}},
		"problem": {[]string{"--root", bad}, exitProblems,
			[]string{"PCIE", "Error   PCIeInsteadOfXGMI", "NOT HEALTHY (1 error)"}},
		"yaml":    {[]string{"--root", good, "-o", "yaml"}, 0, []string{"origin: Simulated", "model: MI300X"}},
		"no root": {[]string{"--root", filepath.Join(good, "none")}, 1, []string{"--root"}},
		"format":  {[]string{"--root", good, "-o", "xml"}, 2, []string{"use table, json or yaml"}},
		"surplus": {[]string{"extra"}, 2, []string{"is no flag"}},
		"flag":    {[]string{"--rot", good}, 2, []string{"unknown flag"}},
		"number":  {[]string{"--root", good, "--expected-gpus", "-1"}, 2, []string{"--expected-gpus -1"}},
		"time":    {[]string{"--root", good, "--read-deadline", "0s"}, 2, []string{"--read-deadline 0s"}},
		"no GPU":  {[]string{"--root", t.TempDir()}, exitProblems, []string{"NOT HEALTHY", "nodetree --dir DIR"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := newRootCommand()
			cmd.SetArgs(append([]string{"discover"}, c.args...))
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			code := exitCodeOf(cmd.ExecuteContext(context.Background()), &out)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, text := range c.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("output lacks %q:\n%s", text, out.String())
				}
			}
		})
	}
	var out bytes.Buffer
	cmd := newRootCommand()
	cmd.SetArgs([]string{"discover", "--root", good, "-o", "json"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var facts discover.Facts
	if err := json.Unmarshal(out.Bytes(), &facts); err != nil || len(facts.GPUs) != 8 || len(facts.Links) != 56 {
		t.Errorf("json: %v, %d GPUs, %d links", err, len(facts.GPUs), len(facts.Links))
	}
}

func TestInstallFile(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "to", "agent")
	if err := os.WriteFile(source, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := installFile(source, target); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "mount a writable volume") {
		t.Errorf("without the directory: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also over an older copy
		if err := installFile(source, target); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(target)
	info, statErr := os.Stat(target)
	if err != nil || statErr != nil || string(data) != "binary" || info.Mode() != 0o755 {
		t.Errorf("installed %q, %v, %v, %v", data, info.Mode(), err, statErr)
	}
	left, err := os.ReadDir(filepath.Dir(target))
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestMonitorFlags(t *testing.T) {
	good := monitorFlags{node: "node-a", intervalSeconds: 30, validSeconds: 120}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*monitorFlags){
		"no node":     func(f *monitorFlags) { f.node = "" },
		"no interval": func(f *monitorFlags) { f.intervalSeconds = 0 },
		"no validity": func(f *monitorFlags) { f.validSeconds = 0 },
	} {
		f := good
		change(&f)
		if err := f.check(); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := newLogger("xml"); err == nil {
		t.Error("log format xml was accepted")
	}
}
