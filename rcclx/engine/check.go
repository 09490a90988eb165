package engine

import (
	"bytes"
	"math"

	"rcclx.io/commgroup-operator/rcclx"
)

// checker compares a result with its reference, piece by piece in order.
type checker struct {
	data     rcclx.Data
	element  element
	segments []segment
	tile     *tile // of the first segment, once it is reached
	values   []float64

	checked, wrong, nan, overflow int64
	firstWrong                    int64
	maxError, sumError            float64
	maxValue, sumValue            float64
}

func newChecker(p pattern, segments []segment) *checker {
	return &checker{data: p.data, element: p.element, segments: segments, firstWrong: -1}
}

// add compares the next bytes of the result; they must hold whole elements.
func (c *checker) add(got []byte) {
	for len(got) > 0 && len(c.segments) > 0 {
		s := &c.segments[0]
		if c.tile == nil {
			c.tile = s.tile()
		}
		phase := int(s.index % periodElements)
		n := min(len(got)/c.element.bytes, periodElements-phase, int(min(s.count, periodElements)))
		c.compare(got[:n*c.element.bytes], c.tile, phase, n)
		got = got[n*c.element.bytes:]
		s.index += int64(n)
		if s.count -= int64(n); s.count == 0 {
			c.segments, c.tile = c.segments[1:], nil
		}
	}
}

func (c *checker) compare(got []byte, t *tile, phase, n int) {
	first := c.checked
	c.checked += int64(n)
	c.maxValue = max(c.maxValue, t.maxValue)
	c.sumValue += t.sums[phase+n] - t.sums[phase]
	size := c.element.bytes
	if t.bytes != nil && bytes.Equal(got, t.bytes[phase*size:(phase+n)*size]) {
		return
	}
	if c.values == nil {
		c.values = make([]float64, periodElements)
	}
	c.element.decode(c.values[:n], got)
	want := t.want[phase : phase+n]
	for i, value := range c.values[:n] {
		deviation, tolerance := math.Abs(value-want[i]), 0.0
		if t.tolerance != nil {
			tolerance = t.tolerance[phase+i]
		}
		// NaN and infinity are never within the tolerance.
		if deviation <= tolerance {
			c.sumError += deviation
			c.maxError = max(c.maxError, deviation)
			continue
		}
		c.judge(t, phase+i, first+int64(i), value, deviation, tolerance, got[i*size:])
	}
}

// judge looks at an element that rounding does not explain.
func (c *checker) judge(t *tile, at int, index int64, value, deviation, tolerance float64, raw []byte) {
	if size := c.element.bytes; t.bytes != nil && bytes.Equal(raw[:size], t.bytes[at*size:(at+1)*size]) {
		return // poison that had to stay, which as a float equals nothing
	}
	clip := 0.0
	if t.clip != nil {
		clip = t.clip[at]
	}
	wrong := clip == 0
	switch {
	case math.IsNaN(value):
		c.nan++
		// FP8 transport makes another NaN than poison, which therefore stays what nobody wrote.
		wrong = wrong || c.element.poisoned(raw)
	case math.IsInf(value, 0):
		c.overflow++
	default:
		if clip > 0 {
			c.overflow++
			wrong = deviation > tolerance+clip
		}
		if !math.IsNaN(deviation) {
			c.sumError += deviation
			c.maxError = max(c.maxError, deviation)
		}
	}
	if !wrong {
		return
	}
	c.wrong++
	if c.firstWrong < 0 {
		c.firstWrong = index
	}
}

// result of all that was compared. Errors are of the elements that are finite.
func (c *checker) result() rcclx.CheckResult {
	r := rcclx.CheckResult{Data: c.data, CheckedElements: c.checked, WrongElements: c.wrong, NaNElements: c.nan, OverflowElements: c.overflow,
		MaxRelativeErrorPPM: ppm(c.maxError, c.maxValue), MeanRelativeErrorPPM: ppm(c.sumError, c.sumValue)}
	if c.firstWrong >= 0 {
		r.FirstWrongElement = &c.firstWrong
	}
	return r
}

// ppm is a part of a whole in parts per million, rounded up, so that it is zero for nothing only. A part beyond every
// measure stays representable.
func ppm(part, whole float64) int64 {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return int64(min(math.Ceil(part/whole*1e6), 1e15))
}
