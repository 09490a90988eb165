package results

import (
	"slices"

	"rcclx.io/commgroup-operator/rcclx"
)

// Comparison holds a variant against the reference, size by size.
type Comparison struct {
	Reference, Variant rcclx.Variant
	// Key of the variant's series.
	Key    Key
	Points []Point
}

// Point is one size in both variants, by their median latencies.
type Point struct {
	SizeBytes                                int64
	ReferenceNanoseconds, VariantNanoseconds int64
	// SpeedupPPM is the reference's latency over the variant's, in parts per million: over a million is faster.
	SpeedupPPM int64
	// Path that the gates predict for the variant.
	Path rcclx.Path
	// WithinNoise: the latencies differ by no more than their standard deviations together. False where either has
	// none.
	WithinNoise bool
	// NotUsable: by the checks of the variant a job cannot use the result, however fast it is.
	NotUsable bool
	// NaNElements, OverflowElements and UnwrittenElements of the variant, over all ranks and kinds of data.
	NaNElements, OverflowElements, UnwrittenElements int64
}

// Compare holds each variant against Baseline, or against the first variant where Baseline was not measured. Sizes that
// only one of them has are left out; of sizes that were measured several times the first counts.
func Compare(groups []Series) []Comparison {
	if len(groups) == 0 {
		return nil
	}
	reference := groups[0].Key.Variant
	if slices.ContainsFunc(groups, func(s Series) bool { return s.Key.Variant == rcclx.Baseline }) {
		reference = rcclx.Baseline
	}
	var out []Comparison
	for _, g := range groups {
		if g.Key.Variant == reference {
			continue
		}
		key := g.Key
		key.Variant = reference
		i := slices.IndexFunc(groups, func(s Series) bool { return s.Key == key })
		if i < 0 {
			continue
		}
		c := Comparison{Reference: reference, Variant: g.Key.Variant, Key: g.Key}
		for _, r := range g.Results {
			c.add(groups[i].Results, r)
		}
		if len(c.Points) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// add compares one result with the reference's of the same size.
func (c *Comparison) add(reference []Result, r Result) {
	if slices.ContainsFunc(c.Points, func(p Point) bool { return p.SizeBytes == r.SizeBytes }) {
		return
	}
	i := slices.IndexFunc(reference, func(x Result) bool { return x.SizeBytes == r.SizeBytes })
	if i < 0 {
		return
	}
	base, with := reference[i].Latency, r.Latency
	if base.MedianNanoseconds <= 0 || with.MedianNanoseconds <= 0 {
		return
	}
	p := Point{SizeBytes: r.SizeBytes, ReferenceNanoseconds: base.MedianNanoseconds,
		VariantNanoseconds: with.MedianNanoseconds, Path: r.ExpectedPath,
		SpeedupPPM: int64(float64(base.MedianNanoseconds) / float64(with.MedianNanoseconds) * 1e6)}
	if hasSpread(base) && hasSpread(with) {
		difference := max(p.ReferenceNanoseconds-p.VariantNanoseconds, p.VariantNanoseconds-p.ReferenceNanoseconds)
		p.WithinNoise = float64(difference)*1e6 <= deviation(base)+deviation(with)
	}
	seen := rcclx.DataSeen{WrongElements: r.Unexplained(), TailElements: r.HazardElements}
	for _, check := range r.Checks {
		seen.LostElements += check.NaNElements + check.OverflowElements
		seen.MeanErrorPPM = max(seen.MeanErrorPPM, check.MeanRelativeErrorPPM)
		p.NaNElements += check.NaNElements
		p.OverflowElements += check.OverflowElements
		p.UnwrittenElements += check.UnwrittenElements
	}
	p.NotUsable = seen.Usability().State == rcclx.NotUsable
	c.Points = append(c.Points, p)
}

// deviation is the standard deviation in nanoseconds times a million. The mean that the coefficient refers to is not
// kept; the median stands for it.
func deviation(l rcclx.LatencyStats) float64 {
	return float64(l.MedianNanoseconds) * float64(l.CoefficientOfVariationPPM)
}
