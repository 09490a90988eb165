package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// HostFacts are what of a node thresholds, references and likely causes depend on. What is empty or zero is not known.
type HostFacts struct {
	// Model and Partition of the GPUs, and the xGMI Mesh, as discovery names them.
	Model, Partition, Mesh string
	// GPUs that ranks could use, partitions counted each.
	GPUs int
	// Throttled says which GPUs were throttled for heat or power before the run; empty where none was or it is not
	// known.
	Throttled string
}

// HostFactsOf are what a look at the whole machine says; nil where there was none.
func HostFactsOf(own *discover.Facts) HostFacts {
	if own == nil {
		return HostFacts{}
	}
	f := own.NodeFacts(0)
	return hostFacts(&api.PlatformFacts{Model: f.GPUModel, Partition: f.Partition, Mesh: f.XGMI.Mesh,
		Devices: f.DeviceCount}, own)
}

// SymptomWarnings are the preconditions that were not met, as likely causes take them.
func SymptomWarnings(findings []preflight.Finding) []reference.Warning {
	var out []reference.Warning
	for _, f := range findings {
		if f.State == preflight.Warning || f.State == preflight.Failed {
			out = append(out, reference.Warning{Name: f.Name, Message: f.Message})
		}
	}
	return out
}

// hostFacts are what the run's own look at sysfs says, else what the node's monitor had reported when the run was
// assigned. The monitor comes first for what a container sees only a part of: the mesh and the number of GPUs.
func hostFacts(monitor *api.PlatformFacts, own *discover.Facts) HostFacts {
	var h HostFacts
	if own != nil {
		h.Model, h.Partition, h.Throttled = knownText(own.Model), knownText(own.Partition), throttled(own)
	}
	if monitor != nil {
		h.Model, h.Partition = cmp.Or(h.Model, knownText(monitor.Model)),
			cmp.Or(h.Partition, knownText(monitor.Partition))
		h.Mesh, h.GPUs = monitor.Mesh, int(monitor.Devices)
	}
	return h
}

func knownText(s string) string {
	if s == "unknown" {
		return ""
	}
	return s
}

// throttledPerMille is the share of the driver's uptime from which on throttling for a cause is told.
const throttledPerMille = 10

// throttled names the GPUs that spent a noticeable share of the time since the driver was loaded throttled.
func throttled(f *discover.Facts) string {
	var out []string
	for i := range f.GPUs {
		g := &f.GPUs[i]
		m := g.Metrics
		if m == nil || m.AccumulationCounter == nil || *m.AccumulationCounter == 0 {
			continue
		}
		for _, cause := range []string{discover.ThrottleProchot, discover.ThrottlePower, discover.ThrottleSocketHot,
			discover.ThrottleVRHot, discover.ThrottleMemoryHot} {
			if perMille := m.ThrottleAccumulators[cause] * 1000 / *m.AccumulationCounter; perMille >=
				throttledPerMille {
				out = append(out, fmt.Sprintf("GPU %s %d %% of the time since the driver was loaded (%s)",
					g.PCIAddress, perMille/10, cause))
			}
		}
	}
	if len(out) > 2 {
		return fmt.Sprintf("%s and %d more", out[0], len(out)-1)
	}
	return strings.Join(out, ", ")
}

// judgeChecks holds what a whole run measured against the plan's thresholds and the references, the worst first.
func judgeChecks(e Evidence, t Table, links LinkFindings, settings []api.SettingStatus) []api.PerformanceCheck {
	in := reference.Input{
		Place:      reference.Place{Model: e.Host.Model, Partition: e.Host.Partition, Ranks: t.Ranks, Nodes: 1},
		Thresholds: checks.Thresholds(e.Plan.Thresholds, api.SpanNode), References: checks.Mode(e.Plan.References),
		Measurements: referenceMeasurements(t),
		Symptom: reference.Symptom{Mesh: e.Host.Mesh, GPUs: e.Host.GPUs, Throttled: e.Host.Throttled,
			SlowLink: slowLink(links.Probe), Off: func(k reference.Key) string { return notInEffect(k, settings) }},
	}
	if e.Library != nil {
		in.Place.Flavor, in.Place.Imitates, in.Symptom.VersionCode = e.Library.Flavor, e.Library.Imitates,
			e.Library.VersionCode
	}
	in.Symptom.Warnings = SymptomWarnings(e.Preconditions)
	for _, v := range e.Plan.Env {
		in.Symptom.Env = append(in.Symptom.Env, v.Name)
	}
	return checks.List(reference.Evaluate(in), "", "")
}

// slowLinkPercent of the node's median pair: a link below it is told as a likely cause.
const slowLinkPercent = 90

func slowLink(p *api.LinkProbe) string {
	if p == nil || p.MinMBps*100 >= p.MedianMBps*slowLinkPercent {
		return ""
	}
	return fmt.Sprintf("%s moves %s, %d %% of the node's median pair",
		p.Slowest, units.Bandwidth(p.MinMBps), percent(p.MinMBps, p.MedianMBps))
}

// notInEffect says why a variant's setting does nothing for a key; empty where it is in effect or that is not known.
func notInEffect(k reference.Key, settings []api.SettingStatus) string {
	prefix := settingPrefix[api.Variant(k.Variant)]
	if prefix == "" {
		return ""
	}
	at := slices.IndexFunc(settings, func(s api.SettingStatus) bool { return s.Name == prefix+string(k.Collective) })
	if at < 0 {
		return "the library has it not for " + string(k.Collective)
	}
	s := settings[at]
	switch {
	case s.Effective == api.EffectiveNotInEffect:
		return s.Reason
	case s.MinBytes != nil && k.SizeBytes < *s.MinBytes:
		return fmt.Sprintf("it begins at %d B", *s.MinBytes)
	case s.MaxBytes != nil && k.SizeBytes > *s.MaxBytes:
		return fmt.Sprintf("it ends at %d B", *s.MaxBytes)
	}
	return ""
}

// referenceMeasurements are a table's cells in each statistic. Of a size that was rounded down to whole elements the
// size that was asked for names the measurement, and the size that was moved gives the bandwidth.
func referenceMeasurements(t Table) []reference.Measurement {
	var out []reference.Measurement
	for _, s := range t.Series {
		for _, c := range s.Cells {
			mbps := func(nanoseconds int64) int64 {
				if nanoseconds <= 0 || c.MovedBytes <= 0 || t.Ranks < 2 {
					return 0
				}
				return rcclx.BusBandwidthMBps(s.Key.Collective, c.MovedBytes, nanoseconds, t.Ranks)
			}
			m := reference.Measurement{
				Key: reference.Key{Variant: s.Key.Variant, Collective: s.Key.Collective, Datatype: s.Key.Datatype,
					Placement: s.Key.Placement, SizeBytes: c.SizeBytes},
				MedianMBps: mbps(c.LatencyNanoseconds), MinMBps: mbps(c.MaxNanoseconds),
				MaxMBps: mbps(c.MinNanoseconds), P5MBps: mbps(c.P95Nanoseconds),
				NoisePercent: int64(c.noisePercent()),
			}
			for _, ns := range c.RepeatNanoseconds {
				m.RepeatsMBps = append(m.RepeatsMBps, mbps(ns))
			}
			out = append(out, m)
		}
	}
	return out
}

// fewerWords leaves so many causes with each check that was not met and is enforced, and none with the others.
func fewerWords(all []api.PerformanceCheck, causes int) []api.PerformanceCheck {
	for i := range all {
		c := &all[i]
		n := 0
		if c.Mode == api.JudgingEnforce && c.State != api.CheckMet {
			n = causes
		}
		c.Causes = c.Causes[:min(len(c.Causes), n)]
		if len(c.Causes) == 0 {
			c.Causes = nil
		}
	}
	return all
}
