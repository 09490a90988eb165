package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/internal/simlib"
	"rcclx.io/commgroup-operator/rcclx"
)

// asRank makes the test binary carry out one rank: the real protocol between real processes.
const asRank = "COMMGROUP_TEST_AS_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(asRank) != "" {
		if err := Run(context.Background(), os.Stdin, os.NewFile(rank.EventFD, "events")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// simulator gives the folder of the simulated ROCm libraries.
func simulator(t testing.TB) string {
	t.Helper()
	dir, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// node is a simulated node's root with its configuration.
func node(t testing.TB, lines ...string) string {
	t.Helper()
	root := t.TempDir()
	// The first line of a key counts, so that a test's own lines win.
	config := append(slices.Clone(lines), "node = sim-node-0", "model = MI300X", "flavor = rcclx-dev")
	for i, bus := range []string{"05", "2b", "5b", "65", "7d", "ab", "d2", "e5"} {
		config = append(config, fmt.Sprintf("gpu.%d = 0000:%s:00.0", i, bus))
	}
	if err := os.WriteFile(filepath.Join(root, "simrocm.conf"), []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// testDeadline ends rank processes that the code under test failed to end.
const testDeadline = 2 * time.Minute

// group is a set of rank processes as agent run starts them.
type group struct {
	root    string
	spec    rank.Spec // Rank and Device are set for each process
	env     []rcclx.EnvVar
	mu      sync.Mutex
	events  [][]rank.Event
	outputs []bytes.Buffer
	failed  []bool
	// absent ranks are never started.
	absent []int
	// shift puts rank r on device r+1.
	shift bool
}

func (g *group) of(at int, kind rank.EventKind) []rank.Event {
	var all []rank.Event
	for _, e := range g.events[at] {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

// run starts every rank, hands the unique id on, and returns when all have ended. stopOnError kills the others after the
// first error, as a parent does.
func (g *group) run(t testing.TB, stopOnError bool) {
	t.Helper()
	dir := simulator(t)
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	n := max(1, g.spec.WorldSize)
	g.events, g.outputs, g.failed = make([][]rank.Event, n), make([]bytes.Buffer, n), make([]bool, n)
	if g.spec.LibraryPath == "" {
		g.spec.LibraryPath = filepath.Join(dir, "librccl.so.1")
	}
	stdins, commands, outs := make([]io.WriteCloser, n), make([]*exec.Cmd, n), make([]*os.File, n)
	for at := range n {
		if !slices.Contains(g.absent, at) {
			commands[at], stdins[at], outs[at] = g.start(ctx, t, at, dir)
		}
	}
	var readers sync.WaitGroup
	for at, out := range outs {
		if out == nil {
			continue
		}
		spec := g.spec
		spec.Rank, spec.Device = at, at
		if g.shift {
			spec.Device = (at + 1) % n
		}
		g.line(stdins[at], spec)
		readers.Go(func() {
			g.read(at, out, stdins, func() {
				if stopOnError {
					cancel()
				}
			})
		})
	}
	readers.Wait()
	for at, command := range commands {
		if command != nil {
			g.failed[at] = command.Wait() != nil
		}
	}
}

func (g *group) start(ctx context.Context, t testing.TB, at int, dir string) (*exec.Cmd, io.WriteCloser, *os.File) {
	t.Helper()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), asRank+"=1", "SIMROCM_ROOT="+g.root, "LD_LIBRARY_PATH="+dir, "NCCL_HOSTID=sim-node-0")
	for _, e := range g.env {
		command.Env = append(command.Env, e.Name+"="+e.Value)
	}
	command.Stdout, command.Stderr = &g.outputs[at], &g.outputs[at]
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{write}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	return command, in, read
}

func (g *group) line(to io.Writer, value any) {
	text, _ := json.Marshal(value)
	// A rank that has died already shows in its events.
	_, _ = to.Write(append(text, '\n'))
}

func (g *group) read(at int, from *os.File, stdins []io.WriteCloser, onError func()) {
	defer func() { _ = from.Close() }()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	last := rank.EventKind("")
	// A rank that ends without Done has died; the others would wait for it.
	defer func() {
		if last != rank.EventDone {
			onError()
		}
	}()
	for lines.Scan() {
		var e rank.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = rank.Event{Kind: rank.EventError, Error: &rank.Error{Code: "BadEvent", Message: err.Error()}}
		}
		last = e.Kind
		g.mu.Lock()
		g.events[at] = append(g.events[at], e)
		g.mu.Unlock()
		if e.Kind != rank.EventUniqueID {
			continue
		}
		for _, in := range stdins[1:] {
			if in != nil {
				g.line(in, rank.Rendezvous{UniqueID: e.UniqueID})
			}
		}
	}
}

func (g *group) firstError(t testing.TB) (int, *rank.Error) {
	t.Helper()
	for at := range g.events {
		for _, e := range g.of(at, rank.EventError) {
			return at, e.Error
		}
	}
	t.Fatalf("no rank reported an error; rank 0: %+v\n%s", g.events[0], g.outputs[0].String())
	return 0, nil
}

var bothPreferred = rcclx.Settings{DDA: rcclx.DDASettings{Mode: rcclx.ModePreferred}, LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.ModePreferred}}

func newGroup(root string, v rcclx.Variant, steps ...rank.Step) *group {
	return &group{root: root, env: rcclx.Environment(rcclx.FlavorRCCLXDev, v, bothPreferred), spec: rank.Spec{Node: "sim-node-0", Variant: v,
		WorldSize: 8, Nodes: 1, Settings: bothPreferred, Steps: steps, InitDeadline: 30 * time.Second, StepDeadline: 30 * time.Second}}
}

func measure(c rcclx.Collective, d rcclx.Datatype, sizes ...int64) rank.Step {
	return rank.Step{Kind: rank.StepMeasure, Collective: c, Datatype: d, SizesBytes: sizes, WarmupIterations: 2, Iterations: 5}
}

func (g *group) requireDone(t *testing.T) {
	t.Helper()
	for at := range g.events {
		for _, e := range g.of(at, rank.EventError) {
			t.Errorf("rank %d: %+v", at, e.Error)
		}
	}
	for at := range g.events {
		if len(g.of(at, rank.EventDone)) != 1 || g.failed[at] {
			t.Fatalf("rank %d did not end well: %+v\n%s", at, g.events[at], g.outputs[at].String())
		}
	}
}

func TestVariantsOverRealProcesses(t *testing.T) {
	root := node(t)
	const small, large = 65536, 16 << 20
	paths := map[rcclx.Variant]map[int64]rcclx.Path{
		rcclx.Baseline:     {small: rcclx.PathRingTree, large: rcclx.PathRingTree},
		rcclx.DDA:          {small: rcclx.PathDDAFlat, large: rcclx.PathDDATree},
		rcclx.LowPrecision: {small: rcclx.PathRingTree, large: rcclx.PathLowPrecision},
	}
	for _, v := range []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision} {
		t.Run(string(v), func(t *testing.T) {
			var steps []rank.Step
			for _, c := range rcclx.Collectives() {
				sizes := []int64{small, large}
				if v != rcclx.LowPrecision && c != rcclx.AllReduce {
					sizes = sizes[:1] // only FP8 makes a difference at the large size
				}
				steps = append(steps, measure(c, rcclx.BFloat16, sizes...))
			}
			want := 5
			if v == rcclx.LowPrecision {
				want = 8
			}
			g := newGroup(root, v, steps...)
			g.run(t, true)
			g.requireDone(t)
			for at := range g.events {
				loaded := g.of(at, rank.EventLoaded)
				if len(loaded) != 1 || loaded[0].Library.Flavor != rcclx.FlavorSimulated || loaded[0].Library.Gates() != rcclx.FlavorRCCLXDev ||
					loaded[0].Library.BuildHash == "" || loaded[0].Library.PCIAddress == "" || loaded[0].Library.FreeMemoryBytes == 0 {
					t.Fatalf("rank %d loaded %+v", at, loaded)
				}
				starts, measured := g.of(at, rank.EventStepStart), g.of(at, rank.EventMeasured)
				if len(starts) != want || len(measured) != want {
					t.Fatalf("rank %d: %d starts and %d measurements, want %d of each", at, len(starts), len(measured), want)
				}
				for i, e := range measured {
					m := e.Measurement
					if starts[i].StepName != e.StepName || m.Latency.MedianNanoseconds <= 0 || m.Latency.Repeats != 5 || m.Checks[0].CheckedElements == 0 {
						t.Errorf("rank %d: %+v", at, m)
					}
					if m.Checks[0].WrongElements != 0 {
						t.Errorf("rank %d %s: %d wrong elements", at, e.StepName, m.Checks[0].WrongElements)
					}
					quantised := v == rcclx.LowPrecision && m.SizeBytes == large
					if (m.Checks[0].MaxRelativeErrorPPM > 0) != quantised {
						t.Errorf("rank %d %s: relative error %d ppm, quantised should be %v", at, e.StepName, m.Checks[0].MaxRelativeErrorPPM, quantised)
					}
					if m.Collective == rcclx.AllReduce && m.ExpectedPath != paths[v][m.SizeBytes] {
						t.Errorf("rank %d %s: path %s, want %s", at, e.StepName, m.ExpectedPath, paths[v][m.SizeBytes])
					}
				}
			}
		})
	}
}

func TestAllDatatypes(t *testing.T) {
	g := newGroup(node(t), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.Float32, 4096, 1<<20), measure(rcclx.ReduceScatter, rcclx.Float16, 4096),
		measure(rcclx.AllToAll, rcclx.Float32, 4096), measure(rcclx.AllGather, rcclx.Float16, 4096, 1<<20))
	g.run(t, true)
	g.requireDone(t)
	for at := range g.events {
		for _, e := range g.of(at, rank.EventMeasured) {
			if e.Measurement.Checks[0].WrongElements != 0 || e.Measurement.Checks[0].MaxRelativeErrorPPM != 0 {
				t.Errorf("rank %d %s: %+v", at, e.StepName, e.Measurement.Checks[0])
			}
		}
	}
}

func TestPairProbe(t *testing.T) {
	g := newGroup(node(t, "fault = slow-link:2-5:25"), rcclx.Baseline,
		rank.Step{Kind: rank.StepPairProbe, SizesBytes: []int64{4 << 20}, WarmupIterations: 1, Iterations: 5})
	g.run(t, true)
	g.requireDone(t)
	bandwidth := map[[2]int]int64{}
	for at := range g.events {
		pairs := g.of(at, rank.EventPairMeasured)
		if len(pairs) != 7 {
			t.Fatalf("rank %d met %d peers, want 7", at, len(pairs))
		}
		for _, e := range pairs {
			if e.Pair.WrongElements != 0 || e.Pair.BandwidthMBps <= 0 {
				t.Errorf("rank %d: %+v", at, e.Pair)
			}
			bandwidth[[2]int{at, e.Pair.Peer}] = e.Pair.BandwidthMBps
		}
	}
	var all []int64
	for _, b := range bandwidth {
		all = append(all, b)
	}
	slices.Sort(all)
	median := all[len(all)/2]
	for pair, b := range bandwidth {
		slow := pair == [2]int{2, 5} || pair == [2]int{5, 2}
		if slow != (b < median*60/100) {
			t.Errorf("ranks %v exchange at %d MB/s, median %d; slow should be %v", pair, b, median, slow)
		}
	}
}

func TestProbeOnlyLoads(t *testing.T) {
	g := &group{root: node(t, "flavor = rccl-dda"), spec: rank.Spec{Node: "sim-node-0"}}
	g.run(t, true)
	g.requireDone(t)
	if loaded := g.of(0, rank.EventLoaded); len(loaded) != 1 || loaded[0].Library.VersionCode < 21300 {
		t.Errorf("loaded %+v", loaded)
	}
}

func TestFailures(t *testing.T) {
	step := measure(rcclx.AllReduce, rcclx.BFloat16, 65536)
	tests := []struct {
		name    string
		lines   []string
		change  func(*group)
		code    string
		step    string
		message string
	}{
		{"library missing", nil, func(g *group) { g.spec.LibraryPath = "/nonexistent/librccl.so.1" }, rank.CodeLibraryMissing, StepLoad, "/nonexistent/librccl.so.1"},
		{"not a library", nil, func(g *group) { g.spec.LibraryPath = "process_test.go" }, rank.CodeLibraryMissing, StepLoad, "process_test.go"},
		{"another library", nil, func(g *group) { g.spec.LibraryPath = "libm.so.6" }, rank.CodeSymbolMissing, StepLoad, "ncclGetVersion"},
		{"runtime missing", nil, func(g *group) { g.spec.RuntimePath = "/nonexistent/libamdhip64.so" }, rank.CodeLibraryMissing, StepLoad, "libamdhip64.so"},
		{"symbol missing", []string{"fault = missing-symbol:ncclReduceScatter"}, nil, rank.CodeSymbolMissing, StepLoad, "ncclReduceScatter"},
		{"wrong device", nil, func(g *group) { g.spec.PCIAddress = "0000:ff:00.0" }, rank.CodePreconditionFailed, StepPreconditions, "DeviceMismatch"},
		{"too little memory", []string{"fault = low-memory:1"}, func(g *group) { g.spec.Steps[0].SizesBytes = []int64{1 << 20} }, rank.CodeInsufficientMemory, StepPreconditions, "2097408"},
		{"devices masked", nil, func(g *group) { g.env = append(g.env, rcclx.EnvVar{Name: "HIP_VISIBLE_DEVICES", Value: "0"}) }, rank.CodePreconditionFailed, StepLoad, "sees 1 devices"},
		{"devices reordered for DDA", nil, func(g *group) {
			g.spec.Variant, g.env = rcclx.DDA, rcclx.Environment(rcclx.FlavorRCCLXDev, rcclx.DDA, bothPreferred)
			g.shift = true
		}, rank.CodePreconditionFailed, StepPreconditions, "device ordinal"},
		{"too small a size", nil, func(g *group) { g.spec.Steps[0].Collective, g.spec.Steps[0].SizesBytes = rcclx.AllGather, []int64{4} }, rank.CodeBadSpec, StepLoad, "at least 16 bytes"},
		{"no scratch variable", nil, func(g *group) { g.env = nil }, rank.CodeInitFailed, StepInit, "HSA_NO_SCRATCH_RECLAIM"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(node(t, tt.lines...), rcclx.Baseline, step)
			g.spec.Steps = []rank.Step{step}
			if tt.change != nil {
				tt.change(g)
			}
			g.run(t, true)
			at, err := g.firstError(t)
			if err.Code != tt.code || err.Step != tt.step || !strings.Contains(err.Message, tt.message) {
				t.Errorf("error %+v, want code %s at %s with %q", err, tt.code, tt.step, tt.message)
			}
			if !strings.Contains(err.Message, fmt.Sprintf("node sim-node-0 rank %d", at)) {
				t.Errorf("message %q does not name node and rank", err.Message)
			}
			if !g.failed[at] {
				t.Error("the rank's exit code was zero")
			}
		})
	}
}

func TestHungRankIsReportedWithItsStep(t *testing.T) {
	for _, v := range []rcclx.Variant{rcclx.Baseline, rcclx.DDA} {
		t.Run(string(v), func(t *testing.T) {
			g := newGroup(node(t, "fault = hang:3"), v, measure(rcclx.AllReduce, rcclx.BFloat16, 65536))
			g.spec.StepDeadline = time.Second
			g.run(t, false)
			for at := range g.events {
				errs := g.of(at, rank.EventError)
				if len(errs) != 1 || errs[0].Error.Code != rank.CodeRankHung || errs[0].Error.Step != "AllReduce BFloat16 65536 B" {
					t.Errorf("rank %d: %+v", at, g.events[at])
				}
				if !g.failed[at] {
					t.Errorf("rank %d ended with exit code zero", at)
				}
			}
		})
	}
}

// A communicator that never forms blocks inside the library: the watchdog must speak for the rank.
func TestInitDeadline(t *testing.T) {
	g := newGroup(node(t), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.BFloat16, 65536))
	g.spec.InitDeadline = 2 * time.Second
	g.absent = []int{7}
	g.run(t, false)
	at, err := g.firstError(t)
	if err.Code != rank.CodeRankHung || err.Step != StepInit {
		t.Errorf("rank %d: %+v", at, err)
	}
}

func TestWrongDataIsCounted(t *testing.T) {
	g := newGroup(node(t, "fault = wrong-data:3"), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.BFloat16, 65536))
	g.run(t, true)
	wrong := int64(0)
	for at := range g.events {
		for _, e := range g.of(at, rank.EventMeasured) {
			wrong += e.Measurement.Checks[0].WrongElements
		}
	}
	if wrong == 0 {
		t.Errorf("no wrong element was seen; rank 0: %+v", g.events[0])
	}
}

func TestAbortAtInitIsSeenByTheParent(t *testing.T) {
	g := newGroup(node(t, "fault = init-abort:2"), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.BFloat16, 65536))
	g.spec.InitDeadline = 5 * time.Second
	g.run(t, true)
	if !g.failed[2] || len(g.of(2, rank.EventInitDone)) != 0 {
		t.Errorf("rank 2: failed %v, events %+v", g.failed[2], g.events[2])
	}
	if starts := g.of(2, rank.EventInitStart); len(starts) != 1 {
		t.Errorf("rank 2 said %d times that it joins, want once before it died", len(starts))
	}
}
