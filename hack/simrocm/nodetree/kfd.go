package nodetree

import (
	"strconv"
	"strings"
)

// Link types and weights as KFD writes them (kfd_crat.h, kfd_crat.c).
const (
	linkTypeHyperTransport = 1
	linkTypePCIe           = 2
	linkTypeXGMI           = 11

	weightXGMIHop     = 15
	weightWithinGPU   = 13
	weightAcrossGPUs  = 41 // partition to partition of another GPU: 13 + 15 + 13
	weightPCIe        = 20
	weightCPUs        = 32
	weightFarCPU      = weightPCIe + weightCPUs
	weightSameSocket  = 2 * weightPCIe
	weightOtherSocket = 2*weightPCIe + weightCPUs
	withinGPUMBps     = 819200
	firstRenderMinor  = 128

	defaultGeneration = 2
	topologyDir       = "sys/class/kfd/kfd/topology/"
)

// kfdGPU is one GPU node of KFD: a GPU, or a partition of one.
type kfdGPU struct {
	gpu, partition, node int
}

type kfdLink struct {
	kind             int
	to               int
	weight           int
	minMBps, maxMBps int64
	engines          int
	flags            int
}

// kfdLayout numbers the GPU nodes, which follow those of the CPUs.
func (n *Node) kfdLayout(p *product) []kfdGPU {
	var gpus []kfdGPU
	node := p.sockets
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.Unbound || g.Missing {
			continue
		}
		node += g.NodeGap
		for part := range n.parts(p) - g.MissingPartitions {
			gpus = append(gpus, kfdGPU{gpu: i, partition: part, node: node})
			node++
		}
	}
	return gpus
}

// renderMinor is the DRM minor of a device. GPUs with partitions take as many minors as they could have partitions.
func (p *product) renderMinor(gpu, partition int) int {
	return firstRenderMinor + gpu*p.minors() + partition
}

func (p *product) minors() int {
	if p.partitioned() {
		return maxPartitions
	}
	return 1
}

// maxPartitions is MAX_XCP of amdgpu_xcp.h.
const maxPartitions = 8

func (w *writer) kfd() {
	generation := w.node.Generation
	if generation == 0 {
		generation = defaultGeneration
	}
	w.file(topologyDir+"generation_id", strconv.FormatUint(generation, 10))
	w.file(topologyDir+"system_properties", "platform_oem 35498446626881\nplatform_id 71791775140929\nplatform_rev 2")
	gpus := w.node.kfdLayout(w.product)
	for cpu := range w.product.sockets {
		w.cpuNode(cpu, gpus)
	}
	for _, g := range gpus {
		w.gpuNode(g, gpus)
	}
}

// socketOf is the CPU that a GPU hangs on.
func (n *Node) socketOf(p *product, gpu int) int {
	return max(0, min(n.GPUs[gpu].NUMANode, p.sockets-1))
}

func (w *writer) linkFiles(dir string, from int, links []kfdLink) {
	w.folder(dir) // there without links, too (kfd_topology.c, kfd_build_sysfs_node_entry)
	for i, l := range links {
		w.properties(dir+"/"+itoa(i)+"/properties", []property{
			{"type", num(l.kind)}, {"version_major", 0}, {"version_minor", 0}, {"node_from", num(from)},
			{"node_to", num(l.to)},
			{"weight", num(l.weight)}, {"min_latency", 0}, {"max_latency", 0}, {"min_bandwidth", num(l.minMBps)},
			{"max_bandwidth", num(l.maxMBps)}, {"recommended_transfer_size", 0},
			{"recommended_sdma_engine_id_mask", num(l.engines)}, {"flags", num(l.flags)},
		})
	}
}

// hostLink is the link between a CPU and a GPU of its socket. MI300A has both in one package, MI250X is joined to its
// CPU by xGMI.
func (p *product) hostLink(to, flags int) kfdLink {
	switch p.platform {
	case apu:
		return kfdLink{kind: linkTypeXGMI, to: to, weight: weightWithinGPU, minMBps: withinGPUMBps,
			maxMBps: withinGPUMBps, engines: 3, flags: flags}
	case trento:
		return kfdLink{kind: linkTypeXGMI, to: to, weight: weightXGMIHop, minMBps: 36000, maxMBps: 36000,
			engines: 3, flags: flags}
	}
	return kfdLink{kind: linkTypePCIe, to: to, weight: weightPCIe, minMBps: 312, maxMBps: p.pcieMBps,
		engines: 3, flags: flags}
}

func (w *writer) cpuNode(cpu int, gpus []kfdGPU) {
	dir := topologyDir + "nodes/" + itoa(cpu) + "/"
	var links, indirect []kfdLink
	for other := range w.product.sockets {
		if other != cpu {
			links = append(links, kfdLink{kind: linkTypeHyperTransport, to: other, weight: weightCPUs})
		}
	}
	for _, g := range gpus {
		if w.node.socketOf(w.product, g.gpu) == cpu {
			links = append(links, w.product.hostLink(g.node, 3))
		} else {
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: g.node, weight: weightFarCPU, flags: 3})
		}
	}
	w.linkFiles(dir+"io_links", cpu, links)
	w.linkFiles(dir+"p2p_links", cpu, indirect)
	w.file(dir+"gpu_id", "0")
	w.file(dir+"name", "")
	w.properties(dir+"mem_banks/0/properties", []property{
		{"heap_type", 0}, {"size_in_bytes", socketMemoryBytes}, {"flags", 0}, {"width", 64}, {"mem_clk_max", 4800},
	})
	hive := uint64(0)
	if w.product.platform == apu && len(w.node.GPUs) > 0 {
		hive = w.node.hiveID(w.product, 0)
	}
	w.properties(dir+"properties", []property{
		{"cpu_cores_count", cpusPerSocket}, {"simd_count", 0}, {"mem_banks_count", 1}, {"caches_count", 0},
		{"io_links_count", num(len(links))}, {"p2p_links_count", num(len(indirect))},
		{"cpu_core_id_base", num(cpu * cpusPerSocket)}, {"simd_id_base", 0},
		{"max_waves_per_simd", 0}, {"lds_size_in_kb", 0}, {"gds_size_in_kb", 0}, {"num_gws", 0}, {"wave_front_size", 0},
		{"array_count", 0}, {"simd_arrays_per_engine", 0}, {"cu_per_simd_array", 0}, {"simd_per_cu", 0},
		{"max_slots_scratch_cu", 0}, {"gfx_target_version", 0}, {"vendor_id", 0}, {"device_id", 0}, {"location_id", 0},
		{"domain", 0}, {"drm_render_minor", 0}, {"hive_id", hive}, {"num_sdma_engines", 0},
		{"num_sdma_xgmi_engines", 0},
		{"num_sdma_queues_per_engine", 0}, {"num_cp_queues", 0}, {"max_engine_clk_ccompute", 3800},
	})
}

// engineMasks are the SDMA engines that an 8-GPU gfx942 hive recommends, one a peer, as a fingerprint of the mesh.
var engineMasks = []int{16384, 4096, 4, 16, 256, 1024, 64}

// gpuLinks are what KFD lists of a GPU: the links to its own socket and over xGMI, and the indirect ones.
func (n *Node) gpuLinks(p *product, g kfdGPU, gpus []kfdGPU) (links, indirect []kfdLink) {
	socket := n.socketOf(p, g.gpu)
	links = append(links, p.hostLink(socket, 1))
	for cpu := range p.sockets {
		if cpu != socket {
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: cpu, weight: weightFarCPU, flags: 1})
		}
	}
	partitioned := n.parts(p) > 1
	peer := 0
	for _, o := range gpus {
		if o == g {
			continue
		}
		if o.gpu == g.gpu {
			links = append(links, kfdLink{kind: linkTypeXGMI, to: o.node, weight: weightWithinGPU,
				minMBps: withinGPUMBps, maxMBps: withinGPUMBps, engines: 3, flags: 1})
			continue
		}
		c := n.connectKFD(p, g.gpu, o.gpu)
		engines := 3
		switch {
		case p.platform == card && !p.noXGMI:
			engines = 28
		case !partitioned && len(gpus) == len(engineMasks)+1:
			engines = engineMasks[peer]
		}
		peer++
		switch c.kind {
		case LinkXGMI:
			l := kfdLink{kind: linkTypeXGMI, to: o.node, weight: weightXGMIHop * c.hops, minMBps: c.minMBps,
				maxMBps: c.maxMBps, engines: engines, flags: 1}
			if partitioned {
				l.weight, l.minMBps, l.maxMBps, l.engines = weightAcrossGPUs, 0, 0, 3
			}
			links = append(links, l)
		case LinkPCIe:
			weight := weightOtherSocket
			if n.socketOf(p, o.gpu) == socket {
				weight = weightSameSocket
			}
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: o.node, weight: weight, flags: 3})
		case LinkNone:
		}
	}
	return links, indirect
}

func (w *writer) gpuNode(g kfdGPU, gpus []kfdGPU) {
	p, gpu := w.product, &w.node.GPUs[g.gpu]
	pci, _ := parsePCI(gpu.PCIAddress) // validate has checked it
	dir := topologyDir + "nodes/" + itoa(g.node) + "/"
	links, indirect := w.node.gpuLinks(p, g, gpus)
	w.linkFiles(dir+"io_links", g.node, links)
	w.linkFiles(dir+"p2p_links", g.node, indirect)

	parts := num(w.node.parts(p))
	xgmiEngines := p.sdmaXGMI
	if parts > 1 {
		xgmiEngines = 0
	}
	location := pci.bus<<8 | pci.device<<3 | num(g.partition)
	w.file(dir+"gpu_id", strconv.FormatUint(w.node.number("gpu_id "+gpu.PCIAddress+" "+itoa(g.partition))%65535+1, 10))
	w.file(dir+"name", p.kfdName)
	w.properties(dir+"mem_banks/0/properties", []property{
		{"heap_type", 1}, {"size_in_bytes", num(p.vramBytes) / parts}, {"flags", 0}, {"width", 8192},
		{"mem_clk_max", 1300},
	})
	w.properties(dir+"properties", []property{
		{"cpu_cores_count", 0}, {"simd_count", p.simds / parts}, {"mem_banks_count", 1}, {"caches_count", 626 / parts},
		{"io_links_count", num(len(links))}, {"p2p_links_count", num(len(indirect))}, {"cpu_core_id_base", 0},
		{"simd_id_base", 2147487744 + num(g.node-p.sockets)*64}, {"max_waves_per_simd", 8}, {"lds_size_in_kb", p.ldsKB},
		{"gds_size_in_kb", 0}, {"num_gws", 64}, {"wave_front_size", 64}, {"array_count", p.arrays / parts},
		{"simd_arrays_per_engine", 1}, {"cu_per_simd_array", p.cusPerArray}, {"simd_per_cu", 4},
		{"max_slots_scratch_cu", 32},
		{"gfx_target_version", p.gfxVersion}, {"vendor_id", 4098}, {"device_id", gpu.DeviceID},
		{"location_id", location},
		{"domain", pci.domain}, {"drm_render_minor", num(p.renderMinor(g.gpu, g.partition))},
		{"hive_id", w.node.hiveID(p, g.gpu)}, {"num_sdma_engines", 2}, {"num_sdma_xgmi_engines", xgmiEngines},
		{"num_sdma_queues_per_engine", 8}, {"num_cp_queues", 24}, {"max_engine_clk_fcompute", p.clockMHz},
		{"local_mem_size", 0},
		{"fw_version", gpu.Firmware}, {"capability", 746037888}, {"debug_prop", 1511},
		{"sdma_fw_version", p.sdmaFirmware},
		{"unique_id", gpu.UniqueID}, {"num_xcc", p.xcds / parts}, {"max_engine_clk_ccompute", 3800},
	})
}

type property struct {
	name  string
	value uint64
}

// num is a number that is not negative.
func num[T ~int | ~int64](n T) uint64 { return uint64(n) } //nolint:gosec // callers have only such

func itoa(n int) string { return strconv.Itoa(n) }

// properties writes a KFD file: "name value" lines.
func (w *writer) properties(path string, list []property) {
	var b strings.Builder
	b.Grow(32 * len(list))
	var digits [20]byte
	for _, p := range list {
		b.WriteString(p.name)
		b.WriteByte(' ')
		b.Write(strconv.AppendUint(digits[:0], p.value, 10))
		b.WriteByte('\n')
	}
	w.Set(path, b.String())
}
