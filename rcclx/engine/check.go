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

	tally
	firstWrong int64
	maxValue   float64
	maxError   float64
	// coarse is set where a tolerance is too wide to judge elements by.
	coarse bool

	// last is the last whole period that was looked at element by element, of which tile, and what was found. Most
	// periods of a result are equal, since the order of a sum changes with the library's chunks only, which are longer.
	last struct {
		tile  *tile
		bytes []byte
		found tally
	}
}

// tally is what adds up over a result.
type tally struct {
	checked, wrong, nan, overflow, unwritten int64
	sumError, sumValue                       float64
	// mostError is the largest sum of errors that rounding explains of all elements together.
	mostError float64
}

func newChecker(p *pattern, segments []segment) *checker {
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
	c.maxValue = max(c.maxValue, t.maxValue)
	c.coarse = c.coarse || !t.judged
	size := c.element.bytes
	switch {
	case t.bytes != nil && bytes.Equal(got, t.bytes[phase*size:(phase+n)*size]):
		c.checked += int64(n)
		c.sumValue += t.sums[phase+n] - t.sums[phase]
	case n < periodElements:
		c.each(got, t, phase, n)
	case c.last.tile == t && bytes.Equal(got, c.last.bytes):
		c.tally = c.plus(c.last.found, 1)
	default:
		before := c.tally
		c.each(got, t, phase, n)
		c.last.tile, c.last.bytes, c.last.found = t, append(c.last.bytes[:0], got...), c.plus(before, -1)
	}
}

func (a tally) plus(b tally, sign int64) tally {
	a.checked += sign * b.checked
	a.wrong += sign * b.wrong
	a.nan += sign * b.nan
	a.overflow += sign * b.overflow
	a.unwritten += sign * b.unwritten
	a.sumError += float64(sign) * b.sumError
	a.sumValue += float64(sign) * b.sumValue
	a.mostError += float64(sign) * b.mostError
	return a
}

// each compares element by element.
func (c *checker) each(got []byte, t *tile, phase, n int) {
	first := c.checked
	c.checked += int64(n)
	c.sumValue += t.sums[phase+n] - t.sums[phase]
	c.mostError += t.mostError(phase, n)
	if c.values == nil {
		c.values = make([]float64, periodElements)
	}
	values, want := c.values[:n], t.want[phase:phase+n]
	c.element.decode(values, got)
	tolerances := exactly[:n]
	if t.tolerance != nil {
		tolerances = t.tolerance[phase : phase+n]
	}
	sumError, maxError := 0.0, 0.0
	for i, value := range values {
		deviation := math.Abs(value - want[i])
		// NaN and infinity are never within the tolerance.
		if !(deviation <= tolerances[i]) {
			c.judge(t, phase+i, first+int64(i), value, deviation, tolerances[i], got[i*c.element.bytes:])
			continue
		}
		sumError += deviation
		if deviation > maxError {
			maxError = deviation
		}
	}
	c.sumError += sumError
	c.maxError = max(c.maxError, maxError)
}

// exactly is no tolerance at all.
var exactly = make([]float64, periodElements)

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
	case c.element.poisoned(raw):
		// FP8 transport makes another NaN than poison, which therefore stays what nobody wrote.
		c.unwritten++
		wrong = true
	case math.IsNaN(value):
		c.nan++
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

// result of all that was compared. Errors are of the elements that are finite. Where the elements together are further
// off than rounding explains, and none by itself, all are wrong. Where the tolerance is too wide to judge elements by
// and nothing is wrong, none counts as checked: that a result passed says nothing then.
func (c *checker) result() rcclx.CheckResult {
	first := c.firstWrong
	if c.wrong == 0 && c.mostError > 0 && c.sumError > c.mostError {
		c.wrong, first = c.checked, 0
	}
	if c.coarse && c.wrong == 0 {
		c.checked = 0
	}
	nan, unwritten := c.nan, c.unwritten
	if c.element.bytes == 1 && unwritten < c.checked {
		if !c.element.integer() { // the format's NaN
			nan += unwritten
		}
		unwritten = 0
	}
	r := rcclx.CheckResult{Data: c.data, CheckedElements: c.checked, WrongElements: c.wrong,
		NaNElements: nan, OverflowElements: c.overflow, UnwrittenElements: unwritten,
		MaxRelativeErrorPPM: ppm(c.maxError, c.maxValue), MeanRelativeErrorPPM: ppm(c.sumError, c.sumValue)}
	if first >= 0 {
		r.FirstWrongElement = &first
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
