package results

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"rcclx.io/commgroup-operator/rcclx"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test ./agent/results -update writes it anew\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

func pointer[T any](v T) *T { return &v }

// sample is a report with a bit of everything.
func sample() Report {
	result := func(v rcclx.Variant, size, median int64, path rcclx.Path, checks ...rcclx.CheckResult) Result {
		r := Result{Variant: v, Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16,
			Op: "Sum", Placement: rcclx.OutOfPlace, SizeBytes: size, CountElements: size / 2,
			Latency: rcclx.LatencyStats{MedianNanoseconds: median, MinNanoseconds: median * 9 / 10,
				MaxNanoseconds: median * 2, P95Nanoseconds: median * 3 / 2,
				CoefficientOfVariationPPM: 20000, Repeats: 10, IterationsPerRepeat: 2},
			MeanLatencyNanoseconds: median * 98 / 100, LaunchNanoseconds: 2500, Checks: checks, ExpectedPath: path}
		r.SetBandwidths(8)
		return r
	}
	exact := rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 1 << 20}
	hazard := result(rcclx.LowPrecision, 32<<20, 300000, rcclx.PathLowPrecision,
		rcclx.CheckResult{Data: rcclx.DataRounding, CheckedElements: 1 << 20, MaxRelativeErrorPPM: 62500,
			MeanRelativeErrorPPM: 21000}, rcclx.CheckResult{Data: rcclx.DataActivations, CheckedElements: 1 << 20,
			WrongElements: 3, FirstWrongElement: pointer(int64(17)), NaNElements: 1, OverflowElements: 2,
			MaxRelativeErrorPPM: 500000, MeanRelativeErrorPPM: 30000})
	hazard.Hazard, hazard.HazardElements = "a count of 16777216 is no multiple", 2
	return Report{
		Source: SourceBench, Node: "gpu-node-7", Time: time.Date(2026, 11, 28, 3, 30, 0, 0, time.UTC), Simulated: true,
		Ranks: 8, Nodes: 1,
		Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorSimulated, Imitates: rcclx.FlavorRCCLXDev, VersionCode: 22803,
			Path: "/opt/rocm/lib/librccl.so.1", BuildHash: "0123456789abcdef", RuntimeVersionCode: 60443484},
		Devices: []Device{{0, 0, "0000:05:00.0", "AMD Instinct MI300X"}, {1, 1, "0000:2b:00.0", ""}},
		Results: []Result{
			result(rcclx.Baseline, 8192, 20000, rcclx.PathStandard, exact),
			result(rcclx.Baseline, 32<<20, 400000, rcclx.PathStandard, exact),
			result(rcclx.DDA, 8192, 12000, rcclx.PathDDAFlat, exact),
			result(rcclx.DDA, 32<<20, 404000, rcclx.PathStandard, exact), hazard,
			{Collective: rcclx.SendRecv, Datatype: rcclx.Int8, Placement: rcclx.OutOfPlace, SizeBytes: 8,
				CountElements: 8, Latency: rcclx.LatencyStats{MedianNanoseconds: 5000}},
		},
		Pairs: []Pair{{0, 1, 16 << 20, 48000, 0}},
		Settings: []rcclx.Effective{{Name: "dda.AllReduce", Requested: "Preferred",
			State: rcclx.StatePartial, Reason: rcclx.ReasonAboveThreshold, MaxBytes: pointer(int64(30408704)),
			Message: "in effect for 1 of 2 sizes"}},
		Environment:     map[rcclx.Variant][]rcclx.EnvVar{rcclx.DDA: {{Name: "RCCL_DDA_NRANKS", Value: "8"}}},
		InitNanoseconds: map[rcclx.Variant]int64{rcclx.Baseline: 450_000_000},
		Warnings:        []string{"NUMABalancing: kernel.numa_balancing is 1,\nexpected 0"},
		Failure: &Failure{Variant: rcclx.LowPrecision, Kind: "Hung", Code: "RankHung",
			Step: "AllReduce BFloat16 67108864 B", Rank: pointer(1), Device: "0000:2b:00.0",
			Message: "node a: rank 1 missed the deadline", Ranks: []RankState{{0, "0000:05:00.0", "in step x", ""},
				{1, "0000:2b:00.0", "in step y", "exited with code 2"}}, DetectedNanoseconds: 40_000_000,
			FreedNanoseconds: 250_000_000, RAS: "rank 1 launched 4 operations, others 5\n",
			LogTail: "NCCL WARN \x1b[31mtrouble\n", Next: "look at dmesg"},
	}
}

func TestGolden(t *testing.T) {
	var table, rows, js, failure strings.Builder
	r := sample()
	for _, err := range []error{WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r), WriteJSON(&js, r),
		r.Failure.WriteFailure(&failure)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "report.txt", table.String())
	golden(t, "report.csv", rows.String())
	golden(t, "report.json", js.String())
	golden(t, "failure.txt", failure.String())
	var back Report
	if err := json.Unmarshal([]byte(js.String()), &back); err != nil {
		t.Fatal(err)
	}
	var again strings.Builder
	if err := WriteJSON(&again, back); err != nil || again.String() != js.String() {
		t.Errorf("read and written again, the JSON differs (%v):\n%s", err, again.String())
	}
}

// A simulated number must never be taken for a real one, wherever it is shown.
func TestSimulatedEverywhere(t *testing.T) {
	r := sample()
	var table, rows, js strings.Builder
	_, _, _ = WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r), WriteJSON(&js, r)
	block := ""
	for line := range strings.Lines(table.String()) {
		switch {
		case strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "#  "):
			block = line
		case strings.HasPrefix(line, "#     "):
			block += line // a title that goes on
		case !strings.HasPrefix(line, "#") && !strings.Contains(block, "SIMULATED"):
			t.Errorf("the row %q stands under %q", line, block)
		}
	}
	records, err := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
	if err != nil || len(records) != 7 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	at := slices.Index(records[0], "simulated")
	for _, record := range records[1:] {
		if record[at] != "true" {
			t.Errorf("%v", record)
		}
	}
	if !strings.Contains(js.String(), `"simulated": true`) {
		t.Error("JSON without simulated")
	}
	r.Simulated = false
	js.Reset()
	if _ = WriteJSON(&js, r); !strings.Contains(js.String(), `"simulated": false`) {
		t.Error("JSON without simulated: false")
	}
}

func TestMissingIsNeverZero(t *testing.T) {
	r := Report{Source: SourceRCCLTests, Results: []Result{{Collective: rcclx.AllGather,
		Datatype: rcclx.Int8, Placement: rcclx.OutOfPlace, SizeBytes: 8, CountElements: 1,
		Latency: rcclx.LatencyStats{MedianNanoseconds: 9000}, AlgBandwidthMBps: 0.889}}}
	var table, rows strings.Builder
	_, _ = WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r)
	var row []string
	for line := range strings.Lines(table.String()) {
		if !strings.HasPrefix(line, "#") {
			row = strings.Fields(line)
		}
	}
	want := []string{"8", "1", "Int8", "-", "OutOfPlace", "9.00", "-", "-", "-", "-", "0.000889", "-", "-", "-"}
	if !slices.Equal(row, want) {
		t.Errorf("row  %q\nwant %q", row, want)
	}
	records, err := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range records[0] {
		if v := records[1][i]; v == "0" {
			t.Errorf("%s is 0, expected nothing", name)
		}
	}
}

// JSON leaves out what is missing, and keeps a zero that was measured.
func TestMissingInJSON(t *testing.T) {
	of := func(l rcclx.LatencyStats, c rcclx.CheckResult) string {
		var b strings.Builder
		if err := WriteJSON(&b, Report{Source: SourceNCCLTests, Results: []Result{{Latency: l,
			MeanLatencyNanoseconds: 9, SizeBytes: 8, CountElements: 8, Checks: []rcclx.CheckResult{c}}}}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	zeros := func(text string) (names []string) {
		for line := range strings.Lines(text) {
			if name, ok := strings.CutSuffix(strings.TrimRight(strings.TrimSpace(line), ","), ": 0"); ok {
				names = append(names, strings.Trim(name, `"`))
			}
		}
		return names
	}
	if got := zeros(of(rcclx.LatencyStats{}, rcclx.CheckResult{CheckedElements: 3})); !slices.Equal(got,
		[]string{"wrongElements"}) {
		t.Errorf("zeros %q, expected wrongElements alone", got)
	}
	got := zeros(of(rcclx.LatencyStats{MedianNanoseconds: 9, MinNanoseconds: 9, MaxNanoseconds: 9, Repeats: 2},
		rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 3}))
	if want := []string{"coefficientOfVariationPPM", "wrongElements", "maxRelativeErrorPPM"}; !slices.Equal(got, want) {
		t.Errorf("zeros %q, expected %q", got, want)
	}
}

// Small messages over long times have bandwidths far under 1 MB/s: measured is not missing.
func TestSmallBandwidths(t *testing.T) {
	for want, tc := range map[string]struct {
		size, median int64
	}{
		"0.400,0.700": {8, 20_000}, "0.001,0.002": {1, 1_000_000}, "1e-05,1.75e-05": {1, 100_000_000},
		"328362.117,574633.705": {1 << 30, 3_269_993},
	} {
		r := Result{Collective: rcclx.AllReduce, SizeBytes: tc.size,
			Latency: rcclx.LatencyStats{MedianNanoseconds: tc.median}}
		r.SetBandwidths(8)
		var rows strings.Builder
		_ = WriteCSV(&rows, Report{Results: []Result{r}})
		records, err := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := slices.Index(records[0], "alg_bandwidth_mbps")
		if got := strings.Join(records[1][at:at+2], ","); got != want {
			t.Errorf("%d B in %d ns: %s, expected %s", tc.size, tc.median, got, want)
		}
	}
	r := Result{Collective: rcclx.AllReduce, SizeBytes: 8, Latency: rcclx.LatencyStats{MedianNanoseconds: 20_000}}
	if r.SetBandwidths(1); r.BusBandwidthMBps != 0 || r.AlgBandwidthMBps != 0.4 {
		t.Errorf("over one rank %g and %g", r.AlgBandwidthMBps, r.BusBandwidthMBps)
	}
}

// The one time of rccl-tests is a mean over the ranks, and is not called a median.
func TestOneTimeAlone(t *testing.T) {
	r := Result{Collective: rcclx.AllReduce, SizeBytes: 8000, CountElements: 4000, MeanLatencyNanoseconds: 20_000}
	r.SetBandwidths(8)
	var table, rows strings.Builder
	_, _ = WriteTable(&table, TableOptions{}, Report{Ranks: 8, Results: []Result{r}}),
		WriteCSV(&rows, Report{Results: []Result{r}})
	if text := table.String(); !strings.Contains(text, "  time(us)") || strings.Contains(text, "median") ||
		!strings.Contains(text, " 20.00 ") || !strings.Contains(text, " 0.400 ") {
		t.Errorf("table:\n%s", text)
	}
	records, _ := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
	for name, want := range map[string]string{"latency_median_ns": "", "latency_mean_of_ranks_ns": "20000",
		"bus_bandwidth_mbps": "700.000", "mean_bus_bandwidth_mbps": "700.000"} {
		if got := records[1][slices.Index(records[0], name)]; got != want {
			t.Errorf("%s is %q, expected %q", name, got, want)
		}
	}
	table.Reset()
	if _ = WriteTable(&table, TableOptions{Statistic: P95},
		Report{Ranks: 8, Results: []Result{r}}); !strings.Contains(table.String(), "p95(us)") ||
		strings.Contains(table.String(), "0.400") {
		t.Errorf("a p95 that is missing has a bandwidth:\n%s", table.String())
	}
}

// What a report from elsewhere holds cannot steer a terminal, nor add rows; long lines are wrapped.
func TestStrangeTexts(t *testing.T) {
	r := sample()
	evil := "a\x1b[31mb\n9 9 c\u009b2J"
	r.Input, r.Node, r.Library.Path, r.Devices[0].Name, r.Warnings = evil, evil, evil, evil,
		[]string{evil, strings.Repeat("word ", 60)}
	r.Results[0].ExpectedPath, r.Results[0].Variant, r.Settings[0].Name, r.Failure.Message = rcclx.Path(evil),
		rcclx.Variant(evil), evil, evil
	var table, rows, failure strings.Builder
	_, _, _ = WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r), r.Failure.WriteFailure(&failure)
	for name, text := range map[string]string{"table": table.String(), "CSV": rows.String(),
		"failure": failure.String()} {
		if strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && unicode.IsControl(c) }) ||
			strings.Contains(text, "\n9 9") {
			t.Errorf("%s:\n%q", name, text)
		}
	}
	for line := range strings.Lines(table.String()) {
		if strings.HasPrefix(line, "# ") && !strings.Contains(line, "size(B)") &&
			len(strings.TrimSpace(line)) > maxColumns {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if got := strings.Count(table.String(), "word"); got != 60 {
		t.Errorf("%d words after wrapping, expected 60", got)
	}
	var long strings.Builder
	(&printer{w: &long}).line("# %s %s", strings.Repeat("x", 300), "end")
	if want := "# " + strings.Repeat("x", 300) + "\n#     end\n"; long.String() != want {
		t.Errorf("got %q", long.String())
	}
}

func TestNotes(t *testing.T) {
	r := sample()
	var table strings.Builder
	_ = WriteTable(&table, TableOptions{}, r)
	if !strings.Contains(table.String(), "LowPrecision  not_usable,NaN:1,overflow:2\n") {
		t.Errorf("the comparison does not tell of NaN and overflow:\n%s", table.String())
	}
}

func TestStatistics(t *testing.T) {
	r := sample().Results[0]
	for s, want := range map[Statistic][2]float64{Median: {20000, 409.6}, Min: {18000, 455.111}, Max: {40000, 204.8},
		P95: {30000, 273.067}, Mean: {19600, 417.959}} {
		alg, _ := s.bandwidths(r, 8)
		if got := [2]float64{float64(s.Of(r)), alg}; got != want {
			t.Errorf("%s: %v, expected %v", s, got, want)
		}
		if back, err := ParseStatistic(strings.ToUpper(string(s))); err != nil || back != s {
			t.Errorf("%s: %v %v", s, back, err)
		}
	}
	if _, err := ParseStatistic("p99"); err == nil {
		t.Error("p99 was taken")
	}
}

func TestCompare(t *testing.T) {
	c := Compare(Group(sample().Results))
	if len(c) != 2 || c[0].Variant != rcclx.DDA || c[0].Reference != rcclx.Baseline || len(c[0].Points) != 2 ||
		len(c[1].Points) != 1 {
		t.Fatalf("%+v", c)
	}
	if p := c[0].Points[0]; p.SpeedupPPM != 1666666 || p.WithinNoise {
		t.Errorf("%+v", p)
	}
	if p := c[0].Points[1]; p.SpeedupPPM != 990099 || !p.WithinNoise {
		t.Errorf("%+v", p)
	}
	// Without Baseline the first variant is the reference; imported results have none to compare.
	only := []Result{}
	for _, r := range sample().Results {
		if r.Variant != rcclx.Baseline {
			only = append(only, r)
		}
	}
	if c := Compare(Group(only)); len(c) != 1 || c[0].Reference != rcclx.DDA || c[0].Variant != rcclx.LowPrecision {
		t.Errorf("%+v", c)
	}
	if c := Compare(nil); c != nil {
		t.Errorf("%+v", c)
	}
}

func TestGood(t *testing.T) {
	hazard := func(wrong, known int64) []Result {
		return []Result{{Hazard: "h", HazardElements: known,
			Checks: []rcclx.CheckResult{{CheckedElements: 5, WrongElements: wrong}}}}
	}
	if r := (Report{Results: hazard(3, 3)}); !r.Good() {
		t.Error("what the library is known to lose fails a report")
	}
	good := Report{Results: []Result{{Checks: []rcclx.CheckResult{{CheckedElements: 5}}}}}
	if !good.Good() {
		t.Error("a good report is not")
	}
	for name, r := range map[string]Report{
		"empty":      {},
		"beyond":     {Results: hazard(3, 2)},
		"failed":     {Results: good.Results, Failure: &Failure{}},
		"wrong":      {Results: []Result{{Checks: []rcclx.CheckResult{{CheckedElements: 5, WrongElements: 1}}}}},
		"wrong pair": {Results: good.Results, Pairs: []Pair{{WrongElements: 1}}},
	} {
		if r.Good() {
			t.Errorf("%s is good", name)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestBrokenOutput(t *testing.T) {
	r := sample()
	if WriteTable(brokenWriter{}, TableOptions{}, r) == nil || WriteCSV(brokenWriter{}, r) == nil ||
		WriteJSON(brokenWriter{}, r) == nil || r.Failure.WriteFailure(brokenWriter{}) == nil {
		t.Error("an output that cannot be written gave no error")
	}
}

// Every column is explained in the guide, and the guide explains none that is not there.
func TestGuideKnowsTheColumns(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "bench.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## CSV\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for line := range strings.Lines(section) {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if ok && strings.HasPrefix(line, "| ") && cell != "column" {
			documented = append(documented, strings.Split(cell, ", ")...)
		}
	}
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	if !slices.Equal(documented, names) {
		t.Errorf("documented %q\ncolumns    %q", documented, names)
	}
}
