package engine

import (
	"bytes"
	"math"

	"rcclx.io/commgroup-operator/rcclx"
)

// periodElements is the length after which a rank's values repeat: a prime, so that data that landed a part, a channel
// or a page too far does not match by chance.
const periodElements = 4093

// contributors is the largest number of ranks that contribute to one element of a sum: with it every sum and partial
// sum has at most eight significant bits, which bfloat16, float16 and float32 all hold exactly, in any order.
const contributors = 8

// quantisedTolerance is the largest relative error that FP8 transport may show: two E4M3 roundings of 2^-4 each (three
// mantissa bits; into and out of AllReduce) and one bfloat16 rounding of 2^-8.
const quantisedTolerance = (1+1.0/16)*(1+1.0/16) - 1 + 1.0/256

// pattern makes the values of one run: integers from 1 to 16, or, to make FP8 show, sixteenths with odd numerators from
// 17 to 31, none of which E4M3 can hold.
type pattern struct {
	ranks     int
	quantised bool
}

// value of a rank at an index.
func (p pattern) value(rank int, index int64) float32 {
	k := uint64(index % periodElements)
	if p.ranks > contributors && (uint64(rank)+k)%uint64(p.ranks) >= contributors {
		return 0
	}
	h := mix(uint64(rank)*periodElements + k)
	if p.quantised {
		return float32(17+2*(h%8)) / 16
	}
	return float32(1 + h%16)
}

// mix spreads the bits of a number (splitmix64's finaliser), so that neighbours differ.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tile is one period of values, in the datatype's bytes and as numbers.
type tile struct {
	values []float32
	bytes  []byte
	// maxValue is the largest magnitude in the period.
	maxValue float64
}

func newTile(d rcclx.Datatype, value func(index int64) float32) tile {
	t := tile{values: make([]float32, periodElements), bytes: make([]byte, 0, periodElements*d.Bytes())}
	for i := range t.values {
		t.values[i] = value(int64(i))
		t.bytes = encode(d, t.bytes, t.values[i])
		t.maxValue = max(t.maxValue, math.Abs(float64(t.values[i])))
	}
	return t
}

// inputTile is what one rank sends.
func (p pattern) inputTile(d rcclx.Datatype, rank int) tile {
	return newTile(d, func(index int64) float32 { return p.value(rank, index) })
}

// sumTile is the sum over all ranks, exact.
func (p pattern) sumTile(d rcclx.Datatype) tile {
	return newTile(d, func(index int64) float32 {
		var sum float32
		for rank := range p.ranks {
			sum += p.value(rank, index)
		}
		return sum
	})
}

// segment is a stretch of a result: count elements that follow a tile from an index on.
type segment struct {
	tile  tile
	index int64
	count int64
}

// reference is what a rank must receive from a call of count elements, in order.
func (p pattern) reference(c rcclx.Collective, d rcclx.Datatype, rank int, count int64) []segment {
	switch c {
	case rcclx.AllReduce:
		return []segment{{p.sumTile(d), 0, count}}
	case rcclx.ReduceScatter:
		return []segment{{p.sumTile(d), int64(rank) * count, count}}
	case rcclx.AllGather:
		segments := make([]segment, 0, p.ranks)
		for peer := range p.ranks {
			segments = append(segments, segment{p.inputTile(d, peer), 0, count})
		}
		return segments
	}
	// AllToAll: the part for this rank out of every peer's message.
	segments := make([]segment, 0, p.ranks)
	for peer := range p.ranks {
		segments = append(segments, segment{p.inputTile(d, peer), int64(rank) * count, count})
	}
	return segments
}

// checker compares a result with its reference, piece by piece in order.
type checker struct {
	datatype  rcclx.Datatype
	tolerance float64 // relative to each wanted value; zero means equal
	segments  []segment

	checked, wrong     int64
	maxError, maxValue float64
}

func newChecker(d rcclx.Datatype, quantised bool, segments []segment) *checker {
	c := &checker{datatype: d, segments: segments}
	if quantised {
		c.tolerance = quantisedTolerance
	}
	return c
}

// add compares the next bytes of the result; they must hold whole elements.
func (c *checker) add(got []byte) {
	element := int(c.datatype.Bytes())
	for len(got) > 0 && len(c.segments) > 0 {
		s := &c.segments[0]
		phase := int(s.index % periodElements)
		n := min(len(got)/element, periodElements-phase, int(min(s.count, periodElements)))
		c.compare(got[:n*element], s.tile, phase, n)
		got = got[n*element:]
		s.index += int64(n)
		if s.count -= int64(n); s.count == 0 {
			c.segments = c.segments[1:]
		}
	}
}

func (c *checker) compare(got []byte, t tile, phase, n int) {
	element := int(c.datatype.Bytes())
	c.checked += int64(n)
	c.maxValue = max(c.maxValue, t.maxValue)
	if bytes.Equal(got, t.bytes[phase*element:(phase+n)*element]) {
		return
	}
	for i := range n {
		want := float64(t.values[phase+i])
		value := float64(decode(c.datatype, got[i*element:]))
		deviation := math.Abs(value - want)
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0):
			c.wrong++
			continue
		case deviation > c.tolerance*math.Abs(want):
			c.wrong++
		}
		c.maxError = max(c.maxError, deviation)
	}
}

// result of all that was compared. NaN and infinite elements count as wrong and are not in the relative error.
func (c *checker) result() rcclx.CheckResult {
	r := rcclx.CheckResult{CheckedElements: c.checked, WrongElements: c.wrong}
	if c.maxValue > 0 {
		// A deviation beyond every measure stays representable.
		r.MaxRelativeErrorPPM = int64(min(math.Ceil(c.maxError/c.maxValue*1e6), 1e15))
	}
	return r
}
