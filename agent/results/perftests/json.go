package perftests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// jsonHalf of the last digit that the programs print behind the point.
const jsonHalf = 0.5e-6

// parseJSON reads what rccl-tests' -Z json and nccl-tests' -J write, and agent bench's own reports; several of them may
// stand one after another. A file that was cut gives what stands before the cut. With an error come the reports before
// it.
func parseJSON(data []byte, o Options) ([]results.Report, error) {
	var all []results.Report
	var loose entries // of a file with one object a line, as rccl-tests wrote until July 2025
	flush := func(failure *results.Failure) {
		for _, r := range loose.finish("json lines", failure) {
			warnCollective(&r, o.Collective)
			all = append(all, r)
		}
		loose = entries{}
	}
	for rest := data; ; {
		rest = bytes.TrimLeft(rest, " \t\r\n\ufeff")
		if loose.n > 0 {
			rest = bytes.TrimLeft(rest, ", \t\r\n")
		}
		if len(rest) == 0 {
			break
		}
		first := len(data) - len(rest)
		d := json.NewDecoder(bytes.NewReader(rest))
		var raw json.RawMessage
		if err := d.Decode(&raw); err == nil && isEntry(raw) {
			if err := loose.add(raw); err != nil {
				return all, err
			}
			rest = rest[d.InputOffset():]
			continue
		} else if err != nil && loose.n > 0 && bytes.HasPrefix(rest, []byte(`{`)) &&
			!bytes.Contains(rest, []byte("\n{")) {
			flush(cutOffJSON(err, loose.n))
			break
		}
		flush(nil)
		reports, length, err := parseDocument(rest, int64(first), o)
		if err != nil && len(all) > 0 {
			err = fmt.Errorf("what follows the JSON at byte %d is not read: it %w", first, err)
		}
		if all = append(all, reports...); err != nil {
			return all, err
		}
		rest = rest[length:]
	}
	flush(nil)
	if len(all) == 0 {
		return nil, errors.New("is not JSON: it is empty")
	}
	return all, nil
}

// entryLine is how a line of rccl-tests' -Z json begins, or nccl-tests' object (-J), behind a prefix.
var entryLine = regexp.MustCompile(
	`(?i)(?:\[ *)?\{ *(?:"numCycle" *: *\d|"(?:name|collective)" *: *"\w+" *, *"(?:nodes|ranks|gpus)" *:|"version" *: *\d+ *, *"start_time" *:)`)

// parseLoggedJSON reads in a log the lines of rccl-tests' -Z json, one a result, and of nccl-tests' -J, one an object;
// there is neither a report nor an error where it has none.
func parseLoggedJSON(data []byte, o Options) ([]results.Report, error) {
	data, prefix, logs := withoutLogs(data)
	if len(data) == 0 {
		return nil, nil
	}
	reports, err := parseJSON(data, o)
	for i := range reports {
		reports[i].Format.Prefix = prefix
	}
	if len(reports) > 0 && logs > 0 {
		reports[0].Warnings = append(reports[0].Warnings, skippedLines(logs))
	}
	return reports, err
}

// withoutLogs gives the lines of JSON in a log, without their prefixes: the results, or parts of them, and the brackets
// around them. There are none in a log without a result.
func withoutLogs(data []byte) (jsonLines []byte, prefix string, logs int) {
	first := entryLine.FindIndex(data)
	if first == nil {
		return nil, "", 0
	}
	start := bytes.LastIndexAny(data[:first[0]], "\r\n") + 1
	prefix = strings.TrimSpace(textOf(data[start:first[0]]))
	var b bytes.Buffer
	_ = lines(data, len(data), func(_ int, text string) error {
		rest := strings.TrimSpace(without(prefix, text))
		if at := entryLine.FindStringIndex(text); at != nil {
			rest = text[at[0]:]
		} else if !strings.HasPrefix(rest, "{") && rest != "[" && rest != "]" && rest != "," {
			if rest != "" {
				logs++
			}
			return nil
		}
		b.WriteString(rest + "\n")
		return nil
	})
	return b.Bytes(), prefix, logs
}

// parseDocument reads the JSON value that data begins with, and gives its length: all of data where it does not end.
func parseDocument(data []byte, first int64, o Options) ([]results.Report, int, error) {
	length := len(data)
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(new(json.RawMessage)); err == nil {
		length = int(d.InputOffset())
	}
	data = data[:length]
	d = json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	if err != nil {
		return nil, length, fmt.Errorf("is not JSON: %w", err)
	}
	var reports []results.Report
	switch {
	case open != json.Delim('[') && open != json.Delim('{'):
		err = errors.New("is JSON, but neither rccl-tests' list, nor nccl-tests' object, nor a report of agent bench")
	case ownMark.Match(data):
		reports, err = parseOwn(data, first)
	case open == json.Delim('['):
		reports, err = parseArray(d)
	default:
		reports, err = parseObject(d)
	}
	for i := range reports {
		warnCollective(&reports[i], o.Collective)
	}
	return reports, length, err
}

// warnCollective says that the collective asked for is not used: JSON names its own.
func warnCollective(r *results.Report, asked rcclx.Collective) {
	other := func(x results.Result) bool { return asked != "" && x.Collective != asked }
	if i := slices.IndexFunc(r.Results, other); i >= 0 {
		r.Warnings = append(r.Warnings,
			fmt.Sprintf("--collective %s is not used: the file says that it is %s", asked, r.Results[i].Collective))
	}
}

// errNoEnd is for a whole object that lacks what the program writes last.
var errNoEnd = errors.New("it has no end_time")

// cutOffJSON is the failure of a file that ends or breaks before its end.
func cutOffJSON(err error, rows int) *results.Failure {
	why := "the program crashed, hung or was stopped, or the file was cut"
	if isEOF(err) {
		err = io.ErrUnexpectedEOF
	} else if !errors.Is(err, errNoEnd) {
		why = "the file was damaged, or a version wrote it that is not known here"
	}
	return &results.Failure{Kind: "CutOff",
		Message: fmt.Sprintf("the JSON ends or breaks after %s (%v): %s", count(rows, "result", "results"), err, why)}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// rcclEntry is one result of rccl-tests' -Z json or -Z csv (Reporter::addResult, src/common.cu). Names of fields are
// compared without case, as older builds write them small.
type rcclEntry struct {
	Cycle      int    `json:"numCycle"`
	Name       string `json:"name"`
	Collective string `json:"collective"` // name, in older builds
	Nodes      int    `json:"nodes"`
	// Ranks are processes in all, RanksPerNode those of the communicator, for which the program takes a node's; of a
	// build without MPI neither is there, and GPUs is the communicator's.
	Ranks        int             `json:"ranks"`
	RanksPerNode int             `json:"ranksPerNode"`
	GPUsPerRank  int             `json:"gpusPerRank"`
	GPUs         int             `json:"gpus"`
	Size         *int64          `json:"size"`
	Type         string          `json:"type"`
	RedOp        string          `json:"redop"`
	InPlace      int             `json:"inPlace"`
	Time         *float64        `json:"time"`
	AlgBw        float64         `json:"algBw"`
	BusBw        float64         `json:"busBw"`
	Wrong        json.RawMessage `json:"wrong"`
	HashWrong    json.RawMessage `json:"#wrong"` // wrong, in older builds
	half         [3]float64      // of the last digits of time and bandwidths; zero means jsonHalf
}

// communicatorRanks are the ranks that the bus bandwidth speaks of. Newer builds may count ranks of a node where older
// ones count those of the communicator; the ratio of the two bandwidths decides.
func (e rcclEntry) communicatorRanks(c rcclx.Collective) int {
	if e.GPUs > 0 {
		return e.GPUs
	}
	per := max(e.GPUsPerRank, 1)
	for _, n := range []int{e.RanksPerNode * per, e.Ranks * per} {
		if f := rcclx.BusFactor(c, n); f > 0 && e.AlgBw > 0 &&
			math.Abs(e.BusBw-f*e.AlgBw) < max(1e-3*e.AlgBw, 2*max(e.half[1], e.half[2])) {
			return n
		}
	}
	return e.RanksPerNode * per
}

// wrongElements reads "0" or "N/A".
func (e rcclEntry) wrongElements() (wrong int64, checked bool, err error) {
	text := strings.Trim(string(e.Wrong), `"`)
	if text == "N/A" {
		return 0, false, nil
	}
	n, rest, ok := parseNumber(text)
	if !ok || rest != "" {
		return 0, false, fmt.Errorf("wrong is %q, expected a number or N/A", text)
	}
	return int64(min(n.value, 1<<62)), true, nil
}

// isEntry tells a result of rccl-tests from other objects.
func isEntry(raw json.RawMessage) bool {
	_, err := readEntry(raw)
	return err == nil
}

func readEntry(raw json.RawMessage) (rcclEntry, error) {
	var e rcclEntry
	err := json.Unmarshal(raw, &e)
	if e.Name == "" {
		e.Name = e.Collective
	}
	if len(e.Wrong) == 0 {
		e.Wrong = e.HashWrong
	}
	if err == nil && (e.Name == "" || e.Size == nil || e.Time == nil || e.Type == "") {
		err = errors.New("it has no name, size, type or time")
	}
	return e, err
}

// entries are results of rccl-tests that follow one another, by the run that each belongs to.
type entries struct {
	n    int
	runs []*entryRun
}

// entryRun is a run, with what it has measured: what comes again belongs to the next run.
type entryRun struct {
	run
	seen map[string]bool
}

func (x *entries) add(raw json.RawMessage) error {
	if x.n++; x.n > maxResults {
		return errTooManyRows
	}
	e, err := readEntry(raw)
	if err != nil {
		return fmt.Errorf("has as element %d of its list no result of rccl-tests (-Z json): %.80q", x.n, raw)
	}
	return x.take(e)
}

func (x *entries) take(e rcclEntry) error {
	c, _ := collectiveOf(e.Name)
	ranks := e.communicatorRanks(c)
	key := fmt.Sprint(e.Cycle, *e.Size, e.Type, e.RedOp, e.InPlace)
	var u *entryRun
	for _, r := range slices.Backward(x.runs) {
		if r.program == e.Name && r.report.Ranks == ranks {
			if !r.seen[key] {
				u = r
			}
			break
		}
	}
	if u == nil {
		if len(x.runs) >= maxRuns {
			return fmt.Errorf("more than %d runs: split the file", maxRuns)
		}
		u = &entryRun{seen: map[string]bool{}}
		u.report.Source, u.report.Ranks = results.SourceRCCLTests, ranks
		if ranks == e.Ranks*max(e.GPUsPerRank, 1) {
			u.report.Nodes = e.Nodes
		}
		u.setProgram(e.Name)
		x.runs = append(x.runs, u)
	}
	u.seen[key] = true
	if err := u.addEntry(e); err != nil {
		return fmt.Errorf("cannot be read: result %d: %w", x.n, err)
	}
	return nil
}

// finish gives the reports; a failure is that of the last run.
func (x *entries) finish(form string, failure *results.Failure) []results.Report {
	var reports []results.Report
	for i, u := range x.runs {
		u.report.Format = results.Format{Program: results.SourceRCCLTests, Form: form}
		if failure != nil && i == len(x.runs)-1 {
			u.fail(failure.Kind, "%s", failure.Message)
		}
		reports = append(reports, u.finish())
	}
	return reports
}

// parseArray reads rccl-tests' list of results.
func parseArray(d *json.Decoder) ([]results.Report, error) {
	var x entries
	var failure *results.Failure
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			failure = cutOffJSON(err, x.n)
			break
		}
		if err := x.add(raw); err != nil {
			return nil, err
		}
	}
	if failure == nil {
		if _, err := d.Token(); err != nil {
			failure = cutOffJSON(err, x.n)
		}
	}
	if len(x.runs) == 0 {
		if failure != nil {
			return nil, errors.New(failure.Message)
		}
		return nil, errors.New("is an empty list: the program measured nothing")
	}
	return x.finish("json list", failure), nil
}

func (u *run) addEntry(e rcclEntry) error {
	wrong, checked, err := e.wrongElements()
	if err != nil {
		return err
	}
	x := row{size: *e.Size, typeName: e.Type, redop: e.RedOp, placement: placementOf(e.InPlace != 0),
		wrong: wrong, checked: checked, time: number{*e.Time, cmp.Or(e.half[0], jsonHalf)},
		alg: number{e.AlgBw, cmp.Or(e.half[1], jsonHalf)}, bus: number{e.BusBw, cmp.Or(e.half[2], jsonHalf)}}
	// The count is not written; the size gives it.
	if d, err := rcclx.ParseDatatype(e.Type); err == nil && u.collective != "" && x.size > 0 {
		shape, err := rcclx.ShapeOf(u.collective, d, x.size, max(u.report.Ranks, 1))
		if err == nil {
			x.count = shape.CountElements
		}
	}
	u.add(x)
	return nil
}

func placementOf(inPlace bool) rcclx.Placement {
	if inPlace {
		return rcclx.InPlace
	}
	return rcclx.OutOfPlace
}

// ncclConfig is the object "config" of nccl-tests' -J (src/util.cu, JSON_FILE_VERSION 1 to 3).
type ncclConfig struct {
	NThreads             int `json:"nthreads"`
	NGPUs                int `json:"ngpus"`
	Iterations           int `json:"iterations"`
	AggregatedIterations int `json:"aggregated_iterations"`
	Devices              []struct {
		Rank      int    `json:"rank"`
		Group     int    `json:"group"`
		Hostname  string `json:"hostname"`
		Device    int    `json:"device"`
		DeviceHex string `json:"device_hex"`
		Info      string `json:"device_info"`
	} `json:"devices"`
}

// ncclBlock is one placement of a result.
type ncclBlock struct {
	Time    *jsonNumber `json:"time"`
	CPUTime *jsonNumber `json:"cpu_time"`
	AlgBw   jsonNumber  `json:"alg_bw"`
	BusBw   jsonNumber  `json:"bus_bw"`
	NWrong  *jsonNumber `json:"nwrong"`
}

// ncclIterations is the report per iteration of one placement.
type ncclIterations struct {
	Skipped int          `json:"skipped_iterations"`
	Min     jsonNumber   `json:"min_us"`
	Max     jsonNumber   `json:"max_us"`
	P50     jsonNumber   `json:"p50_us"`
	P95     jsonNumber   `json:"p95_us"`
	CV      jsonNumber   `json:"cv_pct"`
	Times   []jsonNumber `json:"times_us"`
}

// ncclEntry is one result of nccl-tests' -J.
type ncclEntry struct {
	Size       *int64          `json:"size"`
	Count      *int64          `json:"count"`
	Type       string          `json:"type"`
	RedOp      string          `json:"redop"`
	Root       string          `json:"root"`
	OutOfPlace *ncclBlock      `json:"out_of_place"`
	InPlace    *ncclBlock      `json:"in_place"`
	OutIter    *ncclIterations `json:"out_of_place_per_iter"`
	InIter     *ncclIterations `json:"in_place_per_iter"`
}

// jsonNumber is a number, or the text "nan" that nccl-tests writes in its place.
type jsonNumber float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *jsonNumber) UnmarshalJSON(data []byte) error {
	if string(data) == `"nan"` {
		*n = jsonNumber(math.NaN())
		return nil
	}
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*n = jsonNumber(f)
	return nil
}

func (n jsonNumber) number() number { return number{float64(n), jsonHalf} }

// parseObject reads nccl-tests' object key by key, so that one that was cut gives what stands before the cut.
func parseObject(d *json.Decoder) ([]results.Report, error) {
	u := &run{}
	u.report.Source = results.SourceNCCLTests
	u.report.Format.Form = "json object"
	var config ncclConfig
	rows, known, ended := 0, false, false
	fail := func(err error) []results.Report {
		failure := cutOffJSON(err, rows)
		u.fail(failure.Kind, "%s", failure.Message)
		return []results.Report{u.finish()}
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		switch key {
		case "args":
			var args []string
			if err = d.Decode(&args); err == nil && len(args) > 0 {
				u.setProgram(filepath.Base(args[0]))
			}
		case "nccl_version", "rccl_version":
			var code int
			if err = d.Decode(&code); err == nil {
				u.setLibrary(code)
			}
			if key == "rccl_version" {
				u.report.Source = results.SourceRCCLTests
			} else if u.report.Library != nil {
				u.report.Library.Flavor = rcclx.FlavorNCCL
			}
		case "config":
			if err = d.Decode(&config); err == nil {
				known = true
				u.setConfig(config)
			}
		case "results":
			known = true
			err = u.decodeResults(d, config, &rows)
		case "out_of_bounds":
			var bounds struct {
				Count json.Number     `json:"count"`
				Okay  json.RawMessage `json:"okay"`
			}
			if err = d.Decode(&bounds); err == nil {
				u.counted(bounds.Count.String(), map[bool]string{true: "FAILED"}[isFalse(bounds.Okay)])
			}
		case "average_bus_bandwidth":
			var average struct {
				Bandwidth jsonNumber      `json:"bandwidth"`
				Okay      json.RawMessage `json:"okay"`
			}
			if err = d.Decode(&average); err == nil && isFalse(average.Okay) {
				u.bandwidth = fmt.Sprint(float64(average.Bandwidth))
			}
		case "end_time":
			ended = true
			err = d.Decode(new(json.RawMessage))
		case "errors":
			var texts []string
			if err = d.Decode(&texts); err == nil {
				for _, text := range texts {
					if strings.TrimSpace(text) != "" {
						u.warn("the program's last error: %s", text)
					}
				}
			}
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			if !known {
				return nil, fmt.Errorf("is not an object of nccl-tests (-J): %w", err)
			}
			return fail(err), nil
		}
	}
	if !known {
		return nil, errors.New("is a JSON object, but neither nccl-tests' (-J) nor a report of agent bench")
	}
	if _, err := d.Token(); err != nil || !ended {
		if err == nil {
			err = errNoEnd
		}
		return fail(err), nil
	}
	u.wantCounter(`"out_of_bounds"`, 0)
	return []results.Report{u.finish()}, nil
}

// isFalse reads a truth value, which nccl-tests writes as text.
func isFalse(raw json.RawMessage) bool {
	return strings.EqualFold(strings.Trim(string(raw), `"`), "false")
}

// setConfig takes the ranks. The list of devices has one entry for each process (parseRankInfo reads one line of each),
// and a process has nthreads times ngpus ranks. Only the group of rank 0 counts: the results are its.
func (u *run) setConfig(c ncclConfig) {
	per := max(c.NThreads, 1) * max(c.NGPUs, 1)
	hosts := map[string]bool{}
	for _, d := range c.Devices {
		if d.Group != c.Devices[0].Group {
			continue
		}
		u.report.Ranks += per
		hosts[d.Hostname] = true
		if per == 1 {
			u.report.Devices = append(u.report.Devices,
				results.Device{Rank: len(u.report.Devices), Ordinal: d.Device, PCIAddress: d.DeviceHex, Name: d.Info})
		}
	}
	u.report.Nodes = len(hosts)
}

// decodeResults reads the list of results one by one.
func (u *run) decodeResults(d *json.Decoder, c ncclConfig, rows *int) error {
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('[') {
		return fmt.Errorf("results is %v, expected a list", open)
	}
	for d.More() {
		var e ncclEntry
		if err := d.Decode(&e); err != nil {
			return err
		}
		if *rows++; *rows > maxResults {
			return errTooManyRows
		}
		if e.Size == nil || e.Count == nil {
			return fmt.Errorf("result %d has no size or count", *rows)
		}
		u.addNCCL(e, c)
	}
	_, err = d.Token()
	return err
}

func (u *run) addNCCL(e ncclEntry, c ncclConfig) {
	for _, b := range []struct {
		block      *ncclBlock
		iterations *ncclIterations
		placement  rcclx.Placement
	}{{e.OutOfPlace, e.OutIter, rcclx.OutOfPlace}, {e.InPlace, e.InIter, rcclx.InPlace}} {
		if b.block == nil {
			continue
		}
		x := row{size: *e.Size, count: *e.Count, typeName: e.Type, redop: e.RedOp,
			root: atoi(strings.TrimSpace(e.Root)), placement: b.placement, alg: b.block.AlgBw.number(),
			bus: b.block.BusBw.number(), iterations: c.Iterations * max(c.AggregatedIterations, 1)}
		switch {
		case b.block.Time != nil:
			x.time = b.block.Time.number()
		case b.block.CPUTime != nil:
			x.time, x.cpuTime = b.block.CPUTime.number(), true
		}
		if w := b.block.NWrong; w != nil && float64(*w) >= 0 {
			x.wrong, x.checked = int64(min(float64(*w), 1<<62)), true
		}
		if i := b.iterations; i != nil {
			x.perIteration, x.iterations = true, max(len(i.Times)-i.Skipped, 1)
			x.min, x.max, x.p50, x.p95, x.cvPercent = i.Min.number(), i.Max.number(), i.P50.number(),
				i.P95.number(), i.CV.number()
		}
		u.add(x)
	}
}
