package engine

import (
	"errors"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// stageBytes is the host memory through which inputs and results pass.
const stageBytes = 4 << 20

// poison is what a result buffer holds before the checked call: every datatype reads it as NaN.
const poison = 0xff

// MeasureRequest asks for one collective at one size.
type MeasureRequest struct {
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
	SizeBytes  int64
	// WarmupIterations are queued before the measured ones and not counted.
	WarmupIterations, Iterations int
	// Variant decides data and tolerance: LowPrecision sends values that E4M3 cannot hold, and allows its roundings.
	Variant rcclx.Variant
	// Deadline bounds the whole, data check included.
	Deadline time.Duration
}

// MeasureResult is one measurement as this rank saw it.
type MeasureResult struct {
	Shape   rcclx.Shape
	Latency rcclx.LatencyStats
	Check   rcclx.CheckResult
}

// Name says what is measured, for deadlines and logs: "AllReduce BFloat16 65536 B".
func (q MeasureRequest) Name() string {
	return fmt.Sprintf("%s %s %d B", q.Collective, q.Datatype, q.SizeBytes)
}

// Measure times a collective by device events and then, in a call of its own that is not timed, checks every element of
// its result. Warm-up and all repeats are queued without a pause, so that the ranks stay in step and the host's polling
// does not show in the times.
func (e *Engine) Measure(q MeasureRequest) (MeasureResult, error) {
	shape, err := rcclx.ShapeOf(q.Collective, q.Datatype, q.SizeBytes, e.ranks)
	if err != nil {
		return MeasureResult{}, &RequestError{err}
	}
	if shape.SendBytes > e.sendBytes || shape.RecvBytes > e.recvBytes {
		return MeasureResult{}, &RequestError{fmt.Errorf("%s needs buffers of %d and %d bytes; %d and %d are allocated",
			q.Name(), shape.SendBytes, shape.RecvBytes, e.sendBytes, e.recvBytes)}
	}
	l := e.limit(q.Deadline)
	p := pattern{ranks: e.ranks, quantised: q.Variant == rcclx.LowPrecision}
	if err := e.fillSend(p, q.Datatype, shape.SendBytes, l); err != nil {
		return MeasureResult{}, err
	}
	call := func() error {
		name, result := e.collect(q.Collective, q.Datatype, shape.CountElements)
		return e.settle(name, result, l.until, l.deadline)
	}
	result := MeasureResult{Shape: shape}
	if result.Latency, err = e.time(call, q.WarmupIterations, q.Iterations, q.Name(), l); err != nil {
		return MeasureResult{}, err
	}
	if err := e.lib.Runtime.fill(e.recv, poison, shape.RecvBytes, e.stream); err != nil {
		return MeasureResult{}, err
	}
	if err := call(); err != nil {
		return MeasureResult{}, err
	}
	if err := e.wait("the checked call of "+q.Name(), l); err != nil {
		return MeasureResult{}, err
	}
	check := newChecker(q.Datatype, p.quantised, p.reference(q.Collective, q.Datatype, e.rank, shape.CountElements))
	if result.Check, err = e.checkRecv(check, shape.RecvBytes, l); err != nil {
		return MeasureResult{}, err
	}
	return result, nil
}

// time queues the warm-up and the repeats, an event between each two, and reads the times when all are done.
func (e *Engine) time(call func() error, warmup, iterations int, waiting string, l limit) (rcclx.LatencyStats, error) {
	repeats, perRepeat := repeatsOf(iterations)
	for range warmup {
		if err := call(); err != nil {
			return rcclx.LatencyStats{}, err
		}
	}
	if err := e.lib.Runtime.record(e.events[0], e.stream); err != nil {
		return rcclx.LatencyStats{}, err
	}
	for repeat := range repeats {
		for range perRepeat {
			if err := call(); err != nil {
				return rcclx.LatencyStats{}, err
			}
		}
		if err := e.lib.Runtime.record(e.events[repeat+1], e.stream); err != nil {
			return rcclx.LatencyStats{}, err
		}
	}
	if err := e.waitEvent(e.events[repeats], waiting, l); err != nil {
		return rcclx.LatencyStats{}, err
	}
	means := make([]int64, 0, repeats)
	for repeat := range repeats {
		elapsed, err := e.lib.Runtime.elapsedNanoseconds(e.events[repeat], e.events[repeat+1])
		if err != nil {
			return rcclx.LatencyStats{}, err
		}
		if elapsed <= 0 {
			return rcclx.LatencyStats{}, errors.New(waiting + ": the device's events show no time between start and end of the calls, so nothing was measured")
		}
		means = append(means, elapsed/int64(perRepeat))
	}
	return latencyStats(means, perRepeat), nil
}

// fillSend writes this rank's values where the buffer does not hold them yet. They do not depend on the size, so that
// one filling serves every size up to its own.
func (e *Engine) fillSend(p pattern, d rcclx.Datatype, sizeBytes int64, l limit) error {
	want := filling{d, p.quantised, sizeBytes}
	if e.filled.datatype == want.datatype && e.filled.quantised == want.quantised && e.filled.bytes >= want.bytes {
		return nil
	}
	// Whole periods, so that each copy begins where the values begin.
	input := p.inputTile(d, e.rank).bytes
	stage := e.staging()
	stage = stage[:len(stage)/len(input)*len(input)]
	for at := 0; at < len(stage); at += len(input) {
		copy(stage[at:], input)
	}
	e.filled = filling{}
	for at := int64(0); at < sizeBytes; at += int64(len(stage)) {
		if err := e.lib.Runtime.toDevice(e.send.at(at), stage[:min(int64(len(stage)), sizeBytes-at)], e.stream); err != nil {
			return err
		}
	}
	if err := e.wait("copying the input to the device", l); err != nil {
		return err
	}
	e.filled = want
	return nil
}

func (e *Engine) staging() []byte {
	if e.stage == nil {
		e.stage = make([]byte, stageBytes)
	}
	return e.stage
}

// checkRecv compares the receive buffer's first bytes with the reference.
func (e *Engine) checkRecv(check *checker, sizeBytes int64, l limit) (rcclx.CheckResult, error) {
	stage := e.staging()
	for at := int64(0); at < sizeBytes; at += int64(len(stage)) {
		part := stage[:min(int64(len(stage)), sizeBytes-at)]
		if err := e.lib.Runtime.toHost(part, e.recv.at(at), e.stream); err != nil {
			return rcclx.CheckResult{}, err
		}
		if err := e.wait("copying the result to the host", l); err != nil {
			return rcclx.CheckResult{}, err
		}
		check.add(part)
	}
	return check.result(), nil
}

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
func (e *Engine) PairRounds() int { return pairRounds(e.ranks) }

// PairPeer is this rank's peer in a round; ok is false where it sits the round out.
func (e *Engine) PairPeer(round int) (peer int, ok bool) {
	peer = pairPeer(round, e.rank, e.ranks)
	return peer, peer != noPeer
}

// MeasurePair exchanges float32 data with a peer, each rank in one pair at a time, so that each pair has its link to
// itself. At least one exchange goes before the measured ones: it makes the two ranks meet, so that a late peer does not
// look like a slow link.
func (e *Engine) MeasurePair(peer int, q PairRequest) (PairResult, error) {
	shape, err := rcclx.ShapeOf(rcclx.AllReduce, rcclx.Float32, q.SizeBytes, e.ranks)
	if err != nil {
		return PairResult{}, &RequestError{err}
	}
	if shape.SendBytes > e.sendBytes || shape.RecvBytes > e.recvBytes {
		return PairResult{}, &RequestError{fmt.Errorf("a pair probe of %d bytes needs two buffers of that size; %d and %d bytes are allocated",
			q.SizeBytes, e.sendBytes, e.recvBytes)}
	}
	l := e.limit(q.Deadline)
	p := pattern{ranks: e.ranks}
	if err := e.fillSend(p, rcclx.Float32, shape.SendBytes, l); err != nil {
		return PairResult{}, err
	}
	if err := e.lib.Runtime.fill(e.recv, poison, shape.RecvBytes, e.stream); err != nil {
		return PairResult{}, err
	}
	call := func() error {
		name, result := e.group(func(queue func(function, buffer uintptr, peer int)) {
			queue(e.lib.send, uintptr(e.send), peer)
			queue(e.lib.recv, uintptr(e.recv), peer)
		}, uintptr(shape.CountElements), ncclDatatype(rcclx.Float32))
		return e.settle(name, result, l.until, l.deadline)
	}
	latency, err := e.time(call, max(1, q.WarmupIterations), q.Iterations, fmt.Sprintf("exchange with rank %d", peer), l)
	if err != nil {
		return PairResult{}, err
	}
	check := newChecker(rcclx.Float32, false, []segment{{p.inputTile(rcclx.Float32, peer), 0, shape.CountElements}})
	result := PairResult{Peer: peer, BandwidthMBps: rcclx.AlgBandwidthMBps(shape.SendBytes, latency.MedianNanoseconds)}
	if result.Check, err = e.checkRecv(check, shape.RecvBytes, l); err != nil {
		return PairResult{}, err
	}
	return result, nil
}
