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

// The partition modes that the generator knows.
const (
	SPX PartitionMode = "SPX"
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
	// BandwidthMBps that KFD reports for it; 0 means as the model. Only for xGMI.
	BandwidthMBps int64
}

// GPU is one physical GPU.
type GPU struct {
	// PCIAddress is domain:bus:device.function in lower case.
	PCIAddress string
	NUMANode   int
	UniqueID   uint64
	// Missing GPUs fell off the bus: no file speaks of them. The others keep their slots and hives.
	Missing bool
	// Unbound GPUs are on the PCI bus, but the driver failed on them: KFD does not have them.
	Unbound bool
	// PCIeWidth is the number of lanes in use; 0 means 16.
	PCIeWidth int
	// UncorrectableErrors are what ras/umc_err_count counts since the driver was loaded.
	UncorrectableErrors uint64
}

// Node is a simulated node. Defaults gives a healthy one.
type Node struct {
	Name  string
	Model string
	GPUs  []GPU
	// Partition mode of every GPU; empty means SPX.
	Partition PartitionMode
	Links     []Link
	// ROCm is the text of opt/rocm/.info/version; empty means that the host has no ROCm.
	ROCm string
	// Driver and DriverVersion of amdgpu. Only DKMS shows its version.
	Driver        Driver
	DriverVersion string
	KernelRelease string
	KernelCommand string
	// NUMABalancing is kernel.numa_balancing; RCCL wants 0.
	NUMABalancing int
	// BootID is the kernel's random boot id; empty means one derived from the name.
	BootID string
	// NICs is the number of RDMA devices.
	NICs int
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
		KernelCommand: "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro pci=realloc=off iommu=pt numa_balancing=disable",
		NICs:          len(nics),
		Flavor:        "rcclx-dev",
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
	if n.Partition == CPX && p.xcds < 2 || n.Partition != SPX && n.Partition != CPX {
		return nil, fmt.Errorf("node %q: %s has no partition mode %q", n.Name, p.name, n.Partition)
	}
	n.GPUs = slices.Clone(n.GPUs)
	for i := range n.GPUs {
		if _, err := parsePCI(n.GPUs[i].PCIAddress); err != nil {
			return nil, fmt.Errorf("node %q: GPU %d: %w", n.Name, i, err)
		}
		if n.GPUs[i].UniqueID == 0 {
			n.GPUs[i].UniqueID = n.number(fmt.Sprintf("gpu %s", n.GPUs[i].PCIAddress))
		}
	}
	for _, l := range n.Links {
		if l.A == l.B || min(l.A, l.B) < 0 || max(l.A, l.B) >= len(n.GPUs) {
			return nil, fmt.Errorf("node %q: link %d-%d, but GPUs are 0 to %d", n.Name, l.A, l.B, len(n.GPUs)-1)
		}
	}
	if n.BootID == "" {
		a, b := n.number("boot a"), n.number("boot b")
		n.BootID = fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
	}
	return p, nil
}

// number derives a number that is the same in every run and differs between nodes.
func (n *Node) number(what string) uint64 {
	sum := sha256.Sum256([]byte(n.Name + "\x00" + what))
	return binary.BigEndian.Uint64(sum[:])
}

// link gives what joins two GPUs: kind, hops, and what KFD reports as bandwidth of one and of all links in MB/s.
func (n *Node) link(p *product, a, b int) (kind LinkKind, hops int, minMBps, maxMBps int64) {
	kind, hops, links := p.link(a, b)
	minMBps = p.kfdLinkMBps
	maxMBps = minMBps * int64(links)
	if hops > 1 {
		minMBps, maxMBps = 0, 0
	}
	for _, l := range n.Links {
		if (l.A != a || l.B != b) && (l.A != b || l.B != a) {
			continue
		}
		kind = l.Kind
		if l.BandwidthMBps > 0 {
			minMBps, maxMBps = l.BandwidthMBps, l.BandwidthMBps
		}
	}
	return kind, hops, minMBps, maxMBps
}

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
