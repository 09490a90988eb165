package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx/engine"
)

func TestBadSpecs(t *testing.T) {
	good :=
		`{"node":"n","worldSize":8,"nodes":1,"initDeadlineNanoseconds":1000000000,"stepDeadlineNanoseconds":1000000000,"steps":%s}`
	steps := func(s string) string { return strings.Replace(good, "%s", s, 1) }
	for name, tt := range map[string]struct{ line, message string }{
		"nothing":           {"", "ended its output"},
		"not JSON":          {"hello", "not a spec"},
		"rank out of range": {`{"rank":8,"worldSize":8,"nodes":1}`, "rank 8 of 8"},
		"negative world":    {`{"worldSize":-1}`, "-1 ranks"},
		"no node":           {`{"worldSize":8}`, "0 nodes"},
		"negative device":   {`{"worldSize":8,"nodes":1,"device":-1}`, "device -1"},
		"no deadline":       {`{"worldSize":8,"nodes":1}`, "deadline"},
		"unknown step":      {steps(`[{"kind":"Dance"}]`), `"Dance"`},
		"no iterations": {
			steps(`[{"kind":"Measure","collective":"AllReduce","datatype":"Float32","sizesBytes":[1024]}]`),
			"iterations"},
		"unknown collective": {
			steps(`[{"kind":"Measure","collective":"Gather","datatype":"Float32","sizesBytes":[1024],"iterations":1}]`),
			"Gather"},
		"unknown datatype": {steps(
			`[{"kind":"Measure","collective":"AllReduce","datatype":"Uint8","sizesBytes":[1024],"iterations":1}]`),
			"Uint8"},
		"too long a line": {strings.Repeat("x", maxLineBytes+1), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Run(t.Context(), strings.NewReader(tt.line), &out); !errors.Is(err, ErrFailed) {
				t.Fatalf("Run = %v, want ErrFailed", err)
			}
			var e rank.Event
			if err := json.Unmarshal(out.Bytes(), &e); err != nil {
				t.Fatalf("event %q: %v", out.String(), err)
			}
			if e.Kind != rank.EventError || e.Error == nil || e.Error.Code != rank.CodeBadSpec ||
				!strings.Contains(e.Error.Message, tt.message) {
				t.Errorf("event %+v %+v, want BadSpec with %q", e, e.Error, tt.message)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, _ := io.Pipe()
	var out bytes.Buffer
	if err := Run(ctx, in, &out); !errors.Is(err, context.Canceled) || out.Len() != 0 {
		t.Errorf("Run = %v with events %q, want the context's error and silence", err, out.String())
	}
}

func TestWatchdogWatchesTheLastStepOnly(t *testing.T) {
	w := newWatchdog()
	w.enter("first", time.Nanosecond)
	if m := <-w.fired; m.step != "first" {
		t.Errorf("fired %+v, want first", m)
	}
	w.enter("unwatched", 0)
	w.enter("replaced", time.Hour)
	w.enter("last", time.Nanosecond)
	if m := <-w.fired; m.step != "last" {
		t.Errorf("fired %+v, want last", m)
	}
	w.stop()
}

func TestNothingIsWrittenAfterTheLastEvent(t *testing.T) {
	var out bytes.Buffer
	w := &eventWriter{out: &out, now: func() time.Time { return time.Unix(0, 0) }, rank: 3}
	w.last(rank.Event{Kind: rank.EventError})
	w.send(rank.Event{Kind: rank.EventMeasured})
	if got := strings.Count(out.String(), "\n"); got != 1 || !strings.Contains(out.String(), `"rank":3`) {
		t.Errorf("events: %q", out.String())
	}
}

func TestCodes(t *testing.T) {
	call := &engine.CallError{Call: "ncclAllReduce", Code: 1}
	for _, tt := range []struct {
		step string
		err  error
		want string
	}{
		{StepLoad, &engine.LibraryMissingError{File: "x", Err: io.EOF}, rank.CodeLibraryMissing},
		{StepLoad, &engine.SymbolMissingError{}, rank.CodeSymbolMissing},
		{StepLoad, &engine.LibraryTooOldError{}, rank.CodeLibraryTooOld},
		{StepPreconditions, &engine.InsufficientMemoryError{}, rank.CodeInsufficientMemory},
		{StepPreconditions, call, rank.CodePreconditionFailed},
		{StepInit, call, rank.CodeInitFailed},
		{StepInit, &engine.DeadlineError{Deadline: time.Second}, rank.CodeRankHung},
		{"AllReduce", call, rank.CodeCollectiveFailed},
		{"AllReduce", &engine.RequestError{Err: io.EOF}, rank.CodeBadSpec},
		{StepDestroy, call, rank.CodeCollectiveFailed},
	} {
		if got := describe(tt.step, tt.err); got.Code != tt.want || got.Message != tt.err.Error() {
			t.Errorf("%s %T: %+v, want %s", tt.step, tt.err, got, tt.want)
		}
		if got := describe(tt.step, tt.err); (got.Limit == time.Second) != (tt.want == rank.CodeRankHung) {
			t.Errorf("%s %T: limit %s", tt.step, tt.err, got.Limit)
		}
	}
}
