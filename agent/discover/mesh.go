package discover

import "sort"

// HSA_IOLINKTYPE values (hsakmttypes.h; CRAT_IOLINK_TYPE in kfd_crat.h). Other libraries number them differently.
const (
	ioLinkPCIe = 2
	ioLinkXGMI = 11
)

// weightPerHop is KFD's cost of one xGMI hop (KFD_CRAT_XGMI_WEIGHT in kfd_crat.h). A pair of partitions costs 13 inside
// a GPU and 13+15+13 across GPUs.
const (
	weightPerHop           = 15
	weightAcrossPartitions = 41
)

// buildMesh turns the link records into links between GPU devices and between physical GPUs.
func buildMesh(f *Facts, expectedGPUs int) Mesh {
	gpuOf := map[int]int{}
	for i := range f.GPUs {
		for _, node := range f.GPUs[i].Nodes {
			gpuOf[node] = i
		}
	}
	n := len(f.GPUs)
	f.Links = make([]Link, 0, len(f.linkRecords))
	for _, r := range f.linkRecords {
		if _, ok := gpuOf[r.to]; !ok {
			continue // a link to a CPU, or to a hidden GPU
		}
		if _, ok := gpuOf[r.from]; !ok {
			continue
		}
		f.Links = append(f.Links, newLink(r))
	}
	sort.SliceStable(f.Links, func(i, j int) bool {
		a, b := &f.Links[i], &f.Links[j]
		if a.From != b.From {
			return a.From < b.From
		}
		return a.To < b.To
	})
	m := Mesh{State: MeshUnknown, Pairs: make([][]*Link, n), devicePairs: map[[2]int]int{}}
	cells := make([]*Link, n*n)
	for i := range m.Pairs {
		m.Pairs[i] = cells[i*n : (i+1)*n]
	}
	for i := range f.Links {
		l := &f.Links[i]
		from, to := gpuOf[l.From], gpuOf[l.To]
		if from != to && better(l, m.Pairs[from][to]) {
			m.Pairs[from][to] = l
		}
		if l.Type == LinkXGMI {
			m.devicePairs[[2]int{from, to}]++
		}
	}
	bandwidths := map[uint64]int{}
	for i := range m.Pairs {
		for _, l := range m.Pairs[i] {
			if l == nil || l.Type != LinkXGMI {
				continue
			}
			m.Links++
			if f.GPUs[i].model.Fabric == fabricMesh && l.detour() {
				m.detours++
			}
			if l.MinBandwidthMBps != nil {
				bandwidths[*l.MinBandwidthMBps]++
			}
		}
	}
	m.LinkBandwidthMBps = commonest(bandwidths)
	m.Hives = len(hives(f.GPUs))
	m.ExpectedLinks, m.State = meshState(f, &m, expectedGPUs)
	return m
}

func newLink(r linkRecord) Link {
	l := Link{From: r.from, To: r.to, Type: LinkOther, Weight: r.weight, Indirect: r.indirect,
		MinBandwidthMBps: r.minMBps, MaxBandwidthMBps: r.maxMBps}
	switch r.kind {
	case ioLinkXGMI:
		l.Type = LinkXGMI
		hops := r.weight / weightPerHop
		if r.weight == weightAcrossPartitions {
			hops = 1
			l.Hops = &hops
		} else if r.weight > 0 && r.weight%weightPerHop == 0 {
			l.Hops = &hops
		}
	case ioLinkPCIe:
		l.Type = LinkPCIe
	}
	return l
}

// better prefers xGMI to anything else, then a smaller weight.
func better(a, b *Link) bool {
	if b == nil {
		return true
	}
	if (a.Type == LinkXGMI) != (b.Type == LinkXGMI) {
		return a.Type == LinkXGMI
	}
	return a.Weight < b.Weight
}

// commonest is the value seen most often, the larger of equals; nil for none.
func commonest(counts map[uint64]int) *uint64 {
	var (
		best  uint64
		count int
	)
	for value, c := range counts {
		if c > count || (c == count && value > best) {
			best, count = value, c
		}
	}
	if count == 0 {
		return nil
	}
	return &best
}

// hives lists the GPUs of each xGMI hive by their index.
func hives(gpus []GPU) map[uint64][]int {
	m := map[uint64][]int{}
	for i := range gpus {
		if id := gpus[i].HiveID; id != nil && *id != 0 {
			m[*id] = append(m[*id], i)
		}
	}
	return m
}

// withoutXGMI says that all GPUs are virtual functions that are in no hive: the hypervisor does not show xGMI to this
// guest, which says nothing of the links (ROCm/rocm-systems#2053).
func withoutXGMI(f *Facts) bool {
	for i := range f.GPUs {
		if g := &f.GPUs[i]; !g.model.VF || g.HiveID == nil || *g.HiveID != 0 {
			return false
		}
	}
	return len(f.GPUs) > 1
}

// meshState holds the links against what the model should have. Anything unread makes it Unknown, unless what was read
// is wrong already.
func meshState(f *Facts, m *Mesh, asked int) (*int, string) {
	n := len(f.GPUs)
	if n == 0 {
		return nil, MeshUnknown
	}
	unread := !f.LinksCertain()
	fab := f.GPUs[0].model.Fabric
	for i := range f.GPUs {
		if f.GPUs[i].HiveID == nil && f.GPUs[i].model.Fabric != fabricNone {
			unread = true // a cut file, or a kernel from before hives
		}
		if f.GPUs[i].model.Fabric != fab {
			return nil, MeshUnknown
		}
	}
	expected := 0
	switch fab {
	case fabricNone:
		return &expected, MeshNotApplicable
	case fabricUnknown:
		for _, members := range hives(f.GPUs) {
			expected += len(members) * (len(members) - 1)
		}
		if !unread && expected > 0 && m.Links == expected {
			return nil, MeshFull
		}
		return nil, MeshUnknown
	case fabricBridge:
		// Bridges are optional, and hives of four are the product: what counts is that each hive is complete.
		for _, members := range hives(f.GPUs) {
			expected += len(members) * (len(members) - 1)
		}
		if expected == 0 && m.Links == 0 && !unread {
			return &expected, MeshNotApplicable
		}
	default:
		if m.Links == 0 && withoutXGMI(f) {
			return nil, MeshUnknown
		}
		gpus := max(n, expectGPUs(f, asked).gpus)
		expected = gpus * (gpus - 1)
		if gpus == 1 && !unread {
			return &expected, MeshNotApplicable // one GPU has no peer
		}
	}
	switch {
	case f.GenerationStable && provenIncomplete(f, m):
		return &expected, MeshIncomplete
	case unread, fab == fabricMesh && oddWeight(m):
		return &expected, MeshUnknown
	case m.Links == expected && (fab == fabricBridge || len(hives(f.GPUs)) == 1):
		return &expected, MeshFull
	}
	return &expected, MeshIncomplete
}

// provenIncomplete says that what was read is wrong, whatever the rest may say: a way between two GPUs of a hive that
// is not xGMI or, in a full mesh, not direct; or two hives where the model has one.
func provenIncomplete(f *Facts, m *Mesh) bool {
	if m.detours > 0 || f.GPUs[0].model.Fabric != fabricBridge && len(hives(f.GPUs)) > 1 {
		return true
	}
	for i := range m.Pairs {
		for j, link := range m.Pairs[i] {
			if i != j && f.sameHive(i, j) && !isXGMI(link) && f.linksRead(i) {
				return true
			}
		}
	}
	return false
}

// sameHive says that two GPUs are known to be in one hive.
func (f *Facts) sameHive(i, j int) bool {
	a, b := f.GPUs[i].HiveID, f.GPUs[j].HiveID
	return a != nil && b != nil && *a != 0 && *a == *b
}

// detour: the firmware takes several hops, or knows no way (weight 0).
func (l *Link) detour() bool { return l.Weight == 0 || l.Hops != nil && *l.Hops > 1 }

// oddWeight: some weight of a mesh tells no number of hops, so that it is not known to be direct.
func oddWeight(m *Mesh) bool {
	for i := range m.Pairs {
		for _, link := range m.Pairs[i] {
			if isXGMI(link) && link.Hops == nil {
				return true
			}
		}
	}
	return false
}
