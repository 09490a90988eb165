// Package nodetree writes a simulated node: a directory that holds sys/, proc/ and opt/rocm/ as the kernel and a ROCm
// installation write them on a host with AMD Instinct GPUs, and simrocm.conf, which marks it as simulated and tells the
// simulated library what to be. The files follow drivers/gpu/drm/amd (amdkfd/kfd_topology.c, amdgpu) and public dumps.
package nodetree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// PartitionMode is how a GPU is split into devices.
type PartitionMode string

// The partition modes: one, two, three or four partitions, or one for each compute die.
const (
	SPX PartitionMode = "SPX"
	DPX PartitionMode = "DPX"
	TPX PartitionMode = "TPX"
	QPX PartitionMode = "QPX"
	CPX PartitionMode = "CPX"
)

// Driver is how amdgpu came into the kernel; the module's files differ.
type Driver string

// The kinds of driver.
const (
	// DriverDKMS is AMD's package: a module with a version file.
	DriverDKMS Driver = "DKMS"
	// DriverInTree is the kernel's own module, which has no version file.
	DriverInTree Driver = "InTree"
	// DriverBuiltIn is compiled into the kernel: neither version nor initstate.
	DriverBuiltIn Driver = "BuiltIn"
)

// LinkKind is what joins a pair of GPUs.
type LinkKind string

// The kinds of link.
const (
	LinkXGMI LinkKind = "xgmi"
	LinkPCIe LinkKind = "pcie" // the pair reaches each other only through the CPUs (p2p_links type 2)
	LinkNone LinkKind = "none" // KFD lists no link at all
)

// Link is a pair of GPUs that differs from what the model has.
type Link struct {
	// A and B are GPU ordinals, in the order of Node.GPUs.
	A, B int
	Kind LinkKind
	// OneWay limits it to the way from A to B; the way back stays as the model has it.
	OneWay bool
	// DriverOnly: the driver's own lists (xgmi_num_hops, xgmi_num_links) have it, and KFD has what the model has. KFD
	// makes one direction of a link from the other, so a link that is up on one side only looks like this.
	DriverOnly bool
	// BandwidthMBps that KFD reports for all links of the pair; 0 means as the model. Only for xGMI.
	BandwidthMBps int64
	// Hops over xGMI; 0 means as the model.
	Hops int
}

// ErrorCounts are what a ras/<block>_err_count counts since the driver was loaded.
type ErrorCounts struct {
	Uncorrectable, Correctable uint64
	// Deferred shows only where the block counts them: umc on MI300 and newer.
	Deferred uint64
}

// GPU is one physical GPU.
type GPU struct {
	// PCIAddress is domain:bus:device.function in lower case.
	PCIAddress string
	// NUMANode; -1 where the firmware does not say.
	NUMANode int
	// UniqueID 0 is one derived from the name; virtual functions have none.
	UniqueID uint64
	// DeviceID 0 is the model's.
	DeviceID uint64
	// Firmware version of the compute engine (MEC); 0 is the model's.
	Firmware uint64
	// Hive is the number of its xGMI hive from 1, -1 for in none, 0 as the model has it. Pairs of two hives, or of
	// none, reach each other over PCIe.
	Hive int
	// Missing GPUs fell off the bus: no file speaks of them. The others keep their slots and hives.
	Missing bool
	// Unbound GPUs are on the PCI bus, but the driver failed on them: KFD does not have them.
	Unbound bool
	// BoundTo is another driver that has an unbound GPU, for example vfio-pci.
	BoundTo string
	// MissingPartitions are so many of the last ones that KFD lacks.
	MissingPartitions int
	// NodeGap is how many of KFD's node numbers are left out before the GPU's.
	NodeGap int
	// NoRenderNode: DRM has no render node for it.
	NoRenderNode bool
	// PCIeWidth is the number of lanes in use; 0 means 16. PCIeSpeed is the text of its speed; "" means the most.
	PCIeWidth int
	PCIeSpeed string
	// Errors by RAS block, for example umc. Blocks that the model does not have are refused.
	Errors map[string]ErrorCounts
	// RetiredPages of its memory.
	RetiredPages int
	// ThrottleStatus is gpu_metrics' mask of present causes, on revisions up to 1.5.
	ThrottleStatus uint32
	// ThrottleResidency counts by cause (prochot, ppt, socket_thm, vr_thm, hbm_thm), on revisions from 1.6.
	ThrottleResidency map[string]uint32
	// DownPorts are xGMI ports that gpu_metrics states as down, from 0.
	DownPorts []int
}

// NICKind is the make of the RDMA devices.
type NICKind string

// The makes.
const (
	NICEthernet   NICKind = "Ethernet"   // ConnectX-7, RoCE
	NICInfiniBand NICKind = "InfiniBand" // ConnectX
	NICBroadcom   NICKind = "Broadcom"   // Thor 2, RoCE
	NICPensando   NICKind = "Pensando"   // Pollara, RoCE
)

// Node is a simulated node. Defaults gives a healthy one.
type Node struct {
	Name  string
	Model string
	GPUs  []GPU
	// Partition mode of every GPU; empty means SPX.
	Partition PartitionMode
	// MemoryPartition mode of every GPU; empty means NPS1 where the model has it.
	MemoryPartition string
	Links           []Link
	// Generation of KFD's topology; 0 means 2.
	Generation uint64
	// ROCm is the text of opt/rocm/.info/version; empty means that the host has no ROCm.
	ROCm string
	// Driver and DriverVersion of amdgpu. Only DKMS shows its version.
	Driver        Driver
	DriverVersion string
	KernelRelease string
	KernelCommand string
	// NUMABalancing is kernel.numa_balancing; RCCL wants 0.
	NUMABalancing int
	// LockedMemoryBytes is the limit of a process on memory that it locks; 0 means none.
	LockedMemoryBytes int64
	// BootID is the kernel's random boot id; empty means one derived from the name.
	BootID string
	// NICs is the number of RDMA devices, NICKind their make, DownNICs the ordinals of those whose port is down.
	NICs     int
	NICKind  NICKind
	DownNICs []int
	// MetricsRevision of gpu_metrics, for example 1.7; empty means the model's. "none": no such file.
	MetricsRevision string
	// Flavor whose gates the simulated library follows.
	Flavor string
	// Fault of the simulated library, as simrocm.conf takes it; empty means none.
	Fault string
}

// Models lists the models that Defaults knows.
func Models() []string {
	names := make([]string, 0, len(products))
	for i := range products {
		names = append(names, products[i].name)
	}
	return names
}

// Defaults gives a healthy node of a model: its usual number of GPUs, the driver and ROCm that support it. The name is
// empty; the caller sets it.
func Defaults(model string) (Node, error) {
	p, err := productOf(model)
	if err != nil {
		return Node{}, err
	}
	n := Node{
		Model:         p.name,
		Partition:     SPX,
		ROCm:          p.rocm,
		Driver:        DriverDKMS,
		DriverVersion: p.driver,
		KernelRelease: "6.8.0-60-generic",
		KernelCommand: "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro pci=realloc=off iommu=pt " +
			"numa_balancing=disable",
		NICs:    p.nicCount(),
		NICKind: p.nicKind(),
		Flavor:  "rcclx-dev",
	}
	for i, address := range p.addresses {
		n.GPUs = append(n.GPUs, GPU{PCIAddress: address, NUMANode: i * p.sockets / len(p.addresses)})
	}
	return n, nil
}

// validate checks what Write relies on, and fills in what is derived from the name.
func (n *Node) validate() (*product, error) {
	p, err := productOf(n.Model)
	if err != nil {
		return nil, err
	}
	if n.Name == "" {
		return nil, fmt.Errorf("a simulated node needs a name")
	}
	if strings.ContainsAny(n.Name+n.Fault+n.Flavor, "\n#=") {
		return nil, fmt.Errorf("node %q: name, flavor and fault must not contain '#', '=' or a line break", n.Name)
	}
	if n.Partition == "" {
		n.Partition = SPX
	}
	if n.Partition != SPX && !slices.Contains(p.computeModes(), n.Partition) {
		return nil, fmt.Errorf("node %q: %s has no partition mode %q", n.Name, p.name, n.Partition)
	}
	switch {
	case n.MemoryPartition == "" && p.memoryModes != "":
		n.MemoryPartition = "NPS1"
	case n.MemoryPartition != "" &&
		(!slices.Contains(p.memoryPartitions(), n.MemoryPartition) || !p.fits(n.Partition, n.MemoryPartition)):
		return nil, fmt.Errorf("node %q: %s has no memory partition mode %q with %s",
			n.Name, p.name, n.MemoryPartition, n.Partition)
	}
	if n.MetricsRevision == "" {
		n.MetricsRevision = p.metrics
	}
	if n.MetricsRevision != NoMetrics && metricsLayouts[n.MetricsRevision] == nil &&
		n.MetricsRevision != attributeRevision {
		return nil, fmt.Errorf("node %q: gpu_metrics revision %q is not known", n.Name, n.MetricsRevision)
	}
	if n.NICKind == "" {
		n.NICKind = p.nicKind()
	}
	if _, known := nicMakes[n.NICKind]; !known {
		return nil, fmt.Errorf("node %q: NIC kind %q is not known", n.Name, n.NICKind)
	}
	if most := len(p.nicSlots()); n.NICs < 0 || n.NICs > most {
		return nil, fmt.Errorf("node %q: %d NICs, but %s has room for %d", n.Name, n.NICs, p.name, most)
	}
	for _, i := range n.DownNICs {
		if i < 0 || i >= n.NICs {
			return nil, fmt.Errorf("node %q: NIC %d is down, but there are %d", n.Name, i, n.NICs)
		}
	}
	n.GPUs = slices.Clone(n.GPUs)
	for i := range n.GPUs {
		if err := n.GPUs[i].complete(n, p); err != nil {
			return nil, fmt.Errorf("node %q: GPU %d: %w", n.Name, i, err)
		}
	}
	for _, l := range n.Links {
		if l.A == l.B || min(l.A, l.B) < 0 || max(l.A, l.B) >= len(n.GPUs) {
			return nil, fmt.Errorf("node %q: link %d-%d, but GPUs are 0 to %d", n.Name, l.A, l.B, len(n.GPUs)-1)
		}
	}
	if n.BootID == "" {
		a, b := n.number("boot a"), n.number("boot b")
		n.BootID = fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
			a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
	}
	return p, nil
}

// number derives a number that is the same in every run and differs between nodes.
func (n *Node) number(what string) uint64 {
	sum := sha256.Sum256([]byte(n.Name + "\x00" + what))
	return binary.BigEndian.Uint64(sum[:])
}

// complete checks a GPU and fills in what is left to the model.
func (g *GPU) complete(n *Node, p *product) error {
	if _, err := parsePCI(g.PCIAddress); err != nil {
		return err
	}
	if g.UniqueID == 0 && !p.vf {
		g.UniqueID = n.number("gpu " + g.PCIAddress)
	}
	if g.DeviceID == 0 {
		g.DeviceID = p.deviceID
	}
	if g.Firmware == 0 {
		g.Firmware = p.firmware
	}
	if g.PCIeWidth == 0 {
		g.PCIeWidth = 16
	}
	if g.PCIeSpeed == "" {
		g.PCIeSpeed = p.pcieSpeed
	}
	if g.MissingPartitions < 0 || g.MissingPartitions >= n.parts(p) {
		if g.MissingPartitions != 0 {
			return fmt.Errorf("%d of %d partitions cannot be missing", g.MissingPartitions, n.parts(p))
		}
	}
	if g.BoundTo != "" && !g.Unbound {
		return fmt.Errorf("driver %q has it, but it is not unbound from amdgpu", g.BoundTo)
	}
	if g.NodeGap < 0 {
		return fmt.Errorf("node gap %d is negative", g.NodeGap)
	}
	for block := range g.Errors {
		if !slices.Contains(p.rasBlocks, block) {
			return fmt.Errorf("%s has no RAS block %q; it has %s", p.name, block, strings.Join(p.rasBlocks, ", "))
		}
	}
	for cause := range g.ThrottleResidency {
		if !slices.Contains(throttleCauses, cause) {
			return fmt.Errorf("throttling cause %q is not one of %s", cause, strings.Join(throttleCauses, ", "))
		}
	}
	for _, port := range g.DownPorts {
		if port < 0 || port >= p.xgmiPorts() {
			return fmt.Errorf("xGMI port %d is down, but %s has %d ports", port, p.name, p.xgmiPorts())
		}
	}
	return nil
}

// parts is the number of partitions of each GPU.
func (n *Node) parts(p *product) int { return partitionsIn(n.Partition, int(p.xcds)) } //nolint:gosec // at most 8

type pciAddress struct {
	domain, bus, device, function uint64
}

func parsePCI(text string) (pciAddress, error) {
	var a pciAddress
	var end string
	n, _ := fmt.Sscanf(text, "%04x:%02x:%02x.%1x%s", &a.domain, &a.bus, &a.device, &a.function, &end)
	if n != 4 || fmt.Sprintf("%04x:%02x:%02x.%x", a.domain, a.bus, a.device, a.function) != text {
		return a, fmt.Errorf("PCI address %q is not of the form 0000:05:00.0", text)
	}
	return a, nil
}
