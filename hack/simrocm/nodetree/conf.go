package nodetree

import (
	"fmt"
	"strings"
)

// conf is simrocm.conf. Only GPUs that KFD has are devices; ordinals are those of HIP.
func (n *Node) conf(p *product) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A simulated node; see hack/simrocm. Nothing here is real hardware.\n")
	fmt.Fprintf(&b, "node = %s\nmodel = %s\n", n.Name, p.name)
	if n.Flavor != "" {
		fmt.Fprintf(&b, "flavor = %s\n", n.Flavor)
	}
	_, devices := n.kfdLayout(p)
	ordinal := map[int]int{}
	for i, d := range devices {
		if _, ok := ordinal[d.gpu]; !ok {
			ordinal[d.gpu] = i
		}
		address := n.GPUs[d.gpu].PCIAddress
		if n.Partition == CPX {
			address = fmt.Sprintf("%s.%d", strings.TrimSuffix(address, ".0"), d.partition)
		}
		fmt.Fprintf(&b, "gpu.%d = %s\n", i, address)
	}
	fmt.Fprintf(&b, "link_bandwidth_mbps = %d\n", p.usableLinkMBps)
	for _, l := range n.Links {
		a, okA := ordinal[l.A]
		z, okZ := ordinal[l.B]
		if !okA || !okZ || n.Partition == CPX {
			continue
		}
		value := string(l.Kind)
		if l.Kind == LinkXGMI {
			if l.BandwidthMBps == 0 {
				continue
			}
			// The usable share of a slower link is the same.
			value = fmt.Sprint(p.usableLinkMBps * l.BandwidthMBps / (p.kfdLinkMBps * int64(p.linksPerPair)))
		}
		fmt.Fprintf(&b, "link.%d-%d = %s\n", a, z, value)
	}
	fault := n.Fault
	if fault == "" {
		fault = "none"
	}
	fmt.Fprintf(&b, "fault = %s\n", fault)
	return b.String()
}
