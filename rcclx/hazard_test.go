package rcclx

import (
	"slices"
	"strings"
	"testing"
)

func TestHazard(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    Flavor
		v    Variant
		c    Call
		says string
	}{
		{"AllReduce of whole lines", FlavorRCCLXDev, LowPrecision, call(AllReduce, BFloat16, 16<<20), ""},
		{"AllReduce one over", FlavorRCCLXDev, LowPrecision, call(AllReduce, BFloat16, 16<<20+2),
			"8388609 is no multiple of 1024"},
		{"ReduceScatter of whole lines", FlavorRCCLXStable, LowPrecision, call(ReduceScatter, Float32, 16<<20), ""},
		{"ReduceScatter half a line over", FlavorRCCLXStable, LowPrecision,
			call(ReduceScatter, Float32, 16<<20+64*8*4), "524352 is no multiple of 128"},
		{"AllGather loses nothing", FlavorRCCLXDev, LowPrecision, call(AllGather, BFloat16, 16<<20+16), ""},
		{"below FP8", FlavorRCCLXDev, LowPrecision, call(AllReduce, BFloat16, 1<<20+2), ""},
		{"datatype without FP8", FlavorRCCLXDev, LowPrecision, call(AllReduce, Float16, 16<<20+2), ""},
		{"another variant", FlavorRCCLXDev, DDA, call(AllReduce, BFloat16, 16<<20+2), ""},
		{"another library", FlavorRCCLDDA, LowPrecision, call(AllReduce, BFloat16, 16<<20+2), ""},
	} {
		got := Hazard(tt.f, tt.v, bothOn, tt.c)
		if (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
	}
}

func TestHazardStart(t *testing.T) {
	for _, tt := range []struct {
		c           Collective
		rank, ranks int
		count, want int64
	}{
		{AllReduce, 0, 8, 8<<20 + 1, 8 << 20}, {AllReduce, 7, 8, 8<<20 + 1023, 8 << 20},
		{AllReduce, 3, 8, 8 << 20, 8 << 20}, {AllReduce, 1, 3, 1000, 768},
		{ReduceScatter, 0, 8, 524352, 524288}, {ReduceScatter, 1, 8, 524352, 0}, {ReduceScatter, 7, 8, 524288, 524288},
		{AllGather, 1, 8, 1001, 1001}, {Reduce, 0, 8, 1001, 1001},
	} {
		if got := HazardStart(tt.c, tt.rank, tt.ranks, tt.count); got != tt.want {
			t.Errorf("%s of %d on rank %d of %d: from element %d, want %d",
				tt.c, tt.count, tt.rank, tt.ranks, got, tt.want)
		}
	}
}

func TestHazardSizes(t *testing.T) {
	for _, ranks := range []int{2, 3, 8, 16} {
		for _, d := range []Datatype{Float32, BFloat16} {
			for _, size := range []int64{0, 1 << 20, 16 << 20, 16<<20 + 1, 100 << 20} {
				for _, c := range []Collective{AllReduce, ReduceScatter} {
					got := HazardSizes(c, d, size, ranks)
					if len(got) != 2 {
						t.Fatalf("HazardSizes(%s, %s, %d, %d) = %v", c, d, size, ranks, got)
					}
					for _, hit := range got {
						shape, err := ShapeOf(c, d, hit, ranks)
						lines := int64(128 * ranks)
						near := max(size, 16<<20)
						if err != nil || shape.SizeBytes() != hit || hit < near || hit-near > 2*lines*d.Bytes() {
							t.Errorf("%s %s over %d ranks: %d is no whole message near %d (%+v, %v)",
								c, d, ranks, hit, near, shape, err)
						}
						if hazard := Hazard(FlavorRCCLXDev, LowPrecision, bothOn, Call{Collective: c, Datatype: d,
							Op: "Sum", SizeBytes: hit, Ranks: ranks, Nodes: 1}); hazard == "" {
							t.Errorf("%s %s over %d ranks: %d bytes are no hazard", c, d, ranks, hit)
						}
					}
				}
			}
		}
	}
	for _, got := range [][]int64{HazardSizes(AllGather, BFloat16, 16<<20, 8),
		HazardSizes(AllReduce, "Int7", 16<<20, 8), HazardSizes(AllReduce, BFloat16, 16<<20, 0)} {
		if !slices.Equal(got, nil) {
			t.Errorf("%v, want none", got)
		}
	}
}
