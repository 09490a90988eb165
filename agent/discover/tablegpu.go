package discover

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/utils/ptr"
)

// gpus is one row for each physical GPU, with its devices.
func (t *table) gpus(f *Facts) {
	if len(f.GPUs) == 0 {
		return
	}
	t.title("GPUs")
	modules := false
	for i := range f.GPUs {
		modules = modules || f.GPUs[i].Module != nil
	}
	head := []string{"", "PCI", "MODEL", "MODE", "HIVE", "NUMA", "VRAM-GIB", "PCIE", "KFD-NODES", "RENDER"}
	if modules {
		head = append(head, "OAM")
	}
	rows := [][]string{head}
	numbers := hiveNumbers(f.GPUs)
	for i := range f.GPUs {
		g := &f.GPUs[i]
		mode := partitionName(g)
		if mode == NotApplicable {
			mode = notThere
		}
		hive := notKnown
		if g.HiveID != nil {
			hive = notThere
			if *g.HiveID != 0 {
				hive = fmt.Sprint(numbers[*g.HiveID])
			}
		}
		vram := notKnown
		if g.VRAMBytes != nil {
			vram = fmt.Sprintf("%.1f", float64(*g.VRAMBytes)/(1<<30))
		}
		row := []string{gpuName(i), g.PCIAddress, g.Model, strings.ReplaceAll(mode, Unknown, notKnown), hive,
			mark(g.NUMANode), vram, pcieWords(&g.PCIe), ranges(g.Nodes), renderWords(f, g)}
		if modules {
			row = append(row, mark(g.Module))
		}
		rows = append(rows, row)
	}
	inKFD := map[string]bool{}
	for i := range f.GPUs {
		inKFD[f.GPUs[i].PCIAddress] = true
	}
	for _, p := range f.PCIGPUs {
		if !inKFD[p.PCIAddress] {
			driver := "-"
			if p.Driver != "" {
				driver = "driver " + p.Driver
			}
			where := "not in KFD"
			if !f.GPUsCertain() {
				where = "out of sight" // it may be one of the nodes that could not be read
			}
			rows = append(rows, []string{"-", p.PCIAddress, p.Model, where, "-", "-", "-", "-", "-", driver})
		}
	}
	t.columns(rows)
	t.line("")
}

// pcieWords is "32.0GT/s x16", with what the GPU can where it has less: "32.0GT/s x8(16)".
func pcieWords(p *PCIe) string {
	if p.SpeedMTps == nil && p.Width == nil {
		return notKnown
	}
	speed, width := notKnown, notKnown
	if p.SpeedMTps != nil {
		speed = giga(*p.SpeedMTps)
		if p.MaxSpeedMTps != nil && *p.SpeedMTps < *p.MaxSpeedMTps {
			speed += "(" + giga(*p.MaxSpeedMTps) + ")"
		}
	}
	if p.Width != nil {
		width = fmt.Sprint(*p.Width)
		if p.MaxWidth != nil && *p.Width < *p.MaxWidth {
			width += fmt.Sprintf("(%d)", *p.MaxWidth)
		}
	}
	return speed + "GT/s x" + width
}

// renderWords are the DRM render nodes of a GPU's devices, as /dev/dri names them.
func renderWords(f *Facts, g *GPU) string {
	var minors []int
	unknown := false
	for i := range f.Devices {
		d := &f.Devices[i]
		if d.PCIAddress != g.PCIAddress {
			continue
		}
		switch {
		case d.RenderMinor == nil || *d.RenderMinor > 1<<20:
			unknown = true
		case *d.RenderMinor > 0:
			minors = append(minors, int(*d.RenderMinor))
		}
	}
	switch {
	case len(minors) == 0 && unknown:
		return notKnown
	case len(minors) == 0:
		return notThere
	case unknown:
		return "renderD" + ranges(minors) + ",?"
	}
	return "renderD" + ranges(minors)
}

// numa is the NUMA node of each GPU and its nearest NIC, below rocm-smi's title.
func (t *table) numa(f *Facts) {
	if len(f.GPUs) == 0 {
		return
	}
	t.title("Numa Nodes")
	for i := range f.GPUs {
		g := &f.GPUs[i]
		node := mark(g.NUMANode)
		if g.NUMAUnknown {
			node = "-1 (the firmware does not say)"
		}
		nic := notKnown
		switch {
		case f.NICs != nil && len(f.NICs) == 0:
			nic = notThere
		case g.NIC != "":
			nic = fmt.Sprintf("%s (%s)", g.NIC, nicPathWords[g.NICPath])
		}
		t.line("%-14s : (Topology) Numa Node: %s, nearest NIC: %s", fmt.Sprintf("GPU[%d]", i), node, nic)
	}
	t.line("")
}

var nicPathWords = map[string]string{NearSwitch: "same PCIe switch", NearHost: "same PCIe host bridge",
	NearNUMA: "same NUMA node", NearFar: "on another NUMA node"}

// nics is one row for each RDMA device.
func (t *table) nics(f *Facts) {
	if len(f.NICs) == 0 {
		return
	}
	t.title("RDMA NICs")
	rows := [][]string{{"NAME", "INTERFACE", "PCI", "PRODUCT", "LINK", "STATE", "GBIT/S", "NUMA", "NEAREST TO"}}
	for i := range f.NICs {
		n := &f.NICs[i]
		link := n.LinkLayer
		switch link {
		case LinkEthernet:
			link = "RoCE"
		case LinkUnknown:
			link = notKnown
		}
		state := n.State
		if state == PortUnknown {
			state = notKnown
		}
		if n.PhysState != "" && n.State != PortActive {
			state += "(" + n.PhysState + ")"
		}
		rate := "-" // a port that is down states the rate of no link
		if n.State == PortActive {
			rate = notKnown
			if n.RateMbps != nil {
				rate = strings.TrimSuffix(giga(*n.RateMbps), ".0")
			}
		}
		address, product := n.PCIAddress, n.Product
		switch {
		case n.virtual:
			address, product = notThere, "software"
		case product == "" && n.VendorID != "" && n.DeviceID != "":
			product = strings.TrimPrefix(n.VendorID, "0x") + ":" + strings.TrimPrefix(n.DeviceID, "0x")
		}
		var near []int
		for g := range f.GPUs {
			if f.GPUs[g].NIC == n.Name {
				near = append(near, g)
			}
		}
		nearest := "-"
		if len(near) > 0 {
			nearest = "GPU" + ranges(near)
		}
		itsInterface := n.Interface
		if itsInterface == "" {
			itsInterface = notThere
		}
		rows = append(rows, []string{n.Name, itsInterface, orMark(address), orMark(product), link, state, rate,
			mark(n.NUMANode), nearest})
	}
	t.columns(rows)
	t.line("")
}

// errors is what the GPUs counted since the driver was loaded, and how they are now.
func (t *table) errors(f *Facts) {
	if len(f.GPUs) == 0 {
		return
	}
	t.title("RAS errors since the driver was loaded (UE uncorrectable, CE correctable, DE deferred)")
	counted := false
	rows := [][]string{{"", "UE", "CE", "DE", "BAD-PAGES", "XGMI-PORTS", "HOTSPOT-C", "MEMORY-C", "POWER-W",
		"BLOCKS (UE/CE/DE)"}}
	for i := range f.GPUs {
		row := append([]string{gpuName(i)}, rasCells(f, i)...)
		for _, cell := range row[1:] {
			counted = counted || cell != notThere
		}
		rows = append(rows, row)
	}
	if !counted {
		t.line("none of the GPUs has error counters or gpu_metrics")
	} else {
		t.columns(rows)
	}
	t.line("")
}

// rasCells: a part of the counters that nobody can read is "?", and so is a GPU's whole count where its model's other
// GPUs have one, or none of them does: then nothing says that it has no errors. Only a virtual function has "none" of
// them.
func rasCells(f *Facts, gpu int) []string {
	g := &f.GPUs[gpu]
	dir := pciDir + "/" + g.PCIAddress
	absent := notThere
	if unreadBelow(f, dir+"/ras") || (!g.model.VF && (g.RAS == nil || len(f.lacksCounters(gpu)) > 0)) {
		absent = notKnown
	}
	ue, ce, de, blocks := absent, absent, absent, absent
	if g.RAS != nil {
		more := "" // some block is there and could not be read, so that a sum is a least
		if absent == notKnown {
			more = "+?"
		}
		var sum ErrorCounts
		for _, c := range g.RAS {
			sum.Uncorrectable += c.Uncorrectable
			sum.Correctable += c.Correctable
			if c.Deferred != nil {
				sum.Deferred = ptr.To(ptr.Deref(sum.Deferred, 0) + *c.Deferred)
			}
		}
		ue, ce, de = fmt.Sprint(sum.Uncorrectable)+more, fmt.Sprint(sum.Correctable)+more, absent
		if sum.Deferred != nil {
			de = fmt.Sprint(*sum.Deferred) + more
		}
		blocks = blocksWords(g.RAS, more != "")
	}
	pages := mark(g.RetiredPages)
	if g.RetiredPages == nil && absent == notThere {
		pages = notThere
	}
	if g.unreservedPages > 0 {
		pages += fmt.Sprintf("+%d in use", g.unreservedPages)
	}
	ports, hotspot, memory, power := notThere, notThere, notThere, notThere
	switch {
	case g.Metrics != nil:
		ports, hotspot, memory, power = portWords(g.Metrics.XGMIPorts), mark(g.Metrics.HotspotCelsius),
			mark(g.Metrics.MemoryCelsius), mark(g.Metrics.SocketPowerWatts)
	case unreadBelow(f, dir+"/gpu_metrics"):
		ports, hotspot, memory, power = notKnown, notKnown, notKnown, notKnown
	}
	return []string{ue, ce, de, pages, ports, hotspot, memory, power, blocks}
}

// blocksWords are the blocks with errors, the worst first: "umc 1/40/2, gfx 0/3".
func blocksWords(blocks map[string]ErrorCounts, unread bool) string {
	const most = 2
	erred := []string{}
	for _, block := range sortedKeys(blocks) {
		if c := blocks[block]; c.Uncorrectable+c.Correctable+ptr.Deref(c.Deferred, 0) > 0 {
			erred = append(erred, block)
		}
	}
	sort.SliceStable(erred, func(i, j int) bool {
		a, b := blocks[erred[i]], blocks[erred[j]]
		if a.Uncorrectable != b.Uncorrectable {
			return a.Uncorrectable > b.Uncorrectable
		}
		return ptr.Deref(a.Deferred, 0) > ptr.Deref(b.Deferred, 0)
	})
	var parts []string
	for i, block := range erred {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(erred)-most))
			break
		}
		c := blocks[block]
		text := fmt.Sprintf("%s %d/%d", block, c.Uncorrectable, c.Correctable)
		if c.Deferred != nil {
			text += fmt.Sprintf("/%d", *c.Deferred)
		}
		parts = append(parts, text)
	}
	switch {
	case unread:
		parts = append(parts, "some "+notKnown)
	case len(parts) == 0:
		return notThere
	}
	return strings.Join(parts, ", ")
}

// portWords is "7 up" or "6 up, 3 down": the numbers of the ports that are down.
func portWords(ports []string) string {
	if len(ports) == 0 {
		return notThere
	}
	up, down := 0, []int{}
	for i, state := range ports {
		switch state {
		case XGMIPortUp:
			up++
		case XGMIPortDown:
			down = append(down, i)
		}
	}
	switch {
	case up == 0 && len(down) == 0:
		return notKnown
	case len(down) > 0:
		return fmt.Sprintf("%d up, not %s", up, ranges(down))
	}
	return fmt.Sprintf("%d up", up)
}
