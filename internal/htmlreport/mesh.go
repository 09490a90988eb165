package htmlreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/units"
)

// meshView is the picture of one node: its GPUs on a circle, and the link between each two.
type meshView struct {
	ID, Node, Title, Desc string
	Tone                  tone
	Verdict               string
	Size                  int
	GPUs                  []gpuView
	Links                 []linkView
	Facts                 []string
	Problems              []problemView
	Legend                []linkLegend
	// Absent says why there is no picture.
	Absent string
}

type gpuView struct {
	X, Y, TextX, TextY string
	Anchor             string
	Name, Sub          string
	Class              string
	Title              string
}

type linkView struct {
	X1, Y1, X2, Y2 string
	Class          string
	Title          string
	// Label stands at a link that is named, with what was measured.
	Label, LabelX, LabelY string
}

type linkLegend struct {
	Class, Text string
}

type problemView struct {
	Tone    tone
	Code    string
	Subject string
	Message string
}

const (
	meshSize, meshRadius, labelRadius = 420, 140, 176
	maxDrawnGPUs                      = 32
)

// newMesh draws a member. culprits are those of the group.
func newMesh(m member, culprits []v1alpha1.Culprit, id string) meshView {
	n := m.node
	v := meshView{ID: id, Node: n.Spec.NodeName, Tone: m.tone(),
		Verdict: strings.TrimSpace(string(m.verdict) + " " + m.reason), Size: meshSize}
	if verdict, reason := report.Verdict(n, m.blamed); m.blamed != "" && m.verdict == v1alpha1.VerdictPass {
		v.Verdict = verdict + ", " + reason
	}
	f := n.Facts()
	if f == nil {
		v.Absent = "Nothing is known of its GPUs and links: the node's monitor has not reported, " +
			"or its CommNode was not read."
		return v
	}
	v.Title = fmt.Sprintf("%d x %s, xGMI mesh %s", f.GPUCount, f.GPUModel, report.MeshWords(f.XGMI))
	v.Facts = meshFacts(n)
	for _, p := range f.Problems {
		t := toneWarn
		if p.Severity == "Error" {
			t = toneBad
		}
		v.Problems = append(v.Problems, problemView{t, p.Code, p.Subject(), p.Message})
	}
	if len(f.GPUs) == 0 || len(f.GPUs) > maxDrawnGPUs {
		v.Absent = fmt.Sprintf("No picture: %d GPUs in the report, of which between 1 and %d can be drawn.",
			len(f.GPUs), maxDrawnGPUs)
		return v
	}
	blamed := blame(n, culprits)
	v.GPUs, v.Links = drawGPUs(n, blamed), drawLinks(n, blamed)
	v.Legend = legend(v.Links)
	v.Desc = describeLinks(v.Links)
	return v
}

// blame is what the culprits name on a node: reasons by PCI address, by "a<->b", and by the name of a NIC.
func blame(n *report.Member, culprits []v1alpha1.Culprit) map[string]string {
	out := map[string]string{}
	all := culprits
	if run := n.Status.Run; run != nil {
		all = append(slices.Clone(culprits), run.Culprits...)
	}
	for _, c := range all {
		if c.Node == n.Spec.NodeName {
			out[c.Name] = c.Reason
		}
	}
	return out
}

func blamedLink(blamed map[string]string, a, b string) string {
	if r := blamed[a+"<->"+b]; r != "" {
		return r
	}
	return blamed[b+"<->"+a]
}

// place is the i-th of n places on a circle, the first at the top.
func place(i, n int, radius float64) (float64, float64) {
	angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
	return meshSize/2 + radius*math.Cos(angle), meshSize/2 + radius*math.Sin(angle)
}

func drawGPUs(n *report.Member, blamed map[string]string) []gpuView {
	f := n.Facts()
	out := make([]gpuView, 0, len(f.GPUs))
	for i := range f.GPUs {
		g := &f.GPUs[i]
		x, y := place(i, len(f.GPUs), meshRadius)
		tx, ty := place(i, len(f.GPUs), labelRadius)
		v := gpuView{X: coordinate(x), Y: coordinate(y), TextX: coordinate(tx), TextY: coordinate(ty), Anchor: "middle",
			Name: fmt.Sprintf("GPU%d", i), Sub: g.PCIAddress, Class: "gpu"}
		switch {
		case tx > meshSize/2+20:
			v.Anchor = "start"
			v.TextX = coordinate(x + 24)
		case tx < meshSize/2-20:
			v.Anchor = "end"
			v.TextX = coordinate(x - 24)
		}
		parts := []string{v.Name, g.PCIAddress}
		if g.Hive != nil {
			parts = append(parts, fmt.Sprintf("hive %d", *g.Hive))
			v.Class += fmt.Sprintf(" hive%d", *g.Hive%4)
		}
		if g.NUMANode != nil {
			parts = append(parts, fmt.Sprintf("NUMA node %d", *g.NUMANode))
		}
		if g.NIC != "" {
			parts = append(parts, "NIC "+g.NIC+" "+g.NICPath)
		}
		for _, name := range []string{g.PCIAddress, fmt.Sprintf("GPU %d", i), g.NIC} {
			if r := blamed[name]; name != "" && r != "" {
				v.Class += " blamed"
				parts = append(parts, "culprit: "+name+" "+r)
			}
		}
		v.Title = strings.Join(parts, ", ")
		out = append(out, v)
	}
	return out
}

func drawLinks(n *report.Member, blamed map[string]string) []linkView {
	f := n.Facts()
	probe := (*v1alpha1.LinkProbe)(nil)
	if n.Status.Run != nil {
		probe = n.Status.Run.Links
	}
	var out, named []linkView
	for i := range f.GPUs {
		for j := i + 1; j < len(f.GPUs); j++ {
			a, b := f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress
			x1, y1 := place(i, len(f.GPUs), meshRadius)
			x2, y2 := place(j, len(f.GPUs), meshRadius)
			class, words := linkKind(f, i, j)
			l := linkView{X1: coordinate(x1), Y1: coordinate(y1), X2: coordinate(x2), Y2: coordinate(y2), Class: class,
				Title: fmt.Sprintf("GPU%d to GPU%d: %s", i, j, words)}
			isSlowest := probe != nil && (probe.Slowest == a+"<->"+b || probe.Slowest == b+"<->"+a)
			if isSlowest {
				l.Title += fmt.Sprintf("; the slowest pair: %s GB/s measured at %s, the node's median is %s",
					units.GBps(probe.MinMBps), units.Bytes(probe.SizeBytes), units.GBps(probe.MedianMBps))
			}
			if r := blamedLink(blamed, a, b); r != "" {
				l.Class += " blamed"
				l.Title += "; culprit: " + r
				l.Label = r
				if isSlowest {
					l.Label = units.GBps(probe.MinMBps) + " GB/s"
				}
				l.LabelX, l.LabelY = coordinate((x1+x2)/2), coordinate((y1+y2)/2-6)
			}
			if l.Label != "" {
				named = append(named, l)
				continue
			}
			out = append(out, l)
		}
	}
	return append(out, named...) // what is named lies on top
}

// linkKind is a link's class for the style and in words. The two directions may differ: the worse one is drawn.
func linkKind(f *v1alpha1.NodeFacts, i, j int) (class, words string) {
	there, back := classOf(f, i, j), classOf(f, j, i)
	text := func(c *v1alpha1.LinkClass) string {
		switch {
		case c == nil:
			return "no link known"
		case c.Type == "XGMI" && c.Hops != nil && *c.Hops > 1:
			return fmt.Sprintf("xGMI over %d hops", *c.Hops)
		case c.Type == "XGMI":
			return "xGMI"
		default:
			return c.Type
		}
	}
	rank := func(c *v1alpha1.LinkClass) int {
		switch {
		case c == nil:
			return 0
		case c.Type != "XGMI":
			return 1
		case c.Hops != nil && *c.Hops > 1:
			return 2
		default:
			return 3
		}
	}
	worse := min(rank(there), rank(back))
	words = text(there)
	if text(back) != words {
		words += ", the other way " + text(back)
	}
	return []string{"lost", "pcie", "far", "xgmi"}[worse], words
}

func classOf(f *v1alpha1.NodeFacts, i, j int) *v1alpha1.LinkClass {
	links := f.GPUs[i].Links
	if j >= len(links) {
		return nil
	}
	for k := range f.LinkClasses {
		if f.LinkClasses[k].Letter == links[j:j+1] {
			return &f.LinkClasses[k]
		}
	}
	return nil
}

// kinds of link, in the order of the legend.
var kinds = []linkLegend{{"xgmi", "xGMI"}, {"far", "xGMI, several hops"}, {"pcie", "PCIe or other: slower by far"},
	{"lost", "no link known"}, {"blamed", "culprit"}}

func legend(links []linkView) []linkLegend {
	var out []linkLegend
	for _, k := range kinds {
		if countLinks(links, k.Class) > 0 {
			out = append(out, k)
		}
	}
	return out
}

func countLinks(links []linkView, class string) int {
	n := 0
	for _, l := range links {
		if slices.Contains(strings.Fields(l.Class), class) {
			n++
		}
	}
	return n
}

func describeLinks(links []linkView) string {
	var parts []string
	for _, k := range kinds {
		if n := countLinks(links, k.Class); n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d pairs: %s", n, len(links), k.Text))
		}
	}
	return strings.Join(parts, "; ")
}

func meshFacts(n *report.Member) []string {
	f := n.Facts()
	facts := []string{fmt.Sprintf("%s, %s; amdgpu %s; kernel %s",
		f.GFXTarget, f.Partition, report.Driver(f.Driver), orUnknown(f.KernelRelease))}
	if run := n.Status.Run; run != nil && run.Links != nil {
		l := run.Links
		facts = append(facts, fmt.Sprintf("measured between pairs at %s: median %s GB/s, slowest %s GB/s (%s)",
			units.Bytes(l.SizeBytes), units.GBps(l.MedianMBps), units.GBps(l.MinMBps), orUnknown(l.Slowest)))
	} else {
		facts = append(facts, "bandwidth between pairs: not measured")
	}
	x := f.XGMI
	if x.UncorrectableErrors != nil || x.CorrectableErrors != nil {
		facts = append(facts, fmt.Sprintf("xGMI errors since the driver was loaded: %s uncorrectable, %s correctable",
			count(x.UncorrectableErrors), count(x.CorrectableErrors)))
	}
	if r := f.RAS; r != nil {
		text := fmt.Sprintf("RAS since the driver was loaded: %s uncorrectable, %s correctable, %s deferred, "+
			"%s retired pages", count(r.Uncorrectable), count(r.Correctable), count(r.Deferred), count(r.RetiredPages))
		if r.Unreadable > 0 {
			text += fmt.Sprintf("; counters of %d GPUs could not be read and are not in it", r.Unreadable)
		}
		facts = append(facts, text)
	}
	if down := nicsDown(f.NICs); down != "" {
		facts = append(facts, "RDMA devices that are not Active: "+down)
	}
	return facts
}

func nicsDown(nics []v1alpha1.NICFacts) string {
	var out []string
	for _, n := range nics {
		if n.State != "Active" {
			out = append(out, n.Name+" "+n.State)
		}
	}
	return strings.Join(out, ", ")
}

func count(n *int64) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprint(*n)
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
