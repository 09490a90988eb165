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
	for i, d := range devices {
		address := n.GPUs[d.gpu].PCIAddress
		if n.Partition == CPX {
			address = fmt.Sprintf("%s.%d", strings.TrimSuffix(address, ".0"), d.partition)
		}
		fmt.Fprintf(&b, "gpu.%d = %s\n", i, address)
	}
	if n.Partition == CPX {
		fmt.Fprintf(&b, "devices_per_gpu = %d\n", p.xcds)
	}
	fmt.Fprintf(&b, "link_bandwidth_mbps = %d\n", p.usableLinkMBps)
	if n.Partition == SPX {
		n.writeLinks(&b, p, devices)
	}
	fault := n.Fault
	if fault == "" {
		fault = "none"
	}
	fmt.Fprintf(&b, "fault = %s\n", fault)
	return b.String()
}

// writeLinks names the pairs that differ from what the library assumes: hives of neighbouring ordinals, each pair at full
// bandwidth. A missing GPU moves the ordinals, so on nodes of several hives its neighbours' pairs are named, too.
func (n *Node) writeLinks(b *strings.Builder, p *product, devices []kfdGPU) {
	for i, d := range devices {
		for j := i + 1; j < len(devices); j++ {
			o := devices[j]
			kind, hops, _, mbps := n.link(p, d.gpu, o.gpu)
			healthy, _, links := p.link(d.gpu, o.gpu)
			usable := p.usableLinkMBps
			if kind == LinkXGMI && healthy == LinkXGMI && hops == 1 {
				usable = usable * mbps / (p.kfdLinkMBps * int64(links)) // the usable share of a slower link is the same
			}
			value := string(kind)
			if kind == LinkXGMI {
				value = fmt.Sprint(usable)
			}
			if assumed := p.hivesMatch(i, j); (kind == LinkXGMI) != assumed || (assumed && usable != p.usableLinkMBps) {
				fmt.Fprintf(b, "link.%d-%d = %s\n", i, j, value)
			}
		}
	}
}

func (p *product) hivesMatch(a, b int) bool { return a/p.hiveSize == b/p.hiveSize }
