package discover

import (
	"fmt"
	"sort"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

type checker func(what string, want, got any)

// compareNode: what is said of the node as a whole.
func (s *scenario) compareNode(f *Facts, check checker) {
	devices, render, unbound := 0, 0, 0
	for i := range s.node.GPUs {
		g := &s.node.GPUs[i]
		switch {
		case g.Unbound:
			unbound++
		case !g.Missing:
			devices += s.parts - g.MissingPartitions
			if g.NoRenderNode {
				render--
			}
		}
	}
	list := s.present()
	type node struct {
		Model, Driver, Function         string
		Generation                      uint64
		GPUs, Devices, PCI, Render, NIC int
	}
	function := FunctionPhysical
	if s.vf {
		function = FunctionVirtual
	}
	check("node", node{s.model, string(s.node.Driver), function, s.node.Generation, len(list), devices,
		len(list) + unbound, devices + render, s.node.NICs}, node{f.Model, f.Driver.Kind, f.Function, *f.Generation,
		len(f.GPUs), len(f.Devices), len(f.PCIGPUs), *f.RenderNodes, len(f.NICs)})
	if len(f.Unread) > 0 {
		check("unread", nil, f.Unread)
	}
	state := ROCmFound
	if s.node.ROCm == "" {
		state = ROCmNotFound
	}
	check("ROCm", state, f.ROCm.State)
	mode := string(s.node.Partition)
	switch {
	case len(nodetree.Partitions(s.node.Model)) == 0 && (s.node.Model == "MI350P" || s.node.Model == "MI350P VF"):
		mode = Unknown
	case len(nodetree.Partitions(s.node.Model)) == 0:
		mode = NotApplicable
	case s.vf:
		mode += "/" + Unknown
	case s.node.MemoryPartition == "":
		mode += "/NPS1"
	default:
		mode += "/" + s.node.MemoryPartition
	}
	check("partition", mode, f.Partition)
	for i := range f.NICs {
		state, layer := PortActive, LinkEthernet
		for _, down := range s.node.DownNICs {
			if s.nicName(down) == f.NICs[i].Name {
				state = PortDown
			}
		}
		if s.node.NICKind == nodetree.NICInfiniBand {
			layer = LinkInfiniBand
		}
		check("NIC", []string{s.nicName(i), state, layer},
			[]string{f.NICs[i].Name, f.NICs[i].State, f.NICs[i].LinkLayer})
	}
}

// gpuView is what a scan must give back of one GPU.
type gpuView struct {
	Address, DeviceID string
	Nodes             []int
	Minors            []uint64
	Firmware          []uint64
	Hive              int // by the lowest address in it
	NUMA              int
	Width, Speed      int64
	RAS               map[string]nodetree.ErrorCounts
	Retired           int // -1 is not known
	NICPath, NIC      string
	Revision          string
	Status            int64 // -1 is not there
	Residency         map[string]uint64
	Ports             string
}

func (s *scenario) compareGPUs(f *Facts, check checker) {
	nodes := s.nodeNumbers()
	list := s.present()
	if len(list) != len(f.GPUs) {
		return // the count was told
	}
	firstOf := map[int]int{}
	for at, i := range list {
		if _, seen := firstOf[s.hive(i)]; !seen {
			firstOf[s.hive(i)] = at
		}
	}
	for at, i := range list {
		g := &s.node.GPUs[i]
		want := gpuView{Address: g.PCIAddress, DeviceID: f.GPUs[at].DeviceID, Nodes: nodes[i], Hive: -1,
			NUMA: g.NUMANode, Width: 16, Speed: 32000, NICPath: s.nicPath(i), Retired: g.RetiredPages, Status: -1}
		if g.DeviceID != 0 {
			want.DeviceID = fmt.Sprintf("0x%04x", g.DeviceID)
		}
		switch {
		case g.PCIeSpeed != "":
			want.Speed = 2500
		case s.fabric == "bridge" || s.fabric == "hops":
			want.Speed = 16000
		case s.fabric == "newer":
			want.Speed = 64000
		}
		if g.PCIeWidth > 0 {
			want.Width = int64(g.PCIeWidth)
		}
		if h := s.hive(i); h >= 0 {
			want.Hive = firstOf[h]
		}
		step := 1
		if len(nodetree.Partitions(s.node.Model)) > 0 {
			step = 8
		}
		firmware := *f.Devices[0].FWVersion // the model's own, unless that is the one that was changed
		for j := range f.Devices {
			if v := *f.Devices[j].FWVersion; v != 999 {
				firmware = v
			}
		}
		if g.Firmware != 0 {
			firmware = g.Firmware
		}
		for part := range nodes[i] {
			want.Minors = append(want.Minors, uint64(128+i*step+part))
			want.Firmware = append(want.Firmware, firmware)
		}
		if s.vf {
			want.Retired = -1
		} else {
			want.RAS = map[string]nodetree.ErrorCounts{}
			for _, block := range s.blocks {
				c := g.Errors[block]
				if block != "umc" || !s.deferred {
					c.Deferred = 0
				}
				want.RAS[block] = c
			}
		}
		s.wantMetrics(g, &want)
		if own := s.ownNIC(i); own >= 0 && s.place != "guest" {
			want.NIC = s.nicName(own)
		}
		got := s.view(f, at)
		if want.NIC == "" {
			got.NIC = "" // which of the far ones it gets is not the generator's choice
		}
		check("GPU "+g.PCIAddress, want, got)
	}
}

func (s *scenario) wantMetrics(g *nodetree.GPU, want *gpuView) {
	revision := s.revision()
	if revision == 0 {
		return
	}
	want.Revision = fmt.Sprint("1.", revision)
	if revision <= 5 {
		want.Status = int64(g.ThrottleStatus)
	} else {
		want.Residency = map[string]uint64{ThrottleProchot: 0, ThrottlePower: uint64(g.ThrottleResidency["ppt"]),
			ThrottleSocketHot: 0, ThrottleVRHot: 0, ThrottleMemoryHot: uint64(g.ThrottleResidency["hbm_thm"])}
	}
	if revision < 7 {
		return
	}
	for port := range 8 {
		switch {
		case s.vf || port >= s.ports:
			want.Ports += "?"
		case len(g.DownPorts) > 0 && g.DownPorts[0] == port:
			want.Ports += "D"
		default:
			want.Ports += "U"
		}
	}
}

// view puts the facts of a GPU into the same form.
func (s *scenario) view(f *Facts, at int) gpuView {
	g := &f.GPUs[at]
	v := gpuView{Address: g.PCIAddress, DeviceID: g.DeviceID, Nodes: g.Nodes, Hive: -1, NUMA: -1, Width: *g.PCIe.Width,
		Speed: *g.PCIe.SpeedMTps, Retired: -1, NICPath: g.NICPath, NIC: g.NIC, Status: -1}
	if *g.HiveID != 0 {
		for i := range f.GPUs {
			if *f.GPUs[i].HiveID == *g.HiveID {
				v.Hive = i
				break
			}
		}
	}
	if g.NUMANode != nil {
		v.NUMA = int(*g.NUMANode)
	}
	for i := range f.Devices {
		if d := &f.Devices[i]; d.PCIAddress == g.PCIAddress {
			v.Minors, v.Firmware = append(v.Minors, *d.RenderMinor), append(v.Firmware, *d.FWVersion)
		}
	}
	if g.RetiredPages != nil {
		v.Retired = *g.RetiredPages
	}
	for block, c := range g.RAS {
		if v.RAS == nil {
			v.RAS = map[string]nodetree.ErrorCounts{}
		}
		counts := nodetree.ErrorCounts{Uncorrectable: c.Uncorrectable, Correctable: c.Correctable}
		if c.Deferred != nil {
			counts.Deferred = *c.Deferred
		}
		v.RAS[block] = counts
	}
	if m := g.Metrics; m != nil {
		v.Revision, v.Residency = m.Revision, m.ThrottleAccumulators
		if m.ThrottleStatus != nil {
			v.Status = int64(*m.ThrottleStatus)
		}
		for _, port := range m.XGMIPorts {
			v.Ports += map[string]string{XGMIPortUp: "U", XGMIPortDown: "D", XGMIPortUnknown: "?"}[port]
		}
	}
	return v
}

// nodeNumbers are KFD's numbers of each GPU's devices: the CPUs come first, then the GPUs in order.
func (s *scenario) nodeNumbers() [][]int {
	next := map[string]int{"MI250": 4, "MI250X": 1, "MI300A": 4}[s.node.Model]
	if next == 0 {
		next = 2
	}
	nodes := make([][]int, len(s.node.GPUs))
	for i := range s.node.GPUs {
		g := &s.node.GPUs[i]
		if g.Missing || g.Unbound {
			continue
		}
		next += g.NodeGap
		for range s.parts - g.MissingPartitions {
			nodes[i] = append(nodes[i], next)
			next++
		}
	}
	return nodes
}

// compareLinks: the way from each GPU to each other, and what follows for the mesh.
func (s *scenario) compareLinks(f *Facts, check checker) {
	list := s.present()
	if len(list) != len(f.GPUs) {
		return
	}
	links := 0
	for i, a := range list {
		for j, b := range list {
			if i == j {
				continue
			}
			want := s.way(a, b)
			if want == "XGMI" {
				links++
			}
			got := "none"
			if l := f.Mesh.Pairs[i][j]; l != nil {
				got = string(l.Type)
			}
			check(fmt.Sprintf("way from %s to %s", s.address(a), s.address(b)), want, got)
		}
	}
	hives, hiveless := s.hives()
	expected := 0
	for _, n := range hives {
		expected += n * (n - 1)
	}
	state := MeshIncomplete
	switch s.fabric {
	case "none":
		state = MeshNotApplicable
	case "newer":
		state = MeshUnknown
		if links == expected && expected > 0 {
			state = MeshFull
		}
	case "bridge":
		if links == expected {
			state = MeshFull
		}
		if links == 0 && expected == 0 {
			state = MeshNotApplicable
		}
	default:
		due, _ := s.due()
		whole := max(len(list), due)
		direct := true
		for pair, kind := range s.faulty {
			direct = direct && (kind != "two hops" || s.node.GPUs[pair[0]].Missing || s.node.GPUs[pair[1]].Missing)
		}
		if links == whole*(whole-1) && len(hives) == 1 && direct {
			state = MeshFull
		}
		if s.vf && hiveless == len(list) {
			state = MeshUnknown
		}
	}
	check("mesh", fmt.Sprint(state, links, len(hives)), fmt.Sprint(f.Mesh.State, f.Mesh.Links, f.Mesh.Hives))
	want := []int{}
	for _, numbers := range s.nodeNumbers() {
		want = append(want, numbers...)
	}
	got := []int{}
	for i := range f.Devices {
		got = append(got, f.Devices[i].Node)
	}
	sort.Ints(got)
	check("KFD nodes", want, got)
}

// way is what KFD has from a to b.
func (s *scenario) way(a, b int) string {
	if !s.sameHive(a, b) {
		return string(LinkPCIe)
	}
	forward := a < b
	switch kind := s.faulty[[2]int{min(a, b), max(a, b)}]; {
	case kind == "pcie", kind == "one way pcie" && forward:
		return string(LinkPCIe)
	case kind == "none", kind == "one way none" && forward:
		return "none"
	}
	return string(LinkXGMI)
}
