package engine

import (
	"math"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func TestEncodeDecodeExact(t *testing.T) {
	for _, d := range []rcclx.Datatype{rcclx.Float32, rcclx.Float16, rcclx.BFloat16} {
		for n := range 257 {
			for _, value := range []float32{float32(n), float32(n) / 16, -float32(n)} {
				raw := encode(d, nil, value)
				if int64(len(raw)) != d.Bytes() {
					t.Fatalf("%s: %d bytes", d, len(raw))
				}
				if got := decode(d, raw); got != value {
					t.Errorf("%s: %v came back as %v", d, value, got)
				}
			}
		}
		if got := decode(d, []byte{poison, poison, poison, poison}); !math.IsNaN(float64(got)) {
			t.Errorf("%s reads the poison as %v, want NaN", d, got)
		}
	}
	for half, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 1.0 / (1 << 24), 0x0400: 1.0 / (1 << 14), 0x8000: 0} {
		if got := halfValue(half); got != want {
			t.Errorf("halfValue(%#x) = %v, want %v", half, got, want)
		}
	}
}

// Every sum over up to 64 ranks must be exact in every datatype, else a right result would count as wrong.
func TestSumsAreExact(t *testing.T) {
	for _, ranks := range []int{1, 2, 7, 8, 9, 16, 64} {
		for _, quantised := range []bool{false, true} {
			p := pattern{ranks: ranks, quantised: quantised}
			for _, d := range []rcclx.Datatype{rcclx.Float32, rcclx.Float16, rcclx.BFloat16} {
				sum := p.sumTile(d)
				for i, want := range sum.values {
					if got := decode(d, sum.bytes[i*int(d.Bytes()):]); got != want || want == 0 {
						t.Fatalf("%d ranks, %s, index %d: sum %v is stored as %v", ranks, d, i, want, got)
					}
				}
			}
		}
	}
}

// e4m3 rounds to three mantissa bits, as FP8 transport does.
func e4m3(value float32) float32 {
	if value == 0 {
		return 0
	}
	fraction, exponent := math.Frexp(float64(value))
	return float32(math.Ldexp(math.RoundToEven(fraction*16)/16, exponent))
}

// Each value must lose something in E4M3, so that quantisation cannot go unseen; and two roundings must be tolerated.
func TestQuantisationShowsAndIsTolerated(t *testing.T) {
	p := pattern{ranks: 8, quantised: true}
	for index := range int64(periodElements) {
		if v := p.value(3, index); e4m3(v) == v {
			t.Fatalf("E4M3 holds %v exactly", v)
		}
	}
	var got []byte
	for index := range int64(periodElements) {
		var sum float32
		for rank := range p.ranks {
			sum += e4m3(p.value(rank, index))
		}
		got = encode(rcclx.BFloat16, got, e4m3(sum))
	}
	check := newChecker(rcclx.BFloat16, true, p.reference(rcclx.AllReduce, rcclx.BFloat16, 0, periodElements))
	check.add(got)
	if r := check.result(); r.CheckedElements != periodElements || r.WrongElements != 0 || r.MaxRelativeErrorPPM == 0 || r.MaxRelativeErrorPPM > 130000 {
		t.Errorf("quantised twice: %+v", r)
	}
	exact := newChecker(rcclx.BFloat16, false, p.reference(rcclx.AllReduce, rcclx.BFloat16, 0, periodElements))
	exact.add(got)
	if r := exact.result(); r.WrongElements == 0 {
		t.Errorf("without tolerance, quantised data passed: %+v", r)
	}
}

// received builds what a right library would deliver, from the definition of each collective.
func received(p pattern, c rcclx.Collective, d rcclx.Datatype, rank int, count int64) []byte {
	var out []byte
	sum := func(index int64) (total float32) {
		for peer := range p.ranks {
			total += p.value(peer, index)
		}
		return total
	}
	switch c {
	case rcclx.AllReduce:
		for i := range count {
			out = encode(d, out, sum(i))
		}
	case rcclx.ReduceScatter:
		for i := range count {
			out = encode(d, out, sum(int64(rank)*count+i))
		}
	case rcclx.AllGather, rcclx.AllToAll:
		for peer := range p.ranks {
			for i := range count {
				index := i
				if c == rcclx.AllToAll {
					index += int64(rank) * count
				}
				out = encode(d, out, p.value(peer, index))
			}
		}
	}
	return out
}

func TestCheckerFindsWhatIsWrong(t *testing.T) {
	const rank, count = 3, 10000
	for _, c := range rcclx.Collectives() {
		for _, d := range []rcclx.Datatype{rcclx.Float32, rcclx.Float16, rcclx.BFloat16} {
			for _, ranks := range []int{5, 8, 12} {
				p := pattern{ranks: ranks}
				right := received(p, c, d, rank, count)
				element := int(d.Bytes())
				check := func(got []byte, piece int) rcclx.CheckResult {
					k := newChecker(d, false, p.reference(c, d, rank, count))
					for at := 0; at < len(got); at += piece {
						k.add(got[at:min(at+piece, len(got))])
					}
					return k.result()
				}
				elements := int64(len(right) / element)
				if r := check(right, 4096*element); r.WrongElements != 0 || r.CheckedElements != elements || r.MaxRelativeErrorPPM != 0 {
					t.Errorf("%s %s over %d: the right result gave %+v", c, d, ranks, r)
				}
				wrong := append([]byte(nil), right...)
				copy(wrong[7777*element:], encode(d, nil, 99))
				for i := range 4 * element { // four poisoned elements
					wrong[100*element+i] = poison
				}
				if r := check(wrong, 1000*element); r.WrongElements != 5 || r.MaxRelativeErrorPPM == 0 {
					t.Errorf("%s %s over %d: five wrong elements gave %+v", c, d, ranks, r)
				}
				shifted := append(append([]byte(nil), right[element:]...), right[:element]...)
				if r := check(shifted, 4096*element); r.WrongElements < elements/2 {
					t.Errorf("%s %s over %d: a result one element off gave %+v", c, d, ranks, r)
				}
			}
		}
	}
}
