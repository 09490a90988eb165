package stage

import (
	"fmt"
	"maps"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/units"
)

// keepResults makes one series of each measurement over the communicators of a dimension, whose data took that
// transport.
func (g *planner) keepResults(dimension, transport string, communicators []commResult) {
	g.span.Results = slices.DeleteFunc(g.span.Results, func(s v1alpha1.SpanResultSeries) bool {
		return s.Dimension == dimension
	})
	for _, s := range seriesOf(dimension, communicators) {
		s.Transport = transport
		g.span.Results = append(g.span.Results, s)
	}
	if len(g.span.Results) > MaxSeries {
		g.span.Results = g.span.Results[:MaxSeries]
	}
}

// MaxSeries bounds status.span.results.
const MaxSeries = 48

func seriesOf(dimension string, communicators []commResult) []v1alpha1.SpanResultSeries {
	type cell struct {
		latency, bandwidth []int64
		spread             []int32
	}
	type table struct {
		cells   map[int64]*cell
		slowest string
		least   int64
		count   int32
	}
	tables := map[runplan.Key]*table{}
	var order []runplan.Key
	for i := range communicators {
		c := &communicators[i]
		for j := range c.results {
			r := &c.results[j]
			key := runplan.KeyOf(r)
			t := tables[key]
			if t == nil {
				t = &table{cells: map[int64]*cell{}}
				tables[key], order = t, append(order, key)
			}
			t.count++
			for k := range min(len(r.SizeBytes), len(r.LatencyNanoseconds), len(r.BusBandwidthMBps)) {
				one := t.cells[r.SizeBytes[k]]
				if one == nil {
					one = &cell{}
					t.cells[r.SizeBytes[k]] = one
				}
				one.latency, one.bandwidth = append(one.latency, r.LatencyNanoseconds[k]),
					append(one.bandwidth, r.BusBandwidthMBps[k])
				if k < len(r.SpreadPercent) {
					one.spread = append(one.spread, r.SpreadPercent[k])
				}
				if k == len(r.SizeBytes)-1 && (t.slowest == "" || r.BusBandwidthMBps[k] < t.least) {
					t.slowest, t.least = c.name, r.BusBandwidthMBps[k]
				}
			}
		}
	}
	var out []v1alpha1.SpanResultSeries
	for _, key := range order {
		t := tables[key]
		s := v1alpha1.SpanResultSeries{Dimension: dimension, Collective: key.Collective, Datatype: key.Datatype,
			Placement: key.Placement, Communicators: t.count, Ranks: communicators[0].ranks,
			Nodes: int32(len(communicators[0].participants)), Repeats: communicators[0].repeats, SizeBytes: []int64{},
			LatencyNanoseconds: []int64{}, BusBandwidthMBps: []int64{}, MinBusBandwidthMBps: []int64{}}
		if t.count > 1 {
			s.Slowest = t.slowest
		}
		sizes := slices.Sorted(maps.Keys(t.cells))
		for _, size := range sizes[max(0, len(sizes)-judge.MaxSeriesSizes):] {
			one := t.cells[size]
			s.SizeBytes = append(s.SizeBytes, size)
			s.MinBusBandwidthMBps = append(s.MinBusBandwidthMBps, slices.Min(one.bandwidth))
			s.LatencyNanoseconds = append(s.LatencyNanoseconds, judge.Median(one.latency))
			s.BusBandwidthMBps = append(s.BusBandwidthMBps, judge.Median(one.bandwidth))
			if len(one.spread) == len(one.bandwidth) {
				s.SpreadPercent = append(s.SpreadPercent, slices.Max(one.spread))
			}
		}
		if len(s.SpreadPercent) != len(s.SizeBytes) {
			s.SpreadPercent = nil // not known of each size
		}
		out = append(out, s)
	}
	return out
}

// groupChecks holds the group's own results against thresholds and references.
func (g *planner) groupChecks() []v1alpha1.PerformanceCheck {
	var own []judge.Outcome
	here := map[string]bool{}
	for _, s := range g.present() {
		here[s.name] = true
	}
	for i := range g.in.Outcomes {
		if here[g.in.Outcomes[i].Node] {
			own = append(own, g.in.Outcomes[i])
		}
	}
	return judge.SpanChecks(&g.in.Group.Spec, g.span.Results, judge.PlaceOfMembers(own, g.span.Transport))
}

// metMark says whether a threshold or reference that is enforced was met.
func metMark(all []v1alpha1.PerformanceCheck) bool {
	return slices.ContainsFunc(all, func(c v1alpha1.PerformanceCheck) bool {
		return c.State == v1alpha1.CheckMet && c.Mode == v1alpha1.JudgingEnforce
	})
}

func (g *planner) judgedByMark() bool { return metMark(g.groupChecks()) }

// figuresOf are the checks without their causes: the search tells more, and status.checks keeps them.
func figuresOf(notMet []v1alpha1.PerformanceCheck) []v1alpha1.PerformanceCheck {
	out := slices.Clone(notMet)
	for i := range out {
		out[i].Causes = nil
	}
	return out
}

// groupFigure is the group's own bus bandwidth at a step; zero where it was not measured.
func (g *planner) groupFigure(step v1alpha1.Step) int64 {
	for i := range g.span.Results {
		s := &g.span.Results[i]
		if s.Dimension != judge.DimensionGroup || s.Collective != step.Collective || s.Datatype != step.Datatype ||
			(s.Placement == v1alpha1.InPlace) != (step.Placement == v1alpha1.InPlace) {
			continue
		}
		if at := slices.Index(s.SizeBytes, step.SizeBytes); at >= 0 && at < len(s.BusBandwidthMBps) {
			return s.BusBandwidthMBps[at]
		}
	}
	return 0
}

// groupFigures are those of the first and of the last communicator over the group; zero where there is none.
func (g *planner) groupFigures() (first, last int64) {
	formed := 0
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		if t.Kind != v1alpha1.TestGroup {
			continue
		}
		if formed++; t.BusBandwidthMBps == nil {
			continue // it hung or failed, so that nothing can be held against it
		}
		if formed == 1 {
			first = *t.BusBandwidthMBps
		}
		last = *t.BusBandwidthMBps
	}
	return first, last
}

// stillSlow says whether the group without its slow culprits is no faster than it was with them. Where a mark was met
// it is not.
func (g *planner) stillSlow() bool {
	first, last := g.groupFigures()
	return g.foundSlow() && last > 0 && last*g.minPercent() <= first*100 && !g.judgedByMark()
}

// figure is the one number of the group's communicator.
func (g *planner) figure() string {
	for _, want := range []v1alpha1.Collective{v1alpha1.AllReduce, ""} {
		for i := range g.span.Results {
			s := &g.span.Results[i]
			last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1
			if s.Dimension == judge.DimensionGroup && last >= 0 && (want == "" || s.Collective == want) {
				return fmt.Sprintf("%s %s at %s reaches %s",
					s.Collective, s.Datatype, units.Size(s.SizeBytes[last]), units.Bandwidth(s.BusBandwidthMBps[last]))
			}
		}
	}
	return "no figure"
}

// transportWords say what carried the group's data, and that of the mesh where it was another.
func (g *planner) transportWords() string {
	for i := range g.span.Results {
		if s := &g.span.Results[i]; s.Dimension == judge.DimensionGroup && s.Transport != "" &&
			s.Transport != g.span.Transport {
			return fmt.Sprintf("%s (with the mesh %s)", s.Transport, g.span.Transport)
		}
	}
	return g.span.Transport
}
