package discover

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// nearness says how near a NIC is to a GPU: first by kind, then by depth, the larger the nearer.
type nearness struct{ kind, depth int }

// The kinds of nearness. One that is not known may be any of the others.
const (
	kindUnknown = iota
	kindFar
	kindNUMA
	kindHost
	kindSwitch
)

var nicPaths = [...]string{kindUnknown: "", kindFar: NearFar, kindNUMA: NearNUMA, kindHost: NearHost,
	kindSwitch: NearSwitch}

func (n nearness) less(o nearness) bool {
	return n.kind < o.kind || (n.kind == o.kind && n.depth < o.depth)
}

// pciTrail is the part of a path below sys/devices from the host bridge on: pci0000:00, 0000:00:01.1, 0000:05:00.0. Nil
// where there is none.
func pciTrail(devicePath string) []string {
	parts := strings.Split(devicePath, "/")
	for i, part := range parts {
		domain, bus, found := strings.Cut(strings.TrimPrefix(part, "pci"), ":")
		if found && strings.HasPrefix(part, "pci") && isHex(domain) && isHex(bus) {
			return parts[i:]
		}
	}
	return nil
}

// nearnessOf compares where a GPU and a NIC are. What lies below one root port shares a switch, since a PCIe link has
// two ends; the more bridges they share, the nearer. Where no path is known, or they share no host bridge, NUMA nodes
// tell.
func nearnessOf(g *GPU, n *NIC) nearness {
	sameNUMA := g.NUMANode != nil && n.NUMANode != nil && *g.NUMANode == *n.NUMANode
	a, b := pciTrail(g.PCIPath), pciTrail(n.PCIPath)
	shared := 0
	for shared < min(len(a), len(b)) && a[shared] == b[shared] {
		shared++
	}
	switch {
	case shared >= 2:
		return nearness{kindSwitch, shared}
	case shared == 1 && sameNUMA: // a virtual machine has all behind one host bridge, and its NUMA nodes still tell
		return nearness{kindHost, 1}
	case shared == 1:
		return nearness{kindHost, 0}
	case sameNUMA:
		return nearness{kindNUMA, 0}
	case g.NUMANode != nil && n.NUMANode != nil:
		return nearness{kindFar, 0}
	}
	return nearness{}
}

// assignNICs gives each GPU its nearest RDMA device. Of equals, those that run at less than half of the fastest rate
// are left out (a front-end NIC beside eight of the fabric), and the rest is spread: as many GPUs as can have a NIC of
// their own get one, in the order of both lists, and what is left over starts again. A port's state does not count: the
// NIC that is down is still the nearest, and a problem says that it is down.
func assignNICs(f *Facts) {
	candidates := nicCandidates(f.NICs)
	if len(candidates) == 0 {
		return
	}
	fastest := int64(0)
	for _, i := range candidates {
		if n := &f.NICs[i]; n.State == PortActive && n.RateMbps != nil {
			fastest = max(fastest, *n.RateMbps)
		}
	}
	choices := make([][]int, len(f.GPUs))
	for i := range f.GPUs {
		g := &f.GPUs[i]
		best, unknown := nearness{}, false
		for _, c := range candidates {
			near := nearnessOf(g, &f.NICs[c])
			unknown = unknown || near.kind == kindUnknown
			if best.less(near) {
				best = near
			}
		}
		if best.kind == kindUnknown || (best.kind == kindFar && unknown) {
			continue // one whose place is not known may be nearer than far
		}
		g.NICPath = nicPaths[best.kind]
		var slow []int
		for _, c := range candidates {
			n := &f.NICs[c]
			switch {
			case nearnessOf(g, n) != best:
			case n.State == PortActive && n.RateMbps != nil && *n.RateMbps*2 < fastest:
				slow = append(slow, c)
			default:
				choices[i] = append(choices[i], c)
			}
		}
		if len(choices[i]) == 0 {
			choices[i] = slow
		}
	}
	for i, c := range spread(choices) {
		if c >= 0 {
			f.GPUs[i].NIC = f.NICs[c].Name
		}
	}
}

// nicCandidates are the NICs that a GPU can use: hardware, and of a host with virtual functions the physical ones.
func nicCandidates(nics []NIC) []int {
	var physical, functions []int
	for i := range nics {
		switch {
		case nics[i].virtual:
		case nics[i].virtualFunction:
			functions = append(functions, i)
		default:
			physical = append(physical, i)
		}
	}
	if len(physical) > 0 {
		return physical
	}
	return functions
}

// spread picks one of each row's choices, -1 for a row without any, so that the fewest rows share one. It matches rows
// to choices one to one as far as that goes (augmenting paths), then does the same with the rows that are left.
func spread(choices [][]int) []int {
	picked := make([]int, len(choices))
	left := []int{}
	for i := range choices {
		picked[i] = -1
		if len(choices[i]) > 0 {
			left = append(left, i)
		}
	}
	for len(left) > 0 {
		owner := map[int]int{}
		for _, row := range left {
			augment(choices, owner, map[int]bool{}, row)
		}
		for choice, row := range owner {
			picked[row] = choice
		}
		var rest []int
		for _, row := range left {
			if picked[row] < 0 {
				rest = append(rest, row)
			}
		}
		left = rest
	}
	return picked
}

// augment finds a choice for a row: a free one if any, else one whose owner can take another.
func augment(choices [][]int, owner map[int]int, seen map[int]bool, row int) bool {
	for _, c := range choices[row] {
		if _, taken := owner[c]; !taken {
			owner[c] = row
			return true
		}
	}
	for _, c := range choices[row] {
		if seen[c] {
			continue
		}
		seen[c] = true
		if augment(choices, owner, seen, owner[c]) {
			owner[c] = row
			return true
		}
	}
	return false
}

// checkNICs: ports that are not up, and GPUs without a NIC on their side where others have one.
func checkNICs(l *problemList, f *Facts) {
	hardware, active := 0, 0
	for i := range f.NICs {
		if n := &f.NICs[i]; !n.virtual && !n.virtualFunction {
			hardware++
			if n.State == PortActive {
				active++
			}
		}
	}
	if active == 0 {
		checkAllDown(l, f, hardware)
	}
	for i := range f.NICs {
		n := &f.NICs[i]
		if active == 0 || n.virtual || n.virtualFunction || n.State == PortActive || n.State == PortUnknown {
			continue
		}
		l.warn(v1alpha1.ProblemNICDown, subject{NIC: n.Name},
			"Its port is %s%s; expected Active, as %d of %d RDMA devices here are%s. %s",
			n.State, inBrackets(n.PhysState), active, hardware, nearestTo(f, n.Name), nicNextStep(n))
	}
	far, near := []string{}, 0
	for i := range f.GPUs {
		switch f.GPUs[i].NICPath {
		case NearFar:
			far = append(far, f.GPUs[i].PCIAddress)
		case "":
		default:
			near++
		}
	}
	if len(far) > 0 && near > 0 {
		l.warn(v1alpha1.ProblemNICFar, gpusSubject(far[:min(len(far), 4)]),
			"%d of %d GPUs have no RDMA device on their NUMA node, where the other GPUs have one: "+
				"their traffic crosses the sockets. Look for a NIC that is missing (lspci, rdma link); "+
				"if the server is built so, expect less bandwidth from these GPUs.",
			len(far), len(f.GPUs))
	}
}

// checkAllDown is for a node none of whose RDMA devices has a port that is up: one problem, since they have one cause.
func checkAllDown(l *problemList, f *Facts, hardware int) {
	var names []string
	var first *NIC
	states := map[string]int{}
	for i := range f.NICs {
		n := &f.NICs[i]
		if n.virtual || n.virtualFunction || n.State == PortUnknown {
			continue // a port whose state is not known may be up
		}
		if first == nil {
			first = n
		}
		names = append(names, n.Name)
		states[n.State+inBrackets(n.PhysState)]++
	}
	if first == nil {
		return
	}
	unknown := ""
	if n := hardware - len(names); n > 0 {
		unknown = fmt.Sprintf(", and of %d more the state is not known", n)
	}
	about := subject{}
	if len(names) == 1 {
		about.NIC = first.Name
	}
	l.warn(v1alpha1.ProblemNICDown, about,
		"No RDMA device of this node (%s) has an active port: %s%s; "+
			"expected Active. Traffic to other nodes has no RDMA. %s",
		strings.Join(names[:min(len(names), 4)], ", "), tallyCounts(states), unknown, nicNextStep(first))
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// nearestTo is ", nearest to GPU3 0000:65:00.0" for a NIC.
func nearestTo(f *Facts, name string) string {
	var gpus []string
	for i := range f.GPUs {
		if f.GPUs[i].NIC == name {
			gpus = append(gpus, fmt.Sprintf("GPU%d %s", i, f.GPUs[i].PCIAddress))
		}
	}
	if len(gpus) == 0 {
		return ""
	}
	return "; it is nearest to " + strings.Join(gpus[:min(len(gpus), 4)], ", ")
}

// nicNextStep: an InfiniBand port that has a link waits for the subnet manager; any other has no link.
func nicNextStep(n *NIC) string {
	if n.State == PortInit || n.State == PortArmed {
		return "It has a link and waits for the subnet manager: check that one runs on this fabric (sminfo)."
	}
	if n.Interface != "" {
		return fmt.Sprintf("Check its cable and switch port, and that its interface is up (ip link show %s).",
			n.Interface)
	}
	return fmt.Sprintf("Check its cable and switch port (rdma link show %s).", n.Name)
}
