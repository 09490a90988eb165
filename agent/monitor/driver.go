package monitor

import (
	"fmt"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// runAgain is the next step after a change that makes old results no longer count.
var runAgain = v1alpha1.AskRun("", "") + "."

// driver is what was seen of the amdgpu driver.
type driver struct {
	kind, version, source seen[string]
	generation            seen[uint64]
	unloaded              bool
}

// text names the driver; only a DKMS driver has a version.
func (d *driver) text() string {
	text := d.kind.value
	if d.version.known && d.kind.value == discover.DriverDKMS {
		text += " " + d.version.value
	}
	if d.source.known {
		text += " (source " + d.source.value + ")"
	}
	return text
}

// checkDriver looks whether the driver is another one, or the same one loaded again. Results of earlier runs are then
// of another driver, and the counters start from zero.
func (l *look) checkDriver() {
	module := subject{Path: "sys/module/amdgpu"}
	d := &l.driver
	now := &l.facts.Driver
	was := d.text()
	reloaded := ""
	switch now.Kind {
	case discover.DriverUnknown: // unreadable is no change
	case discover.DriverNotLoaded:
		if d.kind.known && !d.unloaded {
			l.happened(news, v1alpha1.ProblemDriverChanged, module,
				"The driver was unloaded; it was %s. No GPU can be used until it is loaded again.", was)
		}
		d.unloaded = true
	default:
		_, kind := d.kind.look(&now.Kind)
		_, version := d.version.look(stated(now.Version))
		_, source := d.source.look(stated(now.SrcVersion))
		switch {
		case kind || version || source:
			l.happened(news, v1alpha1.ProblemDriverChanged, module,
				"The driver changed without a reboot: was %s, is %s. Results of earlier runs are of the other driver; "+
					runAgain, was, d.text())
			l.forgetCounters()
		case d.unloaded:
			reloaded = "it was not loaded at the last look"
		}
		d.unloaded = false
	}
	if l.facts.GenerationStable {
		// It only rises while the driver is loaded (sys_props.generation_count in kfd_topology.c).
		if before, changed := d.generation.look(l.facts.Generation); changed &&
			*l.facts.Generation < before && reloaded == "" {
			reloaded = "KFD's topology started again"
		}
	}
	if reloaded != "" {
		l.happened(news, v1alpha1.ProblemDriverChanged, module,
			"The driver was loaded again: %s. Results of earlier runs are of the time before; "+runAgain, reloaded)
		l.forgetCounters()
	}
}

// forgetCounters is for a driver that starts to count from zero.
func (l *look) forgetCounters() {
	clear(l.errors)
	clear(l.metrics)
}

// firmwareKey is a firmware of one logical device.
type firmwareKey struct {
	gpu       string
	partition int
	name      string
}

// newFirmware looks for microcode that changed: it comes with the driver, so that one was loaded again with others.
func (l *look) newFirmware() {
	changed, first := 0, ""
	for i := range l.facts.Devices {
		d := &l.facts.Devices[i]
		for _, fw := range []struct {
			name    string
			version *uint64
		}{{"MEC", d.FWVersion}, {"SDMA", d.SDMAVersion}} {
			key := firmwareKey{gpu: d.PCIAddress, partition: d.Partition, name: fw.name}
			s := l.firmware[key]
			if s == nil {
				s = &seen[uint64]{}
				l.firmware[key] = s
			}
			if was, is := s.look(fw.version); is {
				if changed++; changed == 1 {
					first = fmt.Sprintf("%s of %s was %d, is %d", fw.name, d.PCIAddress, was, *fw.version)
				}
			}
		}
	}
	if changed > 0 {
		l.happened(news, v1alpha1.ProblemDriverChanged, subject{},
			"The GPUs' firmware changed without a reboot (%d of them; %s). Results of earlier runs are of the "+
				"other firmware; "+runAgain, changed, first)
	}
}

// mode is the partition mode of a GPU.
type mode struct{ compute, memory seen[string] }

func (m *mode) text() string {
	text := func(s *seen[string]) string {
		if !s.known {
			return discover.Unknown
		}
		return s.value
	}
	return text(&m.compute) + "/" + text(&m.memory)
}

// repartition looks for GPUs in another compute or memory mode.
func (l *look) repartition() {
	for i := range l.facts.GPUs {
		g := &l.facts.GPUs[i]
		m := l.modes[g.PCIAddress]
		if m == nil {
			m = &mode{}
			l.modes[g.PCIAddress] = m
		}
		was := m.text()
		_, compute := m.compute.look(stated(g.ComputePartition))
		_, memory := m.memory.look(stated(g.MemoryPartition))
		if compute || memory {
			l.happened(news, v1alpha1.ProblemRepartitioned, subject{GPU: g.PCIAddress},
				"The partition mode was %s, is %s. Results of earlier runs are of the other mode; "+runAgain,
				was, m.text())
		}
	}
}
