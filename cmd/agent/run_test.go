package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// deafReporter asks for a run, and takes no report.
type deafReporter struct{}

func (deafReporter) Assignment(context.Context) (executor.Assignment, error) {
	return executor.Assignment{Ranks: 2, Run: &api.RunAssignment{ID: "run-1"},
		Plan: api.RunPlan{RunDeadlineSeconds: 1}}, nil
}

func (deafReporter) ReportRun(context.Context, api.NodeRunStatus) error {
	return errors.New("connection refused")
}

// tinyHost has too little shared memory, so that the run ends before any process starts.
type tinyHost struct{ preflight.PodHost }

func (tinyHost) SharedMemoryFreeBytes() (int64, error) { return 1, nil }

func TestResultIsLeftForTheKubelet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	var out strings.Builder
	// No grace: the first refusal is the last.
	config := executor.Config{RunID: "run-1", ReportGrace: -time.Hour}
	node := executor.Node{Name: "node-a", Host: tinyHost{preflight.PodHost{Root: t.TempDir()}},
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
	err := runStage(t.Context(), ofNode(node, config, deafReporter{}), &out, path, node.Log)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("error %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"termination log": string(data), "stdout": out.String()} {
		var s api.NodeRunStatus
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%s is no JSON: %v", what, err)
		}
		if s.Verdict != api.VerdictError || s.Reason != api.ReasonPreconditionFailed || s.ID != "run-1" {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

func TestLastWordsFit(t *testing.T) {
	full := api.NodeRunStatus{ID: "r", Verdict: api.VerdictFail, Message: "m", LogTail: strings.Repeat("x", 5000)}
	if got := lastWords([]any{full, verdictOf(full)}, errors.New("e")); len(got) > terminationLogBytes ||
		!strings.Contains(got, `"verdict":"Fail"`) {
		t.Errorf("got %d bytes: %.80s", len(got), got)
	}
	for _, first := range []string{"", "x"} { // one of the two would be cut within a character
		got := lastWords(nil, errors.New(first+strings.Repeat("é", terminationLogBytes)))
		if len(got) > terminationLogBytes || len(got) < terminationLogBytes-8 || !utf8.ValidString(got) {
			t.Errorf("got %d bytes, with characters split: %t", len(got), !utf8.ValidString(got))
		}
	}
}

func TestRunFlags(t *testing.T) {
	for want, lines := range map[string][]string{
		"--group is": {"--group a --node n --run-id r", "--node n --run-id r",
			"--stage Group --group a --node n --run-id r"},
		"--node and":    {"--group a/b --run-id r", "--group a/b --node n", "--stage Group --session-file x --node n"},
		"--stage is":    {"--stage Pair --group a/b --node n --run-id r"},
		"Node or Group": {"--stage= --group a/b --node n --run-id r"},
		"is for":        {"--session-file x --node n --run-id r"},
		"is no flag":    {"word"},
		"unknown flag":  {"--no-such-flag"},
	} {
		for _, line := range lines {
			if code, _, errs := runCommand(t, "", append([]string{"run"}, strings.Fields(line)...)...); code != 2 ||
				!strings.Contains(errs, want) {
				t.Errorf("%s: exit %d: %s, expected %q", line, code, errs, want)
			}
		}
	}
}

// TestRunThatIsNotAskedFor: what ended it is left for the kubelet.
func TestRunThatIsNotAskedFor(t *testing.T) {
	words := filepath.Join(t.TempDir(), "termination-log")
	t.Setenv(terminationLogEnv, words)
	file := filepath.Join(t.TempDir(), "none.json")
	code, out, errs := runCommand(t, "", "run", "--stage", "Group", "--session-file", file, "--node", "node-a",
		"--run-id", "run-1", "--wait", "10ms")
	data, err := os.ReadFile(words)
	if code != 1 || out != "" || err != nil ||
		!strings.Contains(string(data), "node node-a: waited 10ms for the session of run run-1") ||
		!strings.Contains(errs, string(data)) {
		t.Errorf("exit %d: %s, %v, left %q", code, errs, err, data)
	}
}
