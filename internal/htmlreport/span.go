package htmlreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// spanView is the group's stage: communicators over several nodes.
type spanView struct {
	Tone                   tone
	Verdict, Head, Message string
	Network                string
	Left                   string
	Members, More          string
	Search                 *searchView
	Tests                  grid
	Pairs                  *barView
	Results                grid
	Plots                  []*plot
}

type searchView struct {
	Tone    tone
	State   string
	Head    string
	Message string
}

func newSpan(group *state.Group, nodes []report.Member) *spanView {
	s := group.Status.Span
	if s == nil {
		return nil
	}
	v := &spanView{Tone: verdictTone(s.Verdict), Verdict: cmp.Or(string(s.Verdict), "stage "+string(s.Stage)),
		Message: report.SpanMessage(group), Network: s.Network, Head: fmt.Sprintf("Run %s, stage %s", s.RunID, s.Stage)}
	if s.Members > 0 { // they are fixed once the nodes have passed alone
		v.Head += fmt.Sprintf(": %d of %d members are in it; transport between nodes %s",
			s.Present, s.Members, cmp.Or(s.Transport, "not known"))
	}
	if s.Reason != "" {
		v.Verdict += " (" + s.Reason + ")"
	}
	if len(s.Left) > 0 || s.LeftSet != "" {
		v.Left = fmt.Sprintf("It went on without %s (index %s).",
			orUnknown(strings.Join(s.Left, ", ")), orUnknown(s.LeftSet))
	}
	if l := s.Localization; l != nil {
		v.Search = &searchView{State: string(l.State), Tone: map[v1alpha1.LocalizationState]tone{
			v1alpha1.LocalizationFound: toneGood, v1alpha1.LocalizationRunning: toneInfo}[l.State],
			Head: fmt.Sprintf("%s in %d of at most %s, for the step %s", units.Counted(int64(l.Tests), "test"),
				l.Rounds, units.Counted(int64(l.MaxRounds), "round"), report.StepName(l.Step)),
			Message: report.SearchMessage(s)}
		v.Search.Tone = cmp.Or(v.Search.Tone, toneWarn)
		if l.Seconds != nil {
			v.Search.Head += ", in " + (time.Duration(*l.Seconds) * time.Second).String()
		}
	}
	v.Members, v.More = report.Indexes(group, nodes), reasons.Sentence(report.MoreCulprits(group, nodes))
	lines := report.TestLines(group, nodes)
	v.Tests, v.Pairs = testsGrid(lines), pairBars(lines)
	v.Results = spanGrid(s.Results)
	v.Plots = spanPlots(s.Results)
	return v
}

func testsGrid(tests []report.TestLine) grid {
	t := grid{Caption: "Tests and rounds, in their order", Head: []string{"Test", "Verdict", "Slowest GB/s",
		"Of the best pair", "Nodes", "Reason", "Members by index", "Seconds"}}
	for i := range tests {
		test := &tests[i]
		seconds, percent := unknown, unknown
		if test.Seconds != nil {
			seconds = fmt.Sprint(*test.Seconds)
		}
		if test.OfBestPair != nil {
			percent = fmt.Sprintf("%d %%", *test.OfBestPair)
		}
		t.Rows = append(t.Rows, gridRow{Cells: []cell{plain(test.ID),
			badge(cmp.Or(string(test.Verdict), "running"), cmp.Or(verdictTone(test.Verdict), toneInfo)),
			number(optional(test.BusMBps)), number(percent), plain(test.Nodes), plain(test.Reason), plain(test.Set),
			number(seconds)}})
	}
	return t
}

// pairBars shows what each pair of nodes that has a figure of its own reached, the slowest first, and the best pair
// beside them; nil where there is no such pair. A pair that was measured again counts by its last test.
func pairBars(tests []report.TestLine) *barView {
	var order []string
	last := map[string]*report.TestLine{}
	best := int64(0)
	for i := range tests {
		t := &tests[i]
		if t.OfBestPair == nil || t.BusMBps == nil {
			continue
		}
		best = max(best, *t.BusMBps)
		if len(t.Pair) != 2 {
			continue
		}
		name := strings.Join(t.Pair, " – ")
		if last[name] == nil {
			order = append(order, name)
		}
		last[name] = t
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(*last[a].BusMBps, *last[b].BusMBps) })
	desc := "The slowest first; the line is the best pair of all. Pairs that were good in a round of many have no " +
		"bar of their own."
	if more := len(order) - maxBars; more > 0 {
		order, desc = order[:maxBars],
			fmt.Sprintf("The slowest %d of %d; the line is the best pair of all.", maxBars, len(order))
	}
	var ends, labels, texts, titles, tones []string
	var values []float64
	for _, name := range order {
		ends = append(ends, last[name].Pair...)
	}
	ends = withoutDomain(ends)
	for i, name := range order {
		t := last[name]
		labels = append(labels, clip(ends[2*i], 12)+"–"+clip(ends[2*i+1], 12))
		texts = append(texts, fmt.Sprintf("%s, %d %%", units.GBps(*t.BusMBps), *t.OfBestPair))
		titles = append(titles, fmt.Sprintf("%s: %s GB/s, %d %% of the best pair, %s in %s",
			name, units.GBps(*t.BusMBps), *t.OfBestPair, orUnknown(string(t.Verdict)), t.ID))
		tones = append(tones, string(verdictTone(t.Verdict)))
		values = append(values, float64(*t.BusMBps))
	}
	return newBars("pairs", "Bus bandwidth of pairs of nodes, GB/s and percent of the best pair", desc, labels, texts,
		titles, tones, values, float64(best), "best "+units.GBps(best)+" GB/s")
}

func spanGrid(results []v1alpha1.SpanResultSeries) grid {
	t := grid{Caption: "Results over several nodes, at the largest size", Head: []string{"Dimension", "Communicators",
		"Ranks", "Nodes", "Collective", "Size", "Latency µs", "Bus GB/s", "Slowest GB/s", "Slowest"}}
	repeated := report.HasRepeats(results)
	if repeated {
		t.Head = append(t.Head, "Repeats", "Apart")
	}
	for i := range results {
		r := &results[i]
		last := len(r.SizeBytes) - 1
		if last < 0 {
			continue
		}
		what := fmt.Sprintf("%s %s", r.Collective, r.Datatype)
		if r.Placement == v1alpha1.InPlace {
			what += " in place"
		}
		row := gridRow{Cells: []cell{plain(r.Dimension), number(fmt.Sprint(r.Communicators)),
			number(fmt.Sprint(r.Ranks)), number(fmt.Sprint(r.Nodes)), plain(what),
			number(units.Bytes(r.SizeBytes[last])), number(itemAt(r.LatencyNanoseconds, last, units.Microseconds)),
			number(itemAt(r.BusBandwidthMBps, last, units.GBps)),
			number(itemAt(r.MinBusBandwidthMBps, last, units.GBps)), plain(r.Slowest)}}
		if repeated {
			repeats, apart := report.RepeatsWords(r, last)
			row.Cells = append(row.Cells, number(repeats), number(dashed(apart)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// spanPlots is a plot for each collective and datatype, with a line for each dimension.
func spanPlots(results []v1alpha1.SpanResultSeries) []*plot {
	var keys []chartKey
	by := map[chartKey][]*v1alpha1.SpanResultSeries{}
	for i := range results {
		r := &results[i]
		k := chartKey{r.Collective, r.Datatype, cmp.Or(r.Placement, v1alpha1.OutOfPlace)}
		if by[k] == nil {
			keys = append(keys, k)
		}
		by[k] = append(by[k], r)
	}
	var out []*plot
	for i, k := range keys {
		var lines []series
		var ticks []float64
		for j, r := range by[k] {
			s := series{Name: fmt.Sprintf("%s (%d ranks on %d nodes)", r.Dimension, r.Ranks, r.Nodes),
				Class: fmt.Sprintf("s%d", j%6)}
			for _, size := range r.SizeBytes {
				ticks = append(ticks, float64(size))
				v, ok := valueAt(r.SizeBytes, r.BusBandwidthMBps, size)
				if !ok {
					s.Breaks = append(s.Breaks, float64(size))
					continue
				}
				s.Points = append(s.Points,
					point{float64(size), float64(v) / 1e3, units.Bytes(size) + ", " + units.GBps(v) + " GB/s"})
			}
			lines = append(lines, s)
		}
		slices.Sort(ticks)
		p := newPlot(plotOptions{id: fmt.Sprintf("span%d", i), title: "Bus bandwidth over several nodes: " + k.String(),
			desc:   "The median over the communicators of a dimension; both axes are logarithmic.",
			xLabel: "message size (bytes)", yLabel: "bus bandwidth (GB/s)", logX: true, logY: true,
			xTicks: slices.Compact(ticks), xText: sizeText, yText: short}, lines)
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}
