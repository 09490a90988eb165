package perftests

import (
	"bytes"
	"errors"
	"fmt"
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

var (
	// prefixes that launchers put before each line: Open MPI's --tag-output, srun's --label.
	launcherPrefix = regexp.MustCompile(`^(\[\d+,\d+\]<std(out|err)>: ?|\s{0,4}\d{1,5}: )`)
	// glued is printed without a newline before what comes next (rccl-tests src/common.cu, on gfx942).
	glued = "On gfx942 architecture, using FNUZ FP8 types"

	startLine   = regexp.MustCompile(`^# Collective test starting: (\S+)`)
	testsLine   = regexp.MustCompile(`^# nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d+)`)
	rcclLine    = regexp.MustCompile(`^rccl-tests: Version (\S+)`)
	paramsLine  = regexp.MustCompile(`^# nThread \d+ nGpus \d+ .*\bwarmup iters: \d+ iters: (\d+) agg iters: (\d+)`)
	paramsAny   = regexp.MustCompile(`^# nThread \d+ nGpus \d+ minBytes`)
	deviceLine  = regexp.MustCompile(`^#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]*)\]\s*(.*)$`)
	boundsLine  = regexp.MustCompile(`^# Out of bounds values\s*: (\d+)`)
	summaryLine = regexp.MustCompile(`^# Avg bus bandwidth\s*: `)
	endLine     = regexp.MustCompile(`^# Collective test concluded: `)
	reduceLine  = regexp.MustCompile(`^# Reducing maxBytes to (\d+) due to memory limitation`)
	errorLine   = regexp.MustCompile(`^# error: (.+)`)
	// rcclVersion and rcclPath are the library's own words at NCCL_DEBUG=VERSION and up (rccl src/init.cc).
	rcclVersion = regexp.MustCompile(`RCCL version : (\d+)\.(\d+)\.(\d+)`)
	rcclPath    = regexp.MustCompile(`^Librccl path\s*: (\S+)`)
	// programName is a program's name in a command line, for outputs that do not name themselves.
	programName = regexp.MustCompile(`\b([a-z_]+_perf)\b`)
	// failureLine is what the programs, the launchers and the kernel say of a crash.
	failureLine = regexp.MustCompile(`Test (NCCL|CUDA|HIP) failure|Test failure|NCCL WARN|BAD TERMINATION|Segmentation fault|Bus error|srun: error|mpirun noticed|\[ERROR\]|Invalid number of GPUs`)
	// rowStart is how a row begins; nothing else in these outputs begins with two numbers and a word.
	rowStart = regexp.MustCompile(`^\s*(\d{1,19})\s+(\d{1,19})\s+([a-z]\w*)\s+(\S+)`)
)

// textParser reads line by line.
type textParser struct {
	options Options
	runs    []*textRun
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
	started            map[string]bool // kinds of starting line seen
	columns            []string        // of a row, by the header
	blocks             []rcclx.Placement
	rows               int
	ended              bool
	unrelated, damaged int
	iterations         int
	hosts              map[string]bool
	group              string
	devices            []results.Device
	pending            *pendingRow
	bounds             int64
	failures           []string
	last               string // what the last row was
	lastLine           int    // that was the program's own
	// named is the mention that the program's name is taken from, where it does not name itself.
	named *mention
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
		return fmt.Errorf("found no output of rccl-tests or nccl-tests in %s: expected lines such as %q and rows of sizes and times", count(lines, "line", "lines"),
			"# nThread 1 nGpus 1 minBytes ...")
	}
	return fmt.Errorf("is the %s of agent bench, which cannot be read again: write it with -o json", what)
}

func parseText(data []byte, o Options) ([]results.Report, error) {
	p := &textParser{options: o}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		p.line++
		text := ""
		if len(line) <= maxLineBytes {
			text = strings.ToValidUTF8(strings.TrimRight(string(line), "\r"), "?")
		}
		if err := p.take(text); err != nil {
			return nil, err
		}
	}
	var reports []results.Report
	for _, u := range p.runs {
		u.close()
		if u.rows > 0 || u.columns != nil || len(u.started) > 0 || len(u.devices) > 0 {
			reports = append(reports, u.finishText(p))
		}
	}
	if len(reports) == 0 {
		return nil, noRun(data, bytes.Count(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))+1)
	}
	return reports, nil
}

// current gives the run that lines belong to.
func (p *textParser) current() *textRun {
	if len(p.runs) == 0 {
		p.begin()
	}
	return p.runs[len(p.runs)-1]
}

func (p *textParser) begin() *textRun {
	u := &textRun{started: map[string]bool{}, hosts: map[string]bool{}}
	u.report.Source = results.SourceRCCLTests
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

// start takes one of the lines that a run begins with; a kind that the run has seen begins the next one.
func (p *textParser) start(kind string) (*textRun, error) {
	u := p.current()
	if u.started[kind] || u.ended || u.rows > 0 || u.columns != nil || len(u.devices) > 0 {
		u.close()
		if len(p.runs) >= maxRuns {
			return nil, fmt.Errorf("more than %d runs: split the file", maxRuns)
		}
		u = p.begin()
	}
	u.started[kind] = true
	return u, nil
}

var errTooManyRows = errors.New("more results than one input may have: split the file")

func (p *textParser) take(text string) error {
	if m := launcherPrefix.FindString(text); m != "" {
		text = text[len(m):]
	}
	if rest, ok := strings.CutPrefix(text, glued); ok {
		text = rest
	}
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil
	}
	if strings.HasPrefix(trimmed, "#") || rcclLine.MatchString(trimmed) {
		err := p.comment(trimmed)
		p.current().lastLine = p.line
		return err
	}
	u := p.current()
	if u.row(text, p.line) {
		u.lastLine = p.line
		if len(u.report.Results) > maxResults {
			return errTooManyRows
		}
		return nil
	}
	p.other(u, trimmed)
	return nil
}

// comment takes a line of the program's own that is no row. Those that are not looked at here are its notes.
func (p *textParser) comment(text string) error {
	if m := startLine.FindStringSubmatch(text); m != nil {
		u, err := p.start("program")
		if err == nil {
			u.setProgram(m[1])
			if c := p.options.Collective; c != "" && c != u.collective {
				u.warn("--collective %s is not used: the program says that it is %s", c, m[1])
			}
		}
		return err
	}
	if m := testsLine.FindStringSubmatch(text); m != nil {
		u, err := p.start("version")
		if err == nil {
			u.report.Source = results.SourceNCCLTests
			u.report.Library = ncclLibrary(m[2])
		}
		return err
	}
	if paramsAny.MatchString(text) {
		u, err := p.start("parameters")
		if m := paramsLine.FindStringSubmatch(text); err == nil && m != nil {
			u.iterations = atoi(m[1]) * max(atoi(m[2]), 1)
		}
		return err
	}
	u := p.current()
	switch {
	case rcclLine.MatchString(text):
		u.report.Source = results.SourceRCCLTests
	case deviceLine.MatchString(text):
		u.device(deviceLine.FindStringSubmatch(text))
	case boundsLine.MatchString(text):
		u.close()
		u.bounds = int64(atoi(boundsLine.FindStringSubmatch(text)[1]))
	case summaryLine.MatchString(text):
		u.close()
		u.ended = true
	case endLine.MatchString(text):
		u.ended = true
	case reduceLine.MatchString(text):
		u.warn("the program lowered the largest size to %s B: no more fits the GPU's memory", reduceLine.FindStringSubmatch(text)[1])
	case errorLine.MatchString(text):
		u.warn("the program's last error: %s", errorLine.FindStringSubmatch(text)[1])
	case isHeader(text):
		u.close()
		u.header(strings.Fields(text)[1:])
	case strings.Contains(text, "out-of-place") || strings.Contains(text, "in-place"):
		u.placements(text)
	}
	return nil
}

// other takes a line that is neither the program's own nor a row.
func (p *textParser) other(u *textRun, text string) {
	u.unrelated++
	if m := rcclVersion.FindStringSubmatch(text); m != nil && u.report.Library == nil {
		u.report.Library = &rcclx.LibraryInfo{Flavor: rcclx.FlavorUnknown, VersionCode: atoi(m[1])*10000 + atoi(m[2])*100 + atoi(m[3])}
	}
	if m := rcclPath.FindStringSubmatch(text); m != nil && u.report.Library != nil {
		u.report.Library.Path = m[1]
	}
	if failureLine.MatchString(text) {
		if len(u.failures) < maxFailureLines {
			u.failures = append(u.failures, text)
		}
		return
	}
	if m := programName.FindStringSubmatch(text); m != nil {
		p.mention = mention{m[1], p.line}
		if u.rows == 0 {
			u.take(p.mention)
		}
	}
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

func ncclLibrary(code string) *rcclx.LibraryInfo {
	if n := atoi(code); n > 0 {
		return &rcclx.LibraryInfo{Flavor: rcclx.FlavorNCCL, VersionCode: n}
	}
	return nil
}

// device takes the line of one rank. The rows are those of rank 0's communicator, so that with several (groups of
// NCCL_TESTS_SPLIT) only that one counts.
func (u *textRun) device(m []string) {
	if len(u.devices) == 0 && len(u.hosts) == 0 {
		u.group = m[2]
	}
	if m[2] != u.group || len(u.devices) >= maxRuns {
		return
	}
	u.hosts[m[3]] = true
	d := results.Device{Rank: len(u.devices), Ordinal: atoi(m[4]), Name: strings.TrimSpace(m[6])}
	if strings.Contains(m[5], ":") { // older ones give the bus number alone
		d.PCIAddress = m[5]
	}
	u.devices = append(u.devices, d)
	u.report.Devices, u.report.Ranks, u.report.Nodes = u.devices, len(u.devices), len(u.hosts)
}

func isHeader(text string) bool {
	f := strings.Fields(text)
	return len(f) >= 9 && slices.Equal(f[:6], []string{"#", "size", "count", "type", "redop", "root"})
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

// finishText ends the run's report with what only the text knows.
func (u *textRun) finishText(p *textParser) results.Report {
	switch {
	case u.program != "" || p.options.Collective != "" || u.rows == 0:
	case u.named != nil:
		u.warn("the output does not name its program; %s is taken from line %d", u.named.program, u.named.line)
	default:
		u.warn("the output does not name its program, as older rccl-tests do not: give --collective")
	}
	if u.damaged > 0 {
		u.warn("%s damaged, by lines of other processes between their parts or by a cut, and left out where not whole", count(u.damaged, "row is", "rows are"))
	}
	if u.unrelated > 0 {
		u.warn("%s of other programs or logs skipped", count(u.unrelated, "line", "lines"))
	}
	if u.bounds > 0 && !slices.ContainsFunc(u.report.Results, func(r results.Result) bool { w, _ := r.Wrong(); return w > 0 }) {
		u.warn("the program counts %s out of bounds, but no row that was read has a wrong element", count(int(u.bounds), "result", "results"))
	}
	report := u.finish()
	if !u.ended {
		f := &results.Failure{Kind: "CutOff", Message: u.cutOff(), LogTail: strings.Join(u.failures, "\n")}
		report.Failure = f
	}
	return report
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
	text := fmt.Sprintf("the output of %s ends %s, without the summary that it prints at its end: it crashed, hung or was stopped, or the file was cut", name, after)
	if len(u.failures) > 0 {
		text += "; it says: " + u.failures[0]
	}
	return text
}
