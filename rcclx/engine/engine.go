// Package engine forms communicators and measures collectives through the C ABI that RCCL, RCCLX and NCCL share, by
// dlopen and without cgo. A binary that imports it needs glibc's loader.
package engine

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

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
	stream      uintptr
	events      []uintptr
	send, recv  devicePointer
	sendBytes   int64
	recvBytes   int64
	// filled says which pattern the send buffer holds.
	filled filling
	stage  []byte
}

type filling struct {
	datatype  rcclx.Datatype
	quantised bool
	bytes     int64
}

// NewEngine makes the stream and the events on the current device.
func NewEngine(lib *Library, rank, ranks int, clock Clock) (*Engine, error) {
	e := &Engine{lib: lib, clock: clock, rank: rank, ranks: ranks}
	var err error
	if e.stream, err = lib.Runtime.newStream(); err != nil {
		return nil, err
	}
	for range maxRepeats + 1 {
		event, err := lib.Runtime.newEvent()
		if err != nil {
			return nil, err
		}
		e.events = append(e.events, event)
	}
	return e, nil
}

// Allocate checks that the device has room for the buffers and for what the library will take, and allocates the
// buffers. It comes before Join, which is where the library allocates.
func (e *Engine) Allocate(sendBytes, recvBytes, ofLibraryBytes int64) error {
	free, _, err := e.lib.Runtime.Memory()
	if err != nil {
		return err
	}
	shortage := &InsufficientMemoryError{NeededBytes: sendBytes + recvBytes + ofLibraryBytes, BufferBytes: sendBytes + recvBytes,
		LibraryBytes: ofLibraryBytes, FreeBytes: free}
	if shortage.NeededBytes > free {
		return shortage
	}
	for _, buffer := range []struct {
		to    *devicePointer
		bytes *int64
		size  int64
	}{{&e.send, &e.sendBytes, sendBytes}, {&e.recv, &e.recvBytes, recvBytes}} {
		if buffer.size == 0 {
			continue
		}
		address, err := e.lib.Runtime.allocate(buffer.size)
		var call *CallError
		if errors.As(err, &call) && call.Code == runtimeOutOfMemory {
			return shortage
		}
		if err != nil {
			return err
		}
		*buffer.to, *buffer.bytes = address, buffer.size
	}
	return nil
}

// UniqueID makes the id that binds the ranks of one communicator; rank 0 hands it to the others.
func (l *Library) UniqueID() ([]byte, error) {
	var id uniqueID
	result, _, _ := purego.SyscallN(l.getUniqueID, uintptr(unsafe.Pointer(&id)))
	if err := l.check("ncclGetUniqueId", 0, int32(result)); err != nil {
		return nil, err
	}
	return id.internal[:], nil
}

func (l *Library) check(call string, comm uintptr, result int32) error {
	if result == resultSuccess {
		return nil
	}
	text := l.errorString(result)
	if detail := l.lastError(comm); detail != "" {
		text += ": " + detail
	}
	return &CallError{Call: call, Code: int(result), Text: text}
}

// Join forms the communicator. The call blocks inside the library until every rank has come: a non-blocking
// communicator would start a thread for each call and so change what is measured. The deadline holds where the library
// answers that it is still at work; a call that never comes back is for the caller's watchdog.
func (e *Engine) Join(id []byte, deadline time.Duration) error {
	if len(id) != UniqueIDBytes {
		return &RequestError{fmt.Errorf("the unique id has %d bytes, want %d", len(id), UniqueIDBytes)}
	}
	var value uniqueID
	copy(value.internal[:], id)
	result := e.lib.commInitRank(&e.comm, int32(e.ranks), value, int32(e.rank))
	return e.settle("ncclCommInitRank", result, e.clock.Now().Add(deadline), deadline)
}

// settle turns a result into an error; where the library says that it is still at work (NCCL_COMM_BLOCKING=0), it asks
// until it is done.
func (e *Engine) settle(call string, result int32, until time.Time, deadline time.Duration) error {
	for pause := firstPoll; result == resultInProgress; pause = min(2*pause, lastPoll) {
		if e.clock.Now().After(until) {
			return &DeadlineError{Waiting: call, Deadline: deadline}
		}
		e.clock.Sleep(pause)
		var err error
		if result, err = e.asyncResult(); err != nil {
			return err
		}
	}
	return e.lib.check(call, e.comm, result)
}

func (e *Engine) asyncResult() (int32, error) {
	var async int32
	result, _, _ := purego.SyscallN(e.lib.getAsyncError, e.comm, uintptr(unsafe.Pointer(&async)))
	return async, e.lib.check("ncclCommGetAsyncError", e.comm, int32(result))
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
	last := e.events[len(e.events)-1]
	if err := e.lib.Runtime.record(last, e.stream); err != nil {
		return err
	}
	return e.waitEvent(last, waiting, l)
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
// it would block, and the end of the process frees everything anyway.
func (e *Engine) Close() error {
	var errs []error
	if e.comm != 0 {
		result, _, _ := purego.SyscallN(e.lib.commDestroy, e.comm)
		errs = append(errs, e.lib.check("ncclCommDestroy", 0, int32(result)))
		e.comm = 0
	}
	r := e.lib.Runtime
	for _, buffer := range []*devicePointer{&e.send, &e.recv} {
		if *buffer != 0 {
			errs = append(errs, r.release(*buffer))
			*buffer = 0
		}
	}
	for _, event := range e.events {
		errs = append(errs, r.call("EventDestroy", r.destroy, event))
	}
	errs = append(errs, r.call("StreamDestroy", r.streamDestroy, e.stream))
	e.events, e.stream = nil, 0
	return errors.Join(errs...)
}

// collect queues one collective call; sizes are the caller's duty.
func (e *Engine) collect(c rcclx.Collective, d rcclx.Datatype, count int64) (string, int32) {
	l, n, kind := e.lib, uintptr(count), ncclDatatype(d)
	send, recv := uintptr(e.send), uintptr(e.recv)
	var result uintptr
	switch c {
	case rcclx.AllReduce:
		result, _, _ = purego.SyscallN(l.allReduce, send, recv, n, kind, redOpSum, e.comm, e.stream)
		return "ncclAllReduce", int32(result)
	case rcclx.AllGather:
		result, _, _ = purego.SyscallN(l.allGather, send, recv, n, kind, e.comm, e.stream)
		return "ncclAllGather", int32(result)
	case rcclx.ReduceScatter:
		result, _, _ = purego.SyscallN(l.reduceScatter, send, recv, n, kind, redOpSum, e.comm, e.stream)
		return "ncclReduceScatter", int32(result)
	}
	if l.allToAll != 0 {
		result, _, _ = purego.SyscallN(l.allToAll, send, recv, n, kind, e.comm, e.stream)
		return "ncclAlltoAll", int32(result)
	}
	return e.group(func(queue func(function, buffer uintptr, peer int)) {
		for peer := range e.ranks {
			offset := int64(peer) * count * d.Bytes()
			queue(l.send, e.send.at(offset), peer)
			queue(l.recv, e.recv.at(offset), peer)
		}
	}, n, kind)
}

// group queues sends and receives of n elements as one operation, and gives the first result that is not success.
func (e *Engine) group(body func(queue func(function, buffer uintptr, peer int)), n, kind uintptr) (string, int32) {
	start, _, _ := purego.SyscallN(e.lib.groupStart)
	if int32(start) != resultSuccess {
		return "ncclGroupStart", int32(start)
	}
	var failed int32
	var name string
	body(func(function, buffer uintptr, peer int) {
		result, _, _ := purego.SyscallN(function, buffer, n, kind, uintptr(peer), e.comm, e.stream)
		if r := int32(result); r != resultSuccess && r != resultInProgress && failed == 0 {
			failed = r
			if name = "ncclSend"; function == e.lib.recv {
				name = "ncclRecv"
			}
		}
	})
	end, _, _ := purego.SyscallN(e.lib.groupEnd)
	if failed != 0 {
		return name, failed
	}
	return "ncclGroupEnd", int32(end)
}
