package monitor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

type link struct{ from, to string }

func (l link) subject() subject { return subject{GPU: l.from, PeerGPU: l.to} }

// pair is the link without its direction, as discover names it.
func (l link) pair() link { return link{min(l.from, l.to), max(l.from, l.to)} }

func compareLinks(a, b link) int {
	return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
}

// lostGPUs are GPUs that were there in this boot and are not now.
func (l *look) lostGPUs() {
	there := make(map[string]bool, len(l.facts.GPUs))
	for i := range l.facts.GPUs {
		g := &l.facts.GPUs[i]
		there[g.PCIAddress] = true
		l.model[g.PCIAddress] = g.Model
	}
	certain := l.facts.GPUsCertain()
	lost, back, missing := l.gpus.look(l.now, there, func(string) bool { return certain })
	for _, address := range slices.Sorted(maps.Keys(back)) {
		l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemGPULost, subject{GPU: address},
			"The GPU is back; it was last seen %s.", when(back[address]))
	}
	slices.Sort(missing)
	l.facts.LostGPUs = l.gpus.lost(strings.Compare)
	var problems []v1alpha1.Problem
	for _, address := range missing {
		p := v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemGPULost, GPU: address,
			Message: fmt.Sprintf("This %s was here %s and is gone from KFD. Look for its address in the kernel log; "+
				"drain the node and power-cycle it.", l.model[address], when(l.gpus[address].last))}
		if slices.Contains(lost, address) {
			l.changes = append(l.changes, p)
		}
		if !l.named(p) {
			problems = append(problems, p)
		}
	}
	l.found = append(l.found, foldMany(problems)...)
}

// lostLinks are xGMI links between present GPUs that were there in this boot and are not now.
func (l *look) lostLinks() {
	present := map[string]bool{}
	for i := range l.facts.GPUs {
		present[l.facts.GPUs[i].PCIAddress] = true
	}
	there := map[link]bool{}
	for i := range l.facts.Mesh.Pairs {
		for j, pair := range l.facts.Mesh.Pairs[i] {
			if pair != nil && pair.Type == discover.LinkXGMI {
				there[link{l.facts.GPUs[i].PCIAddress, l.facts.GPUs[j].PCIAddress}] = true
			}
		}
	}
	certain := l.facts.LinksCertain()
	lost, back, missing := l.links.look(l.now, there, func(k link) bool {
		return certain && present[k.from] && present[k.to]
	})
	for _, k := range slices.SortedFunc(maps.Keys(back), compareLinks) {
		l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemLinkLost, k.subject(),
			"The xGMI link from %s to %s is back.", k.from, k.to)
	}
	slices.SortFunc(lost, compareLinks)
	for _, k := range lost {
		l.note(v1alpha1.SeverityError, v1alpha1.ProblemLinkLost, k.subject(),
			"The xGMI link from %s to %s is gone; it was there earlier in this boot.", k.from, k.to)
	}
	slices.SortFunc(missing, compareLinks)
	for _, k := range slices.SortedFunc(maps.Keys(l.links), compareLinks) {
		if !l.links[k].lost && !l.gpus[k.from].lost && !l.gpus[k.to].lost {
			continue
		}
		l.facts.LostLinks = append(l.facts.LostLinks, [2]string{k.from, k.to})
	}
	var problems []v1alpha1.Problem
	told := map[link]bool{}
	for _, k := range missing {
		if pair := k.pair(); !told[pair] && !l.named(pair.subject()) {
			told[pair] = true
			problems = append(problems, v1alpha1.Problem{Severity: v1alpha1.SeverityError,
				Code: v1alpha1.ProblemLinkLost, GPU: pair.from, PeerGPU: pair.to,
				Message: "The xGMI link between these GPUs was there earlier in this boot and is gone. " +
					"Look for XGMI in the kernel log; power-cycle the node."})
		}
	}
	l.found = append(l.found, foldMany(problems)...)
}

// port is an xGMI port of a GPU. Its number is not that of the GPU at the other end.
type port struct {
	gpu    string
	number int
}

// lostPorts are xGMI ports that were up in this boot and are down now. The driver calls a port down in every state but
// the active one, also an idle link that saves power (amdgpu_xgmi.c, amdgpu_get_xgmi_link_status), so that alone is a
// warning; an error it is once other ports of the GPU carry data and this one does not.
func (l *look) lostPorts() {
	up, down := map[port]bool{}, map[port]bool{}
	for i := range l.facts.GPUs {
		g := &l.facts.GPUs[i]
		if g.Metrics == nil || g.Virtual() {
			continue // the host of a virtual function can hide the ports from it
		}
		for n, state := range g.Metrics.XGMIPorts {
			k := port{g.PCIAddress, n}
			switch state {
			case discover.XGMIPortUp:
				up[k] = true
				delete(l.dead, k)
			case discover.XGMIPortDown:
				down[k] = true
			}
		}
	}
	lost, back, missing := l.ports.look(l.now, up, func(k port) bool { return down[k] })
	for _, g := range portsByGPU(slices.Collect(maps.Keys(back))) {
		l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemXGMIPortDown, subject{GPU: g.gpu},
			"xGMI port %s is up again.", g.numbers)
	}
	for _, g := range portsByGPU(lost) {
		l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemXGMIPortDown, subject{GPU: g.gpu},
			"xGMI port %s went down; it was up earlier in this boot.", g.numbers)
	}
	for _, k := range missing {
		if !l.dead[k] && l.carriesNothing(k) {
			l.dead[k] = true
			l.note(v1alpha1.SeverityError, v1alpha1.ProblemXGMIPortDown, subject{GPU: k.gpu},
				"xGMI port %d is down while others of this GPU carry data.", k.number)
		}
	}
	for _, g := range portsByGPU(missing) {
		p := v1alpha1.Problem{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemXGMIPortDown, GPU: g.gpu,
			Message: fmt.Sprintf("xGMI port %s was up earlier in this boot and is down (gpu_metrics; "+
				"a port's number is not a GPU's). An idle link can show this: look again under load, and measure the "+
				"links of this GPU.", g.numbers)}
		if slices.ContainsFunc(g.ports, func(k port) bool { return l.dead[k] }) {
			p.Severity = v1alpha1.SeverityError
			p.Message = fmt.Sprintf("xGMI port %s was up earlier in this boot, is down, and carries nothing while "+
				"other ports of this GPU do. Look for XGMI in the kernel log; drain the node and power-cycle it.",
				g.numbers)
		}
		// discover's comparison with the other GPUs says less.
		l.facts.Problems = slices.DeleteFunc(l.facts.Problems, func(known v1alpha1.Problem) bool {
			return known.Code == p.Code && known.GPU == p.GPU
		})
		l.found = append(l.found, p)
	}
}

// busyKB is what another port must have carried since the last look for an idle one to be told from a dead one.
const busyKB = 64 << 10

// carriesNothing says that other ports of the GPU moved data since the last look, and this one none.
func (l *look) carriesNothing(k port) bool {
	was := l.metrics[k.gpu]
	var is *discover.Metrics
	for i := range l.facts.GPUs {
		if l.facts.GPUs[i].PCIAddress == k.gpu {
			is = l.facts.GPUs[i].Metrics
		}
	}
	if was == nil || is == nil || is.XGMIReadKB == nil || is.XGMIWriteKB == nil ||
		len(was.XGMIReadKB) != len(is.XGMIReadKB) || len(was.XGMIWriteKB) != len(is.XGMIWriteKB) ||
		k.number >= min(len(is.XGMIReadKB), len(is.XGMIWriteKB)) {
		return false
	}
	busy := false
	for n := range is.XGMIReadKB {
		if n >= len(is.XGMIWriteKB) || is.XGMIReadKB[n] < was.XGMIReadKB[n] || is.XGMIWriteKB[n] < was.XGMIWriteKB[n] {
			return false // the counters started again
		}
		moved := is.XGMIReadKB[n] - was.XGMIReadKB[n] + is.XGMIWriteKB[n] - was.XGMIWriteKB[n]
		switch {
		case n == k.number && moved > 0:
			return false
		case n != k.number && moved >= busyKB:
			busy = true
		}
	}
	return busy
}

// gpuPorts are some ports of one GPU.
type gpuPorts struct {
	gpu     string
	numbers string // "1, 3"
	ports   []port
}

func portsByGPU(ports []port) []gpuPorts {
	slices.SortFunc(ports, func(a, b port) int {
		return cmp.Or(strings.Compare(a.gpu, b.gpu), cmp.Compare(a.number, b.number))
	})
	var list []gpuPorts
	for _, k := range ports {
		if len(list) == 0 || list[len(list)-1].gpu != k.gpu {
			list = append(list, gpuPorts{gpu: k.gpu})
		}
		g := &list[len(list)-1]
		if g.numbers != "" {
			g.numbers += ", "
		}
		g.numbers += fmt.Sprint(k.number)
		g.ports = append(g.ports, k)
	}
	return list
}
