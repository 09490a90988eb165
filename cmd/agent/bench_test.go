package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/bench"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simlib"
	"rcclx.io/commgroup-operator/internal/testenv"
	"rcclx.io/commgroup-operator/rcclx"
)

// simulatedMachine makes this process's machine a simulated one, and gives the rank binary.
func simulatedMachine(t *testing.T, fault string) (rankBinary string) {
	t.Helper()
	libraries, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := testenv.Programs()
	if err != nil {
		t.Fatal(err)
	}
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name, n.Fault = "node-a", fault
	root := t.TempDir()
	if err := nodetree.Write(root, n); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SIMROCM_ROOT", root)
	t.Setenv("LD_LIBRARY_PATH", libraries)
	return filepath.Join(programs, "rank")
}

func TestBenchForms(t *testing.T) {
	binary := simulatedMachine(t, "")
	common := []string{"bench", "--rank-binary", binary, "--ranks", "8", "--collectives", "AllReduce",
		"--sizes", "1K:1M:32", "--variants", "Baseline,DDA", "--iterations", "3", "--warmup", "1"}
	code, out, errs := runCommand(t, "", common...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"# agent bench ", "SIMULATED: no GPU was measured",
		"# Baseline AllReduce BFloat16 Sum OutOfPlace SIMULATED", "# DDA against Baseline: AllReduce",
		"dda.AllReduce requested Preferred: InEffect", "RCCL_DDA_NRANKS=8", "flavor simulated imitating rcclx-dev"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	rows := 0
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 15 && f[0] != "#" &&
			slices.Contains([]string{"1024", "32768", "1048576"}, f[0]) {
			rows++
			if f[2] != "BFloat16" || f[5] == "-" || f[12] != "0" {
				t.Errorf("row %q", line)
			}
		}
	}
	if rows != 6 {
		t.Errorf("%d rows, expected 6:\n%s", rows, out)
	}
	for _, want := range []string{"loading the library on 8 GPUs", "[1/6] Baseline AllReduce BFloat16 1024 B: ",
		"[6/6] DDA AllReduce BFloat16 1048576 B: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in the progress:\n%s", want, errs)
		}
	}

	code, out, errs = runCommand(t, "", append(common, "-o", "json", "-q")...)
	var report results.Report
	if err := json.Unmarshal([]byte(out), &report); code != 0 || errs != "" || err != nil || !report.Simulated ||
		len(report.Results) != 6 || report.Library == nil {
		t.Errorf("exit %d, %v, stderr %q:\n%s", code, err, errs, out)
	}
	code, out, errs = runCommand(t, "", append(common, "-o", "csv", "-q")...)
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if code != 0 || err != nil || len(records) != 7 || records[1][0] != "true" || !strings.Contains(errs, "SIMULATED") {
		t.Errorf("exit %d, %v, stderr %q:\n%s", code, err, errs, out)
	}
}

func TestBenchFails(t *testing.T) {
	binary := simulatedMachine(t, "wrong-data:1")
	code, out, errs := runCommand(t, "", "bench", "--rank-binary", binary, "--ranks", "2", "--sizes", "64K",
		"--iterations", "2", "-q")
	wrong := "wrong data: 1024 elements in 1 result, expected none; the first is Baseline AllReduce BFloat16 Sum " +
		"OutOfPlace 65536 B"
	if code != 1 || !strings.Contains(errs, wrong) || !strings.Contains(out, "Numeric errors") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
	code, out, errs = runCommand(t, "", "bench", "--rank-binary", filepath.Join(t.TempDir(), "none"), "--ranks", "2",
		"-q", "-o", "json")
	var report results.Report
	if err := json.Unmarshal([]byte(out), &report); code != 1 || err != nil || report.Failure == nil ||
		!strings.Contains(errs, "could not be started") {
		t.Errorf("exit %d, %v: %s\n%s", code, err, errs, out)
	}
	// What only the library can refuse is wrong usage, too.
	code, _, errs = runCommand(t, "", "bench", "--rank-binary", binary, "--ranks", "2", "--datatypes", "int8",
		"--data", "Gradients", "-q")
	if code != 2 || !strings.Contains(errs, "BadSpec") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// podWords are for those who have Kubernetes.
var podWords = regexp.MustCompile(
	`spec\.|runtime\.(pod|image)|benchmark\.|network\.|\b[Pp]ods?\b|\bimage\b|device plugin|CommGroup|nodeDeadlineSeconds`)

// TestBenchWithoutGPUs: the output begins with the cause, and lists nothing that only follows from it.
func TestBenchWithoutGPUs(t *testing.T) {
	programs, err := testenv.Programs()
	if err != nil {
		t.Fatal(err)
	}
	rankBinary := filepath.Join(programs, "rank")
	t.Setenv("LD_LIBRARY_PATH", t.TempDir())
	nvidia := map[string]string{"proc/driver/nvidia/gpus/0000:0a:00.0/information": "Model: NVIDIA H200\n"}
	for name, tc := range map[string]struct {
		files map[string]string
		want  string // of the line after the title
		next  string
		noGPU bool
	}{
		"nothing": {nil, "# FAILED: no GPU was found: KFD's topology shows no GPU",
			"Next: load the amdgpu driver", true},
		"AMD's driver": {map[string]string{"sys/module/amdgpu/version": "6.14.14\n"},
			"# FAILED: no GPU was found: KFD's topology shows no GPU", "Next: load the amdgpu driver", true},
		"GPUs of NVIDIA's": {nvidia, "# FAILED: node ",
			"machine's GPUs are NVIDIA's: give --library libnccl.so.2 --runtime libcudart.so", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tc.files {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("SIMROCM_ROOT", root)
			code, out, errs := runCommand(t, "", "bench", "--rank-binary", rankBinary, "--ranks", "1", "-q")
			lines := strings.Split(out, "\n")
			if code != 1 || len(lines) < 2 || !strings.HasPrefix(lines[1], tc.want) {
				t.Errorf("exit %d, expected 1 and %q in the second line of:\n%s", code, tc.want, out)
			}
			all := strings.Join(strings.Fields(strings.ReplaceAll(out+errs, "#", "")), " ")
			if strings.Contains(all, "Warning") || podWords.MatchString(all) || !strings.Contains(all, tc.next) {
				t.Errorf("expected no warning, no word for pods (%q) and %q in:\n%s\n%s",
					podWords.FindString(all), tc.next, out, errs)
			}
			cause := strings.TrimPrefix(lines[1], "# FAILED: ")
			if strings.Count(all, cause) != 1 ||
				tc.noGPU && regexp.MustCompile(`probe|rank 0|LibraryMissing`).MatchString(all) {
				t.Errorf("expected %q once, and no consequence, in:\n%s\n%s", cause, out, errs)
			}
		})
	}
}

// TestBenchAdvisesFlags: who has no Kubernetes is told of flags, whatever is wrong.
func TestBenchAdvisesFlags(t *testing.T) {
	binary := simulatedMachine(t, "die:1")
	common := []string{"bench", "--rank-binary", binary, "--ranks", "2", "--sizes", "64K", "--iterations", "2", "-q",
		"--variants", "Baseline,DDA", "--env", "RCCL_DDA_ENABLE=1"}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"a rank dies":     {nil, nil},
		"deadline passed": {[]string{"--deadline", "1ms"}, []string{"raise --deadline or measure fewer sizes"}},
		"library": {[]string{"--library", "/nonexistent/librccl.so.1"},
			[]string{"give --library and --runtime with the paths"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runCommand(t, "", append(common, tc.args...)...)
			all := strings.Join(strings.Fields(strings.ReplaceAll(out+errs, "#", "")), " ")
			if code != 1 || podWords.MatchString(all) {
				t.Errorf("exit %d, a word for pods is %q in:\n%s\n%s", code, podWords.FindString(all), out, errs)
			}
			for _, want := range tc.want {
				if !strings.Contains(all, want) {
					t.Errorf("no %q in:\n%s\n%s", want, out, errs)
				}
			}
		})
	}
	good := simulatedMachine(t, "")
	code, out, errs := runCommand(t, "", "bench", "--rank-binary", good, "--ranks",
		"2", "--sizes", "64K", "--iterations", "2", "-q", "--variants", "Baseline,DDA",
		"--env", "RCCL_DDA_ENABLE=1", "--env", "RCCL_DDA_NRANKS=4")
	all := strings.Join(strings.Fields(strings.ReplaceAll(out+errs, "#", "")), " ")
	for _, want := range []string{"RCCL_DDA_ENABLE: it is a switch of AMD's RCCL 2.30 and up; " +
		"measure --variants DDA instead", "is set for the variant instead", "(--ranks)",
		"to compare, give --datatypes Float32 --placements InPlace --sizes 8589934592"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code != 0 || podWords.MatchString(all) {
		t.Errorf("exit %d, a word for pods is %q in:\n%s\n%s", code, podWords.FindString(all), out, errs)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Setenv("SIMROCM_ROOT", t.TempDir()) // no GPU
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--sizes", "1K:1G"}, "MIN:MAX:FACTOR"},
		{[]string{"--sizes", "0"}, "empty call"},
		{[]string{"--sizes", "1MB"}, "1024"},
		{[]string{"--collectives", "gather"}, "--collectives: collective"},
		{[]string{"--datatypes", "fp8"}, "two forms"},
		{[]string{"--placements", "above"}, "--placements: placement"},
		{[]string{"--variants", "turbo"}, "--variants: "},
		{[]string{"--data", "random"}, "--data: "},
		{[]string{"--env", "FOO"}, "not NAME=VALUE"},
		{[]string{"--ranks", "-3"}, "-3 ranks"},
		{[]string{"--ranks", "2", "--devices", "0,1,2"}, "2 ranks on 3 devices"},
		{[]string{"--devices", "1,1"}, "each device once"},
		{[]string{"--iterations", "0"}, "0 iterations"},
		{[]string{"--step-deadline", "0s"}, "step deadline 0s"},
		{[]string{"--step-deadline", "soon"}, "invalid argument"},
		{[]string{"--dda-tree-max", "x"}, "--dda-tree-max"},
		{[]string{"--low-precision-collectives", "Broadcast"}, "has no FP8 transport"},
		{[]string{"-o", "xml"}, "table, json or csv"},
		{[]string{"--statistic", "mode"}, "--statistic"},
		{[]string{"--size", "1K"}, "unknown flag"},
		{[]string{"1K"}, "is no flag"},
		{[]string{}, "found no GPU"},
		{[]string{"--ranks", "8", "--collectives", "AllGather", "--sizes", "8"}, "nothing to measure"},
	} {
		code, out, errs := runCommand(t, "", append([]string{"bench"}, tc.args...)...)
		if code != 2 || !strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("%v: exit %d, stderr %q, stdout %q; expected exit 2 and %q", tc.args, code, errs, out, tc.want)
		}
	}
}

func TestBenchConfig(t *testing.T) {
	got := benchFlags{collectives: []string{"all"}, datatypes: []string{"bf16", "float", "BFloat16"},
		placements: []string{"both"}, variants: []string{"fp8", "baseline"},
		data: []string{"gradients"}, fp8: []string{"all_reduce"}, env: []string{"A=b=c", "E="},
		sizes: "1K:4K:2,1M", flatMax: "64K", treeMax: "64M", library: "libnccl.so.2", runtime: "libcudart.so",
		iterations: 7, warmup: 1, initDeadline: time.Second, stepDeadline: time.Minute, deadline: time.Hour,
		pairProbe: true, nonBlocking: true, ranks: 2, devices: []int{3, 1}}
	c, err := got.config()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	flat, tree := int64(64<<10), int64(64<<20)
	want := bench.Config{Node: host, Ranks: 2, Devices: []int{3, 1},
		Collectives: rcclx.AllCollectives(), Datatypes: []rcclx.Datatype{rcclx.BFloat16, rcclx.Float32},
		Placements: []rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace},
		SizesBytes: []int64{1024, 2048, 4096, 1 << 20}, Variants: []rcclx.Variant{rcclx.LowPrecision, rcclx.Baseline},
		Data: []rcclx.Data{rcclx.DataGradients}, WarmupIterations: 1, Iterations: 7,
		DDA:          rcclx.DDASettings{AllReduceFlatMaxBytes: &flat, AllReduceTreeMaxBytes: &tree},
		LowPrecision: rcclx.LowPrecisionSettings{Collectives: []rcclx.Collective{rcclx.AllReduce}},
		Env:          []rcclx.EnvVar{{Name: "A", Value: "b=c"}, {Name: "E", Value: ""}},
		LibraryPath:  "libnccl.so.2", RuntimePath: "libcudart.so", InitDeadline: time.Second, StepDeadline: time.Minute,
		Deadline: time.Hour, PairProbe: true, NonBlocking: true}
	a, _ := json.Marshal(c)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var b strings.Builder
	p := &progress{w: &b, terminal: true, columns: 20}
	p.Note("a longer text than the terminal is wide")
	p.Note("short")
	p.End()
	if got, want := b.String(), "\ra longer text than \rshort              \r     \r"; got != want {
		t.Errorf("got %q, expected %q", got, want)
	}
	b.Reset()
	if newProgress(&b).Note("text"); b.String() != "text\n" {
		t.Errorf("got %q", b.String())
	}
}

func TestOnWrongData(t *testing.T) {
	wrong := []rcclx.CheckResult{{CheckedElements: 8, WrongElements: 1}}
	right := []rcclx.CheckResult{{CheckedElements: 8}}
	for want, r := range map[string]results.Report{
		"Baseline is right": {Results: []results.Result{{Variant: rcclx.DDA, Checks: wrong},
			{Variant: rcclx.Baseline, Checks: right}}},
		"run no jobs on": {Results: []results.Result{{Variant: rcclx.DDA, Checks: wrong},
			{Variant: rcclx.Baseline, Checks: wrong}}},
		"run no jobs on these": {Results: []results.Result{{Variant: rcclx.DDA, Checks: wrong}}},
		"halves of them": {Results: []results.Result{{Variant: rcclx.Baseline, Checks: right}},
			Pairs: []results.Pair{{WrongElements: 1}}},
	} {
		if got := onWrongData(r); !strings.Contains(got, want) {
			t.Errorf("got %q, expected %q", got, want)
		}
	}
}
