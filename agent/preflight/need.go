package preflight

import (
	"net/netip"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// Need is what a run asks of its node.
type Need struct {
	// Ranks on this node, and Nodes that the communicator reaches over; 0 nodes means 1.
	Ranks, Nodes int
	// Flavor whose gates hold (rcclx.LibraryInfo.Gates). Empty or unknown before a library was loaded.
	Flavor rcclx.Flavor
	// Variants that will be measured.
	Variants []rcclx.Variant
	// PodIP is the pod's own address; empty outside of Kubernetes.
	PodIP string
	// Environ of each rank, as NAME=VALUE.
	Environ []string
	// MemoryBytes is the most that a rank allocates on its GPU: buffers of the largest call, and what the library
	// allocates for the variant (rcclx.MemoryNeed).
	MemoryBytes int64
}

// known says whether a library was loaded, and which.
func (n Need) known() bool { return n.Flavor != "" && n.Flavor != rcclx.FlavorUnknown }

// variable is the value that the ranks see; ok is false where it is not set.
func (n Need) variable(name string) (value string, ok bool) {
	for _, kv := range n.Environ { // as getenv does, the first one counts
		if key, v, found := strings.Cut(kv, "="); found && key == name {
			return v, true
		}
	}
	return "", false
}

// onLoopback: the pod itself is there, as on simulated nodes, which share one machine.
func (n Need) onLoopback() bool {
	ip, err := netip.ParseAddr(n.PodIP)
	return err == nil && ip.IsLoopback()
}

// rcclxDDA says whether the run will use RCCLX's DDA, which aborts the process where its conditions do not hold. It
// only begins with eight ranks on one node (torchcomms comms/rcclx/develop/meta/algorithms/AlgoInit.h).
func (n Need) rcclxDDA() bool {
	return n.Flavor == rcclx.FlavorRCCLXDev && n.Ranks == 8 && n.Nodes <= 1 && slices.Contains(n.Variants, rcclx.DDA)
}

// RankFacts is what a rank's process saw when it had loaded the library, before any communicator.
type RankFacts struct {
	Rank int
	// Device ordinal that it was told to use.
	Device int
	// ProcessID of the rank; 0 where not known.
	ProcessID int
	// Library that it loaded, with its device's address and memory; nil where it did not say.
	Library *rcclx.LibraryInfo
}

// gpu is the PCI address of the rank's GPU as the kernel writes it; empty where the rank did not say.
func (r RankFacts) gpu() string {
	if r.Library == nil {
		return ""
	}
	return kernelAddress(r.Library.PCIAddress)
}
