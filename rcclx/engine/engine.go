// Package engine forms communicators and measures collectives through the C ABI that RCCL, RCCLX and NCCL share, by
// dlopen and without cgo. A binary that imports it needs glibc's loader.
package engine

import (
	"errors"
	"time"

	"github.com/ebitengine/purego"

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

// Polling begins often, so that short steps end soon, and slows down, so that many ranks on few processors do not take
// them from the work that they wait for.
const (
	firstPoll = 20 * time.Microsecond
	lastPoll  = 2 * time.Millisecond
	// asyncEvery is how many polls pass between two looks at the communicator's asynchronous error.
	asyncEvery = 8
)

// Engine measures with one communicator on one device. All its methods belong to the OS thread that made it. None waits
// for the device without a deadline; a call that blocks inside the library is for the caller's watchdog.
type Engine struct {
	lib   *Library
	clock Clock

	rank, ranks int
	comm        uintptr
	nonBlocking bool
	stream      uintptr
	// events for the batches of a measurement, and done for waits.
	events     []uintptr
	done       uintptr
	send, recv buffer
	// scratch is for the barrier before the timed calls, and for the slowest rank's time after them.
	scratch buffer
	// seeded says that all of the send buffer has been written to.
	seeded bool
	// modelled says that a model gives the times, so that caches, noise and the cost of events do not show.
	modelled bool
	// filled says what the send buffer holds.
	filled filling
	tiles  tiles
	stage  []byte
}

// buffer is device memory for messages of up to so many bytes; the send buffer has shiftBytes more.
type buffer struct {
	address devicePointer
	bytes   int64
}

// shiftBytes is how much further on the checked call's data begin in the send buffer.
const shiftBytes = rcclx.SendShiftBytes

// scratchBytes is one int64.
const scratchBytes = 8

// filling is what the send buffer holds from its start.
type filling struct {
	datatype rcclx.Datatype
	data     rcclx.Data
	bytes    int64
}

// NewEngine makes the stream and the events on the current device.
func NewEngine(lib *Library, rank, ranks int, clock Clock) (*Engine, error) {
	e := &Engine{lib: lib, clock: clock, rank: rank, ranks: ranks, tiles: tiles{}, modelled: lib.info.Simulated()}
	var err error
	if e.stream, err = lib.Runtime.newStream(); err != nil {
		return nil, err
	}
	if e.done, err = lib.Runtime.newEvent(); err != nil {
		return nil, err
	}
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
	shortage := &InsufficientMemoryError{NeededBytes: need.TotalBytes(), BufferBytes: need.BufferBytes(), LibraryBytes: need.LibraryBytes, FreeBytes: free}
	if shortage.NeededBytes > free {
		return shortage
	}
	for _, want := range []struct {
		to           *buffer
		bytes, extra int64
	}{{&e.send, need.SendBytes, need.SendShiftBytes}, {&e.recv, need.RecvBytes, 0}, {&e.scratch, scratchBytes, 0}} {
		if want.bytes == 0 {
			continue
		}
		address, err := e.lib.Runtime.allocate(want.bytes + want.extra)
		var call *CallError
		if errors.As(err, &call) && call.Code == runtimeOutOfMemory {
			return shortage
		}
		if err != nil {
			return err
		}
		*want.to = buffer{address, want.bytes}
	}
	return nil
}

// limit is the time that one measurement has.
type limit struct {
	until    time.Time
	deadline time.Duration
}

func (e *Engine) limit(deadline time.Duration) limit {
	return limit{e.clock.Now().Add(deadline), deadline}
}

// wait polls until all that was queued on the stream is done, or the limit is over, or the library reports an error.
func (e *Engine) wait(waiting string, l limit) error {
	if err := e.lib.Runtime.record(e.done, e.stream); err != nil {
		return err
	}
	return e.waitEvent(e.done, waiting, l)
}

func (e *Engine) waitEvent(event uintptr, waiting string, l limit) error {
	pause := firstPoll
	for polls := 1; ; polls++ {
		done, err := e.lib.Runtime.done(event)
		if err != nil || done {
			return err
		}
		if e.comm != 0 && polls%asyncEvery == 0 {
			async, err := e.asyncResult()
			if err != nil {
				return err
			}
			if async != resultInProgress {
				if err := e.lib.check("the communicator (ncclCommGetAsyncError)", e.comm, async); err != nil {
					return err
				}
			}
		}
		if e.clock.Now().After(l.until) {
			return &DeadlineError{Waiting: waiting, Deadline: l.deadline}
		}
		e.clock.Sleep(pause)
		pause = min(2*pause, lastPoll)
	}
}

// Close destroys the communicator and frees the buffers. It is for the end of a run without errors: with a hung kernel
// it would block, and the end of the process frees everything anyway. The deadline holds where the communicator does
// not block; else the caller's watchdog's does.
func (e *Engine) Close(deadline time.Duration) error {
	var errs []error
	if e.comm != 0 {
		if err := e.finalize(deadline); err != nil {
			return err
		}
		result, _, _ := purego.SyscallN(e.lib.commDestroy, e.comm)
		errs = append(errs, e.lib.check("ncclCommDestroy", 0, int32(result)))
		e.comm = 0
	}
	r := e.lib.Runtime
	for _, b := range []*buffer{&e.send, &e.recv, &e.scratch} {
		if b.bytes != 0 {
			errs = append(errs, r.release(b.address))
			*b = buffer{}
		}
	}
	for _, event := range append(e.events, e.done) {
		errs = append(errs, r.call("EventDestroy", r.destroy, event))
	}
	errs = append(errs, r.call("StreamDestroy", r.streamDestroy, e.stream))
	e.events, e.done, e.stream = nil, 0, 0
	return errors.Join(errs...)
}

// finalize waits until a communicator that does not block is idle, as it must be before it is destroyed (nccl.h,
// ncclCommFinalize).
func (e *Engine) finalize(deadline time.Duration) error {
	if !e.nonBlocking || e.lib.commFinalize == 0 {
		return nil
	}
	result, _, _ := purego.SyscallN(e.lib.commFinalize, e.comm)
	return e.settle("ncclCommFinalize", int32(result), e.limit(deadline))
}
