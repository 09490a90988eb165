package engine

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// PairRequest asks for the exchange with one peer in one round.
type PairRequest struct {
	SizeBytes                    int64
	WarmupIterations, Iterations int
	// Deadline bounds one exchange with one peer, data check included.
	Deadline time.Duration
}

// PairResult is the exchange with one peer: both send and receive at the same time.
type PairResult struct {
	Peer int
	// BandwidthMBps of one direction by the median, in 10^6 bytes per second.
	BandwidthMBps int64
	Check         rcclx.CheckResult
}

// PairRounds is the number of rounds after which every rank has met every other.
func (e *Engine) PairRounds() int { return pairRounds(e.comm.ranks) }

// PairPeer is this rank's peer in a round; ok is false where it sits the round out.
func (e *Engine) PairPeer(round int) (peer int, ok bool) {
	peer = pairPeer(round, e.comm.rank, e.comm.ranks)
	return peer, peer != noPeer
}

// MeasurePair exchanges float32 data with a peer, each rank in one pair at a time, so that each pair has its link to
// itself. At least one exchange goes before the measured ones: it makes the two ranks meet, so that a late peer does
// not look like a slow link.
func (e *Engine) MeasurePair(peer int, q PairRequest) (PairResult, error) {
	shape, err := rcclx.ShapeOf(rcclx.SendRecv, rcclx.Float32, q.SizeBytes, e.comm.ranks)
	if err != nil {
		return PairResult{}, &RequestError{err}
	}
	if err := e.buffers.fits(fmt.Sprintf("a pair probe of %d bytes", q.SizeBytes), shape,
		rcclx.OutOfPlace); err != nil {
		return PairResult{}, err
	}
	l := e.comm.limit(q.Deadline)
	element, _ := elementOf(rcclx.Float32, e.lib.fp8)
	p := e.pattern(element, rcclx.DataExact, 0)
	if err := e.buffers.fillSend(p, shape.SendBytes, l); err != nil {
		return PairResult{}, err
	}
	if err := e.lib.Runtime.fill(e.buffers.recv.address, element.poison, shape.RecvBytes, e.comm.stream); err != nil {
		return PairResult{}, err
	}
	count := uintptr(shape.CountElements)
	exchange := e.comm.group(element.number, []message{
		{e.lib.send, uintptr(e.buffers.send.address), count, peer},
		{e.lib.recv, uintptr(e.buffers.recv.address), count, peer},
	})
	t, err := e.time(series{call: e.comm.calls(exchange, windows{}, l),
		warmup: max(1, q.WarmupIterations), iterations: q.Iterations, sizeBytes: shape.SizeBytes(),
		name: fmt.Sprintf("exchange with rank %d", peer), limit: l})
	if err != nil {
		return PairResult{}, err
	}
	check := newChecker(p, []segment{{func() *tile { return p.inputTile(peer) }, 0, shape.CountElements}})
	result := PairResult{Peer: peer,
		BandwidthMBps: rcclx.AlgBandwidthMBps(shape.SendBytes, t.latency.MedianNanoseconds)}
	result.Check, err = e.buffers.checkRecv(check, e.buffers.recv.address.at(0), shape.RecvBytes, l)
	return result, err
}

// noPeer stands for a rank that sits a round out.
const noPeer = -1

// pairPeer gives a rank's peer in one round of a round-robin tournament (circle method): over all rounds every pair
// meets once, and no rank is in two pairs of a round. noPeer where an odd number leaves a rank alone.
func pairPeer(round, rank, ranks int) int {
	last := ranks - 1 + ranks%2 // with an odd number, a rank that does not exist takes the fixed seat
	peer := last
	if rank == last {
		peer = round
	} else if other := ((2*round-rank)%last + last) % last; other != rank {
		peer = other
	}
	if peer >= ranks {
		return noPeer
	}
	return peer
}

// pairRounds is the number of rounds in which every pair meets once.
func pairRounds(ranks int) int {
	if ranks < 2 {
		return 0
	}
	return ranks - 1 + ranks%2
}
