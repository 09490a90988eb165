package reference

import (
	"slices"

	"rcclx.io/commgroup-operator/rcclx"
)

// Kind says what a published mark is good for.
type Kind string

// The kinds of mark.
const (
	// Acceptance: whoever published it takes a machine below it for bad. Only these are enforced.
	Acceptance Kind = "Acceptance"
	// Informative: what a healthy machine showed. It is compared and reported, and fails nothing.
	Informative Kind = "Informative"
	// NotComparable: the source leaves a part of the key open, or means an average. It is listed, and never compared.
	NotComparable Kind = "NotComparable"
)

// Profile is one published mark of Baseline bus bandwidth.
type Profile struct {
	// Name, for example amd-acceptance-mi300x.
	Name string
	Kind Kind
	// Key that the mark is of, and Place that it holds for; any flavor. Of a NotComparable mark parts of both are open.
	Key   Key
	Place Place
	// MarkMBps is the bus bandwidth, in 10^6 bytes per second as rccl-tests counts it; zero where the source has none,
	// which is NotComparable.
	MarkMBps int64
	// Source of the mark, and what it Says.
	Source, Says string
	// Remark of ours: why it is taken so, or cannot be compared.
	Remark string
}

// size8G and size16G are what rccl-tests makes of 8G and 16G: powers of two (src/common.cu parsesize), and its sample
// output has 8589934592 in the size column.
const (
	size8G  = 8 << 30
	size16G = 16 << 30
)

const (
	acceptanceDoc = "ROCm/system-acceptance-docs docs/common/rccl-benchmarking.md"
	networkDoc    = "ROCm/system-acceptance-docs docs/network/validation.md"
	acceptanceSay = "all_reduce_perf -b 8 -e 8G -f 2 -g 8: \"exceed an in-place busbw metric\" of the mark at 8 GB"
	// The command names no datatype, and rccl-tests' default is float; its number is a mean over iterations and ranks.
	acceptanceWhy = "rccl-tests' default datatype is float; its time is the mean over iterations and ranks, " +
		"ours the slowest rank's median, which is the stricter of the two"
)

// asInPlace is of marks whose page names no placement: of a peak the higher of the two columns counts, which is in
// place.
const asInPlace = "; its page names no placement (nor does system-validation.md, which it refers to: " +
	"\"large message, ~8 GB\"), and we take it as in place like MI300X's"

// allReduce8G is the key of AMD's acceptance marks.
var allReduce8G = Key{Variant: rcclx.Baseline, Collective: rcclx.AllReduce, Datatype: rcclx.Float32,
	Placement: rcclx.InPlace, SizeBytes: size8G, Statistic: Median}

func keyAt(sizeBytes int64, p rcclx.Placement) Key {
	k := allReduce8G
	k.SizeBytes, k.Placement = sizeBytes, p
	return k
}

func oneNode(model string, ranks int) Place {
	return Place{Model: model, Partition: "SPX/NPS1", Ranks: ranks, Nodes: 1}
}

func twoNodes(model string) Place {
	return Place{Model: model, Partition: "SPX/NPS1", Ranks: 16, Nodes: 2, Transport: RDMA}
}

const driftRemark = "; the models' own pages, docs/gpus/mi350x.md and mi355x.md, name 304 GB/s for them, a line " +
	"of 2025-09-18 that stands; the 350 are of 2026-01-05, and of that page's sample of a good MI350X, 367.51. " +
	"Between the two AMD's pages disagree: references Report and a threshold of 304000 go by the lower one"

var profiles = []Profile{
	{Name: "amd-acceptance-mi300x", Kind: Acceptance, Key: allReduce8G, Place: oneNode("MI300X", 8), MarkMBps: 304_000,
		Source: acceptanceDoc, Says: acceptanceSay, Remark: acceptanceWhy},
	{Name: "amd-acceptance-mi325x", Kind: Acceptance, Key: allReduce8G, Place: oneNode("MI325X", 8), MarkMBps: 304_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi325x.md",
		Says:   "all_reduce_perf -b 8 -e 8G -f 2 -g 8: pass at 304 GB/s or more", Remark: acceptanceWhy + asInPlace},
	{Name: "amd-acceptance-mi350x", Kind: Acceptance, Key: allReduce8G, Place: oneNode("MI350X", 8), MarkMBps: 350_000,
		Source: acceptanceDoc, Says: acceptanceSay, Remark: acceptanceWhy + driftRemark},
	{Name: "amd-acceptance-mi355x", Kind: Acceptance, Key: allReduce8G, Place: oneNode("MI355X", 8), MarkMBps: 350_000,
		Source: acceptanceDoc, Says: acceptanceSay, Remark: acceptanceWhy + driftRemark},
	{Name: "amd-acceptance-mi300a", Kind: Acceptance, Key: allReduce8G, Place: oneNode("MI300A", 4), MarkMBps: 230_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi300a.md",
		Says:   "all_reduce_perf -b 8 -e 8G -f 2 -g 4: 230 GB/s busbw or more (peak, at 8 GiB)",
		Remark: acceptanceWhy + asInPlace},
	{Name: "amd-acceptance-mi250", Kind: Acceptance, Key: allReduce8G,
		Place: Place{Model: "MI250", Partition: "NotApplicable", Ranks: 8, Nodes: 1}, MarkMBps: 125_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi250.md",
		Says:   "all_reduce_perf -b 8 -e 8G -f 2 -g 8: 125 GB/s busbw or more (peak, at 8 GiB), on 8 dies of 4 modules",
		Remark: acceptanceWhy + asInPlace + "; for 16 dies it only says to scale the number of ranks"},
	{Name: "amd-acceptance-mi250x", Kind: Acceptance, Key: allReduce8G,
		Place: Place{Model: "MI250X", Partition: "NotApplicable", Ranks: 8, Nodes: 1}, MarkMBps: 125_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi250.md",
		Says: "\"also applies to the AMD Instinct MI250X, which shares the same ... " +
			"platform and acceptance criteria\": 125 GB/s busbw or more (peak, at 8 GiB) with -g 8",
		Remark: acceptanceWhy + asInPlace + "; for 16 dies it only says to scale the number of ranks"},
	{Name: "amd-acceptance-mi100", Kind: Acceptance, Key: allReduce8G,
		Place: Place{Model: "MI100", Partition: "NotApplicable", Ranks: 4, Nodes: 1}, MarkMBps: 72_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi100.md",
		Says:   "all_reduce_perf -b 8 -e 8G -f 2 -g 4: 72 GB/s busbw or more (peak, at 8 GiB)",
		Remark: acceptanceWhy + asInPlace},
	{Name: "amd-acceptance-mi300x-2-nodes", Kind: Acceptance, Key: allReduce8G, Place: twoNodes("MI300X"),
		MarkMBps: 304_000, Source: networkDoc, Says: "AllReduce over two nodes: 304 GB/s or more for MI300X",
		Remark: acceptanceWhy + "; size and placement as on the common page, which it refers to; eight 400G NICs a " +
			"node with RDMA are what the page asks for"},
	{Name: "amd-acceptance-mi350x-2-nodes", Kind: Acceptance, Key: allReduce8G, Place: twoNodes("MI350X"),
		MarkMBps: 350_000, Source: networkDoc, Says: "AllReduce over two nodes: 350 GB/s or more for MI350X or MI355X",
		Remark: acceptanceWhy + "; size and placement as on the common page"},
	{Name: "amd-acceptance-mi355x-2-nodes", Kind: Acceptance, Key: allReduce8G, Place: twoNodes("MI355X"),
		MarkMBps: 350_000, Source: networkDoc, Says: "AllReduce over two nodes: 350 GB/s or more for MI350X or MI355X",
		Remark: acceptanceWhy + "; size and placement as on the common page"},

	{Name: "seen-mi300x-256m", Kind: Informative, Key: keyAt(256<<20, rcclx.InPlace), Place: oneNode("MI300X", 8),
		MarkMBps: 315_500, Source: "ROCm/rocm-systems#5297", Says: "315.5 GB/s at 256 MiB once xGMI is found",
		Remark: "one machine's number"},
	{Name: "seen-mi300x-1g", Kind: Informative, Key: keyAt(1<<30, rcclx.InPlace),
		Place: oneNode("MI300X", 8), MarkMBps: 322_400, Source: "ROCm/rocm-systems#5297",
		Says:   "322.4 GB/s at 1 GiB once xGMI is found, about 24 where it is taken for PCIe",
		Remark: "one machine's number"},
	{Name: "seen-mi350x-8g", Kind: Informative, Key: keyAt(size8G, rcclx.InPlace), Place: oneNode("MI350X", 8),
		MarkMBps: 367_510, Source: acceptanceDoc, Says: "sample output: 367.51 GB/s in place at 8589934592 B",
		Remark: "one machine's number"},
	{Name: "seen-mi350x-8g-out-of-place", Kind: Informative, Key: keyAt(size8G, rcclx.OutOfPlace),
		Place: oneNode("MI350X", 8), MarkMBps: 360_970, Source: acceptanceDoc,
		Says: "sample output: 360.97 GB/s out of place at 8589934592 B", Remark: "one machine's number"},

	{Name: "azure-nhc-mi300x", Kind: NotComparable, Key: keyAt(size16G, ""),
		Place: oneNode("MI300X", 8), MarkMBps: 314_000,
		Source: "Azure/azurehpc-health-checks conf/nd96isr_mi300x_v5.conf, customTests/azure_rccl_allreduce.nhc",
		Says:   "check_rccl_allreduce 314 1 16G, against \"Avg bus bandwidth\"", Remark: "that average is of the " +
			"out-of-place and the in-place number at 16 GiB, so it is neither; 314 since 2025-01, without a reason; " +
			"of the 304 before, its author said that about 320 was normal and 5 % were a buffer"},
	{Name: "cvs-2-nodes-8g", Kind: NotComparable, Key: keyAt(size8G, ""), Place: Place{Ranks: 16, Nodes: 2},
		MarkMBps: 330_000, Source: "ROCm/cvs rccl_config.json", Says: "330 GB/s at 8 GB over two nodes",
		Remark: "a default of a file that is meant to be edited: it names no model and no placement"},
	{Name: "cvs-2-nodes-16g", Kind: NotComparable, Key: keyAt(size16G, ""), Place: Place{Ranks: 16, Nodes: 2},
		MarkMBps: 350_000, Source: "ROCm/cvs rccl_config.json", Says: "350 GB/s at 16 GB over two nodes",
		Remark: "a default of a file that is meant to be edited: it names no model and no placement"},
	{Name: "amd-acceptance-mi210-4", Kind: NotComparable, Key: keyAt(0, ""),
		Place: Place{Model: "MI210", Partition: "NotApplicable", Ranks: 4, Nodes: 1}, MarkMBps: 30_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi210.md",
		Says:   "-g 4 in one socket: 30 GB/s or more average bus bandwidth",
		Remark: "an average over all sizes from 8 B to 8 GiB says nothing of one size"},
	{Name: "amd-acceptance-mi210-8", Kind: NotComparable, Key: keyAt(0, ""),
		Place: Place{Model: "MI210", Partition: "NotApplicable", Ranks: 8, Nodes: 1}, MarkMBps: 8_000,
		Source: "ROCm/system-acceptance-docs docs/gpus/mi210.md",
		Says:   "-g 8 over two sockets: 8 GB/s or more average bus bandwidth",
		Remark: "an average over all sizes from 8 B to 8 GiB says nothing of one size"},
	{Name: "cvf-mi300x", Kind: NotComparable, Key: keyAt(0, ""), Place: oneNode("MI300X", 8), MarkMBps: 100_000,
		Source: "ROCm/gpu-operator example/gpu-validation-cluster", Says: "100 GB/s in the " +
			"shipped configuration, 200 in its README, of \"Avg bus bandwidth\" from 1 KiB to 2 GiB",
		Remark: "an average over sizes; a good MI350X has 111.8 in it and 367.5 at 8 GiB"},
	{Name: "cvf-multi-node", Kind: NotComparable, Key: keyAt(0, ""), MarkMBps: 5_000,
		Source: "ROCm/gpu-operator example/gpu-validation-cluster/configs/cluster-validation-config.yaml",
		Says: "phase 5: more than 5 GB/s \"Avg bus bandwidth\" of all_reduce_perf, " +
			"broadcast_perf and reduce_scatter_perf over several nodes",
		Remark: "an average over sizes, for any model, transport and number of nodes"},
	{Name: "oracle-oke-rccl", Kind: NotComparable, Key: keyAt(0, ""),
		Place:  Place{Model: "MI300X", Ranks: 16, Nodes: 2},
		Source: "oracle-quickstart/oci-hpc-oke manifests/active-health-checks",
		Says:   "RCCL test over two nodes of the MI300X shape, 1 to 16 GB: passes where the launcher's pod succeeded",
		Remark: "no mark: the bandwidth is never looked at"},
}

// informativePercent is the share of an Informative mark from which on it counts as met: the author of Azure's mark of
// 304, who saw 320 normally, called so much a buffer.
const informativePercent = 95

// Profiles are all published marks, for pages that list them.
func Profiles() []Profile { return slices.Clone(profiles) }
