package htmlreport

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

var now = time.Date(2026, 11, 28, 15, 0, 0, 0, time.UTC)

// load reads objects that a demo left behind (all of them SIMULATED): good, failed (a slow link) and span (a slow NIC).
func load(t testing.TB, name string) Input {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	in := Input{Now: now, Version: "test"}
	var group *v1alpha1.CommGroup
	var runs []v1alpha1.CommRun
	var nodes []*v1alpha1.CommNode
	for _, item := range list.Items {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(item, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "CommGroup":
			group = &v1alpha1.CommGroup{}
			err = json.Unmarshal(item, group)
		case "CommRun":
			runs = append(runs, v1alpha1.CommRun{})
			err = json.Unmarshal(item, &runs[len(runs)-1])
		case "CommTask":
			in.Nodes = append(in.Nodes, report.Member{})
			err = json.Unmarshal(item, &in.Nodes[len(in.Nodes)-1].CommTask)
		default:
			nodes = append(nodes, &v1alpha1.CommNode{})
			err = json.Unmarshal(item, nodes[len(nodes)-1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range in.Nodes {
		in.Nodes[i].Node = nodes[slices.IndexFunc(nodes, func(n *v1alpha1.CommNode) bool {
			return n.Name == in.Nodes[i].Spec.NodeName
		})]
	}
	if group == nil || len(state.RunsOf(group, runs)) != 1 || len(in.Nodes) == 0 {
		t.Fatalf("testdata/%s.json lacks a CommGroup, its CommRun or its nodes", name)
	}
	in.Group = state.Join(group, runs)
	return in
}

func render(t testing.TB, in Input) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func empty() Input {
	return Input{Group: &state.Group{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "ml", Generation: 1}},
		Now: now, Version: "test"}
}

// document is a parsed page.
type document struct {
	root     *html.Node
	elements []*html.Node
	text     string
}

func parse(t testing.TB, page string) document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	d := document{root: root}
	var b strings.Builder
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		switch n.Type {
		case html.ElementNode:
			d.elements = append(d.elements, n)
		case html.TextNode:
			b.WriteString(n.Data + " ")
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(root)
	d.text = strings.Join(strings.Fields(b.String()), " ")
	return d
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// checkPage holds what every page must be: whole by itself, without script, well formed, and usable without sight.
func checkPage(t *testing.T, page string) document {
	t.Helper()
	if shown := report.Visible(page); shown != page {
		t.Error("the page has characters that nobody sees")
	}
	d := parse(t, page)
	ids := map[string]bool{}
	for _, e := range d.elements {
		switch e.Data {
		case "script", "link", "iframe", "object", "embed", "img", "image", "use", "base", "form", "foreignobject":
			t.Errorf("the page has a <%s>", e.Data)
		case "svg":
			if attribute(e, "aria-hidden") == "" && attribute(e, "role") != "img" {
				t.Error("an SVG is neither an image nor hidden to readers")
			}
		}
		for _, a := range e.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"):
				t.Errorf("<%s> has the handler %s", e.Data, a.Key)
			case a.Key == "src" || a.Key == "srcset" || a.Key == "action" || a.Key == "style":
				t.Errorf("<%s> has %s=%q", e.Data, a.Key, a.Val)
			case a.Key == "href" && !strings.HasPrefix(a.Val, "#"):
				t.Errorf("<%s> refers to %q", e.Data, a.Val)
			case a.Key == "id":
				if ids[a.Val] {
					t.Errorf("two elements have the id %q", a.Val)
				}
				ids[a.Val] = true
			}
			if strings.Contains(a.Val, "NaN") || strings.Contains(a.Val, "Inf") || strings.Contains(a.Val, "ZgotmplZ") {
				t.Errorf("<%s> has %s=%q", e.Data, a.Key, a.Val)
			}
		}
	}
	for _, e := range d.elements {
		if to, ok := strings.CutPrefix(attribute(e, "href"), "#"); ok && !ids[to] {
			t.Errorf("a link goes to #%s, which is not on the page", to)
		}
		for _, id := range strings.Fields(attribute(e, "aria-labelledby")) {
			if !ids[id] {
				t.Errorf("an image is named by %q, which is not on the page", id)
			}
		}
	}
	if strings.Contains(style, "url(") || strings.Contains(style, "@import") {
		t.Error("the style loads something")
	}
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	for _, p := range pictures {
		printable := strings.Map(func(r rune) rune { // what HTML may hold and XML may not
			if r < ' ' && r != '\n' && r != '\t' || r == '\uFFFE' || r == '\uFFFF' {
				return ' '
			}
			return r
		}, p)
		decoder := xml.NewDecoder(strings.NewReader(printable))
		decoder.Entity = xml.HTMLEntity
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("an SVG is not well formed: %v\n%s", err, p)
			}
		}
	}
	return d
}

func TestPages(t *testing.T) {
	for _, name := range []string{"good", "failed", "span"} {
		t.Run(name, func(t *testing.T) {
			in := load(t, name)
			d := checkPage(t, render(t, in))
			if !strings.Contains(d.text, report.SimulatedNotice) {
				t.Error("the simulated banner is missing")
			}
			for _, c := range newCulprits(in.Group) {
				if c.Next == "" || !strings.Contains(d.text, report.Sizes(c.Next)) ||
					!strings.Contains(d.text, c.Title) {
					t.Errorf("culprit %q: name or next step %q is not on the page", c.Title, c.Next)
				}
			}
			for _, n := range in.Nodes {
				if !strings.Contains(d.text, n.Spec.NodeName) {
					t.Errorf("node %s is not on the page", n.Spec.NodeName)
				}
			}
			for _, c := range in.Group.Status.Conditions { // those that Ready has already told are there once
				if !strings.Contains(d.text, report.Sizes(strings.Join(strings.Fields(c.Message), " "))) {
					t.Errorf("the message of %s is not on the page", c.Type)
				}
			}
			lines := 0
			for _, e := range d.elements {
				if e.Data == "polyline" {
					lines++
				}
			}
			if lines == 0 {
				t.Error("nothing is plotted")
			}
		})
	}
}

// TestFirstLook: in the first words of the page stand the state, the culprit and the next step, before anything else.
func TestFirstLook(t *testing.T) {
	d := parse(t, render(t, load(t, "failed")))
	_, after, _ := strings.Cut(d.text, report.SimulatedNotice)
	want := "CommGroup default/ mi300x Failed SlowLink Culprit Link 0000:5b:00.0<->0000:a5:00.0 on node sim-node-2 " +
		"SlowLink Seen Moves 11473 MB/s each way at 16 MiB, 25 % of the node's median pair of 44790 MB/s, expected " +
		"at least 70 % Next step Check the xGMI error counters of both GPUs and reseat or replace the faulty one"
	if !strings.HasPrefix(strings.TrimSpace(after), want) {
		t.Errorf("the page begins\n%.600s\nexpected\n%s", after, want)
	}
	good := parse(t, render(t, load(t, "good")))
	if !strings.Contains(good.text, "mi300x Ready Ready") || strings.Contains(good.text, "Next step") {
		t.Errorf("a good group begins %.400s", good.text)
	}
}

// TestHeroSaysHowManyCulpritsFollow: the first culprit at the top is never taken for the only one.
func TestHeroSaysHowManyCulpritsFollow(t *testing.T) {
	of := func(nodes ...string) string {
		var all []culpritView
		for _, n := range nodes {
			all = append(all, culpritView{Node: n})
		}
		return moreCulprits(all)
	}
	for got, want := range map[string]string{of("a"): "", of("a", "a"): "and 1 more on 1 node",
		of("a", "a", "b", "b"): "and 3 more on 2 nodes", of("", ""): "and 1 more"} {
		if got != want {
			t.Errorf("got %q, expected %q", got, want)
		}
	}
}

// TestCulpritsAreDrawn: the picture of the node has the blamed link, GPU or NIC's GPU in the style of culprits, and no
// other.
func TestCulpritsAreDrawn(t *testing.T) {
	for name, want := range map[string]string{"failed": "GPU2 to GPU5: xGMI; the slowest pair: " +
		"11.5 GB/s measured at 16M, the node's median is 44.8; culprit: SlowLink",
		"span": "GPU1, 0000:2b:00.0, hive 1, NUMA node 0, NIC mlx5_1 Switch, culprit: mlx5_1 SlowRail"} {
		d := parse(t, render(t, load(t, name)))
		var blamed []string
		for _, e := range d.elements {
			if e.Data != "line" && e.Data != "g" || !strings.Contains(attribute(e, "class"), "blamed") ||
				e.FirstChild == nil || e.FirstChild.FirstChild == nil {
				continue
			}
			blamed = append(blamed, e.FirstChild.FirstChild.Data)
		}
		if len(blamed) != 1 || blamed[0] != want {
			t.Errorf("%s: drawn as culprits: %q, expected %q", name, blamed, want)
		}
	}
}

// TestNothingMeasured: what is not there is said to be missing, and never drawn or written as zero.
func TestNothingMeasured(t *testing.T) {
	in := load(t, "good")
	in.Group.Status.Results, in.Group.Status.Headline, in.Group.Status.History = nil, nil, nil
	for i := range in.Nodes {
		in.Nodes[i].Status, in.Nodes[i].Node = v1alpha1.CommTaskStatus{}, nil
	}
	for name, in := range map[string]Input{"no status": empty(), "no measurement": in} {
		d := checkPage(t, render(t, in))
		for _, e := range d.elements {
			if e.Data == "polyline" || e.Data == "rect" {
				t.Errorf("%s: something is drawn", name)
			}
		}
		if !strings.Contains(d.text, "Bus bandwidth – not measured") || strings.Contains(d.text, "0 of 0") {
			t.Errorf("%s: the page does not say that nothing was measured", name)
		}
	}
	if d := parse(t, render(t, empty())); !strings.Contains(d.text, "No status yet") ||
		!strings.Contains(d.text, "See whether the manager runs") {
		t.Errorf("an empty group has no next step: %.400s", d.text)
	}
}

// many is the failed group with n members.
func many(t testing.TB, n int) Input {
	in := load(t, "failed")
	base := in.Nodes
	in.Nodes = make([]report.Member, n)
	for i := range in.Nodes {
		c := base[i%len(base)]
		if i >= len(base) && i%len(base) == 2 {
			c = base[0] // one bad node only
		}
		c.Spec.NodeName = fmt.Sprintf("node-%05d", i)
		if i == 2 {
			c.Spec.NodeName = "sim-node-2"
		}
		c.Spec.Ranks.First = int32(i * 8)
		in.Nodes[i] = c
	}
	in.Group.Status.Members.Selected = int32(n)
	return in
}

// TestManyMembers: at the largest size the page stays small, has the bad node at the top, and counts the others.
func TestManyMembers(t *testing.T) {
	in := many(t, 12500)
	page := render(t, in)
	d := checkPage(t, page)
	if len(page) > 512<<10 {
		t.Errorf("the page has %d KiB", len(page)>>10)
	}
	for _, want := range []string{"12460 more nodes are not listed", "Pass AllPassed 12499",
		"The worst 6 of 12500 nodes", "Bus bandwidth of the slowest 24 of 12500 nodes",
		"How many nodes reach which bus bandwidth"} {
		if !strings.Contains(d.text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	_, table, _ := strings.Cut(d.text, "Members, the worst first")
	if i := strings.Index(table, "sim-node-2"); i < 0 || i > strings.Index(table, "node-00000") {
		t.Error("the bad node is not the first of the table")
	}
}

func BenchmarkManyMembers(b *testing.B) {
	in := many(b, 12500)
	for b.Loop() {
		if err := Write(io.Discard, in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAMemberThatPassedAloneAndIsBlamed shows as such in the table of members, which is of the nodes alone.
func TestAMemberThatPassedAloneAndIsBlamed(t *testing.T) {
	in := load(t, "good")
	name := in.Nodes[1].Spec.NodeName
	in.Group.Status.Culprits = []v1alpha1.Culprit{{Node: name, Kind: "NIC", Name: "mlx5_1",
		Reason: v1alpha1.ReasonSlowRail, Message: "slow"}}
	d := checkPage(t, render(t, in))
	_, table, _ := strings.Cut(d.text, "Members, the worst first")
	if !strings.Contains(table, "Pass alone culprit: SlowRail") || strings.Count(d.text, "culprit: SlowRail") != 2 ||
		!strings.Contains(d.text, name+" Pass alone, culprit: SlowRail") {
		t.Errorf("the culprit is not told in the table: %.600s", table)
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{"node-1.example": "node-1.example", "a b": "'a b'", "$(x)": "'$(x)'",
		"it's": `'it'\''s'`, "-n": "'-n'", "": "''"} {
		if got := word(in); got != want {
			t.Errorf("word(%q) = %s, expected %s", in, got, want)
		}
	}
}

// FuzzHostile: whatever objects say, the page's elements stay what they are and the words stay words.
func FuzzHostile(f *testing.F) {
	for _, s := range []string{"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</title></style><b>",
		"javascript:alert(1)", "]]>", "&lt;", "{{.}}", "\x00\xff", "' onload='x", "<!--", "a<->b",
		"a\x1b[2J\u202e\u0085\u2028b"} {
		f.Add(s)
	}
	plain := len(parse(f, render(f, hostile("word"))).elements)
	f.Fuzz(func(t *testing.T, s string) {
		d := checkPage(t, render(t, hostile(s)))
		// A message that names a next step, or a reason that the docs know, changes what is shown: not by more than
		// that.
		if n := len(d.elements); n < plain-20 || n > plain+20 {
			t.Errorf("with %q the page has %d elements, with a plain word %d", s, n, plain)
		}
	})
}

// spanOnce reads its file once for all inputs of a fuzz test.
var spanOnce = sync.OnceValue(func() Input { return load(&testing.T{}, "span") })

// hostile puts a text wherever somebody else's text goes.
func hostile(s string) Input {
	in := spanOnce()
	in.Group = in.Group.DeepCopy()
	// one node: a fuzz test wants many pages
	in.Nodes = []report.Member{{CommTask: *in.Nodes[0].DeepCopy(), Node: in.Nodes[0].Node.DeepCopy()}}
	g := in.Group
	g.Name, g.Namespace = s, s
	for i := range g.Status.Conditions {
		g.Status.Conditions[i].Message, g.Status.Conditions[i].Reason = s, s
	}
	for i := range g.Status.Culprits {
		g.Status.Culprits[i] = v1alpha1.Culprit{Node: "sim-node-0", Kind: "x" + s, Name: "x" + s,
			Reason: "x" + s, Message: "x" + s}
	}
	for i := range g.Status.Settings {
		g.Status.Settings[i].Message, g.Status.Settings[i].Name = "x"+s, s
	}
	for i := range g.Status.Checks {
		g.Status.Checks[i].Measurement, g.Status.Checks[i].Causes = s, []string{s, s}
	}
	g.Status.Span.Message, g.Status.Span.Network = "x"+s, "x"+s
	g.Status.History[0].ID, g.Status.History[0].Culprit = s, s
	for i := range in.Nodes {
		n := &in.Nodes[i]
		f := n.Facts()
		f.Problems = []v1alpha1.Problem{{Severity: s, Code: s, Path: "x" + s, Message: s}}
		f.GPUs[0].NIC, f.GPUs[0].PCIAddress = "x"+s, "x"+s
		n.Status.Run.LogTail, n.Status.Run.RASVerdict = "x"+s, "x"+s
		n.Status.Run.Preconditions = []v1alpha1.PreconditionStatus{{Name: s, State: "Failed", Message: "x" + s}}
	}
	g.Status.Inventory[0].Value = s
	return in
}
