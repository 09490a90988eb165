package engine

import (
	"math"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

// Codes and values of every form, one by one: decoding and encoding give the same, in order, with the range that it
// should have.
func TestSmallFloatCodes(t *testing.T) {
	for name, tt := range map[string]struct {
		form          smallFloat
		least, normal float64 // smallest value and smallest normal value over zero
		nan           int
	}{
		"binary16":  {binary16, 0x1p-24, 0x1p-14, 2 * 1023},
		"bfloat16":  {bfloat16, 0x1p-133, 0x1p-126, 2 * 127},
		"E4M3 OCP":  {e4m3OCP, 0x1p-9, 0x1p-6, 2},
		"E5M2 OCP":  {e5m2OCP, 0x1p-16, 0x1p-14, 2 * 3},
		"E4M3 FNUZ": {e4m3FNUZ, 0x1p-10, 0x1p-7, 1},
		"E5M2 FNUZ": {e5m2FNUZ, 0x1p-17, 0x1p-15, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, nan, last := tt.form, 0, -1.0
			for code := range 2 * int(f.signBit()) {
				value := f.value(uint16(code))
				switch {
				case math.IsNaN(value):
					nan++
					continue
				case math.IsInf(value, 0):
					continue
				case code < int(f.signBit()) && value <= last:
					t.Fatalf("code %#x is %v, the one before %v", code, value, last)
				case value != f.round(value):
					t.Fatalf("code %#x: %v is rounded to %v", code, value, f.round(value))
				case int(f.bits(value)) != code && value != 0:
					t.Fatalf("code %#x is %v, which has the code %#x", code, value, f.bits(value))
				}
				last = value
				// Half way to the next value goes to the even code, a bit more goes up.
				next := f.value(uint16(code + 1))
				if code+1 >= int(f.signBit()) || math.IsNaN(next) || math.IsInf(next, 0) {
					continue
				}
				even := uint16(code + code&1)
				middle := (value + next) / 2
				if f.bits(middle) != even || f.bits(math.Nextafter(middle, 1e300)) != uint16(code+1) ||
					f.bits(math.Nextafter(middle, 0)) != uint16(code) {
					t.Fatalf("between %v and %v: %v goes to %#x", value, next, middle, f.bits(middle))
				}
			}
			if f.value(1) != tt.least || f.leastSubnormal() != tt.least ||
				f.value(1<<f.fractionBits) != tt.normal || nan != tt.nan {
				t.Errorf("least %v, normal %v, %d NaN; want %v, %v, %d",
					f.value(1), f.value(1<<f.fractionBits), nan, tt.least, tt.normal, tt.nan)
			}
			if f.round(1e300) != f.largest || f.round(-1e300) != -f.largest || f.value(f.bits(f.largest)) != f.largest {
				t.Errorf("the largest value %v is not kept", f.largest)
			}
		})
	}
	// Codes as the standards and the instruction set print them.
	for _, tt := range []struct {
		form  smallFloat
		code  uint16
		value float64
	}{{e4m3OCP, 0x7e, 448}, {e4m3OCP, 0x38, 1}, {e5m2OCP, 0x7b, 57344}, {e5m2OCP, 0x3c, 1}, {e4m3FNUZ, 0x7f, 240},
		{e4m3FNUZ, 0x40, 1}, {e5m2FNUZ, 0x7f, 57344}, {e5m2FNUZ, 0x40, 1}, {binary16, 0x3c00, 1},
		{binary16, 0x7bff, 65504}, {bfloat16, 0x3f80, 1}, {bfloat16, 0xc000, -2}} {
		if got := tt.form.value(tt.code); got != tt.value {
			t.Errorf("code %#x of %+v is %v, want %v", tt.code, tt.form, got, tt.value)
		}
	}
}

func TestElementsComeBack(t *testing.T) {
	eachElement(t, func(t *testing.T, e element) {
		var raw []byte
		var want []float64
		for n := range int(min(exactLimit(e), 300)) + 1 {
			want = append(want, float64(n), float64(-n))
		}
		for _, v := range want {
			raw = e.encode(raw, v)
		}
		got := make([]float64, len(want))
		e.decode(got, raw)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v came back as %v", want[i], got[i])
			}
		}
		poison := make([]byte, e.bytes)
		for i := range poison {
			poison[i] = e.poison
		}
		e.decode(got[:1], poison)
		if e.integer() && got[0] >= 0 || !e.integer() && !math.IsNaN(got[0]) || !e.poisoned(poison) {
			t.Errorf("poison reads as %v, which a result may be", got[0])
		}
	})
}

// The proof of exactFor: all partial sums, in any order and grouping, are integers up to the bound, and the element
// type holds every one of them; and no pattern exceeds its bound or lacks a contribution anywhere.
func TestExactDataAreExact(t *testing.T) {
	eachElement(t, func(t *testing.T, e element) {
		bound := exactFor(e).contributors * exactFor(e).largest
		for n := range bound + 1 {
			values := make([]float64, 1)
			e.decode(values, e.encode(nil, float64(n)))
			if values[0] != float64(n) || float64(n) > exactLimit(e) {
				t.Fatalf("%d of sums up to %d comes back as %v", n, bound, values[0])
			}
		}
		for _, ranks := range []int{1, 2, 3, 7, 8, 9, 16, 64, 1000} {
			p := newPattern(e, rcclx.DataExact, ranks, 0)
			for index := int64(0); index < periodElements; index += 1 + int64(ranks)/16 {
				contributors, sum, least := 0, 0.0, math.Inf(1)
				for rank := range ranks {
					v := p.value(rank, index)
					sum += v
					if v != 0 {
						contributors++
						least = min(least, v)
					}
				}
				if contributors == 0 || contributors > exactFor(e).contributors || least < 1 || sum > float64(bound) {
					t.Fatalf("%d ranks, index %d: %d contributions, least %v, sum %v of at most %d",
						ranks, index, contributors, least, sum, bound)
				}
			}
		}
	})
}

// Every subset sum of Rounding data must be exact in the types that it is for, and each value must lose something in
// E4M3.
func TestRoundingDataAreExactButInE4M3(t *testing.T) {
	for _, d := range []rcclx.Datatype{rcclx.BFloat16, rcclx.Float16, rcclx.Float32, rcclx.Float64} {
		e := elementFor(t, d, fp8OCP)
		for sixteenths := range roundingContributors*31 + 1 {
			if v := float64(sixteenths) / 16; e.round(v) != v {
				t.Fatalf("%s does not hold %v", d, v)
			}
		}
		p := newPattern(e, rcclx.DataRounding, 8, 0)
		for index := range int64(periodElements) {
			v := p.value(3, index)
			if e4m3OCP.round(v) == v || e4m3FNUZ.round(v) == v || v > 31.0/16 || v < 17.0/16 {
				t.Fatalf("index %d is %v, which E4M3 holds", index, v)
			}
		}
	}
}

func TestFitsData(t *testing.T) {
	for _, d := range rcclx.Datatypes() {
		narrow := d.Bytes() == 1 || d == rcclx.Int32
		integer := d == rcclx.Int8 || d == rcclx.Int32
		for data, refused := range map[rcclx.Data]bool{rcclx.DataExact: false, rcclx.DataRounding: narrow,
			rcclx.DataGradients: integer, rcclx.DataActivations: integer, "Other": true} {
			if why := fitsData(d, data); (why != "") != refused {
				t.Errorf("%s data in %s: %q, refused should be %v", data, d, why, refused)
			}
		}
	}
	if defaultData(rcclx.LowPrecision, rcclx.BFloat16) != rcclx.DataRounding ||
		defaultData(rcclx.LowPrecision, rcclx.Int8) != rcclx.DataExact ||
		defaultData(rcclx.DDA, rcclx.BFloat16) != rcclx.DataExact {
		t.Error("the defaults of data are not as documented")
	}
}

// The random data have the spread that they claim, and no sum overflows their element type.
func TestRandomDataHaveTheirRanges(t *testing.T) {
	eachElement(t, func(t *testing.T, e element) {
		if e.integer() {
			return // integers take exact data only, see fitsData
		}
		for _, ranks := range []int{1, 8, 64} {
			for _, data := range []rcclx.Data{rcclx.DataGradients, rcclx.DataActivations} {
				p := newPattern(e, data, ranks, 0)
				tile := p.sumTile()
				if tile.maxValue > e.largest/2 || tile.maxValue == 0 {
					t.Errorf("%s data over %d ranks: the largest sum is %v of at most %v",
						data, ranks, tile.maxValue, e.largest)
				}
			}
		}
	})
	e := elementFor(t, rcclx.Float32, fp8OCP)
	var zeros, tiny, large, over240, sum, squares, n float64
	gradients, activations := newPattern(e, rcclx.DataGradients, 8, 0), newPattern(e, rcclx.DataActivations, 8, 0)
	for rank := range 8 {
		for i := range int64(periodElements) {
			n++
			g, a := math.Abs(gradients.value(rank, i)), activations.value(rank, i)
			switch {
			case g == 0:
				zeros++
			case g < 0x1p-20 || g > 0x1p-6:
				t.Fatalf("gradient %v is out of range", g)
			case g < 1e-5:
				tiny++
			case g > 1e-3:
				large++
			}
			if math.Abs(a) > 4 {
				if math.Abs(a) < 128 || math.Abs(a) >= 1024 {
					t.Fatalf("activation %v is neither normal nor an outlier", a)
				}
				if math.Abs(a) > 240 {
					over240++
				}
				continue
			}
			sum += a
			squares += a * a
		}
	}
	if share := zeros / n; math.Abs(share-1.0/gradientsZeroOf) > 0.01 {
		t.Errorf("%v of the gradients are zero", share)
	}
	if tiny/n < 0.03 || large/n < 0.03 {
		t.Errorf("%v of the gradients are below 1e-5 and %v over 1e-3: the tails are not heavy", tiny/n, large/n)
	}
	if over240 < 5 || over240/n > 1.0/activationsOutlierOf*1.5 {
		t.Errorf("%v of %v activations are over 240", over240, n)
	}
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.02 || math.Abs(deviation-1) > 0.02 {
		t.Errorf("activations have the mean %v and the standard deviation %v, want 0 and 1", mean, deviation)
	}
}

func TestFP8Encoding(t *testing.T) {
	for _, tt := range []struct {
		flavor             rcclx.Flavor
		architecture, name string
		want               fp8Encoding
	}{
		{rcclx.FlavorNCCL, "", "NVIDIA H200", fp8OCP},
		{rcclx.FlavorRCCL, "gfx942", "AMD Instinct MI355X", fp8FNUZ},
		{rcclx.FlavorRCCL, "gfx950", "", fp8OCP},
		{rcclx.FlavorRCCLXDev, "", "AMD Instinct MI300X", fp8FNUZ},
		{rcclx.FlavorRCCLXDev, "", "AMD Instinct MI325X", fp8FNUZ},
		{rcclx.FlavorSimulated, "", "AMD Instinct MI355X", fp8OCP},
		{rcclx.FlavorRCCL, "gfx90a", "AMD Instinct MI210", fp8Unknown},
		{rcclx.FlavorRCCL, "", "", fp8Unknown},
	} {
		if got := fp8Of(tt.flavor, tt.architecture, tt.name); got != tt.want {
			t.Errorf("fp8Of(%s, %q, %q) = %d, want %d", tt.flavor, tt.architecture, tt.name, got, tt.want)
		}
	}
}
