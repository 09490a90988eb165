package discover

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// tableWidth is where sentences wrap, and what titles are centred on: rocm-smi's own for eight GPUs.
const tableWidth = 90

// Healthy says that no fault was found: no Error problem but that GPUs are hidden from this container, which are
// neither absent nor broken. To the operator that is an Error, since a monitor that cannot see its node must not vouch
// for it.
func (f *Facts) Healthy() bool {
	for i := range f.Problems {
		if f.Problems[i].Severity == v1alpha1.SeverityError && f.Problems[i].Code != v1alpha1.ProblemGPUHidden {
			return false
		}
	}
	return true
}

// Proven says that the node was found healthy and nothing that proves it is missing: what is not known is never a pass.
func (f *Facts) Proven() bool {
	for i := range f.Problems {
		switch f.Problems[i].Code {
		case v1alpha1.ProblemGPUMissing, v1alpha1.ProblemTopologyUnstable:
			return false // a card that is gone leaves the mesh of the others whole
		}
	}
	if len(f.HiddenNodes) > 0 {
		return false // of what they are nothing is known, whatever the others' mesh is
	}
	return f.Healthy() && (f.Mesh.State == MeshFull || f.Mesh.State == MeshNotApplicable)
}

// Verdict is one line that can stand alone: healthy or not, how many problems, and the worst of them with its subject
// and the next step.
func (f *Facts) Verdict() string {
	var errs, warnings int
	for i := range f.Problems {
		if f.Problems[i].Severity == v1alpha1.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	text := ""
	if f.Origin == v1alpha1.OriginSimulated {
		text = "SIMULATED: "
	}
	if !f.Healthy() {
		return text + fmt.Sprintf("NOT HEALTHY (%s%s), %s: %s",
			plural("", errs, "error"), plural(", ", warnings, "warning"), gpusInWords(f), problemInWords(f, 0))
	}
	word := "healthy"
	switch {
	case len(f.HiddenNodes) > 0:
		word = fmt.Sprintf("not proven healthy (%s hidden from this container)",
			plural("", len(f.HiddenNodes), "GPU device"))
	case !f.Proven():
		word = "no error found, but not proven healthy"
	}
	text += fmt.Sprintf("%s: %s, xGMI mesh %s", word, gpusInWords(f), meshWords(&f.Mesh))
	if warnings > 0 {
		text += plural(", with ", warnings, "warning") + ": " + problemInWords(f, errs) // errors come first
	} else if errs > 0 {
		text += ": " + problemInWords(f, 0)
	}
	return text
}

// gpusInWords is "8 x MI300X", "8 x MI300X as 64 devices" or "no GPU".
func gpusInWords(f *Facts) string {
	switch {
	case len(f.GPUs) == 0:
		return "no GPU"
	case len(f.Devices) != len(f.GPUs):
		return fmt.Sprintf("%s as %d devices", modelsInWords(f), len(f.Devices))
	}
	return modelsInWords(f)
}

// modelsInWords is "8 x MI300X", or "7 x MI300X, 1 x MI325X".
func modelsInWords(f *Facts) string {
	return tally(f.GPUs, func(g *GPU) string { return g.Model })
}

// problemInWords is "Code subject (GPU3, GPU6): message".
func problemInWords(f *Facts, i int) string { return problemHead(f, i) + ": " + f.Problems[i].Message }

// problemHead is "Code subject (GPU3, GPU6)"; the GPUs' numbers are those of the tables.
func problemHead(f *Facts, i int) string {
	p := &f.Problems[i]
	text := p.Code
	if about := p.Subject(); about != "" {
		text += " " + about
	}
	var numbers []string
	for g := range f.GPUs {
		address := f.GPUs[g].PCIAddress
		if p.GPU == address || p.PeerGPU == address || slices.Contains(p.GPUs, address) ||
			strings.HasPrefix(p.Path, pciDir+"/"+address+"/") {
			numbers = append(numbers, gpuName(g))
		}
	}
	if len(numbers) > 0 {
		text += " (" + strings.Join(numbers, ", ") + ")"
	}
	return text
}

func gpuName(i int) string { return fmt.Sprintf("GPU%d", i) }

func meshWords(m *Mesh) string {
	switch {
	case m.State == MeshNotApplicable:
		return "not applicable"
	case m.ExpectedLinks != nil && m.detours > 0:
		return fmt.Sprintf("%s (%d of %d links, %d of them not direct)",
			strings.ToLower(m.State), m.Links, *m.ExpectedLinks, m.detours)
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

// WriteTable draws the facts for a terminal, in plain text: the verdict, what the node is, its versions, each GPU, the
// matrices of rocm-smi --showtopo with its titles, errors, what is wrong, and the verdict again. "?" is what could not
// be read or is not known, "none" what is not there. The error is the writer's.
func (f *Facts) WriteTable(w io.Writer) error {
	t := &table{}
	t.line("Verdict: %s", f.Verdict())
	if f.Origin == v1alpha1.OriginSimulated {
		t.line("SIMULATED: this tree was made by the node simulator; nothing below is hardware.")
	}
	t.line("")
	t.node(f)
	t.versions(f)
	t.gpus(f)
	if len(f.GPUs) > 1 {
		t.matrices(f)
	}
	t.numa(f)
	t.nics(f)
	t.errors(f)
	t.unread(f)
	t.problems(f)
	t.line("Verdict: %s", f.Verdict())
	_, err := io.WriteString(w, t.b.String())
	return err
}

type table struct{ b strings.Builder }

// line writes one line. Texts of the tree may be anybody's: what could steer a terminal is left out.
func (t *table) line(format string, args ...any) {
	text := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, fmt.Sprintf(format, args...))
	t.b.WriteString(strings.TrimRight(text, " "))
	t.b.WriteByte('\n')
}

// title is centred between equals signs, as rocm-smi has it.
func (t *table) title(text string) {
	pad := max(2, tableWidth-len(text)-2)
	t.line("%s %s %s", strings.Repeat("=", pad/2), text, strings.Repeat("=", pad-pad/2))
}

// field is a name and its values, each on a line of its own or more.
func (t *table) field(name string, values ...string) {
	name += ":"
	for _, value := range values {
		for _, row := range wrap(value, 108) {
			t.line("%-11s %s", name, row)
			name = ""
		}
	}
}

// columns writes rows with their columns aligned, two spaces apart.
func (t *table) columns(rows [][]string) {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		text := ""
		for i, cell := range row {
			text += fmt.Sprintf("%-*s", widths[i]+2, cell)
		}
		t.line("%s", text)
	}
}

// wrapped writes a sentence over as many lines as it takes, with an indent.
func (t *table) wrapped(indent int, text string) {
	for _, row := range wrap(text, tableWidth-indent) {
		t.line("%*s%s", indent, "", row)
	}
}

// wrap breaks a text at its spaces into rows of so many characters; a longer word has a row of its own.
func wrap(text string, width int) []string {
	var rows []string
	for _, word := range strings.Fields(text) {
		last := len(rows) - 1
		if last >= 0 && len(rows[last])+1+len(word) <= width {
			rows[last] += " " + word
		} else {
			rows = append(rows, word)
		}
	}
	return rows
}

// unread lists what could not be read and why, without what this kernel or model simply does not have.
func (t *table) unread(f *Facts) {
	const most = 12
	count := 0
	for _, u := range f.Unread {
		if u.Class == ClassMissing {
			continue
		}
		if count++; count > most {
			continue
		}
		if count == 1 {
			t.title("Could not be read")
		}
		t.line("%-11s %s", u.Class, u.Path)
		t.wrapped(12, u.Message)
	}
	if count > most {
		t.line("and %d more: -o json lists them", count-most)
	}
	if count > 0 {
		t.line("")
	}
}

func (t *table) problems(f *Facts) {
	if len(f.Problems) == 0 {
		return
	}
	t.title("Problems")
	for i := range f.Problems {
		t.line("%-7s %s:", f.Problems[i].Severity, problemHead(f, i))
		t.wrapped(8, f.Problems[i].Message)
	}
	t.line("")
}
