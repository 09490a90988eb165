package rcclx

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Collectives are the four that DDA and FP8 know, in the order in which they are shown.
func Collectives() []Collective {
	return []Collective{AllReduce, AllGather, ReduceScatter, AllToAll}
}

// AllCollectives are the eight that this package measures, in the order in which they are shown.
func AllCollectives() []Collective {
	return append(Collectives(), AllToAllv, Broadcast, Reduce, SendRecv)
}

// Datatypes are all that this package measures, in the order in which they are shown. Whether a library has one is
// DatatypeSupport's question.
func Datatypes() []Datatype {
	return []Datatype{Float32, BFloat16, Float16, Float64, Float8E4M3, Float8E5M2, Int32, Int8}
}

// Bytes is the size of one element in bytes; zero for an unknown datatype.
func (d Datatype) Bytes() int64 {
	switch d {
	case Float64:
		return 8
	case Float32, Int32:
		return 4
	case Float16, BFloat16:
		return 2
	case Float8E4M3, Float8E5M2, Int8:
		return 1
	}
	return 0
}

// HasInPlace says whether a collective can be called in place, as rccl-tests does (src/*.cu, the offsets of
// GetCollByteCount): AllToAll, AllToAllv and SendRecv would overwrite what they have yet to send.
func HasInPlace(c Collective) bool {
	switch c {
	case AllReduce, AllGather, ReduceScatter, Broadcast, Reduce:
		return true
	}
	return false
}

// reduces says whether a collective has a reduction.
func reduces(c Collective) bool { return c == AllReduce || c == ReduceScatter || c == Reduce }

// parted says whether a collective's message is one part for each rank.
func parted(c Collective) bool {
	return c == AllGather || c == ReduceScatter || c == AllToAll || c == AllToAllv
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

// PeerCounts are the elements that a rank sends to each peer, itself included, in an AllToAllv of countElements
// elements a rank and peer on average. They are rccl-tests' own (src/alltoallv.cu), so that results compare: a peer's
// share grows with (rank+peer) mod ranks, and the peer for which that is zero gets the rest. What rank r sends to peer
// p is therefore what p sends to r, and the parts add up to countElements*ranks. Over two ranks the parts are even, as
// there. From leastCount on no part is empty; under it the share is zero, and all goes to the one peer with the rest.
func PeerCounts(rank, ranks int, countElements int64) []int64 {
	if ranks < 1 || rank < 0 || rank >= ranks || countElements < 0 {
		return nil
	}
	n := int64(ranks)
	// Twice the count over n, without overflow.
	share := countElements/n*2 + countElements%n*2/n
	rest := countElements * n
	counts := make([]int64, ranks)
	for peer := range counts {
		counts[peer] = int64((rank+peer)%ranks) * share
		rest -= counts[peer]
	}
	counts[(ranks-rank)%ranks] += rest
	return counts
}

// Shape is one call in elements and bytes.
type Shape struct {
	// CountElements is the count argument of the call: of the whole message for AllReduce, Broadcast, Reduce and
	// SendRecv, of one rank's part for AllGather, ReduceScatter and AllToAll, and of the mean part for AllToAllv (see
	// PeerCounts).
	CountElements int64
	// SendBytes and RecvBytes are the buffers' sizes; the larger one is the message size.
	SendBytes, RecvBytes int64
}

// leastCount is the least count argument that measures the collective. In AllToAllv a smaller one has shares of zero,
// so that all goes to one peer, for ranks 0 and ranks/2 to themselves; rccl-tests measures nothing there
// (src/alltoallv.cu, count < nranks*nranks/2, in elements of the whole message).
func leastCount(c Collective, ranks int) int64 {
	if c == AllToAllv {
		return (int64(ranks) + 1) / 2
	}
	return 1
}

// ShapeOf gives the call that moves sizeBytes, where the size of a message is rccl-tests': the larger of send and
// receive buffer (rccl-tests src/*.cu). A size is rounded down to one element for every rank; the field's programs
// round down further, so that only sizes that are multiples of both give the same call: rccl-tests AllGather and
// ReduceScatter to 4 elements a rank (ALIGN in src/all_gather.cu, src/reduce_scatter.cu), nccl-tests AllGather,
// ReduceScatter and AllToAll to 16 bytes (src/all_gather.cu, src/reduce_scatter.cu, src/alltoall.cu). A size that
// leaves a rank without an element, or in AllToAllv a peer without a share, is an error that names the least size: it
// would measure an empty call.
func ShapeOf(c Collective, d Datatype, sizeBytes int64, ranks int) (Shape, error) {
	parts, err := partsOf(c, d, ranks)
	if err != nil {
		return Shape{}, err
	}
	element := d.Bytes()
	count := sizeBytes / element / parts
	if least := leastCount(c, ranks); count < least {
		what := "no element for a rank"
		if count >= 1 {
			what = "no share for a peer"
		}
		return Shape{}, fmt.Errorf("%s of %s at %d bytes over %d ranks leaves %s: use at least %d bytes",
			c, d, sizeBytes, ranks, what, element*parts*least)
	}
	return ShapeOfCount(c, d, count, ranks)
}

// ShapeOfCount gives the call with a count argument of countElements, one that ShapeOf would not choose too. A count
// whose message has more bytes than an int64 holds is an error: no size_t argument of the library's, nor an offset into
// its buffers, may wrap.
func ShapeOfCount(c Collective, d Datatype, countElements int64, ranks int) (Shape, error) {
	parts, err := partsOf(c, d, ranks)
	if err != nil {
		return Shape{}, err
	}
	element := d.Bytes()
	if countElements < 1 {
		return Shape{}, fmt.Errorf("%s of %d elements is no call: give a count of at least 1", c, countElements)
	}
	if most := math.MaxInt64 / element / parts; countElements > most {
		return Shape{}, fmt.Errorf("%s of %d elements of %s over %d ranks has more bytes than 64 bits count: "+
			"use at most %d elements", c, countElements, d, ranks, most)
	}
	part, whole := countElements*element, countElements*element*parts
	switch c {
	case AllGather:
		return Shape{countElements, part, whole}, nil
	case ReduceScatter:
		return Shape{countElements, whole, part}, nil
	}
	return Shape{countElements, whole, whole}, nil
}

// partsOf gives the parts of a message: one for each rank, or one for all.
func partsOf(c Collective, d Datatype, ranks int) (int64, error) {
	switch {
	case d.Bytes() == 0:
		return 0, fmt.Errorf("datatype %q is not known: use %s", d, names(Datatypes()))
	case !slices.Contains(AllCollectives(), c):
		return 0, fmt.Errorf("collective %q is not known: use %s", c, names(AllCollectives()))
	case ranks < 1:
		return 0, fmt.Errorf("a call over %d ranks is not possible: at least 1 is needed", ranks)
	case ranks > math.MaxInt32:
		return 0, fmt.Errorf("a call over %d ranks is not possible: the library counts ranks in 32 bits", ranks)
	case parted(c):
		return int64(ranks), nil
	}
	return 1, nil
}

// names joins names as a sentence has them: "A, B or C".
func names[T ~string](all []T) string {
	var b strings.Builder
	for i, name := range all {
		switch {
		case i > 0 && i == len(all)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}

// SizeBytes is the message size by rccl-tests' definition.
func (s Shape) SizeBytes() int64 { return max(s.SendBytes, s.RecvBytes) }

// InPlaceOffsets says where in one buffer of SizeBytes a rank's send and receive data begin when the call is in place,
// as rccl-tests places them: the smaller of the two at the rank's own part of the larger one. Only for collectives that
// have an in-place form (HasInPlace).
func (s Shape) InPlaceOffsets(rank int) (sendOffsetBytes, recvOffsetBytes int64) {
	switch {
	case s.SendBytes < s.RecvBytes:
		return int64(rank) * s.SendBytes, 0
	case s.RecvBytes < s.SendBytes:
		return 0, int64(rank) * s.RecvBytes
	}
	return 0, 0
}

// InPlace is the memory of the same call in place: no send buffer, and a receive buffer that holds both.
func (s Shape) InPlace() Shape {
	return Shape{CountElements: s.CountElements, RecvBytes: s.SizeBytes()}
}

// AlgBandwidthMBps is the algorithm bandwidth, size over time, in 10^6 bytes per second; zero where the latency is
// not positive, which a caller must take as missing; so what was measured is at least 1.
func AlgBandwidthMBps(sizeBytes, latencyNanoseconds int64) int64 {
	if latencyNanoseconds <= 0 || sizeBytes <= 0 {
		return 0
	}
	return max(1, int64(math.Round(float64(sizeBytes)*1e3/float64(latencyNanoseconds))))
}

// BusBandwidthMBps is the algorithm bandwidth times the share of the message that crosses the busiest link: 2(n-1)/n
// for AllReduce, (n-1)/n for AllGather, ReduceScatter, AllToAll and AllToAllv, and 1 for Broadcast, Reduce and SendRecv
// (rccl-tests doc/PERFORMANCE.md and GetBw in src/*.cu). Zero, which a caller must take as missing, over one rank,
// where nothing crosses a link, where the latency is not positive and for an unknown collective; so what was measured
// is at least 1.
func BusBandwidthMBps(c Collective, sizeBytes, latencyNanoseconds int64, ranks int) int64 {
	if latencyNanoseconds <= 0 || sizeBytes <= 0 {
		return 0
	}
	factor := BusFactor(c, ranks)
	if factor == 0 {
		return 0
	}
	return max(1, int64(math.Round(float64(sizeBytes)*1e3/float64(latencyNanoseconds)*factor)))
}

// BusFactor is the bus bandwidth over the algorithm bandwidth; zero over one rank and for an unknown collective.
func BusFactor(c Collective, ranks int) float64 {
	switch {
	case ranks < 2 || !slices.Contains(AllCollectives(), c):
		return 0
	case c == AllReduce:
		return 2 * float64(ranks-1) / float64(ranks)
	case parted(c):
		return float64(ranks-1) / float64(ranks)
	}
	return 1
}
