package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// config is ncclConfig_t as it was in 2.18, which added splitShare. Every library from 2.14 on reads it: it takes no
// more than its own size and the caller's, checks the magic number, and sets what is newer than the caller's version to
// its defaults (nccl src/init.cc, parseCommConfig). Layouts of later versions differ between NVIDIA's and AMD's builds.
type config struct {
	size                                       uint64
	magic, version                             uint32
	blocking, cgaClusterSize, minCTAs, maxCTAs int32
	_                                          uintptr // netName
	splitShare                                 int32
	_                                          [4]byte
}

const (
	configMagic   = 0xcafebeef // nccl.h, NCCL_CONFIG_INITIALIZER
	configVersion = 21800
	configUnset   = math.MinInt32 // nccl.h, NCCL_CONFIG_UNDEF_INT
)

func nonBlockingConfig() config {
	c := config{magic: configMagic, version: configVersion, blocking: 0, cgaClusterSize: configUnset, minCTAs: configUnset,
		maxCTAs: configUnset, splitShare: configUnset}
	c.size = uint64(unsafe.Sizeof(c))
	return c
}

// abortDeadline bounds the attempt to end a communicator that never formed. The process exits after it anyway.
const abortDeadline = 500 * time.Millisecond

// Join forms the communicator; one without blocking needs a library of 2.14 or later, else it blocks. Blocking, the
// call is inside the library until every rank has come; the deadline then holds only where the library answers that it
// is still at work (NCCL_COMM_BLOCKING=0), and a call that never comes back is for the caller's watchdog (see
// StuckInit). Non-blocking, the deadline always holds, but the library then starts a thread for each call that is
// queued.
func (e *Engine) Join(id []byte, nonBlocking bool, deadline time.Duration) error {
	if len(id) != UniqueIDBytes {
		return &RequestError{fmt.Errorf("the unique id has %d bytes, want %d: it was cut or is of another library", len(id), UniqueIDBytes)}
	}
	var value uniqueID
	copy(value.internal[:], id)
	l := e.limit(deadline)
	call, result := "ncclCommInitRank", int32(0)
	nonBlocking = nonBlocking && e.lib.info.NonBlocking()
	if nonBlocking {
		if e.lib.commInitRankConfig == nil {
			return &SymbolMissingError{Symbol: "ncclCommInitRankConfig", File: e.lib.info.Path}
		}
		c := nonBlockingConfig()
		call, result = "ncclCommInitRankConfig", e.lib.commInitRankConfig(&e.comm, int32(e.ranks), value, int32(e.rank), &c)
	} else {
		result = e.lib.commInitRank(&e.comm, int32(e.ranks), value, int32(e.rank))
	}
	e.nonBlocking = nonBlocking || result == resultInProgress
	if nonBlocking && result == resultSuccess {
		var err error
		if result, err = e.asyncResult(); err != nil {
			return err
		}
	}
	return e.explainInit(e.settle(call, result, l), id)
}

// explainInit adds to an error of init what a user needs to find its cause.
func (e *Engine) explainInit(err error, id []byte) error {
	var deadline *DeadlineError
	var call *CallError
	switch {
	case errors.As(err, &deadline):
		deadline.Detail = e.lib.StuckInit(e.comm, e.rank, e.ranks, id)
		if e.abort(abortDeadline) {
			deadline.Detail += "; ncclCommAbort has ended the attempt"
		} else {
			deadline.Detail += fmt.Sprintf("; ncclCommAbort did not end the attempt within %s", abortDeadline)
		}
	case errors.As(err, &call) && call.Code == resultInvalidArgument:
		call.Text += fmt.Sprintf(" (it was asked for rank %d of %d ranks: every rank must be under the world size, and that the same on all)", e.rank, e.ranks)
	case errors.As(err, &call) && call.Code == resultInvalidUsage:
		call.Text += fmt.Sprintf(" (rank %d of %d on device %s at %s: every rank needs a GPU of its own)", e.rank, e.ranks, e.lib.info.DeviceName, e.lib.info.PCIAddress)
	case errors.As(err, &call):
		call.Text += "; " + e.lib.StuckInit(0, e.rank, e.ranks, id)
	}
	return err
}

// StuckInit says of a communicator that does not form what is known. It may be called from another thread than the
// engine's.
func (l *Library) StuckInit(comm uintptr, rank, ranks int, id []byte) string {
	text := fmt.Sprintf("rank %d of %d waits for ranks that never came, or that have another world size, or its unique id is from another run", rank, ranks)
	if address, ok := idAddress(id, l.info.VersionCode); ok {
		text += fmt.Sprintf("; the id names %s, where rank 0 of its run must listen", address)
	}
	if detail := l.lastError(comm); detail != "" {
		text += "; the library's last error: " + detail
	}
	return text
}

// handleVersionCode is 2.16.0, whose unique id has a magic number of 8 bytes before the address (nccl
// src/include/bootstrap.h, ncclBootstrapHandle). Before it, an id is the address alone (src/bootstrap.cc,
// bootstrapGetUniqueId).
const handleVersionCode = 21600

// idAddress is the address, a sockaddr, in a unique id of a library of that version. ok is false where it holds none.
func idAddress(id []byte, versionCode int) (address netip.AddrPort, ok bool) {
	const family, port, v4, v6 = 0, 2, 4, 8
	if versionCode >= handleVersionCode && len(id) >= 8 {
		id = id[8:]
	}
	if len(id) < v6+16 {
		return netip.AddrPort{}, false
	}
	number := binary.BigEndian.Uint16(id[port:])
	switch binary.LittleEndian.Uint16(id[family:]) {
	case 2: // AF_INET
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(id[v4:v4+4])), number), number != 0
	case 10: // AF_INET6
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(id[v6:v6+16])), number), number != 0
	}
	return netip.AddrPort{}, false
}

// abort tries to end the communicator, from a thread of its own, since the call may block as well. It says whether the
// call came back in time.
func (e *Engine) abort(within time.Duration) bool {
	if e.comm == 0 {
		return false
	}
	done := make(chan struct{})
	comm := e.comm
	e.comm = 0
	go func() {
		runtime.LockOSThread() // and is never unlocked: the thread ends with the goroutine
		defer close(done)
		_, _, _ = purego.SyscallN(e.lib.commAbort, comm)
	}()
	until := e.clock.Now().Add(within)
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		select {
		case <-done:
			return true
		default:
		}
		if e.clock.Now().After(until) {
			return false
		}
		e.clock.Sleep(pause)
	}
}

// promptPolls go without a pause, so that the queueing of a call, which takes microseconds, is not measured as a pause.
const promptPolls = 100

// settle turns a result into an error; where the library says that it is still at work, it asks until it is done.
func (e *Engine) settle(call string, result int32, l limit) error {
	pause := firstPoll
	for polls := 0; result == resultInProgress; polls++ {
		if polls >= promptPolls {
			if e.clock.Now().After(l.until) {
				return &DeadlineError{Waiting: call, Deadline: l.deadline}
			}
			e.clock.Sleep(pause)
			pause = min(2*pause, lastPoll)
		}
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
