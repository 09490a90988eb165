package discover

import (
	"fmt"
	"io"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Healthy says that no Error problem was found.
func (f *Facts) Healthy() bool {
	for i := range f.Problems {
		if f.Problems[i].Severity == v1alpha1.SeverityError {
			return false
		}
	}
	return true
}

// Verdict is one line: healthy, or what is wrong, the worst first.
func (f *Facts) Verdict() string {
	simulated := ""
	if f.Origin == v1alpha1.OriginSimulated {
		simulated = "SIMULATED: "
	}
	var errs, warnings int
	for i := range f.Problems {
		if f.Problems[i].Severity == v1alpha1.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	if errs == 0 {
		word := "healthy"
		if f.Mesh.State != MeshFull && f.Mesh.State != MeshNotApplicable {
			word = "no error found, but not proven healthy" // what is not known is never a pass
		}
		return fmt.Sprintf("%s%s: %d x %s, xGMI mesh %s%s", simulated, word, len(f.GPUs), f.Model, meshWords(&f.Mesh),
			plural(", with ", warnings, "warning"))
	}
	p := f.Problems[0]
	subject := ""
	if p.Subject != "" {
		subject = " " + p.Subject
	}
	return fmt.Sprintf("%sNOT HEALTHY (%s%s): %s%s: %s", simulated, plural("", errs, "error"), plural(", ", warnings, "warning"), p.Code, subject, p.Message)
}

func meshWords(m *Mesh) string {
	switch {
	case m.State == MeshNotApplicable:
		return "not applicable"
	case m.ExpectedLinks != nil:
		return fmt.Sprintf("%s (%d of %d links)", strings.ToLower(m.State), m.Links, *m.ExpectedLinks)
	}
	return fmt.Sprintf("%s (%d links)", strings.ToLower(m.State), m.Links)
}

func plural(before string, n int, word string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return before + "1 " + word
	}
	return fmt.Sprintf("%s%d %ss", before, n, word)
}

// WriteTable draws the facts for a terminal, with matrices as rocm-smi --showtopo draws them.
func (f *Facts) WriteTable(w io.Writer) error {
	t := &table{}
	if f.Origin == v1alpha1.OriginSimulated {
		t.line("SIMULATED: this tree was made by the node simulator; nothing below is hardware.")
		t.line("")
	}
	t.header(f)
	t.gpus(f)
	if len(f.GPUs) > 1 {
		t.matrices(f)
	}
	t.problems(f)
	t.line("Verdict: %s", f.Verdict())
	_, err := io.WriteString(w, t.b.String())
	return err
}

type table struct{ b strings.Builder }

func (t *table) line(format string, args ...any) {
	t.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	t.b.WriteByte('\n')
}

func (t *table) header(f *Facts) {
	field := func(name, value string) { t.line("%-11s %s", name+":", value) }
	gpus := fmt.Sprintf("%d x %s (%s)", len(f.GPUs), f.Model, f.GFXTarget)
	if len(f.Devices) != len(f.GPUs) {
		gpus += fmt.Sprintf(", %d devices", len(f.Devices))
	}
	field("GPUs", gpus)
	partition := f.Partition
	if f.PartitionSource == "Derived" {
		partition += " (derived from the compute dies of each device)"
	}
	field("Partition", partition)
	driver := "amdgpu " + orUnknown(f.Driver.Version) + " (" + f.Driver.Kind + ")"
	if f.Driver.Version == "" {
		driver = "amdgpu " + f.Driver.Kind
		if f.Driver.SrcVersion != "" {
			driver += ", srcversion " + f.Driver.SrcVersion
		}
	}
	field("Driver", driver)
	rocm := f.ROCm.State
	if f.ROCm.Version != "" {
		rocm = f.ROCm.Version + " (" + f.ROCm.Source + ")"
	}
	field("ROCm", rocm)
	field("Kernel", orUnknown(f.KernelRelease))
	field("xGMI", fmt.Sprintf("%s, hives: %d, link bandwidth stated: %s", meshWords(&f.Mesh), f.Mesh.Hives, mbps(f.Mesh.LinkBandwidthMBps)))
	t.line("")
}

func mbps(n *uint64) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprintf("%d MB/s", *n)
}

func (t *table) gpus(f *Facts) {
	if len(f.GPUs) == 0 {
		return
	}
	t.line("%-6s %-14s %-12s %-7s %-14s %-5s %-10s %-18s %-6s %s", "", "PCI", "MODEL", "GFX", "PARTITION", "NUMA", "VRAM(MiB)", "HIVE", "XGMI-UE", "KFD NODES")
	for i := range f.GPUs {
		g := &f.GPUs[i]
		numa, vram, hive, ue := "?", "?", "?", "?"
		if g.NUMANode != nil {
			numa = fmt.Sprint(*g.NUMANode)
		}
		if g.VRAMBytes != nil {
			vram = fmt.Sprint(*g.VRAMBytes >> 20)
		}
		if g.HiveID != nil {
			hive = fmt.Sprintf("0x%x", *g.HiveID)
			if *g.HiveID == 0 {
				hive = "none"
			}
		}
		if g.XGMIUncorrectableErrors != nil {
			ue = fmt.Sprint(*g.XGMIUncorrectableErrors)
		}
		t.line("%-6s %-14s %-12s %-7s %-14s %-5s %-10s %-18s %-6s  %s", fmt.Sprintf("GPU%d", i), g.PCIAddress, g.Model,
			orUnknown(g.GFXTarget), partitionName(g), numa, vram, hive, ue, joinInts(g.Nodes, 8))
	}
	t.line("")
}

func (t *table) matrices(f *Facts) {
	t.matrix(f, "Link type between two GPUs", func(l *Link) string { return string(l.Type) })
	t.matrix(f, "Weight between two GPUs", func(l *Link) string { return fmt.Sprint(l.Weight) })
	t.matrix(f, "xGMI hops between two GPUs (weight/15)", func(l *Link) string {
		if l.Hops == nil {
			return "-"
		}
		return fmt.Sprint(*l.Hops)
	})
}

func (t *table) matrix(f *Facts, title string, cell func(*Link) string) {
	width := 7 + 6*len(f.GPUs)
	pad := max(0, width-len(title)-2)
	t.line("%s %s %s", strings.Repeat("=", pad/2), title, strings.Repeat("=", pad-pad/2))
	row := fmt.Sprintf("%-7s", "")
	for i := range f.GPUs {
		row += fmt.Sprintf("%-6s", fmt.Sprintf("GPU%d", i))
	}
	t.line("%s", row)
	for i := range f.GPUs {
		row = fmt.Sprintf("%-7s", fmt.Sprintf("GPU%d", i))
		for j, l := range f.Mesh.Pairs[i] {
			text := "?"
			switch {
			case i == j:
				text = "0"
			case l != nil:
				text = cell(l)
			}
			row += fmt.Sprintf("%-6s", text)
		}
		t.line("%s", row)
	}
	t.line("")
}

func (t *table) problems(f *Facts) {
	if len(f.Problems) == 0 {
		return
	}
	t.line("Problems:")
	for i := range f.Problems {
		p := &f.Problems[i]
		subject := ""
		if p.Subject != "" {
			subject = " " + p.Subject
		}
		t.line("  %-7s %s%s: %s", p.Severity, p.Code, subject, p.Message)
	}
	t.line("")
}
