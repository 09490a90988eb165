package discover

import (
	"fmt"
	"sort"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// checkCounters: errors since the driver was loaded, bad memory, and xGMI ports. Correctable errors count only when they
// rise, which takes two looks (agent/monitor).
func (l *problemList) checkCounters(f *Facts) {
	for i := range f.GPUs {
		l.checkRAS(&f.GPUs[i])
	}
	l.checkPorts(f)
	l.checkMetrics(f)
}

func (l *problemList) checkRAS(g *GPU) {
	if n := g.XGMIUncorrectableErrors; n != nil && *n > 0 {
		l.error(v1alpha1.ProblemXGMIUncorrectableErrors, g.PCIAddress,
			"%d uncorrectable xGMI errors since the driver was loaded; expected none. Drain the node and reset the GPU; if they come back, replace it.", *n)
	}
	uncorrectable := g.blocksWith(func(block string, c ErrorCounts) uint64 {
		if block == RASBlockXGMI {
			return 0 // told above
		}
		return c.Uncorrectable
	})
	if uncorrectable != "" {
		l.error(v1alpha1.ProblemUncorrectableErrors, g.PCIAddress,
			"Uncorrectable errors since the driver was loaded, by block: %s; expected none. Drain the node and reset the GPU; if they come back, replace it.", uncorrectable)
	}
	deferred := g.blocksWith(func(_ string, c ErrorCounts) uint64 {
		if c.Deferred == nil {
			return 0
		}
		return *c.Deferred
	})
	if deferred != "" {
		l.warn(v1alpha1.ProblemDeferredErrors, g.PCIAddress,
			"Deferred errors since the driver was loaded, by block: %s; expected none. Data in memory is poisoned, and what reads it fails: drain the node when it is idle, and reset the GPU.", deferred)
	}
	if n := g.RetiredPages; n != nil && (*n > 0 || g.unreservedPages > 0) {
		unreserved := ""
		if g.unreservedPages > 0 {
			unreserved = fmt.Sprintf(", and %d bad pages could not be taken out of use", g.unreservedPages)
		}
		l.warn(v1alpha1.ProblemRetiredPages, g.PCIAddress,
			"%d pages of its memory are retired%s; expected none. Watch the number: the kernel log says when it reaches the driver's threshold, and then the GPU must be replaced.", *n, unreserved)
	}
}

// blocksWith is "gfx 1, umc 3": the blocks with a count above zero, by name.
func (g *GPU) blocksWith(count func(string, ErrorCounts) uint64) string {
	var parts []string
	for block, c := range g.RAS {
		if n := count(block, c); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", block, n))
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// checkPorts compares each xGMI port with the same port of the node's other GPUs. A port that is down on most of them is
// no sign of a fault, and one alone is a weak one: the driver calls each state of a link but "active" down
// (amdgpu_get_xgmi_link_status in amdgpu_xgmi.c), also that of an idle link which saves power. Hence a warning.
func (l *problemList) checkPorts(f *Facts) {
	known := 0
	up := map[int]int{}
	for i := range f.GPUs {
		m := f.GPUs[i].Metrics
		if f.GPUs[i].model.VF || m == nil || len(m.XGMIPorts) == 0 {
			continue
		}
		known++
		for port, state := range m.XGMIPorts {
			if state == XGMIPortUp {
				up[port]++
			}
		}
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.model.VF || g.Metrics == nil {
			continue
		}
		var down []int
		for port, state := range g.Metrics.XGMIPorts {
			if state == XGMIPortDown && 2*up[port] > known {
				down = append(down, port)
			}
		}
		if len(down) > 0 {
			l.warn(v1alpha1.ProblemXGMIPortDown, g.PCIAddress,
				"xGMI port %s is down here and up on most other GPUs of this node (gpu_metrics; a port's number is not a GPU's). Idle links can show this: look again under load, and measure the links of this GPU.",
				joinInts(down, xgmiPorts))
		}
	}
}

// checkMetrics says once for a node that its gpu_metrics are of a revision that this version does not know.
func (l *problemList) checkMetrics(f *Facts) {
	count, first := 0, Unread{}
	for _, u := range f.Unread {
		if u.Class != ClassUnsupported || !strings.HasPrefix(u.Message, unknownRevisionText) {
			continue // the kernel itself may answer "not supported", as to a virtual function
		}
		if count == 0 {
			first = u
		}
		count++
	}
	if count == 0 {
		return
	}
	l.warn(v1alpha1.ProblemMetricsUnsupported, "gpu_metrics",
		"%s, on %d GPUs: temperatures, throttling and xGMI ports are unknown. The host's driver is newer than this operator, as it can be newer than the ROCm of a container, whose tools then fail alike: update the operator.",
		first.Message, count)
}
