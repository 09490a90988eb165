package discover

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

const (
	notKnown = "?"    // could not be read, or the kernel does not say
	notThere = "none" // there is none
)

// node says what the node is, and what each source counts.
func (t *table) node(f *Facts) {
	t.title("Node")
	gpus := "none"
	if len(f.GPUs) > 0 {
		gpus = fmt.Sprintf("%s (%s), %s", modelsInWords(f), orMark(f.GFXTarget), functionWords(f.Function))
	}
	t.field("GPUs", gpus)
	if len(f.HiddenNodes) > 0 {
		t.field("Hidden", fmt.Sprintf("KFD nodes %s: outside this container's device cgroup, neither absent nor broken",
			ranges(f.HiddenNodes)))
	}
	if len(f.UnreadableNodes) > 0 {
		t.field("Unreadable", fmt.Sprintf("KFD nodes %s", ranges(f.UnreadableNodes)))
	}
	if len(f.GPUs) > 0 {
		partition := strings.ReplaceAll(f.Partition, Unknown, notKnown)
		if f.Partition == NotApplicable {
			partition = "none (this model has no partition modes)"
		}
		if f.PartitionSource == "Derived" {
			partition += " (derived from the compute dies of each device)"
		}
		if n := len(f.Devices); n != len(f.GPUs) {
			partition += fmt.Sprintf("; %d devices, grouped by GPU in the table of GPUs", n)
		}
		t.field("Partition", partition)
		t.field("Modules", modulesWords(f))
	}
	t.field("Counted", countedWords(f))
	if len(f.GPUs) > 0 {
		t.field("xGMI mesh", meshWords(&f.Mesh)+bandwidthWords(&f.Mesh))
		t.field("Hives", hivesWords(f)...)
	}
	t.field("RDMA", rdmaWords(f))
	t.field("Settings",
		"kernel.numa_balancing "+mark(f.Host.NUMABalancing)+" (RCCL wants 0), IOMMU "+iommuWords(f.Host.IOMMU))
	t.line("")
}

func iommuWords(mode string) string {
	switch mode {
	case IOMMUPassthrough:
		return "passthrough yes"
	case IOMMUOff:
		return "off"
	case IOMMUTranslated:
		return "passthrough no (RCCL wants iommu=pt)"
	}
	return notKnown
}

func functionWords(function string) string {
	switch function {
	case FunctionPhysical:
		return "bare metal"
	case FunctionVirtual:
		return "virtual functions"
	case FunctionMixed:
		return "physical and virtual functions"
	}
	return "bare metal or virtual: " + notKnown
}

// modulesWords tells which GPUs share an OAM package.
func modulesWords(f *Facts) string {
	if f.Modules == nil {
		return notKnown
	}
	members := map[int][]int{}
	for i := range f.GPUs {
		if m := f.GPUs[i].Module; m != nil {
			members[*m] = append(members[*m], i)
		}
	}
	if len(members) == 0 {
		return fmt.Sprintf("%d, each GPU is one", *f.Modules)
	}
	var parts []string
	for _, m := range sortedKeys(members) {
		parts = append(parts, "GPU"+ranges(members[m]))
	}
	return fmt.Sprintf("%d, of these GPUs: %s", *f.Modules, strings.Join(parts, " "))
}

// countedWords puts the sources' counts side by side: equal on a healthy node.
func countedWords(f *Facts) string {
	pci := notKnown
	if f.PCIGPUs != nil {
		pci = fmt.Sprint(len(f.PCIGPUs))
	}
	kfd := notKnown
	if f.kfdPresent && f.nodesClass == "" {
		kfd = fmt.Sprint(len(f.GPUs))
		if len(f.Devices) != len(f.GPUs) {
			kfd += fmt.Sprintf(" with %d devices", len(f.Devices))
		}
		if n := len(f.HiddenNodes) + len(f.UnreadableNodes); n > 0 {
			kfd += fmt.Sprintf(" and %d more out of sight", n)
		}
	} else if f.kfdClass == ClassMissing && f.sysClass == "" {
		kfd = notThere
	}
	return fmt.Sprintf("on the PCI bus %s, in KFD %s, render nodes %s", pci, kfd, mark(f.RenderNodes))
}

func bandwidthWords(m *Mesh) string {
	if m.State == MeshNotApplicable {
		return ""
	}
	if m.LinkBandwidthMBps == nil {
		return "; the driver states no bandwidth"
	}
	return fmt.Sprintf("; the driver states %s GB/s for one link", gigabytes(*m.LinkBandwidthMBps))
}

// hiveNumbers counts the hives from 1, in the order of their first GPUs: their own ids are long and say nothing.
func hiveNumbers(gpus []GPU) map[uint64]int {
	numbers := map[uint64]int{}
	for i := range gpus {
		if id := gpus[i].HiveID; id != nil && *id != 0 && numbers[*id] == 0 {
			numbers[*id] = len(numbers) + 1
		}
	}
	return numbers
}

func hivesWords(f *Facts) []string {
	members := hives(f.GPUs)
	lines := make([]string, len(members))
	for id, n := range hiveNumbers(f.GPUs) {
		lines[n-1] = fmt.Sprintf("%d = GPU%s (id 0x%x)", n, ranges(members[id]), id)
	}
	var without, unknown []int
	for i := range f.GPUs {
		switch id := f.GPUs[i].HiveID; {
		case id == nil:
			unknown = append(unknown, i)
		case *id == 0:
			without = append(without, i)
		}
	}
	switch {
	case len(without) == len(f.GPUs):
		return []string{notThere}
	case len(without) > 0:
		lines = append(lines, "none = GPU"+ranges(without))
	}
	if len(unknown) > 0 {
		lines = append(lines, "? = GPU"+ranges(unknown))
	}
	return lines
}

// rdmaWords counts the RDMA devices by the state of their ports.
func rdmaWords(f *Facts) string {
	switch {
	case f.NICs == nil:
		return notKnown
	case len(f.NICs) == 0:
		return notThere
	}
	states := map[string]int{}
	for i := range f.NICs {
		states[f.NICs[i].State]++
	}
	var parts []string
	for _, state := range []string{PortActive, PortInit, PortArmed, PortDown, PortUnknown} {
		if states[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	return fmt.Sprintf("%s: %s", plural("", len(f.NICs), "device"), strings.Join(parts, ", "))
}

// unreadBelow says that something at or below a path is there and could not be read.
func unreadBelow(f *Facts, path string) bool {
	for _, u := range f.Unread {
		if u.Class != ClassMissing && (u.Path == path || strings.HasPrefix(u.Path, path+"/")) {
			return true
		}
	}
	return false
}

// versions: kernel, driver, firmware and user space.
func (t *table) versions(f *Facts) {
	t.title("Versions")
	t.field("Kernel", orMark(f.KernelRelease))
	driver := "amdgpu " + f.Driver.Version + " (" + f.Driver.Kind + ")"
	switch {
	case f.Driver.Kind == DriverUnknown && f.Driver.Version == "":
		driver = notKnown
	case f.Driver.Version == "":
		driver = "amdgpu " + f.Driver.Kind
	}
	if f.Driver.Version == "" && f.Driver.SrcVersion != "" {
		driver += ", srcversion " + f.Driver.SrcVersion
	}
	t.field("Driver", driver)
	if len(f.Devices) > 0 {
		t.field("Firmware", "MEC "+firmwareWords(f, func(d *Device) *uint64 { return d.FWVersion })+
			", SDMA "+firmwareWords(f, func(d *Device) *uint64 { return d.SDMAVersion }))
	}
	t.field("ROCm", rocmWords(f)...)
	for _, library := range []struct{ name, version string }{{"HIP", f.ROCm.HIPVersion}, {"RCCL", f.ROCm.RCCLVersion}} {
		version := orMark(library.version)
		if library.version == "" && f.ROCm.State == ROCmNotFound {
			version = notThere
		}
		t.field(library.name, version)
	}
	t.line("")
}

// firmwareWords is one version, or each with the GPUs that have it.
func firmwareWords(f *Facts, of func(*Device) *uint64) string {
	gpus := map[string][]int{}
	for i := range f.Devices {
		version := mark(of(&f.Devices[i]))
		for g := range f.GPUs {
			if f.GPUs[g].PCIAddress == f.Devices[i].PCIAddress {
				gpus[version] = append(gpus[version], g)
			}
		}
	}
	var parts []string
	for _, version := range sortedKeys(gpus) {
		if len(gpus) == 1 {
			return version
		}
		parts = append(parts, fmt.Sprintf("%s (GPU%s)", version, ranges(gpus[version])))
	}
	return strings.Join(parts, " and ")
}

// rocmWords gives the version and what told it, then what else was found.
func rocmWords(f *Facts) []string {
	var lines []string
	switch f.ROCm.State {
	case ROCmFound:
		lines = append(lines, f.ROCm.Version+" from "+f.ROCm.Source)
	case ROCmNotFound:
		lines = append(lines, "none here; jobs may bring their own in their images")
	case ROCmAmbiguous:
		lines = append(lines, "? several, and none at the usual path:")
	default:
		lines = append(lines, notKnown)
	}
	also := ""
	if f.ROCm.State == ROCmFound {
		also = "also "
	}
	for _, s := range f.ROCm.Sources {
		switch {
		case s.Path == f.ROCm.Source && f.ROCm.State == ROCmFound:
		case s.Version != "":
			lines = append(lines, also+s.Version+" from "+s.Path)
		case s.Error == "":
			lines = append(lines, also+s.Path)
		default:
			lines = append(lines, also+s.Path+": "+s.Error)
		}
	}
	return lines
}

// mark is a number, or "?" where it is not known.
func mark[T int | int32 | int64 | uint64](n *T) string {
	if n == nil {
		return notKnown
	}
	return fmt.Sprint(*n)
}

func orMark(text string) string {
	if text == "" || text == Unknown {
		return notKnown
	}
	return text
}

// ranges writes numbers shortly: 2-9, or 0,2,4-7.
func ranges(numbers []int) string {
	list := append([]int(nil), numbers...)
	sort.Ints(list)
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] <= list[j]+1 {
			j++
		}
		switch list[j] {
		case list[i]:
			parts = append(parts, strconv.Itoa(list[i]))
		case list[i] + 1:
			parts = append(parts, strconv.Itoa(list[i]), strconv.Itoa(list[j]))
		default:
			parts = append(parts, strconv.Itoa(list[i])+"-"+strconv.Itoa(list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func sortedKeys[K int | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// gigabytes writes MB/s as GB/s with what it needs of decimals.
func gigabytes(mbps uint64) string {
	return strings.TrimSuffix(giga(int64(min(mbps, math.MaxInt64))), ".0")
}
