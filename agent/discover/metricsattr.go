package discover

import "encoding/binary"

// Attribute ids of gpu_metrics 1.9 (enum amdgpu_metrics_attr_id in kgd_pp_interface.h). The five ids after
// attrAccumulation are throttleCauses, in their order.
const (
	attrHotspot      = 0
	attrMemory       = 1
	attrPower        = 3
	attrAccumulation = 9
	attrPCIeWidth    = 16
	attrPCIeSpeed    = 17
	attrXGMIWidth    = 18
	attrXGMISpeed    = 19
	attrReplays      = 25
	attrXGMIRead     = 29
	attrXGMIWrite    = 30
	attrXGMIStatus   = 31
	attrPartitions   = 38
)

// Units of an attribute (enum amdgpu_metrics_attr_unit): the two that a speed can have.
const (
	unitGTps      = 6 // AMDGPU_METRICS_UNIT_SPEED_1
	unitTenthGTps = 7 // AMDGPU_METRICS_UNIT_SPEED_2
)

// attribute is one attribute of gpu_metrics 1.9; the values of those marked "not available" are nil.
type attribute struct {
	id, unit int
	values   []attributeValue
}

// attributeValue is one value as both kinds of number; nil where it is not available or does not fit the kind.
type attributeValue struct {
	signed   *int64
	unsigned *uint64
}

// attributeBytes is the size of a value by its type (enum amdgpu_metrics_attr_type: U8 S8 U16 S16 U32 S32 U64 S64).
var attributeBytes = [...]int{1, 1, 2, 2, 4, 4, 8, 8}

// parseAttributes reads gpu_metrics 1.9: the header, an int32 count, then for each attribute a u64 of unit<<24,
// type<<20, id<<10 and instances, and so many values of the type. Every length is held against the bytes that are
// there.
func parseAttributes(data []byte, revision string) (*Metrics, error) {
	const start, code = metricsHeaderBytes + 4, 8
	if len(data) < start {
		return nil, malformedf("gpu_metrics %s has %d bytes, and needs %d for its count", revision, len(data), start)
	}
	count := int32(binary.LittleEndian.Uint32(data[metricsHeaderBytes:]))
	rest := data[start:]
	if count < 0 || int(count) > len(rest)/code {
		return nil, malformedf("gpu_metrics %s states %d attributes in %d bytes", revision, count, len(rest))
	}
	m := &Metrics{Revision: revision}
	for i := range count {
		if len(rest) < code {
			return nil, malformedf("gpu_metrics %s ends before attribute %d of %d", revision, i, count)
		}
		word := binary.LittleEndian.Uint64(rest)
		rest = rest[code:]
		a := attribute{id: int(word >> 10 & 0x3ff), unit: int(word >> 24 & 0xff)}
		kind, instances := int(word>>20&0xf), int(word&0x3ff)
		if kind >= len(attributeBytes) {
			return nil, malformedf("gpu_metrics %s: attribute %d has type %d, and the last known is %d",
				revision, a.id, kind, len(attributeBytes)-1)
		}
		width := attributeBytes[kind]
		if instances*width > len(rest) {
			return nil, malformedf("gpu_metrics %s: attribute %d states %d values of %d bytes in %d",
				revision, a.id, instances, width, len(rest))
		}
		if wanted(a.id) {
			a.values = attributeValues(rest[:instances*width], width, kind%2 == 1)
			m.take(a)
		}
		rest = rest[instances*width:]
	}
	return m, nil
}

// wanted says that take uses an attribute; the others are passed over without a copy.
func wanted(id int) bool {
	switch id {
	case attrHotspot, attrMemory, attrPower, attrPCIeWidth, attrPCIeSpeed, attrXGMIWidth, attrXGMISpeed, attrReplays,
		attrXGMIRead, attrXGMIWrite, attrXGMIStatus, attrPartitions:
		return true
	}
	return id >= attrAccumulation && id <= attrAccumulation+len(throttleCauses)
}

func attributeValues(data []byte, width int, signed bool) []attributeValue {
	values := make([]attributeValue, 0, len(data)/width)
	for ; len(data) > 0; data = data[width:] {
		var word [8]byte
		copy(word[:], data[:width])
		n := binary.LittleEndian.Uint64(word[:])
		bits := uint(8 * width)
		if n == ^uint64(0)>>(64-bits) { // all ones of its width: not available
			values = append(values, attributeValue{})
			continue
		}
		if signed && n>>(bits-1) == 1 {
			s := int64(n<<(64-bits)) >> (64 - bits)
			values = append(values, attributeValue{signed: &s})
			continue
		}
		v := attributeValue{unsigned: &n}
		if n < 1<<62 {
			s := int64(n)
			v.signed = &s
		}
		values = append(values, v)
	}
	return values
}

// take puts an attribute into the metrics.
func (m *Metrics) take(a attribute) {
	var first attributeValue
	if len(a.values) > 0 {
		first = a.values[0]
	}
	if cause := a.id - attrAccumulation - 1; cause >= 0 && cause < len(throttleCauses) {
		m.accumulate(throttleCauses[cause], first.unsigned)
		return
	}
	switch a.id {
	case attrHotspot:
		m.HotspotCelsius = first.signed
	case attrMemory:
		m.MemoryCelsius = first.signed
	case attrPower:
		m.SocketPowerWatts = first.signed
	case attrAccumulation:
		m.AccumulationCounter = first.unsigned
	case attrPCIeWidth:
		m.PCIeWidth = first.signed
	case attrPCIeSpeed:
		scale := int64(100) // tenths of a GT/s, as in the structs
		if a.unit == unitGTps {
			scale = 1000
		}
		m.PCIeSpeedMTps = scaled(first.signed, scale)
	case attrXGMIWidth:
		m.XGMIWidth = first.signed
	case attrXGMISpeed:
		m.XGMISpeedGbps = first.signed
		if a.unit == unitTenthGTps && first.signed != nil {
			n := *first.signed / 10
			m.XGMISpeedGbps = &n
		}
	case attrReplays:
		m.PCIeReplays = first.unsigned
	case attrXGMIRead:
		m.XGMIReadKB = unsignedOfAll(a.values)
	case attrXGMIWrite:
		m.XGMIWriteKB = unsignedOfAll(a.values)
	case attrXGMIStatus:
		states := make([]*int64, len(a.values))
		for i, v := range a.values {
			states[i] = v.signed
		}
		m.XGMIPorts = portStates(states)
	case attrPartitions:
		m.Partitions = first.signed
	}
}

// scaled multiplies; nil for nil, and for a number that no link has, which could overflow.
func scaled(n *int64, by int64) *int64 {
	if n == nil || *n < 0 || *n > 1<<32 {
		return nil
	}
	product := *n * by
	return &product
}

// unsignedOfAll is nil where a value is not available: a list with a hole would say zero for it.
func unsignedOfAll(values []attributeValue) []uint64 {
	if len(values) == 0 {
		return nil
	}
	list := make([]uint64, len(values))
	for i, v := range values {
		if v.unsigned == nil {
			return nil
		}
		list[i] = *v.unsigned
	}
	return list
}
