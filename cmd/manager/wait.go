package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// startDeadline bounds the wait for the API server at the start. A manager that ended sooner would be held back by
	// the kubelet for up to five minutes after the API server is there again.
	startDeadline = 10 * time.Minute
	// attemptDeadline bounds one attempt, and startPause is the time between two.
	attemptDeadline = 30 * time.Second
	startPause      = 2 * time.Second
)

// errUnanswered marks an error that says nothing but that the API server did not answer.
var errUnanswered = errors.New("the API server did not answer")

// unanswered says whether to try again may help. NotFound and Forbidden are answers: they stand until a user acts.
func unanswered(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)
}

// untilAnswered calls attempt until its error is not errUnanswered, for startDeadline at most. pause waits between two
// attempts, or until the context ends.
func untilAnswered(ctx context.Context, step string, pause func(context.Context),
	attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startDeadline,
		fmt.Errorf("%s: no answer within %s; check whether the API server can be reached from this pod",
			step, startDeadline))
	defer cancel()
	for {
		err := func() error {
			one, cancel := context.WithTimeout(ctx, attemptDeadline)
			defer cancel()
			return attempt(one)
		}()
		if !errors.Is(err, errUnanswered) {
			return err
		}
		ctrl.Log.WithName("start").Info("Waiting for the API server", "step", step, "cause", err.Error(),
			"deadline", startDeadline.String())
		if pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("%w; the last attempt: %w", context.Cause(ctx), err)
		}
	}
}

// pauseAtStart waits for startPause.
func pauseAtStart(ctx context.Context) {
	timer := time.NewTimer(startPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// probesWhileWaiting answers the kubelet until the manager itself does: alive, so that it is not restarted for the API
// server's absence, and not ready. The returned function ends it and frees the port.
func probesWhileWaiting(ctx context.Context, address string) (end func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for probes on %s: %w; set --health-port to a free port", address, err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
			}
		})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with ErrServerClosed
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
