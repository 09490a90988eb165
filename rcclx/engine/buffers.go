package engine

import (
	"errors"
	"fmt"

	"rcclx.io/commgroup-operator/rcclx"
)

// stageBytes is the host memory through which inputs and results pass.
const stageBytes = 4 << 20

// buffers are what the calls send from and receive in, and the way of their data from and to the host.
type buffers struct {
	comm       *communicator
	send, recv buffer
	// scratch is for the barrier before the timed calls, and for the slowest rank's time after them.
	scratch buffer
	// seeded says that all of the send buffer has been written to.
	seeded bool
	// filled says what the send buffer holds.
	filled filling
	stage  []byte
}

// buffer is device memory for messages of up to so many bytes; the send buffer has shiftBytes more.
type buffer struct {
	address devicePointer
	bytes   int64
}

// shiftBytes is how much further on the checked call's data begin in the send buffer.
const shiftBytes = rcclx.SendShiftBytes

// scratchBytes is one int64.
const scratchBytes = 8

// filling is what the send buffer holds from its start.
type filling struct {
	datatype rcclx.Datatype
	data     rcclx.Data
	bytes    int64
}

func (b *buffers) allocate(need rcclx.Memory) error {
	for _, want := range []struct {
		to           *buffer
		bytes, extra int64
	}{{&b.send, need.SendBytes, need.SendShiftBytes}, {&b.recv, need.RecvBytes, 0}, {&b.scratch, scratchBytes, 0}} {
		if want.bytes == 0 {
			continue
		}
		address, err := b.comm.lib.Runtime.allocate(want.bytes + want.extra)
		if err != nil {
			return err
		}
		*want.to = buffer{address, want.bytes}
	}
	return nil
}

func (b *buffers) release() error {
	var errs []error
	for _, of := range []*buffer{&b.send, &b.recv, &b.scratch} {
		if of.bytes != 0 {
			errs = append(errs, b.comm.lib.Runtime.release(of.address))
			*of = buffer{}
		}
	}
	return errors.Join(errs...)
}

// fits says whether the buffers hold a call.
func (b *buffers) fits(name string, shape rcclx.Shape, placement rcclx.Placement) error {
	if placement == rcclx.InPlace {
		shape = shape.InPlace()
	}
	if shape.SendBytes > b.send.bytes || shape.RecvBytes > b.recv.bytes {
		return &RequestError{fmt.Errorf("%s needs buffers of %d and %d bytes; %d and %d are allocated",
			name, shape.SendBytes, shape.RecvBytes, b.send.bytes, b.recv.bytes)}
	}
	return nil
}

// fill writes the input of a call whose data begin at an index; in place, what is not input becomes poison.
func (b *buffers) fill(m *measurement, p *pattern, start int64) error {
	if m.Placement != rcclx.InPlace {
		return b.fillSend(p, m.shape.SendBytes, m.limit)
	}
	if err := b.comm.lib.Runtime.fill(b.recv.address, m.element.poison, m.shape.SizeBytes(),
		b.comm.stream); err != nil {
		return err
	}
	if m.Collective == rcclx.Broadcast && b.comm.rank != root {
		return b.comm.wait("filling the buffer", m.limit)
	}
	return b.write(b.recv.address.at(m.sendAt), p.inputTile(b.comm.rank), start, m.shape.SendBytes, m.limit)
}

// seed writes all of the send buffer, once, so that no window holds what the allocator left, which may be NaN.
// Measurements fill what they check and leave the rest.
func (b *buffers) seed(p *pattern, l limit) error {
	if b.seeded {
		return nil
	}
	err := b.fillSend(p, b.send.bytes, l)
	b.seeded = err == nil
	return err
}

// fillSend writes this rank's values where the buffer does not hold them yet, and as many more as the checked call's
// shift needs. They do not depend on the size, so that one filling serves every size up to its own.
func (b *buffers) fillSend(p *pattern, sizeBytes int64, l limit) error {
	want := filling{p.element.datatype, p.data, sizeBytes + shiftBytes}
	if b.filled.datatype == want.datatype && b.filled.data == want.data && b.filled.bytes >= want.bytes {
		return nil
	}
	b.filled = filling{}
	if err := b.write(b.send.address.at(0), p.inputTile(b.comm.rank), 0, want.bytes, l); err != nil {
		return err
	}
	b.filled = want
	return nil
}

// write puts a tile's values on the device, over and over, from an index on.
func (b *buffers) write(to uintptr, t *tile, start, sizeBytes int64, l limit) error {
	// Whole periods, so that each copy begins where the values of the first one do.
	phase := start % periodElements * int64(t.element.bytes)
	stage := b.staging()
	stage = stage[:min(int64(len(stage)/len(t.bytes)*len(t.bytes)), sizeBytes)]
	n := copy(stage, t.bytes[phase:])
	for n < len(stage) {
		n += copy(stage[n:], t.bytes)
	}
	for at := int64(0); at < sizeBytes; at += int64(len(stage)) {
		part := stage[:min(int64(len(stage)), sizeBytes-at)]
		if err := b.comm.lib.Runtime.toDevice(to+uintptr(at), part, b.comm.stream); err != nil {
			return err
		}
	}
	return b.comm.wait("copying the input to the device", l)
}

func (b *buffers) staging() []byte {
	if b.stage == nil {
		b.stage = make([]byte, stageBytes)
	}
	return b.stage
}

// checkRecv compares bytes on the device with the reference.
func (b *buffers) checkRecv(check *checker, from uintptr, sizeBytes int64, l limit) (rcclx.CheckResult, error) {
	stage := b.staging()
	for at := int64(0); at < sizeBytes; at += int64(len(stage)) {
		part := stage[:min(int64(len(stage)), sizeBytes-at)]
		if err := b.comm.lib.Runtime.toHost(part, from+uintptr(at), b.comm.stream); err != nil {
			return rcclx.CheckResult{}, err
		}
		if err := b.comm.wait("copying the result to the host", l); err != nil {
			return rcclx.CheckResult{}, err
		}
		check.add(part)
	}
	return check.result(), nil
}
