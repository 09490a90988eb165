package engine

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func elementFor(t testing.TB, d rcclx.Datatype, encoding fp8Encoding) element {
	t.Helper()
	e, ok := elementOf(d, encoding)
	if !ok {
		t.Fatalf("%s has no element", d)
	}
	return e
}

// eachElement calls a test for every datatype, the FP8 ones in both encodings.
func eachElement(t *testing.T, test func(t *testing.T, e element)) {
	for _, d := range rcclx.Datatypes() {
		t.Run(string(d), func(t *testing.T) { test(t, elementFor(t, d, fp8OCP)) })
		if d.Bytes() == 1 && d != rcclx.Int8 {
			t.Run(string(d)+"FNUZ", func(t *testing.T) { test(t, elementFor(t, d, fp8FNUZ)) })
		}
	}
}

// received builds what a right library would deliver, from the definition of each collective; sums are added in rank
// order and rounded at every hop, as a ring does.
func received(p *pattern, c rcclx.Collective, rank int, count, start int64) []byte {
	var out []byte
	put := func(value float64) { out = p.element.encode(out, value) }
	sum := func(index int64) float64 {
		var total float64
		for peer := range p.ranks {
			total = p.element.round(total + p.value(peer, index))
		}
		return total
	}
	for i := range count {
		switch c {
		case rcclx.AllReduce:
			put(sum(start + i))
		case rcclx.ReduceScatter:
			put(sum(start + int64(rank)*count + i))
		case rcclx.Broadcast:
			put(p.value(0, start+i))
		case rcclx.SendRecv:
			put(p.value((rank+p.ranks-1)%p.ranks, start+i))
		case rcclx.Reduce:
			if rank == 0 {
				put(sum(start + i))
				continue
			}
			for range p.element.bytes {
				out = append(out, p.element.poison)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for peer := range p.ranks {
		n, index := count, start
		switch c {
		case rcclx.AllToAll:
			index += int64(rank) * count
		case rcclx.AllToAllv:
			parts := rcclx.PeerCounts(peer, p.ranks, count)
			n = parts[rank]
			for _, part := range parts[:rank] {
				index += part
			}
		}
		for i := range n {
			put(p.value(peer, index+i))
		}
	}
	return out
}

func checked(p *pattern, c rcclx.Collective, rank int, count, start int64, got []byte, piece int) rcclx.CheckResult {
	k := newChecker(p, p.reference(c, rcclx.OutOfPlace, rank, count, start))
	for at := 0; at < len(got); at += piece {
		k.add(got[at:min(at+piece, len(got))])
	}
	return k.result()
}

// Every collective, datatype and kind of data, right and wrong.
func TestCheckerFindsWhatIsWrong(t *testing.T) {
	const rank, count, start = 2, 4999, 37
	eachElement(t, func(t *testing.T, e element) {
		for _, c := range rcclx.AllCollectives() {
			for _, data := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients,
				rcclx.DataActivations} {
				if fitsData(e.datatype, data) != "" {
					continue
				}
				for _, ranks := range []int{3, 8, 12} {
					p := newPattern(e, data, ranks, 0)
					right := received(p, c, rank, count, start)
					elements := int64(len(right) / e.bytes)
					r := checked(p, c, rank, count, start, right, 4096*e.bytes)
					// Sums of random data that are rounded to FP8 at every hop are no test of single elements.
					if coarse := e.bytes == 1 && !p.sumTile().judged; coarse &&
						slices.Contains([]rcclx.Collective{rcclx.AllReduce, rcclx.ReduceScatter}, c) {
						elements = 0
					}
					if r.WrongElements != 0 || r.CheckedElements != elements || r.NaNElements != 0 ||
						r.OverflowElements != 0 || r.FirstWrongElement != nil || r.Data != data {
						t.Errorf("%s of %s data over %d: the right result gave %+v", c, data, ranks, r)
					}
					if exact := data == rcclx.DataExact || data == rcclx.DataRounding; exact &&
						(r.MaxRelativeErrorPPM != 0 || r.MeanRelativeErrorPPM != 0) {
						t.Errorf("%s of %s data over %d: the right result has an error of %+v", c, data, ranks, r)
					}
					if c == rcclx.Reduce {
						continue // rank 2 receives nothing; that has a test of its own
					}
					wrong := append([]byte(nil), right...)
					copy(wrong[777*e.bytes:], e.encode(nil, e.largest))
					for i := range 4 * e.bytes { // four elements that nobody wrote
						wrong[100*e.bytes+i] = e.poison
					}
					r = checked(p, c, rank, count, start, wrong, 1000*e.bytes)
					want := int64(5)
					if coarse := e.bytes == 1 && !e.integer() && data != rcclx.DataExact; coarse {
						// the largest value of FP8 may be within the bound of a sum that is rounded at every hop
						want = 4
					}
					if r.WrongElements < want || r.WrongElements > 5 || r.FirstWrongElement == nil ||
						*r.FirstWrongElement != 100 {
						t.Errorf("%s of %s data over %d: five wrong elements gave %+v", c, data, ranks, r)
					}
					// A byte may be a value, so that a single one says nothing of who wrote it.
					if unwritten := int64(4); e.bytes > 1 && (r.UnwrittenElements != unwritten || r.NaNElements != 0) ||
						e.bytes == 1 && r.UnwrittenElements != 0 {
						t.Errorf("%s of %s data over %d: four elements that nobody wrote gave %+v", c, data, ranks, r)
					}
					r = checked(p, c, rank, count, start, bytes.Repeat([]byte{e.poison}, len(right)), 1000*e.bytes)
					// AllToAllv leaves parts as they were
					whole := e.bytes > 1 || c == rcclx.AllReduce || c == rcclx.AllGather
					if r.CheckedElements > 0 && whole &&
						(r.UnwrittenElements == 0 || r.UnwrittenElements != r.WrongElements || r.NaNElements != 0) {
						t.Errorf("%s of %s data over %d: a buffer that nobody wrote gave %+v", c, data, ranks, r)
					}
					if data != rcclx.DataExact {
						continue
					}
					shifted := append(append([]byte(nil), right[e.bytes:]...), right[:e.bytes]...)
					if r := checked(p, c, rank, count, start, shifted, 4096*e.bytes); r.WrongElements < elements/4 {
						t.Errorf("%s over %d: a result one element off gave %+v", c, ranks, r)
					}
				}
			}
		}
	})
}

// sent is what each rank's values are when they travel.
func sent(p *pattern, form *smallFloat) [][]float64 {
	all := make([][]float64, p.ranks)
	for rank := range all {
		for i := range int64(periodElements) {
			x := p.value(rank, i)
			if form != nil {
				x = e4m3(*form, x)
			}
			all[rank] = append(all[rank], x)
		}
	}
	return all
}

// reduced is a sum that is rounded to the element type at every hop, over the given ranks in an order of its own for
// each chunk, as rings and trees have it; with FP8 transport it is one of casts.
func reduced(p *pattern, form *smallFloat, sent [][]float64, ranks []int, count, start int64) []byte {
	order, random := slices.Clone(ranks), rand.New(rand.NewPCG(1, 2))
	var out []byte
	for i := range count {
		if i%512 == 0 {
			random.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
		}
		var sum float64
		for _, rank := range order {
			if sum += sent[rank][(start+i)%periodElements]; form == nil {
				sum = p.element.round(sum)
			}
		}
		if form != nil {
			sum = e4m3(*form, sum)
		}
		if out = p.element.encode(out, sum); math.IsNaN(sum) {
			copy(out[len(out)-p.element.bytes:], []byte{0, 0, 0xc0, 0x7f}[4-p.element.bytes:])
		}
	}
	return out
}

// What ranks and libraries do wrong to a whole result is found with every kind of data, or the result says that none of
// its elements were judged; and a right result is never called wrong, whatever the order of its sums.
func TestFaultsAreFoundOrNotJudged(t *testing.T) {
	const count, start = periodElements + 300, 128
	for _, transport := range []*smallFloat{nil, &e4m3OCP, &e4m3FNUZ} {
		for _, d := range rcclx.Datatypes() {
			for _, data := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients,
				rcclx.DataActivations} {
				if fitsData(d, data) != "" || transport != nil && !rcclx.KnowsLowPrecision(rcclx.AllReduce, d) {
					continue
				}
				for _, ranks := range []int{8, 16, 64} {
					limit, name := 0.0, fmt.Sprintf("%s/%s/%d", d, data, ranks)
					if transport != nil {
						limit = transport.largest
						name += fmt.Sprintf("/FP8 to %v", limit)
					}
					p := newPattern(elementFor(t, d, fp8OCP), data, ranks, limit)
					t.Run(name, func(t *testing.T) { testFaults(t, p, transport, count, start) })
				}
			}
		}
	}
}

func testFaults(t *testing.T, p *pattern, transport *smallFloat, count, start int64) {
	all := make([]int, p.ranks)
	for i := range all {
		all[i] = i
	}
	check := func(got []byte) rcclx.CheckResult {
		return checked(p, rcclx.AllReduce, 0, count, start, got, 4096*p.element.bytes)
	}
	travelling := sent(p, transport)
	right := reduced(p, transport, travelling, all, count, start)
	r := check(right)
	random := p.data == rcclx.DataGradients || p.data == rcclx.DataActivations
	unjudged := random && (p.element.bytes == 1 || p.ranks > 8) && r.CheckedElements == 0
	if r.WrongElements != 0 || r.CheckedElements != count && !unjudged {
		t.Fatalf("a right result gave %+v", r)
	}
	values := make([]float64, count)
	p.element.decode(values, right)
	var flipped []byte
	for _, v := range values {
		if flipped = p.element.encode(flipped, -v); math.IsNaN(v) {
			copy(flipped[len(flipped)-p.element.bytes:], []byte{0, 0, 0xc0, 0x7f}[4-p.element.bytes:])
		}
	}
	for fault, wrong := range map[string][]byte{
		"all zeros":      make([]byte, len(right)),
		"rank missing":   reduced(p, transport, travelling, all[:p.ranks-1], count, start),
		"rank doubled":   reduced(p, transport, travelling, append(slices.Clone(all), 1), count, start),
		"sign flipped":   flipped,
		"shifted by 16":  reduced(p, transport, travelling, all, count, start+16),
		"one rank alone": reduced(p, transport, travelling, all[:1], count, start),
	} {
		if f := check(wrong); f.WrongElements == 0 && f.CheckedElements != 0 {
			t.Errorf("%s passed: %+v", fault, f)
		} else if f.WrongElements > 0 && (f.FirstWrongElement == nil || f.CheckedElements != count) {
			t.Errorf("%s: %+v", fault, f)
		}
	}
}

// FP8 elements are still judged all together: a result that lost a rank of eight is off by more than rounding explains.
func TestMeanErrorFindsWhatElementsDoNot(t *testing.T) {
	p := newPattern(elementFor(t, rcclx.Float8E5M2, fp8OCP), rcclx.DataGradients, 8, 0)
	const count = 8 * periodElements
	got := reduced(p, nil, sent(p, nil), []int{0, 1, 2, 3, 4, 5, 6}, count, 0)
	k := newChecker(p, p.reference(rcclx.AllReduce, rcclx.OutOfPlace, 0, count, 0))
	k.add(got)
	if k.wrong != 0 {
		t.Fatalf("%d elements are wrong by themselves: the test says nothing of the mean", k.wrong)
	}
	if r := k.result(); r.WrongElements != count || r.CheckedElements != count || r.FirstWrongElement == nil ||
		*r.FirstWrongElement != 0 {
		t.Errorf("a missing rank gave %+v", r)
	}
}

// Of Reduce, the ranks but the root receive nothing, and a library that writes to them all the same is wrong.
func TestReduceLeavesOtherRanksAlone(t *testing.T) {
	eachElement(t, func(t *testing.T, e element) {
		p := newPattern(e, rcclx.DataExact, 4, 0)
		right := received(p, rcclx.Reduce, 2, 5000, 0)
		written := append([]byte(nil), right...)
		copy(written[4321*e.bytes:], make([]byte, 2*e.bytes))
		if r := checked(p, rcclx.Reduce, 2, 5000, 0, right, 999*e.bytes); r.WrongElements != 0 ||
			r.CheckedElements != 5000 {
			t.Errorf("an untouched buffer gave %+v", r)
		}
		if r := checked(p, rcclx.Reduce, 2, 5000, 0, written, 999*e.bytes); r.WrongElements != 2 ||
			*r.FirstWrongElement != 4321 {
			t.Errorf("two elements written gave %+v", r)
		}
		in := newChecker(p, p.reference(rcclx.Reduce, rcclx.InPlace, 2, 100, 5))
		var input []byte
		for i := range int64(100) {
			input = e.encode(input, p.value(2, 5+i))
		}
		in.add(input)
		if r := in.result(); r.WrongElements != 0 || r.CheckedElements != 100 {
			t.Errorf("in place, an untouched buffer gave %+v", r)
		}
	})
}

// e4m3 rounds as FP8 transport does: beyond the range comes NaN.
func e4m3(form smallFloat, value float64) float64 {
	if math.Abs(value) > form.largest*(1+1.0/32) {
		return math.NaN()
	}
	return form.round(value)
}

// transported is an AllReduce whose values and sums travel as E4M3.
func transported(p *pattern, form smallFloat, count int64) []byte {
	var out []byte
	for i := range count {
		var sum float64
		for rank := range p.ranks {
			sum += e4m3(form, p.value(rank, i))
		}
		switch sum = e4m3(form, sum); {
		case !math.IsNaN(sum):
			out = p.element.encode(out, sum)
		case p.element.datatype == rcclx.BFloat16:
			out = append(out, 0xc0, 0x7f)
		default:
			out = append(out, 0, 0, 0xc0, 0x7f)
		}
	}
	return out
}

// FP8 transport shows in every kind of data, and is not wrong as long as it does what FP8 does.
func TestTransportShowsAndIsTolerated(t *testing.T) {
	for _, form := range []smallFloat{e4m3OCP, e4m3FNUZ} {
		for _, d := range []rcclx.Datatype{rcclx.BFloat16, rcclx.Float32} {
			e := elementFor(t, d, fp8OCP)
			for _, data := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients,
				rcclx.DataActivations} {
				p := newPattern(e, data, 8, form.largest)
				got := transported(p, form, 3*periodElements)
				check := func(got []byte) rcclx.CheckResult {
					return checked(p, rcclx.AllReduce, 0, 3*periodElements, 0, got, 1<<14)
				}
				r := check(got)
				if r.CheckedElements != 3*periodElements || r.WrongElements != 0 || r.MaxRelativeErrorPPM == 0 ||
					r.MeanRelativeErrorPPM == 0 {
					t.Errorf("%s data of %s: %+v", data, d, r)
				}
				if overflows := data == rcclx.DataActivations; (r.NaNElements > 0) != overflows {
					t.Errorf("%s data of %s: %d became NaN", data, d, r.NaNElements)
				}
				// A tail that nobody wrote is wrong in every kind of data.
				for i := len(got) - 200*e.bytes; i < len(got); i++ {
					got[i] = e.poison
				}
				if r := check(got); r.WrongElements != 200 || *r.FirstWrongElement != 3*periodElements-200 ||
					r.UnwrittenElements != 200 {
					t.Errorf("%s data of %s: an unwritten tail of 200 gave %+v", data, d, r)
				}
				// One of zeros shows where values do not underflow to zero, too.
				clear(got[len(got)-200*e.bytes:])
				if r := check(got); data == rcclx.DataRounding && r.WrongElements != 200 {
					t.Errorf("%s data of %s: a tail of 200 zeros gave %+v", data, d, r)
				}
				without := newPattern(e, data, 8, 0)
				if r := checked(without, rcclx.AllReduce, 0, 3*periodElements, 0,
					transported(p, form, 3*periodElements), 1<<14); data == rcclx.DataRounding &&
					r.WrongElements == 0 {
					t.Errorf("%s data of %s: without tolerance, quantised data passed: %+v", data, d, r)
				}
			}
		}
	}
}

// A value clipped to E4M3's largest is an overflow and not wrong; one clipped further is wrong.
func TestClippedValues(t *testing.T) {
	e := elementFor(t, rcclx.Float32, fp8OCP)
	p := newPattern(e, rcclx.DataActivations, 1, e4m3OCP.largest)
	var clipped, short []byte
	over := int64(0)
	for i := range int64(periodElements) {
		v := p.value(0, i)
		limited := max(-448, min(448, v))
		if limited != v {
			over++
		}
		clipped = e.encode(clipped, limited)
		short = e.encode(short, max(-200, min(200, v)))
	}
	r := checked(p, rcclx.AllGather, 0, periodElements, 0, clipped, 1<<20)
	if over == 0 || r.OverflowElements == 0 || r.OverflowElements > over || r.WrongElements != 0 {
		t.Errorf("%d values clipped to 448 gave %+v", over, r)
	}
	if r := checked(p, rcclx.AllGather, 0, periodElements, 0, short, 1<<20); r.WrongElements == 0 {
		t.Errorf("values clipped to 200 gave %+v", r)
	}
}

// A sum beyond the range is an overflow, too, where none of its terms is.
func TestOverflowOfSums(t *testing.T) {
	e := elementFor(t, rcclx.Float32, fp8OCP)
	p := newPattern(e, rcclx.DataRounding, 8, 4)
	var got []byte
	for range periodElements {
		got = append(got, 0, 0, 0xc0, 0x7f) // a NaN that is not poison
	}
	if r := checked(p, rcclx.AllReduce, 0, periodElements, 0, got, 1<<20); r.NaNElements != periodElements ||
		r.WrongElements != 0 {
		t.Errorf("sums over the range that became NaN gave %+v", r)
	}
	if r := checked(p, rcclx.AllGather, 0, periodElements/8, 0, got, 1<<20); r.WrongElements == 0 {
		t.Errorf("values within the range that became NaN gave %+v", r)
	}
}

// Checking a large result must not take longer than moving it: MB/s of the result.
func BenchmarkCheck(b *testing.B) {
	const count = 1 << 20
	for _, data := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients} {
		for _, d := range []rcclx.Datatype{rcclx.Float32, rcclx.BFloat16, rcclx.Float8E4M3} {
			if fitsData(d, data) != "" {
				continue
			}
			transport := 0.0
			if data == rcclx.DataRounding {
				transport = e4m3OCP.largest
			}
			e := elementFor(b, d, fp8OCP)
			p := newPattern(e, data, 8, transport)
			got := received(p, rcclx.AllReduce, 0, count, 0)
			if transport > 0 {
				got = transported(p, e4m3OCP, count)
			}
			b.Run(string(data)+"/"+string(d), func(b *testing.B) {
				check := newChecker(p, nil)
				sum := p.sumTile()
				b.SetBytes(int64(len(got)))
				for b.Loop() {
					check.segments, check.tile = []segment{{func() *tile { return sum }, 0, count}}, nil
					check.add(got)
				}
				if check.wrong != 0 {
					b.Error(check.result())
				}
			})
		}
	}
	b.Run("reference", func(b *testing.B) {
		p := newPattern(elementFor(b, rcclx.BFloat16, fp8OCP), rcclx.DataExact, 8, 0)
		for b.Loop() {
			p.sumTile()
		}
	})
	b.Run("referenceGradients", func(b *testing.B) {
		p := newPattern(elementFor(b, rcclx.BFloat16, fp8OCP), rcclx.DataGradients, 8, e4m3OCP.largest)
		for b.Loop() {
			p.sumTile()
		}
	})
}
