package nodetree

import (
	"encoding/binary"
	"math"
	"slices"
)

// NoMetrics as a revision means that the GPU has no gpu_metrics.
const NoMetrics = "none"

// attributeRevision is a list of attributes instead of a struct.
const attributeRevision = "1.9"

// throttleCauses are the residency accumulators in the order of the struct.
var throttleCauses = []string{"prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm"}

// metricsLayout is where a revision of struct gpu_metrics (kgd_pp_interface.h) has what is written; 0 is not there.
// Every other byte is 0xff, which means not available (smu_cmn.c, smu_cmn_init_soft_gpu_metrics).
type metricsLayout struct {
	content                         byte
	size                            int
	edge, hotspot, memory, power    int
	throttleStatus                  int
	accumulation                    int // accumulation_counter; the five residencies follow it
	pcieWidth, pcieSpeed            int
	xgmiWidth, xgmiSpeed            int
	replays, read, write            int
	linkStatus, partitions, stamped int
}

var metricsLayouts = map[string]*metricsLayout{
	"1.3": {content: 3, size: 120, edge: 4, hotspot: 6, memory: 8, power: 22, throttleStatus: 68, pcieWidth: 74,
		pcieSpeed: 76, stamped: 32},
	"1.4": {content: 4, size: 288, hotspot: 4, memory: 6, power: 10, throttleStatus: 40, pcieWidth: 48, pcieSpeed: 50,
		xgmiWidth: 52, xgmiSpeed: 54, replays: 88, read: 104, write: 168, stamped: 32},
	"1.5": {content: 5, size: 360, hotspot: 4, memory: 6, power: 10, throttleStatus: 104, pcieWidth: 112,
		pcieSpeed: 114, xgmiWidth: 116, xgmiSpeed: 118, replays: 152, read: 176, write: 240, stamped: 96},
	"1.6": {content: 6, size: 1664, hotspot: 4, memory: 6, power: 10, accumulation: 32, pcieWidth: 60, pcieSpeed: 62,
		xgmiWidth: 64, xgmiSpeed: 66, replays: 104, read: 128, write: 192, partitions: 306, stamped: 24},
	"1.7": {content: 7, size: 2208, hotspot: 4, memory: 6, power: 10, accumulation: 40, pcieWidth: 68,
		pcieSpeed: 70, xgmiWidth: 72, xgmiSpeed: 74, replays: 112, read: 136, write: 200, linkStatus: 264,
		partitions: 338, stamped: 32},
	"1.8": {content: 8, size: 3872, hotspot: 4, memory: 6, power: 10, accumulation: 40, pcieWidth: 68,
		pcieSpeed: 70, xgmiWidth: 72, xgmiSpeed: 74, replays: 112, read: 136, write: 200, linkStatus: 264,
		partitions: 338, stamped: 32},
}

// What an idle GPU shows: degrees Celsius and watts.
const (
	idleEdge, idleHotspot, idleMemory, idleWatts = 40, 42, 38, 135
	maxPorts                                     = 8
	accumulatedTicks                             = 1000000
)

// values is what a GPU's gpu_metrics states, whatever the revision.
type values struct {
	pcieSpeed             uint16 // 0.1 GT/s
	xgmiWidth, xgmiSpeed  uint16
	readKB, writeKB       [maxPorts]uint64
	ports                 [maxPorts]uint16
	throttle              uint32
	residency             [5]uint32
	width, partitionCount uint16
}

const notAvailable16 = math.MaxUint16

// value gathers what the GPU's firmware knows. The host keeps the links' state from a guest.
func (n *Node) value(p *product, i int) values {
	g := &n.GPUs[i]
	v := values{pcieSpeed: tenths(g.PCIeSpeed), width: uint16(g.PCIeWidth), xgmiWidth: notAvailable16, xgmiSpeed: notAvailable16, //nolint:gosec // small
		throttle: g.ThrottleStatus, partitionCount: uint16(n.parts(p) - g.MissingPartitions)} //nolint:gosec // at most 8
	links := p.xgmiPorts()
	if p.xgmiGbps > 0 && links > 0 && !p.vf {
		v.xgmiWidth, v.xgmiSpeed = 16, uint16(p.xgmiGbps) //nolint:gosec // small
	}
	for port := range maxPorts {
		v.ports[port] = notAvailable16 // a port without a link is disabled
		if p.vf {
			v.readKB[port], v.writeKB[port] = math.MaxUint64, math.MaxUint64
		}
		if port >= links || p.vf {
			continue
		}
		v.ports[port], v.readKB[port], v.writeKB[port] = 1, num(1000+port), num(2000+port)
		if g.down(port) {
			v.ports[port] = 0
		}
	}
	for cause, ticks := range g.ThrottleResidency {
		v.residency[slices.Index(throttleCauses, cause)] = ticks
	}
	return v
}

// tenths reads "32.0 GT/s PCIe" as 320.
func tenths(speed string) uint16 {
	var n uint16
	for _, c := range speed {
		switch {
		case c >= '0' && c <= '9':
			n = n*10 + uint16(c-'0')
		case c != '.':
			return n
		}
	}
	return n
}

// metrics is the GPU's file gpu_metrics.
func (n *Node) metrics(p *product, i int) []byte {
	v := n.value(p, i)
	if n.MetricsRevision == attributeRevision {
		return v.attributes()
	}
	return v.structure(metricsLayouts[n.MetricsRevision])
}

func (v *values) structure(l *metricsLayout) []byte {
	b := make([]byte, l.size)
	for i := range b {
		b[i] = 0xff
	}
	set16 := func(at int, n uint16) {
		if at > 0 {
			binary.LittleEndian.PutUint16(b[at:], n)
		}
	}
	binary.LittleEndian.PutUint16(b, uint16(l.size)) //nolint:gosec // at most 3872
	b[2], b[3] = 1, l.content
	set16(l.edge, idleEdge)
	set16(l.hotspot, idleHotspot)
	set16(l.memory, idleMemory)
	set16(l.power, idleWatts)
	set16(l.pcieWidth, v.width)
	set16(l.pcieSpeed, v.pcieSpeed)
	set16(l.xgmiWidth, v.xgmiWidth)
	set16(l.xgmiSpeed, v.xgmiSpeed)
	set16(l.partitions, v.partitionCount)
	binary.LittleEndian.PutUint64(b[l.stamped:], 123456789)
	if l.throttleStatus > 0 {
		binary.LittleEndian.PutUint32(b[l.throttleStatus:], v.throttle)
	}
	if l.accumulation > 0 {
		binary.LittleEndian.PutUint32(b[l.accumulation:], accumulatedTicks)
		for i, ticks := range v.residency {
			binary.LittleEndian.PutUint32(b[l.accumulation+4+4*i:], ticks)
		}
	}
	if l.replays > 0 {
		binary.LittleEndian.PutUint64(b[l.replays:], 0)
	}
	for port := range maxPorts {
		if l.read > 0 {
			binary.LittleEndian.PutUint64(b[l.read+8*port:], v.readKB[port])
			binary.LittleEndian.PutUint64(b[l.write+8*port:], v.writeKB[port])
		}
		if l.linkStatus > 0 {
			set16(l.linkStatus+2*port, v.ports[port])
		}
	}
	return b
}
