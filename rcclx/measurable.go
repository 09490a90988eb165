package rcclx

import "slices"

// LowPrecisionMinBytes is the least message that FP8 transport takes: a compile-time constant of the library
// (collectives.cc of torchcomms comms/rcclx/develop), which no variable changes.
const LowPrecisionMinBytes = lowPrecisionMinBytes

// KnowsLowPrecision says whether FP8 transport exists for a collective and datatype (collectives.cc:111-134, 218-228,
// 342-349, 766-778 of torchcomms comms/rcclx/develop).
func KnowsLowPrecision(c Collective, d Datatype) bool {
	return slices.Contains(Collectives(), c) && (d == Float32 || d == BFloat16)
}

// MeasurableSizes are those of sizesBytes at which every rank has an element to move.
func MeasurableSizes(c Collective, d Datatype, sizesBytes []int64, ranks int) []int64 {
	var out []int64
	for _, size := range sizesBytes {
		if _, err := ShapeOf(c, d, size, ranks); err == nil {
			out = append(out, size)
		}
	}
	return out
}

// MeasurablePlacements are those of placements that a collective has; none at all means out of place.
func MeasurablePlacements(c Collective, placements []Placement) []Placement {
	if len(placements) == 0 {
		return []Placement{OutOfPlace}
	}
	var out []Placement
	for _, p := range placements {
		if p != InPlace || HasInPlace(c) {
			out = append(out, p)
		}
	}
	return out
}
