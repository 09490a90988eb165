// Package checks turns thresholds of the API into those of package reference, and its comparisons back into the API's.
// The agent judges a node's own measurements with it, the controller those over several nodes.
package checks

import (
	"cmp"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// Max is the most checks that a status holds.
const Max = 16

const (
	maxSource      = 64
	maxMeasurement = 160
)

// Thresholds of one span; absent fields of the API's stand for their defaults.
func Thresholds(all []api.Threshold, span api.Span) []reference.Threshold {
	var out []reference.Threshold
	for i := range all {
		t := &all[i]
		if cmp.Or(t.Span, api.SpanNode) != span {
			continue
		}
		r := reference.Threshold{
			Key: reference.Key{
				Variant:    rcclx.Variant(cmp.Or(t.Variant, api.VariantBaseline)),
				Collective: rcclx.Collective(t.Collective), Datatype: rcclx.Datatype(cmp.Or(t.Datatype, api.BFloat16)),
				Placement: rcclx.Placement(cmp.Or(t.Placement, api.OutOfPlace)), SizeBytes: t.SizeBytes,
				Statistic: reference.Statistic(cmp.Or(t.Statistic, api.StatisticMedian)),
			},
			Place: reference.Place{Model: t.Model, Partition: t.Partition, Transport: t.Transport,
				Flavor: rcclx.Flavor(t.Flavor)},
		}
		if t.Ranks != nil {
			r.Place.Ranks = int(*t.Ranks)
		}
		if t.Nodes != nil {
			r.Place.Nodes = int(*t.Nodes)
		}
		if t.MinBusBandwidthMBps != nil {
			r.MinMBps = *t.MinBusBandwidthMBps
		}
		if t.MinPercentOfReference != nil {
			r.MinPercent = int(*t.MinPercentOfReference)
		}
		out = append(out, r)
	}
	return out
}

// Mode of built-in references; absent means Enforce, as the API has it.
func Mode(m api.JudgingMode) reference.Mode { return reference.Mode(cmp.Or(m, api.JudgingEnforce)) }

// List gives comparisons as the API has them, the worst first and at most Max of them. Dimension is put before each
// measurement, and node says whose they are; both may be empty.
func List(all []reference.Check, dimension, node string) []api.PerformanceCheck {
	var out []api.PerformanceCheck
	for _, c := range all {
		measurement := c.Measurement
		if dimension != "" {
			measurement = dimension + ": " + measurement
		}
		p := api.PerformanceCheck{Source: clip.Head(c.Source, maxSource),
			Measurement: clip.Head(measurement, maxMeasurement), State: api.CheckState(c.State),
			Mode: api.JudgingMode(c.Mode), Causes: c.Causes, Node: node}
		if k := c.Key; k.Collective != "" {
			p.Step = &api.Step{Variant: api.Variant(k.Variant), Collective: api.Collective(k.Collective),
				Datatype: api.Datatype(k.Datatype), Placement: api.Placement(k.Placement), SizeBytes: k.SizeBytes}
		}
		if c.MeasuredMBps > 0 {
			percent := int32(min(c.Percent, 1_000_000))
			p.MeasuredMBps, p.ExpectedMBps, p.Percent = &c.MeasuredMBps, &c.ExpectedMBps, &percent
		}
		out = append(out, p)
	}
	return Worst(out)
}

// Worst sorts checks, what decides the verdict first, and keeps Max of them.
func Worst(all []api.PerformanceCheck) []api.PerformanceCheck {
	slices.SortStableFunc(all, Worse)
	return all[:min(len(all), Max)]
}

// Worse orders two checks as reference.Worse does.
func Worse(a, b api.PerformanceCheck) int {
	return cmp.Or(cmp.Compare(severity(&a), severity(&b)), cmp.Compare(percent(&a), percent(&b)))
}

func severity(c *api.PerformanceCheck) int {
	return reference.Severity(reference.State(c.State), reference.Mode(c.Mode))
}

func percent(c *api.PerformanceCheck) int32 {
	if c.Percent == nil {
		return 0
	}
	return *c.Percent
}

// Of gives the enforced checks that were not met, and those that were not measured, the worst first.
func Of(all []api.PerformanceCheck) (notMet, notMeasured []api.PerformanceCheck) {
	for i := range all {
		switch c := all[i]; {
		case c.Mode != api.JudgingEnforce:
		case c.State == api.CheckNotMet:
			notMet = append(notMet, c)
		case c.State == api.CheckNotMeasured:
			notMeasured = append(notMeasured, c)
		}
	}
	return notMet, notMeasured
}
