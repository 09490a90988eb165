package discover

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// group sorts KFD's GPU nodes into devices and physical GPUs, by domain, bus and device: partitions of one GPU differ
// in the low bits of location_id only, and unique_id is 0 on virtual functions.
func (f *Facts) group(nodes []*kfdNode) {
	byAddress := map[string]*GPU{}
	f.Devices = []Device{}
	checkComplete(nodes)
	for _, n := range nodes {
		f.addUnread(n.unread...)
		if n.hidden {
			f.HiddenNodes = append(f.HiddenNodes, n.number)
			continue
		}
		p := &n.properties
		cpu := n.gpuID != nil && *n.gpuID == 0
		if !cpu && n.propErr != nil && (!n.gpu || p.LocationID == nil || p.DeviceID == nil) {
			f.UnreadableNodes = append(f.UnreadableNodes, n.number)
			continue
		}
		if !n.gpu {
			continue
		}
		f.linkRecords = append(f.linkRecords, n.links...)
		if p.LocationID == nil || p.DeviceID == nil {
			f.UnreadableNodes = append(f.UnreadableNodes, n.number)
			continue
		}
		var domain uint64
		if p.Domain != nil {
			domain = *p.Domain
		}
		address := pciAddress(domain, *p.LocationID)
		d := Device{Node: n.number, PCIAddress: address, Partition: partitionOf(*p.LocationID), GPUID: n.gpuID,
			RenderMinor: p.RenderMinor, XCDs: p.NumXCC, HiveID: p.HiveID, FWVersion: p.FWVersion,
			SDMAVersion: p.SDMAFWVersion, Complete: n.propErr == nil}
		if p.GFXTargetVersion != nil {
			d.GFXTarget = gfxTarget(*p.GFXTargetVersion)
		}
		if p.SIMDCount != nil && p.SIMDPerCU != nil && *p.SIMDPerCU > 0 {
			cus := *p.SIMDCount / *p.SIMDPerCU
			d.ComputeUnits = &cus
		}
		f.Devices = append(f.Devices, d)
		g := byAddress[address]
		if g == nil {
			model, _ := LookupModel(*p.DeviceID)
			g = &GPU{PCIAddress: address, DeviceID: fmt.Sprintf("0x%04x", *p.DeviceID), Model: model.Name, model: model,
				GFXTarget: d.GFXTarget, HiveID: p.HiveID, Complete: true, noDomain: p.Domain == nil}
			if g.GFXTarget == "" {
				g.GFXTarget = model.GFX // old kernels do not write gfx_target_version
			}
			if p.UniqueID != nil && *p.UniqueID != 0 {
				g.UniqueID = strconv.FormatUint(*p.UniqueID, 16)
			}
			byAddress[address] = g
		}
		g.Nodes = append(g.Nodes, n.number)
		g.Complete = g.Complete && d.Complete
	}
	f.GPUs = make([]GPU, 0, len(byAddress))
	for _, g := range byAddress {
		f.GPUs = append(f.GPUs, *g)
	}
	sort.Slice(f.GPUs, func(i, j int) bool { return f.GPUs[i].PCIAddress < f.GPUs[j].PCIAddress })
	sort.Slice(f.Devices, func(i, j int) bool {
		a, b := &f.Devices[i], &f.Devices[j]
		if a.PCIAddress != b.PCIAddress {
			return a.PCIAddress < b.PCIAddress
		}
		if a.Partition != b.Partition {
			return a.Partition < b.Partition
		}
		return a.Node < b.Node
	})
}

// checkComplete finds properties files that end early: the kernel writes the same names for every GPU (kfd_topology.c,
// node_show), so a node that lacks a name that another has was not read in whole, even where the cut is at a line's
// end.
func checkComplete(nodes []*kfdNode) {
	usual := uint32(0)
	for _, n := range nodes {
		if n.gpu && !n.hidden && n.propErr == nil {
			usual |= n.properties.present()
		}
	}
	for _, n := range nodes {
		if !n.gpu || n.hidden || n.propErr != nil || n.properties.present() == usual {
			continue
		}
		lacks, has := "", n.properties.present()
		for i, name := range propertyNames {
			if (usual&^has)>>i&1 == 1 {
				lacks += " " + name
			}
		}
		file := nodesDir + "/" + strconv.Itoa(n.number) + "/properties"
		n.propErr = &ReadError{Path: file, Class: ClassMalformed,
			Err: malformedf("the file is cut: it lacks%s, which other GPUs have", lacks)}
		n.unread = append(n.unread, n.propErr)
	}
}

// gpuDetails is what a GPU's PCI directory tells.
type gpuDetails struct {
	compute, memory string
	derived         bool
	hops, links     *[]uint8
	productName     *string
	vanished        bool
	physicalID      *uint64
	numa            *int32
	numaUnknown     bool
	vram            *uint64
	iommu           string
	ras             rasFacts
	metrics         *Metrics
	pcie            PCIe
	pciPath         string
	unread          []*ReadError
}

func (d *gpuDetails) apply(g *GPU) {
	g.ComputePartition, g.MemoryPartition, g.PartitionDerived = d.compute, d.memory, d.derived
	g.ExpectedPartitions = partitionsOf(d.compute, g.model.XCDs)
	g.XGMIPhysicalID, g.VRAMBytes, g.PCIe, g.vanished = d.physicalID, d.vram, d.pcie, d.vanished
	g.NUMANode, g.NUMAUnknown, g.PCIPath = d.numa, d.numaUnknown, d.pciPath
	g.Metrics, g.iommu = d.metrics, d.iommu
	d.ras.apply(g)
	if d.hops != nil {
		count := len(*d.hops)
		g.hops, g.HiveNodes = *d.hops, &count
	}
	if d.links != nil {
		g.links = *d.links
	}
	if d.productName != nil {
		g.ProductName = *d.productName
	}
	for _, e := range d.unread {
		g.rasUnread = g.rasUnread || (strings.HasPrefix(e.Path, pciDir) && unreadKind(e.Path) == "ras")
	}
}

// field reads and parses one file; a missing file gives nil and is no error, since models and kernels differ.
func field[T any](r *reader, path string, parse func([]byte) (T, error), unread *[]*ReadError) *T {
	data, rerr := r.file(path)
	return parsed(path, data, rerr, parse, unread)
}

func parsed[T any](path string, data []byte, rerr *ReadError, parse func([]byte) (T, error), unread *[]*ReadError) *T {
	if rerr == nil {
		value, err := parse(data)
		if err == nil {
			return &value
		}
		rerr = &ReadError{Path: path, Class: Classify(err), Err: err}
	}
	if rerr.Class != ClassMissing {
		*unread = append(*unread, rerr)
	}
	return nil
}

func readGPU(r *reader, g *GPU, nodes []*kfdNode) *gpuDetails {
	d := &gpuDetails{}
	dir := pciDir + "/" + g.PCIAddress + "/"
	before := r.answers
	readPartition := func(name string, allowed map[string]bool) string {
		mode := field(r, dir+name, func(b []byte) (string, error) { return parsePartition(b, allowed) }, &d.unread)
		if mode == nil {
			return ""
		}
		return *mode
	}
	if g.model.partitionable() {
		d.compute = readPartition("current_compute_partition", computePartitions)
		d.memory = readPartition("current_memory_partition", memoryPartitions)
	}
	if d.compute == "" {
		d.compute = derivePartition(g, nodes)
		d.derived = d.compute != ""
	}
	if g.HiveID != nil && *g.HiveID != 0 {
		d.hops = field(r, dir+"xgmi_num_hops", parseHiveList, &d.unread)
		d.links = field(r, dir+"xgmi_num_links", parseHiveList, &d.unread)
		d.physicalID = field(r, dir+"xgmi_physical_id", parseUintFile, &d.unread)
	}
	if numa := field(r, dir+"numa_node", parseNUMANode, &d.unread); numa != nil {
		d.numa, d.numaUnknown = *numa, *numa == nil
	}
	if mode := field(r, dir+"iommu_group/type", parseIOMMUType, &d.unread); mode != nil {
		d.iommu = *mode
	}
	d.productName = field(r, dir+"product_name", parseProductName, &d.unread)
	d.vram = stated(field(r, dir+"mem_info_vram_total", parseUintFile, &d.unread))
	d.ras = readRAS(r, dir, &d.unread)
	d.metrics = readMetrics(r, dir, &d.unread)
	// A guest's virtual function, and a link that is down, have width 0 and speed "Unknown": not known, and not slow.
	d.pcie.Width = positive(field(r, dir+"current_link_width", parseIntFile, &d.unread))
	d.pcie.MaxWidth = positive(field(r, dir+"max_link_width", parseIntFile, &d.unread))
	d.pcie.SpeedMTps = positive(field(r, dir+"current_link_speed", parseLinkSpeed, &d.unread))
	d.pcie.MaxSpeedMTps = positive(field(r, dir+"max_link_speed", parseLinkSpeed, &d.unread))
	d.vanished = r.answers == before && len(d.unread) == 0
	d.pciPath = readPCIPath(r, g.PCIAddress, &d.unread) // the bus's own link, which may outlive the GPU's files
	if d.vram == nil {
		d.vram = vramOfNodes(r, g, nodes, &d.unread)
	}
	return d
}

func positive(n *int64) *int64 {
	if n == nil || *n <= 0 {
		return nil
	}
	return n
}

// derivePartition names the compute partition mode from the compute dies of each of the GPU's KFD nodes.
func derivePartition(g *GPU, nodes []*kfdNode) string {
	mode := ""
	for _, n := range nodes {
		if !slices.Contains(g.Nodes, n.number) {
			continue
		}
		if n.properties.NumXCC == nil || *n.properties.NumXCC > 64 {
			return ""
		}
		m := partitionMode(int(*n.properties.NumXCC), g.model.XCDs)
		if m == "" || (mode != "" && m != mode) {
			return ""
		}
		mode = m
	}
	return mode
}

// vramOfNodes adds up the frame buffer banks of the GPU's KFD nodes; nil where any is not readable.
func vramOfNodes(r *reader, g *GPU, nodes []*kfdNode, unread *[]*ReadError) *uint64 {
	var total uint64
	for _, n := range nodes {
		if !slices.Contains(g.Nodes, n.number) {
			continue
		}
		dir := nodesDir + "/" + strconv.Itoa(n.number) + "/mem_banks"
		names, rerr := r.dir(dir)
		if rerr != nil {
			if n.properties.LocalMemSize != nil && *n.properties.LocalMemSize > 0 {
				total += *n.properties.LocalMemSize
				continue
			}
			return nil
		}
		for _, bank := range numbers(names) {
			size := field(r, dir+"/"+strconv.Itoa(bank)+"/properties", parseBank, unread)
			if size == nil {
				return nil
			}
			total += *size
		}
	}
	return stated(&total)
}

// parseBank is the size of a memory bank in bytes; 0 for one that is not the GPU's own (heap_type 1 and 2 are).
func parseBank(data []byte) (uint64, error) {
	var heap, size *uint64
	err := parseProperties(data, func(key []byte) **uint64 {
		switch string(key) {
		case "heap_type":
			return &heap
		case "size_in_bytes":
			return &size
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, err
	case heap == nil || size == nil:
		return 0, malformedf("heap_type or size_in_bytes is missing")
	case *heap != 1 && *heap != 2:
		return 0, nil
	}
	return *size, nil
}

// summarise says what all GPUs share.
func (f *Facts) summarise() {
	f.Model, f.GFXTarget, f.Partition = Unknown, Unknown, Unknown
	if len(f.GPUs) == 0 {
		return
	}
	f.Model = shared(f.GPUs, func(g *GPU) string { return g.Model })
	f.GFXTarget = shared(f.GPUs, func(g *GPU) string { return g.GFXTarget })
	f.Partition = sharedMode(f.GPUs)
	f.PartitionSource = ""
	switch {
	case f.Partition == Unknown || f.Partition == Mixed || f.Partition == NotApplicable:
	case f.GPUs[0].PartitionDerived:
		f.PartitionSource = "Derived"
	default:
		f.PartitionSource = "Reported"
	}
}

// shared is what all GPUs say; mixed where two of them say different things, and unknown where one of them says
// nothing.
func shared(gpus []GPU, of func(*GPU) string) string {
	found, unknown := "", false
	for i := range gpus {
		switch value := of(&gpus[i]); {
		case value == "":
			unknown = true
		case found != "" && value != found:
			return Mixed
		default:
			found = value
		}
	}
	if unknown || found == "" {
		return Unknown
	}
	return found
}

// sharedMode is the partition mode of all GPUs. Its two parts are compared apart: a mode that could not be read is not
// another mode.
func sharedMode(gpus []GPU) string {
	none := shared(gpus, func(g *GPU) string {
		if partitionName(g) == NotApplicable {
			return NotApplicable
		}
		return "modes"
	})
	if none == Mixed || none == NotApplicable {
		return none
	}
	compute := shared(gpus, func(g *GPU) string { return g.ComputePartition })
	memory := shared(gpus, func(g *GPU) string { return g.MemoryPartition })
	switch {
	case compute == Mixed || memory == Mixed:
		return Mixed
	case compute == Unknown && memory == Unknown:
		return Unknown
	}
	return compute + "/" + memory
}

// partitionName is compute/memory mode, for example SPX/NPS1; a mode that is not known is "unknown".
func partitionName(g *GPU) string {
	switch {
	case g.ComputePartition == "" && g.MemoryPartition == "" && !g.model.partitionable():
		return NotApplicable
	case g.ComputePartition == "" && g.MemoryPartition == "":
		return Unknown
	}
	return orUnknown(g.ComputePartition) + "/" + orUnknown(g.MemoryPartition)
}

func orUnknown(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}
