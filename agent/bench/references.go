package bench

import (
	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// references holds Baseline against the published marks for exactly what was measured, or says which is the nearest.
// They decide nothing here: a user who measures by hand judges for herself. None where discovery does not know the
// GPUs.
func (x *bench) references() []reference.Check {
	host := executor.HostFactsOf(x.facts.Discovered)
	if host.Model == "" {
		return nil
	}
	in := reference.Input{
		Place: reference.Place{Model: host.Model, Partition: host.Partition, Ranks: len(x.Devices), Nodes: 1,
			Flavor: x.lib.Flavor, Imitates: x.lib.Imitates},
		References: reference.Report,
		Symptom: reference.Symptom{Audience: audience.Shell, Mesh: host.Mesh, GPUs: host.GPUs,
			Throttled: host.Throttled, VersionCode: x.lib.VersionCode, Warnings: executor.SymptomWarnings(x.found)},
	}
	for _, e := range x.env {
		in.Symptom.Env = append(in.Symptom.Env, e.Name)
	}
	for _, r := range x.report.Results {
		if r.Variant == rcclx.Baseline {
			in.Measurements = append(in.Measurements, referenceMeasurement(r, len(x.Devices)))
		}
	}
	if len(in.Measurements) == 0 {
		return nil
	}
	return reference.Evaluate(in)
}

func referenceMeasurement(r results.Result, ranks int) reference.Measurement {
	mbps := func(nanoseconds int64) int64 {
		return rcclx.BusBandwidthMBps(r.Collective, r.SizeBytes, nanoseconds, ranks)
	}
	return reference.Measurement{
		Key: reference.Key{Variant: r.Variant, Collective: r.Collective, Datatype: r.Datatype, Placement: r.Placement,
			SizeBytes: r.SizeBytes},
		MedianMBps: mbps(r.Latency.MedianNanoseconds), MinMBps: mbps(r.Latency.MaxNanoseconds),
		MaxMBps: mbps(r.Latency.MinNanoseconds), P5MBps: mbps(r.Latency.P95Nanoseconds),
		NoisePercent: r.Latency.CoefficientOfVariationPPM / 10_000,
	}
}
