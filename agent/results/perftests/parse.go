// Package perftests reads what rccl-tests and nccl-tests print, as text and as JSON, into the form of package results.
//
// Formats, as their code writes them: nccl-tests src/util.cu (2.13 to 2.19; before 2.17.6 src/common.cu), rccl-tests
// src/common.cu (ROCm/rccl-tests, and the newer tree at torchcomms comms/rcclx/develop/projects/rccl-tests, which has
// the flags -M, -x and -Z).
package perftests

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// Format of an input.
type Format string

// The formats. Auto takes what begins with a bracket or brace for JSON, and what has the columns of rccl-tests' CSV for
// CSV.
const (
	Auto Format = "auto"
	Text Format = "text"
	JSON Format = "json"
	CSV  Format = "csv"
)

// ParseFormat reads a format's name.
func ParseFormat(text string) (Format, error) {
	switch f := Format(text); f {
	case Auto, Text, JSON, CSV:
		return f, nil
	}
	return "", fmt.Errorf("format %q is not known: use auto, text, json or csv", text)
}

// Options say what the input itself may not.
type Options struct {
	Format Format
	// Collective of text that does not name its program, as older rccl-tests and nccl-tests before 2.17 do not.
	Collective rcclx.Collective
}

// maxInputBytes bounds one input. A run of a thousand sizes takes 200 KB; debug logs between them take the rest.
const maxInputBytes = 256 << 20

// Parse reads one input, called name in reports and errors. Each run in it gives a report; a run that was cut off has a
// failure and what it printed before. What is left out, and why, stands in a report's warnings. The error is for an
// input that holds no run at all, or, beside the reports, for what follows them and is none.
func Parse(name string, r io.Reader, o Options) ([]results.Report, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxInputBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: cut the runs out of it", name, maxInputBytes)
	}
	data = decode(data)
	reports, err := parseAs(formatOf(data, o.Format), data, o)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	for i := range reports {
		if reports[i].Source == results.SourceBench && reports[i].Input != "" {
			continue
		}
		reports[i].Input = name
		if len(reports) > 1 {
			reports[i].Input = fmt.Sprintf("%s#%d", name, i+1)
		}
	}
	return reports, err
}

// formatOf recognises a format that was not given.
func formatOf(data []byte, given Format) Format {
	start := bytes.TrimLeft(data, " \t\r\n\ufeff")
	first, _, _ := bytes.Cut(start, []byte("\n"))
	switch {
	case given != Auto && given != "":
		return given
	case len(start) > 0 && (start[0] == '{' || start[0] == '[' && jsonArray(start)):
		return JSON
	case csvHeader.Match(first):
		return CSV
	}
	return Auto
}

// parseAs reads a format; where it is not known, text, and where that holds no run, what a log has of the others.
func parseAs(format Format, data []byte, o Options) ([]results.Report, error) {
	switch format {
	case JSON:
		if formatOf(data, Auto) != JSON {
			if reports, err := parseLoggedJSON(data, o); reports != nil || err != nil {
				return reports, err
			}
		}
		return parseJSON(data, o)
	case CSV:
		return parseCSV(data, o)
	case Text:
		return parseText(data, o)
	}
	reports, err := parseText(data, o)
	if len(reports) > 0 {
		return reports, err
	}
	if csvHeader.Match(data) {
		return parseCSV(data, o)
	}
	if logged, loggedErr := parseLoggedJSON(data, o); logged != nil || loggedErr != nil {
		return logged, loggedErr
	}
	return nil, err
}

// jsonArray tells an array of objects from a line of a log that begins with a bracket, as "[0] NCCL INFO" and
// "[1,0]<stdout>" do.
func jsonArray(start []byte) bool {
	rest := bytes.TrimLeft(start[1:], " \t\r\n")
	return len(rest) > 0 && (rest[0] == '{' || rest[0] == ']')
}

// row is one measurement as a source gives it, still in its own words.
type row struct {
	line                  int // of the input; zero for JSON
	size, count           int64
	typeName, redop       string
	root                  int
	placement             rcclx.Placement
	time                  number // microseconds
	alg, bus              number // GB/s
	wrong                 int64
	checked               bool
	iterations            int
	min, max, p50, p95    number // microseconds; zero where not given
	cvPercent             number
	perIteration, cpuTime bool
	compared              bool // the program compared the data, and printed a count or an error
	over                  bool // the program's own limit of the error is exceeded
}

// number is a decimal as it was printed.
type number struct {
	value float64
	// half of the last printed digit: the value lies within value-half and value+half.
	half float64
}

func (n number) nanoseconds() int64 {
	ns := math.Round(n.value * 1e3)
	if !(ns >= 0 && ns <= math.MaxInt64/2) { // also for what is no number
		return 0
	}
	return int64(ns)
}

// mbps of a number in GB/s, with three decimals; zero for what is no number.
func (n number) mbps() float64 {
	if mbps := math.Round(n.value*1e6) / 1e3; mbps >= 0 && mbps <= math.MaxInt64 {
		return mbps
	}
	return 0
}

// run gathers the rows of one program.
type run struct {
	report results.Report
	// program as it names itself; empty where it does not.
	program    string
	collective rcclx.Collective
	unknown    bool // the program is one that this form has no collective for
	skipped    map[string]int
	order      []string
	misfits    int
	// What the program itself counts, and what was left out of the results: neither may be lost.
	bounds, bandwidth string // the failed counter and check, as printed; empty where neither failed
	counters          int    // how often the program's counter was read
	compared          bool   // whether the program compared any result
	over              int    // results whose error is over the program's limit
	wrongLeftOut      int    // results that are left out, and have wrong elements
	problems          []string
	kind              string
}

// skip counts a row that is left out, by reason.
func (u *run) skip(reason string) {
	if u.skipped == nil {
		u.skipped = map[string]int{}
	}
	if u.skipped[reason] == 0 {
		u.order = append(u.order, reason)
	}
	u.skipped[reason]++
}

// setProgram takes a program's or a collective's name.
func (u *run) setProgram(name string) {
	u.program = name
	u.collective, u.unknown = collectiveOf(name)
}

func collectiveOf(name string) (c rcclx.Collective, unknown bool) {
	c, err := rcclx.ParseCollective(name)
	return c, err != nil
}

var ops = map[string]string{"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "avg": "Avg"}

// add turns a row into a result, or says why not. A row that is left out still counts where its elements are wrong.
func (u *run) add(x row) {
	before := len(u.report.Results)
	u.take(x)
	u.compared = u.compared || x.compared || x.checked
	if x.over {
		u.over++
	}
	if len(u.report.Results) == before && x.checked && x.wrong > 0 {
		u.wrongLeftOut++
	}
}

func (u *run) take(x row) {
	d, err := rcclx.ParseDatatype(x.typeName)
	switch {
	case u.unknown:
		u.skip(fmt.Sprintf("the collective of %s is not known here", orProgram(u.program)))
		return
	case u.collective == "":
		u.skip("no program name")
		return
	case err != nil:
		u.skip(fmt.Sprintf("datatype %q, which is not known here", x.typeName))
		return
	case x.cpuTime:
		u.skip("CPU time instead of the call's (-C 1): run again without it")
		return
	case x.size <= 0 || x.count <= 0:
		u.skip("an empty call: the size leaves a rank without an element")
		return
	case !(x.time.value > 0):
		u.skip("a time that is not over zero")
		return
	}
	r := results.Result{Collective: u.collective, Datatype: d, Placement: x.placement, SizeBytes: x.size,
		CountElements: x.count}
	if reduces(u.collective) {
		if r.Op = ops[x.redop]; r.Op == "" {
			u.skip(fmt.Sprintf("operation %q, which is not known here", x.redop))
			return
		}
	}
	if u.collective == rcclx.SendRecv {
		r.Op = ops[x.redop] // sendrecv_perf repeats its rows for each operation (-o all), though it reduces nothing
	}
	if u.collective == rcclx.Broadcast || u.collective == rcclx.Reduce {
		r.Root = max(x.root, 0)
	}
	if !fits(float64(x.size), x.time, x.alg) {
		u.skip("a size, time and algbw that do not fit one another: the row is damaged")
		return
	}
	ns := x.time.nanoseconds()
	r.Latency = rcclx.LatencyStats{IterationsPerRepeat: x.iterations}
	r.MeanLatencyNanoseconds = ns // the mean over the iterations and the ranks (src/common.cu)
	r.SetBandwidths(u.report.Ranks)
	u.checkBus(&r, x)
	if x.perIteration {
		r.Latency.MinNanoseconds, r.Latency.MaxNanoseconds = x.min.nanoseconds(), x.max.nanoseconds()
		r.Latency.P95Nanoseconds = x.p95.nanoseconds()
		r.Latency.CoefficientOfVariationPPM = int64(math.Round(x.cvPercent.value * 1e4))
		r.Latency.Repeats, r.Latency.IterationsPerRepeat = x.iterations, 1
		if p50 := x.p50.nanoseconds(); p50 > 0 {
			r.Latency.MedianNanoseconds = p50
			r.AlgBandwidthMBps, r.BusBandwidthMBps = results.Bandwidths(u.collective, x.size, p50, u.report.Ranks)
		}
	}
	if x.checked {
		r.Checks = []rcclx.CheckResult{{CheckedElements: checkedElements(r, u.report.Ranks), WrongElements: x.wrong}}
	}
	u.report.Results = append(u.report.Results, r)
}

func orProgram(name string) string {
	if name == "" {
		return "the program"
	}
	return name
}

func reduces(c rcclx.Collective) bool {
	return slices.Contains([]rcclx.Collective{rcclx.AllReduce, rcclx.ReduceScatter, rcclx.Reduce}, c)
}

// fits says whether a bandwidth in GB/s is bytes over microseconds, within what rounding to the printed digits hides.
func fits(bytes float64, t, gbps number) bool {
	const slack = 1e-6
	least := bytes / ((t.value + t.half) * 1e3)
	most := math.Inf(1)
	if t.value > t.half {
		most = bytes / ((t.value - t.half) * 1e3)
	}
	return gbps.value+gbps.half >= least*(1-slack) && gbps.value-gbps.half <= most*(1+slack)
}

// checkBus holds the printed bus bandwidth against the one that collective and ranks give, and keeps the printed one
// where they differ: then one of them is not what it seems.
func (u *run) checkBus(r *results.Result, x row) {
	factor := rcclx.BusFactor(u.collective, u.report.Ranks)
	if factor > 0 && fits(float64(x.size)*factor, x.time, x.bus) {
		return
	}
	if factor > 0 {
		u.misfits++
	}
	r.BusBandwidthMBps, r.MeanBusBandwidthMBps = x.bus.mbps(), x.bus.mbps()
}

// checkedElements are those that the program compares: the result of every rank (TestCheckData, src/common.cu). Where
// the ranks are not known it is one rank's.
func checkedElements(r results.Result, ranks int) int64 {
	shape, err := rcclx.ShapeOfCount(r.Collective, r.Datatype, r.CountElements, max(ranks, 1))
	if err != nil {
		return r.CountElements
	}
	return shape.RecvBytes / r.Datatype.Bytes() * int64(max(ranks, 1))
}

// finish writes down what was left out.
func (u *run) finish() results.Report {
	for _, reason := range u.order {
		u.warn("%s left out: %s", count(u.skipped[reason], "result", "results"), reason)
	}
	if u.misfits > 0 {
		u.warn("%s %s over %s, and what was printed stands: check the collective and the number of ranks",
			count(u.misfits, "bus bandwidth does not fit", "bus bandwidths do not fit"), u.collective,
			count(u.report.Ranks, "rank", "ranks"))
	}
	unchecked := 0
	for _, r := range u.report.Results {
		if _, checked := r.Wrong(); !checked {
			unchecked++
		}
	}
	if unchecked > 0 {
		why := "#wrong is N/A"
		if slices.Contains(u.report.Format.Columns, "error") {
			why = "this version prints the largest error, which is no count of wrong elements"
		}
		u.warn("%d of %s not checked (%s)", unchecked, count(len(u.report.Results), "result was", "results were"), why)
	}
	if u.report.Ranks == 1 {
		u.warn("one rank communicates with nobody: the numbers are those of a copy. Where a launcher started several " +
			"processes, build the program with MPI=1")
	}
	if u.report.Results == nil {
		u.report.Results = []results.Result{}
	}
	// What the program says of its data stands before why its output ends.
	kind, problems := u.kind, u.problems
	u.kind, u.problems = "", nil
	u.judge()
	u.kind, u.problems = cmp.Or(u.kind, kind), append(u.problems, problems...)
	if len(u.problems) > 0 {
		u.report.Failure = &results.Failure{Kind: u.kind, Message: strings.Join(u.problems, "; ")}
	}
	return u.report
}

// fail notes why the run is not good; the first reason gives the kind.
func (u *run) fail(kind, format string, args ...any) {
	if u.kind == "" {
		u.kind = kind
	}
	u.problems = append(u.problems, fmt.Sprintf(format, args...))
}

// judge fails the run for what the program itself calls wrong, whatever became of the rows.
func (u *run) judge() {
	if u.bounds != "" {
		u.fail("WrongData", "the program counts values out of bounds: %s, expected 0", u.bounds)
	}
	if u.over > 0 {
		u.fail("WrongData", "%s an error over the program's own limit", count(u.over, "result has", "results have"))
	}
	if u.wrongLeftOut > 0 {
		u.fail("WrongData", "%s wrong elements, though left out here",
			count(u.wrongLeftOut, "result has", "results have"))
	}
	if u.bandwidth != "" {
		u.fail("BandwidthCheckFailed",
			"the program's own check of the bus bandwidth failed: %s GB/s are under 90 %% of NCCL_TESTS_MIN_BW",
			u.bandwidth)
	}
}

// counted takes the program's counter of values out of bounds, and its word for it.
func (u *run) counted(number, word string) {
	if number != "" {
		u.counters++
	}
	if n, err := strconv.ParseFloat(number, 64); number != "" && (err != nil || n != 0) || isOneOf(word, "failed") {
		u.bounds = strings.TrimSpace(number + " " + word)
	}
}

// wantCounter fails a run whose data the program compared, where its counter, printed by a name at its end, was not
// read.
func (u *run) wantCounter(name string, damagedRows int) {
	if u.counters > 0 || !u.compared && damagedRows == 0 {
		return
	}
	rows := ""
	if damagedRows > 0 {
		rows = ", and " + count(damagedRows, "row is damaged", "rows are damaged")
	}
	u.fail("CutOff",
		"%s is missing%s: the program counts there the wrong elements of all results; get the whole output", name, rows)
}

func (u *run) warn(format string, args ...any) {
	u.report.Warnings = append(u.report.Warnings, fmt.Sprintf(format, args...))
}

// count puts a number before the word that fits it.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
