package worker

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
)

// eventWriter writes events as JSON lines. After it is closed nothing more is written, so that a worker that comes back
// late cannot speak after its error.
type eventWriter struct {
	mu     sync.Mutex
	out    io.Writer
	now    func() time.Time
	rank   int
	closed bool
	err    error
}

func (w *eventWriter) send(e rank.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(e)
}

// last writes a final event.
func (w *eventWriter) last(e rank.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(e)
	w.closed = true
}

func (w *eventWriter) write(e rank.Event) {
	if w.closed || w.err != nil {
		return
	}
	e.Rank, e.Time = w.rank, w.now().UTC()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	w.err = err
}

// failed is the first error of writing: the parent is gone then.
func (w *eventWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
