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

// communicator is one as this rank sees it, with the stream that its calls are queued on.
type communicator struct {
	lib   *Library
	clock Clock

	rank, ranks int
	handle      uintptr // zero until it begins to form
	nonBlocking bool
	stream      uintptr
	done        uintptr // the event that waits record
}

func newCommunicator(lib *Library, rank, ranks int, clock Clock) (*communicator, error) {
	comm := &communicator{lib: lib, clock: clock, rank: rank, ranks: ranks}
	var err error
	if comm.stream, err = lib.Runtime.newStream(); err != nil {
		return nil, err
	}
	if comm.done, err = lib.Runtime.newEvent(); err != nil {
		return nil, err
	}
	return comm, nil
}

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
	c := config{magic: configMagic, version: configVersion, blocking: 0, cgaClusterSize: configUnset,
		minCTAs: configUnset, maxCTAs: configUnset, splitShare: configUnset}
	c.size = uint64(unsafe.Sizeof(c))
	return c
}

// abortDeadline bounds the attempt to end a communicator that never formed. The process exits after it anyway.
const abortDeadline = 500 * time.Millisecond

// form has the library form it; Engine.Join says how long that may take.
func (comm *communicator) form(id []byte, nonBlocking bool, deadline time.Duration) error {
	var value uniqueID
	copy(value.internal[:], id)
	l := comm.limit(deadline)
	call, result := "ncclCommInitRank", int32(0)
	nonBlocking = nonBlocking && comm.lib.info.NonBlocking()
	if nonBlocking {
		if comm.lib.commInitRankConfig == nil {
			return &SymbolMissingError{Symbol: "ncclCommInitRankConfig", File: comm.lib.info.Path}
		}
		config := nonBlockingConfig()
		call = "ncclCommInitRankConfig"
		result = comm.lib.commInitRankConfig(&comm.handle, int32(comm.ranks), value, int32(comm.rank), &config)
	} else {
		result = comm.lib.commInitRank(&comm.handle, int32(comm.ranks), value, int32(comm.rank))
	}
	comm.nonBlocking = nonBlocking || result == resultInProgress
	if nonBlocking && result == resultSuccess {
		var err error
		if result, err = comm.asyncResult(); err != nil {
			return err
		}
	}
	return comm.explainInit(comm.settle(call, result, l), id)
}

// explainInit adds to an error of init what a user needs to find its cause.
func (comm *communicator) explainInit(err error, id []byte) error {
	var deadline *DeadlineError
	var call *CallError
	switch {
	case errors.As(err, &deadline):
		deadline.Detail = comm.lib.StuckInit(comm.handle, comm.rank, comm.ranks, id)
		if comm.abort(abortDeadline) {
			deadline.Detail += "; ncclCommAbort has ended the attempt"
		} else {
			deadline.Detail += fmt.Sprintf("; ncclCommAbort did not end the attempt within %s", abortDeadline)
		}
	case errors.As(err, &call) && call.Code == resultInvalidArgument:
		call.Text += fmt.Sprintf(" (it was asked for rank %d of %d ranks: "+
			"every rank must be under the world size, and that the same on all)", comm.rank, comm.ranks)
	case errors.As(err, &call) && call.Code == resultInvalidUsage:
		call.Text += fmt.Sprintf(" (rank %d of %d on device %s at %s: every rank needs a GPU of its own)",
			comm.rank, comm.ranks, comm.lib.info.DeviceName, comm.lib.info.PCIAddress)
	case errors.As(err, &call):
		call.Text += "; " + comm.lib.StuckInit(0, comm.rank, comm.ranks, id)
	}
	return err
}

// StuckInit says of a communicator that does not form what is known. It may be called from another thread than the
// engine's.
func (l *Library) StuckInit(comm uintptr, rank, ranks int, id []byte) string {
	text := fmt.Sprintf("rank %d of %d waits for ranks that never came, or that have another world size, "+
		"or its unique id is from another run", rank, ranks)
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
func (comm *communicator) abort(within time.Duration) bool {
	if comm.handle == 0 {
		return false
	}
	done := make(chan struct{})
	handle := comm.handle
	comm.handle = 0
	go func() {
		runtime.LockOSThread() // and is never unlocked: the thread ends with the goroutine
		defer close(done)
		_, _, _ = purego.SyscallN(comm.lib.commAbort, handle)
	}()
	until := comm.clock.Now().Add(within)
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		select {
		case <-done:
			return true
		default:
		}
		if comm.clock.Now().After(until) {
			return false
		}
		comm.clock.Sleep(pause)
	}
}

func (comm *communicator) asyncResult() (int32, error) {
	var async int32
	result, _, _ := purego.SyscallN(comm.lib.getAsyncError, comm.handle, uintptr(unsafe.Pointer(&async)))
	return async, comm.lib.check("ncclCommGetAsyncError", comm.handle, int32(result))
}

// finalize waits until a communicator that does not block is idle, as it must be before it is destroyed (nccl.h,
// ncclCommFinalize).
func (comm *communicator) finalize(deadline time.Duration) error {
	if !comm.nonBlocking || comm.lib.commFinalize == 0 {
		return nil
	}
	result, _, _ := purego.SyscallN(comm.lib.commFinalize, comm.handle)
	return comm.settle("ncclCommFinalize", int32(result), comm.limit(deadline))
}

func (comm *communicator) destroy() error {
	result, _, _ := purego.SyscallN(comm.lib.commDestroy, comm.handle)
	comm.handle = 0
	return comm.lib.check("ncclCommDestroy", 0, int32(result))
}
