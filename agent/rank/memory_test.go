package rank

import (
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func TestMemoryCalls(t *testing.T) {
	got := MemoryCalls([]Step{
		{Kind: StepMeasure, Collective: rcclx.AllGather, Datatype: rcclx.Int8, Placement: rcclx.InPlace,
			SizesBytes: []int64{8, 16}},
		{Kind: StepPairProbe, SizesBytes: []int64{64}},
	})
	want := []rcclx.MemoryCall{{Collective: rcclx.AllGather, Datatype: rcclx.Int8, Placement: rcclx.InPlace,
		SizeBytes: 8}, {Collective: rcclx.AllGather, Datatype: rcclx.Int8, Placement: rcclx.InPlace, SizeBytes: 16},
		{Collective: rcclx.SendRecv, Datatype: rcclx.Float32, SizeBytes: 64}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
