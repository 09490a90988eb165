package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestMain(m *testing.M) {
	simtest.Main()
	os.Exit(m.Run())
}

// simulated is a bench on a simulated node of eight MI300X with a fault, by real rank processes.
func simulated(t *testing.T, fault string, c Config) *Bench {
	t.Helper()
	root := simtest.Node(t, func(n *nodetree.Node) { n.Name, n.Fault = "node-a", fault })
	c.Node = "node-a"
	return &Bench{Config: c,
		Teams: &supervise.Supervisor{Launcher: supervise.Launcher{Command: simtest.Rank(t)}, Clock: clock.RealClock{}},
		Host:  preflight.PodHost{Root: root}, LockDir: t.TempDir(), Clock: clock.RealClock{},
		Environ: simtest.Environ(t, root)}
}

// small is soon measured: eight processes on a few processors.
func small() Config {
	return Config{Collectives: []rcclx.Collective{rcclx.AllReduce},
		Datatypes: []rcclx.Datatype{rcclx.BFloat16}, Placements: []rcclx.Placement{rcclx.OutOfPlace},
		SizesBytes: []int64{65536}, Variants: []rcclx.Variant{rcclx.Baseline}, WarmupIterations: 1, Iterations: 3,
		InitDeadline: time.Minute, StepDeadline: time.Minute, Deadline: 10 * time.Minute}
}

// heard keeps what a Progress hears.
type heard struct {
	notes    []string
	measured []results.Result
	done     []int
	total    int
}

func (h *heard) Note(text string) { h.notes = append(h.notes, text) }

func (h *heard) Measured(done, total int, r results.Result) {
	h.measured, h.done, h.total = append(h.measured, r), append(h.done, done), total
}

func TestVariantsSimulated(t *testing.T) {
	c := small()
	c.Collectives = append(c.Collectives, rcclx.AllToAll)
	c.Placements = append(c.Placements, rcclx.InPlace)
	c.SizesBytes = []int64{8, 65536, 16 << 20}
	c.Variants = []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision, rcclx.DDA}
	c.PairProbe = true
	c.Env = []rcclx.EnvVar{{Name: "RCCL_DDA_ENABLE", Value: "1"}}
	b := simulated(t, "", c)
	h := &heard{}
	b.Progress = h
	r, err := b.Run(t.Context())
	if err != nil || r.Failure != nil || !r.Good() {
		t.Fatalf("error %v, failure %+v", err, r.Failure)
	}
	if !r.Simulated || r.Library == nil || r.Library.Imitates != rcclx.FlavorRCCLXDev || r.Ranks != 8 ||
		len(r.Devices) != 8 || r.Library.PCIAddress != "" {
		t.Errorf("simulated %v, library %+v, %d ranks, %d devices", r.Simulated, r.Library, r.Ranks, len(r.Devices))
	}
	// Per variant: AllReduce out of place and in place at 3 sizes, AllToAll out of place at 2, since 8 B leave ranks
	// without. In LowPrecision also two counts of AllReduce at which FP8 loses data.
	if want := 3*(3+3+2) + 2; len(r.Results) != want || h.total != want || len(h.measured) != want ||
		h.done[want-1] != want {
		t.Errorf("%d results, %d heard of %d, expected %d", len(r.Results), len(h.measured), h.total, want)
	}
	for _, text := range []string{"left out in place, which they do not have: AllToAll",
		"without an element are left out: 1 of AllToAll BFloat16",
		"16777216 B: of 67108864 elements of Activations data", "LowPrecision AllReduce BFloat16 16777218 B: " +
			"8 wrong elements, and a count of 8388609 is no multiple of 1024 elements"} {
		if !strings.Contains(strings.Join(r.Warnings, "\n"), text) {
			t.Errorf("no %q among the warnings %q", text, r.Warnings)
		}
	}
	paths := map[rcclx.Variant]map[int64]rcclx.Path{}
	hazards := 0
	for _, x := range r.Results {
		wrong, checked := x.Wrong()
		if x.Hazard != "" {
			hazards++
			if x.Variant != rcclx.LowPrecision || x.HazardElements == 0 || x.Latency.Repeats != 1 {
				t.Errorf("hazard %+v", x)
			}
			wrong -= x.HazardElements
		}
		if !checked || wrong != 0 || x.Latency.MedianNanoseconds <= 0 || x.MeanLatencyNanoseconds <= 0 ||
			x.LaunchNanoseconds <= 0 {
			t.Errorf("%+v", x)
		}
		if x.Collective == rcclx.AllReduce && x.Placement == rcclx.OutOfPlace {
			if paths[x.Variant] == nil {
				paths[x.Variant] = map[int64]rcclx.Path{}
			}
			paths[x.Variant][x.SizeBytes] = x.ExpectedPath
		}
	}
	if hazards != 2 {
		t.Errorf("%d results at counts at which FP8 loses data, expected 2", hazards)
	}
	if paths[rcclx.DDA][65536] != rcclx.PathDDAFlat || paths[rcclx.LowPrecision][16<<20] != rcclx.PathLowPrecision ||
		paths[rcclx.Baseline][65536] == rcclx.PathDDAFlat {
		t.Errorf("paths %v", paths)
	}
	compared := results.Compare(results.Group(r.Results))
	if len(compared) != 6 {
		t.Errorf("%d comparisons, expected 6", len(compared))
	}
	if i := slices.IndexFunc(compared, func(c results.Comparison) bool {
		return c.Variant == rcclx.DDA && c.Key.Collective == rcclx.AllReduce
	}); i < 0 || compared[i].Points[1].SpeedupPPM < 1_100_000 {
		t.Errorf("DDA is no faster than Baseline: %+v", compared)
	}
	if len(r.Pairs) != 28 || r.InitNanoseconds[rcclx.DDA] <= 0 || len(r.Environment) != 3 {
		t.Errorf("%d pairs, init %v, %d environments", len(r.Pairs), r.InitNanoseconds, len(r.Environment))
	}
	states := map[string]string{}
	for _, s := range r.Settings {
		states[s.Name] = s.State + " " + s.Reason
	}
	for name, want := range map[string]string{"dda.AllReduce": "Partial Alignment",
		"dda.AllToAll": "NotInEffect NotBuilt", "lowPrecision.AllReduce": "Partial BelowThreshold",
		"env.RCCL_DDA_ENABLE": "NotInEffect UnknownVariable"} {
		if states[name] != want {
			t.Errorf("%s is %q, expected %q", name, states[name], want)
		}
	}
}

func TestFaultsSimulated(t *testing.T) {
	for fault, tc := range map[string]struct {
		change   func(*Config)
		code     string
		rank     int // -1 where none can be named, -2 where it may be any
		message  string
		measured int
	}{
		"hang:3": {func(c *Config) { c.StepDeadline = 4 * time.Second }, rank.CodeRankHung, -1, "all 8 ranks missed " +
			"the deadline of 3.6s for AllReduce BFloat16 65536 B (a rank's own limit, under the 4s given; rank ", 0},
		"late:3:3600000": {func(c *Config) { c.StepDeadline = 4 * time.Second }, rank.CodeRankHung, 3,
			"rank 3 (GPU 0000:65:00.0), by RAS's word (launched fewer operations than the others, standing still for ",
			0},
		"init-abort:2": {nil, "", 2, "was ended by SIGABRT", 0},
		"low-memory:100": {func(c *Config) { c.SizesBytes = []int64{1 << 20, 64 << 20} }, rank.CodeInsufficientMemory,
			0, "the largest size that fits is 32M: give --sizes up to that", 0},
		"missing-symbol:ncclAllReduce": {nil, rank.CodeSymbolMissing, -2, "ncclAllReduce", 0},
		"garbage-version:7":            {nil, rank.CodePreconditionFailed, -2, "gave 7, which is no version", 0},
	} {
		t.Run(fault, func(t *testing.T) {
			c := small()
			if tc.change != nil {
				tc.change(&c)
			}
			r, err := simulated(t, fault, c).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f := r.Failure
			if f == nil || f.Code != tc.code || !strings.Contains(f.Message, tc.message) ||
				len(r.Results) != tc.measured || r.Good() {
				t.Fatalf("%d results, failure %+v, expected %s %q", len(r.Results), f, tc.code, tc.message)
			}
			if tc.rank >= 0 && (f.Rank == nil || *f.Rank != tc.rank || !strings.HasPrefix(f.Device, "0000:")) {
				t.Errorf("rank %v on %q, expected %d", f.Rank, f.Device, tc.rank)
			}
			if tc.rank == -1 && f.Rank != nil {
				t.Errorf("rank %d is blamed, though all stand alike", *f.Rank)
			}
			var text strings.Builder
			if err := f.WriteFailure(&text); err != nil {
				t.Fatal(err)
			}
			t.Log(text.String())
			if fault == "hang:3" && (len(f.Ranks) != 8 || !strings.Contains(f.Next, "all ranks stand alike") ||
				f.FreedNanoseconds <= 0 || !strings.Contains(f.RAS, "Simulated RAS") ||
				!strings.Contains(f.Ranks[3].Doing, "in step AllReduce")) {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestWrongDataSimulated(t *testing.T) {
	c := small()
	c.SizesBytes = []int64{4096, 65536}
	r, err := simulated(t, "wrong-data:6", c).Run(t.Context())
	if err != nil || r.Failure != nil || len(r.Results) != 2 || r.Good() {
		t.Fatalf("error %v, failure %+v, %d results", err, r.Failure, len(r.Results))
	}
	// One in 64 of what rank 6 contributes is off, and every rank gets the sum.
	if wrong, _ := r.Results[1].Wrong(); wrong != 8*32768/64 || r.Results[1].Checks[0].FirstWrongElement == nil {
		t.Errorf("%d wrong elements, expected %d", wrong, 8*32768/64)
	}
}

func TestInterruptedSimulated(t *testing.T) {
	c := small()
	c.SizesBytes = []int64{4096, 8192, 16384, 32768, 65536, 1 << 20}
	c.Variants = []rcclx.Variant{rcclx.Baseline, rcclx.DDA}
	b := simulated(t, "", c)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	b.Progress = &stopper{at: 3, stop: func() { cancel(fmt.Errorf("Ctrl-C")) }}
	r, err := b.Run(ctx)
	if err != nil || r.Failure == nil || r.Failure.Kind != string(supervise.FailInterrupted) ||
		!strings.Contains(r.Failure.Message, "Ctrl-C") {
		t.Fatalf("error %v, failure %+v", err, r.Failure)
	}
	if len(r.Results) < 3 || len(r.Results) > 6 {
		t.Errorf("%d results were kept, expected those from before", len(r.Results))
	}
}

// stopper interrupts after so many results.
type stopper struct {
	heard
	at   int
	stop func()
}

func (s *stopper) Measured(done, _ int, _ results.Result) {
	if done == s.at {
		s.stop()
	}
}

func TestSecondBenchIsRefused(t *testing.T) {
	b := simulated(t, "", small())
	var second results.Report
	var err error
	b.Progress = &stopper{at: 1, stop: func() {
		other := *b
		other.Progress = nil
		second, err = other.Run(t.Context())
	}}
	first, firstErr := b.Run(t.Context())
	if firstErr != nil || !first.Good() {
		t.Errorf("the first: error %v, failure %+v", firstErr, first.Failure)
	}
	if err != nil || second.Failure == nil || !strings.Contains(second.Failure.Message, "GPUBusy") ||
		!strings.Contains(second.Failure.Message, `run "agent bench"`) {
		t.Errorf("the second: error %v, failure %+v", err, second.Failure)
	}
}

func TestDevicesSimulated(t *testing.T) {
	c := small()
	c.Devices = []int{5, 2}
	r, err := simulated(t, "", c).Run(t.Context())
	if err != nil || !r.Good() || r.Ranks != 2 || r.Devices[0].Ordinal != 5 ||
		r.Devices[0].PCIAddress != "0000:a5:00.0" || r.Devices[1].Ordinal != 2 {
		t.Errorf("error %v, failure %+v, devices %+v", err, r.Failure, r.Devices)
	}
	c = small()
	c.Ranks = 9
	r, err = simulated(t, "", c).Run(t.Context())
	if err != nil || r.Failure == nil || !strings.Contains(r.Failure.Message, "GPUCount") {
		t.Errorf("nine ranks: error %v, failure %+v", err, r.Failure)
	}
}

func TestDatatypeThatTheLibraryLacks(t *testing.T) {
	c := small()
	c.Ranks = 2
	c.Datatypes = []rcclx.Datatype{rcclx.Int8}
	c.Data = []rcclx.Data{rcclx.DataGradients}
	r, err := simulated(t, "", c).Run(t.Context())
	if err != nil || r.Failure == nil || r.Failure.Code != rank.CodeBadSpec {
		t.Errorf("gradients as Int8: error %v, failure %+v", err, r.Failure)
	}
}

// A library of before 2.14 measures in communicators that block, and the report says so.
func TestNonBlockingOfAnOldLibrarySimulated(t *testing.T) {
	for version, want := range map[string]bool{"21304": true, "21400": false} {
		c := small()
		c.NonBlocking = true
		r, err := simulated(t, "garbage-version:"+version, c).Run(t.Context())
		if err != nil || r.Failure != nil || len(r.Results) != 1 {
			t.Fatalf("%s: error %v, failure %+v, %d results", version, err, r.Failure, len(r.Results))
		}
		if got := strings.Contains(strings.Join(r.Warnings, "\n"), "communicators are formed blocking"); got != want {
			t.Errorf("%s: warnings %q", version, r.Warnings)
		}
	}
}
