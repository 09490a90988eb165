package nodetree

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nicMake is what a make of NIC shows. Ids are those of the drivers' PCI tables (mlx5_core, bnxt_en, ionic).
type nicMake struct {
	driver, vendor, device, class string
	rdmaName                      string // of the n-th
	linkLayer, pcieSpeed          string
}

var nicMakes = map[NICKind]nicMake{
	NICEthernet:   {"mlx5_core", "0x15b3", "0x1021", "0x020000", "mlx5_%d", "Ethernet", "32.0 GT/s PCIe"},
	NICInfiniBand: {"mlx5_core", "0x15b3", "0x1021", "0x020700", "mlx5_%d", "InfiniBand", "32.0 GT/s PCIe"},
	NICBroadcom:   {"bnxt_en", "0x14e4", "0x1760", "0x020000", "bnxt_re%d", "Ethernet", "32.0 GT/s PCIe"},
	NICPensando:   {"ionic", "0x1dd8", "0x1002", "0x020000", "ionic_%d", "Ethernet", "32.0 GT/s PCIe"},
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
			kind.device, kind.pcieSpeed, rate, speed = "0x101b", "16.0 GT/s PCIe", "200 Gb/sec (4X HDR)", "200000"
		}
		device := place.route
		address := nameOf(device)
		rdma, net := fmt.Sprintf(kind.rdmaName, i), n.interfaceName(i, device)
		state, physical, operation := "4: ACTIVE", "5: LinkUp", "up"
		if slices.Contains(n.DownNICs, i) {
			state, physical, operation, speed = "1: DOWN", "3: Disabled", "down", "-1"
			rate = "40 Gb/sec (4X QDR)"
		}
		w.function(device, pciFunction{vendor: kind.vendor, device: kind.device,
			subsystemVendor: kind.vendor, subsystemDevice: kind.device, class: kind.class,
			numaNode: place.gpu * p.sockets / len(p.addresses), link: wholeLink(kind.pcieSpeed)})
		netDir, rdmaDir := device+"/net/"+net, device+"/infiniband/"+rdma
		for _, f := range [][2]string{
			{device + "/uevent", fmt.Sprintf("DRIVER=%s\nPCI_ID=%s:%s\nPCI_SLOT_NAME=%s", kind.driver,
				upperID(kind.vendor), upperID(kind.device), address)},
			{netDir + "/operstate", operation}, {netDir + "/speed", speed},
			{rdmaDir + "/node_type", "1: CA"},
			{rdmaDir + "/ports/1/state", state}, {rdmaDir + "/ports/1/phys_state", physical},
			{rdmaDir + "/ports/1/rate", rate}, {rdmaDir + "/ports/1/link_layer", kind.linkLayer},
		} {
			w.file(f[0], f[1])
		}
		w.gids(rdmaDir+"/ports/1/", i, net)
		w.symlink(netDir+"/device", device)
		w.symlink(rdmaDir+"/device", device)
		w.symlink("sys/class/net/"+net, netDir)
		w.symlink("sys/class/infiniband/"+rdma, rdmaDir)
	}
}

// interfaceName is the network interface of the i-th NIC, named after its place as udev does.
func (n *Node) interfaceName(i int, device string) string {
	pci, _ := parsePCI(nameOf(device)) // nicSlots made it
	switch {
	case n.NICKind == NICInfiniBand:
		return fmt.Sprintf("ib%d", i)
	case pci.domain > 0:
		return fmt.Sprintf("enP%dp%ds0np0", pci.domain, pci.bus)
	}
	return fmt.Sprintf("enp%ds0np0", pci.bus)
}

// nicAddress is the IPv4 address of the i-th NIC: rail i is 10.(16+i).0.0/16, and the node's name gives the rest.
func (n *Node) nicAddress(i int) netip.Addr {
	host := n.number("address")
	return netip.AddrFrom4([4]byte{10, byte(16 + i), byte(host >> 8 & 0xff), byte(1 + host%253)})
}

// gids writes the port's table of GIDs as the kernel has it for RoCE (drivers/infiniband/core/roce_gid_mgmt.c):
// link-local and IPv4-mapped, each as RoCE v1 and v2, then unused ones. An InfiniBand port has one.
func (w *writer) gids(port string, i int, net string) {
	local := fmt.Sprintf("fe80:0000:0000:0000:%04x:%04x:feff:%04x", 0x0200, i, w.node.number("guid")&0xffff)
	if w.node.NICKind == NICInfiniBand {
		w.file(port+"gids/0", local)
		w.file(port+"gid_attrs/types/0", "IB/RoCE v1")
		return
	}
	b := w.node.nicAddress(i).As4()
	mapped := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	for index, gid := range []string{local, local, mapped, mapped} {
		w.file(port+"gids/"+itoa(index), gid)
		w.file(port+"gid_attrs/types/"+itoa(index), []string{"IB/RoCE v1", "RoCE v2"}[index%2])
		w.file(port+"gid_attrs/ndevs/"+itoa(index), net)
	}
	for index := 4; index < 8; index++ {
		w.file(port+"gids/"+itoa(index), "0000:0000:0000:0000:0000:0000:0000:0000")
	}
}

func upperID(id string) string { return strings.ToUpper(strings.TrimPrefix(id, "0x")) }
