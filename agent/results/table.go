package results

import (
	"fmt"
	"io"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// TableOptions say how a table is shown.
type TableOptions struct {
	// Statistic that time, algbw and busbw are of; empty means the median.
	Statistic Statistic
}

// WriteTable writes reports for people: rows of rccl-tests' columns and some more, one block for each variant, collective,
// datatype and placement, then comparisons of the variants, numeric errors, pairs, settings and warnings. Every line
// that is no row begins with "#", and every row is words split by spaces, "-" where a value is missing.
func WriteTable(w io.Writer, o TableOptions, reports ...Report) error {
	if o.Statistic == "" {
		o.Statistic = Median
	}
	out := &printer{w: w}
	for i, p := range reports {
		if i > 0 {
			out.line("#")
		}
		out.report(p, o)
	}
	return out.err
}

// printer keeps the first error, so that what prints needs not look at each.
type printer struct {
	w   io.Writer
	err error
}

func (o *printer) Write(p []byte) (int, error) {
	if o.err != nil {
		return len(p), nil
	}
	_, o.err = o.w.Write(p)
	return len(p), nil
}

func (o *printer) line(format string, args ...any) { _, _ = fmt.Fprintf(o, format+"\n", args...) }

// rows prints right-aligned columns, the header first.
func (o *printer) rows(head []string, rows [][]string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, text := range row {
			widths[i] = max(widths[i], len(text))
		}
	}
	for i, row := range append([][]string{head}, rows...) {
		line := " "
		if i == 0 {
			line = "#"
		}
		for k, text := range row {
			line += fmt.Sprintf("  %*s", widths[k], text)
		}
		o.line("%s", line)
	}
}

func (o *printer) report(p Report, opt TableOptions) {
	o.header(p)
	groups := Group(p.Results)
	for _, g := range groups {
		o.series(p, g, opt.Statistic)
	}
	for _, c := range Compare(groups) {
		o.comparison(p, c)
	}
	o.errors(p, groups)
	o.pairs(p)
	o.settings(p)
	for _, text := range p.Warnings {
		o.line("# Warning: %s", flat(text))
	}
	if p.Failure != nil {
		o.line("# FAILED: %s", flat(p.Failure.Message))
	}
	if p.Simulated {
		o.line("# %s: no GPU was measured; every time comes from a model", simulatedMark)
	}
}

// flat puts a text on one line.
func flat(text string) string { return printable(strings.Join(strings.Fields(text), " ")) }

func (o *printer) header(p Report) {
	title := "# " + p.Source
	if p.Input != "" {
		title += " " + p.Input
	}
	if t := timeText(p.Time); t != "" {
		title += " " + t
	}
	if p.Ranks > 0 {
		title += fmt.Sprintf(", %d ranks", p.Ranks)
	}
	switch {
	case p.Node != "":
		title += " on " + p.Node
	case p.Nodes > 0:
		title += fmt.Sprintf(" on %d node(s)", p.Nodes)
	}
	o.line("%s", title)
	if p.Simulated {
		o.line("# %s: no GPU was measured; every time comes from a model", simulatedMark)
	}
	if lib := p.Library; lib != nil {
		flavor := string(lib.Flavor)
		if lib.Imitates != "" {
			flavor += " imitating " + string(lib.Imitates)
		}
		o.line("# Library %s version %s flavor %s build %s runtime %s", orMissing(lib.Path), orMissing(version(*lib)), orMissing(flavor),
			orMissing(lib.BuildHash), orMissing(RuntimeVersion(*lib)))
	}
	for _, d := range p.Devices {
		o.line("# Rank %2d device %2d [%s] %s", d.Rank, d.Ordinal, orMissing(d.PCIAddress), orMissing(d.Name))
	}
	for _, v := range []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision} {
		if t := p.InitNanoseconds[v]; t > 0 {
			o.line("# %s formed its communicator in %.3f s (slowest rank)", v, float64(t)/1e9)
		}
	}
}

// title names a block, and says that it is simulated where it is.
func (k Key) title(simulated bool) string {
	var parts []string
	for _, part := range []string{string(k.Variant), string(k.Collective), string(k.Datatype), k.Op, string(k.Placement)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if k.Root != 0 {
		parts = append(parts, fmt.Sprintf("root %d", k.Root))
	}
	if simulated {
		parts = append(parts, simulatedMark)
	}
	return strings.Join(parts, " ")
}

func (o *printer) series(p Report, s Series, statistic Statistic) {
	launch, hazards := false, false
	for _, r := range s.Results {
		launch, hazards = launch || r.LaunchNanoseconds > 0, hazards || r.Hazard != ""
	}
	o.line("#")
	o.line("# %s", s.Key.title(p.Simulated))
	head := []string{"size(B)", "count", "type", "redop", "placement", string(statistic) + "(us)", "min", "max", "p95", "cv%", "algbw(GB/s)", "busbw(GB/s)", "#wrong"}
	if launch {
		head = append(head, "launch(us)")
	}
	head = append(head, "path")
	var rows [][]string
	for _, r := range s.Results {
		wrong, any := r.Wrong()
		cv, wrongText := missing, missing
		if hasSpread(r.Latency) {
			cv = percent(r.Latency.CoefficientOfVariationPPM)
		}
		if any {
			wrongText = decimal(wrong)
		}
		alg, bus := statistic.bandwidths(r, p.Ranks)
		timed := statistic.Of(r) > 0
		row := []string{decimal(r.SizeBytes), decimal(r.CountElements), word(string(r.Datatype)), word(r.Op), word(string(r.Placement)),
			microseconds(statistic.Of(r)), microseconds(r.Latency.MinNanoseconds), microseconds(r.Latency.MaxNanoseconds),
			microseconds(r.Latency.P95Nanoseconds), cv, gigabytes(alg, timed), gigabytes(bus, timed && p.Ranks > 1), wrongText}
		if launch {
			row = append(row, microseconds(r.LaunchNanoseconds))
		}
		rows = append(rows, append(row, word(string(r.ExpectedPath))))
	}
	o.rows(head, rows)
	if !hazards {
		return
	}
	for _, r := range s.Results {
		if r.Hazard != "" {
			o.line("# Hazard at %d B: %s", r.SizeBytes, flat(r.Hazard))
		}
	}
}

func (o *printer) comparison(p Report, c Comparison) {
	o.line("#")
	o.line("# %s against %s: %s", c.Variant, c.Reference, Key{Collective: c.Key.Collective, Datatype: c.Key.Datatype, Op: c.Key.Op,
		Root: c.Key.Root, Placement: c.Key.Placement}.title(p.Simulated))
	var rows [][]string
	for _, x := range c.Points {
		note := missing
		if x.WithinNoise {
			note = "within_noise"
		}
		rows = append(rows, []string{decimal(x.SizeBytes), microseconds(x.ReferenceNanoseconds), microseconds(x.VariantNanoseconds),
			fmt.Sprintf("%.3fx", float64(x.SpeedupPPM)/1e6), word(string(x.Path)), note})
	}
	o.rows([]string{"size(B)", string(c.Reference) + "(us)", string(c.Variant) + "(us)", "speedup", "path", "note"}, rows)
}

// errors shows what the checks say of precision, where there is more to say than that nothing is wrong.
func (o *printer) errors(p Report, groups []Series) {
	for _, g := range groups {
		var rows [][]string
		worth := false
		for _, r := range g.Results {
			for _, c := range r.Checks {
				if c.Data == "" {
					continue // from elsewhere, without errors
				}
				worth = worth || c.Data != rcclx.DataExact || c.WrongElements+c.NaNElements+c.OverflowElements+c.MaxRelativeErrorPPM > 0
				first := missing
				if c.FirstWrongElement != nil {
					first = decimal(*c.FirstWrongElement)
				}
				rows = append(rows, []string{decimal(r.SizeBytes), word(string(c.Data)), decimal(c.CheckedElements), decimal(c.WrongElements),
					percent4(c.MaxRelativeErrorPPM), percent4(c.MeanRelativeErrorPPM), decimal(c.NaNElements), decimal(c.OverflowElements), first})
			}
		}
		if worth {
			o.line("#")
			o.line("# Numeric errors, relative to the largest and the mean of the reference: %s", g.Key.title(p.Simulated))
			o.rows([]string{"size(B)", "data", "checked", "wrong", "max_error(%)", "mean_error(%)", "NaN", "overflow", "first_wrong"}, rows)
		}
	}
}

func percent4(ppm int64) string { return fmt.Sprintf("%.4f", float64(ppm)/1e4) }

// pairs shows the matrix of all pairs of ranks.
func (o *printer) pairs(p Report) {
	if len(p.Pairs) == 0 {
		return
	}
	ranks := p.Ranks
	at := map[[2]int]int64{}
	for _, x := range p.Pairs {
		at[[2]int{x.RankA, x.RankB}], at[[2]int{x.RankB, x.RankA}] = x.BandwidthMBps, x.BandwidthMBps
		ranks = max(ranks, x.RankA+1, x.RankB+1)
	}
	mark := ""
	if p.Simulated {
		mark = " " + simulatedMark
	}
	o.line("#")
	o.line("# Send and receive between pairs of ranks, %d B, slower direction in GB/s%s", p.Pairs[0].SizeBytes, mark)
	head := []string{"rank"}
	for r := range ranks {
		head = append(head, decimal(int64(r)))
	}
	var rows [][]string
	for a := range ranks {
		row := []string{decimal(int64(a))}
		for b := range ranks {
			row = append(row, gigabytes(at[[2]int{a, b}], false))
		}
		rows = append(rows, row)
	}
	o.rows(head, rows)
	for _, x := range p.Pairs {
		if x.WrongElements > 0 {
			o.line("# Wrong data between ranks %d and %d: %d elements", x.RankA, x.RankB, x.WrongElements)
		}
	}
}

// bounds are the sizes for which a setting is in effect.
func bounds(s rcclx.Effective) string {
	text := ""
	if s.MinBytes != nil {
		text += fmt.Sprintf(", from %d B", *s.MinBytes)
	}
	if s.MaxBytes != nil {
		text += fmt.Sprintf(", up to %d B", *s.MaxBytes)
	}
	return text
}

func (o *printer) settings(p Report) {
	if len(p.Settings) > 0 {
		o.line("#")
		o.line("# Settings")
		for _, s := range p.Settings {
			o.line("#   %s requested %s: %s (%s)%s: %s", s.Name, flat(orMissing(s.Requested)), s.State, s.Reason, bounds(s), flat(s.Message))
		}
	}
	for _, v := range []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision} {
		vars := p.Environment[v]
		if len(vars) == 0 {
			continue
		}
		text := make([]string, 0, len(vars))
		for _, e := range vars {
			text = append(text, e.Name+"="+e.Value)
		}
		o.line("# Environment of %s: %s", v, flat(strings.Join(text, " ")))
	}
}
