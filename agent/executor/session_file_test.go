package executor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/commtask"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestFileLink(t *testing.T) {
	dir := t.TempDir()
	c := noticedClock{clocktesting.NewFakeClock(time.Now()), make(chan *noticedTimer, 1024)}
	f := FileLink{Path: filepath.Join(dir, "node-a.json"), StatusPath: filepath.Join(dir, "node-a.json.status"),
		RunID: "run-1", Clock: c}
	seen, done := make(chan Seen, 64), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		f.Follow(ctx, func(s Seen) { seen <- s })
	}()
	defer func() {
		cancel()
		<-done
	}()
	write := func(text string) {
		t.Helper()
		next := f.Path + ".next" // so that the file is never seen in between
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, f.Path)); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		t.Helper()
		if d := (<-c.made).d; d != fileEvery {
			t.Fatalf("the next look comes after %s", d)
		}
		c.Step(fileEvery)
	}
	if s := <-seen; !errors.Is(s.Err, os.ErrNotExist) {
		t.Errorf("no file: %+v", s)
	}
	write(`{"commTask": {"spec": {"sess`)
	look()
	if s := <-seen; s.Err == nil {
		t.Errorf("half a file: %+v", s)
	}
	write(`{"commTask": {"spec": {"session": {"runID": "run-1"}}}}`)
	look()
	if s := <-seen; !errors.Is(s.Err, errNoPlan) {
		t.Errorf("a session without a CommRun: %+v", s)
	}
	a := testAssignment()
	data, err := json.Marshal(SessionFile{
		CommTask: api.CommTask{Spec: api.CommTaskSpec{NodeName: "node-a", Session: &a}}, CommRun: testRun()})
	if err != nil {
		t.Fatal(err)
	}
	write(string(data))
	look()
	if s := <-seen; s.Session == nil || s.Session.RunID != "run-1" || s.Plan.StepDeadlineSeconds != 10 ||
		s.BudgetBytes == 0 {
		t.Errorf("a session: %+v", s)
	}
	if err := f.ReportSession(ctx, api.SessionStatus{RunID: "run-1", State: api.SessionReady}); err != nil {
		t.Fatal(err)
	}
	var node api.CommTask
	if data, err = os.ReadFile(f.StatusPath); err != nil || json.Unmarshal(data, &node) != nil ||
		node.Status.Session == nil || node.Status.Session.State != api.SessionReady || node.Spec.NodeName != "node-a" {
		t.Errorf("the status file: %v, %s", err, data)
	}
	write(`{"commTask": {}}`)
	look()
	if s := <-seen; s.Session != nil || s.Err != nil {
		t.Errorf("no session: %+v", s)
	}
	if err := f.ReportSession(ctx, api.SessionStatus{}); !errors.Is(err, commtask.ErrSuperseded) {
		t.Errorf("a report without a session: %v", err)
	}
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	look()
	if s := <-seen; !s.Gone {
		t.Errorf("the file is gone: %+v", s)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".session-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
