package engine

import (
	"encoding/binary"
	"math"
	"strings"
	"sync"

	"rcclx.io/commgroup-operator/rcclx"
)

// fp8Encoding is the form that a device's FP8 elements have.
type fp8Encoding int

const (
	fp8Unknown fp8Encoding = iota
	fp8OCP                 // NVIDIA, and AMD from gfx950 on
	fp8FNUZ                // gfx940 to gfx942: MI300A, MI300X, MI308X, MI325X
)

// fp8Of tells the encoding by the architecture that the runtime gives (gcnArchName), or, where it gives none, by the
// product name. rccl src/include/rccl_float8.h picks FNUZ for gfx942 and OCP for later ones.
func fp8Of(f rcclx.Flavor, architecture, deviceName string) fp8Encoding {
	has := func(text string, parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case f == rcclx.FlavorNCCL:
		return fp8OCP
	case has(architecture, "gfx940", "gfx941", "gfx942"):
		return fp8FNUZ
	case has(architecture, "gfx950", "gfx12"):
		return fp8OCP
	case architecture != "":
		return fp8Unknown
	case has(deviceName, "MI300", "MI308", "MI325"):
		return fp8FNUZ
	case has(deviceName, "MI350", "MI355"):
		return fp8OCP
	}
	return fp8Unknown
}

// element is an element type in a buffer: how values are written and read, and how finely.
type element struct {
	datatype rcclx.Datatype
	// number is the type's in the library (nccl.h, ncclDataType_t).
	number uintptr
	bytes  int
	// form is nil but for floats of at most 16 bits.
	form *smallFloat
	// significantBits of a float, the hidden one included; zero for integers.
	significantBits int
	// least is the smallest value over zero, and so the step below which nothing can be told apart; zero for integers.
	least float64
	// largest finite value.
	largest float64
	// poison fills a result buffer before a checked call. No right result holds it: as a float it is NaN, as an integer
	// -1, and all data are positive integers there.
	poison byte
}

func floatElement(d rcclx.Datatype, number uintptr, form *smallFloat) element {
	e := element{datatype: d, number: number, bytes: int(d.Bytes()), form: form, significantBits: form.fractionBits + 1,
		least: form.leastSubnormal(), largest: form.largest, poison: 0xff}
	if form.top == topFNUZ {
		e.poison = 0x80
	}
	return e
}

// elementOf gives a datatype's element; ok is false where the encoding must be known and is not.
func elementOf(d rcclx.Datatype, encoding fp8Encoding) (e element, ok bool) {
	switch d {
	case rcclx.Int8:
		return element{datatype: d, number: 0, bytes: 1, largest: math.MaxInt8, poison: 0xff}, true
	case rcclx.Int32:
		return element{datatype: d, number: 2, bytes: 4, largest: math.MaxInt32, poison: 0xff}, true
	case rcclx.Float16:
		return floatElement(d, 6, &binary16), true
	case rcclx.Float32:
		return element{datatype: d, number: 7, bytes: 4, significantBits: 24, least: math.SmallestNonzeroFloat32,
			largest: math.MaxFloat32, poison: 0xff}, true
	case rcclx.Float64:
		return element{datatype: d, number: 8, bytes: 8, significantBits: 53, least: math.SmallestNonzeroFloat64,
			largest: math.MaxFloat64, poison: 0xff}, true
	case rcclx.BFloat16:
		return floatElement(d, 9, &bfloat16), true
	case rcclx.Float8E4M3:
		if encoding == fp8FNUZ {
			return floatElement(d, 10, &e4m3FNUZ), true
		}
		return floatElement(d, 10, &e4m3OCP), encoding != fp8Unknown
	case rcclx.Float8E5M2:
		if encoding == fp8FNUZ {
			return floatElement(d, 11, &e5m2FNUZ), true
		}
		return floatElement(d, 11, &e5m2OCP), encoding != fp8Unknown
	}
	return element{}, false
}

// integer says whether the element is no float.
func (e *element) integer() bool { return e.significantBits == 0 }

// epsilon is the distance from 1 to the next larger value: twice the largest relative error of one rounding to nearest.
func (e *element) epsilon() float64 { return math.Ldexp(1, 1-e.significantBits) }

// round gives the nearest value that the element holds.
func (e *element) round(value float64) float64 {
	switch {
	case e.form != nil:
		return e.form.round(value)
	case e.integer():
		return math.RoundToEven(value)
	case e.bytes == 4:
		return float64(float32(value))
	}
	return value
}

// encode appends a value's bytes, little endian, rounded to nearest.
func (e *element) encode(to []byte, value float64) []byte {
	switch {
	case e.bytes == 1 && e.form != nil:
		return append(to, byte(e.form.bits(value)))
	case e.form != nil:
		return binary.LittleEndian.AppendUint16(to, e.form.bits(value))
	case e.bytes == 1:
		return append(to, byte(int8(e.round(value))))
	case e.integer():
		return binary.LittleEndian.AppendUint32(to, uint32(int32(e.round(value))))
	case e.bytes == 4:
		return binary.LittleEndian.AppendUint32(to, math.Float32bits(float32(value)))
	}
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(value))
}

// tables of the values of all codes of a form, made when first asked for.
var tables sync.Map

func tableOf(form *smallFloat) []float32 {
	if t, ok := tables.Load(form); ok {
		return t.([]float32)
	}
	t, _ := tables.LoadOrStore(form, form.table())
	return t.([]float32)
}

// decode reads as many elements as there are places for values.
func (e *element) decode(values []float64, from []byte) {
	switch {
	case e.form == &bfloat16:
		for i := range values {
			values[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(from[2*i:])) << 16))
		}
	case e.bytes == 1 && e.form != nil:
		table := tableOf(e.form)
		for i := range values {
			values[i] = float64(table[from[i]])
		}
	case e.form != nil:
		table := tableOf(e.form)
		for i := range values {
			values[i] = float64(table[binary.LittleEndian.Uint16(from[2*i:])])
		}
	case e.bytes == 1:
		for i := range values {
			values[i] = float64(int8(from[i]))
		}
	case e.integer():
		for i := range values {
			values[i] = float64(int32(binary.LittleEndian.Uint32(from[4*i:])))
		}
	case e.bytes == 4:
		for i := range values {
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:])))
		}
	default:
		for i := range values {
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(from[8*i:]))
		}
	}
}

// poisoned says whether an element's bytes are all poison, so that it was never written.
func (e *element) poisoned(raw []byte) bool {
	for _, b := range raw[:e.bytes] {
		if b != e.poison {
			return false
		}
	}
	return true
}
