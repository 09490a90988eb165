package engine

import (
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func TestLatencyStats(t *testing.T) {
	got := latencyStats([]int64{100, 110, 90, 105, 95}, 4)
	want := rcclx.LatencyStats{MedianNanoseconds: 100, MinNanoseconds: 90, MaxNanoseconds: 110, P95Nanoseconds: 110,
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
}

func TestRepeats(t *testing.T) {
	for _, tt := range []struct {
		iterations int
		sizeBytes  int64
		want       int
	}{{20, 8, 5}, {100, 8, 5}, {200, 8, 10}, {1000, 8, 20}, {20, 1 << 30, 20}, {20, 16 << 20, 5}, {40, 16 << 20, 5}, {20, 64 << 20, 5}, {20, 256 << 20, 20}, {3, 8, 3}, {23, 8, 5}, {33, 1 << 30, 20}, {3, 1 << 30, 3}, {1, 8, 1}} {
		got := repeatsOf(tt.iterations, tt.sizeBytes)
		if got != tt.want {
			t.Errorf("repeatsOf(%d, %d) = %d, want %d", tt.iterations, tt.sizeBytes, got, tt.want)
		}
		calls := 0
		for repeat := range got {
			n := callsIn(repeat, got, tt.iterations)
			if n < tt.iterations/got || n > tt.iterations/got+1 {
				t.Errorf("repeat %d of %d of %d iterations has %d calls", repeat, got, tt.iterations, n)
			}
			calls += n
		}
		if calls != tt.iterations {
			t.Errorf("%d calls in %d repeats, want exactly %d: all ranks must make the same number", calls, got, tt.iterations)
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
					t.Fatalf("%d ranks, round %d: rank %d meets %d, which meets %d", ranks, round, rank, peer, pairPeer(round, peer, ranks))
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
