package engine

import (
	"fmt"
	"math"

	"rcclx.io/commgroup-operator/rcclx"
)

// periodElements is the length after which a rank's values repeat: a prime, so that data that landed a part, a channel
// or a page too far does not match by chance.
const periodElements = 4093

// pattern makes the values of one kind of data in one element type, for every rank of a communicator.
type pattern struct {
	element element
	data    rcclx.Data
	ranks   int
	// transport is the largest finite value of FP8 transport, under LowPrecision only; zero means that values travel as
	// they are.
	transport float64

	contributors int
	largest      uint64 // of Exact data
	scale        float64
	tiles        tiles // made before; nil keeps none
}

// newPattern makes a pattern of data that fitsData allows.
func newPattern(e element, data rcclx.Data, ranks int, transport float64) *pattern {
	p := &pattern{element: e, data: data, ranks: ranks, transport: transport, contributors: ranks, scale: 1}
	switch data {
	case rcclx.DataExact:
		p.contributors, p.largest = exactFor(e).contributors, uint64(exactFor(e).largest)
	case rcclx.DataRounding:
		p.contributors = roundingContributors
	case rcclx.DataGradients:
		p.scale = scaleFor(e, gradientsLargest*float64(ranks))
	case rcclx.DataActivations:
		p.scale = scaleFor(e, activationsLargest*float64(ranks))
	}
	return p
}

// fitsData says why an element type cannot be checked with a kind of data; empty where it can.
func fitsData(d rcclx.Datatype, data rcclx.Data) string {
	e, _ := elementOf(d, fp8OCP)
	switch {
	case data == rcclx.DataExact:
		return ""
	case data == rcclx.DataRounding && (e.integer() || e.bytes == 1):
		return fmt.Sprintf("%s data are sums that E4M3 cannot hold, and %s holds no more: use %s data",
			data, d, rcclx.DataExact)
	case data == rcclx.DataRounding:
		return ""
	case data != rcclx.DataGradients && data != rcclx.DataActivations:
		return fmt.Sprintf("data %q are not known: use %s, %s, %s or %s",
			data, rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations)
	case e.integer():
		return fmt.Sprintf("%s are not integers, and %s is an integer type: use %s data", data, d, rcclx.DataExact)
	}
	return ""
}

// defaultData is what a call is checked with where nothing is asked for.
func defaultData(v rcclx.Variant, d rcclx.Datatype) rcclx.Data {
	if v == rcclx.LowPrecision && fitsData(d, rcclx.DataRounding) == "" {
		return rcclx.DataRounding
	}
	return rcclx.DataExact
}

// exact are the values of Exact data: integers from 1 to largest, of at most so many ranks at each index, the others
// give zero there. They are exact for every element type: all terms are integers of one sign, so every partial sum, in
// any order and any grouping, is an integer from 0 to contributors*largest; the element type holds each integer up to
// exactLimit; and a sum of two values that is itself a value of the type is never rounded, nor is it in any wider type
// on the way.
type exact struct{ contributors, largest int }

func exactFor(e element) exact {
	switch e.datatype {
	case rcclx.Int8:
		return exact{8, 15} // up to 120 of 127
	case rcclx.Float8E4M3:
		return exact{8, 2} // up to 16
	case rcclx.Float8E5M2:
		return exact{4, 2} // up to 8; of 8 ranks two values could not differ
	}
	return exact{8, 16} // up to 128; bfloat16 holds integers up to 256
}

// exactLimit is the number up to which an element type holds every integer: 2^p for p significant bits.
func exactLimit(e element) float64 {
	if e.integer() {
		return e.largest
	}
	return math.Ldexp(1, e.significantBits)
}

// roundingContributors: Rounding data are sixteenths with odd numerators from 17 to 31, which have five significant
// bits, one more than E4M3 holds; a sum of eight has at most 248 sixteenths, eight bits, which bfloat16 holds, in any
// order as above.
const roundingContributors = 8

// Gradients are like log-normal: Chmiel et al., "Neural gradients are near-lognormal" (arXiv:2006.08173). The median of
// 2^-13, the range from 2^-20 to 2^-6 (1e-6 to 1.6e-2) and one zero in 16 are our choice.
const (
	gradientsExponent      = -14
	gradientsSpread        = 2.5 // standard deviation of the exponent
	gradientsExponentLeast = -20
	gradientsExponentMost  = -7
	gradientsLargest       = 1.0 / 64
	gradientsZeroOf        = 16
)

// Activations are like normal ones of standard deviation 1, but for outliers of 128 to 1024, as Sun et al. found them
// in language models ("Massive Activations in Large Language Models", arXiv:2402.17762: over 100 and about 1000 times
// the median, a few of a million). One in 1024 is our choice, so that a message of few elements has some.
const (
	activationsLargest         = 1024.0
	activationsOutlierOf       = 1024
	activationsOutlierExponent = 7
	activationsOutlierSpan     = 3
)

// scaleFor is a power of two that brings sums of up to largest into the range of an element type. FP8 elements are
// always scaled, as users of FP8 tensors do, so that the largest sum is within half of the range; others only where
// they would overflow.
func scaleFor(e element, largest float64) float64 {
	if e.form == nil || e.bytes > 1 && largest <= e.largest/2 {
		return 1
	}
	return math.Ldexp(1, int(math.Floor(math.Log2(e.largest/2/largest))))
}

// seeds keep the kinds of data apart.
const (
	seedExact uint64 = iota + 1
	seedRounding
	seedGradients
	seedActivations
)

// value of a rank at an index, as the element type holds it. Every rank computes every other's, so it uses no function
// that could round differently on another machine.
func (p *pattern) value(rank int, index int64) float64 {
	k := uint64(index % periodElements)
	if p.ranks > p.contributors && (uint64(rank)+k)%uint64(p.ranks) >= uint64(p.contributors) {
		return 0
	}
	at := uint64(rank)*periodElements + k
	switch p.data {
	case rcclx.DataRounding:
		return float64(17+2*(mix(seedRounding, at)%8)) / 16
	case rcclx.DataGradients:
		return p.element.round(p.scale * gradient(mix(seedGradients, at)))
	case rcclx.DataActivations:
		return p.element.round(p.scale * activation(mix(seedActivations, at)))
	}
	return float64(1 + mix(seedExact, at)%p.largest)
}

// gradient makes a value from random bits: a normal exponent and an even fraction.
func gradient(random uint64) float64 {
	more := mix(seedGradients, random)
	if more>>8%gradientsZeroOf == 0 {
		return 0
	}
	exponent := gradientsExponent + int(math.Round(gradientsSpread*normal(random)))
	exponent = max(gradientsExponentLeast, min(gradientsExponentMost, exponent))
	return signed(more, math.Ldexp(1+float64(more>>40)/(1<<24), exponent))
}

func activation(random uint64) float64 {
	more := mix(seedActivations, random)
	if more>>8%activationsOutlierOf != 0 {
		return normal(random)
	}
	exponent := activationsOutlierExponent + int(more>>20%activationsOutlierSpan)
	return signed(more, math.Ldexp(1+float64(more>>40)/(1<<24), exponent))
}

func signed(random uint64, magnitude float64) float64 {
	if random&1 != 0 {
		return -magnitude
	}
	return magnitude
}

// normal is close to a standard normal value: the sum of four even ones, of variance 1, within 3.5 of zero.
func normal(random uint64) float64 {
	sum := int64(random&0xffff) + int64(random>>16&0xffff) + int64(random>>32&0xffff) + int64(random>>48)
	const mean, deviation = 2 * 0xffff, 37836.75 // 65536/sqrt(12)*sqrt(4)
	return float64(sum-mean) / deviation
}

// mix spreads the bits of a number (splitmix64's finaliser), so that neighbours differ.
func mix(seed, x uint64) uint64 {
	x += seed * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
