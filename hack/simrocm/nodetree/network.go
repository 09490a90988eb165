package nodetree

import (
	"fmt"
	"slices"
	"strings"
)

// nicMake is what a make of NIC shows. Ids are those of the drivers' PCI tables (mlx5_core, bnxt_en, ionic).
type nicMake struct {
	driver, vendor, device, class string
	rdmaName                      string // of the n-th
	linkLayer                     string
}

var nicMakes = map[NICKind]nicMake{
	NICEthernet:   {"mlx5_core", "0x15b3", "0x1021", "0x020000", "mlx5_%d", "Ethernet"},
	NICInfiniBand: {"mlx5_core", "0x15b3", "0x1021", "0x020700", "mlx5_%d", "InfiniBand"},
	NICBroadcom:   {"bnxt_en", "0x14e4", "0x1760", "0x020000", "bnxt_re%d", "Ethernet"},
	NICPensando:   {"ionic", "0x1dd8", "0x1002", "0x020000", "ionic_%d", "Ethernet"},
}

func (p *product) nicCount() int { return len(p.nicSlots()) }

// nicKind is the usual make: Azure's MI300X guests and RCCL's MI250 model have InfiniBand.
func (p *product) nicKind() NICKind {
	if p.platform == guest || p.platform == quad {
		return NICInfiniBand
	}
	return NICEthernet
}

func (w *writer) network() {
	n, p := w.node, w.product
	for i, place := range p.nicSlots()[:n.NICs] {
		kind := nicMakes[n.NICKind]
		rate, speed := "400 Gb/sec (4X NDR)", "400000"
		switch {
		case p.platform == guest && kind.driver == "mlx5_core":
			kind.device = "0x101e" // a virtual function
		case p.platform == quad && n.NICKind == NICInfiniBand:
			kind.device, rate, speed = "0x101b", "200 Gb/sec (4X HDR)", "200000"
		}
		device := place.route
		address := nameOf(device)
		pci, _ := parsePCI(address)
		rdma, net := fmt.Sprintf(kind.rdmaName, i), fmt.Sprintf("enp%ds0np0", pci.bus)
		if pci.domain > 0 {
			net = fmt.Sprintf("enP%dp%ds0np0", pci.domain, pci.bus)
		}
		if n.NICKind == NICInfiniBand {
			net = fmt.Sprintf("ib%d", i)
		}
		state, physical, operation := "4: ACTIVE", "5: LinkUp", "up"
		if slices.Contains(n.DownNICs, i) {
			state, physical, operation, speed = "1: DOWN", "3: Disabled", "down", "-1"
			rate = "40 Gb/sec (4X QDR)"
		}
		numa := itoa(place.gpu * p.sockets / len(p.addresses))
		w.bridges(device)
		w.symlink(busDir+address, device)
		netDir, rdmaDir := device+"/net/"+net, device+"/infiniband/"+rdma
		for _, f := range [][2]string{
			{device + "/vendor", kind.vendor}, {device + "/device", kind.device}, {device + "/class", kind.class}, {device + "/numa_node", numa},
			{device + "/uevent", fmt.Sprintf("DRIVER=%s\nPCI_ID=%s:%s\nPCI_SLOT_NAME=%s", kind.driver,
				upperID(kind.vendor), upperID(kind.device), address)},
			{netDir + "/operstate", operation}, {netDir + "/speed", speed},
			{rdmaDir + "/node_type", "1: CA"},
			{rdmaDir + "/ports/1/state", state}, {rdmaDir + "/ports/1/phys_state", physical},
			{rdmaDir + "/ports/1/rate", rate}, {rdmaDir + "/ports/1/link_layer", kind.linkLayer},
		} {
			w.file(f[0], f[1])
		}
		w.symlink(netDir+"/device", device)
		w.symlink(rdmaDir+"/device", device)
		w.symlink("sys/class/net/"+net, netDir)
		w.symlink("sys/class/infiniband/"+rdma, rdmaDir)
	}
}

func upperID(id string) string { return strings.ToUpper(strings.TrimPrefix(id, "0x")) }
