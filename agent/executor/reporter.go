package executor

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/commtask"
)

const (
	attemptTimeout = 10 * time.Second
	backoffFirst   = 500 * time.Millisecond
	backoffMax     = 10 * time.Second
)

// reporter writes reports of one kind to the API server.
type reporter[S any] struct {
	// write makes one attempt; commtask.ErrSuperseded and ErrRejected are final.
	write func(ctx context.Context, report S) error
	// verdictOnly is a report that any API server of this version takes.
	verdictOnly func(report S, cause error) S
	clock       clock.Clock
	log         *slog.Logger
}

// once makes one attempt.
func (r reporter[S]) once(ctx context.Context, report S) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return r.write(ctx, report)
}

// untilTaken tries a report, or a newer one that comes meanwhile, until one is taken or refused for good, until is
// over (zero means never), or ctx ends. It returns what it tried last, and the error of the last attempt.
func (r reporter[S]) untilTaken(ctx context.Context, report S, newer <-chan S, until time.Time) (S, error) {
	backoff, reduced := backoffFirst, false
	var tried error
	for {
		err := r.once(ctx, report)
		switch {
		case err == nil, errors.Is(err, commtask.ErrSuperseded):
			return report, err
		case errors.Is(err, commtask.ErrRejected) && !reduced:
			r.log.Error("report rejected, trying it with the verdict only", "error", err)
			report, reduced = r.verdictOnly(report, err), true
			continue
		case errors.Is(err, commtask.ErrRejected):
			return report, err
		case ctx.Err() == nil || tried == nil:
			tried = err
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if ctx.Err() != nil || !until.IsZero() && r.clock.Now().Add(wait).After(until) {
			return report, tried
		}
		r.log.Warn("report not written, trying again", "error", err, "after", wait.String())
		timer := r.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return report, tried
		case report = <-newer:
			reduced = false
		case <-timer.C():
		}
		timer.Stop()
		backoff = min(2*backoff, backoffMax)
	}
}

// last writes the last report, for at most so long, and for interrupted once ctx has ended: who is told to stop still
// says so, within its grace.
func (r reporter[S]) last(ctx context.Context, report S, within, interrupted time.Duration) (S, error) {
	wctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(interrupted, cancel) })()
	return r.untilTaken(wctx, report, nil, r.clock.Now().Add(within))
}

// background writes the newest report until it is taken, so that a slow API server keeps no rank waiting.
type background[S any] struct {
	in     newest[S]
	fatal  chan error // at most one: nobody waits for reports any more
	cancel context.CancelFunc
	done   chan struct{}
}

func (r reporter[S]) start() *background[S] {
	ctx, cancel := context.WithCancel(context.Background())
	b := &background[S]{in: newNewest[S](), fatal: make(chan error, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for {
			select {
			case <-ctx.Done():
				return
			case report := <-b.in:
				if _, err := r.untilTaken(ctx, report, b.in, time.Time{}); err != nil && ctx.Err() == nil {
					b.fatal <- err
					return
				}
			}
		}
	}()
	return b
}

// put hands over the newest report. One that was not written yet gives way: the newer one says all that it said.
func (b *background[S]) put(report S) { b.in.put(report) }

// stop ends the writing.
func (b *background[S]) stop() {
	b.cancel()
	<-b.done
}
