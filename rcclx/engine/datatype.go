package engine

import (
	"encoding/binary"
	"math"

	"rcclx.io/commgroup-operator/rcclx"
)

// encode appends a value in the datatype's bytes, little endian. The values of this package's patterns are exact in
// every datatype, so no rounding is needed; a value that is not is cut off.
func encode(d rcclx.Datatype, to []byte, value float32) []byte {
	bits := math.Float32bits(value)
	switch d {
	case rcclx.Float32:
		return binary.LittleEndian.AppendUint32(to, bits)
	case rcclx.Float16:
		return binary.LittleEndian.AppendUint16(to, halfBits(value))
	}
	return binary.LittleEndian.AppendUint16(to, uint16(bits>>16))
}

// decode reads the first element.
func decode(d rcclx.Datatype, from []byte) float32 {
	switch d {
	case rcclx.Float32:
		return math.Float32frombits(binary.LittleEndian.Uint32(from))
	case rcclx.Float16:
		return halfValue(binary.LittleEndian.Uint16(from))
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(from)) << 16)
}

// halfBits is the IEEE 754 binary16 form of a value in its normal range, cut off; outside of it zero or infinity.
func halfBits(value float32) uint16 {
	bits := math.Float32bits(value)
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127 + 15
	switch {
	case exponent <= 0:
		return sign
	case exponent >= 31:
		return sign | 0x7c00
	}
	return sign | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}

// halfValue reads IEEE 754 binary16, subnormals and infinities included.
func halfValue(half uint16) float32 {
	sign := uint32(half&0x8000) << 16
	exponent, fraction := uint32(half>>10&0x1f), uint32(half&0x3ff)
	switch exponent {
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0:
		value := float32(fraction) / (1 << 24)
		if sign != 0 {
			return -value
		}
		return value
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
