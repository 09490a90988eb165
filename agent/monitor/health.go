package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Health says over HTTP how the monitor is: /readyz and /healthz are 200 while a report of it holds, /livez while it
// looks at the node. A nil Health is usable and does nothing.
type Health struct {
	clock           clock.PassiveClock
	interval, valid time.Duration

	mu                   sync.Mutex
	lastLook, lastReport time.Time
}

// NewHealth makes a Health for a monitor of this interval and validity.
func NewHealth(c clock.PassiveClock, interval, valid time.Duration) *Health {
	return &Health{clock: c, interval: interval, valid: valid, lastLook: c.Now()}
}

func (h *Health) looked(now time.Time) {
	if h != nil {
		h.mu.Lock()
		h.lastLook = now
		h.mu.Unlock()
	}
}

func (h *Health) reported(now time.Time) {
	if h != nil {
		h.mu.Lock()
		h.lastReport = now
		h.mu.Unlock()
	}
}

// ready returns why the monitor is not ready; nil where it is.
func (h *Health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch age := h.clock.Since(h.lastReport); {
	case h.lastReport.IsZero():
		return errors.New("no report was written yet")
	case age > h.valid:
		return fmt.Errorf("the last report was written %s ago and held for %s", age.Round(time.Second), h.valid)
	}
	return nil
}

// alive returns why the monitor counts as stuck; nil where it does not.
func (h *Health) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := 3*h.interval + scanDeadline + writeDeadline + 2*maxBackoff
	if age := h.clock.Since(h.lastLook); age > limit {
		return fmt.Errorf("the last look at the node was %s ago, expected at most %s", age.Round(time.Second), limit)
	}
	return nil
}

// ServeHTTP answers /readyz, /healthz and /livez.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.URL.Path {
	case "/readyz", "/healthz":
		err = h.ready()
	case "/livez":
		err = h.alive()
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Serve answers on the listener until ctx ends, which is no error.
func (h *Health) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health endpoint %s: %w", listener.Addr(), err)
	}
	return nil
}
