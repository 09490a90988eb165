package judge

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// DimensionGroup is the dimension of the communicator over all members (SpanResultSeries.Dimension).
const DimensionGroup = "group"

// Place is what the members of a communicator over several nodes are, as far as thresholds and references depend on it.
// A value is empty where it is not known of every member, and nodefacts.Mixed where they differ.
type Place struct {
	model, partition string
	// flavor of the library, and the one that the simulator imitates.
	flavor, imitates string
	// transport between the nodes as SpanStatus has it: RDMA, TCP, Mixed or Unknown.
	transport string
}

// PlaceOfMembers is what all outcomes have in common. transport is what carried the data between them, for series that
// do not say it themselves.
func PlaceOfMembers(outcomes []Outcome, transport string) Place {
	var models, partitions, flavors, imitated []string
	for i := range outcomes {
		var flavor, imitates string
		if r := outcomes[i].Report; r != nil && r.Library != nil {
			flavor, imitates = r.Library.Flavor, r.Library.Imitates
		}
		models, partitions = append(models, outcomes[i].Kind.GPUModel), append(partitions, outcomes[i].Kind.Partition)
		flavors, imitated = append(flavors, flavor), append(imitated, imitates)
	}
	return Place{model: common(models), partition: common(partitions), flavor: common(flavors),
		imitates: common(imitated), transport: transport}
}

// common is the value that all have; empty where one of them is not known, nodefacts.Mixed where they differ.
func common(values []string) string {
	if len(values) == 0 || slices.Contains(values, "") || slices.Contains(values, nodefacts.Unknown) {
		return ""
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return nodefacts.Mixed
		}
	}
	return values[0]
}

func (p Place) of(s *v1alpha1.SpanResultSeries) reference.Place {
	at := reference.Place{Model: p.model, Partition: p.partition, Ranks: int(s.Ranks), Nodes: int(s.Nodes),
		Flavor: rcclx.Flavor(p.flavor), Imitates: rcclx.Flavor(p.imitates)}
	if t := cmp.Or(s.Transport, p.transport); t != TransportUnknown {
		at.Transport = t // a dimension of the mesh may have taken another way than the group
	}
	return at
}

// SpanChecks holds the results over several nodes against the thresholds with span Group and against the references. Of
// a dimension of the mesh the slowest communicator counts, and only thresholds that name its ranks or nodes hold for
// it. The worst checks come first. A step is slow where checks.Of finds an enforced one that is not met.
func SpanChecks(spec *v1alpha1.CommGroupSpec, series []v1alpha1.SpanResultSeries,
	place Place) []v1alpha1.PerformanceCheck {
	var dimensions []string
	for i := range series {
		if !slices.Contains(dimensions, series[i].Dimension) {
			dimensions = append(dimensions, series[i].Dimension)
		}
	}
	thresholds := checks.Thresholds(spec.Benchmark.Thresholds, v1alpha1.SpanGroup)
	var env []string
	for _, e := range spec.OwnVariables() {
		env = append(env, e.Name)
	}
	var out []v1alpha1.PerformanceCheck
	for _, d := range dimensions {
		in := reference.Input{Thresholds: thresholds, References: checks.Mode(spec.Benchmark.References),
			Part: d != DimensionGroup, Symptom: reference.Symptom{Env: env}}
		slowest := ""
		for i := range series {
			s := &series[i]
			if s.Dimension != d {
				continue
			}
			in.Place = place.of(s)
			in.Measurements = append(in.Measurements, spanMeasurements(s)...)
			slowest = cmp.Or(slowest, s.Slowest)
		}
		name := d
		if in.Part && slowest != "" && strings.HasPrefix(slowest, d) {
			name = slowest
		}
		out = append(out, checks.List(reference.Evaluate(in), name, "")...)
	}
	return checks.Worst(out)
}

func spanMeasurements(s *v1alpha1.SpanResultSeries) []reference.Measurement {
	var out []reference.Measurement
	for i, size := range s.SizeBytes {
		m := reference.Measurement{Key: reference.Key{Collective: rcclx.Collective(s.Collective),
			Datatype: rcclx.Datatype(s.Datatype), Placement: rcclx.Placement(s.Placement), SizeBytes: size}}
		if i < len(s.MinBusBandwidthMBps) {
			m.MedianMBps = s.MinBusBandwidthMBps[i]
		}
		if m.Repeats = int(s.Repeats); i < len(s.SpreadPercent) {
			m.RepeatSpreadPercent = ptr.To(int64(s.SpreadPercent[i]))
		}
		out = append(out, m)
	}
	return out
}

// AggregateChecks are the worst checks over all: of the nodes' own, of each measurement the worst node's, then those
// over several nodes and against the baseline.
func AggregateChecks(outcomes []Outcome, others ...[]v1alpha1.PerformanceCheck) []v1alpha1.PerformanceCheck {
	type measurement struct{ source, name string }
	at := map[measurement]int{}
	var out []v1alpha1.PerformanceCheck
	for i := range outcomes {
		if outcomes[i].Report == nil {
			continue
		}
		for _, c := range outcomes[i].Report.Checks {
			c.Node = outcomes[i].Node
			name, _, _ := strings.Cut(c.Measurement, ";") // the spread of its repeats is each node's own
			key := measurement{c.Source, name}
			k, seen := at[key]
			switch {
			case !seen:
				at[key] = len(out)
				out = append(out, c)
			case checks.Worse(c, out[k]) < 0:
				out[k] = c
			}
		}
	}
	for _, more := range others {
		out = append(out, more...)
	}
	return checks.Worst(out)
}

// SpanResultsOf are what was measured over several nodes in this run; none while it is not known.
func SpanResultsOf(span *v1alpha1.SpanStatus, run *v1alpha1.GroupRunStatus) []v1alpha1.SpanResultSeries {
	if span == nil || run == nil || span.RunID != run.ID {
		return nil
	}
	return span.Results
}

// The transports of a group (status.span.transport).
const (
	TransportRDMA    = "RDMA"
	TransportTCP     = "TCP"
	TransportMixed   = "Mixed"
	TransportUnknown = "Unknown"
)
