package discover

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// The states of an xGMI port.
const (
	XGMIPortUp      = "Up"
	XGMIPortDown    = "Down"
	XGMIPortUnknown = "Unknown"
)

// The causes in Metrics.ThrottleAccumulators, by the names of the fields in kgd_pp_interface.h.
const (
	ThrottleProchot   = "prochot"   // prochot_residency_acc: a signal from outside the GPU
	ThrottlePower     = "power"     // ppt_residency_acc: the package power limit
	ThrottleSocketHot = "socket"    // socket_thm_residency_acc
	ThrottleVRHot     = "regulator" // vr_thm_residency_acc
	ThrottleMemoryHot = "memory"    // hbm_thm_residency_acc
)

// throttleCauses in the order of their fields, both in the structs from 1.6 on and in the attribute ids of 1.9.
var throttleCauses = [...]string{ThrottleProchot, ThrottlePower, ThrottleSocketHot, ThrottleVRHot, ThrottleMemoryHot}

// xgmiPorts is NUM_XGMI_LINKS in kgd_pp_interface.h.
const xgmiPorts = 8

// metricsLayout has the offsets of one revision's fields in bytes; 0, where the header lies, is a field that it lacks.
type metricsLayout struct {
	size                    int
	hotspot, memory, power  int // u16: degrees Celsius, watts
	throttle                int // u32
	accumulation            int // u32, followed by one u32 for each of throttleCauses
	pcieWidth, xgmiWidth    int // u16, each followed by its speed: 0.1 GT/s for PCIe, Gb/s for xGMI
	replays                 int // u64
	readKB, writeKB, linkUp int // u64[8], u64[8], u16[8]
	partitions              int // u16
}

// metricsLayouts by content revision of format 1: struct gpu_metrics_v1_3 to gpu_metrics_v1_8 of
// drivers/gpu/drm/amd/include/kgd_pp_interface.h, as a C compiler lays them out on amd64.
var metricsLayouts = map[byte]metricsLayout{
	3: {size: 120, hotspot: 6, memory: 8, power: 22, throttle: 68, pcieWidth: 74},
	4: {size: 288, hotspot: 4, memory: 6, power: 10, throttle: 40, pcieWidth: 48, xgmiWidth: 52, replays: 88,
		readKB: 104, writeKB: 168},
	5: {size: 360, hotspot: 4, memory: 6, power: 10, throttle: 104, pcieWidth: 112, xgmiWidth: 116, replays: 152,
		readKB: 176, writeKB: 240},
	6: {size: 1664, hotspot: 4, memory: 6, power: 10, accumulation: 32, pcieWidth: 60, xgmiWidth: 64, replays: 104,
		readKB: 128, writeKB: 192, partitions: 306},
	7: {size: 2208, hotspot: 4, memory: 6, power: 10, accumulation: 40, pcieWidth: 68, xgmiWidth: 72, replays: 112,
		readKB: 136, writeKB: 200, linkUp: 264, partitions: 338},
	8: {size: 3872, hotspot: 4, memory: 6, power: 10, accumulation: 40, pcieWidth: 68, xgmiWidth: 72, replays: 112,
		readKB: 136, writeKB: 200, linkUp: 264, partitions: 338},
}

const (
	metricsHeaderBytes = 4
	attributesContent  = 9 // 1.9 is a list of attributes
)

// errRevision is a gpu_metrics in a revision that this version does not know; its class is Unsupported.
type errRevision struct{ detail string }

func (e errRevision) Error() string { return "gpu_metrics has revision " + e.detail }

// Is makes Classify take it for Unsupported.
func (e errRevision) Is(target error) bool { return target == syscall.EOPNOTSUPP }

// readMetrics reads a GPU's gpu_metrics; nil where it is missing, or unread and then among unread. dir is the GPU's PCI
// directory with a final slash. Where the revision has no count of PCIe replays, pcie_replay_count gives it.
func readMetrics(r *reader, dir string, unread *[]*ReadError) *Metrics {
	found := field(r, dir+"gpu_metrics", parseMetrics, unread)
	if found == nil {
		return nil
	}
	m := *found
	if m.PCIeReplays == nil {
		m.PCIeReplays = field(r, dir+"pcie_replay_count", parseUintFile, unread)
	}
	return m
}

// parseMetrics reads gpu_metrics: struct metrics_table_header, then what its revision says. An error is Unsupported for
// a revision that is not known exactly, and Malformed for content that does not fit its own header.
func parseMetrics(data []byte) (*Metrics, error) {
	if len(data) == 0 {
		return nil, errEmpty
	}
	if len(data) < metricsHeaderBytes {
		return nil, malformedf("gpu_metrics has %d bytes, fewer than its header of %d", len(data), metricsHeaderBytes)
	}
	size, format, content := int(binary.LittleEndian.Uint16(data)), data[2], data[3]
	revision := fmt.Sprintf("%d.%d", format, content)
	layout, known := metricsLayouts[content]
	attributes := format == 1 && content == attributesContent
	switch {
	case format != 1 || (!known && !attributes):
		return nil, errRevision{revision + ", which this version does not know"}
	case size > len(data):
		return nil, malformedf("gpu_metrics %s states %d bytes and has %d", revision, size, len(data))
	case attributes:
		return parseAttributes(data[:size], revision)
	case size != layout.size:
		// Early drivers had other structs under the same number, for example 1.6 with another beginning.
		return nil,
			errRevision{fmt.Sprintf("%s with %d bytes, where this version knows %d", revision, size, layout.size)}
	}
	b := metricsBytes(data[:size])
	m := &Metrics{Revision: revision, HotspotCelsius: b.u16(layout.hotspot, 1), MemoryCelsius: b.u16(layout.memory, 1),
		SocketPowerWatts: b.u16(layout.power, 1), ThrottleStatus: b.u32(layout.throttle),
		AccumulationCounter: b.u32(layout.accumulation), PCIeWidth: b.u16(layout.pcieWidth, 1),
		PCIeSpeedMTps: b.after16(layout.pcieWidth, 100), PCIeReplays: b.u64(layout.replays),
		XGMIWidth: b.u16(layout.xgmiWidth, 1), XGMISpeedGbps: b.after16(layout.xgmiWidth, 1),
		XGMIReadKB: b.u64s(layout.readKB), XGMIWriteKB: b.u64s(layout.writeKB), Partitions: b.u16(layout.partitions, 1)}
	if layout.accumulation > 0 {
		for i, cause := range throttleCauses {
			m.accumulate(cause, b.u32(layout.accumulation+4*(i+1)))
		}
	}
	if layout.linkUp > 0 {
		states := make([]*int64, xgmiPorts)
		for i := range states {
			states[i] = b.u16(layout.linkUp+2*i, 1)
		}
		m.XGMIPorts = portStates(states)
	}
	return m, nil
}

func (m *Metrics) accumulate(cause string, n *uint64) {
	if n == nil {
		return
	}
	if m.ThrottleAccumulators == nil {
		m.ThrottleAccumulators = make(map[string]uint64, len(throttleCauses))
	}
	m.ThrottleAccumulators[cause] = *n
}

// portStates names the states of the ports: 1 is up, 0 is any other state of the link, and nil a port that is disabled
// (amdgpu_get_xgmi_link_status in amdgpu_xgmi.c). With none up, the file says nothing: guests of several virtual
// functions see all ports down or not available while they work.
func portStates(states []*int64) []string {
	if len(states) == 0 {
		return nil
	}
	ports := make([]string, len(states))
	up := false
	for i, s := range states {
		ports[i] = XGMIPortUnknown
		switch {
		case s == nil:
		case *s == 1:
			ports[i], up = XGMIPortUp, true
		case *s == 0:
			ports[i] = XGMIPortDown
		}
	}
	if !up {
		for i := range ports {
			ports[i] = XGMIPortUnknown
		}
	}
	return ports
}

// metricsBytes are the bytes of a struct; offset 0 gives nil, as do all ones, the mark for "not available".
type metricsBytes []byte

func (b metricsBytes) u16(offset int, scale int64) *int64 {
	if offset == 0 {
		return nil
	}
	n := binary.LittleEndian.Uint16(b[offset:])
	if n == 1<<16-1 {
		return nil
	}
	value := int64(n) * scale
	return &value
}

// after16 is the u16 after the one at the offset.
func (b metricsBytes) after16(offset int, scale int64) *int64 {
	if offset == 0 {
		return nil
	}
	return b.u16(offset+2, scale)
}

func (b metricsBytes) u32(offset int) *uint64 {
	if offset == 0 {
		return nil
	}
	n := uint64(binary.LittleEndian.Uint32(b[offset:]))
	if n == 1<<32-1 {
		return nil
	}
	return &n
}

func (b metricsBytes) u64(offset int) *uint64 {
	if offset == 0 {
		return nil
	}
	n := binary.LittleEndian.Uint64(b[offset:])
	if n == 1<<64-1 {
		return nil
	}
	return &n
}

// u64s are the values of all ports; nil where one is not available, since a list with a hole would say zero for it.
func (b metricsBytes) u64s(offset int) []uint64 {
	if offset == 0 {
		return nil
	}
	values := make([]uint64, xgmiPorts)
	for i := range values {
		n := b.u64(offset + 8*i)
		if n == nil {
			return nil
		}
		values[i] = *n
	}
	return values
}
