// Package engine forms communicators and measures collectives through the C ABI that RCCL, RCCLX and NCCL share, by
// dlopen and without cgo. A binary that imports it needs glibc's loader.
package engine

import (
	"errors"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// Clock is the time that deadlines are held against.
type Clock interface {
	Now() time.Time
	Sleep(time.Duration)
}

// SystemClock is the real one.
type SystemClock struct{}

// Now is the present time.
func (SystemClock) Now() time.Time { return time.Now() }

// Sleep pauses the calling goroutine.
func (SystemClock) Sleep(d time.Duration) { time.Sleep(d) }

// Engine measures with one communicator on one device. All its methods belong to the OS thread that made it. None waits
// for the device without a deadline; a call that blocks inside the library is for the caller's watchdog.
type Engine struct {
	lib     *Library
	comm    *communicator
	buffers *buffers
	// events between the repeats of a measurement.
	events []uintptr
	tiles  tiles
	// modelled says that a model gives the times, so that caches, noise and the cost of events do not show.
	modelled bool
}

// NewEngine makes the stream and the events on the current device.
func NewEngine(lib *Library, rank, ranks int, clock Clock) (*Engine, error) {
	comm, err := newCommunicator(lib, rank, ranks, clock)
	if err != nil {
		return nil, err
	}
	e := &Engine{lib: lib, comm: comm, buffers: &buffers{comm: comm}, tiles: tiles{}, modelled: lib.info.Simulated()}
	for range maxRepeats + 1 {
		event, err := lib.Runtime.newTimingEvent()
		if err != nil {
			return nil, err
		}
		e.events = append(e.events, event)
	}
	return e, nil
}

// Allocate checks that the device has room for the buffers and for what the library will take, and allocates the
// buffers. It comes before Join, which is where the library allocates.
func (e *Engine) Allocate(need rcclx.Memory) error {
	free, _, err := e.lib.Runtime.Memory()
	if err != nil {
		return err
	}
	shortage := &InsufficientMemoryError{NeededBytes: need.TotalBytes(), BufferBytes: need.BufferBytes(),
		LibraryBytes: need.LibraryBytes, FreeBytes: free}
	if shortage.NeededBytes > free {
		return shortage
	}
	err = e.buffers.allocate(need)
	var call *CallError
	if errors.As(err, &call) && call.Code == runtimeOutOfMemory {
		return shortage
	}
	return err
}

// Join forms the communicator; one without blocking needs a library of 2.14 or later, else it blocks. Blocking, the
// call is inside the library until every rank has come; the deadline then holds only where the library answers that it
// is still at work (NCCL_COMM_BLOCKING=0), and a call that never comes back is for the caller's watchdog (see
// StuckInit). Non-blocking, the deadline always holds, but the library then starts a thread for each call that is
// queued.
func (e *Engine) Join(id []byte, nonBlocking bool, deadline time.Duration) error {
	if len(id) != UniqueIDBytes {
		return &RequestError{fmt.Errorf("the unique id has %d bytes, want %d: it was cut or is of another library",
			len(id), UniqueIDBytes)}
	}
	return e.comm.form(id, nonBlocking, deadline)
}

// Close destroys the communicator and frees the buffers. It is for the end of a run without errors: with a hung kernel
// it would block, and the end of the process frees everything anyway. The deadline holds where the communicator does
// not block; else the caller's watchdog's does.
func (e *Engine) Close(deadline time.Duration) error {
	var errs []error
	if e.comm.handle != 0 {
		if err := e.comm.finalize(deadline); err != nil {
			return err
		}
		errs = append(errs, e.comm.destroy())
	}
	errs = append(errs, e.buffers.release())
	r := e.lib.Runtime
	for _, event := range append(e.events, e.comm.done) {
		errs = append(errs, r.call("EventDestroy", r.destroy, event))
	}
	errs = append(errs, r.call("StreamDestroy", r.streamDestroy, e.comm.stream))
	e.events, e.comm.done, e.comm.stream = nil, 0, 0
	return errors.Join(errs...)
}
