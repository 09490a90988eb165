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
	for _, tt := range [][3]int{{20, 5, 4}, {21, 5, 5}, {3, 3, 1}, {1, 1, 1}, {0, 1, 1}} {
		if r, p := repeatsOf(tt[0]); r != tt[1] || p != tt[2] {
			t.Errorf("repeatsOf(%d) = %d, %d; want %d, %d", tt[0], r, p, tt[1], tt[2])
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
