package perftests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// entry of rccl-tests' -Z json; the numbers are made up, but fit one another over 8 ranks.
func entry(name, kind, redop, place, wrong string) string {
	return `{"numCycle":0, "name":"` + name +
		`", "nodes":1, "ranks":8, "ranksPerNode":8, "gpusPerRank":1, "size":1048576, "type":"` + kind +
		`", "redop":"` + redop + `", "inPlace":` + place +
		`, "time":41.270000, "algBw":25.407705, "busBw":44.463484, "wrong":"` + wrong + `"}`
}

func TestRCCLTestsJSON(t *testing.T) {
	text := "[\n" + entry("AllReduce", "float", "sum", "0", "0") + ",\n" +
		entry("AllReduce", "float", "sum", "1", "N/A") + "\n]\n"
	r := one(t, text, Options{})
	if r.Source != results.SourceRCCLTests || r.Ranks != 8 || r.Nodes != 1 || r.Failure != nil || len(r.Results) != 2 {
		t.Fatalf("%+v", r)
	}
	x := r.Results[0]
	if x.Collective != rcclx.AllReduce || x.Datatype != rcclx.Float32 || x.CountElements != 262144 ||
		x.Latency.MedianNanoseconds != 0 || x.MeanLatencyNanoseconds != 41270 || x.BusBandwidthMBps != 44463.484 {
		t.Errorf("%+v", x)
	}
	if _, checked := r.Results[1].Wrong(); checked || r.Results[1].Placement != rcclx.InPlace {
		t.Errorf("%+v", r.Results[1])
	}
}

func TestRCCLTestsJSONRanks(t *testing.T) {
	for name, tc := range map[string]struct {
		counts string
		ranks  int
	}{
		// What the program calls ranks of a node are those of the communicator.
		"two groups of eight": {`"nodes":2, "ranks":16, "ranksPerNode":8, "gpusPerRank":1`, 8},
		"two nodes of four":   {`"nodes":2, "ranks":8, "ranksPerNode":4, "gpusPerRank":1`, 8},
		"threads":             {`"nodes":1, "ranks":2, "ranksPerNode":2, "gpusPerRank":4`, 8},
		"no MPI":              {`"gpus":8`, 8},
	} {
		t.Run(name, func(t *testing.T) {
			text := "[" + strings.Replace(entry("AllReduce", "float", "sum", "0", "0"),
				`"nodes":1, "ranks":8, "ranksPerNode":8, "gpusPerRank":1`, tc.counts, 1) + "]"
			if r := one(t, text, Options{}); r.Ranks != tc.ranks || len(r.Warnings) != 0 {
				t.Errorf("%d ranks, expected %d; %q", r.Ranks, tc.ranks, r.Warnings)
			}
		})
	}
}

func TestRCCLTestsJSONCut(t *testing.T) {
	text := "[\n" + entry("AllReduce", "float", "sum", "0", "0") + ",\n" +
		entry("AllReduce", "float", "sum", "1", "0") + "\n]\n"
	for _, at := range []int{len(text) - 2, len(text) - 20, strings.Index(text, ",\n{") + 1} {
		r := one(t, text[:at], Options{})
		if r.Failure == nil || len(r.Results) < 1 {
			t.Errorf("cut at %d of %d: failure %v, %d results", at, len(text), r.Failure, len(r.Results))
		}
	}
	for _, bad := range []string{"[", "[]", "[{}]", `[{"name":"AllReduce"}]`, `[1,2]`,
		"[" + entry("AllReduce", "float", "sum", "0", "many") + "]", "{", "{}", `{"a":1}`, "[{"} {
		if reports, err := Parse("in", strings.NewReader(bad), Options{Format: JSON}); err == nil {
			t.Errorf("%s: %+v", bad, reports)
		}
	}
}

func TestRCCLTestsJSONLeftOut(t *testing.T) {
	text := "[" + strings.Join([]string{entry("Gather", "float", "none", "0", "0"),
		entry("AllReduce", "uint8", "sum", "0", "0"), entry("AllReduce", "float", "sum", "0", "0")}, ",") + "]"
	reports := parse(t, text, Options{})
	if len(reports) != 2 || len(reports[0].Results) != 0 ||
		!warned(reports[0], "the collective of Gather is not known") || len(reports[1].Results) != 1 ||
		!warned(reports[1], `datatype "uint8"`) {
		t.Errorf("%+v", reports)
	}
}

// ncclObject is nccl-tests' -J over MPI with two processes of two GPUs.
func ncclObject(result string) string {
	return `{"version":3,"start_time":"2026-11-28 03:32:26","args":["build\/all_reduce_perf","-g","2"],"env":["A=b"],"nccl_version":22809,` +
		`"config":{"nthreads":1,"ngpus":2,"minimum_bytes":8,"maximum_bytes":8,"step_factor":2,"warmup_iters":1,"iterations":20,"aggregated_iterations":2,` +
		`"validation":1,"graph":0,"devices":[{"rank":0,"group":0,"pid":1,"hostname":"a","device":0,"device_hex":"0000:01:00","device_info":"X"},` +
		`{"rank":2,"group":0,"pid":2,"hostname":"b","device":0,"device_hex":"0000:01:00","device_info":"X"},` +
		`{"rank":0,"group":1,"pid":3,"hostname":"c","device":0,"device_hex":"0000:01:00","device_info":"X"}]},` +
		`"results":[` + result +
		`],"out_of_bounds":{"count":0,"okay":"true"},"errors":["something old"],"end_time":"2026-11-28 03:32:29"}`
}

func ncclResult(out, in string) string {
	return `{"size":1048576,"count":262144,"type":"float","redop":"sum","root":"    -1","out_of_place":` + out +
		`,"in_place":` + in + `}`
}

const ncclTimes = `{"time":41.270000,"alg_bw":25.407705,"bus_bw":38.111558,"nwrong":0.000000}`

func TestNCCLTestsJSON(t *testing.T) {
	r := one(t, ncclObject(ncclResult(ncclTimes, strings.Replace(ncclTimes, "0.000000}", "null}", 1))), Options{})
	if r.Ranks != 4 || r.Nodes != 2 || len(r.Results) != 2 || r.Failure != nil ||
		r.Results[0].Latency.IterationsPerRepeat != 40 || len(r.Devices) != 0 {
		t.Fatalf("%+v", r)
	}
	if _, checked := r.Results[1].Wrong(); checked {
		t.Error("null was taken for checked")
	}
	if !warned(r, "something old") || !warned(r, "1 of 2 results were not checked") {
		t.Errorf("%q", r.Warnings)
	}
	// A placement that was not run is null.
	if r := one(t, ncclObject(ncclResult("null", ncclTimes)), Options{}); len(r.Results) != 1 ||
		r.Results[0].Placement != rcclx.InPlace {
		t.Errorf("%+v", r.Results)
	}
	if r := one(t, ncclObject(ncclResult(strings.Replace(ncclTimes, "time", "cpu_time", 1), "null")),
		Options{}); len(r.Results) != 0 || !warned(r, "CPU time") {
		t.Errorf("%+v", r)
	}
	if r := one(t, ncclObject(ncclResult(strings.Replace(ncclTimes, "25.407705", `"nan"`, 1), "null")),
		Options{}); len(r.Results) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestNCCLTestsJSONPerIteration(t *testing.T) {
	result := strings.TrimSuffix(ncclResult(ncclTimes, "null"), "}") +
		`,"out_of_place_per_iter":{"skipped_iterations":1,"min_us":40.1,"max_us":45.2,"avg_us":41.3,` +
		`"p50_us":41.0,"p95_us":44.0,"p99_us":45.0,"stdev_us":1.0,"cv_pct":2.5,"times_us":[60,40.1,45.2,41.0]}}`
	r := one(t, ncclObject(result), Options{})
	want := rcclx.LatencyStats{MedianNanoseconds: 41000, MinNanoseconds: 40100, MaxNanoseconds: 45200,
		P95Nanoseconds: 44000, CoefficientOfVariationPPM: 25000, Repeats: 3, IterationsPerRepeat: 1}
	if x := r.Results[0]; x.Latency != want || x.MeanLatencyNanoseconds != 41270 || x.AlgBandwidthMBps != 25575.024 ||
		x.MeanAlgBandwidthMBps != 25407.705 {
		t.Errorf("%+v", x)
	}
}

func TestNCCLTestsJSONCut(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "nccl-tests-2.19.6-all_reduce.json"))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.TrimSpace(data)
	before, _, found := bytes.Cut(data, []byte(`"out_of_bounds"`))
	if !found {
		t.Fatal("the file has no out_of_bounds")
	}
	first := bytes.Index(data, []byte(`"results": [`)) + len(`"results": [`)
	for _, at := range []int{first, first + 10, first + 2000, len(before), len(data) - 1} {
		reports, err := Parse("in", bytes.NewReader(data[:at]), Options{})
		if err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
		if r := reports[0]; r.Failure == nil || r.Ranks != 2 || r.Library == nil {
			t.Errorf("cut at %d of %d: %+v", at, len(data), r)
		}
	}
	if reports, _ := Parse("in", bytes.NewReader(before), Options{}); len(reports[0].Results) != 20 {
		t.Errorf("%d results before the cut, expected 20", len(reports[0].Results))
	}
}

// What agent bench and agent import write, import reads again unchanged.
func TestOwnReports(t *testing.T) {
	report := one(t, oldRun(), Options{Collective: rcclx.AllReduce})
	report.Source, report.Input = results.SourceBench, ""
	for _, v := range []any{report, []results.Report{report, report}} {
		var b bytes.Buffer
		if err := results.WriteJSON(&b, v); err != nil {
			t.Fatal(err)
		}
		back := parse(t, b.String(), Options{})
		for i := range back {
			if !strings.HasPrefix(back[i].Input, "in") {
				t.Errorf("input %q", back[i].Input)
			}
			back[i].Input = ""
			if fmt.Sprintf("%+v", back[i]) != fmt.Sprintf("%+v", report) {
				t.Errorf("got  %+v\nwant %+v", back[i], report)
			}
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{"[" + entry("AllReduce", "float", "sum", "0", "0") + "]",
		ncclObject(ncclResult(ncclTimes, "null")), "[]", "{}", `{"results":[{"size":1,"count":1}]}`,
		`{"source":"agent bench","results":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reports, err := Parse("in", strings.NewReader(text), Options{Format: JSON})
		if err != nil {
			return
		}
		if reports[0].Source == results.SourceBench { // taken as it is
			return
		}
		for _, r := range reports {
			if bytes.Contains([]byte(text), []byte(`"source"`)) {
				return
			}
			sane(t, []results.Report{r})
		}
	})
}
