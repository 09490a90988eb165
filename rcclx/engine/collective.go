package engine

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// root of Broadcast and Reduce.
const root = 0

// SendRecv is a ring, as in rccl-tests (src/sendrecv.cu).
func ringTo(rank, ranks int) int   { return (rank + 1) % ranks }
func ringFrom(rank, ranks int) int { return (rank - 1 + ranks) % ranks }

// collectiveSymbols are the functions of the library that a collective needs, each with its spellings. AllToAll and
// AllToAllv have a function of their own in some builds only, so they need none: a group of sends and receives is the
// same.
var collectiveSymbols = map[rcclx.Collective]string{
	rcclx.AllReduce:     "ncclAllReduce",
	rcclx.AllGather:     "ncclAllGather",
	rcclx.ReduceScatter: "ncclReduceScatter",
	rcclx.Broadcast:     "ncclBroadcast",
	rcclx.Reduce:        "ncclReduce",
}

// Supports says whether this library on this device can make such a call and its result can be checked with such data,
// before anything is called: a RequestError or a SymbolMissingError where not.
func (l *Library) Supports(c rcclx.Collective, d rcclx.Datatype, p rcclx.Placement, data []rcclx.Data) error {
	if p == rcclx.InPlace && !rcclx.HasInPlace(c) {
		return &RequestError{fmt.Errorf("%s has no in-place form: it would overwrite what it has yet to send; "+
			"leave placement out", c)}
	}
	if p != "" && p != rcclx.InPlace && p != rcclx.OutOfPlace {
		return &RequestError{fmt.Errorf("placement %q is not known: use %s or %s", p, rcclx.OutOfPlace, rcclx.InPlace)}
	}
	if ok, why := rcclx.DatatypeSupport(l.info.Gates(), l.info.VersionCode, d); !ok {
		return &RequestError{fmt.Errorf("%s: %s", c, why)}
	}
	if ok, why := rcclx.ReductionSupport(l.info.Gates(), l.computeCapability, c, d); !ok {
		return &RequestError{fmt.Errorf("%s: %s", c, why)}
	}
	if _, ok := elementOf(d, l.fp8); !ok {
		return &RequestError{fmt.Errorf("which of the two encodings of %s the device %q has "+
			"is not known (architecture %q), so results cannot be checked: use a wider datatype",
			d, l.info.DeviceName, l.architecture)}
	}
	for _, kind := range data {
		if why := fitsData(d, kind); why != "" {
			return &RequestError{fmt.Errorf("%s of %s: %s", c, d, why)}
		}
	}
	if name := collectiveSymbols[c]; name != "" && l.collectives[c] == 0 {
		return &SymbolMissingError{Symbol: name, File: l.info.Path, Collective: c}
	}
	return nil
}

// launch queues one call, with its buffers so many bytes further on, and gives the function's name and its result.
type launch func(sendShift, recvShift uintptr) (call string, result int32)

// prepare makes the launch of a collective; sizes are the caller's duty.
func (comm *communicator) prepare(
	c rcclx.Collective, kind uintptr, elementBytes, count int64, send, recv uintptr,
) launch {
	l, n := comm.lib, uintptr(count)
	function, handle, stream := l.collectives[c], comm.handle, comm.stream
	switch c {
	case rcclx.AllReduce, rcclx.ReduceScatter:
		name := collectiveSymbols[c]
		return func(sendShift, recvShift uintptr) (string, int32) {
			result, _, _ := purego.SyscallN(function, send+sendShift, recv+recvShift, n, kind, redOpSum, handle, stream)
			return name, int32(result)
		}
	case rcclx.AllGather:
		return func(sendShift, recvShift uintptr) (string, int32) {
			result, _, _ := purego.SyscallN(function, send+sendShift, recv+recvShift, n, kind, handle, stream)
			return "ncclAllGather", int32(result)
		}
	case rcclx.Broadcast:
		return func(sendShift, recvShift uintptr) (string, int32) {
			result, _, _ := purego.SyscallN(function, send+sendShift, recv+recvShift, n, kind, root, handle, stream)
			return "ncclBroadcast", int32(result)
		}
	case rcclx.Reduce:
		return func(sendShift, recvShift uintptr) (string, int32) {
			result, _, _ := purego.SyscallN(function, send+sendShift, recv+recvShift, n, kind, redOpSum,
				root, handle, stream)
			return "ncclReduce", int32(result)
		}
	case rcclx.SendRecv:
		return comm.group(kind, []message{
			{l.send, send, n, ringTo(comm.rank, comm.ranks)},
			{l.recv, recv, n, ringFrom(comm.rank, comm.ranks)},
		})
	case rcclx.AllToAll:
		if function != 0 {
			return func(sendShift, recvShift uintptr) (string, int32) {
				result, _, _ := purego.SyscallN(function, send+sendShift, recv+recvShift, n, kind, handle, stream)
				return "ncclAlltoAll", int32(result)
			}
		}
	}
	return comm.allToAll(c, kind, elementBytes, count, send, recv)
}

// allToAll is AllToAllv, and AllToAll where the library has no function for it: as rccl-tests does (src/alltoall.cu,
// src/alltoallv.cu), a group of one send and one receive with each peer; empty parts are left out on both sides alike.
func (comm *communicator) allToAll(
	c rcclx.Collective, kind uintptr, elementBytes, count int64, send, recv uintptr,
) launch {
	counts, offsets := make([]uintptr, comm.ranks), make([]uintptr, comm.ranks)
	uneven := rcclx.PeerCounts(comm.rank, comm.ranks, count)
	var at uintptr
	for peer := range comm.ranks {
		counts[peer] = uintptr(count)
		if c == rcclx.AllToAllv {
			counts[peer] = uintptr(uneven[peer])
		}
		offsets[peer] = at
		at += counts[peer]
	}
	function, handle, stream := comm.lib.collectives[c], comm.handle, comm.stream
	if c == rcclx.AllToAllv && function != 0 {
		return func(sendShift, recvShift uintptr) (string, int32) {
			// What a rank sends to a peer and what it gets from it has the same size, so one array serves both sides.
			result, _, _ := purego.SyscallN(function, send+sendShift, uintptr(unsafe.Pointer(&counts[0])),
				uintptr(unsafe.Pointer(&offsets[0])), recv+recvShift, uintptr(unsafe.Pointer(&counts[0])),
				uintptr(unsafe.Pointer(&offsets[0])), kind, handle, stream)
			runtime.KeepAlive(counts)
			runtime.KeepAlive(offsets)
			return "ncclAlltoAllv", int32(result)
		}
	}
	messages := make([]message, 0, 2*comm.ranks)
	for peer := range comm.ranks {
		if counts[peer] == 0 {
			continue
		}
		offset := offsets[peer] * uintptr(elementBytes)
		messages = append(messages, message{comm.lib.send, send + offset, counts[peer], peer},
			message{comm.lib.recv, recv + offset, counts[peer], peer})
	}
	return comm.group(kind, messages)
}

// message is one send or receive.
type message struct {
	function, buffer, count uintptr
	peer                    int
}

// group queues sends and receives as one operation, and gives the first result that is not success.
func (comm *communicator) group(kind uintptr, messages []message) launch {
	l, handle, stream := comm.lib, comm.handle, comm.stream
	return func(sendShift, recvShift uintptr) (string, int32) {
		start, _, _ := purego.SyscallN(l.groupStart)
		if int32(start) != resultSuccess {
			return "ncclGroupStart", int32(start)
		}
		var failed int32
		var name string
		for _, m := range messages {
			shift := sendShift
			if m.function == l.recv {
				shift = recvShift
			}
			result, _, _ := purego.SyscallN(m.function, m.buffer+shift, m.count, kind, uintptr(m.peer), handle, stream)
			if r := int32(result); r != resultSuccess && r != resultInProgress && failed == 0 {
				failed = r
				if name = "ncclSend"; m.function == l.recv {
					name = "ncclRecv"
				}
			}
		}
		end, _, _ := purego.SyscallN(l.groupEnd)
		if failed != 0 {
			return name, failed
		}
		return "ncclGroupEnd", int32(end)
	}
}

// calls makes a launch a series of calls, each in the next window, that wait where the library is still at work.
func (comm *communicator) calls(launch launch, w windows, l limit) func(n int) error {
	return func(n int) error {
		send, recv := w.at(n)
		return comm.settled(launch, send, recv, l)
	}
}

func (comm *communicator) settled(launch launch, sendShift, recvShift uintptr, l limit) error {
	name, result := launch(sendShift, recvShift)
	if result == resultSuccess {
		return nil
	}
	return comm.settle(name, result, l)
}
