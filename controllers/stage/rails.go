package stage

import (
	"fmt"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
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
func (g *findings) railsOf() map[int]badRails {
	out := map[int]badRails{}
	for i := range g.round {
		r := &g.round[i]
		if r.test.Kind != v1alpha1.TestRails || r.test.Verdict != v1alpha1.VerdictFail &&
			r.test.Verdict != v1alpha1.VerdictPass {
			continue
		}
		rails := badRails{total: len(r.communicators), measured: map[int32]int64{},
			usual: max(usual(bandwidths(r.communicators)), g.bestOfMesh())}
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
					one.partner = g.participants[other].name
				}
			}
			out[index] = one
		}
	}
	return out
}

// figures of a rail: measured, expected and percent; empty where it was not measured, or nothing was to hold it
// against.
func (g *findings) railFigures(r badRails, device int32) string {
	measured, there := r.measured[device]
	if !there || r.usual == 0 {
		return ""
	}
	return fmt.Sprintf(" Measured %s, expected at least %s, which is %d %% of the %s that good rails of the two "+
		"reach: %d %%.", units.Bandwidth(measured), units.Bandwidth(r.usual*g.minPercent()/100), g.minPercent(),
		units.Bandwidth(r.usual), measured*100/r.usual)
}

// wayOut of a node's device: kind and name of a culprit, the NIC where it is known, else the GPU; and both in words.
func wayOut(s *participant, device int32) (kind, name, text string) {
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
