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
	// An event keeps two calls from overlapping, which costs 2 to 3 us on an H200. So a repeat has more calls the shorter
	// these are: enough to move so many bytes, for which GPUs of today need about a millisecond, up to mostCalls.
	bytesPerRepeat = 256 << 20
	mostCalls      = 20
)

// repeatsOf gives the number of repeats for so many calls of a size: at least minRepeats, so that there is a spread to tell, up
// to maxRepeats where the calls are long or many. It depends on nothing but its arguments.
func repeatsOf(iterations int, sizeBytes int64) int {
	calls := min(mostCalls, max(1, int(bytesPerRepeat/max(1, sizeBytes))))
	return max(1, min(iterations, maxRepeats, max(minRepeats, iterations/calls)))
}

// timing is what was measured of a call.
type timing struct {
	latency rcclx.LatencyStats
	// launchNanoseconds is the host's time to queue one call: the median over repeats of the mean in each, since a device's queue
	// that is full (about a thousand calls) makes the host wait.
	launchNanoseconds int64
}

// time queues the warm-up and the repeats, an event between each two, and reads the times when all are done. All of it
// is queued without a pause: the warm-up brings the ranks in step, the device finds its next call queued, and the host's polling
// does not show. Where the host needs longer to queue a call than the device to do it, that is what is measured, as in rccl-tests.
// Exactly as many calls are queued as asked for, since all ranks must make the same.
func (e *Engine) time(call func() error, warmup, iterations int, sizeBytes int64, waiting string, l limit) (timing, error) {
	repeats := repeatsOf(iterations, sizeBytes)
	for range warmup {
		if err := call(); err != nil {
			return timing{}, err
		}
	}
	r := e.lib.Runtime
	if err := r.record(e.events[0], e.stream); err != nil {
		return timing{}, err
	}
	launches := make([]int64, 0, repeats)
	for repeat := range repeats {
		calls, begin := callsIn(repeat, repeats, iterations), e.clock.Now()
		for range calls {
			if err := call(); err != nil {
				return timing{}, err
			}
		}
		launches = append(launches, e.clock.Now().Sub(begin).Nanoseconds()/int64(calls))
		if err := r.record(e.events[repeat+1], e.stream); err != nil {
			return timing{}, err
		}
	}
	if err := e.waitEvent(e.events[repeats], waiting, l); err != nil {
		return timing{}, err
	}
	means := make([]int64, 0, repeats)
	for repeat := range repeats {
		elapsed, err := r.elapsedNanoseconds(e.events[repeat], e.events[repeat+1])
		if err != nil {
			return timing{}, err
		}
		if elapsed <= 0 {
			return timing{}, errors.New(waiting + ": the device's events show no time between start and end of the calls, so nothing was measured")
		}
		means = append(means, elapsed/int64(callsIn(repeat, repeats, iterations)))
	}
	return timing{latencyStats(means, iterations/repeats), latencyStats(launches, 1).MedianNanoseconds}, nil
}

// callsIn spreads the iterations over the repeats; their numbers differ by one at most.
func callsIn(repeat, repeats, iterations int) int {
	return iterations*(repeat+1)/repeats - iterations*repeat/repeats
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
