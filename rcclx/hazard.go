package rcclx

import "fmt"

// lowPrecisionLine is what each rank's part is floored to, in elements (CACHE_LINE_SIZE in torchcomms
// comms/rcclx/develop/meta/lpcoll/low_precision_allreduce.cc and low_precision_reduce_scatter.cc).
const lowPrecisionLine = 128

// Hazard says why the result of a call may be wrong under a variant although the library reports none; empty where no
// reason is known. Today there is one: FP8 AllReduce and ReduceScatter of counts that do not split into whole lines.
func Hazard(f Flavor, v Variant, s Settings, c Call) string {
	if !lowPrecisionGate(f, environmentMap(Environment(f, v, s)), c.exact()).open() {
		return ""
	}
	return lowPrecisionHazard(c)
}

// HazardMultiple is what the count of an FP8 call must be a multiple of for the library's code to handle all of it;
// zero where any count is safe.
func HazardMultiple(c Collective, ranks int) int64 {
	switch c {
	case AllReduce:
		return lowPrecisionLine * int64(ranks)
	case ReduceScatter:
		return lowPrecisionLine
	}
	return 0
}

// HazardStart is the first element of a rank's result that the hazard of an FP8 call with a count argument of
// countElements can make wrong; countElements where there is none, as for a count that is safe. What is wrong before it
// has another cause. AllReduce floors each rank's part, so that the tail behind all floored parts is never written.
// ReduceScatter reads rank r's part from r floored parts on instead of r whole ones: rank 0's result lacks its tail,
// and any element of the others' may be wrong (low_precision_allreduce.cc and low_precision_reduce_scatter.cc,
// uniformChunkSize).
func HazardStart(c Collective, rank, ranks int, countElements int64) int64 {
	multiple := HazardMultiple(c, ranks)
	switch {
	case multiple == 0 || countElements%multiple == 0:
		return countElements
	case c == ReduceScatter && rank > 0:
		return 0
	}
	return countElements - countElements%multiple
}

// lowPrecisionHazard names the counts for which FP8's code loses a tail: AllReduce dequantises it from memory that was
// never written, and in ReduceScatter every rank's part but the first shifts.
func lowPrecisionHazard(c Call) string {
	multiple := HazardMultiple(c.Collective, c.Ranks)
	if multiple == 0 {
		return ""
	}
	shape, err := ShapeOf(c.Collective, c.Datatype, c.SizeBytes, c.Ranks)
	if err != nil || shape.CountElements%multiple == 0 {
		return ""
	}
	return fmt.Sprintf("a count of %d is no multiple of %d elements, for which the library's code leaves a tail "+
		"unwritten: check the data", shape.CountElements, multiple)
}

// HazardSizes are message sizes at or just over sizeBytes, and at least FP8's least size, at whose counts FP8 loses a
// tail: one element over a safe count, and half of a multiple over. None for collectives where any count is safe.
func HazardSizes(c Collective, d Datatype, sizeBytes int64, ranks int) []int64 {
	multiple := HazardMultiple(c, ranks)
	parts, err := partsOf(c, d, ranks)
	if multiple == 0 || err != nil {
		return nil
	}
	unit := d.Bytes() * parts
	safe := (max(sizeBytes, lowPrecisionMinBytes) + unit*multiple - 1) / (unit * multiple) * multiple
	return []int64{(safe + 1) * unit, (safe + multiple/2) * unit}
}
