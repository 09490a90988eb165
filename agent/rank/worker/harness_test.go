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
	if err := os.WriteFile(filepath.Join(root, "simrocm.conf"), []byte(strings.Join(config, "\n")+"\n"),
		0o600); err != nil {
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
	// change alters the spec of one rank, rendezvous the id that the ranks are handed.
	change     func(spec *rank.Spec)
	rendezvous func(id []byte) []byte
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

// run starts every rank, hands the unique id on, and returns when all have ended. stopOnError kills the others after
// the first error, as a parent does.
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
		if g.change != nil {
			g.change(&spec)
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
	command.Env = append(os.Environ(), asRank+"=1", "SIMROCM_ROOT="+g.root, "LD_LIBRARY_PATH="+dir,
		"NCCL_HOSTID=sim-node-0")
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
		id := e.UniqueID
		if g.rendezvous != nil {
			id = g.rendezvous(id)
		}
		for _, in := range stdins[1:] {
			if in != nil {
				g.line(in, rank.Rendezvous{UniqueID: id})
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

var bothPreferred = rcclx.Settings{DDA: rcclx.DDASettings{Mode: rcclx.ModePreferred},
	LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.ModePreferred}}

func newGroup(root string, v rcclx.Variant, steps ...rank.Step) *group {
	return &group{root: root, env: rcclx.Environment(rcclx.FlavorRCCLXDev, v, bothPreferred),
		spec: rank.Spec{Node: "sim-node-0", Variant: v, WorldSize: 8, Nodes: 1, Settings: bothPreferred, Steps: steps,
			InitDeadline: 30 * time.Second, StepDeadline: 30 * time.Second}}
}

func measure(c rcclx.Collective, d rcclx.Datatype, sizes ...int64) rank.Step {
	return rank.Step{Kind: rank.StepMeasure, Collective: c, Datatype: d, SizesBytes: sizes,
		WarmupIterations: 2, Iterations: 5}
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
