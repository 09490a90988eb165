package rank

import "rcclx.io/commgroup-operator/rcclx"

// MemoryCalls are the calls of steps, for rcclx.MemoryNeed.
func MemoryCalls(steps []Step) []rcclx.MemoryCall {
	var calls []rcclx.MemoryCall
	for _, step := range steps {
		call := rcclx.MemoryCall{Collective: step.Collective, Datatype: step.Datatype, Placement: step.Placement}
		if step.Kind == StepPairProbe {
			call = rcclx.MemoryCall{Collective: rcclx.SendRecv, Datatype: rcclx.Float32} // engine.MeasurePair
		}
		for _, call.SizeBytes = range step.SizesBytes {
			calls = append(calls, call)
		}
	}
	return calls
}
