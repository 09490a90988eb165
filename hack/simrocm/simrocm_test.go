package simrocm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// patience ends a test that would hang; no result depends on it.
const patience = 3 * time.Minute

var (
	buildOnce sync.Once
	buildDir  string
	errBuild  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// library builds the libraries and the test driver, and gives the directory.
func library(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"make", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is not installed, so the C libraries cannot be built: run make setup", tool)
		}
	}
	buildOnce.Do(func() {
		if buildDir, errBuild = os.MkdirTemp("", "simrocm"); errBuild != nil {
			return
		}
		out, err := exec.Command("make", "OUT="+buildDir, "all", filepath.Join(buildDir, "rank")).CombinedOutput() //nolint:gosec // our own directory
		if err != nil {
			errBuild = fmt.Errorf("make: %w\n%s", err, out)
		}
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	return buildDir
}

// job is a set of ranks, each a process of test/rank.c.
type job struct {
	ranks int
	node  *nodetree.Node
	env   []string
	// rankEnv adds to the environment of one rank.
	rankEnv func(rank int) []string
}

type outcome struct {
	// lines by rank: words "key=value", and the first word under "".
	lines [][]map[string]string
	codes []int
	text  string
}

func healthy(t *testing.T, fault string) *nodetree.Node {
	t.Helper()
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name, n.Fault = "sim-node-0", fault
	return &n
}

func memoryFolder(t *testing.T) string {
	t.Helper()
	parent := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		parent = "/dev/shm"
	}
	dir, err := os.MkdirTemp(parent, "simrocm-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (j job) commands(ctx context.Context, t *testing.T, memory string, steps []string) []*exec.Cmd {
	t.Helper()
	lib := library(t)
	env := []string{"HSA_NO_SCRATCH_RECLAIM=1", "NCCL_COMM_ID=" + t.Name(), "SIMROCM_SHM_DIR=" + memory,
		"NCCL_CONF_FILE=" + os.DevNull}
	if j.node != nil {
		root := t.TempDir()
		if err := nodetree.Write(root, *j.node); err != nil {
			t.Fatal(err)
		}
		env = append(env, "SIMROCM_ROOT="+root)
	}
	env = append(env, j.env...)
	var cmds []*exec.Cmd
	for rank := range j.ranks {
		cmd := exec.CommandContext(ctx, filepath.Join(lib, "rank"), append([]string{strconv.Itoa(rank), strconv.Itoa(j.ranks)}, steps...)...) //nolint:gosec // our own binary
		cmd.Env = env
		if j.rankEnv != nil {
			cmd.Env = append(append([]string{}, env...), j.rankEnv(rank)...)
		}
		cmds = append(cmds, cmd)
	}
	return cmds
}

// run starts the ranks and waits for all of them.
func (j job) run(t *testing.T, steps ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmds := j.commands(ctx, t, memoryFolder(t), steps)
	buffers := make([]bytes.Buffer, len(cmds))
	for i, cmd := range cmds {
		cmd.Stdout, cmd.Stderr = &buffers[i], &buffers[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	o := outcome{lines: make([][]map[string]string, len(cmds)), codes: make([]int, len(cmds))}
	for i, cmd := range cmds {
		_ = cmd.Wait() // the exit code is part of the outcome
		o.codes[i] = cmd.ProcessState.ExitCode()
		o.text += buffers[i].String()
		for line := range strings.Lines(buffers[i].String()) {
			o.lines[i] = append(o.lines[i], parse(line))
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("ranks did not end within %s:\n%s", patience, o.text)
	}
	return o
}

func parse(line string) map[string]string {
	words := map[string]string{}
	for i, word := range strings.Fields(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			words[key] = value
		} else if i == 0 {
			words[""] = word
		}
	}
	return words
}

// step gives a number of a step's line, which must be the same on all ranks that have it.
func (o outcome) step(t *testing.T, step, key string) int64 {
	t.Helper()
	found, value := false, int64(0)
	for _, lines := range o.lines {
		for _, l := range lines {
			if l[""] != "step" || l["step"] != step {
				continue
			}
			v, err := strconv.ParseInt(l[key], 10, 64)
			if err != nil {
				t.Fatalf("%s of %s: %v", key, step, err)
			}
			// whose ranks have unequal parts
			if found && key == "ns" && v != value && !strings.HasPrefix(step, "a2av") {
				t.Errorf("%s: ranks saw %d and %d ns", step, value, v)
			}
			found, value = true, max(value, v)
		}
	}
	if !found {
		t.Fatalf("no rank finished %s:\n%s", step, o.text)
	}
	return value
}

func TestResultsAreRight(t *testing.T) {
	steps := []string{
		"ar:f32:65536:2", "ar:f32:1048576:2", "ar:f32:67108864:20", "ar:f16:1048576:2", "ar:bf16:1048576:2",
		"ar:f64:1048576:2", "ar:i32:1000008:2",
		"rs:f32:4194304:2", "rs:bf16:1048576:2", "ag:f32:4194304:2", "a2a:f32:4194304:2", "a2a:f16:100000:2",
		"bc:f32:1000000:2",
		"rd:f32:1000000:2", "pair:0-7:8388608:2", "pair:2-5:1000:2",
		"a2av:f32:4194304:2", "a2av:f16:800:2", "sr:f32:4194304:2", "sr:i32:4:2",
		"ar:e4m3:100000:2", "ar:e5m2:1048576:2", "rs:e4m3:65536:2", "rd:e5m2:100000:2", "ag:e4m3:65536:2",
		"a2av:e5m2:65536:2",
	}
	o := job{ranks: 8, env: []string{"TEST_FNUZ=1"}}.run(t, steps...)
	for _, s := range steps {
		if wrong := o.step(t, s, "wrong"); wrong != 0 {
			t.Errorf("%s: %d wrong elements", s, wrong)
		}
	}
	// Published results of 8 x MI300X: 315 GB/s at 256 MiB, acceptance threshold 304 at large sizes.
	ns := o.step(t, "ar:f32:67108864:20", "ns")
	if busGBps := float64(67108864) * 14 / 8 / float64(ns); busGBps < 304 || busGBps > 324 {
		t.Errorf("AllReduce of 64 MiB: busbw %.1f GB/s, want 304 to 324", busGBps)
	}
}

// Twice the same code: 128+128 is over FNUZ's 240 and 28672+28672 is its largest E5M2, while OCP reads the codes as
// twice as much, ends at 448, and has infinities in E5M2 only.
func TestEightBitFloatsByArchitecture(t *testing.T) {
	for model, want := range map[string][]string{
		"MI300X": {"code step=code:e4m3:78 result=80", "code step=code:e5m2:7b result=7f",
			"code step=code:e4m3:70 result=78"},
		"MI350X": {"code step=code:e4m3:78 result=7f", "code step=code:e5m2:7b result=7c",
			"code step=code:e4m3:70 result=78"},
	} {
		n, err := nodetree.Defaults(model)
		if err != nil {
			t.Fatal(err)
		}
		n.Name = "sim-node-0"
		o := job{ranks: 2, node: &n}.run(t, "code:e4m3:78", "code:e5m2:7b", "code:e4m3:70")
		for _, line := range want {
			if strings.Count(o.text, line) != 2 {
				t.Errorf("%s: want %q of both ranks:\n%s", model, line, o.text)
			}
		}
	}
}

// TestModels: the libraries know every model that the generator writes, and how many devices it has.
func TestModels(t *testing.T) {
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			n, err := nodetree.Defaults(model)
			if err != nil {
				t.Fatal(err)
			}
			n.Name = "sim-node-0"
			o := job{ranks: 2, node: &n}.run(t, "ar:f32:4096:1")
			if strings.Contains(o.text, "simrocm.conf") || o.codes[0] != 0 || o.codes[1] != 0 {
				t.Errorf("exit codes %v:\n%s", o.codes, o.text)
			}
		})
	}
}

// An exchange with all peers gets the share of the links that AllToAll gets, and to other nodes one NIC a rank.
func TestTimeOfManyMessages(t *testing.T) {
	const even, uneven = "a2a:f32:33554432:1", "a2av:f32:33554432:1"
	one := job{ranks: 8}.run(t, even, uneven)
	// The largest part is 1.25 times the even one, and messages have a base latency of their own.
	if r := float64(one.step(t, uneven, "ns")) / float64(one.step(t, even, "ns")); r < 1.1 || r > 1.3 {
		t.Errorf("AllToAllv takes %.2f times as long as AllToAll, want about 1.25", r)
	}
	two := job{ranks: 8, rankEnv: func(r int) []string {
		return []string{fmt.Sprintf("NCCL_HOSTID=node-%d", r/4)}
	}}.run(t, even, uneven)
	if r := float64(two.step(t, uneven, "ns")) / float64(two.step(t, even, "ns")); r < 0.9 || r > 1.5 {
		t.Errorf("over two nodes AllToAllv takes %.2f times as long as AllToAll, want about as long", r)
	}
}

func TestDDAGates(t *testing.T) {
	const small, medium, large = "ar:f32:65536:2", "ar:bf16:16777216:2", "ar:f32:33554432:2"
	standard := job{ranks: 8, env: []string{"RCCL_DDA_NRANKS=0"}}.run(t, small, medium, large)
	flavor := func(name string) *nodetree.Node {
		n := healthy(t, "")
		n.Flavor = name
		return n
	}
	for _, c := range []struct {
		name                 string
		job                  job
		small, medium, large bool // faster than the standard path
	}{
		{"defaults", job{ranks: 8}, true, true, false},
		{"disabled for AllReduce", job{ranks: 8, env: []string{"RCCL_ENABLE_DDA_ALL_REDUCE=0"}}, false, false, false},
		{"text that is no number", job{ranks: 8, env: []string{"RCCL_ENABLE_DDA_ALL_REDUCE=yes"}}, false, false, false},
		{"low tree limit", job{ranks: 8, env: []string{"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES=1048576"}},
			true, false, false},
		{"high tree limit and staging", job{ranks: 8,
			env: []string{"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES=0x4000000", "RCCL_DDA_SENDBUF_BYTES=67108864"}},
			true, true, true},
		{"high tree limit, default staging",
			job{ranks: 8, env: []string{"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES=0x4000000"}}, true, true, true},
		{"AMD's variable means nothing to RCCLX", job{ranks: 8, env: []string{"RCCL_DDA_ENABLE=0"}}, true, true, false},
		{"two nodes", job{ranks: 8, rankEnv: func(r int) []string {
			return []string{fmt.Sprintf("NCCL_HOSTID=node-%d", r/4)}
		}}, false, false, false},
		{"AMD's RCCL without DDA", job{ranks: 8, node: flavor("rccl")}, false, false, false},
		{"AMD's RCCL with DDA", job{ranks: 8, node: flavor("rccl-dda")}, true, true, true},
		{"AMD's RCCL, DDA off", job{ranks: 8, node: flavor("rccl-dda"), env: []string{"RCCL_DDA_ENABLE=0"}},
			false, false, false},
		{"stable never takes DDA", job{ranks: 8, node: flavor("rcclx-stable")}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.job.run(t, small, medium, large)
			for step, want := range map[string]bool{small: c.small, medium: c.medium, large: c.large} {
				ns, base := o.step(t, step, "ns"), standard.step(t, step, "ns")
				if (ns < base) != want {
					t.Errorf("%s: %d ns, standard path %d ns; want faster: %t", step, ns, base, want)
				}
				if wrong := o.step(t, step, "wrong"); wrong != 0 {
					t.Errorf("%s: %d wrong elements", step, wrong)
				}
			}
		})
	}
	t.Run("4 ranks", func(t *testing.T) {
		four := job{ranks: 4}.run(t, small).step(t, small, "ns")
		off := job{ranks: 4, env: []string{"RCCL_DDA_NRANKS=0"}}.run(t, small).step(t, small, "ns")
		if four != off {
			t.Errorf("with 4 ranks DDA changed the time from %d to %d ns", off, four)
		}
	})
}

func TestDDAAborts(t *testing.T) {
	const abrt = -1 // ended by a signal
	for _, c := range []struct {
		name string
		job  job
		want string
	}{
		{"devices masked", job{ranks: 8, rankEnv: func(r int) []string {
			return []string{fmt.Sprintf("HIP_VISIBLE_DEVICES=%d", r), "TEST_DEVICE=0"}
		}}, "hipDeviceEnablePeerAccess"},
		{"device is not the rank", job{ranks: 8, rankEnv: func(r int) []string {
			return []string{fmt.Sprintf("TEST_DEVICE=%d", 7-r)}
		}}, "hipDeviceEnablePeerAccess"},
		{"rank count that the barrier cannot", job{ranks: 4, env: []string{"RCCL_DDA_NRANKS=4"}}, "nRanks == 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.job.run(t, "ar:f32:65536:1")
			for rank, code := range o.codes {
				if code != abrt {
					t.Errorf("rank %d ended with %d, want an abort", rank, code)
				}
			}
			if !strings.Contains(o.text, c.want) {
				t.Errorf("the reason lacks %q:\n%s", c.want, o.text)
			}
		})
	}
	t.Run("masked without DDA", func(t *testing.T) {
		o := job{ranks: 8, env: []string{"RCCL_DDA_NRANKS=0"}, rankEnv: func(r int) []string {
			return []string{fmt.Sprintf("HIP_VISIBLE_DEVICES=%d", r), "TEST_DEVICE=0"}
		}}.run(t, "ar:f32:65536:1")
		if o.step(t, "ar:f32:65536:1", "wrong") != 0 {
			t.Error("wrong elements")
		}
	})
}

func TestLowPrecision(t *testing.T) {
	const on = "RCCL_LOW_PRECISION_ENABLE=1"
	for _, c := range []struct {
		name, env, step string
		quantised       bool
	}{
		{"at the threshold", on, "ar:f32:16777216:1", true},
		{"below the threshold", on, "ar:f32:16777088:1", false},
		{"bf16", on, "ar:bf16:16777216:1", true},
		{"fp16 is not covered", on, "ar:f16:16777216:1", false},
		{"not exactly 1", "RCCL_LOW_PRECISION_ENABLE=true", "ar:f32:16777216:1", false},
		{"ReduceScatter", on, "rs:f32:16777216:1", true},
		{"AllGather", on, "ag:f32:16777216:1", true},
		{"AllToAll", on, "a2a:f32:16777216:1", true},
		{"only AllGather", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1", "ag:f32:16777216:1", true},
		{"only AllGather, AllReduce", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1", "ar:f32:16777216:1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := job{ranks: 8, env: []string{c.env}}.run(t, c.step)
			ppm := o.step(t, c.step, "ppm")
			if (ppm > 0) != c.quantised {
				t.Errorf("largest error %d ppm, want quantised: %t", ppm, c.quantised)
			}
			// E4M3 has 3 bits of mantissa: half a step is 1/16; AllReduce quantises twice.
			if ppm > 2*62500 {
				t.Errorf("largest error %d ppm, want at most %d", ppm, 2*62500)
			}
		})
	}
	t.Run("a tail of the count is lost", func(t *testing.T) {
		o := job{ranks: 8, env: []string{on}}.run(t, "ar:f32:16777728:1") // 1024 elements and 128 more
		if ppm := o.step(t, "ar:f32:16777728:1", "ppm"); ppm < 500000 {
			t.Errorf("largest error %d ppm, want the hazard of a tail that was never written", ppm)
		}
	})
	t.Run("memory and time", func(t *testing.T) {
		lp := job{ranks: 8, env: []string{on}}.run(t, "ar:f32:67108864:1", "ag:f32:8388608:1")
		base := job{ranks: 8}.run(t, "ar:f32:67108864:1", "ag:f32:8388608:1")
		// 2.25 GiB for the pool, 32 MiB for DDA's staging.
		if pool := lp.lines[0][1]["pool"]; pool != strconv.Itoa(9<<28+32<<20) {
			t.Errorf("the communicator took %s bytes, want %d", pool, 9<<28+32<<20)
		}
		if l, b := lp.step(t, "ar:f32:67108864:1", "ns"), base.step(t, "ar:f32:67108864:1", "ns"); 3*l > 2*b {
			t.Errorf("low precision %d ns, standard %d ns; want at least 1.5 times as fast", l, b)
		}
		// While low precision is on, an AllGather below the threshold goes peer to peer and is slower.
		if l, b := lp.step(t, "ag:f32:8388608:1", "ns"), base.step(t, "ag:f32:8388608:1", "ns"); l <= b {
			t.Errorf("AllGather below the threshold: %d ns, want more than %d", l, b)
		}
	})
}
