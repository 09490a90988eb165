package executor

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/simtest"
)

func TestMain(m *testing.M) {
	simtest.Main()
	os.Exit(m.Run())
}

// simulatedNode is a simulated node with real rank processes.
func simulatedNode(t testing.TB, root, lockDir string, log *slog.Logger) Node {
	t.Helper()
	return Node{Name: "sim-node-0",
		Teams: &supervise.Supervisor{Launcher: supervise.Launcher{Command: simtest.Rank(t)}, Clock: clock.RealClock{}},
		Host:  preflight.PodHost{Root: root}, LockDir: lockDir, Clock: clock.RealClock{},
		Environ: simtest.Environ(t, root), Log: log}
}

// runSimulated carries out a whole run with real rank processes on the simulated library.
func runSimulated(t testing.TB, plan api.RunPlan, fault string) api.NodeRunStatus {
	t.Helper()
	root := simtest.Libraries(t, fault)
	r := &Runner{
		Node:     simulatedNode(t, root, t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))),
		Config:   Config{RunID: "run-1", ReportGrace: time.Minute, InterruptedGrace: time.Minute},
		Reporter: &memoryReporter{assignment: assignmentOf(plan)},
	}
	res, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if data, jerr := json.Marshal(res.Status); jerr == nil {
		t.Log(string(data))
	}
	return res.Status
}

// simulatedPlan is small, so that eight processes on a few cores are soon through.
func simulatedPlan() api.RunPlan {
	p := defaultPlan()
	p.Collectives = []api.Collective{api.AllReduce, api.AllGather}
	p.SizesBytes = []int64{4096, 65536, 16 << 20}
	p.WarmupIterations, p.Iterations = 1, 3
	p.InitDeadlineSeconds, p.StepDeadlineSeconds, p.RunDeadlineSeconds = 60, 60, 300
	return p
}

func TestSimulatedHealthy(t *testing.T) {
	s := runSimulated(t, simulatedPlan(), "none")
	if s.Verdict != api.VerdictPass || s.BootID != "simulated-boot" || s.Library == nil ||
		s.Library.Flavor != "simulated" || s.Library.Imitates != "rcclx-dev" {
		t.Fatalf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
	for _, x := range s.Settings {
		want := api.VerifiedConfirmed
		if x.Name == "dda.AllGather" {
			want = api.VerifiedUnknown // not built, so nothing to confirm
		}
		if x.Verified != want {
			t.Errorf("%s: %s %s: %s", x.Name, x.Effective, x.Verified, explain.Setting(&x, s.DataErrors))
		}
	}
	if !strings.Contains(s.Message, "simulated") {
		t.Errorf("message %q does not say that it is simulated", s.Message)
	}
	if len(s.Results) != 6 || s.Links == nil {
		t.Errorf("%d series, links %+v", len(s.Results), s.Links)
	}
	// Open RCCLX loses the tail of AllReduce, and casts without scaling.
	for name, want := range map[string][]string{
		"lowPrecision.AllReduce": {api.WarningTailHazard, api.WarningOverflow, api.WarningUnderflow},
		"lowPrecision.AllGather": {api.WarningOverflow, api.WarningUnderflow},
	} {
		if got := setting(t, s, name); !slices.Equal(got.Warnings, want) || got.Usable != api.ResultsNotUsable {
			t.Errorf("%s warns of %v, expected %v: %s", name, got.Warnings, want, explain.Setting(&got, s.DataErrors))
		}
	}
	if len(s.DataErrors) != 3 {
		t.Errorf("errors by data: %+v", s.DataErrors)
	}
	simtest.NoChildren(t)
}

// TestSimulatedEverything: all collectives, in place too, with sizes that some collectives do not have.
func TestSimulatedEverything(t *testing.T) {
	plan := simulatedPlan()
	plan.Variants = plan.Variants[:1]
	plan.Collectives = []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll, api.AllToAllv,
		api.Broadcast, api.Reduce, api.SendRecv}
	plan.Datatypes = []api.Datatype{api.Float64, api.Int8}
	plan.Placements = []api.Placement{api.OutOfPlace, api.InPlace}
	plan.SizesBytes = []int64{8, 1000, 4096}
	s := runSimulated(t, plan, "none")
	if s.Verdict != api.VerdictPass {
		t.Fatalf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
	// Eight collectives out of place and five in place, two datatypes each.
	if len(s.Results) != 26 || s.OmittedSeries != 0 || len(s.Settings) != 8 {
		t.Errorf("%d series and %d omitted, %d settings", len(s.Results), s.OmittedSeries, len(s.Settings))
	}
	for _, r := range s.Results {
		sizes := plan.SizesBytes
		if r.Datatype == api.Float64 &&
			slices.Contains([]api.Collective{api.AllGather, api.ReduceScatter, api.AllToAll}, r.Collective) ||
			r.Collective == api.AllToAllv {
			sizes = sizes[1:] // 8 B leave eight ranks without an element, and in AllToAllv peers without a share
		}
		// So many series leave room for the first and the last size only.
		if n := len(r.SizeBytes); n < 2 || r.SizeBytes[0] != sizes[0] || r.SizeBytes[n-1] != sizes[len(sizes)-1] {
			t.Errorf("%s %s %s: sizes %v, expected %v", r.Collective, r.Datatype, r.Placement, r.SizeBytes, sizes)
		}
	}
	simtest.NoChildren(t)
}

func TestSimulatedFaults(t *testing.T) {
	for _, tc := range []struct {
		fault, reason, kind, name string
		stepSeconds               int32
	}{
		{"slow-link:2-5:25", api.ReasonSlowLink, "Link", simtest.PCI(2) + "<->" + simtest.PCI(5), 60},
		{"hang:3", api.ReasonRankHung, "GPU", simtest.PCI(3), 8},
		{"wrong-data:6", api.ReasonWrongData, "GPU", simtest.PCI(6), 60},
		{"init-abort:4", api.ReasonRankDied, "GPU", simtest.PCI(4), 60},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			plan := simulatedPlan()
			plan.Variants = plan.Variants[:1]
			plan.StepDeadlineSeconds = tc.stepSeconds
			s := runSimulated(t, plan, tc.fault)
			if s.Verdict != api.VerdictFail || s.Reason != tc.reason {
				t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
			}
			if len(s.Culprits) != 1 || s.Culprits[0].Kind != tc.kind || s.Culprits[0].Name != tc.name {
				t.Errorf("culprits %+v, expected %s %s", s.Culprits, tc.kind, tc.name)
			}
			simtest.NoChildren(t)
		})
	}
}
