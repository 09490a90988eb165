package rcclx

import (
	"fmt"
	"math"
)

// Bytes is the size of one element in bytes; zero for an unknown datatype.
func (d Datatype) Bytes() int64 {
	switch d {
	case Float32:
		return 4
	case Float16, BFloat16:
		return 2
	}
	return 0
}

// Collectives are the four that this package measures, in the order in which they are shown.
func Collectives() []Collective {
	return []Collective{AllReduce, AllGather, ReduceScatter, AllToAll}
}

// Sizes lists message sizes from minBytes to maxBytes, each factor times the one before, as rccl-tests' -b, -e and -f
// do. maxBytes itself is in the list only where the factor reaches it. A factor under 2 gives minBytes alone.
func Sizes(minBytes, maxBytes int64, factor int) []int64 {
	if minBytes <= 0 || maxBytes < minBytes {
		return nil
	}
	sizes := []int64{minBytes}
	if factor < 2 {
		return sizes
	}
	for size := minBytes; size <= maxBytes/int64(factor); {
		size *= int64(factor)
		sizes = append(sizes, size)
	}
	return sizes
}

// Shape is one call in elements and bytes.
type Shape struct {
	// CountElements is the count argument of the call: of the whole message for AllReduce, of one rank's part for the
	// others.
	CountElements int64
	// SendBytes and RecvBytes are the buffers' sizes; the larger one is the message size.
	SendBytes, RecvBytes int64
}

// ShapeOf gives the call that moves sizeBytes by rccl-tests' definition (the larger of send and receive buffer;
// rccl-tests src/{all_reduce,all_gather,reduce_scatter,alltoall}.cu). A size is rounded down to whole elements for
// every rank; one that leaves a rank without an element is an error, since it would measure an empty call.
func ShapeOf(c Collective, d Datatype, sizeBytes int64, ranks int) (Shape, error) {
	element := d.Bytes()
	if element == 0 {
		return Shape{}, fmt.Errorf("datatype %q is not known: use Float32, Float16 or BFloat16", d)
	}
	if ranks < 1 {
		return Shape{}, fmt.Errorf("a call over %d ranks is not possible: at least 1 is needed", ranks)
	}
	parts := int64(ranks)
	if c == AllReduce {
		parts = 1
	}
	count := sizeBytes / element / parts
	if count < 1 {
		return Shape{}, fmt.Errorf("%s of %s at %d bytes over %d ranks leaves no element for a rank: use at least %d bytes",
			c, d, sizeBytes, ranks, element*parts)
	}
	part, whole := count*element, count*element*parts
	switch c {
	case AllReduce:
		return Shape{count, whole, whole}, nil
	case AllGather:
		return Shape{count, part, whole}, nil
	case ReduceScatter:
		return Shape{count, whole, part}, nil
	case AllToAll:
		return Shape{count, whole, whole}, nil
	}
	return Shape{}, fmt.Errorf("collective %q is not known: use AllReduce, AllGather, ReduceScatter or AllToAll", c)
}

// SizeBytes is the message size by rccl-tests' definition.
func (s Shape) SizeBytes() int64 { return max(s.SendBytes, s.RecvBytes) }

// AlgBandwidthMBps is the algorithm bandwidth, size over time, in 10^6 bytes per second; zero where the latency is
// not positive, which a caller must take as missing.
func AlgBandwidthMBps(sizeBytes, latencyNanoseconds int64) int64 {
	if latencyNanoseconds <= 0 || sizeBytes <= 0 {
		return 0
	}
	return int64(math.Round(float64(sizeBytes) * 1e3 / float64(latencyNanoseconds)))
}

// BusBandwidthMBps is the algorithm bandwidth times the share of the message that crosses the busiest link: 2(n-1)/n
// for AllReduce, (n-1)/n for AllGather, ReduceScatter and AllToAll (rccl-tests doc/PERFORMANCE.md). Zero over one
// rank, where nothing crosses a link, and where the latency is not positive.
func BusBandwidthMBps(c Collective, sizeBytes, latencyNanoseconds int64, ranks int) int64 {
	if latencyNanoseconds <= 0 || sizeBytes <= 0 || ranks < 2 {
		return 0
	}
	factor := float64(ranks-1) / float64(ranks)
	if c == AllReduce {
		factor *= 2
	}
	return int64(math.Round(float64(sizeBytes) * 1e3 / float64(latencyNanoseconds) * factor))
}
