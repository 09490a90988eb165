package engine

import "rcclx.io/commgroup-operator/rcclx"

// windowAlign keeps the alignment that the library's fast paths ask for.
const windowAlign = 256

// windows are places in the buffers, one behind the other, which the timed calls take in turn, so that no call finds
// its data in a cache because the call before left them there: rccl-tests and nccl-tests do the same (src/common.cu,
// startColl). The zero value is one window, at the start.
type windows struct {
	count                  int
	sendStride, recvStride int64
}

// windowsOf gives as many windows for a call as its buffers hold. In place, both strides are the same, so that a
// window's send and receive data lie as in the first one.
func windowsOf(shape rcclx.Shape, placement rcclx.Placement, sendBufferBytes, recvBufferBytes int64) windows {
	stride := func(sizeBytes int64) int64 { return (sizeBytes + windowAlign - 1) / windowAlign * windowAlign }
	if placement == rcclx.InPlace {
		s := stride(shape.SizeBytes())
		return windows{int((recvBufferBytes-shape.SizeBytes())/s) + 1, s, s}
	}
	send, recv := stride(shape.SendBytes), stride(shape.RecvBytes)
	return windows{int(min((sendBufferBytes-shape.SendBytes)/send, (recvBufferBytes-shape.RecvBytes)/recv)) + 1,
		send, recv}
}

// at gives how far the nth call's buffers lie from those of the first.
func (w windows) at(n int) (sendShift, recvShift uintptr) {
	if w.count < 2 {
		return 0, 0
	}
	i := int64(n % w.count)
	return uintptr(i * w.sendStride), uintptr(i * w.recvStride)
}
