package discover

import (
	"fmt"
	"sort"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// checkFabric holds hives and links against the model: one hive, symmetric links, xGMI between all GPUs of a hive, the
// weight of the product, and no bandwidth outlier within the node.
func checkFabric(l *problemList, f *Facts) {
	checkLinkFiles(l, f)
	if !f.GenerationStable {
		return // hives and links are of different moments
	}
	if len(f.GPUs) < 2 || f.Model == Mixed && !sameFabric(f.GPUs) {
		return
	}
	groups := hives(f.GPUs)
	hiveless := 0
	for i := range f.GPUs {
		if id := f.GPUs[i].HiveID; id != nil && *id == 0 {
			hiveless++
		}
	}
	switch f.GPUs[0].model.Fabric {
	case fabricNone, fabricUnknown:
		return // checkUniformity says how far the hive of an unknown model is complete
	case fabricBridge:
		// Two hives of four on a server of eight cards are the product, and a card without a bridge works over PCIe.
		if len(groups) == 0 && f.Mesh.Links == 0 && hiveless > 0 {
			l.warn(v1alpha1.ProblemXGMIBridgeAbsent, subject{},
				"No GPU (%s) is in an xGMI hive: no bridge is fitted, or it does not work. "+
					"Expected only PCIe bandwidth; check the bridges if there are any.",
				modelsInWords(f))
			return
		}
		if len(groups) > 0 && hiveless > 0 {
			l.warn(v1alpha1.ProblemXGMIBridgeAbsent, gpusSubject(hivelessGPUs(f.GPUs)),
				"%d of %d GPUs are in no xGMI hive, where the others are: a bridge is not fitted, "+
					"or it does not work. Expected only PCIe bandwidth to these; check the bridges.",
				hiveless, len(f.GPUs))
		}
	default:
		if f.Mesh.Links == 0 && withoutXGMI(f) {
			l.warn(v1alpha1.ProblemXGMINotInitialised, subject{},
				"No hive and no xGMI link among %d virtual functions (%s): "+
					"the hypervisor does not show xGMI to this guest, so its state is not known. "+
					"Assign functions of different GPUs of one hive, or expect PCIe bandwidth.",
				len(f.GPUs), f.Model)
			return
		}
		if hiveless == len(f.GPUs) && f.Mesh.Links == 0 {
			l.error(v1alpha1.ProblemXGMINotInitialised, subject{},
				"xGMI is not initialised on any of the %d GPUs (%s): no hive and no link, where this model "+
					"has one hive. Look for \"XGMI: Failed to\" in the kernel log; power-cycle the node.",
				len(f.GPUs), f.Model)
			return
		}
		if len(groups) > 1 || (hiveless > 0 && len(groups) == 1) {
			l.error(v1alpha1.ProblemHiveSplit, subject{},
				"%d xGMI hives%s where this model (%s) has 1: %s. Look for \"XGMI: Add node\" in the kernel log; "+
					"power-cycle the node.", len(groups), hivelessText(hiveless), f.Model, describeHives(f, groups))
		}
	}
	checkPairs(l, f, groups)
	checkBandwidth(l, f)
}

func sameFabric(gpus []GPU) bool {
	for i := range gpus {
		if gpus[i].model.Fabric != gpus[0].model.Fabric {
			return false
		}
	}
	return true
}

// hivelessGPUs are the first few GPUs that are in no hive.
func hivelessGPUs(gpus []GPU) []string {
	var list []string
	for i := range gpus {
		if id := gpus[i].HiveID; id != nil && *id == 0 && len(list) < 4 {
			list = append(list, gpus[i].PCIAddress)
		}
	}
	return list
}

func hivelessText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d GPUs in none", n)
}

// describeHives is "4 + 4 GPUs", with the addresses of the smallest hive where that is telling.
func describeHives(f *Facts, groups map[uint64][]int) string {
	sizes := make([][]int, 0, len(groups))
	for _, members := range groups {
		sizes = append(sizes, members)
	}
	sort.Slice(sizes, func(i, j int) bool {
		if len(sizes[i]) != len(sizes[j]) {
			return len(sizes[i]) > len(sizes[j])
		}
		return sizes[i][0] < sizes[j][0]
	})
	text := ""
	for i, members := range sizes {
		if i > 0 {
			text += " + "
		}
		text += fmt.Sprint(len(members))
	}
	text += " GPUs"
	if last := sizes[len(sizes)-1]; len(last) <= 2 && len(sizes) > 1 {
		text += ", apart: " + f.GPUs[last[0]].PCIAddress
	}
	return text
}

// checkLinkFiles reports links whose node_from is not the node that they lie under.
func checkLinkFiles(l *problemList, f *Facts) {
	for _, r := range f.linkRecords {
		if r.directoryMismatch {
			l.warn(v1alpha1.ProblemLinkInconsistent, subject{Path: fmt.Sprintf("%s/%d", nodesDir, r.from)},
				"A link of this node says that it starts at node %d; the directory is believed. The topology may "+
					"have been changing: look again.", r.claimedFrom)
			return
		}
	}
}

// checkPairs looks at each two GPUs of a hive once. Where links of a GPU could not be read, those that are not there
// may be among them, and Unread says which files; what was read counts all the same.
func checkPairs(l *problemList, f *Facts, groups map[uint64][]int) {
	views := newViewCheck(f)
	for i := range f.GPUs {
		if f.linksRead(i) {
			checkPartitions(l, f, i)
		}
		for j := i + 1; j < len(f.GPUs); j++ {
			a, b := &f.GPUs[i], &f.GPUs[j]
			there, back := f.Mesh.Pairs[i][j], f.Mesh.Pairs[j][i]
			name := subject{GPU: a.PCIAddress, PeerGPU: b.PCIAddress}
			if !f.sameHive(i, j) {
				// Across hives PCIe is all there can be; a GPU with an unread hive was reported.
				continue
			}
			xThere, xBack := isXGMI(there), isXGMI(back)
			openThere, openBack := !xThere && !f.linksRead(i), !xBack && !f.linksRead(j)
			switch {
			case openThere && openBack:
			case openThere || openBack:
				checkHalf(l, name, a, b, there, back, openThere)
			case xThere != xBack:
				from, to := a, b
				if xBack {
					from, to = b, a
				}
				l.error(v1alpha1.ProblemLinkAsymmetric, name,
					"xGMI leads from %s to %s but not back; expected both ways: the side of %s is down. Reload the "+
						"driver; if it stays, the link is broken.", from.PCIAddress, to.PCIAddress, to.PCIAddress)
			case !xThere && (there != nil || back != nil):
				l.error(v1alpha1.ProblemPCIeInsteadOfXGMI, name,
					"This pair reaches each other only over PCIe; expected xGMI within a hive of %d. "+
						"The link is down: look for XGMI in the kernel log; power-cycle the node.",
					len(groups[*a.HiveID]))
			case !xThere:
				l.error(v1alpha1.ProblemLinkMissing, name,
					"KFD has no link between these GPUs; expected xGMI within a hive of %d. "+
						"Look for XGMI in the kernel log; power-cycle the node.",
					len(groups[*a.HiveID]))
			case checkSymmetry(l, name, a, b, there, back):
			default:
				checkWeight(l, name, a, b, there)
				if back.Weight != there.Weight { // stated by different rules, see sameMode
					checkWeight(l, name, b, a, back)
				}
				if f.linksRead(i) && f.linksRead(j) {
					checkDevicePairs(l, f, name, i, j)
				}
				views.add(name, i, j)
			}
		}
	}
	views.report(l)
}

// checkHalf looks at a pair of which one direction may be unread: the other alone can be wrong.
func checkHalf(l *problemList, name subject, a, b *GPU, there, back *Link, openThere bool) {
	from, to, link := a, b, there
	if openThere {
		from, to, link = b, a, back
	}
	const next = "The other direction could not be read. Look for XGMI in the kernel log; power-cycle the node."
	switch {
	case isXGMI(link):
		checkWeight(l, name, from, to, link)
	case link != nil:
		l.error(v1alpha1.ProblemPCIeInsteadOfXGMI, name,
			"Only PCIe leads from %s to %s; expected xGMI within their hive. %s", from.PCIAddress, to.PCIAddress, next)
	default:
		l.error(v1alpha1.ProblemLinkMissing, name, "KFD has no link from %s to %s; expected xGMI within their hive. %s",
			from.PCIAddress, to.PCIAddress, next)
	}
}

// sameMode says that KFD's figures of two GPUs can be compared. Of an unpartitioned GPU it states hops and bandwidths
// as the firmware has them, of a partition constants (kfd_crat.c, kfd_fill_gpu_xgmi_link_to_gpu).
func sameMode(a, b *GPU) bool {
	return a.ComputePartition == b.ComputePartition && a.partitioned() == b.partitioned()
}

// checkSymmetry compares the two directions of a pair: weights, and the bandwidths where both are stated. It says
// whether it found a difference.
func checkSymmetry(l *problemList, name subject, a, b *GPU, there, back *Link) bool {
	if !sameMode(a, b) {
		return false
	}
	if there.Weight != back.Weight {
		l.error(v1alpha1.ProblemLinkAsymmetric, name,
			"xGMI has weight %d from %s to %s and %d back; expected the same both ways (15 a hop). The firmware "+
				"routes one direction over another GPU: look for XGMI in the kernel log; power-cycle the node.",
			there.Weight, a.PCIAddress, b.PCIAddress, back.Weight)
		return true
	}
	if differ(there.MaxBandwidthMBps, back.MaxBandwidthMBps) || differ(there.MinBandwidthMBps, back.MinBandwidthMBps) {
		l.error(v1alpha1.ProblemLinkAsymmetric, name,
			"The driver states %s MB/s of xGMI (one link to all links) from %s to %s and %s back; "+
				"expected the same both ways: the slower side trained narrow or slow. Power-cycle the node; "+
				"if it stays, replace the GPU.", stateRange(there), a.PCIAddress, b.PCIAddress, stateRange(back))
		return true
	}
	return false
}

func differ(a, b *uint64) bool { return a != nil && b != nil && *a != *b }

// stateRange is "64000 to 64000", or "?" for what the driver does not state.
func stateRange(l *Link) string {
	text := func(n *uint64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	return text(l.MinBandwidthMBps) + " to " + text(l.MaxBandwidthMBps)
}

// checkDevicePairs: each partition of a GPU must reach each partition of the other.
func checkDevicePairs(l *problemList, f *Facts, name subject, i, j int) {
	want := len(f.GPUs[i].Nodes) * len(f.GPUs[j].Nodes)
	have := min(f.Mesh.devicePairs[[2]int{i, j}], f.Mesh.devicePairs[[2]int{j, i}])
	if have < want {
		l.error(v1alpha1.ProblemLinkMissing, name,
			"KFD has xGMI between %d of %d pairs of their partitions; expected all of them. Reload the driver, "+
				"or set the partition mode again.", have, want)
	}
}

// checkPartitions: the partitions of one GPU reach each other inside of it.
func checkPartitions(l *problemList, f *Facts, i int) {
	g := &f.GPUs[i]
	want, have := len(g.Nodes)*(len(g.Nodes)-1), f.Mesh.devicePairs[[2]int{i, i}]
	if have < want && g.model.Fabric == fabricMesh {
		l.error(v1alpha1.ProblemLinkMissing, subject{GPU: g.PCIAddress},
			"KFD has %d of %d links between the partitions of this GPU; expected all of them. Reload the driver, "+
				"or set the partition mode again.", have, want)
	}
}

// partitioned also holds for a GPU of which KFD has one partition left.
func (g *GPU) partitioned() bool { return len(g.Nodes) > 1 || g.ExpectedPartitions > 1 }

// maybePartitioned also holds for a GPU that can have a mode, where that is not known.
func (g *GPU) maybePartitioned() bool {
	return g.partitioned() || g.ComputePartition == "" && g.model.partitionable()
}

func isXGMI(l *Link) bool { return l != nil && l.Type == LinkXGMI }

// checkWeight holds an xGMI weight against the product's: one hop in a mesh, any whole number of hops elsewhere.
func checkWeight(l *problemList, name subject, g, peer *GPU, link *Link) {
	switch {
	case link.Weight == weightPerHop, link.Weight == weightAcrossPartitions &&
		(g.maybePartitioned() || peer.maybePartitioned()):
	case g.model.Fabric != fabricMesh && link.Hops != nil: // a real MI250 has 45 where the shortest way has two hops
	case link.Weight == 0:
		l.error(v1alpha1.ProblemLinkWeight, name,
			"xGMI link has weight 0; expected 15 a hop: the firmware knows no way between these GPUs. "+
				"Look for XGMI in the kernel log; power-cycle the node.")
	case link.Hops != nil && *link.Hops > 1:
		l.error(v1alpha1.ProblemLinkWeight, name,
			"xGMI takes %d hops (weight %d); expected a direct link (weight 15) on %s. The direct link is down: "+
				"look for XGMI in the kernel log.", *link.Hops, link.Weight, g.Model)
	default:
		l.warn(v1alpha1.ProblemLinkWeight, name,
			"xGMI link has weight %d; expected 15 for one hop. The driver may count differently: measure this pair.",
			link.Weight)
	}
}

// checkBandwidth compares the links between GPUs of one mode with each other, never with a constant: drivers have
// written 50000 and 64000 for the same hardware, and 0 for "not known". Fabrics other than a mesh have different
// numbers of links for each pair.
func checkBandwidth(l *problemList, f *Facts) {
	if f.GPUs[0].model.Fabric != fabricMesh {
		return
	}
	counts := map[string]map[uint64]int{} // by mode
	for i := range f.Mesh.Pairs {
		mode := f.GPUs[i].ComputePartition
		for j, link := range f.Mesh.Pairs[i] {
			if isXGMI(link) && link.MaxBandwidthMBps != nil && sameMode(&f.GPUs[i], &f.GPUs[j]) {
				if counts[mode] == nil {
					counts[mode] = map[uint64]int{}
				}
				counts[mode][*link.MaxBandwidthMBps]++
			}
		}
	}
	for i := range f.Mesh.Pairs {
		usual := commonest(counts[f.GPUs[i].ComputePartition])
		for j := i + 1; usual != nil && j < len(f.Mesh.Pairs); j++ {
			if !sameMode(&f.GPUs[i], &f.GPUs[j]) {
				continue
			}
			there, back := f.Mesh.Pairs[i][j], f.Mesh.Pairs[j][i]
			if isXGMI(there) && isXGMI(back) && differ(there.MaxBandwidthMBps, back.MaxBandwidthMBps) {
				continue // told as asymmetric
			}
			for _, link := range []*Link{there, back} {
				if isXGMI(link) && link.MaxBandwidthMBps != nil && *link.MaxBandwidthMBps < *usual {
					l.error(v1alpha1.ProblemLinkBandwidth,
						subject{GPU: f.GPUs[i].PCIAddress, PeerGPU: f.GPUs[j].PCIAddress},
						"The driver states %d MB/s for this xGMI link and %d for the others of this node: "+
							"it trained narrow or slow. Power-cycle the node; if it stays, replace the GPU.",
						*link.MaxBandwidthMBps, *usual)
					break
				}
			}
		}
	}
}
