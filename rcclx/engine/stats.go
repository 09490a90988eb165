package engine

import (
	"math"
	"slices"

	"rcclx.io/commgroup-operator/rcclx"
)

// maxRepeats is how many batches a measurement is split into, each timed by itself.
const maxRepeats = 5

// repeatsOf splits iterations into repeats of equal length; the last one is filled up, so that at least as many calls
// are measured as asked for.
func repeatsOf(iterations int) (repeats, perRepeat int) {
	repeats = min(maxRepeats, iterations)
	if repeats < 1 {
		return 1, 1
	}
	return repeats, (iterations + repeats - 1) / repeats
}

// latencyStats summarises the mean latencies of the repeats, in nanoseconds. The median of an even number is the mean of
// the middle two; the 95th percentile is by nearest rank.
func latencyStats(nanoseconds []int64, perRepeat int) rcclx.LatencyStats {
	n := len(nanoseconds)
	if n == 0 {
		return rcclx.LatencyStats{}
	}
	sorted := slices.Sorted(slices.Values(nanoseconds))
	var sum, squares float64
	for _, v := range sorted {
		sum += float64(v)
	}
	mean := sum / float64(n)
	for _, v := range sorted {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	stats := rcclx.LatencyStats{
		MedianNanoseconds:   (sorted[(n-1)/2] + sorted[n/2]) / 2,
		MinNanoseconds:      sorted[0],
		MaxNanoseconds:      sorted[n-1],
		P95Nanoseconds:      sorted[int(math.Ceil(0.95*float64(n)))-1],
		Repeats:             n,
		IterationsPerRepeat: perRepeat,
	}
	if mean > 0 {
		stats.CoefficientOfVariationPPM = int64(math.Round(math.Sqrt(squares/float64(n)) / mean * 1e6))
	}
	return stats
}

// noPeer stands for a rank that sits a round out.
const noPeer = -1

// pairPeer gives a rank's peer in one round of a round-robin tournament (circle method): over all rounds every pair
// meets once, and no rank is in two pairs of a round. noPeer where an odd number leaves a rank alone.
func pairPeer(round, rank, ranks int) int {
	last := ranks - 1 + ranks%2 // with an odd number, a rank that does not exist takes the fixed seat
	peer := last
	if rank == last {
		peer = round
	} else if other := ((2*round-rank)%last + last) % last; other != rank {
		peer = other
	}
	if peer >= ranks {
		return noPeer
	}
	return peer
}

// pairRounds is the number of rounds in which every pair meets once.
func pairRounds(ranks int) int {
	if ranks < 2 {
		return 0
	}
	return ranks - 1 + ranks%2
}
