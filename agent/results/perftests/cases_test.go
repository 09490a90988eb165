package perftests

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// want is the right reading of one run.
type want struct {
	source     string
	version    string // of the program
	collective rcclx.Collective
	ranks      int
	results    int
	code       int // of the library
	flavor     rcclx.Flavor
	checked    int // results
	wrong      int64
	fails      string // part of the failure; empty for none
	warns      string
}

// The inputs are made up in the forms of public reports (testdata/README.md).
func TestCases(t *testing.T) {
	const r, n = results.SourceRCCLTests, results.SourceNCCLTests
	const dev, newer = "develop:1a2b3c4", "2.17.9-develop:1a2b3c4d5e"
	full := want{source: r, version: dev, collective: rcclx.AllReduce, ranks: 16, results: 6, checked: 6, code: 22606,
		flavor: rcclx.FlavorUnknown}
	eight := want{source: r, version: dev, collective: rcclx.AllReduce, ranks: 8, results: 6, checked: 6}
	with := func(w want, change func(*want)) want { change(&w); return w }
	for file, tc := range map[string]struct {
		collective rcclx.Collective
		runs       []want
	}{
		"01-rccl-tests-2.17.9-banner-input.txt": {"", []want{{source: r, version: newer,
			collective: rcclx.AllReduce, ranks: 8, results: 6, checked: 6, code: 22707,
			flavor: rcclx.FlavorUnknown, warns: "headers of version code 22803, and the library is 22707"}}},
		"01-rccl-tests-2.17.9-banner-first-crashed-then-alltoall.txt": {"", []want{
			{source: r, version: newer, collective: rcclx.AllReduce, ranks: 8, results: 6, checked: 6, code: 22707,
				flavor: rcclx.FlavorUnknown, fails: "ends after 3 rows"},
			{source: r, version: newer, collective: rcclx.AllToAll, ranks: 8, results: 6, checked: 3, code: 22707,
				flavor: rcclx.FlavorUnknown}}},
		"02-nccl-tests-2.20-hash-input.txt": {"", []want{{source: n, version: "2.20.0", collective: rcclx.AllReduce,
			ranks: 2, results: 6, checked: 6, code: 23102, flavor: rcclx.FlavorNCCL}}},
		"03-old-2.x-no-root-error-column-input.txt": {rcclx.AllReduce,
			[]want{{source: r, collective: rcclx.AllReduce, results: 8,
				warns: "8 of 8 results were not checked (this version prints the largest error"}}},
		"03-old-2.x-no-root-error-column-with-devices.txt": {rcclx.AllReduce,
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 16, results: 8}}},
		"04-old-alltoall-blank-redop-input.txt": {rcclx.AllToAll,
			[]want{{source: r, collective: rcclx.AllToAll, ranks: 8, results: 8,
				warns: "2 results left out: an empty call"}}},
		"05-old-reduce-root-error-NA-input.txt": {rcclx.Reduce,
			[]want{{source: r, collective: rcclx.Reduce, ranks: 8, results: 8}}},
		"06-hash-marks-lost-input.txt": {rcclx.AllReduce,
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 8, results: 6, checked: 6, warns: "the # before"}}},
		"09-kubectl-timestamps-input.txt":                 {"", []want{full}},
		"09-kubectl-timestamps-prefix.txt":                {"", []want{full}},
		"09-kubectl-timestamps-prefix-timestamps-mpi.txt": {"", []want{full}},
		"09-kubectl-timestamps-stern.txt":                 {"", []want{full}},
		"24-powershell-utf16-input.txt":                   {"", []want{full}},
		"11-enroot-sbatch-output-input.txt":               {"", []want{full}},
		"12-empty-device-name-input.txt":                  {"", []want{full}},
		"13-unchecked-c0-input.txt": {"", []want{with(full, func(w *want) {
			w.checked, w.warns = 0, "6 of 6 results were not checked (#wrong is N/A)"
		})}},
		"14-nompi-build-under-mpirun-input.txt": {"",
			[]want{{source: r, version: dev, collective: rcclx.AllReduce, ranks: 1, results: 12, checked: 12,
				fails: "rank 0 is listed twice (pids 5001, 5002): the program was built without MPI"}}},
		"14-nompi-build-under-mpirun-one.txt": {"", []want{{source: r, version: dev, collective: rcclx.AllReduce,
			ranks: 1, results: 6, checked: 6, warns: "one rank communicates with nobody"}}},
		"16-wrong-nonzero-input.txt": {"", []want{with(eight, func(w *want) {
			w.results, w.checked, w.wrong, w.fails = 4, 4, 2261072, "values out of bounds: 3 FAILED"
		})}},
		"17-rccl-tests-csv-fixed.csv": {"",
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 8, results: 1, checked: 1}}},
		"17-rccl-tests-csv-misaligned.csv": {"",
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 8, results: 2, checked: 2}}},
		"17-rccl-tests-csv-old-nompi.csv": {"",
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 8, results: 1, checked: 1}}},
		"19-rccl-tests-json-list-2-nodes-input.json": {"",
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 16, results: 6, checked: 6}}},
		"19-rccl-tests-json-list-2-nodes-wrong.json": {"",
			[]want{{source: r, collective: rcclx.AllReduce, ranks: 16, results: 6, checked: 6, wrong: 24}}},
		"25-o-all-with-wrong-input.txt": {"", []want{with(eight, func(w *want) {
			w.results, w.checked, w.wrong, w.fails, w.warns = 22, 22, 8000000, "2 FAILED", `"mulsum"`
		})}},
		"26-hypercube-failed-input.txt": {"", []want{{source: r, version: dev, ranks: 4,
			fails: "out of bounds: 28 FAILED", warns: "4 results left out: the collective of hypercube_perf"}}},
		"26-hypercube-failed-sendrecv.txt": {"",
			[]want{with(eight, func(w *want) { w.collective, w.checked = rcclx.SendRecv, 3 })}},
		"28-rccl-tests-hip-event-column-input.txt": {"",
			[]want{with(eight, func(w *want) { w.version, w.code, w.flavor = newer, 22803, rcclx.FlavorUnknown })}},
		"28-rccl-tests-hip-event-column-na.txt": {"",
			[]want{with(eight, func(w *want) { w.version, w.code, w.flavor = newer, 22803, rcclx.FlavorUnknown })}},
		"29-two-2019-runs-input.txt": {"", []want{{source: r, collective: rcclx.AllReduce, ranks: 4, results: 4},
			{source: r, collective: rcclx.Broadcast, ranks: 4, results: 4}}},
		"31-wrong-row-damaged-input.txt": {"", []want{with(eight, func(w *want) {
			w.results, w.checked, w.fails, w.warns = 4, 4, "out of bounds: 2 FAILED", "1 row is damaged"
		})}},
		"32-min-bw-failed-input.txt": {"",
			[]want{with(eight, func(w *want) { w.fails = "check of the bus bandwidth failed: 112.5 GB/s" })}},
		"35-old-all-gather-no-redop-column-input.txt": {"",
			[]want{{source: r, collective: rcclx.AllGather, results: 6}}},
	} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("..", "testdata", "cases", file))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, parse(t, string(data), Options{Collective: tc.collective}), tc.runs)
		})
	}
}

func compare(t *testing.T, reports []results.Report, runs []want) {
	t.Helper()
	if len(reports) != len(runs) {
		t.Fatalf("%d runs, expected %d: %+v", len(reports), len(runs), reports)
	}
	for i, r := range reports {
		w := runs[i]
		got := want{source: r.Source, version: r.Format.Version, ranks: r.Ranks, results: len(r.Results),
			warns: w.warns, fails: w.fails}
		if r.Library != nil {
			got.code, got.flavor = r.Library.VersionCode, r.Library.Flavor
		}
		for _, x := range r.Results {
			got.collective = x.Collective
			wrong, checked := x.Wrong()
			got.wrong += wrong
			if checked {
				got.checked++
			}
		}
		if got != w {
			t.Errorf("run %d:\ngot  %+v\nwant %+v", i+1, got, w)
		}
		if r.Format.Form == "" {
			t.Error("the format is not named")
		}
		if !warned(r, w.warns) || w.warns != "1 row is damaged" && warned(r, "damaged") {
			t.Errorf("run %d: warnings %q, expected %q", i+1, r.Warnings, w.warns)
		}
		if (r.Failure == nil) != (w.fails == "") || r.Failure != nil && !strings.Contains(r.Failure.Message, w.fails) {
			t.Errorf("run %d: failure %+v, expected %q", i+1, r.Failure, w.fails)
		}
	}
}

// Each prefix alone, and any two one before the other, with a log in the middle of a row.
func TestPrefixes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "cases", "11-enroot-sbatch-output-input.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "   71.40", "\nnode-a:12:34 [0] NCCL INFO Channel 00/32\n   71.40", 1)
	prefixes := []string{"", "2026-11-03T10:12:10.123456789Z ", "[pod/a-0/launcher] ", "a-x7k2p launcher ",
		"launcher-1  | ", "(RayWorker pid=4100, ip=10.0.0.1) ", "[prterun-a-1@1,0]<stdout>: ",
		"[1,0]<stdout>:", "0: ", " 0: ", "Nov  3 10:12:10 node-a rccl[4100]: ", "\t    ",
		"\x1b[36m(main pid=1)\x1b[0m ", "[2026-11-03 10:12:10,123] ", "node-a: ", "[default0]:", "[0] ", "10%\r"}
	for _, outer := range prefixes {
		for _, inner := range prefixes {
			prefix := outer + inner
			in := prefix + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\r\n"+prefix) + "\r\n"
			reports, err := Parse("in", strings.NewReader(in), Options{})
			if err != nil {
				t.Errorf("%q: %v", prefix, err)
				continue
			}
			if r := reports[0]; len(reports) != 1 || len(r.Results) != 6 || r.Ranks != 16 || r.Failure != nil ||
				r.Library == nil || r.Library.VersionCode != 22606 {
				t.Errorf("%q: %d runs, %d results, %d ranks, failure %+v, library %+v, warnings %q",
					prefix, len(reports), len(r.Results), r.Ranks, r.Failure, r.Library, r.Warnings)
			}
		}
	}
}

// Two pods' logs, line by line: each is a run of its own.
func TestStreams(t *testing.T) {
	a := strings.SplitAfter("# Collective test starting: all_reduce_perf\n"+oldRun(), "\n")
	b := strings.SplitAfter("# Collective test starting: all_gather_perf\n"+
		strings.Replace(oldRun(), "values : 0 OK", "values : 4 FAILED", 1), "\n")
	var in strings.Builder
	for i := range len(a) - 1 {
		in.WriteString("[pod/a/x] 2026-11-03T10:12:10.1Z " + a[i] + "[pod/b/x] 2026-11-03T10:12:10.12Z " + b[i])
	}
	reports := parse(t, in.String(), Options{})
	if len(reports) != 2 || reports[0].Failure != nil || reports[0].Results[0].Collective != rcclx.AllReduce ||
		len(reports[0].Results) != 6 || reports[1].Failure == nil ||
		reports[1].Results[0].Collective != rcclx.AllGather || len(reports[1].Results) != 6 {
		t.Errorf("%+v", reports)
	}
}

// What the program itself calls wrong fails the run, in whatever form it says so.
func TestFailsClosed(t *testing.T) {
	whole := "# Collective test starting: all_reduce_perf\n" + oldRun()
	noRows := strings.Replace(whole, oldRows, "", 1)
	object := ncclObject(ncclResult(ncclTimes, "null"))
	for name, tc := range map[string]struct{ text, want string }{
		"counter":       {strings.Replace(whole, "values : 0 OK", "values : 1 FAILED", 1), "out of bounds: 1 FAILED"},
		"counter alone": {strings.Replace(whole, "values : 0 OK", "values : 7", 1), "out of bounds: 7"},
		"counter without row": {strings.Replace(noRows, "values : 0 OK", "values : 7 FAILED", 1),
			"out of bounds: 7 FAILED"},
		"counter too large": {strings.Replace(whole, "values : 0 OK", "values : 99999999999999999999 FAILED", 1),
			"out of bounds: 99999999999999999999 FAILED"},
		"counter overflowed": {strings.Replace(whole, "values : 0 OK", "values : -2147483648 FAILED", 1),
			"out of bounds: -2147483648 FAILED"},
		"counter of a cut": {strings.Replace(whole, "values : 0 OK\n# Avg bus bandwidth    : 171.387 \n",
			"values : 3 FAILED\n", 1), "out of bounds: 3 FAILED, expected 0; the output of all_reduce_perf ends"},
		"bandwidth": {strings.Replace(whole, "171.387 ", "171.387 FAILED", 1), "bus bandwidth failed: 171.387 GB/s"},
		"type left out": {strings.ReplaceAll(strings.Replace(whole, "44.46      0", "44.46      5", 1), "float",
			"uint8"), "1 result has wrong elements, though left out"},
		"damaged, no counter": {strings.Replace(strings.Replace(whole, "44.46      0", "44.46 log", 1),
			"# Out of bounds values : 0 OK\n", "", 1), "is missing"},
		"asterisk": {strings.Replace(strings.ReplaceAll(whole, "#wrong", " error"), "44.46      0", "44.46  2e-01*", 1),
			"an error over the program's own limit"},
		"not a number": {strings.Replace(strings.ReplaceAll(whole, "#wrong", " error"), "44.46      0",
			"44.46  nan", 1), "an error over the program's own limit"},
		"-J counter": {strings.Replace(object, `"count":0,"okay":"true"`, `"count":2,"okay":"false"`, 1),
			"out of bounds: 2 FAILED"},
		"-J bandwidth": {strings.Replace(object, `"errors"`,
			`"average_bus_bandwidth":{"bandwidth":12.500000,"okay":"false"},"errors"`, 1),
			"bus bandwidth failed: 12.5 GB/s"},
		"-J type left out": {strings.Replace(strings.Replace(object, `"float"`, `"uint8"`, 1), `"nwrong":0.0`,
			`"nwrong":3.0`, 1), "1 result has wrong elements"},
		"list, left out":  {"[" + entry("AllReduce", "uint8", "sum", "0", "9") + "]", "1 result has wrong elements"},
		"lines, left out": {entry("Gather", "float", "none", "0", "9") + "\n", "1 result has wrong elements"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := one(t, tc.text, Options{}); r.Good() || r.Failure == nil ||
				!strings.Contains(r.Failure.Message, tc.want) {
				t.Errorf("failure %+v, expected %q", r.Failure, tc.want)
			}
		})
	}
}

func TestJSONLines(t *testing.T) {
	a, b := entry("AllReduce", "float", "sum", "0", "0"), entry("AllReduce", "float", "sum", "1", "0")
	old := strings.NewReplacer(`"name"`, `"collective"`, `"ranksPerNode"`, `"rankspernode"`, `"algBw"`, `"algbw"`,
		`"wrong"`, `"#wrong"`).Replace(a)
	for name, tc := range map[string]struct {
		text          string
		runs, results int
		fails         bool
	}{
		"lines":     {a + "\n" + b + "\n", 1, 2, false},
		"commas":    {a + ",\n" + b + ",\n", 1, 2, false},
		"old names": {old + "\n", 1, 1, false},
		"cut":       {a + "\n" + b[:40], 1, 1, true},
		"two runs":  {a + "\n" + b + "\n" + a + "\n" + b + "\n", 2, 2, false},
	} {
		reports := parse(t, tc.text, Options{})
		if r := reports[0]; len(reports) != tc.runs || len(r.Results) != tc.results || (r.Failure != nil) != tc.fails ||
			r.Format.Form != "json lines" || r.Ranks != 8 {
			t.Errorf("%s: %+v", name, reports)
		}
	}
	// rccl-tests' -J names its library by another key.
	r := one(t, strings.Replace(ncclObject(ncclResult(ncclTimes, "null")), "nccl_version", "rccl_version", 1),
		Options{})
	if r.Source != results.SourceRCCLTests || r.Library.Flavor != rcclx.FlavorUnknown ||
		r.Library.VersionCode != 22809 {
		t.Errorf("%s, %+v", r.Source, r.Library)
	}
}

// A start that got nowhere is not hidden by the one after it, and a rank that is seen again begins another run.
func TestBoundaries(t *testing.T) {
	start := "# Collective test starting: all_reduce_perf\n"
	reports := parse(t, start+oldParams+start+oldRun(), Options{})
	if len(reports) != 2 || reports[0].Failure == nil ||
		!strings.Contains(reports[0].Failure.Message, "before its first row") || reports[1].Failure != nil ||
		len(reports[1].Results) != 6 {
		t.Errorf("a crash before the devices: %+v", reports)
	}
	reports = parse(t, devices(1)+oldHeader+oldRows+oldTrailer+devices(2)+oldHeader+oldRows+oldTrailer,
		Options{Collective: rcclx.AllReduce})
	if len(reports) != 2 || reports[0].Ranks != 8 || reports[1].Ranks != 8 || reports[1].Nodes != 2 ||
		len(reports[1].Results) != 6 {
		t.Errorf("without first lines: %+v", reports)
	}
	// Two processes without MPI, the second's first lines after the first's devices.
	alone := start + oldParams + "#  Rank  0 Group  0 Pid     PID on     node-a device  0 [0000:05:00] X\n"
	row := strings.SplitAfter(oldRows, "\n")[0]
	reports = parse(t, strings.Replace(alone, "PID", "11", 1)+strings.Replace(alone, "PID", "12", 1)+oldHeader+
		oldHeader+row+row+oldTrailer+oldTrailer, Options{})
	if len(reports) != 1 || reports[0].Ranks != 1 || reports[0].Failure == nil ||
		!strings.Contains(reports[0].Failure.Message, "rank 0 is listed twice (pids 11, 12)") {
		t.Errorf("without MPI: %+v", reports)
	}
	if _, err := Parse("in", strings.NewReader("#   bytes   N    type   op    time  algbw  busbw   res\n 8 2 float "+
		"sum 0.025 0.00 0.00 0e+00\n"), Options{}); err == nil || !strings.Contains(err.Error(), "before 2019") {
		t.Errorf("2017: %v", err)
	}
}

func TestDecode(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, mark := range []string{"", "\ufeff"} {
			var data []byte
			for _, unit := range utf16.Encode([]rune(mark + "# µ")) {
				data = order.AppendUint16(data, unit)
			}
			if got := decode(data); !bytes.Equal(got, []byte("# µ")) {
				t.Errorf("%v %q: %q", order, mark, got)
			}
		}
	}
}
