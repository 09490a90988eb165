package discover

import (
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// viewCheck holds what the GPUs' own PCI directories say of a pair (xgmi_num_hops, xgmi_num_links) against each other
// and against KFD. KFD makes one direction of a link from the other (kfd_topology.c, kfd_parse_subtype_iolink), so that
// a link which is up on one side only shows here.
type viewCheck struct {
	f            *Facts
	pairs        int
	sides, other []viewFinding
}

type viewFinding struct {
	subject subject
	text    string
}

func newViewCheck(f *Facts) *viewCheck { return &viewCheck{f: f} }

func (c *viewCheck) add(name subject, i, j int) {
	a, b := &c.f.GPUs[i], &c.f.GPUs[j]
	there, back := c.f.hiveOrder.view(a, b), c.f.hiveOrder.view(b, a)
	c.pairs++
	if text := oneSided("xGMI links", there.links, back.links, &c.f.GPUs[i], &c.f.GPUs[j]); text != "" {
		c.sides = append(c.sides, viewFinding{name, text})
		return
	}
	if text := oneSided("xGMI hops", there.hops, back.hops, &c.f.GPUs[i], &c.f.GPUs[j]); text != "" {
		c.sides = append(c.sides, viewFinding{name, text})
		return
	}
	if c.f.GPUs[i].partitioned() || c.f.GPUs[j].partitioned() {
		return // KFD's figures of partitions are constants (kfd_crat.c, kfd_fill_gpu_xgmi_link_to_gpu)
	}
	link := c.f.Mesh.Pairs[i][j]
	if there.hops != nil && link.Hops != nil && *link.Hops != uint64(*there.hops) {
		c.other = append(c.other,
			viewFinding{name, fmt.Sprintf("KFD says %d xGMI hops (weight %d) and xgmi_num_hops %d",
				*link.Hops, link.Weight, *there.hops)})
		return
	}
	least, most := link.MinBandwidthMBps, link.MaxBandwidthMBps
	if there.links != nil && least != nil && most != nil && *most != *least*uint64(*there.links) {
		c.other = append(c.other, viewFinding{name, fmt.Sprintf("KFD states %d MB/s for one xGMI link and %d for "+
			"all, and xgmi_num_links has %d of them", *least, *most, *there.links)})
	}
}

// oneSided compares a count of both sides of a pair; "" where they agree or one is not known.
func oneSided(what string, there, back *uint8, a, b *GPU) string {
	if there == nil || back == nil || *there == *back {
		return ""
	}
	text := fmt.Sprintf("%s counts %d %s to %s, which counts %d back", a.PCIAddress, *there, what, b.PCIAddress, *back)
	switch {
	case *there == 0:
		text += fmt.Sprintf(": up on the side of %s only", b.PCIAddress)
	case *back == 0:
		text += fmt.Sprintf(": up on the side of %s only", a.PCIAddress)
	}
	return text
}

// report tells each finding, unless so many pairs have one that it is the driver's way of counting: drivers before the
// reflection of these counts (amdgpu_psp.c, psp_xgmi_reflect_topology_info) knew one side of each pair.
func (c *viewCheck) report(l *problemList) {
	const next = "Look for XGMI in the kernel log; power-cycle the node."
	if n := len(c.sides); n > 2 && 2*n > c.pairs {
		l.warn(v1alpha1.ProblemLinkInconsistent, c.sides[0].subject,
			"%s; the sides of %d of %d pairs differ, which old drivers cause. Update the driver; measure if it stays.",
			c.sides[0].text, n, c.pairs)
	} else {
		for _, s := range c.sides {
			severity := v1alpha1.SeverityWarning
			if c.f.GPUs[0].model.Fabric == fabricMesh {
				severity = v1alpha1.SeverityError
			}
			l.add(severity, v1alpha1.ProblemLinkAsymmetric, s.subject,
				"%s; expected the same on both sides. %s", s.text, next)
		}
	}
	if n := len(c.other); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and so for %d more pairs)", n-1)
		}
		l.warn(v1alpha1.ProblemLinkInconsistent, c.other[0].subject,
			"%s%s; expected the same. The topology may have been changing: look again, then reload the driver.",
			c.other[0].text, more)
	}
}
