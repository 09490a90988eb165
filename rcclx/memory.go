package rcclx

import "math"

// SendShiftBytes is how much further on the checked call's data begin in the send buffer, so that a result of an
// earlier call that was left somewhere is seen as wrong. The send buffer has so many bytes more than its largest
// message. It keeps the alignment that the library's fast paths ask for (16 bytes; 128 for LL128).
const SendShiftBytes = 256

// LowPrecisionPoolBytes is the uncached pool that the library allocates for a communicator while FP8 is on: 128 Mi
// elements, doubled until the largest message fits, of 10 + max(8, ranks) bytes each
// (meta/lpcoll/low_precision_buffer_pool.cc); 2.25 GiB at eight ranks and up to 128 Mi elements. What 64 bits do not
// count is math.MaxInt64.
func LowPrecisionPoolBytes(ranks int, messageElements int64) int64 {
	elements, each := int64(lowPrecisionPoolUnits), int64(10+max(8, ranks))
	for elements < messageElements && elements <= math.MaxInt64/2 {
		elements *= 2
	}
	if elements < messageElements || elements > math.MaxInt64/each {
		return math.MaxInt64
	}
	return elements * each
}

// MemoryCall is one call of a run, as far as its memory goes.
type MemoryCall struct {
	Collective Collective
	Datatype   Datatype
	Placement  Placement // out of place where empty
	SizeBytes  int64
}

// Memory is what a rank takes from its device.
type Memory struct {
	// SendBytes and RecvBytes are the largest messages that the buffers hold; SendBytes is zero where all calls are in
	// place.
	SendBytes, RecvBytes int64
	// SendShiftBytes is what the send buffer has beyond its largest message; zero where there is no send buffer.
	SendShiftBytes int64
	// LibraryBytes are what the library itself allocates for the variant, beyond what every communicator takes.
	LibraryBytes int64
}

// NewMemory is the memory for messages of up to so many bytes.
func NewMemory(sendBytes, recvBytes, libraryBytes int64) Memory {
	m := Memory{SendBytes: sendBytes, RecvBytes: recvBytes, LibraryBytes: libraryBytes}
	if sendBytes > 0 {
		m.SendShiftBytes = SendShiftBytes
	}
	return m
}

// BufferBytes are those of both buffers; math.MaxInt64 where 64 bits do not count them.
func (m Memory) BufferBytes() int64 { return saturatingSum(m.SendBytes, m.SendShiftBytes, m.RecvBytes) }

// TotalBytes are all that a rank takes; math.MaxInt64 where 64 bits do not count them.
func (m Memory) TotalBytes() int64 { return saturatingSum(m.BufferBytes(), m.LibraryBytes) }

func saturatingSum(all ...int64) int64 {
	var sum int64
	for _, n := range all {
		if n > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += n
	}
	return sum
}

// MemoryNeed is what each rank of a run takes from its device: the buffers for its largest calls and what the library
// allocates for the variant. f is the flavor whose gates hold (LibraryInfo.Gates). It is the one place that decides
// this: a plan, a precondition and the rank that allocates all ask here. A size that makes no call takes nothing; who
// makes the call reports it.
func MemoryNeed(f Flavor, v Variant, s Settings, ranks int, calls []MemoryCall) Memory {
	env := environmentMap(Environment(f, v, s))
	var sendBytes, recvBytes, fp8Elements int64
	for _, c := range calls {
		shape, err := ShapeOf(c.Collective, c.Datatype, c.SizeBytes, ranks)
		if err != nil {
			continue
		}
		messageBytes := shape.SizeBytes()
		call := Call{Collective: c.Collective, Datatype: c.Datatype, SizeBytes: messageBytes, Ranks: ranks, Nodes: 1}
		if lowPrecisionGate(f, env, call).open() {
			fp8Elements = max(fp8Elements, messageBytes/c.Datatype.Bytes())
		}
		if c.Placement == InPlace {
			shape = shape.InPlace()
		}
		sendBytes, recvBytes = max(sendBytes, shape.SendBytes), max(recvBytes, shape.RecvBytes)
	}
	return NewMemory(sendBytes, recvBytes, libraryBytes(f, v, env, ranks, fp8Elements))
}

// libraryBytes is what the library itself allocates on each device for a variant, beyond what every communicator takes.
// fp8Elements are those of the largest message that FP8 takes.
func libraryBytes(f Flavor, v Variant, env environment, ranks int, fp8Elements int64) int64 {
	switch {
	case f.rcclx() && v == LowPrecision:
		return LowPrecisionPoolBytes(ranks, fp8Elements)
	case v == DDA && f == FlavorRCCLXDev && ranks == ddaRanks:
		return max(0, env.integer(envDDASendBuffer))
	}
	return 0
}
