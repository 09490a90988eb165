package htmlreport

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// view is what the page shows, worked out.
type view struct {
	Style           template.CSS
	Name, Namespace string
	Made, Version   string
	Simulated       string
	Hero            hero
	Culprits        []culpritView
	MoreCulprits    string
	// CulpritsOf is the earlier run that named them; empty where the present one did.
	CulpritsOf string
	Tiles      []tile

	Conditions    grid
	Settings      grid
	Advice        grid
	Published     string
	Charts        []chartGroup
	MoreCharts    []chartGroup
	Errors        grid
	Checks        []checkView
	Baseline      string
	Span          *spanView
	Nodes         nodesView
	Preconditions grid
	RAS           []nodeText
	Logs          []nodeText
	Inventory     grid
	History       grid
	HistoryPlot   *plot
	Trend         string
	Gating        string
	Spec          string
}

// tile is one figure at the top.
type tile struct {
	Label, Value, Note string
}

func newView(in Input) view {
	g, s := in.Group, &in.Group.Status
	v := view{
		Style: template.CSS(style), // #nosec G203 -- the program's own file
		Name:  g.Name, Namespace: g.Namespace, Made: in.Now.UTC().Format("2006-01-02 15:04:05 UTC"),
		Version: in.Version,
		Hero:    newHero(g), Culprits: newCulprits(g), CulpritsOf: s.EarlierCulpritsRun(),
		MoreCulprits: moreCulprits(newCulprits(g)), Tiles: tiles(g, in.Now),
		Conditions: conditionsGrid(g, in.Now), Settings: settingsGrid(s.Settings), Advice: adviceGrid(s.Advice),
		Published: published(s),
		Errors:    errorsGrid(s.DataErrors), Checks: newChecks(s.Checks), Baseline: baseline(s.Baseline),
		Span:  newSpan(g, in.Nodes),
		Nodes: newNodes(g, in.Nodes, in.Unread), Preconditions: conditionsNotMet(in.Nodes),
		RAS:       said(in.Nodes, func(r *v1alpha1.NodeRunStatus) string { return r.RASVerdict }),
		Logs:      said(in.Nodes, func(r *v1alpha1.NodeRunStatus) string { return r.LogTail }),
		Inventory: inventoryGrid(s.Inventory), History: historyGrid(s), HistoryPlot: historyPlot(s),
		Trend: string(s.Trend), Gating: gating(s),
		Spec: specText(g),
	}
	if anySimulated(g, in.Nodes) {
		v.Simulated = report.SimulatedNotice
	}
	charts := resultCharts(s.Results, s.Plan, in.Nodes)
	open := min(len(charts), openCharts)
	v.Charts, v.MoreCharts = charts[:open], charts[open:]
	return v
}

// anySimulated: one simulated fact is enough for the banner.
func anySimulated(g *state.Group, nodes []report.Member) bool {
	return g.Status.Origin == v1alpha1.OriginSimulated || slices.ContainsFunc(nodes, func(n report.Member) bool {
		return n.Facts() != nil && n.Facts().Origin == v1alpha1.OriginSimulated
	})
}

func tiles(g *state.Group, now time.Time) []tile {
	s := &g.Status
	m := s.Members
	counts := []string{}
	for _, c := range []struct {
		n    int32
		word string
	}{{m.Failed, "failed"}, {m.Errored, "could not be measured"}, {m.Inconclusive, "inconclusive"},
		{m.Skipped, "skipped"}, {m.Running, "running"}, {m.Pending, "waiting"}, {m.Stale, "stale"}} {
		if c.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	if silent := m.Selected - m.Reporting; silent > 0 {
		counts = append(counts, fmt.Sprintf("%d not reporting", silent))
	}
	passed := fmt.Sprintf("%d of %d", m.Passed, m.Selected)
	if len(s.Conditions) == 0 {
		passed, counts = unknown, []string{"not known yet"}
	}
	label := "Nodes that passed"
	if s.Span != nil {
		label = "Nodes that passed alone" // over several of them there may be a culprit all the same
	}
	out := []tile{{label, passed, strings.Join(counts, ", ")}}
	if h := s.Headline; h != nil {
		out = append(out,
			tile{"Bus bandwidth", units.GBps(h.BusBandwidthMBps) + " GB/s", "median of the nodes, " + headlineWords(h)})
	} else {
		out = append(out, tile{"Bus bandwidth", unknown, "not measured"})
	}
	if s.Span != nil {
		out = append(out, overNodes(s))
	}
	out = append(out, tile{"In effect", cmp.Or(s.Effective, unknown), "requested: DDA " +
		cmp.Or(string(g.Spec.DDA.Mode), "default") + ", FP8 " + cmp.Or(string(g.Spec.LowPrecision.Mode), "default")})
	if r := s.Run; r != nil {
		note := r.Trigger + ", started " + when(r.StartTime.Time, now)
		if r.FinishTime != nil {
			note += ", took " + r.FinishTime.Sub(r.StartTime.Time).Round(time.Second).String()
		}
		out = append(out, tile{"Run " + r.ID, cmp.Or(string(r.Verdict), string(r.Phase)), note})
	} else {
		out = append(out, tile{"Run", unknown, "none yet"})
	}
	return out
}

// overNodes is what one communicator over the nodes reached: the whole group first, then what is left without those it
// went on without.
func overNodes(s *state.Status) tile {
	out := tile{"Over all nodes", unknown, "not measured"}
	transport := "; transport " + cmp.Or(s.Span.Transport, "not known")
	for i := range s.Span.Results {
		r := &s.Span.Results[i]
		last := len(r.SizeBytes) - 1
		if r.Dimension != "group" || last < 0 {
			continue
		}
		if bw, ok := valueAt(r.SizeBytes, r.BusBandwidthMBps, r.SizeBytes[last]); ok {
			out.Value, out.Note = units.GBps(bw)+" GB/s", fmt.Sprintf("%s %s at %s over %d nodes",
				r.Collective, r.Datatype, units.Bytes(r.SizeBytes[last]), r.Nodes)
			break
		}
	}
	if h := s.Headline; h != nil && h.GroupBusBandwidthMBps != nil {
		first := units.GBps(*h.GroupBusBandwidthMBps) + " GB/s"
		after := ""
		if len(s.Span.Left) > 0 && out.Value != unknown && out.Value != first {
			after = fmt.Sprintf("; without %s %s", names(s.Span.Left), out.Value)
		}
		out.Value, out.Note = first, fmt.Sprintf("%s %s at %s over %d nodes",
			h.Collective, h.Datatype, units.Bytes(h.SizeBytes), h.GroupNodes)+after
	}
	out.Note += transport
	return out
}

// names are the first few, and how many more there are.
func names(all []string) string {
	const most = 2
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), more)
	}
	return strings.Join(all, ", ")
}

func published(s *state.Status) string {
	if p := s.Published; p != nil {
		return fmt.Sprintf("ConfigMap %s, proven by run %s at %s; hash of the settings %s.",
			p.ConfigMapName, p.RunID, p.Time.UTC().Format("2006-01-02 15:04 UTC"), p.Hash)
	}
	return ""
}

func baseline(b *v1alpha1.BaselineStatus) string {
	if b == nil {
		return ""
	}
	text := fmt.Sprintf("Baseline of %s since %s: %s.",
		units.Counted(int64(b.Runs), "run"), b.Since.UTC().Format("2006-01-02 15:04 UTC"), b.Key)
	if b.Previous != "" {
		text += " Before: " + b.Previous
	}
	return text
}

func gating(s *state.Status) string {
	var parts []string
	if g := s.Gating; g != nil {
		parts = append(parts, fmt.Sprintf("%d nodes are gated: %s", g.Gated, orUnknown(strings.Join(g.Nodes, ", "))))
		if g.Breaker != "" {
			parts = append(parts, "breaker "+g.Breaker)
		}
		if g.Message != "" {
			parts = append(parts, g.Message)
		}
	}
	if len(s.WouldGate) > 0 {
		parts = append(parts, "gating would act on "+strings.Join(s.WouldGate, ", "))
	}
	return strings.Join(parts, "; ")
}

// specText is the spec as a user would write it.
func specText(g *state.Group) string {
	out, err := yaml.Marshal(g.Spec)
	if err != nil {
		return "the spec could not be written as YAML: " + err.Error()
	}
	return string(out)
}
