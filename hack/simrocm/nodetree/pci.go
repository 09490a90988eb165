package nodetree

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	busDir     = "sys/bus/pci/devices/"
	devicesDir = "sys/devices/"
)

// route gives the directory of a PCI device below sys/devices: its host bridge, the bridges on the way, and itself, all
// as bus:device.function in one domain.
func route(domain uint64, rootBus int, hops ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%spci%04x:%02x", devicesDir, domain, rootBus)
	for _, hop := range hops {
		fmt.Fprintf(&b, "/%04x:%s", domain, hop)
	}
	return b.String()
}

func slot(bus int, deviceAndFunction string) string {
	return fmt.Sprintf("%02x:%s", bus, deviceAndFunction)
}

// quadOffsets are where the four dies of an MI250 root port lie on its buses (RCCL's topo_16p1h.xml), with the buses of
// the bridges above each and of the switch that the pair shares.
var quadOffsets = [4]struct{ gpu, upper, lower, shared, port int }{
	{0x0d, 0x0b, 0x0c, 0x08, 1}, {0x10, 0x0e, 0x0f, 0x08, 2}, {0x15, 0x13, 0x14, 0x11, 1}, {0x18, 0x16, 0x17, 0x11, 2},
}

// gpuRoute is where the i-th GPU lies below sys/devices. A GPU at an address that the platform does not have lies
// directly below a root port.
func (p *product) gpuRoute(i int, address string) string {
	a, _ := parsePCI(address) // validate has checked it
	bus := int(a.bus)         //nolint:gosec // at most 255
	self := strings.TrimPrefix(address, fmt.Sprintf("%04x:", a.domain))
	switch {
	case p.platform == guest:
		return route(a.domain, 0, self)
	case p.platform == oam && bus >= 5:
		return route(a.domain, bus-5, slot(bus-5, "01.1"), slot(bus-4, "00.0"), slot(bus-3, "00.0"), slot(bus-2, "00.0"), slot(bus-1, "00.0"), self)
	case p.platform == card && bus >= 3:
		root := bus & 0xe0
		return route(a.domain, root, slot(root, "01.1"), slot(bus-2, "00.0"), slot(bus-1, "00.0"), self)
	case p.platform == quad && bus > quadOffsets[i%4].gpu:
		o := quadOffsets[i%4]
		base := bus - o.gpu
		return route(a.domain, base-1, slot(base-1, "01.1"), slot(base, "00.0"), slot(base+1, fmt.Sprintf("%02x.0", i%4/2)), slot(base+o.shared, "00.0"),
			slot(base+o.shared+1, fmt.Sprintf("%02x.0", o.port)), slot(base+o.upper, "00.0"), slot(base+o.lower, "00.0"), self)
	case p.platform == trento && bus >= 1:
		return route(a.domain, bus-1, slot(bus-1, "01.1"), self)
	}
	return route(a.domain, 0, slot(0, "01.1"), self)
}

// nicSlot is a place for an RDMA device: beside which GPU, and where below sys/devices.
type nicSlot struct {
	gpu   int
	route string
}

// nicSlots are the places for RDMA devices on the model's server, in the order of its GPUs.
func (p *product) nicSlots() []nicSlot {
	var list []nicSlot
	for i, address := range p.addresses {
		a, _ := parsePCI(address)
		bus := int(a.bus) //nolint:gosec // at most 255
		switch p.platform {
		case oam: // the second port of the GPU's switch
			list = append(list, nicSlot{i, route(a.domain, bus-5, slot(bus-5, "01.1"), slot(bus-4, "00.0"), slot(bus-3, "01.0"), slot(bus+4, "00.0"))})
		case card:
			root := bus & 0xe0
			list = append(list, nicSlot{i, route(a.domain, root, slot(root, "03.1"), slot(root+0x11, "00.0"))})
		case quad:
			if i%2 == 0 {
				base, shared, leaf := bus-quadOffsets[i%4].gpu, quadOffsets[i%4].shared, 0x0a
				if i%4 == 2 {
					leaf = 0x19
				}
				list = append(list, nicSlot{i, route(a.domain, base-1, slot(base-1, "01.1"), slot(base, "00.0"), slot(base+1, fmt.Sprintf("%02x.0", i%4/2)),
					slot(base+shared, "00.0"), slot(base+shared+1, "00.0"), slot(base+leaf, "00.0"))})
			}
		case trento:
			if i%2 == 0 {
				list = append(list, nicSlot{i, route(a.domain, bus-1, slot(bus-1, "03.1"), slot(bus+1, "00.0"))})
			}
		case apu:
			list = append(list, nicSlot{i, route(a.domain, 0, slot(0, "03.1"), slot(5, "00.0"))})
		case guest:
			list = append(list, nicSlot{i, route(0x0101+num(i*0x10), 0, slot(0, "00.0"))})
		}
	}
	return list
}

// bridges writes the PCI bridges above a device, each once.
func (w *writer) bridges(device string) {
	parts := strings.Split(strings.TrimPrefix(device, devicesDir), "/")
	for i := 1; i < len(parts)-1; i++ {
		dir := devicesDir + strings.Join(parts[:i+1], "/")
		if _, done := w.links[busDir+parts[i]]; done {
			continue
		}
		vendor, id := "0x1000", "0xc010" // a PCIe switch
		switch {
		case i == 1:
			vendor, id = "0x1022", "0x14ab" // the CPU's root port
		case i >= len(parts)-3 && w.product.platform != trento:
			vendor, id = "0x1002", "0x1501" // the switch inside a GPU's package: AMD, but no GPU
		}
		w.file(dir+"/vendor", vendor)
		w.file(dir+"/device", id)
		w.file(dir+"/class", "0x060400")
		w.symlink(busDir+parts[i], dir)
	}
}

func (w *writer) pci(i int) {
	n, p, g := w.node, w.product, &w.node.GPUs[i]
	place := p.gpuRoute(i, g.PCIAddress)
	dir := place + "/"
	w.bridges(place)
	w.symlink(busDir+g.PCIAddress, place)
	id := fmt.Sprintf("0x%04x", g.DeviceID)
	driver, bound := "", "amdgpu"
	if g.Unbound {
		bound = g.BoundTo
	}
	if bound != "" {
		driver = "DRIVER=" + bound + "\n"
		w.folder("sys/bus/pci/drivers/" + bound)
		w.symlink(dir+"driver", "sys/bus/pci/drivers/"+bound)
	}
	for _, f := range [][2]string{
		{"vendor", "0x1002"}, {"device", id}, {"subsystem_device", id}, {"revision", "0x00"}, {"class", p.pciClass},
		{"numa_node", itoa(g.NUMANode)},
		{"current_link_speed", g.PCIeSpeed}, {"max_link_speed", p.pcieSpeed},
		{"current_link_width", itoa(g.PCIeWidth)}, {"max_link_width", "16"},
		{"uevent", fmt.Sprintf("%sPCI_CLASS=%s\nPCI_ID=1002:%04X\nPCI_SUBSYS_ID=1002:%04X\nPCI_SLOT_NAME=%s",
			driver, strings.TrimPrefix(p.pciClass, "0x"), g.DeviceID, g.DeviceID, g.PCIAddress)},
	} {
		w.file(dir+f[0], f[1])
	}
	if g.Unbound {
		return // the rest belongs to the driver
	}
	w.symlink("sys/module/amdgpu/drivers/pci:amdgpu/"+g.PCIAddress, place)
	w.drm(i, place)
	hwmon := fmt.Sprintf("%shwmon/hwmon%d/", dir, 2+i)
	w.file(dir+"mem_info_vram_total", fmt.Sprint(p.vramBytes))
	w.file(dir+"pcie_replay_count", "0")
	w.file(dir+"fw_version/mec_fw_version", fmt.Sprintf("0x%08x", g.Firmware))
	if g.UniqueID != 0 {
		w.file(dir+"unique_id", fmt.Sprintf("%016x", g.UniqueID))
	}
	if p.productName != "" {
		w.file(dir+"product_name", p.productName)
	}
	if n.MetricsRevision != NoMetrics {
		w.Set(dir+"gpu_metrics", string(w.metrics(i)))
	}
	w.ras(i, dir+"ras/")
	if p.partitioned() {
		modes := make([]string, 0, maxPartitions)
		for _, mode := range p.computeModes() {
			modes = append(modes, string(mode))
		}
		w.file(dir+"current_compute_partition", string(n.Partition))
		w.file(dir+"available_compute_partition", strings.Join(modes, ", "))
	}
	if p.memoryModes != "" {
		w.file(dir+"current_memory_partition", n.MemoryPartition)
		w.file(dir+"available_memory_partition", p.memoryModes)
	}
	w.file(hwmon+"name", "amdgpu")
	for _, f := range [][2]string{{"temp2_label", "junction"}, {"temp2_input", "42000"}, {"temp3_label", "mem"}, {"temp3_input", "38000"}} {
		w.file(hwmon+f[0], f[1])
	}
	w.xgmi(i, dir)
}

// drm writes the card and the render nodes. Those of partitions hang on platform devices, and a driver that knows
// partitions makes them for all that there could be (amdgpu_xcp.c, amdgpu_xcp_dev_alloc).
func (w *writer) drm(i int, device string) {
	p := w.product
	minors := p.minors()
	node := func(device, name string) {
		w.folder(device + "/drm/" + name)
		w.symlink("sys/class/drm/"+name, device+"/drm/"+name)
	}
	card := fmt.Sprintf("card%d", 1+i*minors)
	node(device, card)
	w.symlink(device+"/drm/"+card+"/device", device)
	for part := range minors {
		at := device
		if part > 0 {
			at = fmt.Sprintf("%splatform/amdgpu_xcp_%d", devicesDir, i*(minors-1)+part-1)
		} else if w.node.GPUs[i].NoRenderNode {
			continue
		}
		name := fmt.Sprintf("renderD%d", p.renderMinor(i, part))
		node(at, name)
		if part < w.node.parts(p) {
			w.symlink(at+"/drm/"+name+"/device", at) // the spare ones have it, too, but nothing looks there
		}
	}
}

// ras writes the error counters (amdgpu_ras.c, amdgpu_ras_sysfs_read) and the retired pages (amdgpu_ras_sysfs_badpages_read).
func (w *writer) ras(i int, dir string) {
	g := &w.node.GPUs[i]
	for _, block := range w.product.rasBlocks {
		c := g.Errors[block]
		text := fmt.Sprintf("ue: %d\nce: %d", c.Uncorrectable, c.Correctable)
		if block == "umc" && w.product.deferred {
			text += fmt.Sprintf("\nde: %d", c.Deferred)
		}
		w.file(dir+block+"_err_count", text)
	}
	if len(w.product.rasBlocks) == 0 {
		return
	}
	var pages strings.Builder
	for page := range g.RetiredPages {
		fmt.Fprintf(&pages, "0x%08x : 0x%08x : R\n", 0x1a2b00+page*0x40, 0x1000)
	}
	w.Set(dir+"gpu_vram_bad_pages", pages.String())
}

// xgmi writes the hive, and hops and links to its members, two hex digits each in the order of the hive
// (amdgpu_xgmi.c). Bits 7:6 of the hops say the kind of link (1: xGMI3).
func (w *writer) xgmi(i int, dir string) {
	n, p := w.node, w.product
	if p.noXGMI {
		return
	}
	hive := n.hive(p, i)
	if hive == noHive {
		return
	}
	kindBits := 0
	if p.xcds > 1 && !p.vf {
		kindBits = 0x40
	}
	var hops, links, ports strings.Builder
	member, port := 0, 0
	for o := range n.GPUs {
		if n.GPUs[o].Unbound || n.GPUs[o].Missing || n.hive(p, o) != hive {
			continue
		}
		member++
		w.symlink(fmt.Sprintf("%sxgmi_hive_info/node%d", dir, member), p.gpuRoute(o, n.GPUs[o].PCIAddress))
		if o == i {
			hops.WriteString("00 ")
			links.WriteString("00 ")
			continue
		}
		c := n.connect(p, i, o)
		distance, count := c.hops, c.links
		if c.kind != LinkXGMI {
			distance, count = 0, 0
		}
		fmt.Fprintf(&hops, "%02x ", distance|kindBits)
		fmt.Fprintf(&links, "%02x ", count)
		for range count {
			fmt.Fprintf(&ports, "%02x:%02x ->  %02x:%02x\n", i, port, o, peerPort(i, o))
			port++
		}
	}
	w.file(dir+"xgmi_device_id", fmt.Sprint(n.number("xgmi "+n.GPUs[i].PCIAddress)))
	w.file(dir+"xgmi_physical_id", itoa(i%p.hiveSize))
	w.file(dir+"xgmi_hive_info/xgmi_hive_id", fmt.Sprint(n.hiveID(p, i)))
	w.file(dir+"xgmi_num_hops", hops.String())
	w.file(dir+"xgmi_num_links", links.String())
	if p.xcds > 1 && !p.vf {
		w.Set(dir+"xgmi_port_num", ports.String())
	}
}

// peerPort is the port of GPU o that leads to GPU i, where each has its peers in order.
func peerPort(i, o int) int {
	if i > o {
		return i - 1
	}
	return i
}

// xgmiPorts is how many ports a healthy GPU has links on, as seen by the busiest GPU of the model.
func (p *product) xgmiPorts() int {
	if p.noXGMI {
		return 0
	}
	most := 0
	for i := range p.addresses {
		total := 0
		for o := range p.addresses {
			if o != i && i/p.hiveSize == o/p.hiveSize {
				total += p.healthy(i, o).links
			}
		}
		most = max(most, total)
	}
	return most
}

// down says that a port of a GPU is down.
func (g *GPU) down(port int) bool { return slices.Contains(g.DownPorts, port) }

// nameOf is the last element of a directory.
func nameOf(device string) string { return path.Base(device) }
