package rcclx

import (
	"fmt"
	"slices"
)

// Range is a span of message sizes for which calls take one path.
type Range struct {
	// MinBytes and MaxBytes are inclusive; MaxBytes is nil for the last range, which has no upper bound.
	MinBytes int64  `json:"minBytes"`
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	Path     Path   `json:"path"`
	Reason   string `json:"reason"`
}

// Explain lists the paths that a call takes by its size, under a job's settings; c.SizeBytes is ignored. It answers for
// sizes that split evenly over the ranks in parts of 16 bytes; a size that does not may miss DDA (see ExpectedPath).
func Explain(f Flavor, s Settings, c Call) ([]Range, error) {
	if c.Ranks < 1 || c.Nodes < 1 {
		return nil, fmt.Errorf("%d ranks over %d nodes: give at least one of each", c.Ranks, c.Nodes)
	}
	if _, err := partsOf(c.Collective, c.Datatype, c.Ranks); err != nil {
		return nil, err
	}
	env := environmentMap(JobEnvironment(f, s))
	borders := []int64{
		env.integer(envDDAFlatMax, defaultFlatMaxBytes), env.integer(envDDATreeMax, defaultTreeMaxBytes),
		env.integer(envDDASendBuffer, defaultSendBufBytes), env.integer(envAMDThreshold, -1), lowPrecisionMinBytes - 1,
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	step := int64(16 * c.Ranks)
	type piece struct {
		Range
		state string
	}
	var pieces []piece
	first := c.Datatype.Bytes()
	for i := 0; i <= len(borders); i++ {
		var last *int64
		var sample int64
		if i < len(borders) {
			if borders[i] < first {
				continue
			}
			last, sample = &borders[i], borders[i]/step*step
		}
		if sample < first {
			sample = (first + step - 1) / step * step
		}
		call := c
		call.SizeBytes = sample
		path, reason := pathUnder(f, env, call)
		// Ranges differ only where a path or a gate does; the numbers in a reason differ with every sample.
		_, dda := ddaGate(f, env, call)
		state := string(path) + dda.reason + lowPrecisionGate(f, env, call).reason
		if n := len(pieces); n > 0 && pieces[n-1].state == state {
			pieces[n-1].MaxBytes, pieces[n-1].Reason = last, reason
		} else {
			pieces = append(pieces, piece{Range{first, last, path, reason}, state})
		}
		if last != nil {
			first = *last + 1
		}
	}
	ranges := make([]Range, 0, len(pieces))
	for _, p := range pieces {
		ranges = append(ranges, p.Range)
	}
	return ranges, nil
}
