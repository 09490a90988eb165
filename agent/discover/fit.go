package discover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// fitting is the making of facts that fit: what they hold now, and what was left out.
type fitting struct {
	out      *v1alpha1.NodeFacts
	problems []v1alpha1.Problem
	// keep so many problems, with messages of so many characters.
	keep, message int
	leftOut       []string
}

// reductions make facts smaller, in this order: first what can be found elsewhere, last what says which GPUs are here.
// Each says what it left out, "" for what a cut text shows by itself. How many GPUs and which mesh, partition, driver
// and ROCm always stay.
var reductions = []func(*fitting) string{
	func(t *fitting) string { t.message = 200; return "" },
	leaveOutInterfaces,
	leaveOutActiveNICs,
	func(t *fitting) string { t.keep = min(t.keep, 8); return "" },
	func(t *fitting) string { t.message = 160; return "" },
	func(t *fitting) string { t.keep = min(t.keep, 5); return "" },
	leaveOutPlaces,
	func(t *fitting) string { t.keep = min(t.keep, 3); return "" },
	leaveOutNICs,
	leaveOutLinks,
	leaveOutNames,
	leaveOutGPUs,
	cutAll,
}

// fit puts the problems into the facts and leaves out what does not fit FactsBudgetBytes. Error problems stay before
// Warning ones, and the last problem says what was left out.
func fit(out *v1alpha1.NodeFacts, problems []v1alpha1.Problem) {
	t := &fitting{out: out, problems: problems, keep: maxProblems, message: 400}
	if n := len(out.NICs); n > maxNICsListed {
		out.NICs = out.NICs[:maxNICsListed]
		t.leftOut = append(t.leftOut, plural("", n-maxNICsListed, "NIC"))
	}
	if n := int(out.GPUCount) - len(out.GPUs); n > 0 {
		t.leftOut = append(t.leftOut, plural("", n, "GPU"))
	}
	t.write()
	for _, reduce := range reductions {
		if jsonSize(out) <= FactsBudgetBytes {
			return
		}
		if left := reduce(t); left != "" {
			t.leftOut = append(t.leftOut, left)
		}
		t.write()
	}
}

// write puts the problems into the facts, and a note of what was left out.
func (t *fitting) write() {
	keep := min(len(t.problems), t.keep)
	if keep == maxProblems && (len(t.problems) > maxProblems || len(t.leftOut) > 0) {
		keep-- // the last place is for the note
	}
	list := make([]v1alpha1.Problem, 0, keep+1)
	for _, p := range t.problems[:keep] {
		p.Code, p.Message = cut(p.Code, 64), cut(p.Message, t.message)
		p.GPU, p.PeerGPU, p.NIC, p.Path = cut(p.GPU, 16), cut(p.PeerGPU, 16), cut(p.NIC, 32), cut(p.Path, 128)
		p.GPUs = slices.Clone(p.GPUs[:min(len(p.GPUs), 8)])
		for i := range p.GPUs {
			p.GPUs[i] = cut(p.GPUs[i], 16)
		}
		if t.message < 100 { // the last resort: what JSON would write as six bytes goes, too
			p.Code, p.Message = plain(p.Code, 48), plain(p.Message, t.message)
			p.GPU, p.PeerGPU, p.NIC, p.Path = plain(p.GPU, 16), plain(p.PeerGPU, 16),
				plain(p.NIC, 32), plain(p.Path, 48)
			p.GPUs = nil
			if p.Message == "" {
				p.Message = "The text cannot be shown here."
			}
		}
		list = append(list, p)
	}
	severity, left := v1alpha1.SeverityWarning, []string{}
	if n := len(t.problems) - keep; n > 0 {
		severity = t.problems[keep].Severity
		left = append(left, plural("", n, "more problem"))
	}
	if left = append(left, t.leftOut...); len(left) > 0 {
		list = append(list, v1alpha1.Problem{Severity: severity, Code: v1alpha1.ProblemMoreProblems,
			Message: fmt.Sprintf("Left out, since a CommTask is small: %s. Run \"agent discover\" on the node "+
				"to see them.", strings.Join(left, ", "))})
	}
	t.out.Problems = nil
	if len(list) > 0 {
		t.out.Problems = list
	}
}

// leaveOutInterfaces: a NIC's name leads to its interface (rdma link).
func leaveOutInterfaces(t *fitting) string {
	found := false
	for i := range t.out.NICs {
		n := &t.out.NICs[i]
		found = found || n.Interface != "" || n.NUMANode != nil
		n.Interface, n.NUMANode = "", nil
	}
	if !found {
		return ""
	}
	return "interfaces and NUMA nodes of NICs"
}

// leaveOutActiveNICs keeps the NICs that need somebody's eye.
func leaveOutActiveNICs(t *fitting) string {
	kept := []v1alpha1.NICFacts{}
	for _, n := range t.out.NICs {
		if n.State != PortActive {
			kept = append(kept, n)
		}
	}
	left := len(t.out.NICs) - len(kept)
	t.out.NICs = nil
	if len(kept) > 0 {
		t.out.NICs = kept
	}
	if left == 0 {
		return ""
	}
	return plural("", left, "Active NIC")
}

func leaveOutPlaces(t *fitting) string {
	found := false
	for i := range t.out.GPUs {
		g := &t.out.GPUs[i]
		found = found || g.VRAMMiB != nil || g.NUMANode != nil
		g.VRAMMiB, g.NUMANode = nil, nil
	}
	if !found {
		return ""
	}
	return "VRAM and NUMA nodes of GPUs"
}

func leaveOutNICs(t *fitting) string {
	left := len(t.out.NICs)
	t.out.NICs = nil
	if left == 0 {
		return ""
	}
	return plural("", left, "NIC") + " not Active"
}

func leaveOutLinks(t *fitting) string {
	found := len(t.out.LinkClasses) > 0
	t.out.LinkClasses = nil
	for i := range t.out.GPUs {
		found = found || t.out.GPUs[i].Links != ""
		t.out.GPUs[i].Links = ""
	}
	if !found {
		return ""
	}
	return "links between GPUs"
}

func leaveOutNames(t *fitting) string {
	found := false
	for i := range t.out.GPUs {
		g := &t.out.GPUs[i]
		found = found || g.Model != "" || g.NIC != "" || g.Partition != ""
		g.Model, g.NIC, g.NICPath, g.Partition = "", "", "", ""
	}
	if !found {
		return ""
	}
	return "models, modes and NICs of GPUs"
}

func leaveOutGPUs(t *fitting) string {
	left := len(t.out.GPUs)
	t.out.GPUs = nil
	if left == 0 {
		return ""
	}
	return "the list of " + plural("", left, "GPU")
}

// cutAll is the last resort, for texts that no kernel writes.
func cutAll(t *fitting) string {
	o := t.out
	for _, text := range []*string{&o.BootID, &o.KernelRelease, &o.Driver.Version, &o.Driver.SrcVersion,
		&o.ROCm.Version, &o.ROCm.Source, &o.ROCm.HIPVersion, &o.ROCm.RCCLVersion, &o.GPUModel,
		&o.GFXTarget, &o.Partition} {
		*text = plain(*text, 64)
	}
	t.message = 80
	return "parts of long texts"
}

// plain keeps what JSON writes as one byte, so many characters of it at most.
func plain(text string, limit int) string {
	return cut(strings.Map(func(c rune) rune {
		if c < 0x20 || c > 0x7e || strings.ContainsRune(`"\<>&`, c) {
			return -1
		}
		return c
	}, text), limit)
}

func jsonSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 1 << 30 // never fits; plain structs always marshal
	}
	return len(data)
}

// cut shortens text to so many characters, with dots in the place of what is missing.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return string(runes[:limit-3]) + "..."
}
