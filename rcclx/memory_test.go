package rcclx

import (
	"math"
	"testing"
)

func TestMemoryNeed(t *testing.T) {
	const pool = 2415919104 // 2.25 GiB
	of := func(c Collective, d Datatype, p Placement, size int64) MemoryCall { return MemoryCall{c, d, p, size} }
	gather := []MemoryCall{of(AllGather, BFloat16, "", 4096), of(ReduceScatter, BFloat16, OutOfPlace, 2048)}
	for _, tt := range []struct {
		name    string
		f       Flavor
		v       Variant
		s       Settings
		ranks   int
		calls   []MemoryCall
		want    Memory
		buffers int64
	}{
		{"the largest of each side", FlavorRCCL, Baseline, bothOn, 8, gather, Memory{2048, 4096, 256, 0}, 6400},
		{"in place, one buffer and no shift", FlavorRCCL, Baseline, bothOn, 8,
			[]MemoryCall{of(AllGather, BFloat16, InPlace, 4096), of(AllReduce, Float64, InPlace, 4098)},
			Memory{0, 4096, 0, 0}, 4096},
		{"both placements", FlavorNCCL, Baseline, bothOn, 8,
			[]MemoryCall{of(AllReduce, Int8, InPlace, 4096), of(AllReduce, Int8, OutOfPlace, 1000)},
			Memory{1000, 4096, 256, 0}, 5352},
		{"under the least size", FlavorRCCL, Baseline, bothOn, 8,
			[]MemoryCall{of(AllGather, Float64, "", 63)}, Memory{}, 0},
		{"nothing", FlavorRCCL, Baseline, bothOn, 8, nil, Memory{}, 0},
		{"DDA's staging buffer", FlavorRCCLXDev, DDA, bothOn, 8, gather, Memory{2048, 4096, 256, 32 << 20}, 6400},
		{"no DDA over four ranks", FlavorRCCLXDev, DDA, bothOn, 4, gather, Memory{2048, 4096, 256, 0}, 6400},
		{"FP8's least pool", FlavorRCCLXDev, LowPrecision, bothOn, 8, gather, Memory{2048, 4096, 256, pool}, 6400},
		{"FP8's pool by ranks", FlavorRCCLXStable, LowPrecision, bothOn, 16, gather,
			Memory{2048, 4096, 256, 13 << 28}, 6400},
		{"FP8's pool in bfloat16", FlavorRCCLXDev, LowPrecision, bothOn, 8,
			[]MemoryCall{of(AllReduce, BFloat16, InPlace, 1<<30)}, Memory{0, 1 << 30, 0, 4 * pool}, 1 << 30},
		{"FP8's pool in float32 is half of that", FlavorRCCLXDev, LowPrecision, bothOn, 8,
			[]MemoryCall{of(AllReduce, Float32, InPlace, 1<<30)}, Memory{0, 1 << 30, 0, 2 * pool}, 1 << 30},
		{"16 GiB of float32", FlavorRCCLXDev, LowPrecision, bothOn, 8, []MemoryCall{of(AllToAll, Float32, "", 16<<30)},
			Memory{16 << 30, 16 << 30, 256, 72 << 30}, 32<<30 + 256},
		{"FP8 takes no float16", FlavorRCCLXDev, LowPrecision, bothOn, 8,
			[]MemoryCall{of(AllReduce, Float16, InPlace, 1<<30)}, Memory{0, 1 << 30, 0, pool}, 1 << 30},
		{"FP8 for another collective", FlavorRCCLXDev, LowPrecision,
			Settings{LowPrecision: LowPrecisionSettings{Mode: ModePreferred, Collectives: []Collective{AllGather}}}, 8,
			[]MemoryCall{of(AllReduce, BFloat16, InPlace, 1<<30)}, Memory{0, 1 << 30, 0, pool}, 1 << 30},
		{"no FP8 in AMD's", FlavorRCCLDDA, LowPrecision, bothOn, 8, gather, Memory{2048, 4096, 256, 0}, 6400},
		{"more than 64 bits count", FlavorRCCLXDev, LowPrecision, bothOn,
			8, []MemoryCall{of(AllReduce, BFloat16, "", math.MaxInt64)},
			Memory{math.MaxInt64 - 1, math.MaxInt64 - 1, 256, math.MaxInt64}, math.MaxInt64},
	} {
		got := MemoryNeed(tt.f, tt.v, tt.s, tt.ranks, tt.calls)
		if got != tt.want || got.BufferBytes() != tt.buffers {
			t.Errorf("%s: %+v, buffers of %d; want %+v, buffers of %d",
				tt.name, got, got.BufferBytes(), tt.want, tt.buffers)
		}
		if total := saturatingSum(tt.buffers, tt.want.LibraryBytes); got.TotalBytes() != total || total < tt.buffers {
			t.Errorf("%s: %d in all, want %d", tt.name, got.TotalBytes(), total)
		}
	}
}

func TestLowPrecisionPoolBytes(t *testing.T) {
	for _, tt := range []struct {
		ranks           int
		elements, bytes int64
	}{
		{8, 0, 2415919104}, {2, 128 << 20, 2415919104}, {8, 128<<20 + 1, 2 * 2415919104}, {64, 0, 37 << 28},
		{8, 1 << 62, math.MaxInt64}, {8, math.MaxInt64, math.MaxInt64},
	} {
		if got := LowPrecisionPoolBytes(tt.ranks, tt.elements); got != tt.bytes {
			t.Errorf("%d ranks, %d elements: %d bytes, want %d", tt.ranks, tt.elements, got, tt.bytes)
		}
	}
}
