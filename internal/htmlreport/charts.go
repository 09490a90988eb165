package htmlreport

import (
	"cmp"
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// chartGroup is one collective, datatype and placement with its plots and the numbers behind them.
type chartGroup struct {
	Title string
	Plots []*plot
	Table grid
	Notes []string
	// Repeats say how far the repeats behind the medians are apart.
	Repeats []string
	Open    bool
}

// openCharts is how many groups of charts are unfolded at first.
const openCharts = 2

type chartKey struct {
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
	placement  v1alpha1.Placement
}

func (k chartKey) String() string {
	text := fmt.Sprintf("%s %s, out of place", k.collective, k.datatype)
	if k.placement == v1alpha1.InPlace {
		text = fmt.Sprintf("%s %s, in place", k.collective, k.datatype)
	}
	return text
}

// classes of the variants: the same colour and shape in each plot.
var classes = map[v1alpha1.Variant]string{v1alpha1.VariantBaseline: "s0", v1alpha1.VariantDDA: "s1",
	v1alpha1.VariantLowPrecision: "s2"}

// resultCharts are the plots of a group's results, in the order in which they were measured.
func resultCharts(all []v1alpha1.GroupResultSeries, plan *v1alpha1.RunPlan, nodes []report.Member) []chartGroup {
	var keys []chartKey
	by := map[chartKey][]*v1alpha1.GroupResultSeries{}
	for i := range all {
		r := &all[i]
		k := chartKey{r.Collective, r.Datatype, cmp.Or(r.Placement, v1alpha1.OutOfPlace)}
		if by[k] == nil {
			keys = append(keys, k)
		}
		by[k] = append(by[k], r)
	}
	groups := make([]chartGroup, 0, len(keys))
	for i, k := range keys {
		groups = append(groups, chartsOf(k, by[k], plan, nodes, fmt.Sprintf("c%d", i), i < openCharts))
	}
	return groups
}

func chartsOf(k chartKey, variants []*v1alpha1.GroupResultSeries, plan *v1alpha1.RunPlan, nodes []report.Member,
	id string, open bool) chartGroup {
	g := chartGroup{Title: k.String(), Open: open}
	var sizes []int64
	var baseline *v1alpha1.GroupResultSeries
	for _, v := range variants {
		sizes = append(sizes, v.SizeBytes...)
		if v.Variant == v1alpha1.VariantBaseline {
			baseline = v
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	ticks := make([]float64, 0, len(sizes))
	for _, s := range sizes {
		ticks = append(ticks, float64(s))
	}
	base := plotOptions{logX: true, xLabel: "message size (bytes)", xTicks: ticks, xText: sizeText, yText: short}

	bandwidth, latency, gain := base, base, base
	bandwidth.id, bandwidth.title, bandwidth.yLabel, bandwidth.logY = id+"b", "Bus bandwidth by size",
		"bus bandwidth (GB/s)", true
	bandwidth.about, bandwidth.desc = k.String(),
		"The members' median, in 10⁹ bytes per second; both axes are logarithmic. More is better."
	latency.id, latency.title, latency.yLabel, latency.logY = id+"l", "Latency by size", "latency (µs)", true
	latency.about, latency.desc = k.String(),
		"The members' median of the slowest rank's median; both axes are logarithmic. Less is better."
	gain.id, gain.title, gain.yLabel = id+"g", "Gain against Baseline", "times as fast"
	gain.about, gain.desc = k.String(),
		"Baseline's latency over the variant's: above 1 the setting is faster, below 1 slower."
	gain.guides = map[float64]string{1: "Baseline"}

	var b, l, g3 []series
	for i, v := range variants {
		class := cmp.Or(classes[v.Variant], fmt.Sprintf("s%d", i%6))
		b = append(b, sizeSeries(v, class, sizes, v.BusBandwidthMBps, 1e-3, func(x int64) string {
			return units.GBps(x) + " GB/s"
		}))
		l = append(l, sizeSeries(v, class, sizes, v.LatencyNanoseconds, 1e-3, func(x int64) string {
			return units.Microseconds(x) + " µs"
		}))
		if baseline != nil && v != baseline {
			g3 = append(g3, gainSeries(baseline, v, class, sizes))
		}
	}
	for _, p := range []*plot{newPlot(bandwidth, b), newPlot(latency, l), newPlot(gain, g3)} {
		if p != nil {
			g.Plots = append(g.Plots, p)
		}
	}
	g.Table = resultTable(k, variants, baseline, sizes)
	for _, v := range variants {
		if v.WrongElements > 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("%s: %d elements were wrong", v.Variant, v.WrongElements))
		}
		if e := v.MaxRelativeErrorPPM; e != nil && *e > 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("%s: largest relative error %s", v.Variant, units.Percent(*e)))
		}
		if apart := report.Apart(v, plan, nodes); apart != "" {
			g.Repeats = append(g.Repeats, fmt.Sprintf("%s: %s.", v.Variant, apart))
		}
	}
	return g
}

func sizeText(v float64) string { return units.Bytes(int64(v)) }

// valueAt is a series' value at a size; ok is false where it was not measured.
func valueAt(sizes, values []int64, size int64) (int64, bool) {
	i := slices.Index(sizes, size)
	if i < 0 || i >= len(values) || values[i] <= 0 {
		return 0, false
	}
	return values[i], true
}

func sizeSeries(v *v1alpha1.GroupResultSeries, class string, sizes, values []int64, scale float64,
	text func(int64) string) series {
	s := series{Name: string(v.Variant), Class: class}
	for _, size := range sizes {
		n, ok := valueAt(v.SizeBytes, values, size)
		if !ok {
			s.Breaks = append(s.Breaks, float64(size))
			continue
		}
		s.Points = append(s.Points, point{float64(size), float64(n) * scale, units.Bytes(size) + ", " + text(n)})
	}
	return s
}

func gainSeries(baseline, v *v1alpha1.GroupResultSeries, class string, sizes []int64) series {
	s := series{Name: string(v.Variant), Class: class}
	for _, size := range sizes {
		was, ok := valueAt(baseline.SizeBytes, baseline.LatencyNanoseconds, size)
		is, also := valueAt(v.SizeBytes, v.LatencyNanoseconds, size)
		if !ok || !also {
			s.Breaks = append(s.Breaks, float64(size))
			continue
		}
		ratio := float64(was) / float64(is)
		s.Points = append(s.Points,
			point{float64(size), ratio, fmt.Sprintf("%s, %.2f times as fast as Baseline", units.Bytes(size), ratio)})
	}
	return s
}

func resultTable(k chartKey, variants []*v1alpha1.GroupResultSeries, baseline *v1alpha1.GroupResultSeries,
	sizes []int64) grid {
	t := grid{Caption: "Numbers: " + k.String(), Head: []string{"Size"}}
	for _, v := range variants {
		t.Head = append(t.Head, string(v.Variant)+" µs", "GB/s", "slowest node GB/s")
		if v != baseline {
			t.Head = append(t.Head, "gain")
		}
	}
	for _, size := range sizes {
		row := []cell{plain(units.Bytes(size))}
		for _, v := range variants {
			latency, bandwidth, slowest := unknown, unknown, unknown
			if n, ok := valueAt(v.SizeBytes, v.LatencyNanoseconds, size); ok {
				latency = units.Microseconds(n)
			}
			if n, ok := valueAt(v.SizeBytes, v.BusBandwidthMBps, size); ok {
				bandwidth = units.GBps(n)
			}
			if n, ok := valueAt(v.SizeBytes, v.MinBusBandwidthMBps, size); ok {
				slowest = units.GBps(n)
			}
			row = append(row, number(latency), number(bandwidth), number(slowest))
			if v != baseline {
				row = append(row, gainCell(baseline, v, size))
			}
		}
		t.Rows = append(t.Rows, gridRow{Cells: row})
	}
	return t
}

func gainCell(baseline, v *v1alpha1.GroupResultSeries, size int64) cell {
	if baseline == nil {
		return number(unknown)
	}
	was, ok := valueAt(baseline.SizeBytes, baseline.LatencyNanoseconds, size)
	is, also := valueAt(v.SizeBytes, v.LatencyNanoseconds, size)
	if !ok || !also {
		return number(unknown)
	}
	c := number(fmt.Sprintf("%.2fx", float64(was)/float64(is)))
	switch { // 3 %: within it two runs on an idle node differ
	case float64(was) > 1.03*float64(is):
		c.Tone = toneGood
	case float64(is) > 1.03*float64(was):
		c.Tone = toneBad
	}
	return c
}

// historyPlot is the headline bandwidth over the last runs, the oldest first; only runs of one headline compare.
func historyPlot(s *state.Status) *plot {
	if len(s.History) == 0 {
		return nil
	}
	headline := ""
	for _, h := range s.History {
		if h.Headline != "" && h.BusBandwidthMBps != nil {
			headline = h.Headline
			break
		}
	}
	node := series{Name: "members' median", Class: "s0"}
	group := series{Name: "over all nodes", Class: "s1"}
	var ticks []float64
	labels := map[float64]string{}
	for i := range s.History {
		h := &s.History[len(s.History)-1-i]
		x := float64(i)
		ticks = append(ticks, x)
		labels[x] = h.ID
		if h.Headline == headline && h.BusBandwidthMBps != nil {
			node.Points = append(node.Points,
				point{x, float64(*h.BusBandwidthMBps) / 1e3, fmt.Sprintf("run %s, %s GB/s, %s",
					h.ID, units.GBps(*h.BusBandwidthMBps), cmp.Or(string(h.Verdict), "aborted"))})
		} else {
			node.Breaks = append(node.Breaks, x)
		}
		if h.GroupBusBandwidthMBps != nil {
			group.Points = append(group.Points, point{x, float64(*h.GroupBusBandwidthMBps) / 1e3,
				fmt.Sprintf("run %s, %s GB/s", h.ID, units.GBps(*h.GroupBusBandwidthMBps))})
		} else {
			group.Breaks = append(group.Breaks, x)
		}
	}
	return newPlot(plotOptions{id: "history", title: "Bus bandwidth over the last runs", desc: cmp.Or(headline,
		"no headline was measured"), xLabel: "run, the oldest first", yLabel: "bus bandwidth (GB/s)",
		xTicks: ticks, xText: func(v float64) string { return labels[v] }, yText: short}, []series{node, group})
}
