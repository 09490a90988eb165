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
		return route(a.domain, bus-5, slot(bus-5, "01.1"), slot(bus-4, "00.0"), slot(bus-3, "00.0"),
			slot(bus-2, "00.0"), slot(bus-1, "00.0"), self)
	case p.platform == card && bus >= 3:
		root := bus & 0xe0
		return route(a.domain, root, slot(root, "01.1"), slot(bus-2, "00.0"), slot(bus-1, "00.0"), self)
	case p.platform == quad && bus > quadOffsets[i%4].gpu:
		o := quadOffsets[i%4]
		base := bus - o.gpu
		return route(a.domain, base-1, slot(base-1, "01.1"), slot(base, "00.0"),
			slot(base+1, fmt.Sprintf("%02x.0", i%4/2)), slot(base+o.shared, "00.0"),
			slot(base+o.shared+1, fmt.Sprintf("%02x.0", o.port)), slot(base+o.upper, "00.0"),
			slot(base+o.lower, "00.0"), self)
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
			list = append(list, nicSlot{i, route(a.domain, bus-5, slot(bus-5, "01.1"), slot(bus-4, "00.0"),
				slot(bus-3, "01.0"), slot(bus+4, "00.0"))})
		case card:
			root := bus & 0xe0
			list = append(list, nicSlot{i, route(a.domain, root, slot(root, "03.1"), slot(root+0x11, "00.0"))})
		case quad:
			if i%2 == 0 {
				base, shared, leaf := bus-quadOffsets[i%4].gpu, quadOffsets[i%4].shared, 0x0a
				if i%4 == 2 {
					leaf = 0x19
				}
				list = append(list, nicSlot{i, route(a.domain, base-1, slot(base-1, "01.1"),
					slot(base, "00.0"), slot(base+1, fmt.Sprintf("%02x.0", i%4/2)),
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

// pciFunction is what the kernel shows of any PCI function (drivers/pci/pci-sysfs.c).
type pciFunction struct {
	vendor, device, subsystemVendor, subsystemDevice, class string
	numaNode                                                int
	link                                                    pcieLink
}

// pcieLink is a function's link to the port above it.
type pcieLink struct {
	speed, maxSpeed string
	width, maxWidth int
}

func wholeLink(speed string) pcieLink {
	return pcieLink{speed: speed, maxSpeed: speed, width: 16, maxWidth: 16}
}

// function writes a PCI function at its place below sys/devices, and what is above it.
func (w *writer) function(place string, f pciFunction) {
	w.bridges(place, f)
	w.attributes(place, f)
}

func (w *writer) attributes(place string, f pciFunction) {
	for _, a := range [][2]string{
		{"vendor", f.vendor}, {"device", f.device}, {"subsystem_vendor", f.subsystemVendor},
		{"subsystem_device", f.subsystemDevice},
		{"revision", "0x00"}, {"class", f.class}, {"numa_node", itoa(f.numaNode)},
		{"current_link_speed", f.link.speed}, {"max_link_speed", f.link.maxSpeed},
		{"current_link_width", itoa(f.link.width)}, {"max_link_width", itoa(f.link.maxWidth)},
	} {
		w.file(place+"/"+a[0], a[1])
	}
	w.symlink(place+"/subsystem", "sys/bus/pci")
	w.symlink(busDir+nameOf(place), place)
}

// bridges writes the buses and PCI bridges above a function, each once. The lowest bridge is the other end of the
// function's link.
func (w *writer) bridges(place string, below pciFunction) {
	parts := strings.Split(strings.TrimPrefix(place, devicesDir), "/")
	for i := range len(parts) - 1 {
		dir := devicesDir + strings.Join(parts[:i+1], "/")
		w.bus(dir, parts[i+1], below.numaNode)
		if _, done := w.links[busDir+parts[i]]; i == 0 || done {
			continue
		}
		// a PCIe switch
		f := pciFunction{vendor: "0x1000", device: "0xc010", class: "0x060400", numaNode: below.numaNode,
			link: wholeLink(below.link.maxSpeed)}
		switch {
		case i == 1:
			f.vendor, f.device = "0x1022", "0x14ab" // the CPU's root port
		case i >= len(parts)-3 && w.product.platform != trento:
			f.vendor, f.device = "0x1002", "0x1501" // the switch inside a GPU's package: AMD, but no GPU
		}
		f.subsystemVendor, f.subsystemDevice = f.vendor, f.device
		if i == len(parts)-2 {
			f.link = below.link
		}
		w.attributes(dir, f)
	}
}

// bus writes the bus below a bridge, on which a function lies (drivers/pci/probe.c, pcibus_class). Libraries find a
// function by class/pci_bus/BUS/../../FUNCTION.
func (w *writer) bus(bridge, function string, numaNode int) {
	name := function[:strings.LastIndex(function, ":")]
	class := "sys/class/pci_bus/" + name
	if _, done := w.links[class]; done {
		return
	}
	dir := bridge + "/pci_bus/" + name
	w.file(dir+"/cpuaffinity", w.product.cpuMap(numaNode))
	w.file(dir+"/cpulistaffinity", w.product.cpuList(numaNode))
	w.symlink(dir+"/device", bridge)
	w.symlink(dir+"/subsystem", "sys/class/pci_bus")
	w.symlink(class, dir)
}

func (w *writer) pci(i int) {
	n, p, g := w.node, w.product, &w.node.GPUs[i]
	place := p.gpuRoute(i, g.PCIAddress)
	dir := place + "/"
	id := fmt.Sprintf("0x%04x", g.DeviceID)
	w.function(place, pciFunction{vendor: "0x1002", device: id, subsystemVendor: "0x1002",
		subsystemDevice: id, class: p.pciClass, numaNode: g.NUMANode,
		link: pcieLink{speed: g.PCIeSpeed, maxSpeed: p.pcieSpeed, width: g.PCIeWidth, maxWidth: 16}})
	driver, bound := "", "amdgpu"
	if g.Unbound {
		bound = g.BoundTo
	}
	if bound != "" {
		driver = "DRIVER=" + bound + "\n"
		w.folder("sys/bus/pci/drivers/" + bound)
		w.symlink(dir+"driver", "sys/bus/pci/drivers/"+bound)
	}
	w.file(dir+"uevent", fmt.Sprintf("%sPCI_CLASS=%s\nPCI_ID=1002:%04X\nPCI_SUBSYS_ID=1002:%04X\nPCI_SLOT_NAME=%s",
		driver, strings.TrimPrefix(p.pciClass, "0x"), g.DeviceID, g.DeviceID, g.PCIAddress))
	if g.Unbound {
		return // the rest belongs to the driver
	}
	w.symlink("sys/module/amdgpu/drivers/pci:amdgpu/"+g.PCIAddress, place)
	w.drm(i, place)
	hwmon := fmt.Sprintf("%shwmon/hwmon%d/", dir, 2+i)
	w.file(dir+"mem_info_vram_total", fmt.Sprint(p.vramBytes))
	w.file(dir+"vbios_version", "113-SIMULATED-000")
	w.file(dir+"pcie_replay_count", "0")
	w.file(dir+"fw_version/mec_fw_version", fmt.Sprintf("0x%08x", g.Firmware))
	if g.UniqueID != 0 {
		w.file(dir+"unique_id", fmt.Sprintf("%016x", g.UniqueID))
	}
	if p.productName != "" {
		w.file(dir+"product_name", p.productName)
	}
	if n.MetricsRevision != NoMetrics {
		w.Set(dir+"gpu_metrics", string(n.metrics(p, i)))
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
		w.partitionConfig(dir + "compute_partition_config/")
	}
	w.file(hwmon+"name", "amdgpu")
	for _, f := range [][2]string{{"temp2_label", "junction"}, {"temp2_input", "42000"}, {"temp3_label", "mem"},
		{"temp3_input", "38000"}} {
		w.file(hwmon+f[0], f[1])
	}
	w.xgmi(i, dir)
}

// partitionConfig says what each partition has in the present mode: its share of the engines, or with how many others
// it shares one (amdgpu_xcp.c, amdgpu_xcp_cfg_sysfs_init; aqua_vanjaram.c, aqua_vanjaram_get_xcp_res_info).
func (w *writer) partitionConfig(dir string) {
	n, p := w.node, w.product
	modes, memory := make([]string, 0, maxPartitions), make([]string, 0, maxPartitions)
	for _, mode := range p.computeModes() {
		modes = append(modes, string(mode))
	}
	for _, mode := range p.memoryPartitions() {
		if p.fits(n.Partition, mode) {
			memory = append(memory, mode)
		}
	}
	w.file(dir+"supported_xcp_configs", strings.Join(modes, ", "))
	w.file(dir+"supported_nps_configs", strings.Join(memory, ", "))
	w.file(dir+"xcp_config", string(n.Partition))
	engines := 2 + p.sdmaXGMI
	parts := num(n.parts(p))
	for _, r := range []struct {
		name  string
		count uint64
	}{{"xcc", p.xcds}, {"dma", engines}, {"dec", engines / 4}, {"jpeg", engines / 4}} {
		// each base die has four DMA engines and one decoder
		w.file(dir+r.name+"/num_inst", fmt.Sprint(max(1, r.count/parts)))
		w.file(dir+r.name+"/num_shared", fmt.Sprint(max(1, parts/r.count)))
	}
}

// drm writes the cards and the render nodes. Those of partitions hang on platform devices, and a driver that knows
// partitions makes them for all that there could be (amdgpu_xcp.c, amdgpu_xcp_dev_alloc): a card and a render node each
// (drm_drv.c, drm_dev_init).
func (w *writer) drm(i int, device string) {
	p := w.product
	minors := p.minors()
	node := func(device, name string) {
		w.symlink("sys/class/drm/"+name, device+"/drm/"+name)
		w.symlink(device+"/drm/"+name+"/device", device)
	}
	for part := range minors {
		at, minor := device, p.renderMinor(i, part)
		if part > 0 {
			at = fmt.Sprintf("%splatform/amdgpu_xcp_%d", devicesDir, i*(minors-1)+part-1)
		}
		node(at, fmt.Sprintf("card%d", cardMinor(minor)))
		if part > 0 || !w.node.GPUs[i].NoRenderNode {
			node(at, fmt.Sprintf("renderD%d", minor))
		}
	}
}

// cardMinor is the DRM minor of the card that has a render node. Card 0 is the server's management controller. Cards
// have 64 minors, and those above 191 where these are taken (drm_drv.c, drm_minor_alloc).
func cardMinor(renderMinor int) int {
	const cards, extended = 64, 192
	minor := 1 + renderMinor - firstRenderMinor
	if minor >= cards {
		minor += extended - cards
	}
	return minor
}

// ras writes the error counters (amdgpu_ras.c, amdgpu_ras_sysfs_read) and the retired pages
// (amdgpu_ras_sysfs_badpages_read).
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
	var members []int
	for o := range n.GPUs {
		if !n.GPUs[o].Unbound && !n.GPUs[o].Missing && n.hive(p, o) == hive {
			members = append(members, o)
		}
	}
	self := slices.Index(members, i)
	var hops, links, ports strings.Builder
	for member, o := range members {
		w.symlink(fmt.Sprintf("%sxgmi_hive_info/node%d", dir, member+1), p.gpuRoute(o, n.GPUs[o].PCIAddress))
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
		for link := range count { // members are counted from 1 here (amdgpu_xgmi_show_connected_port_num)
			fmt.Fprintf(&ports, "%02x:%02x ->  %02x:%02x\n",
				self+1, p.firstPort(i, o)+link, member+1, p.firstPort(o, i)+link)
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

// firstPort is the first port of a GPU that leads to another. Ports are wired: they are in the order of the peers that
// a healthy node has.
func (p *product) firstPort(from, to int) int {
	port := 0
	for o := from / p.hiveSize * p.hiveSize; o < to; o++ {
		if o != from {
			port += p.healthy(from, o).links
		}
	}
	return port
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
