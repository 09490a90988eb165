package nodetree

import (
	"fmt"
	"strings"
)

const gib = int64(1) << 30

// platform is the kind of server: how its GPUs and NICs lie on the PCI bus.
type platform int

const (
	oam    platform = iota // each GPU with a NIC behind one PCIe switch
	card                   // PCIe cards, each with a NIC on the same host bridge
	quad                   // MI250: two dies and a NIC behind a switch, two switches a root port
	trento                 // MI250X: dies on host bridges of their own, a NIC beside every second
	apu                    // MI300A: CPU and GPU in one package, a PCI domain each
	guest                  // virtual functions: each in a PCI domain of its own, as are the NICs
)

// product is what the kernel shows of a model. Sources: ROCmValidationSuite src/gpu_util.cpp (device ids), public dumps
// of KFD (counts of an MI300X and an MI210 node), RCCL's topology models (addresses), kfd_topology.c, AMD's data
// sheets. Where no dump is public (MI325X, MI350X, MI308X as a whole), counts follow from the number of compute units.
// What the data sheets leave open is assumed: MI350P has half of an MI350X, and MI450X stands for any model newer than
// this code.
type product struct {
	name           string
	deviceID       uint64
	gfxVersion     uint64 // decimal gfx_target_version
	pciClass       string
	kfdName        string
	simds          uint64
	arrays         uint64
	cusPerArray    uint64
	xcds           uint64
	sdmaXGMI       uint64
	ldsKB          uint64
	vramBytes      int64
	clockMHz       uint64
	firmware       uint64 // MEC; below what lifts the need for HSA_NO_SCRATCH_RECLAIM
	sdmaFirmware   uint64
	pcieSpeed      string
	pcieMBps       int64
	kfdLinkMBps    int64 // one xGMI link, as the driver reports it
	usableLinkMBps int64 // one pair, for simrocm.conf; as hack/simrocm/src/config.c
	linksPerPair   int
	hiveSize       int
	noXGMI         bool // by design
	graph          [][]edge
	hops           [][]int
	rocm           string
	driver         string
	sockets        int
	platform       platform
	addresses      []string
	memoryModes    string // available_memory_partition; empty: no partition modes
	vf             bool
	metrics        string // revision of gpu_metrics
	xgmiGbps       int    // one lane of a link, as gpu_metrics states it
	rasBlocks      []string
	deferred       bool // umc counts deferred errors
	productName    string
}

var (
	mi300xAddresses = []string{"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0", "0000:7d:00.0",
		"0000:a5:00.0", "0000:d5:00.0", "0000:e7:00.0"}
	mi350xAddresses = []string{"0000:08:00.0", "0000:18:00.0", "0000:68:00.0", "0000:78:00.0", "0000:88:00.0",
		"0000:98:00.0", "0000:e8:00.0", "0000:f9:00.0"}
	mi355xAddresses = []string{"0000:05:00.0", "0000:15:00.0", "0000:65:00.0", "0000:75:00.0", "0000:85:00.0",
		"0000:95:00.0", "0000:e5:00.0", "0000:f5:00.0"}
	mi250xAddresses = []string{"0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0", "0000:d1:00.0",
		"0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"}
	mi250Addresses = []string{"0000:4e:00.0", "0000:51:00.0", "0000:56:00.0", "0000:59:00.0", "0000:0e:00.0",
		"0000:11:00.0", "0000:16:00.0", "0000:19:00.0", "0000:cf:00.0", "0000:d2:00.0", "0000:d7:00.0", "0000:da:00.0",
		"0000:8f:00.0", "0000:92:00.0", "0000:97:00.0", "0000:9a:00.0"}
	mi300aAddresses = []string{"0000:01:00.0", "0001:01:00.0", "0002:01:00.0", "0003:01:00.0"}
	cardAddresses   = []string{"0000:03:00.0", "0000:26:00.0", "0000:43:00.0", "0000:63:00.0", "0000:83:00.0",
		"0000:a3:00.0", "0000:c3:00.0", "0000:e3:00.0"}
	guestAddresses = []string{"0011:00:00.0", "0021:00:00.0", "0031:00:00.0", "0041:00:00.0", "0051:00:00.0",
		"0061:00:00.0", "0071:00:00.0", "0081:00:00.0"}
)

// The blocks with error counters (amdgpu_ras.c; which of them a chip has is set by its IP blocks' ras_late_init).
var (
	rasMI100 = []string{"gfx", "mmhub", "pcie_bif", "sdma", "umc", "xgmi_wafl"}
	rasMI200 = []string{"gfx", "hdp", "mmhub", "pcie_bif", "sdma", "umc", "xgmi_wafl"}
	rasMI300 = []string{"gfx", "jpeg", "mmhub", "sdma", "umc", "vcn", "xgmi_wafl"}
	rasCard  = []string{"gfx", "jpeg", "mmhub", "sdma", "umc", "vcn"}
)

var products = withFunctions([]product{
	{name: "MI100", deviceID: 0x738c, gfxVersion: 90008, pciClass: "0x038000", kfdName: "arcturus", simds: 480,
		arrays: 8, cusPerArray: 16, xcds: 1, sdmaXGMI: 6, ldsKB: 64, vramBytes: 32 * gib, clockMHz: 1502, firmware: 66,
		sdmaFirmware: 18, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000, kfdLinkMBps: 50000, usableLinkMBps: 33000,
		linksPerPair: 1, hiveSize: 4, rocm: "6.4.1-83", driver: "6.12.12", sockets: 2, platform: card,
		addresses: cardAddresses, metrics: "1.3", rasBlocks: rasMI100, productName: "AMD Instinct MI100"},
	{name: "MI210", deviceID: 0x740f, gfxVersion: 90010, pciClass: "0x038000", kfdName: "ip discovery", simds: 416,
		arrays: 8, cusPerArray: 14, xcds: 1, sdmaXGMI: 3, ldsKB: 64, vramBytes: 64 * gib, clockMHz: 1700, firmware: 92,
		sdmaFirmware: 9, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000, kfdLinkMBps: 50000, usableLinkMBps: 36000,
		linksPerPair: 1, hiveSize: 4, rocm: "6.4.1-83", driver: "6.12.12", sockets: 2, platform: card,
		addresses: cardAddresses, metrics: "1.3", rasBlocks: rasMI200, productName: "AMD Instinct MI210"},
	{name: "MI250", deviceID: 0x740c, gfxVersion: 90010, pciClass: "0x038000", kfdName: "ip discovery", simds: 416,
		arrays: 8, cusPerArray: 14, xcds: 1, sdmaXGMI: 3, ldsKB: 64, vramBytes: 64 * gib, clockMHz: 1700, firmware: 92,
		sdmaFirmware: 9, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000, kfdLinkMBps: 50000, usableLinkMBps: 36000,
		linksPerPair: 1, hiveSize: 16, graph: mi250Graph, hops: mi250Hops, rocm: "6.4.1-83", driver: "6.12.12",
		sockets: 4, platform: quad, addresses: mi250Addresses, metrics: "1.3", rasBlocks: rasMI200,
		productName: "AMD Instinct MI250"},
	{name: "MI250X", deviceID: 0x7408, gfxVersion: 90010, pciClass: "0x038000", kfdName: "ip discovery", simds: 440,
		arrays: 8, cusPerArray: 14, xcds: 1, sdmaXGMI: 3, ldsKB: 64, vramBytes: 64 * gib, clockMHz: 1700, firmware: 92,
		sdmaFirmware: 9, pcieSpeed: "16.0 GT/s PCIe", pcieMBps: 32000, kfdLinkMBps: 50000, usableLinkMBps: 36000,
		linksPerPair: 1, hiveSize: 8, graph: mi250xGraph, hops: mi250xHops, rocm: "6.4.1-83", driver: "6.12.12",
		sockets: 1, platform: trento, addresses: mi250xAddresses, metrics: "1.3", rasBlocks: rasMI200,
		productName: "AMD Instinct MI250X"},
	{name: "MI300A", deviceID: 0x74a0, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery",
		simds: 912, arrays: 24, cusPerArray: 10, xcds: 6, sdmaXGMI: 10, ldsKB: 64, vramBytes: 128 * gib,
		clockMHz: 2100, firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000,
		kfdLinkMBps: 64000, usableLinkMBps: 96000, linksPerPair: 2, hiveSize: 4, rocm: "7.0.2-56", driver: "6.14.14",
		sockets: 4, platform: apu, addresses: mi300aAddresses, memoryModes: "NPS1", metrics: "1.6", xgmiGbps: 32,
		rasBlocks: rasMI300, deferred: true, productName: "AMD Instinct MI300A"},
	{name: "MI300X", deviceID: 0x74a1, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 1216,
		arrays: 32, cusPerArray: 10, xcds: 8, sdmaXGMI: 14, ldsKB: 64, vramBytes: 206141652992, clockMHz: 2100,
		firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, kfdLinkMBps: 64000,
		usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, memoryModes: "NPS1, NPS4", metrics: "1.7", xgmiGbps: 32, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI300X OAM"},
	{name: "MI308X", deviceID: 0x74a2, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 320,
		arrays: 16, cusPerArray: 10, xcds: 4, sdmaXGMI: 14, ldsKB: 64, vramBytes: 206141652992, clockMHz: 1420,
		firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, kfdLinkMBps: 64000,
		usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, memoryModes: "NPS1, NPS4", metrics: "1.5", xgmiGbps: 32, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI308X OAM"},
	{name: "MI325X", deviceID: 0x74a5, gfxVersion: 90402, pciClass: "0x120000", kfdName: "ip discovery", simds: 1216,
		arrays: 32, cusPerArray: 10, xcds: 8, sdmaXGMI: 14, ldsKB: 64, vramBytes: 274861129728, clockMHz: 2100,
		firmware: 166, sdmaFirmware: 22, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, kfdLinkMBps: 64000,
		usableLinkMBps: 48000, linksPerPair: 1, hiveSize: 8, rocm: "7.0.2-56", driver: "6.14.14", sockets: 2,
		addresses: mi300xAddresses, memoryModes: "NPS1, NPS4", metrics: "1.8", xgmiGbps: 32, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI325X OAM"},
	{name: "MI350X", deviceID: 0x75a0, gfxVersion: 90500, pciClass: "0x120000", kfdName: "ip discovery", simds: 1024,
		arrays: 32, cusPerArray: 8, xcds: 8, sdmaXGMI: 14, ldsKB: 160, vramBytes: 309220868096, clockMHz: 2200,
		firmware: 23, sdmaFirmware: 9, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, kfdLinkMBps: 64000,
		usableLinkMBps: 55000, linksPerPair: 1, hiveSize: 8, rocm: "7.1.1-38", driver: "6.16.6", sockets: 2,
		addresses: mi350xAddresses, memoryModes: "NPS1, NPS2", metrics: "1.8", xgmiGbps: 38, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI350X"},
	{name: "MI355X", deviceID: 0x75a3, gfxVersion: 90500, pciClass: "0x120000", kfdName: "ip discovery", simds: 1024,
		arrays: 32, cusPerArray: 8, xcds: 8, sdmaXGMI: 14, ldsKB: 160, vramBytes: 309220868096, clockMHz: 2400,
		firmware: 23, sdmaFirmware: 9, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, kfdLinkMBps: 64000,
		usableLinkMBps: 55000, linksPerPair: 1, hiveSize: 8, rocm: "7.1.1-38", driver: "6.16.6", sockets: 2,
		addresses: mi355xAddresses, memoryModes: "NPS1, NPS2", metrics: "1.9", xgmiGbps: 38, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI355X"},
	{name: "MI350P", deviceID: 0x75a8, gfxVersion: 90500, pciClass: "0x120000", kfdName: "ip discovery", simds: 512,
		arrays: 16, cusPerArray: 8, xcds: 4, ldsKB: 160, vramBytes: 154610434048, clockMHz: 2200, firmware: 23,
		sdmaFirmware: 9, pcieSpeed: "32.0 GT/s PCIe", pcieMBps: 64000, usableLinkMBps: 24000, hiveSize: 1, noXGMI: true,
		rocm: "7.1.1-38", driver: "6.16.6", sockets: 2, platform: card, addresses: cardAddresses, metrics: "1.9",
		rasBlocks: rasCard, deferred: true, productName: "AMD Instinct MI350P"},
	{name: "MI450X", deviceID: 0x75c1, gfxVersion: 120500, pciClass: "0x120000", kfdName: "ip discovery", simds: 1024,
		arrays: 32, cusPerArray: 8, xcds: 8, sdmaXGMI: 14, ldsKB: 320, vramBytes: 432 * gib, clockMHz: 2400,
		firmware: 12, sdmaFirmware: 4, pcieSpeed: "64.0 GT/s PCIe", pcieMBps: 128000, kfdLinkMBps: 64000,
		usableLinkMBps: 55000, linksPerPair: 1, hiveSize: 8, rocm: "7.2.1-81", driver: "6.18.3", sockets: 2,
		addresses: mi355xAddresses, memoryModes: "NPS1", metrics: "1.9", xgmiGbps: 38, rasBlocks: rasMI300,
		deferred: true, productName: "AMD Instinct MI450X"},
})

// withFunctions adds the virtual functions that a hypervisor gives to a guest. The guest sees no RAS files, memory
// partition, unique id or FRU data, and the firmware does not tell it the state of links.
func withFunctions(list []product) []product {
	for _, f := range []struct {
		base     string
		deviceID uint64
	}{{"MI300X", 0x74b5}, {"MI308X", 0x74b6}, {"MI325X", 0x74b9}, {"MI350X", 0x75b0}, {"MI355X", 0x75b3},
		{"MI350P", 0x75b8}} {
		for i := range list {
			if list[i].name == f.base {
				p := list[i]
				p.name, p.deviceID, p.vf, p.platform, p.addresses = f.base+" VF", f.deviceID, true,
					guest, guestAddresses
				p.memoryModes, p.rasBlocks, p.productName = "", nil, ""
				list = append(list, p)
				break
			}
		}
	}
	return list
}

func productOf(model string) (*product, error) {
	for i := range products {
		if products[i].name == model {
			return &products[i], nil
		}
	}
	return nil, fmt.Errorf("model %q is not known; known are %s", model, strings.Join(Models(), ", "))
}

// partitioned says that the driver offers compute partitions.
func (p *product) partitioned() bool { return p.memoryModes != "" || p.vf && !p.noXGMI }

// computeModes are the modes that a number of compute dies can be shared out in (aqua_vanjaram.c).
func (p *product) computeModes() []PartitionMode {
	switch {
	case !p.partitioned():
		return nil
	case p.xcds == 8:
		return []PartitionMode{SPX, DPX, QPX, CPX}
	case p.xcds == 6:
		return []PartitionMode{SPX, TPX, CPX}
	default:
		return []PartitionMode{SPX, DPX, CPX}
	}
}

// Partitions lists the modes of a model as compute/memory, for example CPX/NPS4; none for a model without.
func Partitions(model string) []string {
	p, err := productOf(model)
	if err != nil {
		return nil
	}
	var list []string
	for _, c := range p.computeModes() {
		for _, m := range p.memoryPartitions() {
			if m == "" || p.fits(c, m) {
				list = append(list, strings.TrimSuffix(string(c)+"/"+m, "/"))
			}
		}
	}
	return list
}

func (p *product) memoryPartitions() []string { return strings.Split(p.memoryModes, ", ") }

// fits: memory is split no further than compute (aqua_vanjaram.c, is_valid_mode).
func (p *product) fits(c PartitionMode, memory string) bool {
	var split int
	_, err := fmt.Sscanf(memory, "NPS%d", &split)
	return err == nil && split <= partitionsIn(c, int(p.xcds)) //nolint:gosec // at most 8
}

// partitionsIn is how many partitions a mode makes.
func partitionsIn(c PartitionMode, xcds int) int {
	switch c {
	case DPX:
		return 2
	case TPX:
		return 3
	case QPX:
		return 4
	case CPX:
		return xcds
	}
	return 1
}
