package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// pathNames say in a few words what each path is.
var pathNames = map[rcclx.Path]string{
	rcclx.PathLowPrecision: "FP8 E4M3 transport",
	rcclx.PathP2PAllGather: "FP8's AllGather without FP8, peer to peer",
	rcclx.PathDDAFlat:      "DDA flat (one-shot)",
	rcclx.PathDDATree:      "DDA tree (two-shot)",
	rcclx.PathDDA:          "DDA",
	rcclx.PathDirect:       "direct, to all peers at once",
	rcclx.PathRingTree:     "ring or tree",
	rcclx.PathSendRecv:     "sends and receives",
	rcclx.PathStandard:     "direct, ring or tree",
	rcclx.PathUnknown:      "not known",
}

// page collects what is printed; the first write error is the one that counts.
type page struct {
	out io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

func (e explanation) print(out io.Writer) error {
	p := &page{out: out}
	e.printHead(p)
	e.printRanges(p)
	e.printSettings(p)
	e.printVariables(p)
	for _, remark := range e.Remarks {
		p.line("\n%s", remark)
	}
	return p.err
}

func (e explanation) printHead(p *page) {
	op := ""
	switch e.Call.Collective {
	case rcclx.AllReduce, rcclx.ReduceScatter, rcclx.Reduce:
		op = " (" + e.Call.Op + ")"
	}
	gpu := ""
	if e.Call.GFX != "" {
		gpu = " of " + e.Call.GFX
	}
	p.line("%s%s of %s, %s on %s%s, library flavor %s",
		e.Call.Collective, op, e.Call.Datatype, count(e.Call.Ranks, "rank"), count(e.Call.Nodes, "node"), gpu, e.Flavor)
	asked := []string{"dda.mode " + string(e.Asked.DDA.Mode)}
	if limit := e.Asked.DDA.AllReduceFlatMaxBytes; limit != nil {
		asked = append(asked, fmt.Sprintf("dda.allReduceFlatMaxBytes %d", *limit))
	}
	if limit := e.Asked.DDA.AllReduceTreeMaxBytes; limit != nil {
		asked = append(asked, fmt.Sprintf("dda.allReduceTreeMaxBytes %d", *limit))
	}
	asked = append(asked, "lowPrecision.mode "+string(e.Asked.LowPrecision.Mode))
	if len(e.Asked.LowPrecision.Collectives) > 0 {
		asked = append(asked, fmt.Sprintf("lowPrecision.collectives %v", e.Asked.LowPrecision.Collectives))
	}
	p.line("asked for: %s", strings.Join(asked, ", "))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printRanges gives the short answer first, then the reasons.
func (e explanation) printRanges(p *page) {
	rows := [][]string{{"MESSAGE SIZE", "BYTES", "PATH"}}
	for i := 0; i < len(e.Ranges); i++ {
		r := e.Ranges[i]
		// Ranges that differ in their reasons only are one here.
		for i+1 < len(e.Ranges) && e.Ranges[i+1].Path == r.Path {
			i++
			r.MaxBytes = e.Ranges[i].MaxBytes
		}
		rows = append(rows, []string{humanRange(r), byteRange(r), string(r.Path) + ": " + pathNames[r.Path]})
	}
	p.line("")
	p.columns(rows)
	for _, hint := range e.hints() {
		p.line("%s", hint)
	}
	p.line("\nWhy, and why not another way. What a library has of these is tried in this order: FP8, DDA, direct; " +
		"the rest goes by ring or tree, or by sends and receives.")
	var sources footnotes
	for _, r := range e.Ranges {
		p.line("%s (%s): %s%s", humanRange(r), byteRange(r)+" bytes", r.Path, sources.mark(r.Source))
		p.line("    why: %s", r.Reason)
		for _, note := range r.Notes {
			p.line("    note: %s", note)
		}
		for _, n := range r.NotTaken {
			p.line("    not %s (%s): %s%s", n.Path, n.Reason, n.Message, sources.mark(n.Source))
		}
	}
	for i, source := range sources {
		p.line("[%d] %s", i+1, source)
	}
}

// hints say how to switch on what is off and would take some of the sizes.
func (e explanation) hints() []string {
	var hints []string
	for _, way := range []struct {
		path         rcclx.Path
		name, advice string
	}{
		{rcclx.PathLowPrecision, "FP8", "here --low-precision Preferred, in a CommGroup spec.lowPrecision.mode"},
		{rcclx.PathDDA, "DDA", "here --dda Preferred, in a CommGroup spec.dda.mode"},
	} {
		var sizes []string
		for i := 0; i < len(e.Ranges); i++ {
			if !wouldTake(e.Ranges[i], way.path) {
				continue
			}
			r := e.Ranges[i]
			for i+1 < len(e.Ranges) && wouldTake(e.Ranges[i+1], way.path) {
				i++
				r.MaxBytes = e.Ranges[i].MaxBytes
			}
			sizes = append(sizes, humanRange(r))
		}
		if len(sizes) > 0 {
			hints = append(hints, fmt.Sprintf("%s is off, and would take these sizes: %s. To switch it on: %s.",
				way.name, strings.Join(sizes, ", "), way.advice))
		}
	}
	if e.Call.GFX == "" &&
		slices.ContainsFunc(e.Ranges, func(r rcclx.Range) bool { return r.Path == rcclx.PathStandard }) {
		hints = append(hints, "Standard may depend on the GPU: name it, as in --gfx gfx942 (MI300X, MI325X) or --gfx "+
			"gfx950 (MI350X, MI355X).")
	}
	return hints
}

// wouldTake says whether a way is off and would take a range's sizes if it were on.
func wouldTake(r rcclx.Range, path rcclx.Path) bool {
	return slices.ContainsFunc(r.NotTaken, func(n rcclx.NotTaken) bool { return n.Path == path && n.IfOn })
}

// footnotes are the sources in the order in which they were first named.
type footnotes []string

func (f *footnotes) mark(source string) string {
	if source == "" {
		return ""
	}
	i := slices.Index(*f, source)
	if i < 0 {
		i = len(*f)
		*f = append(*f, source)
	}
	return fmt.Sprintf(" [%d]", i+1)
}

func byteRange(r rcclx.Range) string {
	if r.MaxBytes == nil {
		return fmt.Sprintf("from %d", r.MinBytes)
	}
	return fmt.Sprintf("%d to %d", r.MinBytes, *r.MaxBytes)
}

// humanRange writes a range by its round borders: "over 200 KiB to under 16 MiB". The exact ones stand beside it.
func humanRange(r rcclx.Range) string {
	from, over := rcclx.HumanBytes(r.MinBytes), kibi(r.MinBytes-1)
	if over {
		from = "over " + rcclx.HumanBytes(r.MinBytes-1)
	}
	switch {
	case r.MaxBytes == nil && over:
		return from
	case r.MaxBytes == nil:
		return from + " and up"
	case kibi(*r.MaxBytes + 1):
		return from + " to under " + rcclx.HumanBytes(*r.MaxBytes+1)
	}
	return from + " to " + rcclx.HumanBytes(*r.MaxBytes)
}

// kibi says whether a size is whole in KiB.
func kibi(n int64) bool { return n > 0 && n%1024 == 0 }

func (e explanation) printSettings(p *page) {
	p.line("\nSettings: what is asked for, and what the gates of %s make of it from 1 KiB to 1 GiB", e.Flavor)
	for _, s := range e.Settings {
		p.line("%s=%s: %s, %s%s", s.Name, s.Requested, s.State, s.Reason, bounds(s))
		p.line("    %s", s.Message)
	}
}

func bounds(s rcclx.Effective) string {
	var text string
	if s.MinBytes != nil {
		text += fmt.Sprintf(", from %s (%d bytes)", rcclx.HumanBytes(*s.MinBytes), *s.MinBytes)
	}
	switch {
	case s.MaxBytes == nil:
	case kibi(*s.MaxBytes + 1):
		text += fmt.Sprintf(", under %s (to %d bytes)", rcclx.HumanBytes(*s.MaxBytes+1), *s.MaxBytes)
	default:
		text += fmt.Sprintf(", up to %s (%d bytes)", rcclx.HumanBytes(*s.MaxBytes), *s.MaxBytes)
	}
	return text
}

// printVariables shows what a job sets and for which setting, where the library reads it, and what it takes otherwise.
func (e explanation) printVariables(p *page) {
	rows := [][]string{{"VARIABLE", "SETTING", "IF UNSET", "SOURCE"}}
	known := map[string]bool{}
	for _, v := range e.Variables {
		known[v.Name] = true
		set := v.Name + " not set"
		if v.Value != nil {
			set = v.Name + "=" + *v.Value
		}
		rows = append(rows, []string{set, v.Setting, dash(v.Unset), v.Source})
	}
	for _, own := range e.Environment {
		if !known[own.Name] {
			whose := "yours (--env)"
			if reads, known := rcclx.Reads(e.Flavor, own.Name); known && !reads {
				whose = "yours, never read"
			}
			rows = append(rows, []string{own.Name + "=" + own.Value, whose, "-", "-"})
		}
	}
	p.line("\nVariables of a job with these settings")
	p.columns(rows)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// columns prints rows with their cells under each other.
func (p *page) columns(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		p.line("%s", strings.TrimRight(line.String(), " "))
	}
}
