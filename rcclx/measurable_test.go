package rcclx

import (
	"slices"
	"testing"
)

func TestMeasurableSizes(t *testing.T) {
	for _, tc := range []struct {
		c    Collective
		d    Datatype
		want []int64
	}{
		{AllReduce, BFloat16, []int64{8, 16, 64}},
		{AllGather, BFloat16, []int64{16, 64}}, // 8 ranks of 2 B
		{AllGather, Float64, []int64{64}},
		{SendRecv, Float64, []int64{8, 16, 64}},
		{AllToAllv, BFloat16, []int64{64}}, // 4 elements for each of 8 peers on average
	} {
		if got := MeasurableSizes(tc.c, tc.d, []int64{1, 8, 16, 64}, 8); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %v, want %v", tc.c, tc.d, got, tc.want)
		}
	}
}

func TestMeasurablePlacements(t *testing.T) {
	both := []Placement{OutOfPlace, InPlace}
	for _, tc := range []struct {
		c     Collective
		asked []Placement
		want  []Placement
	}{
		{AllReduce, nil, []Placement{OutOfPlace}},
		{AllReduce, both, both},
		{AllToAll, both, []Placement{OutOfPlace}},
		{SendRecv, []Placement{InPlace}, nil},
	} {
		if got := MeasurablePlacements(tc.c, tc.asked); !slices.Equal(got, tc.want) {
			t.Errorf("%s, asked for %v: %v, want %v", tc.c, tc.asked, got, tc.want)
		}
	}
}

func TestKnowsLowPrecision(t *testing.T) {
	for _, c := range AllCollectives() {
		for _, d := range Datatypes() {
			want := slices.Contains(Collectives(), c) && (d == Float32 || d == BFloat16)
			// The gates are asked the same question about a call that is large enough.
			env := environment{envFP8: "1"}
			open := lowPrecisionGate(FlavorRCCLXDev, env,
				Call{Collective: c, Datatype: d, Op: "Sum", SizeBytes: LowPrecisionMinBytes, Ranks: 8, Nodes: 1}).open()
			if got := KnowsLowPrecision(c, d); got != want || got != open {
				t.Errorf("%s %s: %v, want %v; the gate says %v", c, d, got, want, open)
			}
		}
	}
}
