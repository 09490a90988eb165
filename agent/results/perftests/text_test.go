package perftests

import (
	"fmt"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// The samples below follow the format of the programs' code; their numbers are made up, but fit one another.
const (
	oldParams = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 268435456 step: 16(factor) warmup iters: 5 iters: " +
		"20 agg iters: 1 validation: 1 graph: 0\n"
	twoBlocks = "#                                                              out-of-place                       " +
		"in-place          \n"
	oldHeader = "#\n" + twoBlocks +
		"#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   " +
		"busbw #wrong\n" +
		"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  " +
		"(GB/s)  (GB/s)       \n"
	oldRows = "     1048576        262144     float     sum      -1    41.27   25.41   44.46      0    40.88   " +
		"25.65   44.89      0\n" +
		"    16777216       4194304     float     sum      -1    182.4   91.98  160.97      0    180.9   92.74  " +
		"162.30      0\n" +
		"   268435456      67108864     float     sum      -1   1530.2  175.43  307.00      0   1521.7  " +
		"176.40  308.71      0\n"
	oldTrailer = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n" +
		"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 171.387 \n#\n\n"
)

// devices of eight ranks as the older rccl-tests print them, over nodes.
func devices(nodes int) string {
	const n = 8
	var b strings.Builder
	b.WriteString("# Using devices\n")
	for r := range n {
		fmt.Fprintf(&b, "#   Rank %2d Pid %6d on %10s device %2d [0000:%02x:00.0] AMD Instinct MI300X\n",
			r, 1000+r, fmt.Sprintf("node-%d", r*nodes/n), r, 5+r)
	}
	return b.String()
}

func oldRun() string {
	return oldParams + "#\nrccl-tests: Version develop:deadbee\n" + devices(1) + oldHeader + oldRows + oldTrailer
}

func parse(t *testing.T, text string, o Options) []results.Report {
	t.Helper()
	reports, err := Parse("in", strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

func one(t *testing.T, text string, o Options) results.Report {
	t.Helper()
	reports := parse(t, text, o)
	if len(reports) != 1 {
		t.Fatalf("%d reports, expected 1: %+v", len(reports), reports)
	}
	return reports[0]
}

func warned(r results.Report, want string) bool {
	return strings.Contains(strings.Join(r.Warnings, "\n"), want)
}

func TestOldRCCLTests(t *testing.T) {
	r := one(t, oldRun(), Options{Collective: rcclx.AllReduce})
	if r.Source != results.SourceRCCLTests || r.Ranks != 8 || r.Nodes != 1 || len(r.Results) != 6 || r.Failure != nil ||
		len(r.Warnings) != 0 {
		t.Fatalf("%+v", r)
	}
	want := results.Result{Collective: rcclx.AllReduce, Datatype: rcclx.Float32, Op: "Sum", Placement: rcclx.OutOfPlace,
		SizeBytes: 1 << 20, CountElements: 262144, Latency: rcclx.LatencyStats{IterationsPerRepeat: 20},
		MeanLatencyNanoseconds: 41270, AlgBandwidthMBps: 25407.705, BusBandwidthMBps: 44463.484,
		MeanAlgBandwidthMBps: 25407.705, MeanBusBandwidthMBps: 44463.484}
	got := r.Results[0]
	if len(got.Checks) != 1 || got.Checks[0].CheckedElements != 8*262144 {
		t.Errorf("checks %+v", got.Checks)
	}
	got.Checks = nil
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if r := one(t, strings.Replace(oldRun(), devices(1), devices(2), 1),
		Options{Collective: rcclx.AllReduce}); r.Ranks != 8 || r.Nodes != 2 {
		t.Errorf("%d ranks over %d nodes", r.Ranks, r.Nodes)
	}
	if r.Devices[7].PCIAddress != "0000:0c:00.0" || r.Devices[7].Name != "AMD Instinct MI300X" {
		t.Errorf("device %+v", r.Devices[7])
	}
}

func TestCollectiveName(t *testing.T) {
	if r := one(t, oldRun(), Options{}); len(r.Results) != 0 || !warned(r, "6 results left out: no program name") ||
		!warned(r, "give --collective") {
		t.Errorf("without a name: %d results, %q", len(r.Results), r.Warnings)
	}
	r := one(t, "+ mpirun -np 8 ./build/all_reduce_perf -b 1M\n"+oldRun(), Options{})
	if len(r.Results) != 6 || !warned(r, "all_reduce_perf is taken from line 1") {
		t.Errorf("with a command line: %d results, %q", len(r.Results), r.Warnings)
	}
	// A name that cannot be is seen in the bandwidths.
	if r := one(t, oldRun(), Options{Collective: rcclx.AllGather}); !warned(r,
		"6 bus bandwidths do not fit AllGather over 8 ranks") || r.Results[0].BusBandwidthMBps != 44460 {
		t.Errorf("with a wrong name: %q, %+v", r.Warnings, r.Results[0])
	}
	if r := one(t, "# Collective test starting: reduce_perf\n"+oldRun(),
		Options{Collective: rcclx.AllGather}); !warned(r, "--collective AllGather is not used") ||
		r.Results[0].Collective != rcclx.Reduce {
		t.Errorf("with another name: %q", r.Warnings)
	}
	// The command of an earlier run names no later one.
	two := parse(t, "+ ./all_reduce_perf\n"+oldRun()+oldRun(), Options{})
	if len(two) != 2 || len(two[0].Results) != 6 || len(two[1].Results) != 0 || two[1].Input != "in#2" {
		t.Errorf("two runs: %+v", two)
	}
	two = parse(t, "+ ./all_reduce_perf\n"+oldRun()+"+ ./all_gather_perf\n"+oldRun(), Options{})
	if len(two) != 2 || two[1].Results[0].Collective != rcclx.AllGather {
		t.Errorf("two named runs: %+v", two)
	}
}

// newRun is the newer rccl-tests: on gfx942 its first line has no newline before the next one.
func newRun(flags, rows string) string {
	return "On gfx942 architecture, using FNUZ FP8 types# Collective test starting: all_reduce_perf\n" + oldParams +
		"#\nrccl-tests: Version develop:deadbee\n# Using devices\n" +
		"#  Rank  0 Group  0 Pid     11 on     node-a device  0 [0000:05:00] AMD Instinct MI300X\n" +
		"#  Rank  1 Group  0 Pid     12 on     node-b device  0 [0000:05:00] AMD Instinct MI300X\n" +
		flags + rows + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1 \n#\n" +
		"# Collective test concluded: all_reduce_perf\n\n"
}

func TestNewRCCLTests(t *testing.T) {
	head := func(blocks, columns string) string {
		return "#\n#" + blocks + "\n#       size         count      type   redop    root" + columns +
			"\n#        (B)    (elements)\n"
	}
	const block = "     time   algbw   busbw #wrong"
	rows := func(tail string) string {
		return "     1048576        524288  bfloat16     sum      -1    41.27   25.41   25.41" + tail + "\n"
	}
	for name, tc := range map[string]struct {
		header, rows string
		placements   []rcclx.Placement
		checked      bool
	}{
		"out of place only": {head("  out-of-place", block), rows("      0"),
			[]rcclx.Placement{rcclx.OutOfPlace}, true},
		"in place only": {head("  in-place", block), rows("      0"), []rcclx.Placement{rcclx.InPlace}, true},
		"unchecked":     {head("  out-of-place", block), rows("    N/A"), []rcclx.Placement{rcclx.OutOfPlace}, false},
		"-M": {head("  out-of-place", block+"     algo     proto   nchannels"),
			rows("      0    Ring    Simple          32"), []rcclx.Placement{rcclx.OutOfPlace}, true},
		"-M glued": {head("  out-of-place", block+"     algo     proto   nchannels"),
			rows("      0NVLSTree    Simple          32"), []rcclx.Placement{rcclx.OutOfPlace}, true},
		"-M unknown": {head("  out-of-place", block+"     algo     proto   nchannels"),
			rows("    N/A     N/A       N/A         N/A"), []rcclx.Placement{rcclx.OutOfPlace}, false},
		"timestamp": {head("  out-of-place", block+"  timestamp"), rows("      0  2026-11-28 03:32:26"),
			[]rcclx.Placement{rcclx.OutOfPlace}, true},
		"both": {head("  out-of-place   in-place", block+block), rows("      0    41.27   25.41   25.41    N/A"),
			[]rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := one(t, newRun(tc.header, tc.rows), Options{})
			if r.Ranks != 2 || r.Nodes != 2 || r.Failure != nil || len(r.Results) != len(tc.placements) {
				t.Fatalf("%+v", r)
			}
			for i, p := range tc.placements {
				if r.Results[i].Placement != p || r.Results[i].Collective != rcclx.AllReduce ||
					r.Results[i].MeanLatencyNanoseconds != 41270 {
					t.Errorf("%+v", r.Results[i])
				}
			}
			if _, checked := r.Results[0].Wrong(); checked != tc.checked {
				t.Errorf("checked %v, expected %v", checked, tc.checked)
			}
		})
	}
}

func TestWrongElements(t *testing.T) {
	rows := strings.Replace(oldRows, "44.46      0", "44.46  1e+03", 1)
	r := one(t, oldParams+devices(1)+oldHeader+rows+oldTrailer, Options{Collective: rcclx.AllReduce})
	if wrong, checked := r.Results[0].Wrong(); wrong != 1000 || !checked || r.Good() {
		t.Errorf("%d wrong, checked %v, good %v", wrong, checked, r.Good())
	}
	r = one(t, oldParams+devices(1)+oldHeader+oldRows+
		strings.Replace(oldTrailer, "values : 0 OK", "values : 3 FAILED", 1), Options{Collective: rcclx.AllReduce})
	if r.Failure == nil || !strings.Contains(r.Failure.Message, "counts values out of bounds: 3 FAILED") ||
		len(r.Results) != 6 {
		t.Errorf("failure %+v", r.Failure)
	}
}

// A debug log between and within the rows costs nothing that can still be told apart.
func TestInterleavedLogs(t *testing.T) {
	const log = "node-a:12:34 [0] NCCL INFO Channel 00/32 : 0 1 2 3\n"
	cut := func(at int) string { return oldRows[:at] + log + oldRows[at:] }
	inRow := strings.Index(oldRows, "    41.27")
	afterBlock := strings.Index(oldRows, "    40.88")
	inWord := strings.Index(oldRows, "1.27")
	_, others, _ := strings.Cut(oldRows, "\n")
	for name, tc := range map[string]struct {
		rows    string
		results int
		warning string
	}{
		"between":     {log + strings.ReplaceAll(oldRows, "\n", "\n"+log), 6, "4 lines of other programs"},
		"after root":  {cut(inRow), 6, ""},
		"after block": {cut(afterBlock), 6, ""},
		"at the end":  {strings.Replace(oldRows, "44.89      0\n", "44.89      0"+log, 1), 6, ""},
		// Half a number cannot be told from a whole one; size, time and bandwidth then contradict each other.
		"in a word": {cut(inWord), 4, "1 row is damaged"},
		// The rest never comes: the next row begins.
		"lost": {oldRows[:afterBlock] + log + others, 5, "1 row is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			r := one(t, oldParams+devices(1)+oldHeader+tc.rows+oldTrailer, Options{Collective: rcclx.AllReduce})
			if len(r.Results) != tc.results || !warned(r, tc.warning) || r.Failure != nil {
				t.Errorf("%d results, expected %d; warnings %q", len(r.Results), tc.results, r.Warnings)
			}
			for _, x := range r.Results {
				if wrong, _ := x.Wrong(); wrong != 0 {
					t.Errorf("wrong elements made up: %+v", x)
				}
			}
		})
	}
}

func TestCutOff(t *testing.T) {
	whole := oldParams + devices(1) + oldHeader + oldRows
	last := strings.LastIndex(whole, "   1521.7")
	for name, tc := range map[string]struct {
		text    string
		results int
		want    []string
	}{
		"in a row":       {whole[:last], 5, []string{"after 3 rows, the last of them float 268435456 B"}},
		"in a number":    {whole[:last+6], 5, []string{"after 3 rows"}},
		"before any row": {oldParams + devices(1), 0, []string{"before its first row"}},
		"with a reason": {whole + "node-a: Test NCCL failure common.cu:955 'remote process exited " +
			"or there was a network error / '\n .. node-a pid 1000: Test failure common.cu:1123\n",
			6, []string{"it says: node-a: Test NCCL failure common.cu:955"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := one(t, tc.text, Options{Collective: rcclx.AllReduce})
			if r.Failure == nil || r.Good() || len(r.Results) != tc.results {
				t.Fatalf("failure %v, %d results, expected %d", r.Failure, len(r.Results), tc.results)
			}
			for _, want := range tc.want {
				if !strings.Contains(r.Failure.Message, want) {
					t.Errorf("no %q in %q", want, r.Failure.Message)
				}
			}
		})
	}
}

func TestLeftOut(t *testing.T) {
	run := func(program, rows string) results.Report {
		return one(t, "# Collective test starting: "+program+"\n"+oldParams+devices(1)+oldHeader+rows+oldTrailer,
			Options{})
	}
	row := strings.SplitAfter(oldRows, "\n")[0]
	for name, tc := range map[string]struct {
		r    results.Report
		want string
	}{
		"gather": {run("gather_perf", row), "2 results left out: the collective of gather_perf is not known here"},
		"bias":   {run("all_reduce_bias_perf", row), "the collective of all_reduce_bias_perf is not known here"},
		"hypercube": {run("hypercube_perf", strings.Replace(row, "     sum", "        ", 1)),
			"2 results left out: the collective of hypercube_perf is not known here"},
		"uint8": {run("all_reduce_perf", strings.Replace(row, "float", "uint8", 1)),
			`2 results left out: datatype "uint8"`},
		"mulsum": {run("all_reduce_perf", strings.Replace(row, "   sum", "mulsum", 1)),
			`2 results left out: operation "mulsum"`},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tc.r.Results) != 0 || !warned(tc.r, tc.want) {
				t.Errorf("%d results, warnings %q", len(tc.r.Results), tc.r.Warnings)
			}
		})
	}
	cpu := strings.ReplaceAll(oldHeader, "   time ", "cputime ")
	r := one(t, "# Collective test starting: all_reduce_perf\n"+oldParams+devices(1)+cpu+oldRows+oldTrailer, Options{})
	if len(r.Results) != 0 || !warned(r, "CPU time") {
		t.Errorf("CPU time: %d results, %q", len(r.Results), r.Warnings)
	}
	// Before 2.11 the last column is an error, not a count.
	r = one(t, "# Collective test starting: all_reduce_perf\n"+oldParams+devices(1)+strings.ReplaceAll(oldHeader,
		"#wrong", " error")+strings.ReplaceAll(oldRows, "      0", "  5e-07")+oldTrailer, Options{})
	if _, checked := r.Results[0].Wrong(); len(r.Results) != 6 || checked {
		t.Errorf("error column: %+v", r.Results)
	}
}

func TestOtherCollectives(t *testing.T) {
	for program, tc := range map[string]struct {
		row  string
		want results.Key
	}{
		"sendrecv_perf": {"     1048576        262144     float     sum      -1",
			results.Key{Collective: rcclx.SendRecv, Datatype: rcclx.Float32, Op: "Sum"}},
		"reduce_perf": {"     1048576       1048576      int8     max       3",
			results.Key{Collective: rcclx.Reduce, Datatype: rcclx.Int8, Op: "Max", Root: 3}},
		"broadcast_perf": {"     1048576       1048576    f8e4m3    none       0",
			results.Key{Collective: rcclx.Broadcast, Datatype: rcclx.Float8E4M3}},
		"alltoallv_perf": {"     1048576        131072  fp8_e5m2    none      -1",
			results.Key{Collective: rcclx.AllToAllv, Datatype: rcclx.Float8E5M2}},
		"reduce_scatter_perf": {"     1048576         16384    double     avg      -1",
			results.Key{Collective: rcclx.ReduceScatter, Datatype: rcclx.Float64, Op: "Avg"}},
	} {
		t.Run(program, func(t *testing.T) {
			r := one(t, "# Collective test starting: "+program+"\n"+oldParams+devices(1)+oldHeader+
				tc.row+"    41.27   25.41   25.41      0    41.27   25.41   25.41      0\n"+oldTrailer, Options{})
			tc.want.Placement = rcclx.OutOfPlace
			if len(r.Results) != 2 || r.Results[0].Key() != tc.want {
				t.Errorf("%+v", r.Results)
			}
		})
	}
}

func TestGroupsAndLaunchers(t *testing.T) {
	// With NCCL_TESTS_SPLIT the rows are of the group of rank 0.
	split := "# Collective test starting: all_reduce_perf\n" + oldParams + "# Using devices\n"
	for r := range 4 {
		split += fmt.Sprintf("#  Rank %2d Group %2d Pid     11 on     node-a device %2d [0000:0%d:00] MI300X\n",
			r/2, r%2, r, r+1)
	}
	row := "     1048576        262144     float     sum      -1    41.27   25.41   25.41      0    41.27   " +
		"25.41   25.41      0\n"
	if r := one(t, split+oldHeader+row+oldTrailer, Options{}); r.Ranks != 2 || len(r.Warnings) != 0 {
		t.Errorf("split: %d ranks, %q", r.Ranks, r.Warnings)
	}
	for _, prefix := range []string{"[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0: "} {
		text := strings.ReplaceAll(strings.TrimSuffix(oldRun(), "\n"), "\n", "\n"+prefix)
		if r := one(t, prefix+text, Options{Collective: rcclx.AllReduce}); len(r.Results) != 6 || r.Ranks != 8 {
			t.Errorf("prefix %q: %d results, %d ranks", prefix, len(r.Results), r.Ranks)
		}
	}
}

func TestRowsAlone(t *testing.T) {
	r := one(t, oldRows, Options{Collective: rcclx.AllReduce})
	if len(r.Results) != 6 || r.Ranks != 0 || !warned(r, "there is no header before line 1") || r.Failure == nil {
		t.Fatalf("%+v", r)
	}
	// Without ranks the bus bandwidth is the printed one.
	if r.Results[0].BusBandwidthMBps != 44460 {
		t.Errorf("%+v", r.Results[0])
	}
}

func TestPerIteration(t *testing.T) {
	head := twoBlocks + "#       size         count      type   redop    root     time   algbw   busbw  #wrong    " +
		"i_min    i_max    i_p99    i_cv%\n"
	head = strings.Replace(head, "in-place", "        ", 1)
	head = strings.Replace(head, "out-of-        ", "out-of-place", 1)
	r := one(t, "# Collective test starting: all_reduce_perf\n"+oldParams+devices(1)+"#\n"+head+
		"     1048576        262144     float     sum      -1    41.27   25.41   44.46       0    40.10    45.20    "+
		"45.00     2.50\n"+oldTrailer, Options{})
	if len(r.Results) != 1 {
		t.Fatalf("%+v", r)
	}
	l := r.Results[0].Latency
	if l.MedianNanoseconds != 0 || r.Results[0].MeanLatencyNanoseconds != 41270 || l.MinNanoseconds != 40100 ||
		l.MaxNanoseconds != 45200 || l.P95Nanoseconds != 0 || l.CoefficientOfVariationPPM != 25000 || l.Repeats != 20 {
		t.Errorf("%+v", l)
	}
}

func TestNothingFound(t *testing.T) {
	for _, text := range []string{"", "hello\nworld\n", "12 34\n", "[0] NCCL INFO something\n", "\x00\x01\x02"} {
		if reports, err := Parse("in", strings.NewReader(text), Options{}); err == nil ||
			!strings.Contains(err.Error(), "in: ") {
			t.Errorf("%q: %v, error %v", text, reports, err)
		}
	}
}

func TestLibraryFromLog(t *testing.T) {
	r := one(t, "# Collective test starting: all_reduce_perf\nnode-a:402:402 [0] NCCL INFO RCCL version : "+
		"2.22.3-HEAD:271856d\nHIP version  : 6.4.43482\nLibrccl path : /opt/rocm/lib/librccl.so.1\n"+
		oldRun(), Options{})
	if r.Library == nil || r.Library.VersionCode != 22203 || r.Library.Path != "/opt/rocm/lib/librccl.so.1" ||
		r.Library.Flavor != rcclx.FlavorUnknown {
		t.Errorf("%+v", r.Library)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{oldRun(), newRun(oldHeader, oldRows), oldRows, oldParams,
		"1 2 float sum -1 3 4 5 0\n", "0: 1 1 int8 none -1 1e+99 N/A", "\xff\xfe#\x00",
		"numCycle,name,gpus,size,type,redop,inPlace,time,algBw,busBw,wrong\n0,AllReduce,8,64,float,sum,0,1,2,3,0\n",
		"a\r2026-11-03T10:12:10Z [x] # Rank 0 Pid 1 on a device 0 [1] X\n1 1 float N/A\n",
		"# size count type time algbw busbw error\n1 1 half 1 2 3 nan*\n",
		"x 1.2: # Out of bounds values : 1e+06 FAILED\n", "job\n1: " + entry("AllReduce", "float", "sum", "0", "0") +
			"\n2: {", "job\n1: name, gpus, size, type, redop, inplace, time, algbw, busbw, #wrong\n" +
			"2: \"AllReduce\", 8, 64, \"float\", \"sum\", 0, 1, 2, 3, \"0\"\n3: x,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []Format{Text, CSV, Auto} {
			reports, err := Parse("in", strings.NewReader(text), Options{Format: format, Collective: rcclx.AllReduce})
			if err == nil {
				sane(t, reports)
			}
		}
	})
}

// sane holds for whatever was read.
func sane(t *testing.T, reports []results.Report) {
	t.Helper()
	if len(reports) == 0 {
		t.Fatal("no error and no report")
	}
	for _, r := range reports {
		for _, x := range r.Results {
			wrong, _ := x.Wrong()
			if x.SizeBytes <= 0 || x.CountElements <= 0 || x.MeanLatencyNanoseconds < 0 ||
				wrong < 0 || x.Datatype.Bytes() == 0 || x.BusBandwidthMBps < 0 ||
				x.Placement != rcclx.OutOfPlace && x.Placement != rcclx.InPlace {
				t.Fatalf("%+v", x)
			}
		}
		var b strings.Builder
		if err := results.WriteCSV(&b, r); err != nil {
			t.Fatal(err)
		}
		if err := results.WriteTable(&b, results.TableOptions{}, r); err != nil {
			t.Fatal(err)
		}
		if err := results.WriteJSON(&b, r); err != nil {
			t.Fatal(err)
		}
	}
}
