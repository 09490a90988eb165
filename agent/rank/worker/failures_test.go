package worker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx"
)

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
		{"library missing", nil, func(g *group) { g.spec.LibraryPath = "/nonexistent/librccl.so.1" },
			rank.CodeLibraryMissing, StepLoad, "/nonexistent/librccl.so.1"},
		{"not a library", nil, func(g *group) { g.spec.LibraryPath = "process_test.go" }, rank.CodeLibraryMissing,
			StepLoad, "process_test.go"},
		{"another library", nil, func(g *group) { g.spec.LibraryPath = "libm.so.6" }, rank.CodeSymbolMissing, StepLoad,
			"ncclGetVersion"},
		{"runtime missing", nil, func(g *group) { g.spec.RuntimePath = "/nonexistent/libamdhip64.so" },
			rank.CodeLibraryMissing, StepLoad, "libamdhip64.so"},
		{"symbol missing", []string{"fault = missing-symbol:ncclReduceScatter"}, nil, rank.CodeSymbolMissing, StepLoad,
			"ncclReduceScatter"},
		{"wrong device", nil, func(g *group) { g.spec.PCIAddress = "0000:ff:00.0" }, rank.CodePreconditionFailed,
			StepPreconditions, "DeviceMismatch"},
		{"too little memory", []string{"fault = low-memory:1"}, func(g *group) {
			g.spec.Steps[0].SizesBytes = []int64{1 << 20}
		}, rank.CodeInsufficientMemory, StepPreconditions, "2097408"},
		{"devices masked", nil, func(g *group) {
			g.env = append(g.env, rcclx.EnvVar{Name: "HIP_VISIBLE_DEVICES", Value: "0"})
		}, rank.CodePreconditionFailed, StepLoad, "sees 1 devices"},
		{"devices reordered for DDA", nil, func(g *group) {
			g.spec.Variant, g.env = rcclx.DDA, rcclx.Environment(rcclx.FlavorRCCLXDev, rcclx.DDA, bothPreferred)
			g.shift = true
		}, rank.CodePreconditionFailed, StepPreconditions, "device ordinal"},
		{"too small a size", nil, func(g *group) {
			g.spec.Steps[0].Collective, g.spec.Steps[0].SizesBytes = rcclx.AllGather, []int64{4}
		}, rank.CodeBadSpec, StepLoad, "at least 16 bytes"},
		{"garbage version", []string{"fault = garbage-version:999999999"}, nil, rank.CodePreconditionFailed,
			StepLoad, "999999999"},
		{"negative version", []string{"fault = garbage-version:-1"}, nil, rank.CodePreconditionFailed,
			StepLoad, "gave -1"},
		{"version zero", []string{"fault = garbage-version:0"}, nil, rank.CodePreconditionFailed, StepLoad, "gave 0"},
		{"symbol of one collective missing", []string{"fault = missing-symbol:ncclBroadcast"}, func(g *group) {
			g.spec.Steps[0].Collective = rcclx.Broadcast
		}, rank.CodeSymbolMissing, StepPreconditions, "ncclBroadcast, which Broadcast needs"},
		{"no in-place form", nil, func(g *group) {
			g.spec.Steps[0].Collective, g.spec.Steps[0].Placement = rcclx.AllToAll, rcclx.InPlace
		}, rank.CodeBadSpec, StepPreconditions, "no in-place form"},
		{"unknown placement", nil, func(g *group) { g.spec.Steps[0].Placement = "Sideways" }, rank.CodeBadSpec,
			StepPreconditions, "Sideways"},
		{"data that do not fit", nil, func(g *group) {
			g.spec.Steps[0].Datatype, g.spec.Steps[0].Data = rcclx.Int8, []rcclx.Data{rcclx.DataGradients}
		},
			rank.CodeBadSpec, StepPreconditions, "integer"},
		{"more bytes than 64 bits", nil, func(g *group) { g.spec.Steps[0].SizesBytes = []int64{math.MaxInt64} },
			rank.CodeInsufficientMemory, StepPreconditions, "are free"},
		{"two ranks on one GPU", nil, func(g *group) { g.change = func(s *rank.Spec) { s.Device /= 2 } },
			rank.CodeInitFailed, StepInit, "a GPU of its own"},
		{"id cut off", nil, func(g *group) { g.rendezvous = func(id []byte) []byte { return id[:100] } },
			rank.CodeBadSpec, StepInit, "100 bytes, want 128"},
		{"no scratch variable", nil, func(g *group) { g.env = nil }, rank.CodeInitFailed, StepInit,
			"HSA_NO_SCRATCH_RECLAIM"},
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
				if len(errs) != 1 || errs[0].Error.Code != rank.CodeRankHung ||
					errs[0].Error.Step != "AllReduce BFloat16 65536 B" {
					t.Errorf("rank %d: %+v", at, g.events[at])
				}
				if !g.failed[at] {
					t.Errorf("rank %d ended with exit code zero", at)
				}
			}
		})
	}
}

// A communicator that never forms ends at its deadline: blocking, the watchdog speaks for the rank; non-blocking, the
// engine.
func TestInitDeadline(t *testing.T) {
	var stale []byte
	{
		g := &group{root: node(t), env: rcclx.Environment(rcclx.FlavorRCCLXDev, rcclx.Baseline, bothPreferred),
			spec: newGroup("", rcclx.Baseline).spec}
		g.spec.WorldSize = 1
		g.run(t, true)
		g.requireDone(t)
		stale = g.of(0, rank.EventUniqueID)[0].UniqueID
	}
	for name, change := range map[string]func(*group){
		"a rank never comes":    func(g *group) { g.absent = []int{3} },
		"id of another run":     func(g *group) { g.rendezvous = func([]byte) []byte { return stale } },
		"another world size":    func(g *group) { g.change = func(s *rank.Spec) { s.WorldSize = 4 + s.Rank/2 } },
		"a rank hangs within":   func(g *group) { g.root = node(t, "fault = init-hang:2") },
		"two ranks of one rank": func(g *group) { g.change = func(s *rank.Spec) { s.Rank = min(2, s.Rank) } },
	} {
		for _, nonBlocking := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, non-blocking %v", name, nonBlocking), func(t *testing.T) {
				t.Parallel()
				g := newGroup(node(t), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.BFloat16, 65536))
				g.spec.WorldSize, g.spec.NonBlocking, g.spec.InitDeadline = 4, nonBlocking, 2*time.Second
				change(g)
				g.run(t, false)
				for at := range g.events {
					if slices.Contains(g.absent, at) {
						continue
					}
					errs := g.of(at, rank.EventError)
					if len(errs) != 1 || errs[0].Error.Code != rank.CodeRankHung || errs[0].Error.Step != StepInit ||
						!strings.Contains(errs[0].Error.Message, "from another run") {
						t.Errorf("rank %d: %+v\n%s", at, g.events[at], g.outputs[at].String())
					}
				}
			})
		}
	}
}

// A communicator that is never destroyed ends at its deadline as well.
func TestDestroyDeadline(t *testing.T) {
	g := newGroup(node(t, "fault = destroy-hang:1"), rcclx.Baseline, measure(rcclx.AllReduce, rcclx.BFloat16, 4096))
	g.spec.WorldSize, g.spec.StepDeadline = 2, 2*time.Second
	g.run(t, false)
	if errs := g.of(1, rank.EventError); len(errs) != 1 || errs[0].Error.Code != rank.CodeRankHung ||
		errs[0].Error.Step != StepDestroy {
		t.Errorf("rank 1: %+v", g.events[1])
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
