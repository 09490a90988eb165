package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// Windows lie within the buffers, do not overlap, are aligned, and are as many as there is room for.
func TestWindows(t *testing.T) {
	const ranks = 8
	for _, c := range rcclx.AllCollectives() {
		for _, p := range []rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace} {
			if p == rcclx.InPlace && !rcclx.HasInPlace(c) {
				continue
			}
			largest, err := rcclx.ShapeOf(c, rcclx.Float32, 1<<20+64, ranks)
			if err != nil {
				t.Fatal(err)
			}
			sendBuffer, recvBuffer := largest.SendBytes+shiftBytes, largest.RecvBytes
			if p == rcclx.InPlace {
				sendBuffer, recvBuffer = shiftBytes, largest.SizeBytes()
			}
			for _, size := range []int64{128, 256, 4096, 100000, 1 << 18, 1 << 19, 1 << 20, 1<<20 + 64} {
				shape, err := rcclx.ShapeOf(c, rcclx.Float32, size, ranks)
				if err != nil {
					t.Fatal(err)
				}
				w := windowsOf(shape, p, sendBuffer, recvBuffer)
				name := fmt.Sprintf("%s %s %d B: %+v", c, p, size, w)
				if w.count < 1 || size <= 1<<18 && w.count < 4 || size > 1<<19+256 && w.count != 1 {
					t.Errorf("%s: the number of windows is wrong", name)
				}
				for n := range 2*w.count + 1 {
					sendShift, recvShift := w.at(n)
					if sendShift%windowAlign != 0 || recvShift%windowAlign != 0 {
						t.Fatalf("%s: window %d is not aligned", name, n)
					}
					again, _ := w.at(n + w.count)
					if again != sendShift || n > 0 && n < w.count && (sendShift == 0 || recvShift == 0) {
						t.Fatalf("%s: window %d is at %d and %d, and at %d when its turn comes again",
							name, n, sendShift, recvShift, again)
					}
					if p == rcclx.InPlace {
						if sendShift != recvShift || int64(recvShift)+shape.SizeBytes() > recvBuffer {
							t.Fatalf("%s: window %d is at %d and %d", name, n, sendShift, recvShift)
						}
						continue
					}
					if int64(sendShift)+shape.SendBytes > sendBuffer || int64(recvShift)+shape.RecvBytes > recvBuffer {
						t.Fatalf("%s: window %d at %d and %d is beyond the buffers of %d and %d",
							name, n, sendShift, recvShift, sendBuffer, recvBuffer)
					}
				}
				if p == rcclx.OutOfPlace && (w.sendStride < shape.SendBytes || w.recvStride < shape.RecvBytes) ||
					p == rcclx.InPlace && w.recvStride < shape.SizeBytes() {
					t.Errorf("%s: windows overlap", name)
				}
			}
		}
	}
	if send, recv := (windows{}).at(7); send != 0 || recv != 0 {
		t.Errorf("no windows are at %d and %d", send, recv)
	}
}

// queued is one call that a rank queued, as the library saw it.
type queued struct {
	what                    string
	send, recv, count, kind uintptr
}

// recorder notes what a rank queues, and passes it on.
type recorder struct {
	mu  sync.Mutex
	all []queued
}

func (r *recorder) add(q queued) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, q)
}

// record makes the library note its calls from now on.
func (r *recorder) record(l *Library) {
	runtime := *l.Runtime
	l.Runtime = &runtime
	eventRecord := runtime.eventRecord
	runtime.eventRecord = purego.NewCallback(func(event, stream uintptr) uintptr {
		r.add(queued{what: "event", send: event})
		result, _, _ := purego.SyscallN(eventRecord, event, stream)
		return result
	})
	for _, c := range []rcclx.Collective{rcclx.AllReduce, rcclx.AllGather, rcclx.ReduceScatter, rcclx.Broadcast,
		rcclx.Reduce, rcclx.AllToAll} {
		function := l.collectives[c]
		l.collectives[c] = purego.NewCallback(func(send, recv, count, kind, e, f, g, h uintptr) uintptr {
			r.add(queued{string(c), send, recv, count, kind})
			result, _, _ := purego.SyscallN(function, send, recv, count, kind, e, f, g, h)
			return result
		})
	}
	l.collectives[rcclx.AllToAllv] = 0 // by messages
	send, recv := l.send, l.recv
	l.send = purego.NewCallback(func(buffer, count, kind, peer, comm, stream uintptr) uintptr {
		r.add(queued{"send", buffer, 0, count, kind})
		result, _, _ := purego.SyscallN(send, buffer, count, kind, peer, comm, stream)
		return result
	})
	l.recv = purego.NewCallback(func(buffer, count, kind, peer, comm, stream uintptr) uintptr {
		r.add(queued{"recv", 0, buffer, count, kind})
		result, _, _ := purego.SyscallN(recv, buffer, count, kind, peer, comm, stream)
		return result
	})
}

// Before the first event comes a barrier and after it none, more calls than asked for are measured where they are
// short, and these move through the buffers and never beyond them, in place too; the checks still find every element
// right.
func TestTimedCallsMoveThroughTheBuffers(t *testing.T) {
	const ranks, buffers, size, warmup = 3, 1 << 17, 12000, 2
	for _, c := range rcclx.AllCollectives() {
		for _, p := range []rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace} {
			if p == rcclx.InPlace && !rcclx.HasInPlace(c) {
				continue
			}
			for _, modelled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s modelled %v", c, p, modelled), func(t *testing.T) {
					overRanks(t, ranks, buffers, false, nil, func(m member) error {
						var r recorder
						r.record(m.lib)
						m.modelled = modelled
						q := MeasureRequest{Collective: c, Datatype: rcclx.Float32, Placement: p, SizeBytes: size,
							WarmupIterations: warmup, Iterations: 3, Deadline: testDeadline}
						result, err := m.Measure(q)
						if err != nil {
							return err
						}
						if check := result.Checks[0]; check.WrongElements != 0 ||
							check.CheckedElements != result.Shape.RecvBytes/4 {
							return fmt.Errorf("%+v", check)
						}
						return m.judge(r.all, result, p, modelled)
					})
				})
			}
		}
	}
}

// judge looks at what a rank queued in a measurement.
func (m member) judge(all []queued, result MeasureResult, p rcclx.Placement, modelled bool) error {
	isEvent := func(i int) func(queued) bool {
		return func(q queued) bool { return q.what == "event" && q.send == m.events[i] }
	}
	first, last := slices.IndexFunc(all, isEvent(0)), slices.IndexFunc(all, isEvent(result.Latency.Repeats))
	isBarrier := func(q queued) bool { return q.what == "AllReduce" && q.count == 1 && q.kind == 2 }
	if first < 1 || last < first || !isBarrier(all[first-1]) || slices.ContainsFunc(all[first:], isBarrier) {
		return fmt.Errorf("no barrier, and no more than one, right before the first event: %+v", all[:first+1])
	}
	sends, recvs, calls := map[uintptr]bool{}, map[uintptr]bool{}, 0
	for _, q := range all[first:last] {
		if q.what == "event" {
			continue
		}
		calls++
		sendAt, recvAt := m.buffers.send.address, m.buffers.recv.address
		sendBytes, recvBytes := m.buffers.send.bytes+shiftBytes, m.buffers.recv.bytes
		if p == rcclx.InPlace {
			sendAt, sendBytes = recvAt, recvBytes
		}
		if q.send != 0 {
			sends[q.send] = true
			if q.send < uintptr(sendAt) || int64(q.send-uintptr(sendAt))+int64(q.count*4) > sendBytes {
				return fmt.Errorf("%+v sends from beyond the buffer at %#x", q, sendAt)
			}
		}
		if q.recv != 0 {
			recvs[q.recv] = true
			if q.recv < uintptr(recvAt) || int64(q.recv-uintptr(recvAt))+int64(q.count*4) > recvBytes {
				return fmt.Errorf("%+v receives beyond the buffer at %#x", q, recvAt)
			}
		}
	}
	want, leastCalls := 10, mostExtended
	if modelled {
		want, leastCalls = 1, 3
	}
	if got := result.Latency.Repeats * result.Latency.IterationsPerRepeat; got != leastCalls || calls < leastCalls {
		return fmt.Errorf("%d calls were measured, and %d queued, want %d", got, calls, leastCalls)
	}
	many := calls > leastCalls // AllToAllv and SendRecv are several messages a call
	if len(sends) < want || len(recvs) < want || modelled && !many && len(sends)+len(recvs) != 2 {
		return fmt.Errorf("the timed calls used %d and %d places", len(sends), len(recvs))
	}
	return nil
}

// Pairs meet without the others: no barrier of all ranks may come before their exchange.
func TestPairsHaveNoBarrier(t *testing.T) {
	overRanks(t, 3, 1<<16, false, nil, func(m member) error {
		var r recorder
		r.record(m.lib)
		m.modelled = false
		for round := range m.PairRounds() {
			if peer, ok := m.PairPeer(round); ok {
				if _, err := m.MeasurePair(peer,
					PairRequest{SizeBytes: 4096, Iterations: 2, Deadline: testDeadline}); err != nil {
					return err
				}
			}
		}
		if slices.ContainsFunc(r.all, func(q queued) bool { return q.what == "AllReduce" }) {
			return fmt.Errorf("an AllReduce was queued: %+v", r.all)
		}
		return nil
	})
}
