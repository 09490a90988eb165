package nodetree

import (
	"fmt"
	"strconv"
	"strings"
)

// Link types and weights as KFD writes them (kfd_crat.h, kfd_crat.c).
const (
	linkTypeHyperTransport = 1
	linkTypePCIe           = 2
	linkTypeXGMI           = 11

	weightXGMIHop      = 15
	weightWithinGPU    = 13
	weightAcrossGPUs   = 41 // partition to partition of another GPU: 13 + 15 + 13
	weightPCIe         = 20
	weightCPUs         = 32
	weightFarCPU       = weightPCIe + weightCPUs
	weightSameSocket   = 2 * weightPCIe
	weightOtherSocket  = 2*weightPCIe + weightCPUs
	withinGPUMBps      = 819200
	firstRenderMinor   = 128
	minorsPerGPU       = 8
	topologyGeneration = 2
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

// kfdLayout numbers the nodes: CPUs first, then GPUs in order.
func (n *Node) kfdLayout(p *product) (cpus int, gpus []kfdGPU) {
	cpus = p.sockets
	parts := 1
	if n.Partition == CPX {
		parts = int(p.xcds) //nolint:gosec // at most 8
	}
	node := cpus
	for i := range n.GPUs {
		if n.GPUs[i].Unbound || n.GPUs[i].Missing {
			continue
		}
		for part := range parts {
			gpus = append(gpus, kfdGPU{gpu: i, partition: part, node: node})
			node++
		}
	}
	return cpus, gpus
}

func (t *tree) kfd() {
	const root = "sys/class/kfd/kfd/topology/"
	t.file(root+"generation_id", strconv.Itoa(topologyGeneration))
	t.file(root+"system_properties", "platform_oem 35498446626881\nplatform_id 71791775140929\nplatform_rev 2")
	cpus, gpus := t.node.kfdLayout(t.product)
	for cpu := range cpus {
		t.cpuNode(root, cpu, cpus, gpus)
	}
	for _, g := range gpus {
		t.gpuNode(root, g, cpus, gpus)
	}
}

func (t *tree) socketOf(gpu int) int {
	return max(0, min(t.node.GPUs[gpu].NUMANode, t.product.sockets-1))
}

func (t *tree) links(dir string, from int, links []kfdLink) {
	for i, l := range links {
		t.properties(fmt.Sprintf("%s/%d/properties", dir, i), []property{
			{"type", l.kind}, {"version_major", 0}, {"version_minor", 0}, {"node_from", from}, {"node_to", l.to},
			{"weight", l.weight}, {"min_latency", 0}, {"max_latency", 0}, {"min_bandwidth", l.minMBps},
			{"max_bandwidth", l.maxMBps}, {"recommended_transfer_size", 0},
			{"recommended_sdma_engine_id_mask", l.engines}, {"flags", l.flags},
		})
	}
}

// hostLink is the link between a CPU and a GPU of its socket. MI300A has both in one package, MI250X is joined to its
// CPU by xGMI.
func (t *tree) hostLink(to, flags int) kfdLink {
	if t.product.cpuIsGPU {
		return kfdLink{kind: linkTypeXGMI, to: to, weight: weightWithinGPU, minMBps: withinGPUMBps, maxMBps: withinGPUMBps, engines: 3, flags: flags}
	}
	if t.product.name == "MI250X" {
		return kfdLink{kind: linkTypeXGMI, to: to, weight: weightXGMIHop, minMBps: 36000, maxMBps: 36000, engines: 3, flags: flags}
	}
	return kfdLink{kind: linkTypePCIe, to: to, weight: weightPCIe, minMBps: 312, maxMBps: t.product.pcieMBps, engines: 3, flags: flags}
}

func (t *tree) cpuNode(root string, cpu, cpus int, gpus []kfdGPU) {
	dir := fmt.Sprintf("%snodes/%d/", root, cpu)
	var links, indirect []kfdLink
	for other := range cpus {
		if other != cpu {
			links = append(links, kfdLink{kind: linkTypeHyperTransport, to: other, weight: weightCPUs})
		}
	}
	for _, g := range gpus {
		if t.socketOf(g.gpu) == cpu {
			links = append(links, t.hostLink(g.node, 3))
		} else {
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: g.node, weight: weightFarCPU, flags: 3})
		}
	}
	t.links(dir+"io_links", cpu, links)
	t.links(dir+"p2p_links", cpu, indirect)
	t.file(dir+"gpu_id", "0")
	t.file(dir+"name", "")
	t.properties(dir+"mem_banks/0/properties", []property{
		{"heap_type", 0}, {"size_in_bytes", int64(1081914286080)}, {"flags", 0}, {"width", 64}, {"mem_clk_max", 4800},
	})
	hive := uint64(0)
	if t.product.cpuIsGPU {
		hive = t.hive(0)
	}
	t.properties(dir+"properties", []property{
		{"cpu_cores_count", 96}, {"simd_count", 0}, {"mem_banks_count", 1}, {"caches_count", 0},
		{"io_links_count", len(links)}, {"p2p_links_count", len(indirect)}, {"cpu_core_id_base", cpu * 96}, {"simd_id_base", 0},
		{"max_waves_per_simd", 0}, {"lds_size_in_kb", 0}, {"gds_size_in_kb", 0}, {"num_gws", 0}, {"wave_front_size", 0},
		{"array_count", 0}, {"simd_arrays_per_engine", 0}, {"cu_per_simd_array", 0}, {"simd_per_cu", 0},
		{"max_slots_scratch_cu", 0}, {"gfx_target_version", 0}, {"vendor_id", 0}, {"device_id", 0}, {"location_id", 0},
		{"domain", 0}, {"drm_render_minor", 0}, {"hive_id", hive}, {"num_sdma_engines", 0}, {"num_sdma_xgmi_engines", 0},
		{"num_sdma_queues_per_engine", 0}, {"num_cp_queues", 0}, {"max_engine_clk_ccompute", 3800},
	})
}

// engineMasks are the SDMA engines that an 8-GPU gfx942 hive recommends, one a peer, as a fingerprint of the mesh.
var engineMasks = []int{16384, 4096, 4, 16, 256, 1024, 64}

func (t *tree) gpuLinks(g kfdGPU, cpus int, gpus []kfdGPU) (links, indirect []kfdLink) {
	socket := t.socketOf(g.gpu)
	links = append(links, t.hostLink(socket, 1))
	for cpu := range cpus {
		if cpu != socket {
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: cpu, weight: weightFarCPU, flags: 1})
		}
	}
	peer := 0
	for _, o := range gpus {
		if o == g {
			continue
		}
		if o.gpu == g.gpu {
			links = append(links, kfdLink{kind: linkTypeXGMI, to: o.node, weight: weightWithinGPU, minMBps: withinGPUMBps, maxMBps: withinGPUMBps, engines: 3, flags: 1})
			continue
		}
		kind, hops, minMBps, maxMBps := t.node.link(t.product, g.gpu, o.gpu)
		engines := 3
		switch {
		case t.product.hiveSize == 4 && !t.product.cpuIsGPU:
			engines = 28
		case t.node.Partition == SPX && len(gpus) == len(engineMasks)+1:
			engines = engineMasks[peer]
		}
		peer++
		switch kind {
		case LinkXGMI:
			l := kfdLink{kind: linkTypeXGMI, to: o.node, weight: weightXGMIHop * hops, minMBps: minMBps, maxMBps: maxMBps, engines: engines, flags: 1}
			if t.node.Partition != SPX {
				l.weight, l.minMBps, l.maxMBps, l.engines = weightAcrossGPUs, 0, 0, 3
			}
			links = append(links, l)
		case LinkPCIe:
			weight := weightOtherSocket
			if t.socketOf(o.gpu) == socket {
				weight = weightSameSocket
			}
			indirect = append(indirect, kfdLink{kind: linkTypePCIe, to: o.node, weight: weight, flags: 3})
		case LinkNone:
		}
	}
	return links, indirect
}

func (t *tree) gpuNode(root string, g kfdGPU, cpus int, gpus []kfdGPU) {
	p, gpu := t.product, t.node.GPUs[g.gpu]
	pci, _ := parsePCI(gpu.PCIAddress) // validate has checked it
	dir := fmt.Sprintf("%snodes/%d/", root, g.node)
	links, indirect := t.gpuLinks(g, cpus, gpus)
	t.links(dir+"io_links", g.node, links)
	t.links(dir+"p2p_links", g.node, indirect)

	parts := uint64(1)
	if t.node.Partition == CPX {
		parts = p.xcds
	}
	xgmiEngines := p.sdmaXGMI
	if parts > 1 {
		xgmiEngines = 0
	}
	location := pci.bus<<8 | pci.device<<3 | uint64(g.partition) //nolint:gosec // 0 to 7
	t.file(dir+"gpu_id", strconv.FormatUint(t.node.number(fmt.Sprintf("gpu_id %s %d", gpu.PCIAddress, g.partition))%65535+1, 10))
	t.file(dir+"name", p.kfdName)
	t.properties(dir+"mem_banks/0/properties", []property{
		{"heap_type", 1}, {"size_in_bytes", p.vramBytes / int64(parts)}, {"flags", 0}, {"width", 8192}, {"mem_clk_max", 1300}, //nolint:gosec // at most 8
	})
	t.properties(dir+"properties", []property{
		{"cpu_cores_count", 0}, {"simd_count", p.simds / parts}, {"mem_banks_count", 1}, {"caches_count", 626 / parts},
		{"io_links_count", len(links)}, {"p2p_links_count", len(indirect)}, {"cpu_core_id_base", 0},
		{"simd_id_base", uint64(2147487744) + uint64(g.node-cpus)*64}, {"max_waves_per_simd", 8}, {"lds_size_in_kb", p.ldsKB}, //nolint:gosec // small
		{"gds_size_in_kb", 0}, {"num_gws", 64}, {"wave_front_size", 64}, {"array_count", p.arrays / parts},
		{"simd_arrays_per_engine", 1}, {"cu_per_simd_array", p.cusPerArray}, {"simd_per_cu", 4}, {"max_slots_scratch_cu", 32},
		{"gfx_target_version", p.gfxVersion}, {"vendor_id", 4098}, {"device_id", p.deviceID}, {"location_id", location},
		{"domain", pci.domain}, {"drm_render_minor", firstRenderMinor + g.gpu*minorsPerGPU + g.partition},
		{"hive_id", t.hive(g.gpu)}, {"num_sdma_engines", 2}, {"num_sdma_xgmi_engines", xgmiEngines},
		{"num_sdma_queues_per_engine", 8}, {"num_cp_queues", 24}, {"max_engine_clk_fcompute", p.clockMHz}, {"local_mem_size", 0},
		{"fw_version", p.firmware}, {"capability", 746037888}, {"debug_prop", 1511}, {"sdma_fw_version", p.sdmaFirmware},
		{"unique_id", gpu.UniqueID}, {"num_xcc", p.xcds / parts}, {"max_engine_clk_ccompute", 3800},
	})
}

// hive is the xGMI hive of a GPU.
func (t *tree) hive(gpu int) uint64 {
	return t.node.number(fmt.Sprintf("hive %d", gpu/t.product.hiveSize))
}

type property struct {
	name  string
	value any
}

// properties writes a KFD file: "name value" lines.
func (t *tree) properties(path string, list []property) {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s %v\n", p.name, p.value)
	}
	t.file(path, strings.TrimSuffix(b.String(), "\n"))
}
