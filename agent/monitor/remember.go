package monitor

import (
	"context"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// remember asks once for the facts that the CommNode has from an earlier monitor of this node, before they are written
// over. Without them the memory is empty, which only means that what changed meanwhile is not told as a change.
func (m *Monitor) remember(ctx context.Context) {
	if m.asked || m.written != nil {
		return
	}
	readCtx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	last, err := m.cfg.Reporter.Last(readCtx)
	if err != nil {
		m.cfg.Log.Info("the earlier facts were not read: changes while no monitor ran are not told", "node", m.cfg.Node,
			"error", err.Error())
		return
	}
	m.asked = true
	m.last, m.known = last, last != nil
}

// earlier is the history of a monitor that saw these facts: what a CommNode holds of them is its first look. Nil facts,
// and those of another origin, are none; nor is a boot known where either side does not state one. Of what the facts
// leave out or could not read nothing is known, so that it can be no change.
func earlier(last *v1alpha1.NodeFacts, now *discover.Facts) history {
	if last == nil || last.Origin != now.Origin || last.BootID == "" || now.BootID == "" {
		return history{}
	}
	h := newHistory()
	h.boot.look(&last.BootID)
	switch last.Driver.Kind {
	case discover.DriverUnknown, "":
	case discover.DriverNotLoaded:
		h.driver.unloaded = true
	default:
		h.driver.kind.look(&last.Driver.Kind)
		h.driver.version.look(stated(last.Driver.Version))
		h.driver.source.look(stated(last.Driver.SrcVersion))
	}
	classes := map[byte]string{}
	for _, c := range last.LinkClasses {
		if c.Letter != "" {
			classes[c.Letter[0]] = c.Type
		}
	}
	for i := range last.GPUs {
		g := &last.GPUs[i]
		h.gpus[g.PCIAddress] = sighting{last: last.ObservedTime.Time}
		h.model[g.PCIAddress] = either(g.Model, last.GPUModel)
		h.modes[g.PCIAddress] = modeOf(either(g.Partition, last.Partition))
		if fw := last.Firmware; fw != nil {
			for partition := range max(1, int(g.Devices)) {
				h.firmware[firmwareKey{g.PCIAddress, partition, "MEC"}] = firmwareOf(fw.MEC)
				h.firmware[firmwareKey{g.PCIAddress, partition, "SDMA"}] = firmwareOf(fw.SDMA)
			}
		}
		for j := range min(len(g.Links), len(last.GPUs)) {
			if classes[g.Links[j]] == string(discover.LinkXGMI) {
				h.links[link{g.PCIAddress, last.GPUs[j].PCIAddress}] = sighting{last: last.ObservedTime.Time}
			}
		}
	}
	// What was lost then is still lost, though not when it was last seen.
	for _, address := range last.LostGPUs {
		if _, known := h.gpus[address]; !known {
			h.gpus[address], h.model[address] = sighting{lost: true}, "GPU"
		}
	}
	for _, pair := range discover.LostLinks(last) {
		for _, k := range []link{{pair[0], pair[1]}, {pair[1], pair[0]}} {
			if _, known := h.links[k]; !known {
				// Of a link to a lost GPU is told only where the GPU comes back without it.
				h.links[k] = sighting{lost: !h.gpus[k.from].lost && !h.gpus[k.to].lost}
			}
		}
	}
	return h
}

// when is a time for a message; of an earlier monitor's time nothing but the boot is known.
func when(t time.Time) string {
	if t.IsZero() {
		return "earlier in this boot"
	}
	return "at " + stamp(t)
}

func either(own, shared string) string {
	if own != "" {
		return own
	}
	return shared
}

// modeOf takes a partition mode apart; what is unknown, mixed or not applicable is not known.
func modeOf(text string) *mode {
	m := &mode{}
	compute, memory, found := strings.Cut(text, "/")
	if !found {
		return m
	}
	for _, half := range []struct {
		seen *seen[string]
		text string
	}{{&m.compute, compute}, {&m.memory, memory}} {
		if half.text != discover.Unknown {
			half.seen.look(stated(half.text))
		}
	}
	return m
}

// firmwareOf is a version as the facts write it; one that is absent, or mixed, is not known.
func firmwareOf(text string) *seen[uint64] {
	s := &seen[uint64]{}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		s.look(&n)
	}
	return s
}
