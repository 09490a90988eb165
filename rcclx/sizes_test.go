package rcclx

import (
	"math"
	"slices"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		min, max int64
		factor   int
		want     []int64
	}{
		{1024, 8192, 2, []int64{1024, 2048, 4096, 8192}},
		{1024, 10000, 4, []int64{1024, 4096}},
		{1024, 1024, 2, []int64{1024}},
		{1024, 8192, 1, []int64{1024}},
		{1024, 8192, 0, []int64{1024}},
		{2048, 1024, 2, nil},
		{0, 1024, 2, nil},
		{math.MaxInt64 / 2, math.MaxInt64, 2, []int64{math.MaxInt64 / 2, math.MaxInt64 - 1}},
	} {
		if got := Sizes(tt.min, tt.max, tt.factor); !slices.Equal(got, tt.want) {
			t.Errorf("Sizes(%d, %d, %d) = %v, want %v", tt.min, tt.max, tt.factor, got, tt.want)
		}
	}
}

func TestShapeOf(t *testing.T) {
	for _, tt := range []struct {
		c    Collective
		d    Datatype
		size int64
		want Shape
	}{
		{AllReduce, BFloat16, 1024, Shape{512, 1024, 1024}},
		{AllGather, BFloat16, 1024, Shape{64, 128, 1024}},
		{ReduceScatter, Float32, 1024, Shape{32, 1024, 128}},
		{AllToAll, Float16, 1024, Shape{64, 1024, 1024}},
		{AllGather, Float32, 1000, Shape{31, 124, 992}},
	} {
		got, err := ShapeOf(tt.c, tt.d, tt.size, 8)
		if err != nil || got != tt.want {
			t.Errorf("ShapeOf(%s, %s, %d) = %+v, %v; want %+v", tt.c, tt.d, tt.size, got, err, tt.want)
		}
	}
	for _, bad := range []struct {
		c     Collective
		d     Datatype
		size  int64
		ranks int
	}{{AllGather, BFloat16, 15, 8}, {AllReduce, "Int8", 1024, 8}, {"Gather", BFloat16, 1024, 8}, {AllReduce, BFloat16, 1024, 0}, {AllReduce, BFloat16, -8, 8}} {
		if got, err := ShapeOf(bad.c, bad.d, bad.size, bad.ranks); err == nil {
			t.Errorf("ShapeOf(%v) = %+v, want an error", bad, got)
		}
	}
}

// The rows are rccl-tests' own formulas: 256 MiB in 1530.2 us is 175.43 GB/s and, over 8 ranks, 306.99 on the bus.
func TestBandwidths(t *testing.T) {
	if got := AlgBandwidthMBps(268435456, 1530200); got != 175425 {
		t.Errorf("AlgBandwidthMBps = %d", got)
	}
	for c, want := range map[Collective]int64{AllReduce: 306994, AllGather: 153497, ReduceScatter: 153497, AllToAll: 153497} {
		if got := BusBandwidthMBps(c, 268435456, 1530200, 8); got != want {
			t.Errorf("BusBandwidthMBps(%s) = %d, want %d", c, got, want)
		}
	}
	if AlgBandwidthMBps(1024, 0) != 0 || BusBandwidthMBps(AllReduce, 1024, 0, 8) != 0 || BusBandwidthMBps(AllReduce, 1024, 10, 1) != 0 {
		t.Error("a missing latency or a single rank must give zero")
	}
}

func TestVersionString(t *testing.T) {
	for code, want := range map[int]string{22803: "2.28.3", 22105: "2.21.5", 23004: "2.30.4", 2804: "2.8.4"} {
		if got := VersionString(code); got != want {
			t.Errorf("VersionString(%d) = %s, want %s", code, got, want)
		}
	}
}
