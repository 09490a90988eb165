package nodetree

import "encoding/binary"

// Types and ids of gpu_metrics 1.9's attributes (enum amdgpu_metrics_attr_type and amdgpu_metrics_attr_id in
// kgd_pp_interface.h). The residencies have the five ids after the accumulation counter's.
const (
	typeU16, typeU32, typeU64 = 2, 4, 6

	attrHotspot, attrMemory, attrPower = 0, 1, 3
	attrAccumulation                   = 9
	attrPCIeWidth, attrPCIeSpeed       = 16, 17
	attrXGMIWidth, attrXGMISpeed       = 18, 19
	attrReplays                        = 25
	attrXGMIRead, attrXGMIWrite        = 29, 30
	attrXGMIStatus                     = 31
	attrPartitions                     = 38
)

// attributes writes revision 1.9: the header, a count, then for each attribute a u64 of type<<20, id<<10 and the number
// of values, and the values. What the firmware does not tell is left out.
func (v *values) attributes() []byte {
	b := make([]byte, 8)
	count := uint32(0)
	head := func(kind, id, instances uint64) {
		b = binary.LittleEndian.AppendUint64(b, kind<<20|id<<10|instances)
		count++
	}
	u16 := func(id uint64, n uint16) {
		if n != notAvailable16 {
			head(typeU16, id, 1)
			b = binary.LittleEndian.AppendUint16(b, n)
		}
	}
	u16(attrHotspot, idleHotspot)
	u16(attrMemory, idleMemory)
	u16(attrPower, idleWatts)
	head(typeU32, attrAccumulation, 1)
	b = binary.LittleEndian.AppendUint32(b, accumulatedTicks)
	for i, ticks := range v.residency {
		head(typeU32, attrAccumulation+1+num(i), 1)
		b = binary.LittleEndian.AppendUint32(b, ticks)
	}
	u16(attrPCIeWidth, v.width)
	u16(attrPCIeSpeed, v.pcieSpeed)
	u16(attrXGMIWidth, v.xgmiWidth)
	u16(attrXGMISpeed, v.xgmiSpeed)
	head(typeU64, attrReplays, 1)
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, list := range []struct {
		id uint64
		kb [maxPorts]uint64
	}{{attrXGMIRead, v.readKB}, {attrXGMIWrite, v.writeKB}} {
		head(typeU64, list.id, maxPorts)
		for _, kb := range list.kb {
			b = binary.LittleEndian.AppendUint64(b, kb)
		}
	}
	head(typeU16, attrXGMIStatus, maxPorts)
	for _, port := range v.ports {
		b = binary.LittleEndian.AppendUint16(b, port)
	}
	u16(attrPartitions, v.partitionCount)
	binary.LittleEndian.PutUint16(b, uint16(len(b))) //nolint:gosec // some 400
	b[2], b[3] = 1, 9
	binary.LittleEndian.PutUint32(b[4:], count)
	return b
}
