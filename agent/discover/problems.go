package discover

import (
	"fmt"
	"sort"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// problemList collects problems in the order of the checks; sorted brings errors to the front.
type problemList []v1alpha1.Problem

// subject is a problem that says only what it is about.
type subject = v1alpha1.Problem

// gpusSubject are the GPUs of these addresses.
func gpusSubject(addresses []string) subject {
	if len(addresses) == 1 {
		return subject{GPU: addresses[0]}
	}
	return subject{GPUs: addresses}
}

func (l *problemList) add(severity, code string, about subject, format string, args ...any) {
	about.Severity, about.Code, about.Message = severity, code, fmt.Sprintf(format, args...)
	*l = append(*l, about)
}

func (l *problemList) error(code string, about subject, format string, args ...any) {
	l.add(v1alpha1.SeverityError, code, about, format, args...)
}

func (l *problemList) warn(code string, about subject, format string, args ...any) {
	l.add(v1alpha1.SeverityWarning, code, about, format, args...)
}

// SortProblems brings Error problems before Warning ones and keeps the order otherwise.
func SortProblems(problems []v1alpha1.Problem) {
	sort.SliceStable(problems, func(i, j int) bool {
		return problems[i].Severity == v1alpha1.SeverityError && problems[j].Severity != v1alpha1.SeverityError
	})
}

// findProblems holds the facts against what a healthy node shows.
func findProblems(f *Facts, expectedGPUs int) []v1alpha1.Problem {
	l := &problemList{}
	checkTree(l, f)
	checkUnread(l, f)
	checkPresence(l, f, expectedGPUs)
	checkUniformity(l, f)
	checkFabric(l, f)
	checkCounters(l, f)
	checkHost(l, f)
	checkVersions(l, f)
	checkNICs(l, f)
	SortProblems(*l)
	return *l
}

// checkTree says why there is no GPU at all, if so: the tree, the driver or the hardware.
func checkTree(l *problemList, f *Facts) {
	if !f.GenerationStable {
		l.warn(v1alpha1.ProblemTopologyUnstable, subject{Path: topologyDir + "/generation_id"},
			"KFD's topology changed during each of %d scans: a GPU is resetting or being repartitioned. "+
				"Wait, then look again.", f.Scans)
	}
	if len(f.GPUs) > 0 || len(f.HiddenNodes) > 0 || len(f.UnreadableNodes) > 0 || !f.GenerationStable {
		return
	}
	switch {
	case f.sysClass != "":
		l.error(v1alpha1.ProblemSysfsUnreadable, subject{Path: "sys"},
			"The tree has no readable sys directory (%s): expected the host's /sys under the root. Mount it there, "+
				"or correct --root.", f.sysClass)
	case f.kfdPresent && f.nodesClass != "":
		l.error(v1alpha1.ProblemSysfsUnreadable, subject{Path: nodesDir},
			"KFD is there, but its nodes cannot be listed (%s). Run the monitor privileged and look at the kernel log.",
			f.nodesClass)
	case f.kfdPresent && len(f.PCIGPUs) > 0:
		l.error(v1alpha1.ProblemNoGPUs, subject{},
			"KFD shows no GPU, but %d are on the PCI bus: the driver did not take them. Look for amdgpu errors in "+
				"the kernel log.", len(f.PCIGPUs))
	case f.kfdPresent:
		l.error(v1alpha1.ProblemNoGPUs, subject{},
			"KFD shows only CPUs: no GPU that the driver supports. Take the node out of the group, or check that its "+
				"GPUs have power and are seated.")
	case f.kfdClass != ClassMissing:
		l.error(v1alpha1.ProblemSysfsUnreadable, subject{Path: topologyDir},
			"KFD's topology cannot be read (%s). Run the monitor privileged and look at the kernel log.", f.kfdClass)
	case f.Driver.Kind == DriverNotLoaded && f.pciReadable && len(f.PCIGPUs) == 0:
		l.error(v1alpha1.ProblemNoGPUs, subject{},
			"The PCI bus has no AMD data-centre GPU, and amdgpu is not loaded. Take the node out of the group.")
	case f.Driver.Kind == DriverNotLoaded:
		l.error(v1alpha1.ProblemDriverNotLoaded, subject{},
			"The amdgpu driver is not loaded%s. Install or load it (modprobe amdgpu), then look at the kernel log.",
			onPCI(f))
	case f.moduleClass == "":
		l.error(v1alpha1.ProblemDriverNotLoaded, subject{},
			"amdgpu is loaded, but KFD is not%s: the compute part failed to start or is not built in "+
				"(CONFIG_HSA_AMD). Look at the kernel log.", onPCI(f))
	case f.pciReadable && len(f.PCIGPUs) == 0:
		l.error(v1alpha1.ProblemNoGPUs, subject{},
			"The PCI bus has no AMD data-centre GPU. Take the node out of the group.")
	case f.pciReadable:
		l.error(v1alpha1.ProblemDriverNotLoaded, subject{},
			"KFD is not there%s: the amdgpu driver did not start. Load it (modprobe amdgpu), then look at the "+
				"kernel log.", onPCI(f))
	default:
		l.error(v1alpha1.ProblemSysfsUnreadable, subject{Path: "sys"},
			"sys has neither KFD, nor the amdgpu module, nor a PCI bus: it is not a host's sysfs. "+
				"Mount the host's /sys under the root.")
	}
}

func onPCI(f *Facts) string {
	if len(f.PCIGPUs) == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d GPUs are on the PCI bus", len(f.PCIGPUs))
}

// checkUnread turns what could not be read into problems, one for each kind of failure, so that 64 files of one hung
// GPU do not push everything else out.
func checkUnread(l *problemList, f *Facts) {
	if n := len(f.HiddenNodes); n > 0 {
		l.error(v1alpha1.ProblemGPUHidden, subject{},
			"%d of KFD's nodes (%s) answer EPERM: these GPUs are hidden from this container by its device cgroup, "+
				"neither absent nor broken. Run privileged or with DRA admin access.", n, joinInts(f.HiddenNodes, 8))
	}
	type group struct {
		class Class
		kind  string
	}
	count := map[group]int{}
	first := map[group]Unread{}
	order := []group{}
	for _, u := range f.Unread {
		g := group{u.Class, unreadKind(u.Path)}
		if g.class == ClassForbidden && g.kind == "KFD" && len(f.HiddenNodes) > 0 {
			continue // told above
		}
		if (g.kind == "sys" || g.kind == "KFD") && len(f.GPUs) == 0 && len(f.UnreadableNodes) == 0 {
			continue // checkTree told it
		}
		if g.kind == "ras" && g.class != ClassTimeout {
			continue // checkErrorFiles tells it
		}
		if (g.class == ClassMissing || g.class == ClassUnsupported) && g.kind != "KFD" {
			continue // an answer of its own: this model or kernel has no such value
		}
		if count[g] == 0 {
			first[g] = u
			order = append(order, g)
		}
		count[g]++
	}
	for _, g := range order {
		u := first[g]
		more := ""
		if count[g] > 1 {
			more = fmt.Sprintf(" (and %d more files)", count[g]-1)
		}
		severity, code, next := unreadProblem(g.class, g.kind)
		l.add(severity, code, subject{Path: u.Path}, "Could not read it%s: %s: %s. %s", more, g.class, u.Message, next)
	}
	checkErrorFiles(l, f)
}

// unreadKind sorts paths by what a reader loses with them.
func unreadKind(path string) string {
	switch {
	case strings.HasPrefix(path, topologyDir):
		return "KFD"
	case strings.Contains(path+"/", "/ras/"):
		return "ras"
	case strings.HasSuffix(path, "_partition"):
		return "partition"
	case strings.HasPrefix(path, rdmaDir), strings.HasPrefix(path, netDir):
		return "NIC"
	case strings.HasPrefix(path, pciDir):
		return "PCI"
	case strings.HasPrefix(path, "proc"), strings.HasPrefix(path, moduleDir):
		return "host"
	}
	return "sys"
}

func unreadProblem(class Class, kind string) (severity, code, next string) {
	severity = v1alpha1.SeverityWarning
	if kind == "KFD" {
		severity = v1alpha1.SeverityError
	}
	switch class {
	case ClassTimeout:
		if kind == "NIC" {
			return severity, v1alpha1.ProblemReadTimeout,
				"A NIC whose firmware hangs blocks its files: look for its driver in the kernel log and reset it."
		}
		return v1alpha1.SeverityError, v1alpha1.ProblemReadTimeout,
			"A GPU that is hung or resetting blocks its files: look at the kernel log and reset it."
	case ClassBusy:
		next = "The GPU is resetting; if that stays, look at the kernel log."
	case ClassForbidden:
		next = "A privileged reader sees this only while a GPU resets: look at the kernel log, or run privileged."
	case ClassMalformed:
		next = "The content is not what a kernel writes: look at the file, and report it if it is right."
	case ClassMissing, ClassUnsupported:
		next = "It was listed and then gone: the GPU disappeared or was set anew while it was read. Look again; " +
			"if that stays, look at the kernel log."
	default:
		next = "Look at the kernel log."
	}
	if kind == "partition" {
		return severity, v1alpha1.ProblemPartitionUnreadable, next
	}
	return severity, v1alpha1.ProblemSysfsUnreadable, next
}

// checkPresence: is every GPU of the PCI bus in KFD, are there as many as expected, and all their partitions?
func checkPresence(l *problemList, f *Facts, asked int) {
	// A hidden or unreadable node may be any of the GPUs on the bus, so then none can be said to be missing; nor where
	// the topology changed while it was read.
	certain := f.GPUsCertain() && f.kfdPresent
	absent := checkBus(l, f, certain)
	if e := expectGPUs(f, asked); certain && len(f.GPUs) > 0 && len(f.GPUs)+absent < e.gpus {
		severity, next := v1alpha1.SeverityWarning, "Look for a GPU that fell off the bus in the kernel log; "+
			"if the node shall have fewer, say so with --expected-gpus."
		if e.evident {
			severity, next = v1alpha1.SeverityError, "Look for a GPU that fell off the bus in the kernel log."
			if e.counted {
				next += " If the node shall have so many, say so with --expected-gpus."
			}
		}
		l.add(severity, v1alpha1.ProblemGPUMissing, subject{}, "%d of the %d GPUs (%s) %s are here. %s",
			len(f.GPUs)+absent, e.gpus, f.Model, e.source, next)
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if certain && g.ExpectedPartitions > 0 && len(g.Nodes) < g.ExpectedPartitions {
			l.error(v1alpha1.ProblemPartitionMissing, subject{GPU: g.PCIAddress},
				"%d of %d partitions: KFD has fewer than mode %s makes. Older kernels allow 64 render nodes in all; "+
					"update the kernel, or reload the driver.", len(g.Nodes), g.ExpectedPartitions, g.ComputePartition)
		}
	}
}

// checkUniformity: one model and one partition mode.
func checkUniformity(l *problemList, f *Facts) {
	if f.Model == Mixed {
		l.error(v1alpha1.ProblemMixedModels, gpusSubject(oddOnes(f.GPUs, func(g *GPU) string { return g.Model })),
			"The GPUs are of different models: %s. RCCL expects one; exclude the node or replace the odd GPU.",
			tally(f.GPUs, func(g *GPU) string { return g.Model }))
	}
	if f.GFXTarget == Mixed && f.Model != Mixed {
		gfx := func(g *GPU) string { return orUnknown(g.GFXTarget) }
		l.error(v1alpha1.ProblemMixedModels, gpusSubject(oddOnes(f.GPUs, gfx)),
			"KFD states different targets for GPUs of one model: %s. Expected one; "+
				"look for the odd GPU in the kernel log, and reload the driver.",
			tally(f.GPUs, gfx))
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		for _, p := range f.PCIGPUs {
			if p.PCIAddress == g.PCIAddress && p.DeviceID != g.DeviceID {
				l.error(v1alpha1.ProblemMixedModels, subject{GPU: g.PCIAddress},
					"The PCI bus says device id %s (%s) and KFD %s (%s) of one GPU. Reload the driver; if it stays, "+
						"replace the GPU.", p.DeviceID, p.Model, g.DeviceID, g.Model)
			}
		}
		if g.ExpectedPartitions > 0 && len(g.Nodes) > g.ExpectedPartitions {
			l.error(v1alpha1.ProblemMixedPartitions, subject{GPU: g.PCIAddress},
				"KFD has %d devices of this GPU, and its mode %s makes %d. It is being repartitioned, "+
					"or the driver is confused: look again; reload the driver if it stays.",
				len(g.Nodes), g.ComputePartition, g.ExpectedPartitions)
		}
	}
	if f.Partition == Mixed {
		l.error(v1alpha1.ProblemMixedPartitions, gpusSubject(oddOnes(f.GPUs, partitionName)),
			"The GPUs are in different partition modes: %s. Set one mode on all (amd-smi set --compute-partition).",
			tally(f.GPUs, partitionName))
	}
	for i := range f.GPUs {
		if g := &f.GPUs[i]; g.model.Fabric == fabricUnknown {
			l.warn(v1alpha1.ProblemUnknownModel, subject{GPU: g.PCIAddress},
				"%s (device id %s, %s) has no expectations in this version%s. Update the operator.",
				g.Model, g.DeviceID, orUnknown(g.GFXTarget), ownHives(f))
			break
		}
	}
	checkFirmware(l, f)
}

// ownHives says how far the hives of GPUs without expectations are complete.
func ownHives(f *Facts) string {
	pairs := 0
	for _, members := range hives(f.GPUs) {
		pairs += len(members) * (len(members) - 1)
	}
	if pairs == 0 {
		return ", and is in no xGMI hive"
	}
	return fmt.Sprintf("; of the %d directed pairs of its own hive, %d have xGMI", pairs, f.Mesh.Links)
}

// oddOnes are the addresses of the GPUs outside the largest group.
func oddOnes(gpus []GPU, of func(*GPU) string) []string {
	counts := map[string]int{}
	for i := range gpus {
		counts[of(&gpus[i])]++
	}
	var odd []string
	most := largest(counts)
	for i := range gpus {
		if of(&gpus[i]) != most && len(odd) < 4 {
			odd = append(odd, gpus[i].PCIAddress)
		}
	}
	return odd
}

func largest(counts map[string]int) string {
	best := ""
	for value, c := range counts {
		if c > counts[best] || (c == counts[best] && (best == "" || value < best)) {
			best = value
		}
	}
	return best
}

// tally is "7 x MI300X, 1 x MI325X".
func tally(gpus []GPU, of func(*GPU) string) string {
	counts := map[string]int{}
	for i := range gpus {
		counts[of(&gpus[i])]++
	}
	return tallyCounts(counts)
}

func tallyCounts(counts map[string]int) string {
	values := make([]string, 0, len(counts))
	for value := range counts {
		values = append(values, value)
	}
	sort.Slice(values, func(i, j int) bool {
		if counts[values[i]] != counts[values[j]] {
			return counts[values[i]] > counts[values[j]]
		}
		return values[i] < values[j]
	})
	for i, value := range values {
		values[i] = fmt.Sprintf("%d x %s", counts[value], value)
	}
	return strings.Join(values, ", ")
}

// checkHost: settings and placement that slow a node down without breaking it.
func checkHost(l *problemList, f *Facts) {
	if n := f.Host.NUMABalancing; n != nil && *n != 0 {
		l.warn(v1alpha1.ProblemNUMABalancing, subject{Path: "proc/sys/kernel/numa_balancing"},
			"It is %d and RCCL wants 0: automatic balancing costs up to half of the bandwidth. "+
				"Set kernel.numa_balancing=0.", *n)
	}
	if len(f.GPUs) == 0 || !f.GPUs[0].model.VF { // RCCL does not look for iommu=pt in a guest
		checkIOMMU(l, f)
	}
	checkROCm(l, f)
	var numa []string
	speeds := map[uint64]int{}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.NUMAUnknown && !g.model.VF {
			numa = append(numa, g.PCIAddress)
		}
		if g.PCIe.SpeedMTps != nil {
			speeds[uint64(*g.PCIe.SpeedMTps)]++
		}
	}
	if len(numa) > 0 {
		l.warn(v1alpha1.ProblemNUMAUnknown, gpusSubject(numa[:min(len(numa), 4)]),
			"The firmware does not say the NUMA node of %d GPUs (numa_node is -1). Enable SRAT in the BIOS, "+
				"or pin ranks by hand.", len(numa))
	}
	usual := commonest(speeds)
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.PCIe.Width != nil && g.PCIe.MaxWidth != nil && *g.PCIe.Width < *g.PCIe.MaxWidth {
			l.warn(v1alpha1.ProblemPCIeDegraded, subject{GPU: g.PCIAddress},
				"PCIe link is x%d, the GPU can x%d. Reseat the GPU or its riser.", *g.PCIe.Width, *g.PCIe.MaxWidth)
		}
		if s, most := g.PCIe.SpeedMTps, g.PCIe.MaxSpeedMTps; s != nil && most != nil && usual != nil && *s < *most &&
			uint64(*s) < *usual {
			l.warn(v1alpha1.ProblemPCIeDegraded, subject{GPU: g.PCIAddress},
				"PCIe link runs at %s GT/s, the GPU can %s and most others here do better. It may be idle; "+
					"look again under load.", giga(*s), giga(*most))
		}
	}
}

func checkROCm(l *problemList, f *Facts) {
	switch f.ROCm.State {
	case ROCmAmbiguous:
		ambiguousROCm(l, f)
	case ROCmFound:
		if s := f.ROCm.passed(); s != nil {
			l.warn(v1alpha1.ProblemROCmUnreadable, subject{Path: s.Path},
				"It could not be read (%s), so the version %s is taken from %s. %s",
				s.Error, f.ROCm.Version, f.ROCm.Source, s.next())
		}
		if texts := f.ROCm.disagreements(); len(texts) > 0 {
			more := ""
			if len(texts) > 2 {
				more = fmt.Sprintf("; and %d more", len(texts)-2)
			}
			l.warn(v1alpha1.ProblemROCmAmbiguous, subject{Path: f.ROCm.rivals[0].Path},
				"%s%s: which one a process loads depends on its search path. Remove what no job uses, or bring both "+
					"to one release.", strings.Join(texts[:min(len(texts), 2)], "; "), more)
		}
	case ROCmUnreadable:
		s := f.ROCm.Sources[0]
		l.warn(v1alpha1.ProblemROCmUnreadable, subject{Path: s.Path}, "No ROCm version could be read: %s. %s",
			s.Error, s.next())
	}
}

// ambiguousROCm: several installations, and no link leads to one of them.
func ambiguousROCm(l *problemList, f *Facts) {
	var versions []string
	cores := true
	for _, s := range f.ROCm.Sources {
		if s.Version != "" {
			cores = cores && (strings.HasPrefix(s.Path, "opt/rocm/core-") || strings.HasPrefix(s.Raw, "amdrocm-core"))
			versions = append(versions, s.Version+" ("+s.Path+")")
		}
	}
	all := strings.Join(versions, ", ")
	switch {
	case f.ROCm.LostLink != "":
		l.warn(v1alpha1.ProblemROCmAmbiguous, subject{Path: f.ROCm.LostLinkPath},
			"Several ROCm installs: %s. Which one is in use is not known here, since %s leads to %s, "+
				"which is not mounted. Look on the host (readlink -f /%s), or remove the others.",
			all, f.ROCm.LostLinkPath, f.ROCm.LostLink, f.ROCm.LostLinkPath)
	case cores:
		l.warn(v1alpha1.ProblemROCmAmbiguous, subject{Path: "opt/rocm"},
			"Several ROCm installs and no opt/rocm/core: %s. The packages make that link with update-alternatives: "+
				"choose the one in use there, or remove the others.", all)
	default:
		l.warn(v1alpha1.ProblemROCmAmbiguous, subject{Path: "opt"},
			"Several ROCm installs and no opt/rocm: %s. Link opt/rocm to the one in use.", all)
	}
}

func checkIOMMU(l *problemList, f *Facts) {
	const slow = "RCCL warns of slow or hanging peer access."
	h := &f.Host
	switch {
	case h.IOMMU != IOMMUTranslated:
	case h.IOMMUSource == iommuDir:
		next := "Add iommu=pt to the kernel's command line and reboot."
		if strings.Contains(h.IOMMUWord, "iommu=pt") {
			next = "The kernel's command line has " + h.IOMMUWord + ": look for iommu in the kernel log."
		}
		l.warn(v1alpha1.ProblemIOMMUNotPassthrough, subject{Path: iommuDir},
			"The IOMMU translates the addresses of %d of %d GPUs (type DMA or DMA-FQ of their groups); "+
				"expected identity. %s %s", len(h.TranslatedGPUs), len(f.GPUs), slow, next)
	default:
		l.warn(v1alpha1.ProblemIOMMUNotPassthrough, subject{Path: cmdlinePath},
			"The kernel's command line takes the IOMMU out of passthrough mode (%s). %s Put iommu=pt in its place "+
				"and reboot.", h.IOMMUWord, slow)
	}
}

// giga writes a number of millions as billions with one decimal.
func giga(millions int64) string { return fmt.Sprintf("%d.%d", millions/1000, millions%1000/100) }

func joinInts(list []int, limit int) string {
	parts := make([]string, 0, limit)
	for i, n := range list {
		if i == limit {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, fmt.Sprint(n))
	}
	return strings.Join(parts, ",")
}
