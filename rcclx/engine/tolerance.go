package engine

import "math"

// Additions round to nearest (rccl and nccl src/device/reduce_kernel.h, FuncSum), at every hop or once at the end;
// their order, that of a ring or tree, is not known. One rounding is off by at most half a step, u = epsilon/2 of the
// rounded value, or half the smallest step.
//
// The worst case: every partial sum has errors of one sign and the size of the largest sum of any of the terms. Twice
// that bound leaves room for errors of errors. It grows with the number of additions, so that it says little over many
// ranks.
//
// The likely case: with rounding errors independent of each other, their sum is like the root of the sum of their
// squares (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5),
// 2019). The squares of the partial sums of k of n terms x in any order are on average k/n*A + k(k-1)/(n(n-1))*(S^2-A),
// with A = sum x^2 and S = sum x; added up over k from 2 to n that is A*((n+1)/2-1/n) + (S^2-A)*(n+1)/3. likelyError is
// u times the root of it. In a million sums of each element type with random orders over 2 to 64 ranks no element was
// off by more than 4.4 times, nor all of them on average by more than 0.36 times so much.
const (
	// mostOfLikely is how many times the likely error one element may be off.
	mostOfLikely = 8
	// meanOfLikely is the same for the mean over many: an error that is anywhere within half a step has a root mean
	// square of u/sqrt(3), and a mean magnitude of no more than that.
	meanOfLikely = 1 / 1.7320508075688772
)

// likelyError of a sum of terms; zero where there is nothing to round.
func (e *element) likelyError(terms []float64) float64 {
	n := float64(len(terms))
	if n < 2 {
		return 0
	}
	var sum, squares float64
	for _, x := range terms {
		sum += x
		squares += x * x
	}
	partial := squares*((n+1)/2-1/n) + (sum*sum-squares)*(n+1)/3
	return math.Sqrt(e.epsilon()*e.epsilon()/4*max(0, partial) + (n-1)*e.least*e.least/4)
}

// worstError of a sum of terms: see above.
func (e *element) worstError(terms []float64) float64 {
	var over, under float64
	for _, x := range terms {
		over += max(0, x)
		under += max(0, -x)
	}
	return float64(len(terms)-1) * (e.epsilon()*max(over, under) + e.least)
}

// tolerate sets the tolerance at an index, and what overflow explains.
//
// FP8 transport casts each value to E4M3 before it travels, and the sum of an AllReduce again; a value that is not sent
// is not cast. Values over its range become NaN or are clipped; neither is wrong there, for that is what unscaled FP8
// does; the counts of NaN and overflow tell of it. What remains wrong is what no rounding, underflow or overflow
// explains: poison, and values far off. On Gradients most values underflow, so that little is seen of a tail of zeros
// but in Rounding data.
func (p *pattern) tolerate(t *tile, i int, terms []float64, additions int) {
	e := p.element
	if t.bytes == nil {
		likely := e.likelyError(terms)
		t.tolerance[i] = min(e.worstError(terms), mostOfLikely*likely)
		t.errors[i+1] = t.errors[i] + likely
		t.squares[i+1] = t.squares[i] + likely*likely
	}
	if p.transport == 0 {
		return
	}
	var up, down, castSquares, over float64
	for _, x := range terms {
		u, d := p.castError(x)
		up, down = up+u, down+d
		castSquares += max(u, d) * max(u, d)
		over += max(0, math.Abs(x)-p.transport)
	}
	// Any of the values may be cast, so the sum is up or down by no more than all that go this way.
	cast := max(up, down)
	largest := math.Abs(t.want[i]) + cast
	if additions > 0 {
		// ReduceScatter does not cast the sum, but the bound is one for both.
		over += max(0, largest-p.transport)
		c := halfStepE4M3(min(largest, p.transport))
		cast += c
		castSquares += c * c
	}
	// The result is rounded to the element type once more; a value that E4M3 holds needs no rounding. The sum is made
	// in fp32, so that the additions' own roundings are not there as well.
	t.tolerance[i] = max(t.tolerance[i], cast+e.epsilon()*largest)
	if t.errors != nil {
		// The casts of given values are off by given amounts, of either sign: twice their root of squares instead of
		// 1/sqrt(3).
		likely := 2 / meanOfLikely * math.Sqrt(castSquares)
		t.errors[i+1] += likely
		t.squares[i+1] += likely * likely
	}
	if over == 0 {
		return
	}
	if t.clip == nil {
		t.clip = make([]float64, periodElements)
	}
	t.clip[i] = over
}

// castError is how far up and how far down a cast to E4M3 puts a value, over both encodings.
func (p *pattern) castError(x float64) (up, down float64) {
	x = max(-p.transport, min(x, p.transport))
	for _, form := range []*smallFloat{&e4m3OCP, &e4m3FNUZ} {
		if math.Abs(x) <= form.largest {
			off := form.round(x) - x
			up, down = max(up, off), max(down, -off)
		}
	}
	return up, down
}

// halfStepE4M3 is the most that a cast to E4M3 puts a value of at most x off, for both encodings.
func halfStepE4M3(x float64) float64 {
	if x == 0 {
		return 0
	}
	_, exponent := math.Frexp(x) // x is under 2^exponent
	return max(math.Ldexp(1, exponent-1-(e4m3OCP.fractionBits+1)), e4m3OCP.leastSubnormal()/2)
}

// mostError is the largest sum of errors of so many elements from a phase on that rounding explains.
func (t *tile) mostError(phase, n int) float64 {
	if t.errors == nil {
		return 0
	}
	// The spread of a sum is like the root of its squares. Periods that are summed in one order have the same errors,
	// so each has its spread to itself.
	return meanOfLikely*(t.errors[phase+n]-t.errors[phase]) +
		mostOfLikely*math.Sqrt(t.squares[phase+n]-t.squares[phase])
}

// leastShowing is of how many elements in a period a tolerance must let a fault be seen, for the elements to count as
// judged.
const leastShowing = periodElements / 256

// shows says whether the tolerance lets it be seen when a rank's contribution is missing or doubled, or when the result
// is zero: such a fault puts an element off by the value that is missing, less what rounding takes back.
func (p *pattern) shows(t *tile, ranks []int) bool {
	seen := func(missing func(i int) float64) bool {
		n := 0
		for i, tolerance := range t.tolerance {
			if math.Abs(missing(i)) > 2*tolerance {
				if n++; n >= leastShowing {
					return true
				}
			}
		}
		return false
	}
	if !seen(func(i int) float64 { return t.want[i] }) {
		return false
	}
	for _, rank := range ranks {
		if !seen(func(i int) float64 { return p.value(rank, int64(i)) }) {
			return false
		}
	}
	return true
}
