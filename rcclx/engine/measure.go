package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// MeasureRequest asks for one collective at one size.
type MeasureRequest struct {
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
	// Placement of the result; empty means out of place.
	Placement rcclx.Placement
	SizeBytes int64
	// WarmupIterations are queued before the measured ones and not counted. At least Iterations are measured, and more
	// where they move little, so that the cost of an event does not show: the result's Repeats and IterationsPerRepeat
	// tell how many.
	WarmupIterations, Iterations int
	// Data to check with, one untimed call each; the first is also what is timed. Exact, for LowPrecision Rounding
	// where the datatype has it, is checked last where it is not among them: random data alone may not tell a right
	// result from a wrong one.
	Data []rcclx.Data
	// Variant decides which data are checked in any case.
	Variant rcclx.Variant
	// Path that the gates predict decides the tolerance: PathLowPrecision allows what FP8 transport does to the values.
	// Every other path must be as exact as Baseline, also while FP8 is on, as under its least size.
	Path rcclx.Path
	// Slowest has the ranks tell each other the longest of their medians: where nobody sees all of them, and a rank far
	// from a slow link measures a good one (SendRecv, Broadcast).
	Slowest bool
	// Deadline bounds the whole, data checks included.
	Deadline time.Duration
}

// MeasureResult is one measurement as this rank saw it.
type MeasureResult struct {
	Shape   rcclx.Shape
	Latency rcclx.LatencyStats
	// LaunchNanoseconds is the host's time to queue one call through the binding, the library's own part included: the
	// median over repeats of their means.
	LaunchNanoseconds int64
	// SlowestNanoseconds is the median of the slowest rank, where it was asked for; else zero.
	SlowestNanoseconds int64
	// Checks are one for each of the request's data, in their order, and one with Exact or Rounding data.
	Checks []rcclx.CheckResult
}

// Name says what is measured, for deadlines and logs: "AllReduce BFloat16 65536 B" or "AllReduce BFloat16 65536 B in
// place".
func (q MeasureRequest) Name() string {
	return rcclx.MeasurementName(q.Collective, q.Datatype, q.SizeBytes, q.Placement)
}

// measurement is one request under way.
type measurement struct {
	MeasureRequest
	shape    rcclx.Shape
	element  element
	limit    limit
	sendAt   int64 // in place, where the two lie in the receive buffer
	recvAt   int64
	windows  windows
	patterns []*pattern // one for each data
}

// Measure times a collective by device events and then, in a call of its own for each kind of data that is not timed,
// checks every element of its result. The timed calls move through the buffers (windows); the checked ones are in the
// first window. In place, every call adds to the result of the one before, as in rccl-tests, so the values of the timed
// calls mean nothing; the buffer is filled again for the check.
func (e *Engine) Measure(q MeasureRequest) (MeasureResult, error) {
	m, err := e.measurement(q)
	if err != nil {
		return MeasureResult{}, err
	}
	if m.windows.count > 1 && q.Placement != rcclx.InPlace {
		if err := e.buffers.seed(m.patterns[0], m.limit); err != nil {
			return MeasureResult{}, err
		}
	}
	if err := e.buffers.fill(m, m.patterns[0], 0); err != nil {
		return MeasureResult{}, err
	}
	t, err := e.time(series{call: e.comm.calls(e.launch(m), m.windows, m.limit), barrier: e.barrier(m.limit),
		warmup: q.WarmupIterations, iterations: q.Iterations, sizeBytes: m.shape.SizeBytes(),
		name: q.Name(), limit: m.limit})
	if err != nil {
		return MeasureResult{}, err
	}
	result := MeasureResult{Shape: m.shape, Latency: t.latency, LaunchNanoseconds: t.launchNanoseconds}
	if q.Slowest {
		if result.SlowestNanoseconds, err = e.slowest(t.latency.MedianNanoseconds, m.limit); err != nil {
			return MeasureResult{}, err
		}
	}
	for _, p := range m.patterns {
		check, err := e.checkedCall(m, p)
		if err != nil {
			return MeasureResult{}, err
		}
		result.Checks = append(result.Checks, check)
	}
	return result, nil
}

// measurement looks whether a request can be carried out, before anything is called.
func (e *Engine) measurement(q MeasureRequest) (*measurement, error) {
	if d := defaultData(q.Variant, q.Datatype); !slices.Contains(q.Data, d) {
		q.Data = append(slices.Clip(q.Data), d)
	}
	if q.Placement == "" {
		q.Placement = rcclx.OutOfPlace
	}
	if q.Iterations < 1 || q.WarmupIterations < 0 {
		return nil, &RequestError{fmt.Errorf("%s: %d iterations after %d of warm-up: give at least 1 and 0",
			q.Name(), q.Iterations, q.WarmupIterations)}
	}
	shape, err := rcclx.ShapeOf(q.Collective, q.Datatype, q.SizeBytes, e.comm.ranks)
	if err != nil {
		return nil, &RequestError{err}
	}
	if err := e.lib.Supports(q.Collective, q.Datatype, q.Placement, q.Data); err != nil {
		return nil, err
	}
	if err := e.buffers.fits(q.Name(), shape, q.Placement); err != nil {
		return nil, err
	}
	m := &measurement{MeasureRequest: q, shape: shape, limit: e.comm.limit(q.Deadline)}
	m.element, _ = elementOf(q.Datatype, e.lib.fp8)
	if q.Placement == rcclx.InPlace {
		m.sendAt, m.recvAt = shape.InPlaceOffsets(e.comm.rank)
	}
	if !e.modelled {
		m.windows = windowsOf(shape, q.Placement, e.buffers.send.bytes+shiftBytes, e.buffers.recv.bytes)
	}
	for _, data := range q.Data {
		m.patterns = append(m.patterns, e.pattern(m.element, data, e.transport(q)))
	}
	return m, nil
}

func (e *Engine) pattern(element element, data rcclx.Data, transport float64) *pattern {
	p := newPattern(element, data, e.comm.ranks, transport)
	p.tiles = e.tiles
	return p
}

// transport is the largest value of FP8 transport; zero for calls that have none. Where the encoding is not known, it
// is the smaller one.
func (e *Engine) transport(q MeasureRequest) float64 {
	switch {
	case q.Path != rcclx.PathLowPrecision || !rcclx.KnowsLowPrecision(q.Collective, q.Datatype):
		return 0
	case e.lib.fp8 == fp8OCP:
		return e4m3OCP.largest
	}
	return e4m3FNUZ.largest
}

// launch makes the call of a measurement.
func (e *Engine) launch(m *measurement) launch {
	send, recv := e.buffers.send.address.at(0), e.buffers.recv.address.at(m.recvAt)
	if m.Placement == rcclx.InPlace {
		send = e.buffers.recv.address.at(m.sendAt)
	}
	return e.comm.prepare(m.Collective, m.element.number, m.Datatype.Bytes(), m.shape.CountElements, send, recv)
}

// barrier is a call that no rank's stream passes before all have come to it: an AllReduce of one element, which every
// library has. The element is an integer, which neither DDA nor FP8 takes. Nil over one rank.
func (e *Engine) barrier(l limit) func() error {
	if e.comm.ranks < 2 {
		return nil
	}
	element, _ := elementOf(rcclx.Int32, e.lib.fp8)
	at := e.buffers.scratch.address.at(0)
	launch := e.comm.prepare(rcclx.AllReduce, element.number, int64(element.bytes), 1, at, at)
	return func() error { return e.comm.settled(launch, 0, 0, l) }
}

// slowest gives the largest of all ranks' values: an AllReduce of one 64-bit integer, which neither DDA nor FP8 takes.
func (e *Engine) slowest(value int64, l limit) (int64, error) {
	if e.comm.ranks < 2 {
		return value, nil
	}
	stage, at := e.buffers.staging()[:scratchBytes], e.buffers.scratch.address.at(0)
	binary.NativeEndian.PutUint64(stage, uint64(value))
	if err := e.lib.Runtime.toDevice(at, stage, e.comm.stream); err != nil {
		return 0, err
	}
	call := func(_, _ uintptr) (string, int32) {
		result, _, _ := purego.SyscallN(e.lib.collectives[rcclx.AllReduce], at, at, 1, kindInt64, redOpMax,
			e.comm.handle, e.comm.stream)
		return collectiveSymbols[rcclx.AllReduce], int32(result)
	}
	if err := e.comm.settled(call, 0, 0, l); err != nil {
		return 0, err
	}
	if err := e.lib.Runtime.toHost(stage, at, e.comm.stream); err != nil {
		return 0, err
	}
	if err := e.comm.wait("the slowest rank's time", l); err != nil {
		return 0, err
	}
	return int64(binary.NativeEndian.Uint64(stage)), nil
}

// checkedCall makes a call of its own, with data that begin elsewhere than those of the timed ones, and compares all of
// its result.
func (e *Engine) checkedCall(m *measurement, p *pattern) (rcclx.CheckResult, error) {
	start := shiftBytes / m.Datatype.Bytes()
	if err := e.buffers.fill(m, p, start); err != nil {
		return rcclx.CheckResult{}, err
	}
	if m.Placement != rcclx.InPlace {
		if err := e.lib.Runtime.fill(e.buffers.recv.address, m.element.poison, m.shape.RecvBytes,
			e.comm.stream); err != nil {
			return rcclx.CheckResult{}, err
		}
	}
	sendShift := uintptr(shiftBytes)
	if m.Placement == rcclx.InPlace {
		sendShift = 0
	}
	if err := e.comm.settled(e.launch(m), sendShift, 0, m.limit); err != nil {
		return rcclx.CheckResult{}, err
	}
	waiting := fmt.Sprintf("the call of %s that is checked with %s data", m.Name(), p.data)
	if err := e.comm.wait(waiting, m.limit); err != nil {
		return rcclx.CheckResult{}, err
	}
	check := newChecker(p, p.reference(m.Collective, m.Placement, e.comm.rank, m.shape.CountElements, start))
	return e.buffers.checkRecv(check, e.buffers.recv.address.at(m.recvAt), m.shape.RecvBytes, m.limit)
}
