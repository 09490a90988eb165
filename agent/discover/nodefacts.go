package discover

import (
	"bytes"
	"math"
	"sort"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	// FactsBudgetBytes is the most that the facts of a CommNode take, as JSON.
	FactsBudgetBytes = 4608
	maxProblems      = 12 // NodeFacts.problems
	maxGPUs          = 16 // NodeFacts.gpus; also the widest matrix of links
	maxLinkClasses   = 16 // NodeFacts.linkClasses
	maxNICsListed    = 16 // NodeFacts.nics
)

// NodeFacts is the part of the facts that a CommTask carries: what stays the same while nothing changes, so no
// temperature and no bandwidth. It stays within FactsBudgetBytes (see fit), and a last problem says what was left out
// for that.
func (f *Facts) NodeFacts(valid time.Duration) *v1alpha1.NodeFacts {
	out := &v1alpha1.NodeFacts{
		ObservedTime:    metav1.NewTime(f.ObservedTime),
		ValidForSeconds: int32(valid / time.Second),
		Origin:          f.Origin,
		BootID:          cut(f.BootID, 64),
		KernelRelease:   cut(f.KernelRelease, 128),
		Driver: v1alpha1.DriverFacts{Kind: f.Driver.Kind, Version: cut(f.Driver.Version, 64),
			SrcVersion: cut(f.Driver.SrcVersion, 64)},
		ROCm: v1alpha1.ROCmFacts{State: f.ROCm.State, Version: cut(f.ROCm.Version, 64), Source: cut(f.ROCm.Source, 256),
			HIPVersion: cut(f.ROCm.HIPVersion, 64), RCCLVersion: cut(f.ROCm.RCCLVersion, 64)},
		GPUModel:        cut(f.Model, 64),
		GFXTarget:       cut(f.GFXTarget, 64),
		GPUCount:        int32(len(f.GPUs)),
		DeviceCount:     int32(len(f.Devices)),
		ModuleCount:     count(f.Modules),
		RenderNodeCount: count(f.RenderNodes),
		Function:        f.Function,
		Firmware:        firmwareFacts(f),
		RAS:             sumOfRAS(f),
		Partition:       cut(f.Partition, 32),
		XGMI:            xgmiFacts(f),
	}
	if f.pciReadable {
		n := len(f.PCIGPUs)
		out.PCIGPUCount = count(&n)
	}
	addGPUs(out, f)
	for i := range f.NICs {
		n := &f.NICs[i]
		out.NICs = append(out.NICs, v1alpha1.NICFacts{Name: cut(n.Name, 32), Interface: cut(n.Interface, 32),
			LinkLayer: cut(n.LinkLayer, 16), State: cut(n.State, 16), RateMbps: n.RateMbps, NUMANode: n.NUMANode})
	}
	fit(out, f.Problems)
	return out
}

// count is nil where a number is not known.
func count(n *int) *int32 {
	if n == nil {
		return nil
	}
	return ptr.To(int32(*n))
}

func addGPUs(out *v1alpha1.NodeFacts, f *Facts) {
	var rows []string
	if len(f.GPUs) <= maxGPUs {
		out.LinkClasses, rows = linkClasses(f)
	}
	numbers := hiveNumbers(f.GPUs)
	for i := range f.GPUs[:min(len(f.GPUs), maxGPUs)] {
		g := &f.GPUs[i]
		gf := v1alpha1.GPUFacts{PCIAddress: cut(g.PCIAddress, 16), NUMANode: g.NUMANode, Module: count(g.Module),
			NIC: cut(g.NIC, 32), NICPath: g.NICPath}
		if g.Model != f.Model {
			gf.Model = cut(g.Model, 64)
		}
		if mode := partitionName(g); mode != f.Partition {
			gf.Partition = cut(mode, 32)
		}
		if len(g.Nodes) > 1 {
			gf.Devices = int32(len(g.Nodes))
		}
		if g.HiveID != nil {
			gf.Hive = ptr.To(int32(numbers[*g.HiveID])) // 0 for one that is in none
		}
		if g.VRAMBytes != nil {
			gf.VRAMMiB = ptr.To(int64(*g.VRAMBytes >> 20))
		}
		if rows != nil {
			gf.Links = rows[i]
		}
		out.GPUs = append(out.GPUs, gf)
	}
	for _, address := range f.LostGPUs[:min(len(f.LostGPUs), maxGPUs)] {
		out.LostGPUs = append(out.LostGPUs, cut(address, 16))
	}
	addLostLinks(out, f)
}

// addLostLinks marks each lost link at those of its GPUs that are there, as far as these are listed.
func addLostLinks(out *v1alpha1.NodeFacts, f *Facts) {
	at := make(map[string]int, len(out.GPUs)+len(out.LostGPUs))
	for i := range out.GPUs {
		at[f.GPUs[i].PCIAddress] = i
	}
	for i := range out.LostGPUs {
		at[f.LostGPUs[i]] = len(out.GPUs) + i
	}
	rows := make([][]byte, len(out.GPUs))
	mark := func(i, j int) {
		if i >= len(rows) || j >= maxGPUs {
			return
		}
		if n := j + 1 - len(rows[i]); n > 0 { // a row ends with its GPUs, or its last link to a lost one
			rows[i] = append(rows[i], bytes.Repeat([]byte{linkNotLost}, max(n, len(rows)-len(rows[i])))...)
		}
		rows[i][j] = linkLost
	}
	for _, l := range f.LostLinks {
		i, listed := at[l[0]]
		j, alsoListed := at[l[1]]
		if listed && alsoListed {
			mark(i, j)
			mark(j, i)
		}
	}
	for i := range rows {
		out.GPUs[i].LostLinks = string(rows[i])
	}
}

// The characters of GPUFacts.lostLinks.
const (
	linkLost    = 'x'
	linkNotLost = '.'
)

// LostLinks are the pairs of PCI addresses that GPUFacts.lostLinks of the facts name, each link once.
func LostLinks(facts *v1alpha1.NodeFacts) [][2]string {
	var pairs [][2]string
	addresses := make([]string, 0, len(facts.GPUs)+len(facts.LostGPUs))
	for i := range facts.GPUs {
		addresses = append(addresses, facts.GPUs[i].PCIAddress)
	}
	addresses = append(addresses, facts.LostGPUs...)
	for i := range facts.GPUs {
		row := facts.GPUs[i].LostLinks
		for j := i + 1; j < min(len(row), len(addresses)); j++ {
			if row[j] == linkLost {
				pairs = append(pairs, [2]string{addresses[i], addresses[j]})
			}
		}
	}
	return pairs
}

// firmwareFacts is what all devices share; nil where nothing of it is known.
func firmwareFacts(f *Facts) *v1alpha1.FirmwareFacts {
	shared := func(of func(*Device) *uint64) string {
		found := ""
		for i := range f.Devices {
			version := stated(of(&f.Devices[i]))
			if version == nil {
				return "" // what one device does not say is not known to be shared
			}
			text := strconv.FormatUint(*version, 10)
			if len(text) > 16 {
				return "" // microcode has no such version
			}
			if found != "" && found != text {
				found = Mixed
				continue
			}
			found = text
		}
		return found
	}
	fw := v1alpha1.FirmwareFacts{MEC: shared(func(d *Device) *uint64 {
		return d.FWVersion
	}), SDMA: shared(func(d *Device) *uint64 { return d.SDMAVersion })}
	if fw == (v1alpha1.FirmwareFacts{}) {
		return nil
	}
	return &fw
}

// sumOfRAS sums up the error counters of all GPUs; nil where no GPU has any.
func sumOfRAS(f *Facts) *v1alpha1.RASFacts {
	var r v1alpha1.RASFacts
	add := func(sum **int64, n uint64) {
		if *sum == nil {
			*sum = new(int64)
		}
		// A counter that is not plausible must not turn the sum negative.
		**sum = int64(min(uint64(**sum)+min(n, 1<<60), 1<<60))
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		for _, c := range g.RAS {
			add(&r.Uncorrectable, c.Uncorrectable)
			add(&r.Correctable, c.Correctable)
			if c.Deferred != nil {
				add(&r.Deferred, *c.Deferred)
			}
		}
		if g.RetiredPages != nil && *g.RetiredPages >= 0 {
			add(&r.RetiredPages, uint64(*g.RetiredPages))
		}
		if g.rasUnread {
			r.Unreadable++
		}
	}
	if r == (v1alpha1.RASFacts{}) {
		return nil
	}
	return &r
}

// linkClasses names the kinds of link by letters, the most frequent first, and gives each GPU's row of them. A link of
// a kind past the last letter is "?".
func linkClasses(f *Facts) ([]v1alpha1.LinkClass, []string) {
	type kind struct {
		link                     LinkType
		hops                     uint64
		known                    bool
		weight, minMBps, maxMBps uint64
	}
	kindOf := func(l *Link) kind {
		k := kind{link: l.Type, weight: l.Weight, minMBps: ptr.Deref(l.MinBandwidthMBps, 0),
			maxMBps: ptr.Deref(l.MaxBandwidthMBps, 0)}
		if l.Hops != nil {
			k.hops, k.known = *l.Hops, true
		}
		return k
	}
	counts := map[kind]int32{}
	var kinds []kind
	for i := range f.Mesh.Pairs {
		for _, l := range f.Mesh.Pairs[i] {
			if l == nil {
				continue
			}
			k := kindOf(l)
			if counts[k]++; counts[k] == 1 {
				kinds = append(kinds, k)
			}
		}
	}
	sort.SliceStable(kinds, func(i, j int) bool { return counts[kinds[i]] > counts[kinds[j]] })
	kinds = kinds[:min(len(kinds), maxLinkClasses)]
	letters := map[kind]byte{}
	var classes []v1alpha1.LinkClass
	for i, k := range kinds {
		letters[k] = byte('a' + i)
		c := v1alpha1.LinkClass{Letter: string(letters[k]), Type: string(k.link),
			Weight: int32(min(k.weight, math.MaxInt32)), Pairs: counts[k]}
		if k.known {
			c.Hops = ptr.To(int32(min(k.hops, math.MaxInt32)))
		}
		if k.minMBps > 0 {
			c.MinMBps = ptr.To(int64(min(k.minMBps, 1<<40)))
		}
		if k.maxMBps > 0 {
			c.MaxMBps = ptr.To(int64(min(k.maxMBps, 1<<40)))
		}
		classes = append(classes, c)
	}
	rows := make([]string, len(f.GPUs))
	for i := range f.Mesh.Pairs {
		row := make([]byte, len(f.GPUs))
		for j, l := range f.Mesh.Pairs[i] {
			row[j] = '?'
			if i == j {
				row[j] = '-'
			} else if l != nil {
				if letter, ok := letters[kindOf(l)]; ok {
					row[j] = letter
				}
			}
		}
		rows[i] = string(row)
	}
	return classes, rows
}

func xgmiFacts(f *Facts) v1alpha1.XGMIFacts {
	x := v1alpha1.XGMIFacts{Mesh: f.Mesh.State, Hives: int32(f.Mesh.Hives), Links: int32(f.Mesh.Links)}
	if f.Mesh.ExpectedLinks != nil {
		n := int32(*f.Mesh.ExpectedLinks)
		x.ExpectedLinks = &n
	}
	if f.Mesh.LinkBandwidthMBps != nil && *f.Mesh.LinkBandwidthMBps < 1<<40 {
		n := int64(*f.Mesh.LinkBandwidthMBps)
		x.LinkBandwidthMBps = &n
	}
	x.UncorrectableErrors = sumOfAll(f.GPUs, func(g *GPU) *uint64 { return g.XGMIUncorrectableErrors })
	x.CorrectableErrors = sumOfAll(f.GPUs, func(g *GPU) *uint64 { return g.XGMICorrectableErrors })
	return x
}

// sumOfAll adds a counter over all GPUs; nil where any of them does not have it, since a part is not the sum.
func sumOfAll(gpus []GPU, of func(*GPU) *uint64) *int64 {
	if len(gpus) == 0 {
		return nil
	}
	var sum int64
	for i := range gpus {
		n := of(&gpus[i])
		if n == nil || *n > 1<<60 || sum > 1<<60 {
			return nil
		}
		sum += int64(*n)
	}
	return &sum
}
