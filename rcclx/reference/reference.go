// Package reference says whether a bus bandwidth is normal: it holds measurements against a user's thresholds and
// against published marks. A mark counts only for exactly what it was published for: collective, datatype, size,
// placement, statistic, GPU model, partition mode, ranks, nodes and transport. It takes values and gives values: no
// I/O, no clock.
package reference

import (
	"cmp"
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// Statistic over the repeats of one measurement. Each is a bus bandwidth: Min is from the longest latency, Max from the
// shortest, P5 from the 95th percentile.
type Statistic string

// The statistics; empty means the median.
const (
	Median Statistic = "Median"
	Min    Statistic = "Min"
	Max    Statistic = "Max"
	P5     Statistic = "P5"
)

// The transports between nodes; empty within a node and where it is not known.
const (
	RDMA = "RDMA"
	TCP  = "TCP"
)

// Key names what is measured. An empty variant is Baseline, an empty placement out of place, an empty statistic the
// median.
type Key struct {
	Variant    rcclx.Variant
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
	Placement  rcclx.Placement
	SizeBytes  int64
	Statistic  Statistic
}

func (k Key) normal() Key {
	k.Variant, k.Placement, k.Statistic = cmp.Or(k.Variant, rcclx.Baseline), cmp.Or(k.Placement, rcclx.OutOfPlace),
		cmp.Or(k.Statistic, Median)
	return k
}

// series is the key without size and statistic.
func (k Key) series() Key {
	k = k.normal()
	k.SizeBytes, k.Statistic = 0, ""
	return k
}

// String is the measurement in words: "Baseline AllReduce Float32 8589934592 B in place".
func (k Key) String() string {
	return string(cmp.Or(k.Variant, rcclx.Baseline)) + " " +
		rcclx.MeasurementName(k.Collective, k.Datatype, k.SizeBytes, k.Placement)
}

// statisticWords end a measurement's name.
var statisticWords = map[Statistic]string{Median: "median", Min: "slowest", Max: "fastest", P5: "5th percentile"}

// Place is where something was measured. An empty string and a zero are not known.
type Place struct {
	// Model of the GPUs as discovery names it, for example MI300X or MI300X VF.
	Model string
	// Partition mode, for example SPX/NPS1; NotApplicable for models that have none.
	Partition string
	// Ranks of the communicator and Nodes that it reaches over.
	Ranks, Nodes int
	// Transport between the nodes: RDMA or TCP.
	Transport string
	// Flavor of the library; Imitates is the flavor whose gates the simulator follows.
	Flavor, Imitates rcclx.Flavor
}

// mixed is what discovery, and the transport of several nodes, say where there is no one value.
const mixed = "mixed"

func known(s string) bool { return s != "" && !strings.EqualFold(s, "unknown") }

// Measurement is one bus bandwidth in each of its statistics, in 10^6 bytes per second; zero is not measured.
type Measurement struct {
	// Key without a statistic.
	Key
	MedianMBps, MinMBps, MaxMBps, P5MBps int64
	// RepeatsMBps are the medians of the repeats in fresh processes, in the order of the run; one or none without
	// repeats.
	RepeatsMBps []int64
	// Repeats and RepeatSpreadPercent stand for RepeatsMBps where the figure of each is not known: how many there were,
	// and how far the slowest lies below the fastest; nil where that is not known either.
	Repeats             int
	RepeatSpreadPercent *int64
	// NoisePercent is the largest coefficient of variation of a rank; zero where it was not measured.
	NoisePercent int64
}

// value of one statistic in MB/s; zero where it was not measured.
func (m Measurement) value(s Statistic) int64 {
	switch cmp.Or(s, Median) {
	case Min:
		return m.MinMBps
	case Max:
		return m.MaxMBps
	case P5:
		return m.P5MBps
	}
	return m.MedianMBps
}

// name of the measurement in one statistic, with the spread of the repeats where there are several.
func (m Measurement) name(s Statistic) string {
	text := fmt.Sprintf("%s, %s", m.Key, statisticWords[cmp.Or(s, Median)])
	if n := len(m.RepeatsMBps); n > 1 {
		low, high := m.RepeatsMBps[0], m.RepeatsMBps[0]
		for _, v := range m.RepeatsMBps {
			low, high = min(low, v), max(high, v)
		}
		return text + fmt.Sprintf("; %d repeats of %s to %s GB/s", n, units.GBps(low), units.GBps(high))
	}
	if m.Repeats > 1 {
		text += fmt.Sprintf("; %d repeats", m.Repeats)
		if m.RepeatSpreadPercent != nil {
			text += fmt.Sprintf(", %d %% apart", *m.RepeatSpreadPercent)
		}
	}
	return text
}
