package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/commtask"
)

// answering is a reporter whose attempts get these answers, the last of them for ever, and what was tried.
func answering(c clock.Clock, answers ...error) (reporter[string], *[]string) {
	var tried []string
	return reporter[string]{clock: c, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		write: func(_ context.Context, report string) error {
			tried = append(tried, report)
			return answers[min(len(tried), len(answers))-1]
		},
		verdictOnly: func(report string, _ error) string { return report + ", verdict only" },
	}, &tried
}

// TestUntilTaken: a report is tried until it is taken or refused for good.
func TestUntilTaken(t *testing.T) {
	down, rejected, superseded := errors.New("connection refused"),
		fmt.Errorf("%w: no such field", commtask.ErrRejected), fmt.Errorf("%w: another run", commtask.ErrSuperseded)
	for name, tc := range map[string]struct {
		answers []error
		tried   []string
		err     error
	}{
		"at once":               {[]error{nil}, []string{"a"}, nil},
		"once the server is up": {[]error{down, down, nil}, []string{"a", "a", "a"}, nil},
		"with the verdict only": {[]error{down, rejected, down, nil},
			[]string{"a", "a", "a, verdict only", "a, verdict only"}, nil},
		"not even that":       {[]error{rejected}, []string{"a", "a, verdict only"}, commtask.ErrRejected},
		"nobody waits for it": {[]error{down, superseded}, []string{"a", "a"}, commtask.ErrSuperseded},
	} {
		r, tried := answering(&steppingClock{clocktesting.NewFakeClock(time.Unix(0, 0))}, tc.answers...)
		last, err := r.untilTaken(t.Context(), "a", nil, time.Time{})
		if !slices.Equal(*tried, tc.tried) || !errors.Is(err, tc.err) || last != tc.tried[len(tc.tried)-1] {
			t.Errorf("%s: tried %q, last %q, error %v", name, *tried, last, err)
		}
	}
}

// TestLastReport: it is tried for so long, with longer and longer waits, and what kept it from being taken is said.
func TestLastReport(t *testing.T) {
	down := errors.New("connection refused")
	c := &steppingClock{clocktesting.NewFakeClock(time.Unix(0, 0))}
	r, tried := answering(c, down)
	_, err := r.last(t.Context(), "a", time.Minute, time.Hour)
	if n := len(*tried); !errors.Is(err, down) || n < 8 || n > 18 || c.Now().After(time.Unix(60, 0)) ||
		c.Now().Before(time.Unix(49, 0)) {
		t.Errorf("%d attempts in %s: %v", n, c.Since(time.Unix(0, 0)), err)
	}
	// Who was told to stop has no time to wait.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, tried = answering(clocktesting.NewFakeClock(time.Unix(0, 0)), down)
	if _, err := r.last(ctx, "a", time.Minute, 0); !errors.Is(err, down) || len(*tried) != 1 {
		t.Errorf("interrupted: %d attempts: %v", len(*tried), err)
	}
}

// TestNewerReport: it takes the place of one that is not taken, and is whole again.
func TestNewerReport(t *testing.T) {
	r, tried := answering(clocktesting.NewFakeClock(time.Unix(0, 0)), commtask.ErrRejected,
		errors.New("connection refused"), nil)
	newer := newNewest[string]()
	newer.put("b")
	newer.put("c")
	last, err := r.untilTaken(t.Context(), "a", newer, time.Time{})
	if want := []string{"a", "a, verdict only", "c"}; err != nil || last != "c" || !slices.Equal(*tried, want) {
		t.Errorf("tried %q, last %q, error %v", *tried, last, err)
	}
}
