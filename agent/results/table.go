package results

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TableOptions say how a table is shown.
type TableOptions struct {
	// Statistic that time, algbw and busbw are of; empty means the median.
	Statistic Statistic
}

// WriteTable writes reports for users: rows of rccl-tests' columns and some more, one block for each variant,
// collective, datatype and placement, then comparisons of the variants, numeric errors, pairs, settings and warnings.
// Every line that is no row begins with "#", and every row is words split by spaces, "-" where a value is missing.
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

// maxColumns of a line that is no row: a longer one goes on in the next.
const maxColumns = 120

// line prints one line, without what could steer a terminal. One that begins with "# " is wrapped at its spaces.
func (o *printer) line(format string, args ...any) {
	text := Printable(fmt.Sprintf(format, args...))
	for strings.HasPrefix(text, "# ") && utf8.RuneCountInString(text) > maxColumns {
		width := len(string([]rune(text)[:maxColumns+1]))
		indent := len(text) - len(strings.TrimLeft(text, "# "))
		at := strings.LastIndexByte(text[indent:width], ' ')
		if at < 0 { // a word as long as that stays whole
			if at = strings.IndexByte(text[indent:], ' '); at < 0 {
				break
			}
		}
		at += indent
		o.text(text[:at])
		text = "#     " + text[at+1:]
	}
	o.text(text)
}

func (o *printer) text(line string) { _, _ = io.WriteString(o, line+"\n") }

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
		o.text(Printable(line))
	}
}

func (o *printer) report(p Report, opt TableOptions) {
	o.title(p)
	unmeasured := len(p.Results) == 0
	if unmeasured { // the cause comes first
		o.failed(p)
	}
	o.header(p)
	groups := Group(p.Results)
	for _, g := range groups {
		o.series(p, g, opt.Statistic)
	}
	for _, g := range groups {
		o.hazards(p, g, opt.Statistic)
	}
	for _, c := range Compare(groups) {
		o.comparison(p, c)
	}
	o.errors(p, groups)
	o.pairs(p)
	o.checks(p)
	o.settings(p)
	for _, text := range p.Warnings {
		o.line("# Warning: %s", flat(text))
	}
	if !unmeasured {
		o.failed(p)
	}
	if p.Simulated {
		o.line("# %s: no GPU was measured; every time comes from a model", simulatedMark)
	}
}

func (o *printer) failed(p Report) {
	if p.Failure != nil {
		o.line("# FAILED: %s", flat(p.Failure.Message))
	}
}

// flat puts a text on one line.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

func (o *printer) title(p Report) {
	title := "# " + p.Source
	if p.Input != "" {
		title += " " + p.Input
	}
	if t := timeText(p.Time); t != "" {
		title += " " + t
	}
	if p.Ranks > 0 {
		title += ", " + plural(p.Ranks, "rank")
	}
	switch {
	case p.Node != "":
		title += " on " + p.Node
	case p.Nodes > 0:
		title += " on " + plural(p.Nodes, "node")
	}
	o.line("%s", title)
}

func (o *printer) header(p Report) {
	if p.Simulated {
		o.line("# %s: no GPU was measured; every time comes from a model", simulatedMark)
	}
	if f := p.Format; f.Form != "" {
		program := "a program that does not name itself"
		if f.Program != "" {
			program = strings.TrimSpace(f.Program + " " + f.Version)
		}
		text := fmt.Sprintf("# Read as %s of %s", f.Form, program)
		if len(f.Columns) > 0 {
			text += " with columns " + strings.Join(f.Columns, " ")
		}
		if f.Prefix != "" {
			text += fmt.Sprintf(", behind prefixes such as %q", f.Prefix)
		}
		o.line("%s", text)
	}
	if lib := p.Library; lib != nil {
		flavor := string(lib.Flavor)
		if lib.Imitates != "" {
			flavor += " imitating " + string(lib.Imitates)
		}
		o.line("# Library %s version %s flavor %s build %s runtime %s", orMissing(lib.Path), orMissing(version(*lib)),
			orMissing(flavor), orMissing(lib.BuildHash), orMissing(RuntimeVersion(*lib)))
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
	for _, part := range []string{string(k.Variant), string(k.Collective), string(k.Datatype), k.Op,
		string(k.Placement)} {
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

// series shows the results of a key, less those at counts at which the library is known to lose data.
func (o *printer) series(p Report, s Series, statistic Statistic) {
	plain := slices.DeleteFunc(slices.Clone(s.Results), func(r Result) bool { return r.Hazard != "" })
	if len(plain) == 0 {
		return
	}
	o.line("#")
	o.line("# %s", s.Key.title(p.Simulated))
	o.measured(p, plain, statistic)
}

// hazards shows the results at counts at which the library is known to lose data.
func (o *printer) hazards(p Report, s Series, statistic Statistic) {
	known := slices.DeleteFunc(slices.Clone(s.Results), func(r Result) bool { return r.Hazard == "" })
	if len(known) == 0 {
		return
	}
	o.line("#")
	o.line("# Hazard: counts at which the library is known to lose data, for which wrong elements are a warning: %s",
		s.Key.title(p.Simulated))
	o.measured(p, known, statistic)
	for _, r := range known {
		o.line("# Hazard at %d B: %s", r.SizeBytes, flat(r.Hazard))
		if n := r.Unexplained(); n > 0 {
			o.line("# Wrong beyond that at %d B: %d elements, which no known hazard explains", r.SizeBytes, n)
		}
	}
}

func (o *printer) measured(p Report, all []Result, statistic Statistic) {
	launch := slices.ContainsFunc(all, func(r Result) bool { return r.LaunchNanoseconds > 0 })
	statistic, time := statistic.shown(all)
	head := []string{"size(B)", "count", "type", "redop", "placement", time + "(us)", "min", "max", "p95", "cv%",
		"algbw(GB/s)", "busbw(GB/s)", "#wrong"}
	if launch {
		head = append(head, "launch(us)")
	}
	head = append(head, "path")
	var rows [][]string
	for _, r := range all {
		wrong, any := r.Wrong()
		cv, wrongText := missing, missing
		if hasSpread(r.Latency) {
			cv = percent(r.Latency.CoefficientOfVariationPPM)
		}
		if any {
			wrongText = decimal(wrong)
		}
		alg, bus := statistic.bandwidths(r, p.Ranks)
		row := []string{decimal(r.SizeBytes), decimal(r.CountElements), word(string(r.Datatype)),
			word(r.Op), word(string(r.Placement)), microseconds(statistic.Of(r)),
			microseconds(r.Latency.MinNanoseconds), microseconds(r.Latency.MaxNanoseconds),
			microseconds(r.Latency.P95Nanoseconds), cv, gigabytes(alg), gigabytes(bus), wrongText}
		if launch {
			row = append(row, microseconds(r.LaunchNanoseconds))
		}
		rows = append(rows, append(row, word(string(r.ExpectedPath))))
	}
	o.rows(head, rows)
}

func (o *printer) comparison(p Report, c Comparison) {
	o.line("#")
	o.line("# %s against %s: %s", c.Variant, c.Reference, Key{Collective: c.Key.Collective, Datatype: c.Key.Datatype,
		Op: c.Key.Op, Root: c.Key.Root, Placement: c.Key.Placement}.title(p.Simulated))
	var rows [][]string
	for _, x := range c.Points {
		var notes []string
		if x.WithinNoise {
			notes = append(notes, "within_noise")
		}
		if x.NotUsable {
			notes = append(notes, "not_usable")
		}
		if x.NaNElements > 0 {
			notes = append(notes, "NaN:"+decimal(x.NaNElements))
		}
		if x.OverflowElements > 0 {
			notes = append(notes, "overflow:"+decimal(x.OverflowElements))
		}
		if x.UnwrittenElements > 0 {
			notes = append(notes, "unwritten:"+decimal(x.UnwrittenElements))
		}
		rows = append(rows, []string{decimal(x.SizeBytes), microseconds(x.ReferenceNanoseconds),
			microseconds(x.VariantNanoseconds), fmt.Sprintf("%.3fx", float64(x.SpeedupPPM)/1e6), word(string(x.Path)),
			orMissing(strings.Join(notes, ","))})
	}
	o.rows([]string{"size(B)", string(c.Reference) + "(us)", string(c.Variant) + "(us)", "speedup",
		"path", "note"}, rows)
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
				worth = worth || c.Data != rcclx.DataExact ||
					c.WrongElements+c.NaNElements+c.OverflowElements+c.MaxRelativeErrorPPM > 0
				first := missing
				if c.FirstWrongElement != nil {
					first = decimal(*c.FirstWrongElement)
				}
				rows = append(rows, []string{decimal(r.SizeBytes), word(string(c.Data)), decimal(c.CheckedElements),
					decimal(c.WrongElements), percent4(c.MaxRelativeErrorPPM), percent4(c.MeanRelativeErrorPPM),
					decimal(c.NaNElements), decimal(c.OverflowElements), decimal(c.UnwrittenElements), first})
			}
		}
		if worth {
			o.line("#")
			o.line("# Numeric errors, relative to the largest and the mean of the reference: %s",
				g.Key.title(p.Simulated))
			o.rows([]string{"size(B)", "data", "checked", "wrong", "max_error(%)", "mean_error(%)", "NaN", "overflow",
				"unwritten", "first_wrong"}, rows)
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
			row = append(row, gigabytes(float64(at[[2]int{a, b}])))
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

// checks tells how the bus bandwidths stand to published marks, or which mark is the nearest.
func (o *printer) checks(p Report) {
	if len(p.Checks) == 0 {
		return
	}
	o.line("#")
	o.line("# Published marks for exactly what was measured (docs/thresholds.md)")
	for _, c := range p.Checks {
		if c.State == reference.NotMeasured {
			o.line("#   %s", flat(c.Measurement))
		} else {
			o.line("#   %s: %s: measured %s of %s, %d %%: %s", c.Source, flat(c.Measurement),
				units.Bandwidth(c.MeasuredMBps), units.Bandwidth(c.ExpectedMBps), c.Percent, c.State)
		}
		for _, cause := range c.Causes {
			o.line("#     %s", flat(cause))
		}
	}
}

func (o *printer) settings(p Report) {
	if len(p.Settings) > 0 {
		o.line("#")
		o.line("# Settings")
		for _, s := range p.Settings {
			o.line("#   %s requested %s: %s (%s)%s: %s",
				s.Name, flat(orMissing(s.Requested)), s.State, s.Reason, bounds(s), flat(s.Message))
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
