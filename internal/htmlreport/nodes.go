package htmlreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// How much of a group's nodes is shown one by one; the rest is summed up.
const (
	maxNodeRows   = 40
	maxBars       = 24
	maxMeshes     = 6
	maxNodeIssues = 40
)

// nodesView is the part on the members.
type nodesView struct {
	Summary grid
	Table   grid
	Bars    *barView
	Spread  *barView
	Meshes  []meshView
	// Unread says why nothing but the last run tells of the nodes; empty where their CommNodes were read.
	Unread string
	// MeshNote says which nodes have a picture.
	MeshNote string
}

// barView is a chart of horizontal bars.
type barView struct {
	ID, Title, Desc string
	Width, Height   int
	LabelX          int
	Bars            []bar
	Guide           *barGuide
}

type bar struct {
	Y, TextY     int
	X            int
	Width        string
	Class        string
	Label, Value string
	ValueX       string
	Title        string
}

type barGuide struct {
	At    string
	Label string
}

// member is a node with what it is ordered by.
type member struct {
	node    *report.Member
	verdict v1alpha1.Verdict
	reason  string
	blamed  string // the reason for which the group's status names it
	// busMBps of the headline; nil where this run did not measure it.
	busMBps *int64
}

// tone of a member's verdict: who passed alone and is blamed for what several nodes showed is not shown as good.
func (m member) tone() tone {
	if m.verdict == v1alpha1.VerdictPass && m.blamed != "" {
		return toneWarn
	}
	return verdictTone(m.verdict)
}

// members are the nodes, the worst first: the named, then by verdict, then the slowest; what was not measured stands
// before what was.
func members(group *state.Group, nodes []report.Member) []member {
	blamed := report.Blamed(group, nodes)
	out := make([]member, 0, len(nodes))
	for i := range nodes {
		m := member{node: &nodes[i], blamed: blamed[nodes[i].Spec.NodeName]}
		m.verdict, m.reason = report.Outcome(m.node)
		m.busMBps = headlineOf(m.node, group.Status.Headline)
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b member) int {
		return cmp.Or(boolFirst(a.blamed != "", b.blamed != ""),
			cmp.Compare(report.Severity(a.verdict), report.Severity(b.verdict)),
			cmp.Compare(busOf(a), busOf(b)), cmp.Compare(a.node.Spec.Ranks.First, b.node.Spec.Ranks.First),
			cmp.Compare(a.node.Spec.NodeName, b.node.Spec.NodeName))
	})
	return out
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func busOf(m member) int64 {
	if m.busMBps == nil {
		return -1
	}
	return *m.busMBps
}

// headlineOf is a node's own value of the group's headline, where its report is of the run that it is assigned.
func headlineOf(n *report.Member, h *v1alpha1.Headline) *int64 {
	run := n.Status.Run
	if h == nil || run == nil || n.Spec.Run == nil || run.ID != n.Spec.Run.ID || n.Spec.Run.Stale != nil {
		return nil
	}
	for i := range run.Results {
		r := &run.Results[i]
		if r.Variant != h.Variant || r.Collective != h.Collective || r.Datatype != h.Datatype ||
			cmp.Or(r.Placement, v1alpha1.OutOfPlace) != cmp.Or(h.Placement, v1alpha1.OutOfPlace) {
			continue
		}
		if v, ok := valueAt(r.SizeBytes, r.BusBandwidthMBps, h.SizeBytes); ok {
			return &v
		}
	}
	return nil
}

func newNodes(group *state.Group, nodes []report.Member, unread string) nodesView {
	all := members(group, nodes)
	v := nodesView{Unread: unread, Summary: verdictSummary(all), Table: nodeTable(all)}
	if h := group.Status.Headline; h != nil {
		v.Bars, v.Spread = nodeBars(all, h), spread(all, h)
	}
	for i, m := range all[:min(len(all), maxMeshes)] {
		v.Meshes = append(v.Meshes, newMesh(m, group.Status.Culprits, fmt.Sprintf("m%d", i)))
	}
	if len(all) > maxMeshes {
		v.MeshNote = fmt.Sprintf("The worst %d of %d nodes; kubectl commgroup topology draws the others.",
			maxMeshes, len(all))
	}
	return v
}

// verdictSummary counts the nodes by verdict and reason, the worst first.
func verdictSummary(all []member) grid {
	type key struct {
		verdict v1alpha1.Verdict
		reason  string
	}
	counts := map[key]int{}
	example := map[key]string{}
	var keys []key
	for _, m := range all {
		reason := m.reason
		if m.verdict == "" {
			// "running: step" and "stale: reason" would make a line for each step
			reason, _, _ = strings.Cut(reason, ": ")
		}
		k := key{m.verdict, reason}
		if counts[k] == 0 {
			keys = append(keys, k)
			example[k] = m.node.Spec.NodeName
		}
		counts[k]++
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Compare(report.Severity(a.verdict), report.Severity(b.verdict))
	})
	t := grid{Caption: "Members by verdict, each alone", Head: []string{"Verdict", "Reason", "Nodes", "For example"}}
	for _, k := range keys {
		t.Rows = append(t.Rows, gridRow{Cells: []cell{badge(orUnknown(string(k.verdict)), verdictTone(k.verdict)),
			plain(k.reason), number(fmt.Sprint(counts[k])), plain(example[k])}})
	}
	return t
}

func nodeTable(all []member) grid {
	t := grid{Caption: "Members, the worst first", Stack: true, Head: []string{"Node", "Ranks", "Verdict", "Reason",
		"Bus GB/s", "GPUs", "ROCm", "Driver", "xGMI mesh", "Library"}}
	for _, m := range all[:min(len(all), maxNodeRows)] {
		n := m.node
		bus := unknown
		if m.busMBps != nil {
			bus = units.GBps(*m.busMBps)
		}
		h := n.Hardware()
		gpus := unknown
		if h.GPUs != "" {
			gpus = h.GPUs + " x " + orUnknown(h.Model)
		}
		library := report.Library(n)
		if library == "-" {
			library = unknown
		}
		verdict, reason := report.Verdict(n, m.blamed)
		row := gridRow{Cells: []cell{plain(n.Spec.NodeName), plain(n.Spec.Ranks.Summary), badge(verdict, m.tone()),
			plain(reason), number(bus), plain(gpus), plain(h.ROCm), plain(h.Driver), plain(h.Mesh), plain(library)}}
		if m.verdict != v1alpha1.VerdictPass && m.verdict != "" {
			row.Note = whyOf(n)
		}
		t.Rows = append(t.Rows, row)
	}
	if more := len(all) - len(t.Rows); more > 0 {
		t.More = fmt.Sprintf("%d more nodes are not listed: they are counted above. kubectl get commtasks lists all.",
			more)
	}
	return t
}

// whyOf is a node's own message, or the controller's.
func whyOf(n *report.Member) string {
	if run := n.Spec.Run; run != nil {
		if r := n.Status.Run; r != nil && r.ID == run.ID && r.Message != "" {
			return r.Message
		}
		if run.Closed != nil {
			return run.Closed.Message
		}
	}
	return ""
}

const (
	barWidth, barHeight, barStep = 640, 16, 22
	barLabel, barValue           = 204, 92
)

// newBars lays bars out; values are in one unit, and labels beside them.
func newBars(id, title, desc string, labels, values, titles, tones []string, sizes []float64, mark float64,
	markLabel string) *barView {
	top := mark
	for _, s := range sizes {
		top = max(top, s)
	}
	if top <= 0 {
		return nil
	}
	room := float64(barWidth - barLabel - barValue)
	v := &barView{ID: id, Title: title, Desc: desc, Width: barWidth, LabelX: barLabel - 8}
	for i := range labels {
		y := 22 + i*barStep
		w := sizes[i] / top * room
		v.Bars = append(v.Bars, bar{Y: y, TextY: y + 12, X: barLabel, Width: coordinate(w), Class: tones[i],
			Label: clip(labels[i], 26), Value: values[i], ValueX: coordinate(barLabel + w + 6), Title: titles[i]})
	}
	v.Height = 22 + len(labels)*barStep + 8
	if mark > 0 {
		v.Guide = &barGuide{coordinate(barLabel + mark/top*room), markLabel}
	}
	return v
}

// clip shortens the middle of a long name: both ends tell names apart.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n/2-1]) + "…" + string(r[len(r)-(n-n/2):])
}

// withoutDomain leaves out the domain that all names share: what tells nodes apart is in front of it.
func withoutDomain(names []string) []string {
	if len(names) == 0 {
		return names
	}
	_, domain, ok := strings.Cut(names[0], ".")
	if !ok || slices.ContainsFunc(names, func(n string) bool { return !strings.HasSuffix(n, "."+domain) }) {
		return names
	}
	out := make([]string, 0, len(names))
	for _, n := range names {
		out = append(out, strings.TrimSuffix(n, "."+domain))
	}
	return out
}

// nodeBars are the slowest measured nodes; those that were not measured have no bar, and the description counts them.
func nodeBars(all []member, h *v1alpha1.Headline) *barView {
	measured := slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.busMBps == nil })
	slices.SortStableFunc(measured, func(a, b member) int { return cmp.Compare(*a.busMBps, *b.busMBps) })
	shown := measured[:min(len(measured), maxBars)]
	var labels, values, titles, tones []string
	var sizes []float64
	for _, m := range shown {
		labels = append(labels, m.node.Spec.NodeName)
		values = append(values, units.GBps(*m.busMBps))
		titles = append(titles,
			fmt.Sprintf("%s: %s GB/s, %s", m.node.Spec.NodeName, units.GBps(*m.busMBps), orUnknown(string(m.verdict))))
		tones = append(tones, string(verdictTone(m.verdict)))
		sizes = append(sizes, float64(*m.busMBps))
	}
	labels = withoutDomain(labels)
	title := fmt.Sprintf("Bus bandwidth of each node: %s", headlineWords(h))
	if len(shown) < len(measured) {
		title = fmt.Sprintf("Bus bandwidth of the slowest %d of %d nodes: %s",
			len(shown), len(measured), headlineWords(h))
	}
	desc := "In 10⁹ bytes per second, the slowest first; the line is the members' median."
	if missing := len(all) - len(measured); missing > 0 {
		desc += fmt.Sprintf(" %d nodes were not measured, or their result no longer counts.", missing)
	}
	return newBars("nodes", title, desc, labels, values, titles, tones, sizes, float64(h.BusBandwidthMBps),
		"median "+units.GBps(h.BusBandwidthMBps))
}

// spread is a histogram of the nodes' bandwidth, for groups too large for bars.
func spread(all []member, h *v1alpha1.Headline) *barView {
	var values []float64
	for _, m := range all {
		if m.busMBps != nil {
			values = append(values, float64(*m.busMBps))
		}
	}
	if len(values) <= maxBars {
		return nil
	}
	low, top := slices.Min(values), slices.Max(values)
	const bins = 16
	step := math.Max((top-low)/bins, 1)
	counts := make([]float64, bins)
	for _, v := range values {
		counts[min(int((v-low)/step), bins-1)]++
	}
	var labels, texts, titles, tones []string
	for i, n := range counts {
		from, to := int64(low+float64(i)*step), int64(low+float64(i+1)*step)
		labels = append(labels, units.GBps(from)+" to "+units.GBps(to)+" GB/s")
		texts = append(texts, fmt.Sprint(int(n)))
		titles = append(titles, fmt.Sprintf("%d nodes from %s to %s GB/s", int(n), units.GBps(from), units.GBps(to)))
		tones = append(tones, string(toneInfo))
	}
	return newBars("spread", "How many nodes reach which bus bandwidth: "+headlineWords(h),
		"A histogram of all measured nodes.", labels, texts, titles, tones, counts, 0, "")
}

func headlineWords(h *v1alpha1.Headline) string {
	text := fmt.Sprintf("%s %s %s at %s", h.Variant, h.Collective, h.Datatype, units.Bytes(h.SizeBytes))
	if h.Placement == v1alpha1.InPlace {
		text += " in place"
	}
	return text
}
