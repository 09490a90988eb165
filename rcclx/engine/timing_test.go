package engine

import (
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func TestLatencyStats(t *testing.T) {
	got := latencyStats([]int64{100, 110, 90, 105, 95}, 4)
	want := rcclx.LatencyStats{MedianNanoseconds: 100, MinNanoseconds: 90, MaxNanoseconds: 110,
		CoefficientOfVariationPPM: 70711, Repeats: 5, IterationsPerRepeat: 4}
	if got != want {
		t.Errorf("latencyStats = %+v, want %+v", got, want)
	}
	if got := latencyStats([]int64{10, 20}, 1); got.MedianNanoseconds != 15 {
		t.Errorf("median of 10 and 20 = %d", got.MedianNanoseconds)
	}
	if got := latencyStats(nil, 1); got != (rcclx.LatencyStats{}) {
		t.Errorf("no repeats gave %+v", got)
	}
	var many []int64
	for i := range int64(20) {
		many = append(many, 120-i)
	}
	if got := latencyStats(many, 1); got.P95Nanoseconds != 119 || got.MaxNanoseconds != 120 {
		t.Errorf("20 repeats: p95 %d of at most %d, want 119 of 120", got.P95Nanoseconds, got.MaxNanoseconds)
	}
	if got := latencyStats(many[1:], 1); got.P95Nanoseconds != 0 {
		t.Errorf("19 repeats: p95 %d, which is the largest; want none", got.P95Nanoseconds)
	}
}

func TestRepeats(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		iterations     int
		sizeBytes      int64
		calls, repeats int
	}{
		{20, 8, 100, 5}, {1, 8, 100, 5}, {100, 8, 100, 5}, {200, 8, 200, 10}, {1000, 8, 1000, 20},
		{23, 1 * mib, 100, 5},
		{20, 16 * mib, 100, 12}, {20, 32 * mib, 80, 20}, {20, 64 * mib, 40, 20}, {20, 128 * mib, 20, 20},
		{5, 128 * mib, 20, 20},
		{20, 1024 * mib, 20, 20}, {33, 1024 * mib, 33, 20}, {3, 1024 * mib, 3, 3}, {1, 4096 * mib, 1, 1},
		{4096, 1 << 50, 4096, 20},
	} {
		calls := callsOf(tt.iterations, tt.sizeBytes)
		repeats := repeatsOf(calls, tt.sizeBytes)
		if calls != tt.calls || repeats != tt.repeats {
			t.Errorf("%d iterations of %d bytes: %d calls in %d repeats, want %d in %d",
				tt.iterations, tt.sizeBytes, calls, repeats, tt.calls, tt.repeats)
		}
		if calls < tt.iterations || repeats > maxRepeats {
			t.Errorf("%d iterations of %d bytes: %d calls in %d repeats", tt.iterations, tt.sizeBytes, calls, repeats)
		}
		sum := 0
		for repeat := range repeats {
			n := callsIn(repeat, repeats, calls)
			if n < calls/repeats || n > calls/repeats+1 {
				t.Errorf("repeat %d of %d of %d calls has %d", repeat, repeats, calls, n)
			}
			sum += n
		}
		if sum != calls {
			t.Errorf("%d calls in %d repeats, want exactly %d: all ranks must make the same number",
				sum, repeats, calls)
		}
	}
}

func TestPairPeerMeetsEveryPairOnce(t *testing.T) {
	for ranks := range 18 {
		met := map[[2]int]int{}
		for round := range pairRounds(ranks) {
			for rank := range ranks {
				peer := pairPeer(round, rank, ranks)
				if peer == noPeer {
					continue
				}
				if peer == rank || peer < 0 || pairPeer(round, peer, ranks) != rank {
					t.Fatalf("%d ranks, round %d: rank %d meets %d, which meets %d",
						ranks, round, rank, peer, pairPeer(round, peer, ranks))
				}
				met[[2]int{min(rank, peer), max(rank, peer)}]++
			}
		}
		if len(met) != ranks*(ranks-1)/2 {
			t.Errorf("%d ranks: %d pairs met, want %d", ranks, len(met), ranks*(ranks-1)/2)
		}
		for pair, times := range met {
			if times != 2 { // once from either side
				t.Errorf("%d ranks: pair %v met %d times", ranks, pair, times)
			}
		}
	}
}
