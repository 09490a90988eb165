package engine

import (
	"errors"
	"math"
	"slices"

	"rcclx.io/commgroup-operator/rcclx"
)

// A measurement is split into repeats, each timed by itself between two events.
const (
	minRepeats = 5
	maxRepeats = 20
	// An event keeps two calls from overlapping, which costs 2 to 3 us on an H200. So a repeat has more calls the
	// shorter these are: enough to move so many bytes, for which GPUs of today need over 300 us, so that events cost
	// under 1 %, up to mostCalls.
	bytesPerRepeat = 128 << 20
	mostCalls      = 20
	// Calls that move little are measured more often than asked, up to so many in all.
	mostExtended = 100
	// leastForP95 is the number of repeats from which on the 95th percentile is not just the largest.
	leastForP95 = 20
)

// callsOf gives the number of calls to measure where so many are asked for: more where they move little, up to
// mostExtended, so that there can be maxRepeats of enough calls each. It depends on nothing but its arguments, since
// all ranks must make the same.
func callsOf(iterations int, sizeBytes int64) int {
	return max(iterations, min(mostExtended, int(maxRepeats*bytesPerRepeat/max(1, sizeBytes))))
}

// repeatsOf gives the number of repeats for so many calls of a size: at least minRepeats, so that there is a spread to
// tell, up to maxRepeats where the calls are long or many. It depends on nothing but its arguments.
func repeatsOf(calls int, sizeBytes int64) int {
	each := min(mostCalls, max(1, int(bytesPerRepeat/max(1, sizeBytes))))
	return max(1, min(calls, maxRepeats, max(minRepeats, calls/each)))
}

// timing is what was measured of a call.
type timing struct {
	latency rcclx.LatencyStats
	// launchNanoseconds is the host's time to queue one call: the median over repeats of the mean in each, since a
	// device's queue that is full (about a thousand calls) makes the host wait.
	launchNanoseconds int64
}

// series is what is timed.
type series struct {
	// call queues the nth call, the warm-up's included.
	call func(n int) error
	// barrier is queued between the warm-up and the timed calls; nil where the calls themselves make all ranks meet.
	barrier            func() error
	warmup, iterations int
	sizeBytes          int64
	name               string // for deadlines
	limit              limit
}

// time queues the warm-up, the barrier and the repeats, an event between each two, and reads the times when all are
// done. All of it is queued without a pause: the device finds its next call queued, and the host's polling does not
// show. Where the host needs longer to queue a call than the device to do it, that is what is measured, as in
// rccl-tests. The barrier brings the ranks in step: the root of a Broadcast and the leaves of a Reduce run ahead of the
// others, and a rank that was late with its last check would be waited for in the first timed call. The first event
// comes after it, so it is not timed. All ranks must queue the same number of calls; see callsOf.
func (e *Engine) time(s series) (timing, error) {
	calls := s.iterations
	if !e.modelled {
		calls = callsOf(s.iterations, s.sizeBytes)
	}
	repeats := repeatsOf(calls, s.sizeBytes)
	for n := range s.warmup {
		if err := s.call(n); err != nil {
			return timing{}, err
		}
	}
	if s.barrier != nil {
		if err := s.barrier(); err != nil {
			return timing{}, err
		}
	}
	r := e.lib.Runtime
	if err := r.record(e.events[0], e.comm.stream); err != nil {
		return timing{}, err
	}
	launches, next := make([]int64, 0, repeats), s.warmup
	for repeat := range repeats {
		begin, n := e.comm.clock.Now(), callsIn(repeat, repeats, calls)
		for range n {
			if err := s.call(next); err != nil {
				return timing{}, err
			}
			next++
		}
		launches = append(launches, e.comm.clock.Now().Sub(begin).Nanoseconds()/int64(n))
		if err := r.record(e.events[repeat+1], e.comm.stream); err != nil {
			return timing{}, err
		}
	}
	if err := e.comm.waitEvent(e.events[repeats], s.name, s.limit); err != nil {
		return timing{}, err
	}
	means := make([]int64, 0, repeats)
	for repeat := range repeats {
		elapsed, err := r.elapsedNanoseconds(e.events[repeat], e.events[repeat+1])
		if err != nil {
			return timing{}, err
		}
		if elapsed <= 0 {
			return timing{}, errors.New(s.name +
				": the device's events show no time between start and end of the calls, so nothing was measured")
		}
		means = append(means, elapsed/int64(callsIn(repeat, repeats, calls)))
	}
	return timing{latencyStats(means, calls/repeats), latencyStats(launches, 1).MedianNanoseconds}, nil
}

// callsIn spreads the calls over the repeats; their numbers differ by one at most.
func callsIn(repeat, repeats, calls int) int {
	return calls*(repeat+1)/repeats - calls*repeat/repeats
}

// latencyStats summarises the mean latencies of the repeats, in nanoseconds. The median of an even number is the mean
// of the middle two; the 95th percentile is by nearest rank, and missing (zero) where there are too few repeats for it
// to be another than the largest.
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
		Repeats:             n,
		IterationsPerRepeat: perRepeat,
	}
	if n >= leastForP95 {
		stats.P95Nanoseconds = sorted[int(math.Ceil(0.95*float64(n)))-1]
	}
	if mean > 0 {
		stats.CoefficientOfVariationPPM = int64(math.Round(math.Sqrt(squares/float64(n)) / mean * 1e6))
	}
	return stats
}
