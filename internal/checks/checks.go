// Package checks turns thresholds of the API into those of package reference, and its comparisons back into the API's.
// The agent judges a node's own measurements with it, the controller those over several nodes.
package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
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
				Variant: rcclx.Variant(cmp.Or(t.Variant, api.VariantBaseline)), Collective: rcclx.Collective(t.Collective), Datatype: rcclx.Datatype(cmp.Or(t.Datatype, api.BFloat16)),
				Placement: rcclx.Placement(cmp.Or(t.Placement, api.OutOfPlace)), SizeBytes: t.SizeBytes, Statistic: reference.Statistic(cmp.Or(t.Statistic, api.StatisticMedian)),
			},
			Place: reference.Place{Model: t.Model, Partition: t.Partition, Transport: t.Transport, Flavor: rcclx.Flavor(t.Flavor)},
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
		p := api.PerformanceCheck{Source: cut(c.Source, maxSource), Measurement: cut(measurement, maxMeasurement), State: api.CheckState(c.State), Mode: api.JudgingMode(c.Mode), Causes: c.Causes, Node: node}
		if k := c.Key; k.Collective != "" {
			p.Step = &api.Step{Variant: api.Variant(k.Variant), Collective: api.Collective(k.Collective), Datatype: api.Datatype(k.Datatype), Placement: api.Placement(k.Placement), SizeBytes: k.SizeBytes}
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

// maxSentences of checks in a message; the rest is counted.
const maxSentences = 3

// Message tells of checks that were not met or not measured: measured, expected, percent, source and the first causes.
func Message(all []api.PerformanceCheck) string {
	var parts []string
	for i := range all[:min(len(all), maxSentences)] {
		parts = append(parts, sentence(&all[i], i == 0))
	}
	if n := len(all) - maxSentences; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more, see the checks", n))
	}
	return strings.Join(parts, "; ")
}

func sentence(c *api.PerformanceCheck, first bool) string {
	causes := c.Causes
	if !first {
		causes = nil
	}
	if c.State == api.CheckNotMeasured || c.MeasuredMBps == nil || c.ExpectedMBps == nil {
		text := fmt.Sprintf("%s (%s) could not be judged", c.Measurement, c.Source)
		if len(c.Causes) > 0 {
			text += ": " + c.Causes[0]
		}
		return text
	}
	text := fmt.Sprintf("%s: measured %s, expected at least %s (%s): %d %%", c.Measurement, units.Bandwidth(*c.MeasuredMBps), units.Bandwidth(*c.ExpectedMBps), c.Source, percent(c))
	if n := min(len(causes), 2); n > 0 {
		text += "; look at: " + strings.Join(causes[:n], "; ")
	}
	return text
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "..."
	return strings.ToValidUTF8(s[:limit-len(ellipsis)], "") + ellipsis
}
