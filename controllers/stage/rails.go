package stage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/internal/units"
)

// maxNamedRails of two nodes are named one by one; where more are bad it is none of them alone.
const maxNamedRails = 4

// badRails are the rails of two nodes that were bad, by device, of so many.
type badRails struct {
	bad   []int32
	total int
	// partner is the other node of the two.
	partner string
	// measured of the bad rails that came to their end, by device, and what is usual of a rail; in MB/s.
	measured map[int32]int64
	usual    int64
}

// single says whether single rails stand out.
func (r badRails) single() bool {
	n := len(r.bad)
	return n > 0 && n < r.total && n <= maxNamedRails
}

// railsOf reads the tests of rails that were just closed, for both nodes of each.
func (g *machine) railsOf() map[int]badRails {
	out := map[int]badRails{}
	for i := range g.round {
		r := &g.round[i]
		if r.test.Kind != v1alpha1.TestRails || r.test.Verdict != v1alpha1.VerdictFail && r.test.Verdict != v1alpha1.VerdictPass {
			continue
		}
		rails := badRails{total: len(r.communicators), measured: map[int32]int64{}, usual: max(usual(bandwidths(r.communicators)), g.bestOfMesh())}
		for j := range r.communicators {
			c := &r.communicators[j]
			device, err := strconv.Atoi(c.name[strings.LastIndexByte(c.name, '/')+1:])
			if !c.bad || err != nil {
				continue
			}
			rails.bad = append(rails.bad, int32(device))
			if c.busBWMBps != nil {
				rails.measured[int32(device)] = *c.busBWMBps
			}
		}
		set := g.readSet(r.test.Set)
		for _, index := range set {
			one := rails
			for _, other := range set {
				if other != index {
					one.partner = g.seats[other].name
				}
			}
			out[index] = one
		}
	}
	return out
}

// figures of a rail: measured, expected and percent; empty where it was not measured, or nothing was to hold it against.
func (g *machine) railFigures(r badRails, device int32) string {
	measured, there := r.measured[device]
	if !there || r.usual == 0 {
		return ""
	}
	return fmt.Sprintf(" Measured %s, expected at least %s, which is %d %% of the %s that good rails of the two reach: %d %%.",
		units.Bandwidth(measured), units.Bandwidth(r.usual*g.minPercent()/100), g.minPercent(), units.Bandwidth(r.usual), measured*100/r.usual)
}

// wayOut of a node's device: kind and name of a culprit, the NIC where it is known, else the GPU; and both in words.
func wayOut(s *seat, device int32) (kind, name, text string) {
	kind, name = "GPU", fmt.Sprintf("GPU %d", device)
	text = name
	if f := s.facts(); f != nil && int(device) < len(f.GPUs) && len(f.GPUs) == int(f.GPUCount) {
		gpu := &f.GPUs[device]
		name = gpu.PCIAddress
		text += ", " + gpu.PCIAddress
		if gpu.NIC != "" {
			kind, name = "NIC", gpu.NIC
			text += ", next to NIC " + gpu.NIC
		}
	}
	return kind, name, text
}

// faultWords say what a step does in the communicators that are bad.
func (g *machine) faultWords(reason string, slow bool) string {
	switch {
	case slow:
		return "is far slower"
	case reason == v1alpha1.ReasonHangAcrossNodes || reason == v1alpha1.ReasonRankHung:
		return fmt.Sprintf("does not end within %d s", g.in.Group.Spec.Run.StepDeadlineSeconds)
	case reason == v1alpha1.ReasonWrongData:
		return "gives wrong data"
	case reason == v1alpha1.ReasonInitFailed:
		return "cannot begin, since no communicator forms,"
	}
	return "fails"
}

// nodeCulprits names the bad node, or its GPUs' ways out where single rails are bad.
func (g *machine) nodeCulprits(s *seat, rails badRails, reason string, slow bool, step v1alpha1.Step, effort string) []v1alpha1.Culprit {
	fault := g.faultWords(reason, slow)
	if !rails.single() {
		figures := ""
		if slow {
			figures = g.slowWords(s.index)
		}
		message := fmt.Sprintf("%s %s in each communicator with %s, and those without are good (%s); alone the node is fine.%s Look at what it shares for the way out: NICs, cables, switch port, routes, firewall.", step, fault, s.name, effort, figures)
		return []v1alpha1.Culprit{judge.NodeCulprit(s.name, reason, message)}
	}
	if slow {
		reason = v1alpha1.ReasonSlowRail
	}
	var out []v1alpha1.Culprit
	for _, device := range rails.bad {
		c := v1alpha1.Culprit{Node: s.name, Reason: reason}
		var way string
		c.Kind, c.Name, way = wayOut(s, device)
		c.Message = fmt.Sprintf("%s %s on rail %d alone of %s with %s, which is good elsewhere (%s; %s).%s Look at that NIC's link speed and errors, its cable and its PCIe width.",
			step, fault, device, s.name, rails.partner, way, effort, g.railFigures(rails, device))
		out = append(out, c)
	}
	return out
}

// pairCulprit names two nodes that are bad together only, and the rails where single ones are bad between them. It is the path's
// fault, and neither node's.
func (g *machine) pairCulprit(a, b *seat, rails badRails, reason string, slow bool, step v1alpha1.Step, effort string) v1alpha1.Culprit {
	figures, look := "", "Look at the path between the two: cable, switch port, route."
	if slow {
		reason, figures = v1alpha1.ReasonSlowPair, g.slowWords(a.index, b.index)
	}
	if rails.single() {
		var ways []string
		for _, device := range rails.bad {
			_, _, onA := wayOut(a, device)
			_, _, onB := wayOut(b, device)
			ways = append(ways, fmt.Sprintf("%d (%s on %s; %s on %s)", device, onA, a.name, onB, b.name))
		}
		if own := g.railFigures(rails, slices.Min(rails.bad)); own != "" {
			figures = own
		}
		look = fmt.Sprintf("Of its %d rails these alone are bad: %s. Look at the path between these: cables, switch ports, route.", rails.total, strings.Join(ways, ", "))
	}
	name := pairName(a.name, b.name)
	return v1alpha1.Culprit{Kind: "Pair", Pair: []string{a.name, b.name}, Name: name, Reason: reason, Message: fmt.Sprintf(
		"%s %s over %s and %s together, while each is good with others (%s).%s %s", step, g.faultWords(reason, slow), a.name, b.name, effort, figures, look)}
}
