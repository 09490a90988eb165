package nodetree

import (
	"fmt"
	"strings"
)

const gib = int64(1) << 30

// product is what the kernel shows of a model. Sources: ROCmValidationSuite src/gpu_util.cpp (device ids), public dumps
// of KFD (counts of an MI300X and an MI210 node), kfd_topology.c, AMD's data sheets. Where no dump is public (MI325X,
// MI350X, MI308X as a whole), counts follow from the number of compute units.
type product struct {
	name            string
	deviceID        uint64
	gfxVersion      uint64 // decimal gfx_target_version
	pciClass        string
	kfdName         string
	simds           uint64
	arrays          uint64
	cusPerArray     uint64
	xcds            uint64 // 1: no partition modes
	sdmaXGMI        uint64
	ldsKB           uint64
	vramBytes       int64
	clockMHz        uint64
	firmware        uint64 // MEC; below what lifts the need for HSA_NO_SCRATCH_RECLAIM
	sdmaFirmware    uint64
	pcieSpeed       string
	pcieMBps        int64
	kfdLinkMBps     int64 // one xGMI link, as the driver reports it
	usableLinkMBps  int64 // one pair, for simrocm.conf; as hack/simrocm/src/config.c
	linksPerPair    int
	hiveSize        int
	rocm            string
	driver          string
	sockets         int
	cpuIsGPU        bool // MI300A: a CPU node beside every GPU node, one package
	addresses       []string
	partitionMemory string // available_memory_partition
}

var (
	mi300xAddresses = []string{"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0", "0000:7d:00.0", "0000:a5:00.0", "0000:d5:00.0", "0000:e7:00.0"}
	mi350xAddresses = []string{"0000:08:00.0", "0000:18:00.0", "0000:68:00.0", "0000:78:00.0", "0000:88:00.0", "0000:98:00.0", "0000:e8:00.0", "0000:f9:00.0"}
	mi355xAddresses = []string{"0000:05:00.0", "0000:15:00.0", "0000:65:00.0", "0000:75:00.0", "0000:85:00.0", "0000:95:00.0", "0000:e5:00.0", "0000:f5:00.0"}
	mi250xAddresses = []string{"0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0", "0000:d1:00.0", "0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"}
	mi300aAddresses = []string{"0000:01:00.0", "0001:01:00.0", "0002:01:00.0", "0003:01:00.0"}
	cardAddresses   = []string{"0000:03:00.0", "0000:26:00.0", "0000:43:00.0", "0000:63:00.0", "0000:83:00.0", "0000:a3:00.0", "0000:c3:00.0", "0000:e3:00.0"}
)

var products = []product{
	{name: "MI100", deviceID: 0x738c, gfxVersion: 90008, pciClass: "0x038000", kfdName: "arcturus", simds: 480, arrays: 8, cusPerArray: 16, xcds: 1,
		sdmaXGMI: 6, ldsKB: 64, vramBytes: 32 * gib, clockMHz: 1502, firmware: 66, sdmaFirmware: 18, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000,
		kfdLinkMBps: 50000, usableLinkMBps: 33000, linksPerPair: 1, hiveSize: 4, rocm: "6.4.1-83", driver: "6.12.12", sockets: 2, addresses: cardAddresses},
	{name: "MI210", deviceID: 0x740f, gfxVersion: 90010, pciClass: "0x038000", kfdName: "ip discovery", simds: 416, arrays: 8, cusPerArray: 14, xcds: 1,
		sdmaXGMI: 3, ldsKB: 64, vramBytes: 64 * gib, clockMHz: 1700, firmware: 92, sdmaFirmware: 9, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000,
		kfdLinkMBps: 50000, usableLinkMBps: 36000, linksPerPair: 1, hiveSize: 4, rocm: "6.4.1-83", driver: "6.12.12", sockets: 2, addresses: cardAddresses},
	{name: "MI250X", deviceID: 0x7408, gfxVersion: 90010, pciClass: "0x038000", kfdName: "ip discovery", simds: 440, arrays: 8, cusPerArray: 14, xcds: 1,
		sdmaXGMI: 3, ldsKB: 64, vramBytes: 64 * gib, clockMHz: 1700, firmware: 92, sdmaFirmware: 9, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000,
		kfdLinkMBps: 50000, usableLinkMBps: 36000, linksPerPair: 1, hiveSize: 8, rocm: "6.4.1-83", driver: "6.12.12", sockets: 1, addresses: mi250xAddresses},
	{name: "MI300A", deviceID: 0x74a0, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 912, arrays: 24, cusPerArray: 10, xcds: 6,
		sdmaXGMI: 10, ldsKB: 64, vramBytes: 128 * gib, clockMHz: 2100, firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 96000, linksPerPair: 2, hiveSize: 4, rocm: "7.0.2-56", driver: "6.14.14", sockets: 4, cpuIsGPU: true,
		addresses: mi300aAddresses, partitionMemory: "NPS1"},
	{name: "MI300X", deviceID: 0x74a1, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 1216, arrays: 32, cusPerArray: 10, xcds: 8,
		sdmaXGMI: 14, ldsKB: 64, vramBytes: 206141652992, clockMHz: 2100, firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, partitionMemory: "NPS1, NPS4"},
	{name: "MI308X", deviceID: 0x74a2, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 320, arrays: 16, cusPerArray: 10, xcds: 4,
		sdmaXGMI: 14, ldsKB: 64, vramBytes: 206141652992, clockMHz: 1420, firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, partitionMemory: "NPS1, NPS4"},
	{name: "MI325X", deviceID: 0x74a5, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 1216, arrays: 32, cusPerArray: 10, xcds: 8,
		sdmaXGMI: 14, ldsKB: 64, vramBytes: 274861129728, clockMHz: 2100, firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, partitionMemory: "NPS1, NPS4"},
	{name: "MI350X", deviceID: 0x75a0, gfxVersion: 90500, pciClass: "0x120000", kfdName: "ip discovery", simds: 1024, arrays: 32, cusPerArray: 8, xcds: 8,
		sdmaXGMI: 14, ldsKB: 160, vramBytes: 309220868096, clockMHz: 2200, firmware: 23, sdmaFirmware: 9, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 55000, linksPerPair: 1, hiveSize: 8, rocm: "7.1.1-38", driver: "6.16.6", sockets: 2,
		addresses: mi350xAddresses, partitionMemory: "NPS1, NPS2"},
	{name: "MI355X", deviceID: 0x75a3, gfxVersion: 90500, pciClass: "0x120000", kfdName: "ip discovery", simds: 1024, arrays: 32, cusPerArray: 8, xcds: 8,
		sdmaXGMI: 14, ldsKB: 160, vramBytes: 309220868096, clockMHz: 2400, firmware: 23, sdmaFirmware: 9, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 55000, linksPerPair: 1, hiveSize: 8, rocm: "7.1.1-38", driver: "6.16.6", sockets: 2,
		addresses: mi355xAddresses, partitionMemory: "NPS1, NPS2"},
}

func productOf(model string) (*product, error) {
	for i := range products {
		if products[i].name == model {
			return &products[i], nil
		}
	}
	return nil, fmt.Errorf("model %q is not known; known are %s", model, strings.Join(Models(), ", "))
}

// mi250xNeighbours are the direct links between the 8 dies of a node of 4 MI250X, from RCCL's topology model
// topo_8p_90a_1.xml. Dies 0-1, 2-3, 4-5 and 6-7 share a package.
var mi250xNeighbours = [8][]int{{1, 2, 6}, {0, 3, 5}, {0, 3, 4}, {1, 2, 7}, {2, 5, 6}, {1, 4, 7}, {0, 4, 7}, {3, 5, 6}}

// link says what a healthy node of the model has between two GPUs.
func (p *product) link(a, b int) (kind LinkKind, hops, links int) {
	if p.name == "MI250X" {
		hops = mi250xHops(a, b)
		if a/2 == b/2 {
			return LinkXGMI, hops, 4
		}
		return LinkXGMI, hops, 1
	}
	if a/p.hiveSize != b/p.hiveSize {
		return LinkPCIe, 0, 0
	}
	return LinkXGMI, 1, p.linksPerPair
}

// mi250xHops is the shortest path, by breadth-first search.
func mi250xHops(a, b int) int {
	hops := map[int]int{a: 0}
	for queue := []int{a}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == b {
			return hops[b]
		}
		for _, next := range mi250xNeighbours[at%8] {
			if _, seen := hops[next]; !seen {
				hops[next] = hops[at] + 1
				queue = append(queue, next)
			}
		}
	}
	return len(mi250xNeighbours)
}

type nic struct {
	address, netName, rdmaName string
}

var nics = []nic{
	{"0000:09:00.0", "enp9s0np0", "mlx5_0"},
	{"0000:23:00.0", "enp35s0np0", "mlx5_1"},
	{"0000:53:00.0", "enp83s0np0", "mlx5_2"},
	{"0000:69:00.0", "enp105s0np0", "mlx5_3"},
	{"0000:8f:00.0", "enp143s0np0", "mlx5_4"},
	{"0000:9c:00.0", "enp156s0np0", "mlx5_5"},
	{"0000:cd:00.0", "enp205s0np0", "mlx5_6"},
	{"0000:f1:00.0", "enp241s0np0", "mlx5_7"},
}
