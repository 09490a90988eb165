package rcclx

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Range is a span of message sizes for which calls take one path.
type Range struct {
	// MinBytes and MaxBytes are inclusive; MaxBytes is nil for the last range, which has no upper bound.
	MinBytes int64  `json:"minBytes"`
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	Path     Path   `json:"path"`
	Reason   string `json:"reason"`
	// Source is where the library decides for the path; empty where that is its tuner.
	Source string `json:"source,omitempty"`
	// NotTaken are the ways that the library tries before this one.
	NotTaken []NotTaken `json:"notTaken,omitempty"`
	// Notes say which sizes within the range are different, and what may go wrong.
	Notes []string `json:"notes,omitempty"`
}

// Explain lists the paths that a call takes by its size, under a job's settings; c.SizeBytes is ignored. It answers for
// sizes that split evenly over the ranks in parts of 128 elements; Notes say what others do.
func Explain(f Flavor, s Settings, c Call) ([]Range, error) {
	if c.Ranks < 1 || c.Nodes < 1 {
		return nil, fmt.Errorf("%d ranks over %d nodes: give at least one of each", c.Ranks, c.Nodes)
	}
	if c.Ranks < c.Nodes {
		return nil, fmt.Errorf("%d ranks over %d nodes: give at least one rank for each node", c.Ranks, c.Nodes)
	}
	parts, err := partsOf(c.Collective, c.Datatype, c.Ranks)
	if err != nil {
		return nil, err
	}
	env := environmentMap(JobEnvironment(f, s))
	borders := append(directBorders(env, c), 15, // DDA takes multiples of 16 bytes
		env.limitBytes(envDDAFlatMax), env.limitBytes(envDDATreeMax), env.limitBytes(envDDASendBuffer),
		env.integer(envAMDThreshold), lowPrecisionMinBytes-1)
	slices.Sort(borders)
	first := c.Datatype.Bytes() * parts
	borders = slices.DeleteFunc(slices.Compact(borders), func(border int64) bool { return border < first })
	step := c.Datatype.Bytes() * lowPrecisionLine * int64(c.Ranks)
	var ranges []Range
	for i := 0; i <= len(borders); i++ {
		sample := (first + step - 1) / step * step
		var last *int64
		if i < len(borders) {
			last = &borders[i]
			// The largest even size in the range, or the largest of all where none is even.
			if sample = *last / step * step; sample < first {
				sample = *last
			}
		}
		call := c
		call.SizeBytes = sample
		chosen := choose(f, env, call)
		next := Range{MinBytes: first, MaxBytes: last, Path: chosen.path, Reason: chosen.why, Source: chosen.source,
			NotTaken: chosen.not, Notes: notes(f, chosen.path, c)}
		if n := len(ranges); n > 0 && sameAnswer(ranges[n-1], next) {
			ranges[n-1].MaxBytes = last
		} else {
			ranges = append(ranges, next)
		}
		if last != nil {
			first = *last + 1
		}
	}
	return ranges, nil
}

func sameAnswer(a, b Range) bool {
	return a.Path == b.Path && a.Reason == b.Reason && reflect.DeepEqual(a.NotTaken, b.NotTaken)
}

// notes say what is different for some sizes of a range, or dangerous.
func notes(f Flavor, path Path, c Call) []string {
	var all []string
	switch path {
	case PathDDAFlat:
		all = append(all, "only sizes that are multiples of 16 bytes; others take ring or tree")
	case PathDDATree:
		all = append(all, fmt.Sprintf("only sizes that split into %d parts that are multiples of 16 bytes; "+
			"others take ring or tree", c.Ranks))
	case PathLowPrecision:
		if multiple := HazardMultiple(c.Collective, c.Ranks); multiple > 0 {
			all = append(all, fmt.Sprintf("danger: with a count that is no multiple of %d elements the library's "+
				"code leaves a tail unwritten: check the data", multiple))
		}
	}
	// No gate looks at the GPU, so these are notes (meta/lpcoll/low_precision_utility.h, v_cvt_pk_fp8_f32;
	// build_rcclx.sh, AMDGPU_TARGETS).
	switch {
	case !c.otherThanCDNA3And4():
	case path == PathLowPrecision:
		all = append(all, fmt.Sprintf("danger: FP8's kernels are machine code for gfx942 and gfx950, and the library "+
			"does not check that the GPU, %s, is one: leave FP8 off", c.architecture()))
	case f == FlavorRCCLXDev && (path == PathDDAFlat || path == PathDDATree):
		all = append(all, fmt.Sprintf("danger: RCCLX is built for gfx942 and gfx950 unless its builder names others, "+
			"and DDA does not check that the GPU, %s, is one: compare with Baseline", c.architecture()))
	}
	return all
}

// HumanBytes writes a size as users do, in units of 1024 and rounded to hundredths: 204800 is "200 KiB", 1500 is "1.46
// KiB".
func HumanBytes(n int64) string {
	text, _ := humanBytes(n)
	return text
}

// humanBytes also says whether what it wrote is exact.
func humanBytes(n int64) (text string, exact bool) {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), 0
	for math.Round(size*100) >= 102400 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	rounded := math.Round(size*100) / 100
	return strconv.FormatFloat(rounded, 'f', -1, 64) + " " + units[unit], rounded == size
}

// exactBytes is a size in bytes, and as users write it where that is as exact: "204800 bytes (200 KiB)".
func exactBytes(n int64) string {
	if text, exact := humanBytes(n); exact && n >= 1024 {
		return fmt.Sprintf("%d bytes (%s)", n, text)
	}
	return fmt.Sprintf("%d bytes", n)
}
