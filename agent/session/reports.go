package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"rcclx.io/commgroup-operator/agent/commnode"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
)

const (
	attemptTimeout = 10 * time.Second
	backoffFirst   = 500 * time.Millisecond
	backoffMax     = 10 * time.Second
)

// reports writes the newest report until it is taken, so that a slow API server keeps no rank waiting.
type reports struct {
	*Session
	in     newest[api.SessionStatus]
	fatal  chan error // at most one: nobody waits for reports any more
	cancel context.CancelFunc
	done   chan struct{}
}

func startReports(s *Session) *reports {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reports{Session: s, in: newNewest[api.SessionStatus](), fatal: make(chan error, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-r.in:
				if err := r.write(ctx, s); err != nil {
					r.fatal <- err
					return
				}
			}
		}
	}()
	return r
}

// put hands over the newest report. One that was not written yet gives way: the newer one says all that it said.
func (r *reports) put(s api.SessionStatus) { r.in.put(s) }

// stop ends the writing.
func (r *reports) stop() {
	r.cancel()
	<-r.done
}

// last writes the last report, for at most so long.
func (r *reports) last(s api.SessionStatus, within time.Duration) error {
	r.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := r.Clock.NewTimer(within)
	defer timer.Stop()
	result := make(chan error, 1)
	r.in = newNewest[api.SessionStatus]()
	var tried error
	go func() { result <- r.writeOnce(ctx, s, &tried) }()
	select {
	case err := <-result:
		return err
	case <-timer.C():
		cancel()
		if err := <-result; err == nil {
			return nil
		}
		return fmt.Errorf("it was tried for %s: %w", within, tried)
	}
}

// write writes a report, or a newer one that comes while the first is not taken. Its error is final.
func (r *reports) write(ctx context.Context, s api.SessionStatus) error {
	var tried error
	err := r.writeOnce(ctx, s, &tried)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// writeOnce tries until a report is taken, refused for good, or ctx ends. tried is the error of the last attempt.
func (r *reports) writeOnce(ctx context.Context, s api.SessionStatus, tried *error) error {
	wait, reduced := backoffFirst, false
	for {
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := r.Link.Report(actx, s)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, commnode.ErrSuperseded):
			return err
		case errors.Is(err, commnode.ErrRejected) && !reduced:
			r.Log.Error("report rejected, trying it with the verdicts only", "error", err)
			s, reduced = verdictsOnly(s, err), true
			continue
		case errors.Is(err, commnode.ErrRejected):
			return err
		}
		if ctx.Err() == nil || *tried == nil {
			*tried = err
		}
		r.Log.Warn("report not written, trying again", "error", err, "after", wait.String())
		timer := r.Clock.NewTimer(wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case s = <-r.in:
			reduced = false
		case <-timer.C():
		}
		timer.Stop()
		wait = min(2*wait, backoffMax)
	}
}

// verdictsOnly is a report that any API server of this version takes.
func verdictsOnly(s api.SessionStatus, cause error) api.SessionStatus {
	out := api.SessionStatus{RunID: s.RunID, State: s.State, Reason: s.Reason, Message: s.Message, Network: s.Network, Library: s.Library, SettingsHash: s.SettingsHash}
	if s.Task == nil {
		return out
	}
	out.Task = &api.NodeTaskStatus{ID: s.Task.ID, Phase: s.Task.Phase}
	for _, c := range s.Task.Communicators {
		out.Task.Communicators = append(out.Task.Communicators, api.TaskCommunicatorStatus{Name: c.Name, UniqueID: c.UniqueID, Verdict: c.Verdict, Reason: c.Reason, OmittedSeries: c.OmittedSeries + int32(len(c.Results)),
			Message: clip.Head(clip.Head(c.Message, 300)+"; details are only in the pod's log, since the API server rejected them: "+cause.Error(), 512)})
	}
	return out
}
