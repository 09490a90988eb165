package perftests

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// maxLineBytes of a line that is looked at; a longer one is no row.
	maxLineBytes = 16 << 10
	// maxRuns and maxResults bound what one input can make.
	maxRuns    = 4096
	maxResults = 1 << 20
	// maxFailureLines are kept of what a program says when it fails.
	maxFailureLines = 20
)

// glued is printed without a newline before what comes next (rccl-tests src/common.cu, on gfx942).
const glued = "On gfx942 architecture, using FNUZ FP8 types"

var (
	iterations = regexp.MustCompile(`(?:warmup iters|warmupIters): \d+ iters: (\d+)(?: agg iters: (\d+))?`)
	headers    = regexp.MustCompile(`-headers=(\d+)`)
	library    = regexp.MustCompile(`-library=(\d+)`)
	// libraryVersion and rcclPath are the library's own words at NCCL_DEBUG=VERSION and up (rccl src/init.cc, nccl
	// src/init.cc).
	libraryVersion = regexp.MustCompile(`\b([RN])CCL version\s*:?\s*(\d+)\.(\d+)\.(\d+)`)
	rcclPath       = regexp.MustCompile(`\bLibrccl path\s*: (\S+)`)
	// programName is a program's name in a command line, for outputs that do not name themselves.
	programName = regexp.MustCompile(`\b([a-z_]+_perf)\b`)
	nvidiaName  = regexp.MustCompile(`\b(NVIDIA|Tesla|GeForce|Quadro)\b`)
	amdName     = regexp.MustCompile(`\b(AMD|Radeon|Instinct|MI\d{2,3}[A-Z]?)\b`)
)

// crashWords are what the programs, the launchers and the kernel say of a crash.
var crashWords = []string{"Test NCCL failure", "Test CUDA failure",
	"Test HIP failure", "Test failure", "NCCL WARN", "BAD TERMINATION",
	"Segmentation fault", "Bus error", "srun: error", "mpirun noticed", "[ERROR]", "Invalid number of GPUs"}

// submatch is what re finds in a text that has the mark in it: most lines of a debug log have none, and the expression
// is dear.
func submatch(re *regexp.Regexp, mark, text string) []string {
	if !strings.Contains(text, mark) {
		return nil
	}
	return re.FindStringSubmatch(text)
}

// textParser reads line by line.
type textParser struct {
	options Options
	runs    []*textRun
	// streams are the runs that lines belong to, by what their prefix says of the process; last is that of the last
	// line.
	streams  map[string]*textRun
	last     *textRun
	prefixes prefixes
	// prefix of the last line that was recognised.
	prefix string
	// mention is the last program named in a line that is none of the programs' own, as in the command that starts one.
	mention mention
	line    int
}

// mention of a program's name, and where.
type mention struct {
	program string
	line    int
}

// textRun is a run in the text.
type textRun struct {
	run
	// started are the starting lines seen, by form: the text, and how often.
	started            map[string]start
	columns            []string // of a row, by the header
	blocks             []rcclx.Placement
	rows               int
	ended              bool
	unrelated, damaged int
	iterations         int
	hosts              map[string]bool
	group              string
	devices            []results.Device
	pids               map[string][]string // by rank
	pending            *pendingRow
	failures           []string
	last               string // what the last row was
	lastLine           int    // that was the program's own
	hashes             bool   // the program's lines still have their "#"
	vendor             byte   // 'N' or 'A' as devices, banner or library say; zero where none does
	// named is the mention that the program's name is taken from, where it does not name itself.
	named *mention
}

type start struct {
	text  string
	times int
}

// begun says whether the run has more than its first lines.
func (u *textRun) begun() bool {
	return u.ended || u.rows > 0 || u.columns != nil || len(u.devices) > 0
}

var (
	ownCSV   = regexp.MustCompile(`^\s*simulated,source,`)
	ownTable = regexp.MustCompile(`(?m)^#\s+size\(B\)\s+count\s+type`)
)

// noRun says why a text holds none.
func noRun(data []byte, lines int) error {
	what := ""
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return errors.New("is empty: the program printed nothing, or its output went elsewhere")
	case ownCSV.Match(data):
		what = "CSV"
	case ownTable.Match(data):
		what = "table"
	default:
		return fmt.Errorf("found no output of rccl-tests or nccl-tests in %s: expected lines such as %q and rows of "+
			"sizes and times", count(lines, "line", "lines"), "# nThread 1 nGpus 1 minBytes ...")
	}
	return fmt.Errorf("is the %s of agent bench, which cannot be read again: write it with -o json", what)
}

func parseText(data []byte, o Options) ([]results.Report, error) {
	p := &textParser{options: o, streams: map[string]*textRun{}, prefixes: prefixes{}}
	err := lines(data, maxLineBytes, func(_ int, text string) error {
		if f, ok := recognise(text); ok {
			p.prefixes.see(f.prefix, f.starts())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = lines(data, maxLineBytes, func(number int, text string) error {
		p.line = number
		return p.take(text)
	})
	if err != nil {
		return nil, err
	}
	var reports []results.Report
	for i, u := range p.runs {
		u.close()
		if u.copies() > 1 {
			for _, earlier := range p.runs[:i] {
				u.absorb(earlier)
			}
		}
	}
	for _, u := range p.runs {
		if u.begun() || len(u.started) > 0 {
			reports = append(reports, u.finishText(p)...)
		}
	}
	if len(reports) == 0 {
		return nil, noRun(data, bytes.Count(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))+1)
	}
	return reports, nil
}

func (p *textParser) begin() *textRun {
	u := &textRun{started: map[string]start{}, hosts: map[string]bool{}, pids: map[string][]string{}}
	u.report.Format.Form = "text"
	u.collective = p.options.Collective
	after := 0
	if n := len(p.runs); n > 0 {
		after = p.runs[n-1].lastLine
	}
	if p.mention.line > after {
		u.take(p.mention)
	}
	p.runs = append(p.runs, u)
	return u
}

// take names the run's program after a mention, where nothing better is known.
func (u *textRun) take(m mention) {
	if u.program == "" && u.collective == "" && m.program != "" {
		u.named = &m
		u.collective, u.unknown = collectiveOf(m.program)
	}
}

// at gives the run of a line with a prefix. Each process prints into a run of its own; one begins with a starting line.
func (p *textParser) at(prefix string, starts bool) *textRun {
	name, known := p.prefixes.streamOf(prefix)
	u := p.streams[name]
	switch {
	case u != nil && known && (starts || !u.ended || p.last.ended):
	case p.last == nil:
		u = p.begin()
	case starts && known && (p.last.begun() || len(p.last.started) > 0):
		u = p.begin()
	default:
		u = p.last
	}
	if known && p.streams[name] == nil {
		p.streams[name] = u
	}
	p.last = u
	return u
}

// next begins another run in the stream of one.
func (p *textParser) next(u *textRun) (*textRun, error) {
	u.close()
	if len(p.runs) >= maxRuns {
		return nil, fmt.Errorf("more than %d runs: split the file", maxRuns)
	}
	n := p.begin()
	for name, of := range p.streams {
		if of == u {
			p.streams[name] = n
		}
	}
	p.last = n
	return n, nil
}

var errTooManyRows = errors.New("more results than one input may have: split the file")

func (p *textParser) take(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	f, ok := recognise(text)
	if !ok {
		p.other(strings.TrimSpace(without(p.prefix, strings.Replace(text, glued, "", 1))))
		return nil
	}
	if f.form == "first" {
		return fmt.Errorf("is, at line %d, the output of nccl-tests before 2019 (columns bytes and N, times in "+
			"milliseconds), which is not read: run a newer version", p.line)
	}
	starts := f.starts()
	u := p.at(f.prefix, starts)
	// A form that the run has had begins the next one. The same line twice at the start may be two processes that print
	// into one output: what follows decides.
	var err error
	s, seen := u.started[f.form]
	switch {
	case starts && (u.begun() || seen && s.text != f.text),
		f.form == "device" && (u.rows > 0 || u.ended) && u.pids[f.parts[1]] != nil,
		(f.form == "header" || f.form == "device") && u.ended && u.rows > 0 && u.counters < 2:
		if u, err = p.next(u); err != nil {
			return err
		}
		s = start{}
	}
	if starts {
		u.started[f.form] = start{f.text, s.times + 1}
	}
	u.hashes = u.hashes || f.hash
	u.lastLine = p.line
	if _, known := p.prefixes.streamOf(f.prefix); known {
		p.prefix = f.prefix
		if u.report.Format.Prefix == "" {
			u.report.Format.Prefix = f.prefix
		}
	}
	p.form(u, f)
	if len(u.report.Results) > maxResults {
		return errTooManyRows
	}
	return nil
}

// form takes what a line of the program's says.
func (p *textParser) form(u *textRun, f found) {
	switch f.form {
	case "row":
		u.row(f.text, f.parts, p.line)
	case "version":
		u.report.Format.Program, u.report.Format.Version = f.parts[1], f.parts[2]
		u.setVendor(f.parts[1][0] - 'a' + 'A')
		if m := library.FindStringSubmatch(f.parts[3]); m != nil {
			u.setLibrary(atoi(m[1]))
			if h := headers.FindStringSubmatch(f.parts[3]); h != nil && h[1] != m[1] {
				u.warn("the program was built with the headers of version code %s, and the library is %s", h[1], m[1])
			}
		}
	case "build":
		u.report.Format.Program, u.report.Format.Version = results.SourceRCCLTests, f.parts[1]
		u.setVendor('R')
	case "program":
		u.setProgram(f.parts[1])
		if c := p.options.Collective; c != "" && c != u.collective {
			u.warn("--collective %s is not used: the program says that it is %s", c, f.parts[1])
		}
	case "parameters":
		if m := iterations.FindStringSubmatch(f.text); m != nil {
			u.iterations = atoi(m[1]) * max(atoi(m[2]), 1)
		}
	case "device":
		u.device(f.parts)
	case "header":
		u.close()
		u.header(strings.Fields(f.text))
	case "placements":
		u.placements(f.text)
	case "bounds":
		u.close()
		u.counted(f.parts[1], f.parts[2])
	case "bandwidth":
		u.close()
		u.ended = true
		if isOneOf(f.parts[2], "failed") {
			u.bandwidth = f.parts[1]
		}
	case "end":
		u.ended = true
	case "reduced":
		u.warn("the program lowered the largest size to %s B: no more fits the GPU's memory", f.parts[1])
	case "error":
		u.warn("the program's last error: %s", f.parts[1])
	}
}

// other takes a line that is neither the program's own nor a row: the rest of a row, a note of the program's, or a log.
func (p *textParser) other(text string) {
	if p.last == nil {
		p.last = p.begin()
	}
	u := p.last
	if strings.HasPrefix(text, "#") || text == "" {
		u.lastLine = p.line
		return
	}
	if u.continues(text) {
		u.lastLine = p.line
		return
	}
	u.unrelated++
	if m := submatch(libraryVersion, "CCL version", text); m != nil && u.report.Library == nil {
		u.setVendor(m[1][0])
		u.setLibrary(atoi(m[2])*10000 + atoi(m[3])*100 + atoi(m[4]))
	}
	if m := submatch(rcclPath, "Librccl path", text); m != nil && u.report.Library != nil {
		u.report.Library.Path = m[1]
	}
	if slices.ContainsFunc(crashWords, func(f string) bool { return strings.Contains(text, f) }) {
		if len(u.failures) < maxFailureLines {
			u.failures = append(u.failures, text)
		}
		return
	}
	if m := submatch(programName, "_perf", text); m != nil {
		p.mention = mention{m[1], p.line}
		if u.rows == 0 {
			u.take(p.mention)
		}
	}
}

// setVendor takes whose library is measured: 'N' for NVIDIA, 'R' for AMD. The devices, which are read last, decide.
func (u *textRun) setVendor(v byte) { u.vendor = v }

// setLibrary takes the code that ncclGetVersion gives; which library of AMD's it is it does not say.
func (u *run) setLibrary(code int) {
	if code > 0 {
		u.report.Library = &rcclx.LibraryInfo{Flavor: rcclx.FlavorUnknown, VersionCode: code}
	}
}

// copies are the processes that printed into one output, each as if alone: more than one where a rank is listed twice,
// or the summary.
func (u *textRun) copies() int {
	n := u.counters
	for _, pids := range u.pids {
		n = max(n, len(pids))
	}
	return n
}

// absorb takes the first lines of another copy of the program.
func (u *textRun) absorb(other *textRun) {
	if other == u || other.rows > 0 || other.ended ||
		other.started["parameters"].text != u.started["parameters"].text || len(other.started) == 0 {
		return
	}
	for rank, pids := range other.pids {
		u.pids[rank] = append(pids, u.pids[rank]...)
	}
	if u.program == "" && other.program != "" {
		u.setProgram(other.program)
	}
	*other = textRun{}
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// device takes the line of one rank. The rows are those of rank 0's communicator, so that with several (groups of
// NCCL_TESTS_SPLIT) only that one counts.
func (u *textRun) device(m []string) {
	if len(u.devices) == 0 {
		u.group = m[2]
	}
	if m[2] != u.group || len(u.devices) >= maxRuns {
		return
	}
	u.pids[m[1]] = append(u.pids[m[1]], m[3])
	if len(u.pids[m[1]]) > 1 {
		return
	}
	switch {
	case nvidiaName.MatchString(m[7]):
		u.setVendor('N')
	case amdName.MatchString(m[7]):
		u.setVendor('R')
	}
	u.hosts[m[4]] = true
	d := results.Device{Rank: len(u.devices), Ordinal: atoi(m[5]), Name: strings.TrimSpace(m[7])}
	if strings.Contains(m[6], ":") { // older ones give the bus number alone
		d.PCIAddress = m[6]
	}
	u.devices = append(u.devices, d)
	u.report.Devices, u.report.Ranks, u.report.Nodes = u.devices, len(u.devices), len(u.hosts)
}

// placements reads which of the two blocks of columns there are, and their order.
func (u *textRun) placements(text string) {
	u.blocks = nil
	for f := range strings.FieldsSeq(text) {
		switch f {
		case "out-of-place":
			u.blocks = append(u.blocks, rcclx.OutOfPlace)
		case "in-place":
			u.blocks = append(u.blocks, rcclx.InPlace)
		}
	}
}

// header takes the names of the columns.
func (u *textRun) header(names []string) {
	u.columns = slices.Clone(names)
	u.report.Format.Columns = u.columns
	blocks := 0
	for _, name := range names {
		if name == "time" || name == "cputime" {
			blocks++
		}
	}
	if blocks != len(u.blocks) {
		u.blocks = defaultBlocks(blocks)
		u.warn("the header does not say which of its %d blocks is in place: taken as %v", blocks, u.blocks)
	}
}

func defaultBlocks(n int) []rcclx.Placement {
	return []rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace}[:min(max(n, 0), 2)]
}

// finishText ends the run's report with what only the text knows. Before it comes a report for each start that got
// nowhere.
func (u *textRun) finishText(p *textParser) []results.Report {
	switch {
	case u.program != "" || p.options.Collective != "" || u.rows == 0:
	case u.named != nil:
		u.warn("the output does not name its program; %s is taken from line %d", u.named.program, u.named.line)
	default:
		u.warn("the output does not name its program, as older rccl-tests do not: give --collective")
	}
	u.report.Source = results.SourceRCCLTests
	if u.vendor == 'N' {
		u.report.Source = results.SourceNCCLTests
		if u.report.Library != nil {
			u.report.Library.Flavor = rcclx.FlavorNCCL
		}
	}
	if u.report.Format.Columns == nil {
		u.report.Format.Columns = u.columns
	}
	if !u.hashes && u.begun() && (u.ended || len(u.started) > 0) {
		u.warn("the # before the program's lines is lost, as by a paste: they are read without it")
	}
	if u.damaged > 0 {
		u.warn("%s damaged, by lines of other processes between their parts or by a cut, and left out where not whole",
			count(u.damaged, "row is", "rows are"))
	}
	if u.ended {
		u.wantCounter(`the line "Out of bounds values"`, u.damaged)
	}
	if u.unrelated > 0 {
		u.warn("%s", skippedLines(u.unrelated))
	}
	var reports []results.Report
	if n := u.copies(); n > 1 {
		u.fail("NotOneCommunicator", "%s", u.listed(n))
	} else {
		for _, s := range u.started {
			for len(reports) < s.times-1 {
				first := &textRun{run: run{program: u.program}, failures: u.failures}
				first.report.Source, first.report.Format = u.report.Source, results.Format{Form: "text"}
				first.fail("CutOff", "%s", first.cutOff())
				reports = append(reports, first.finish())
			}
		}
	}
	if !u.ended {
		u.fail("CutOff", "%s", u.cutOff())
	}
	report := u.finish()
	if report.Failure != nil {
		report.Failure.LogTail = strings.Join(u.failures, "\n")
	}
	return append(reports, report)
}

func skippedLines(n int) string {
	return count(n, "line", "lines") + " of other programs or logs skipped"
}

// listed says what is there more than once, n times at most, and what that means.
func (u *textRun) listed(n int) string {
	for _, rank := range slices.Sorted(maps.Keys(u.pids)) {
		if pids := u.pids[rank]; len(pids) > 1 {
			times := fmt.Sprintf("%d times", len(pids))
			if len(pids) == 2 {
				times = "twice"
			}
			return fmt.Sprintf("rank %s is listed %s (pids %s): the program was built without MPI, "+
				"and each of the %d processes ran alone; build it with MPI=1",
				rank, times, strings.Join(pids[:min(len(pids), 8)], ", "), n)
		}
	}
	return fmt.Sprintf("the summary is printed %d times in one run: its lines are doubled, or the first lines of "+
		"another run are missing; get the whole output", n)
}

func (u *textRun) cutOff() string {
	name := u.program
	if name == "" {
		name = "the program"
	}
	after := "before its first row"
	if u.rows > 0 {
		after = fmt.Sprintf("after %s, the last of them %s", count(u.rows, "row", "rows"), u.last)
	}
	text := fmt.Sprintf("the output of %s ends %s, without the summary that it prints at its end: it crashed, "+
		"hung or was stopped, or the file was cut", name, after)
	if len(u.failures) > 0 {
		text += "; it says: " + u.failures[0]
	}
	return text
}
