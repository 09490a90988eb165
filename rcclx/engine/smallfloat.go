package engine

import "math"

// smallFloat is a binary floating-point form of at most 16 bits: a sign, an exponent and a fraction, with subnormals.
type smallFloat struct {
	fractionBits, bias int
	// largest finite value.
	largest float64
	top     topCodes
}

// topCodes says what the codes at the end of the range stand for.
type topCodes int

const (
	topInfinity topCodes = iota // as IEEE 754: the highest exponent is infinity and NaN
	topOneNaN                   // OCP E4M3: only all exponent and fraction bits set is NaN, there is no infinity
	topFNUZ                     // FNUZ: the code of minus zero is the only NaN, there is no infinity
)

// The forms. FP8: "OCP 8-bit Floating Point Specification" revision 1.0 for E4M3 and E5M2; the FNUZ forms of gfx942
// have one more in the bias, no infinity and no minus zero (AMD "CDNA3 ISA", 8-bit floats; rccl
// src/include/rccl_float8.h picks them for gfx942).
var (
	binary16 = smallFloat{10, 15, 65504, topInfinity}
	bfloat16 = smallFloat{7, 127, math.MaxFloat32 / (2 - 0x1p-23) * (2 - 0x1p-7), topInfinity}
	e4m3OCP  = smallFloat{3, 7, 448, topOneNaN}
	e5m2OCP  = smallFloat{2, 15, 57344, topInfinity}
	e4m3FNUZ = smallFloat{3, 8, 240, topFNUZ}
	e5m2FNUZ = smallFloat{2, 16, 57344, topFNUZ}
)

// exponentLeast is the exponent of the smallest normal value, and of all subnormals.
func (f smallFloat) exponentLeast() int { return 1 - f.bias }

// leastSubnormal is the smallest value over zero.
func (f smallFloat) leastSubnormal() float64 { return math.Ldexp(1, f.exponentLeast()-f.fractionBits) }

// Of a float64: bits of the fraction, and what its exponent field adds.
const (
	doubleFractionBits = 52
	doubleBias         = 1023
)

// round gives the nearest value of the form, ties to even; one beyond the largest becomes the largest.
func (f smallFloat) round(value float64) float64 {
	bits := math.Float64bits(value)
	if exponent := int(bits>>doubleFractionBits&0x7ff) - doubleBias; exponent < f.exponentLeast() {
		step := f.leastSubnormal()
		return math.RoundToEven(value/step) * step
	}
	// Add just under half of the last bit kept, and it itself, so that ties go to even, and cut off the rest.
	drop := doubleFractionBits - f.fractionBits
	bits += 1<<(drop-1) - 1 + bits>>drop&1
	rounded := math.Float64frombits(bits &^ (1<<drop - 1))
	return max(-f.largest, min(f.largest, rounded))
}

// bits is the code of a value, rounded; minus zero has that of zero.
func (f smallFloat) bits(value float64) uint16 {
	value = f.round(value)
	if value == 0 {
		return 0
	}
	bits := math.Float64bits(value)
	var code uint16
	if exponent := int(bits>>doubleFractionBits&0x7ff) - doubleBias; exponent < f.exponentLeast() {
		code = uint16(math.Abs(value) / f.leastSubnormal())
	} else {
		fraction := uint16(bits>>(doubleFractionBits-f.fractionBits)) & (1<<f.fractionBits - 1)
		code = uint16(exponent-f.exponentLeast()+1)<<f.fractionBits | fraction
	}
	if value < 0 {
		code |= f.signBit()
	}
	return code
}

// signBit is the highest bit of the form: 8 bits where the exponent and fraction fit 7.
func (f smallFloat) signBit() uint16 {
	if f.fractionBits <= 3 {
		return 0x80
	}
	return 0x8000
}

// value of a code.
func (f smallFloat) value(code uint16) float64 {
	sign, magnitude := 1.0, code&(f.signBit()-1)
	if code&f.signBit() != 0 {
		sign = -1
	}
	exponent, fraction := int(magnitude>>f.fractionBits), int(magnitude)&(1<<f.fractionBits-1)
	switch {
	case f.top == topFNUZ && code == f.signBit():
		return math.NaN()
	case f.top == topOneNaN && magnitude == f.signBit()-1:
		return math.NaN()
	case f.top == topInfinity && magnitude>>f.fractionBits == (f.signBit()-1)>>f.fractionBits:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * float64(fraction) * f.leastSubnormal()
	}
	return sign * math.Ldexp(float64(fraction+1<<f.fractionBits), exponent+f.exponentLeast()-1-f.fractionBits)
}

// table of the values of all codes.
func (f smallFloat) table() []float32 {
	values := make([]float32, 2*int(f.signBit()))
	for code := range values {
		values[code] = float32(f.value(uint16(code)))
	}
	return values
}
