package reference

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// maxCauses and maxCauseBytes are what a check of the API takes.
	maxCauses     = 4
	maxCauseBytes = 200
)

// Shape says at which sizes a series is slow.
type Shape string

// The shapes; empty is not known.
const (
	// AllSizes: smaller sizes miss their own marks as well.
	AllSizes Shape = "AllSizes"
	// LargeOnly: a smaller size is faster, or meets its own mark.
	LargeOnly Shape = "LargeOnly"
	// Flat: the bandwidth is at its end long before the size that was judged: something has a fixed limit.
	Flat Shape = "Flat"
)

// Warning is something about the node that was not as it should be, by the name of its precondition.
type Warning struct{ Name, Message string }

// Symptom is all that is known of a slow measurement. What is empty or zero is not known.
type Symptom struct {
	Place Place
	// Measurement and Percent of what was expected; zero percent where nothing was measured.
	Key     Key
	Percent int64
	Shape   Shape
	// SpreadPercent is how far the slowest repeat lies below the fastest one.
	SpreadPercent int64
	// NoisePercent is the largest coefficient of variation within one measurement.
	NoisePercent int64
	// SlowLink tells of a pair of GPUs that was measured to be slow; empty where none was, or none was measured.
	SlowLink string
	// Mesh of the node's xGMI as discovery has it: Full, Incomplete, NotApplicable, Unknown.
	Mesh string
	// GPUs of the node that could be used, physical ones or partitions.
	GPUs int
	// Warnings of the node's preconditions, the worst first.
	Warnings []Warning
	// Throttled tells which GPUs were throttled and for what; empty where none was or it is not known.
	Throttled string
	// Env are names of a user's own variables in the ranks.
	Env []string
	// VersionCode of the library, as rcclx.LibraryInfo has it.
	VersionCode int
	// NotInEffect says why the variant's setting is not in effect at this size; empty where it is. Off gives it for a
	// key, where the caller can tell; nil where it cannot.
	NotInEffect string
	Off         func(Key) string
	// Audience that the causes advise.
	Audience audience.Audience
}

// limiting are variables that can take bandwidth away: those of the library are its NCCL_PARAMs and those that
// src/graph/paths.cc and src/graph/tuning.cc read, HSA_ ones are read by ROCm's runtime.
var limiting = []string{
	"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS",
	"NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_BUFFSIZE",
	"NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "RCCL_MSCCL_ENABLE",
	"HSA_ENABLE_SDMA", "HSA_DISABLE_CACHE",
}

// rule names one likely cause, or "" where it does not apply.
type rule struct {
	name string
	says func(s Symptom) string
}

// ownRule are the preconditions that have a rule of their own.
var ownRule = []string{"NUMABalancing", "IOMMU", "GPUBusy", "LockedMemory"}

// rules in the order of how likely they are where they apply: what was seen on this node before what is only usual.
var rules = []rule{
	{"slow link", func(s Symptom) string {
		if s.SlowLink == "" {
			return ""
		}
		return "the link " + s.SlowLink +
			": a ring is as fast as its slowest link; check the xGMI error counters of both GPUs"
	}},
	{"setting not in effect", func(s Symptom) string {
		if s.NotInEffect == "" {
			return ""
		}
		return fmt.Sprintf("%s is not in effect at this size, so this is Baseline: %s", s.Key.Variant, s.NotInEffect)
	}},
	{"TCP", func(s Symptom) string {
		if s.Place.Nodes > 1 && s.Place.Transport == TCP {
			return "the data between nodes went over TCP, not RDMA: check network.rdmaResources, network.hcas and " +
				"the limit on locked memory; network.requireTransport RDMA makes it an error"
		}
		return ""
	}},
	{"xGMI not used", func(s Symptom) string {
		if s.Place.Nodes == 1 && s.Percent > 0 && s.Percent < 20 && s.Mesh != "NotApplicable" {
			return "this is about what PCIe gives: the library may not use xGMI (ROCm/rocm-systems#5297); " +
				"look for \"via P2P\" in the log of NCCL_DEBUG=INFO, and at the mesh by agent discover -o table"
		}
		return ""
	}},
	{"mesh incomplete", func(s Symptom) string {
		if s.Mesh == "Incomplete" {
			return "the xGMI mesh of the node is incomplete: agent discover -o table shows which link is missing"
		}
		return ""
	}},
	{"NUMABalancing", precondition("NUMABalancing", audience.Same("kernel.numa_balancing is on, which takes up to "+
		"half of the bandwidth (ROCm/rccl#1562): set it to 0"))},
	{"IOMMU", precondition("IOMMU", audience.Same("the IOMMU is not in passthrough mode, which makes peer access "+
		"slow (ROCm/rccl#1129): add iommu=pt to the kernel's command line"))},
	{"GPUBusy",
		precondition("GPUBusy", audience.Same("another process holds a GPU of this node: end it and measure again"))},
	{"LockedMemory", precondition("LockedMemory", audience.Advice{
		Pod: "the limit on locked memory is low, so that RDMA falls back to TCP: raise memlock in the " +
			"container runtime",
		Shell: "the limit on locked memory is low, so that RDMA falls back to TCP: raise it with ulimit -l",
	})},
	{"throttled", func(s Symptom) string {
		if s.Throttled == "" {
			return ""
		}
		return "throttled: " + s.Throttled + "; check power cap, inlet temperature and fans"
	}},
	{"own variables", func(s Symptom) string {
		var own []string
		for _, name := range s.Env {
			if slices.Contains(limiting, name) {
				own = append(own, name)
			}
		}
		if len(own) == 0 {
			return ""
		}
		where := audience.Advice{Pod: "spec.runtime.env", Shell: "the environment or --env"}
		return where.For(s.Audience) + " limits the library itself: measure once without " + strings.Join(own, ", ")
	}},
	{"library version", func(s Symptom) string {
		amd := s.Place.Flavor == rcclx.FlavorRCCL || s.Place.Flavor == rcclx.FlavorRCCLDDA
		if amd && s.VersionCode == 23004 && (s.Place.Model == "MI250" || s.Place.Model == "MI250X") {
			return "RCCL 2.30.4 loses 50 to 70 % on MI250 and MI250X (ROCm/rocm-systems#7792): " +
				"use an older or a newer one"
		}
		return ""
	}},
	{"fewer ranks", func(s Symptom) string {
		if s.Place.Nodes == 1 && s.GPUs > 0 && s.Place.Ranks < s.GPUs {
			return fmt.Sprintf("%d of %d GPUs take part: with a full mesh each pair has "+
				"links of its own, so fewer GPUs have a fraction of the bandwidth (ROCm/rccl#1270)",
				s.Place.Ranks, s.GPUs)
		}
		return ""
	}},
	{"partition", func(s Symptom) string {
		mode, _, _ := strings.Cut(s.Place.Partition, "/")
		if slices.Contains([]string{"DPX", "TPX", "QPX", "CPX"}, mode) {
			return fmt.Sprintf("the GPUs are partitioned (%s): partitions of one GPU share its links, so a mark for "+
				"SPX does not hold", s.Place.Partition)
		}
		return ""
	}},
	{"virtual function", func(s Symptom) string {
		if strings.HasSuffix(s.Place.Model, " VF") {
			return "virtual functions: where the guest's topology matches no model of the library, it drops to about " +
				"50 GB/s (ROCm/rccl#1204); NCCL_TOPO_FILE of the provider helps"
		}
		return ""
	}},
	{"FP8", func(s Symptom) string {
		if s.Key.Variant == rcclx.LowPrecision && s.NotInEffect == "" {
			return "FP8 casts before and after each transfer: below some tens of MiB, and with links that are not " +
				"the limit, that costs more than it saves; see status.advice"
		}
		return ""
	}},
	{"unsteady", func(s Symptom) string {
		switch {
		case s.SpreadPercent >= 10:
			return fmt.Sprintf("the repeats are %d %% apart: something else uses the node's GPUs, links or "+
				"CPUs at times", s.SpreadPercent)
		case s.NoisePercent >= 10:
			return fmt.Sprintf("the iterations vary by %d %%: something else uses the node's GPUs, links or "+
				"CPUs at times", s.NoisePercent)
		}
		return ""
	}},
	{"large only", func(s Symptom) string {
		if s.Shape == LargeOnly {
			return "smaller messages are faster: large ones suffer from power or heat limits, memory errors or an " +
				"IOMMU that translates; watch clocks and power during the run"
		}
		return ""
	}},
	{"flat", func(s Symptom) string {
		if s.Shape == Flat && s.Place.Nodes > 1 {
			return "the bandwidth is at its end long before this size: a fixed limit, such as fewer or slower NICs " +
				"than expected, or GPUs without GPUDirect RDMA"
		}
		if s.Shape == Flat {
			return "the bandwidth is at its end long before this size: a fixed limit, such as missing links, " +
				"PCIe instead of xGMI, or too few channels"
		}
		return ""
	}},
	{"all sizes", func(s Symptom) string {
		if s.Shape == AllSizes {
			return "smaller messages are slow as well: clocks, power cap, the CPU's power saving or the library's " +
				"build, rather than one link"
		}
		return ""
	}},
	{"network", func(s Symptom) string {
		if s.Place.Nodes > 1 && s.Place.Transport != TCP {
			return "compare NIC speed, link state, GID index, PFC and ACS of the nodes; localization names the node " +
				"or pair where one is slower than the rest"
		}
		return ""
	}},
	{"other warnings", func(s Symptom) string {
		var names []string
		for _, w := range s.Warnings {
			if !slices.Contains(ownRule, w.Name) && !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return "preconditions that are not met: " + strings.Join(names, ", ")
	}},
	{"usual", func(Symptom) string {
		return "compare clocks, power cap, ROCm and driver with those of a node that reaches it: " +
			"agent bench measures one node by itself"
	}},
}

func precondition(name string, says audience.Advice) func(s Symptom) string {
	return func(s Symptom) string {
		if slices.ContainsFunc(s.Warnings, func(w Warning) bool { return w.Name == name }) {
			return says.For(s.Audience)
		}
		return ""
	}
}

// Causes are things to look at for a slow measurement, the likeliest first, at most four of at most 200 bytes.
func Causes(s Symptom) []string {
	var out []string
	for _, r := range rules {
		if text := r.says(s); text != "" {
			out = append(out, limited(text))
		}
		if len(out) == maxCauses {
			break
		}
	}
	return out
}

// symptom fills in what concerns one measurement; percent is of what would have passed.
func (in Input) symptom(m Measurement, percent int64) Symptom {
	s := in.Symptom
	s.Place, s.Key, s.Percent, s.NoisePercent = in.Place, m.Key, percent, m.NoisePercent
	if s.NotInEffect == "" && s.Off != nil {
		s.NotInEffect = s.Off(m.Key)
	}
	if m.RepeatSpreadPercent != nil {
		s.SpreadPercent = *m.RepeatSpreadPercent
	}
	if n := len(m.RepeatsMBps); n > 1 {
		if fastest := slices.Max(m.RepeatsMBps); fastest > 0 {
			s.SpreadPercent = (fastest - slices.Min(m.RepeatsMBps)) * 100 / fastest
		}
	}
	s.Shape = in.shape(m)
	return s
}

// shape looks at the smaller sizes of the series: at their own thresholds where they have some, else at the curve.
func (in Input) shape(m Measurement) Shape {
	good, bad := 0, 0
	for _, t := range in.Thresholds {
		other, ok := in.find(t.Key)
		if !ok || t.MinMBps <= 0 || t.Key.series() != m.series() || t.Key.SizeBytes >= m.SizeBytes ||
			other.value(t.Key.Statistic) <= 0 {
			continue
		}
		if differs, unknown := t.Place.excludes(in.Place, in.Part); len(differs)+len(unknown) > 0 {
			continue
		}
		if other.value(t.Key.Statistic) >= t.MinMBps {
			good++
		} else {
			bad++
		}
	}
	switch {
	case bad > 0 && good == 0:
		return AllSizes
	case good > 0:
		return LargeOnly
	}
	flat := false
	for _, other := range in.Measurements {
		if other.series() != m.series() || other.SizeBytes >= m.SizeBytes || other.MedianMBps <= 0 ||
			m.MedianMBps <= 0 {
			continue
		}
		if other.MedianMBps*10 > m.MedianMBps*11 {
			return LargeOnly // more than a tenth faster
		}
		// At a sixteenth of the size a healthy curve still rises (the latency of a call is a share of the time).
		flat = flat || other.SizeBytes*16 <= m.SizeBytes && other.MedianMBps*100 >= m.MedianMBps*95
	}
	if flat {
		return Flat
	}
	return ""
}
