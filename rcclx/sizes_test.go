package rcclx

import (
	"math"
	"slices"
	"strings"
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

func TestDatatypeBytes(t *testing.T) {
	want := map[Datatype]int64{Float64: 8, Float32: 4, Int32: 4, Float16: 2, BFloat16: 2, Float8E4M3: 1,
		Float8E5M2: 1, Int8: 1}
	if len(Datatypes()) != len(want) {
		t.Errorf("Datatypes() = %v, want %d of them", Datatypes(), len(want))
	}
	for _, d := range Datatypes() {
		if d.Bytes() != want[d] {
			t.Errorf("%s has %d bytes, want %d", d, d.Bytes(), want[d])
		}
	}
	if got := Datatype("Int7").Bytes(); got != 0 {
		t.Errorf("an unknown datatype has %d bytes", got)
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
		{AllToAllv, Float64, 1024, Shape{16, 1024, 1024}},
		{Broadcast, Int8, 1023, Shape{1023, 1023, 1023}},
		{Reduce, Int32, 1023, Shape{255, 1020, 1020}},
		{SendRecv, Float8E4M3, 3, Shape{3, 3, 3}},
		{AllGather, Float32, 1000, Shape{31, 124, 992}},
		{AllToAllv, BFloat16, 64, Shape{4, 64, 64}},
		{AllReduce, Int8, math.MaxInt64, Shape{math.MaxInt64, math.MaxInt64, math.MaxInt64}},
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
		says  string
	}{
		{AllGather, BFloat16, 15, 8, "at least 16 bytes"}, {AllReduce, "Int7", 1024, 8, "Int8"},
		{"Gather", BFloat16, 1024, 8, "SendRecv"},
		{AllReduce, BFloat16, 1024, 0, "at least 1"},
		{AllReduce, BFloat16, -8, 8, "at least 2 bytes"}, {AllToAllv, Int8, 7, 8, "at least 32 bytes"},
		{AllToAllv, BFloat16, 63, 8, "no share for a peer: use at least 64 bytes"},
		{AllToAllv, Int8, 5, 3, "at least 6 bytes"},
		{AllGather, Float64, math.MaxInt64, math.MaxInt64, "32 bits"},
	} {
		if got, err := ShapeOf(bad.c, bad.d, bad.size, bad.ranks); err == nil ||
			!strings.Contains(err.Error(), bad.says) {
			t.Errorf("ShapeOf(%v) = %+v, %v; want an error with %q", bad, got, err, bad.says)
		}
	}
}

func TestShapeOfCount(t *testing.T) {
	if got, err := ShapeOfCount(AllGather, Float64, 3, 4); err != nil || got != (Shape{3, 24, 96}) {
		t.Errorf("ShapeOfCount = %+v, %v", got, err)
	}
	for _, tt := range []struct {
		count int64
		ranks int
		says  string
	}{
		{math.MaxInt64/8/4 + 1, 4, "use at most 288230376151711743 elements"}, {math.MaxInt64, 1, "more bytes"},
		{0, 4, "at least 1"}, {-1, 4, "at least 1"},
	} {
		if got, err := ShapeOfCount(AllGather, Float64, tt.count, tt.ranks); err == nil ||
			!strings.Contains(err.Error(), tt.says) {
			t.Errorf("ShapeOfCount(%d over %d) = %+v, %v; want an error with %q", tt.count, tt.ranks, got, err, tt.says)
		}
	}
}

// In place, no part may leave the buffer, and rank r's part is where rccl-tests has it.
func TestInPlace(t *testing.T) {
	for c, want := range map[Collective][2]int64{AllReduce: {0, 0}, AllGather: {3 * 128, 0},
		ReduceScatter: {0, 3 * 128}, Broadcast: {0, 0}, Reduce: {0, 0}} {
		if !HasInPlace(c) {
			t.Errorf("%s has no in-place form", c)
		}
		shape, err := ShapeOf(c, BFloat16, 1024, 8)
		if err != nil {
			t.Fatal(err)
		}
		send, recv := shape.InPlaceOffsets(3)
		if send != want[0] || recv != want[1] {
			t.Errorf("%s: rank 3 sends from %d and receives at %d, want %v", c, send, recv, want)
		}
		if send, recv = shape.InPlaceOffsets(7); send+shape.SendBytes > shape.SizeBytes() ||
			recv+shape.RecvBytes > shape.SizeBytes() {
			t.Errorf("%s: rank 7 leaves the buffer: %d %d", c, send, recv)
		}
		if got := shape.InPlace(); got.SendBytes != 0 || got.RecvBytes != 1024 ||
			got.CountElements != shape.CountElements {
			t.Errorf("%s in place needs %+v", c, got)
		}
	}
	for _, c := range []Collective{AllToAll, AllToAllv, SendRecv, "Gather"} {
		if HasInPlace(c) {
			t.Errorf("%s has an in-place form", c)
		}
	}
}

func TestPeerCounts(t *testing.T) {
	// rccl-tests' alltoallv_perf over 4 ranks: a share of 16*2/4 = 8, and 16*4 - 8*6 for the peer with no share.
	for rank, want := range [][]int64{{16, 8, 16, 24}, {8, 16, 24, 16}, {16, 24, 16, 8}, {24, 16, 8, 16}} {
		if got := PeerCounts(rank, 4, 16); !slices.Equal(got, want) {
			t.Errorf("PeerCounts(%d, 4, 16) = %v, want %v", rank, got, want)
		}
	}
	for _, ranks := range []int{1, 2, 3, 7, 8, 64} {
		for _, count := range []int64{1, 2, 3, 17, 1 << 20, math.MaxInt64 / 64} {
			for r := range ranks {
				counts, sum, uneven := PeerCounts(r, ranks, count), int64(0), false
				for p, n := range counts {
					sum += n
					// What ShapeOf refuses is what has no share: a rank then sends all to one peer.
					_, err := ShapeOf(AllToAllv, Int8, count*int64(ranks), ranks)
					if refused, least := err != nil, (int64(ranks)+1)/2; refused != (count < least) ||
						!refused && n < 1 || refused && n != 0 && n != count*int64(ranks) {
						t.Fatalf("%d ranks, count %d: parts %v, refused: %v", ranks, count, counts, err)
					}
					uneven = uneven || n != count
					if n < 0 || PeerCounts(p, ranks, count)[r] != n {
						t.Fatalf("%d ranks, count %d: %d sends %d elements to %d, who sends back %d",
							ranks, count, r, n, p, PeerCounts(p, ranks, count)[r])
					}
				}
				if sum != count*int64(ranks) || uneven != (ranks > 2) {
					t.Fatalf("PeerCounts(%d, %d, %d) = %v: sum %d, want %d in uneven parts",
						r, ranks, count, counts, sum, count*int64(ranks))
				}
			}
		}
	}
	for _, got := range [][]int64{PeerCounts(-1, 4, 1), PeerCounts(4, 4, 1), PeerCounts(0, 0, 1),
		PeerCounts(0, 4, -1)} {
		if got != nil {
			t.Errorf("impossible peers gave %v", got)
		}
	}
}

// The rows are rccl-tests' own formulas: 256 MiB in 1530.2 us is 175.43 GB/s and, over 8 ranks, 306.99 on the bus.
func TestBandwidths(t *testing.T) {
	if got := AlgBandwidthMBps(268435456, 1530200); got != 175425 {
		t.Errorf("AlgBandwidthMBps = %d", got)
	}
	for c, want := range map[Collective]int64{AllReduce: 306994, AllGather: 153497, ReduceScatter: 153497,
		AllToAll: 153497, AllToAllv: 153497, Broadcast: 175425, Reduce: 175425, SendRecv: 175425, "Gather": 0} {
		if got := BusBandwidthMBps(c, 268435456, 1530200, 8); got != want {
			t.Errorf("BusBandwidthMBps(%s) = %d, want %d", c, got, want)
		}
	}
	if alg, bus := AlgBandwidthMBps(8, 40_000), BusBandwidthMBps(AllReduce, 8, 40_000, 8); alg != 1 || bus != 1 {
		t.Errorf("8 B in 40 us: %d and %d MB/s, want 1 of both: zero is missing", alg, bus)
	}
	if AlgBandwidthMBps(1024, 0) != 0 || BusBandwidthMBps(AllReduce, 1024, 0, 8) != 0 ||
		BusBandwidthMBps(SendRecv, 1024, 10, 1) != 0 {
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
