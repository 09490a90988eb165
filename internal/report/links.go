package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// link is a pair of GPUs by PCI address, the smaller first.
type link [2]string

func linkOf(a, b string) link {
	if a > b {
		a, b = b, a
	}
	return link{a, b}
}

// parseLink takes "A<->B", with spaces or not.
func parseLink(s string) (link, bool) {
	a, b, ok := strings.Cut(s, "<->")
	a, b = strings.TrimSpace(a), strings.TrimSpace(b)
	if !ok || a == "" || b == "" {
		return link{}, false
	}
	return linkOf(a, b), true
}

// linkMarks are the links of a node that a run or the monitor's checks name, with the word for it.
func linkMarks(n *Member) map[link]string {
	marks := map[link]string{}
	if run := n.Status.Run; run != nil {
		for _, c := range run.Culprits {
			if l, ok := parseLink(c.Name); ok && c.Kind == "Link" {
				marks[l] = c.Reason
			}
		}
	}
	if f := n.Facts(); f != nil {
		for _, p := range f.Problems {
			if p.PeerGPU != "" {
				marks[linkOf(p.GPU, p.PeerGPU)] = p.Code
			}
		}
	}
	return marks
}

func markWords(marks map[link]string) string {
	var parts []string
	for l, why := range marks {
		parts = append(parts, fmt.Sprintf("%s<->%s %s", l[0], l[1], why))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// meshTone is the tone of a cell of the mesh: what a check names, or what is not known, stands out.
func meshTone(heading, cell string, _ []string) Tone {
	switch {
	case !strings.HasPrefix(heading, "GPU"):
		return Plain
	case strings.HasSuffix(cell, "!"):
		return Bad
	case cell == "?" || strings.HasSuffix(cell, "p"):
		return Warn
	case cell == unknown:
		return Faint
	}
	return Good
}

// linkClasses says what each weight of the mesh stands for, and how many links there are of it.
func linkClasses(w io.Writer, classes []v1alpha1.LinkClass) error {
	if len(classes) == 0 {
		return nil
	}
	rows := [][]string{{"LINKS", "WEIGHT", "HOPS", "STATED GB/s", "BETWEEN"}}
	for i := range classes {
		c := &classes[i]
		stated := optionalGBps(c.MaxMBps)
		if c.MinMBps != nil && c.MaxMBps != nil && *c.MinMBps != *c.MaxMBps {
			stated = units.GBps(*c.MinMBps) + " to " + stated
		}
		pairs := units.Counted(int64(c.Pairs/2), "pair")
		if c.Pairs%2 != 0 { // a link that only one of its ends shows
			pairs = fmt.Sprintf("%d directions", c.Pairs)
		}
		rows = append(rows, []string{cmp.Or(c.Type, unknown), fmt.Sprint(c.Weight), number(c.Hops), stated, pairs})
	}
	return table(w, rows)
}
