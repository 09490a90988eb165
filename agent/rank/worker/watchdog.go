package worker

import (
	"sync"
	"time"
)

// missed is a step that did not end within its deadline.
type missed struct {
	step     string
	deadline time.Duration
}

// watchdog reports a step that is not over in time. It catches what the engine's own deadlines cannot: a call that
// blocks inside the library.
type watchdog struct {
	mu         sync.Mutex
	generation int
	timer      *time.Timer
	fired      chan missed
}

func newWatchdog() *watchdog { return &watchdog{fired: make(chan missed, 1)} }

// enter starts the watch over a step and ends that over the one before. A deadline that is not positive means no watch.
func (w *watchdog) enter(step string, deadline time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked()
	if deadline <= 0 {
		return
	}
	generation := w.generation
	w.timer = time.AfterFunc(deadline, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if generation != w.generation {
			return
		}
		select {
		case w.fired <- missed{step, deadline}:
		default:
		}
	})
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked()
}

func (w *watchdog) stopLocked() {
	w.generation++
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
