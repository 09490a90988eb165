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
		r := Result{Variant: v, Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, Op: "Sum", Placement: rcclx.OutOfPlace, SizeBytes: size, CountElements: size / 2,
			Latency: rcclx.LatencyStats{MedianNanoseconds: median, MinNanoseconds: median * 9 / 10, MaxNanoseconds: median * 2, P95Nanoseconds: median * 3 / 2,
				CoefficientOfVariationPPM: 20000, Repeats: 10, IterationsPerRepeat: 2},
			MeanLatencyNanoseconds: median * 98 / 100, LaunchNanoseconds: 2500, Checks: checks, ExpectedPath: path}
		r.SetBandwidths(8)
		return r
	}
	exact := rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 1 << 20}
	hazard := result(rcclx.LowPrecision, 32<<20, 300000, rcclx.PathLowPrecision,
		rcclx.CheckResult{Data: rcclx.DataRounding, CheckedElements: 1 << 20, MaxRelativeErrorPPM: 62500, MeanRelativeErrorPPM: 21000},
		rcclx.CheckResult{Data: rcclx.DataActivations, CheckedElements: 1 << 20, WrongElements: 3, FirstWrongElement: pointer(int64(17)), NaNElements: 1, OverflowElements: 2,
			MaxRelativeErrorPPM: 500000, MeanRelativeErrorPPM: 30000})
	hazard.Hazard = "a count of 16777216 is no multiple"
	return Report{
		Source: SourceBench, Node: "gpu-node-7", Time: time.Date(2026, 11, 28, 3, 30, 0, 0, time.UTC), Simulated: true, Ranks: 8, Nodes: 1,
		Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorSimulated, Imitates: rcclx.FlavorRCCLXDev, VersionCode: 22803, Path: "/opt/rocm/lib/librccl.so.1",
			BuildHash: "0123456789abcdef", RuntimeVersionCode: 60443484},
		Devices: []Device{{0, 0, "0000:05:00.0", "AMD Instinct MI300X"}, {1, 1, "0000:2b:00.0", ""}},
		Results: []Result{
			result(rcclx.Baseline, 8192, 20000, rcclx.PathStandard, exact), result(rcclx.Baseline, 32<<20, 400000, rcclx.PathStandard, exact),
			result(rcclx.DDA, 8192, 12000, rcclx.PathDDAFlat, exact), result(rcclx.DDA, 32<<20, 404000, rcclx.PathStandard, exact), hazard,
			{Collective: rcclx.SendRecv, Datatype: rcclx.Int8, Placement: rcclx.OutOfPlace, SizeBytes: 8, CountElements: 8, Latency: rcclx.LatencyStats{MedianNanoseconds: 5000}},
		},
		Pairs: []Pair{{0, 1, 16 << 20, 48000, 0}},
		Settings: []rcclx.Effective{{Name: "dda.AllReduce", Requested: "Preferred", State: rcclx.StatePartial, Reason: rcclx.ReasonAboveThreshold, MaxBytes: pointer(int64(30408704)),
			Message: "in effect for 1 of 2 sizes"}},
		Environment:     map[rcclx.Variant][]rcclx.EnvVar{rcclx.DDA: {{Name: "RCCL_DDA_NRANKS", Value: "8"}}},
		InitNanoseconds: map[rcclx.Variant]int64{rcclx.Baseline: 450_000_000},
		Warnings:        []string{"NUMABalancing: kernel.numa_balancing is 1,\nexpected 0"},
		Failure: &Failure{Variant: rcclx.LowPrecision, Kind: "Hung", Code: "RankHung", Step: "AllReduce BFloat16 67108864 B", Rank: pointer(1), Device: "0000:2b:00.0",
			Message: "node a: rank 1 missed the deadline", Ranks: []RankState{{0, "0000:05:00.0", "in step x", ""}, {1, "0000:2b:00.0", "in step y", "exited with code 2"}},
			DetectedNanoseconds: 40_000_000, FreedNanoseconds: 250_000_000, RAS: "rank 1 launched 4 operations, others 5\n", LogTail: "NCCL WARN \x1b[31mtrouble\n", Next: "look at dmesg"},
	}
}

func TestGolden(t *testing.T) {
	var table, rows, js, failure strings.Builder
	r := sample()
	for _, err := range []error{WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r), WriteJSON(&js, r), r.Failure.WriteFailure(&failure)} {
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
	r := Report{Source: SourceRCCLTests, Results: []Result{{Collective: rcclx.AllGather, Datatype: rcclx.Int8, Placement: rcclx.OutOfPlace, SizeBytes: 8, CountElements: 1,
		Latency: rcclx.LatencyStats{MedianNanoseconds: 9000}, AlgBandwidthMBps: 1}}}
	var table, rows strings.Builder
	_, _ = WriteTable(&table, TableOptions{}, r), WriteCSV(&rows, r)
	var row []string
	for line := range strings.Lines(table.String()) {
		if !strings.HasPrefix(line, "#") {
			row = strings.Fields(line)
		}
	}
	want := []string{"8", "1", "Int8", "-", "OutOfPlace", "9.00", "-", "-", "-", "-", "0.001", "-", "-", "-"}
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

func TestStatistics(t *testing.T) {
	r := sample().Results[0]
	for s, want := range map[Statistic][2]int64{Median: {20000, 410}, Min: {18000, 455}, Max: {40000, 205}, P95: {30000, 273}, Mean: {19600, 418}} {
		alg, _ := s.bandwidths(r, 8)
		if got := [2]int64{s.Of(r), alg}; got != want {
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
	if len(c) != 2 || c[0].Variant != rcclx.DDA || c[0].Reference != rcclx.Baseline || len(c[0].Points) != 2 || len(c[1].Points) != 1 {
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
	good := Report{Results: []Result{{Checks: []rcclx.CheckResult{{CheckedElements: 5}}}}}
	if !good.Good() {
		t.Error("a good report is not")
	}
	for name, r := range map[string]Report{
		"empty":      {},
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
	if WriteTable(brokenWriter{}, TableOptions{}, r) == nil || WriteCSV(brokenWriter{}, r) == nil || WriteJSON(brokenWriter{}, r) == nil || r.Failure.WriteFailure(brokenWriter{}) == nil {
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
