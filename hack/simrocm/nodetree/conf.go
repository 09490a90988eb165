package nodetree

import (
	"fmt"
	"slices"
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
	devices := n.kfdLayout(p)
	parts := n.parts(p)
	for i, d := range devices {
		address := n.GPUs[d.gpu].PCIAddress
		if parts > 1 {
			address = fmt.Sprintf("%s.%d", strings.TrimSuffix(address, ".0"), d.partition)
		}
		fmt.Fprintf(&b, "gpu.%d = %s\n", i, address)
	}
	if parts > 1 {
		fmt.Fprintf(&b, "devices_per_gpu = %d\n", parts)
	}
	fmt.Fprintf(&b, "link_bandwidth_mbps = %d\n", p.usableLinkMBps)
	if parts == 1 {
		n.writeLinks(&b, p, devices)
	}
	for i, place := range p.nicSlots()[:n.NICs] {
		if !slices.Contains(n.DownNICs, i) && n.NICKind != NICInfiniBand {
			fmt.Fprintf(&b, "interface.%s = %s/16\n", n.interfaceName(i, place.route), n.nicAddress(i))
		}
	}
	fault := n.Fault
	if fault == "" {
		fault = "none"
	}
	fmt.Fprintf(&b, "fault = %s\n", fault)
	return b.String()
}

// writeLinks names the pairs that differ from what the library assumes: hives of neighbouring ordinals, each pair at
// full bandwidth. A missing GPU moves the ordinals, so on nodes of several hives its neighbours' pairs are named, too.
// A pair that is joined one way only counts as what the bad way is, since the library knows pairs alone.
func (n *Node) writeLinks(b *strings.Builder, p *product, devices []kfdGPU) {
	for i, d := range devices {
		for j := i + 1; j < len(devices); j++ {
			o := devices[j]
			c := n.connect(p, d.gpu, o.gpu)
			if back := n.connect(p, o.gpu, d.gpu); c.kind == LinkXGMI && back.kind != LinkXGMI {
				c = back
			}
			usable := p.usableLinkMBps
			if c.kind == LinkXGMI && !p.noXGMI && c.hops == 1 && c.maxMBps > 0 {
				if whole := p.healthy(d.gpu, o.gpu).maxMBps; whole > 0 {
					usable = usable * c.maxMBps / whole // the usable share of a slower link is the same
				}
			}
			value := string(c.kind)
			if c.kind == LinkXGMI {
				value = fmt.Sprint(usable)
			}
			if assumed := p.hivesMatch(i, j); (c.kind == LinkXGMI) != assumed ||
				(assumed && usable != p.usableLinkMBps) {
				fmt.Fprintf(b, "link.%d-%d = %s\n", i, j, value)
			}
		}
	}
}

func (p *product) hivesMatch(a, b int) bool { return !p.noXGMI && a/p.hiveSize == b/p.hiveSize }
