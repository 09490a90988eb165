package rcclx

// LowPrecisionPoolBytes is the uncached pool that the library allocates for a communicator while FP8 is on: 128 Mi
// elements, doubled until the largest message fits, of 10 + max(8, ranks) bytes each
// (meta/lpcoll/low_precision_buffer_pool.cc); 2.25 GiB at eight ranks and up to 128 Mi elements.
func LowPrecisionPoolBytes(ranks int, messageElements int64) int64 {
	elements := int64(lowPrecisionPoolUnits)
	for elements < messageElements {
		elements *= 2
	}
	return elements * int64(10+max(8, ranks))
}

// MemoryNeed is what a run takes from each device: the buffers for its largest call and what the library allocates for
// the variant. Give a call in place as Shape.InPlace, which has one buffer; sendBytes is zero where all calls are.
func MemoryNeed(f Flavor, v Variant, s Settings, ranks int, shapes []Shape) (sendBytes, recvBytes, ofLibraryBytes int64) {
	for _, shape := range shapes {
		sendBytes, recvBytes = max(sendBytes, shape.SendBytes), max(recvBytes, shape.RecvBytes)
	}
	return sendBytes, recvBytes, libraryBytes(f, v, s, ranks, max(sendBytes, recvBytes))
}

// libraryBytes is what the library itself allocates on each device for a variant, beyond what every communicator takes.
func libraryBytes(f Flavor, v Variant, s Settings, ranks int, messageBytes int64) int64 {
	switch {
	case !f.rcclx():
		return 0
	case v == LowPrecision:
		// BFloat16 is the smallest datatype that FP8 takes, so this bounds the elements from above.
		return LowPrecisionPoolBytes(ranks, messageBytes/BFloat16.Bytes())
	case v == DDA && f == FlavorRCCLXDev && ranks == ddaRanks:
		return environmentMap(Environment(f, v, s)).integer(envDDASendBuffer)
	}
	return 0
}
