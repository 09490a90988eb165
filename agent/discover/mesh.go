package discover

import (
	"fmt"
	"sort"
	"strings"
)

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
			if l.MinBandwidthMBps != nil {
				bandwidths[*l.MinBandwidthMBps]++
			}
		}
	}
	m.LinkBandwidthMBps = commonest(bandwidths)
	m.Hives = len(hives(f.GPUs))
	m.ExpectedLinks, m.State = meshState(f, m.Links, expectedGPUs)
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

// expectation is how many GPUs a node should have, and how sure that is.
type expectation struct {
	gpus int
	// evident: a person or the driver's own list of the hive says so, not only what servers of this model usually have.
	evident bool
	source  string
}

func expectGPUs(f *Facts, asked int) expectation {
	if asked > 0 {
		return expectation{gpus: asked, evident: true, source: "asked for"}
	}
	var e expectation
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.model.PlatformGPUs > e.gpus {
			e = expectation{gpus: g.model.PlatformGPUs, source: "that a server of this model has"}
		}
	}
	if n := hiveMembers(f); n >= e.gpus && n > len(f.GPUs) {
		source := "that the driver lists in its hives"
		if absent := f.absentMembers(); len(absent) > 0 {
			source += fmt.Sprintf(" (it has %s, too)", strings.Join(absent[:min(len(absent), 4)], ", "))
		}
		e = expectation{gpus: n, evident: true, source: source}
	}
	return e
}

// hiveMembers counts the GPUs that there should be by the driver's own lists of the hives. A model with one hive has as
// many as its longest list; of the others, each hive has its own.
func hiveMembers(f *Facts) int {
	total, longest, unknown := len(f.GPUs), 0, 0
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.HiveID == nil {
			unknown++ // it may be one that a list has and its hive lacks
		}
		if g.HiveNodes != nil && (g.model.Fabric == fabricMesh || g.model.Fabric == fabricHops) {
			longest = max(longest, *g.HiveNodes)
		}
	}
	if longest > 0 {
		return longest
	}
	lacking := 0
	for _, members := range hives(f.GPUs) {
		listed := 0
		for _, i := range members {
			if n := f.GPUs[i].HiveNodes; n != nil {
				listed = max(listed, *n)
			}
		}
		lacking += max(0, listed-len(members))
	}
	return total + max(0, lacking-unknown)
}

// withoutXGMI says that all GPUs are virtual functions that are in no hive: the hypervisor does not show xGMI to this guest,
// which says nothing of the links (ROCm/rocm-systems#2053).
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
func meshState(f *Facts, links, asked int) (*int, string) {
	n := len(f.GPUs)
	if n == 0 {
		return nil, MeshUnknown
	}
	unread := len(f.HiddenNodes) > 0 || len(f.UnreadableNodes) > 0 || f.linksUnread
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
		if !unread && expected > 0 && links == expected {
			return nil, MeshFull
		}
		return nil, MeshUnknown
	case fabricBridge:
		// Bridges are optional, and hives of four are the product: what counts is that each hive is complete.
		for _, members := range hives(f.GPUs) {
			expected += len(members) * (len(members) - 1)
		}
		if expected == 0 && links == 0 && !unread {
			return &expected, MeshNotApplicable
		}
	default:
		if links == 0 && withoutXGMI(f) {
			return nil, MeshUnknown
		}
		gpus := max(n, expectGPUs(f, asked).gpus)
		expected = gpus * (gpus - 1)
		if gpus == 1 && !unread {
			return &expected, MeshNotApplicable // one GPU has no peer
		}
	}
	switch {
	case unread:
		return &expected, MeshUnknown
	case links == expected && (fab == fabricBridge || len(hives(f.GPUs)) == 1):
		return &expected, MeshFull
	}
	return &expected, MeshIncomplete
}
