package discover

import (
	"fmt"
	"strings"
)

// matrices draws the links between physical GPUs in the order and under the titles of rocm-smi --showtopo. Unlike
// there, the hops are those of the weight: its tools print 1 for every pair that xGMI joins.
func (t *table) matrices(f *Facts) {
	if len(f.Devices) != len(f.GPUs) {
		t.line("Links are drawn between the %d physical GPUs; -o json has those of all %d devices.",
			len(f.GPUs), len(f.Devices))
		t.line("")
	}
	t.matrix(f, "Weight between two GPUs", "0", func(l *Link) string { return fmt.Sprint(l.Weight) })
	t.matrix(f, "Hops between two GPUs", "0", hopsCell)
	t.matrix(f, "Link Type between two GPUs", "0", func(l *Link) string { return string(l.Type) })
	if bandwidthDiffers(f) {
		t.matrix(f, "Bandwidth between two GPUs (GB/s, as the driver states it)", "-", bandwidthCell)
	}
}

// hopsCell is the number of xGMI hops; a way over PCIe has none.
func hopsCell(l *Link) string {
	switch {
	case l.Hops != nil:
		return fmt.Sprint(*l.Hops)
	case l.Type == LinkXGMI:
		return notKnown
	}
	return "-"
}

// bandwidthCell is what one link and all links of a pair have: 50-200.
func bandwidthCell(l *Link) string {
	least, most := l.MinBandwidthMBps, l.MaxBandwidthMBps
	switch {
	case least == nil && most == nil:
		return notKnown
	case least == nil:
		return gigabytes(*most)
	case most == nil || *least == *most:
		return gigabytes(*least)
	}
	return gigabytes(*least) + "-" + gigabytes(*most)
}

// bandwidthDiffers: a matrix of equal numbers tells nothing.
func bandwidthDiffers(f *Facts) bool {
	seen := map[string]bool{}
	for i := range f.Mesh.Pairs {
		for _, l := range f.Mesh.Pairs[i] {
			if l != nil {
				seen[bandwidthCell(l)] = true
			}
		}
	}
	return len(seen) > 1
}

// matrix draws one matrix; "?" where no link is known. Eight columns are as wide as rocm-smi's, more are narrower so
// that sixteen fit into 120 characters.
func (t *table) matrix(f *Facts, title, self string, cell func(*Link) string) {
	n := len(f.GPUs)
	rows := make([][]string, n)
	width := len(gpuName(n-1)) + 1
	for i := range rows {
		rows[i] = make([]string, n)
		for j := range rows[i] {
			text := notKnown
			switch {
			case i == j:
				text = self
			case f.Mesh.Pairs[i][j] != nil:
				text = cell(f.Mesh.Pairs[i][j])
			}
			rows[i][j] = text
			width = max(width, len(text)+1)
		}
	}
	if n <= 8 {
		width = max(width, 13)
	}
	t.title(title)
	head := strings.Builder{}
	for i := range n {
		fmt.Fprintf(&head, "%-*s", width, gpuName(i))
	}
	t.line("%-7s%s", "", head.String())
	for i, row := range rows {
		text := strings.Builder{}
		for _, cell := range row {
			fmt.Fprintf(&text, "%-*s", width, cell)
		}
		t.line("%-7s%s", gpuName(i), text.String())
	}
	t.line("")
}
