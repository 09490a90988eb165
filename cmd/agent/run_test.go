package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	return executor.Assignment{Ranks: 2, Run: &api.RunAssignment{ID: "run-1"}, Plan: api.RunPlan{RunDeadlineSeconds: 1}}, nil
}

func (deafReporter) Report(context.Context, api.NodeRunStatus) error {
	return errors.New("connection refused")
}

// tinyHost has too little shared memory, so that the run ends before any process starts.
type tinyHost struct{ preflight.PodHost }

func (tinyHost) SharedMemoryFreeBytes() (int64, error) { return 1, nil }

func TestResultIsLeftForTheKubelet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	var out strings.Builder
	// No grace: the first refusal is the last.
	r := &executor.Runner{Config: executor.Config{RunID: "run-1", ReportGrace: -time.Hour}, Reporter: deafReporter{},
		Node: executor.Node{Name: "node-a", Host: tinyHost{preflight.PodHost{Root: t.TempDir()}}, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	err := runOnce(t.Context(), r, &out, path)
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
	long := executor.Result{Full: api.NodeRunStatus{ID: "r", Verdict: api.VerdictFail, Message: "m", LogTail: strings.Repeat("x", 5000)}}
	long.Status = long.Full
	if got := lastWords(long, errors.New("e")); len(got) > terminationLogBytes || !strings.Contains(got, `"verdict":"Fail"`) {
		t.Errorf("got %d bytes: %.80s", len(got), got)
	}
	if got := lastWords(executor.Result{}, errors.New(strings.Repeat("e", 9000))); len(got) != terminationLogBytes {
		t.Errorf("got %d bytes", len(got))
	}
	if got := lastWords(executor.Result{}, errors.New("x"+strings.Repeat("é", 9000))); len(got) > terminationLogBytes || !utf8.ValidString(got) {
		t.Errorf("got %d bytes, with characters split: %t", len(got), !utf8.ValidString(got))
	}
}

func TestRunFlags(t *testing.T) {
	for _, args := range [][]string{{"--group", "a", "--node", "n", "--run-id", "r"}, {"--group", "a/b", "--run-id", "r"}, {"--group", "a/b", "--node", "n"}} {
		cmd := newRunCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
