package runner

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/simlib"
)

// simulator gives the folder of the simulated ROCm libraries.
func simulator(t testing.TB) string {
	t.Helper()
	dir, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var simulatedBuses = []string{"05", "2b", "5b", "65", "7d", "ab", "d2", "e5"}

func simulatedPCI(gpu int) string { return "0000:" + simulatedBuses[gpu] + ":00.0" }

// simulatedRoot is a simulated node's root with its configuration.
func simulatedRoot(t testing.TB, fault string) string {
	t.Helper()
	root := t.TempDir()
	conf := []string{"node = sim-node-0", "model = MI300X", "flavor = rcclx-dev", "fault = " + fault}
	for i := range simulatedBuses {
		conf = append(conf, fmt.Sprintf("gpu.%d = %s", i, simulatedPCI(i)))
	}
	boot := filepath.Join(root, "proc", "sys", "kernel", "random")
	if err := os.MkdirAll(boot, 0o750); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(root, "simrocm.conf"): strings.Join(conf, "\n") + "\n", filepath.Join(boot, "boot_id"): "simulated-boot\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// runSimulated carries out a whole run with real rank processes on the simulated library.
func runSimulated(t testing.TB, plan api.RunPlan, fault string) api.NodeRunStatus {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := simulatedRoot(t, fault)
	rep := &memoryReporter{assignment: assignmentOf(plan)}
	r := &Runner{
		Config:   Config{Node: "sim-node-0", RunID: "run-1", ReportGrace: time.Minute, InterruptedGrace: time.Minute, LockDir: t.TempDir()},
		Teams:    &Supervisor{Launcher: Launcher{Command: []string{self, realRank}}, Clock: clock.RealClock{}},
		Reporter: rep, Host: preflight.PodHost{Root: root}, Clock: clock.RealClock{},
		Environ: []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + simulator(t), "SIMROCM_ROOT=" + root},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
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
	if s.Verdict != api.VerdictPass || s.BootID != "simulated-boot" || s.Library == nil || s.Library.Flavor != "simulated" || s.Library.Imitates != "rcclx-dev" {
		t.Fatalf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
	for _, x := range s.Settings {
		want := api.VerifiedConfirmed
		if x.Name == "dda.AllGather" {
			want = api.VerifiedUnknown // not built, so nothing to confirm
		}
		if x.Verified != want {
			t.Errorf("%s: %s %s: %s", x.Name, x.Effective, x.Verified, x.Message)
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
			t.Errorf("%s warns of %v, expected %v: %s", name, got.Warnings, want, got.Message)
		}
	}
	if len(s.DataErrors) != 3 {
		t.Errorf("errors by data: %+v", s.DataErrors)
	}
	noChildren(t)
}

// TestSimulatedEverything: all collectives, in place too, with sizes that some collectives do not have.
func TestSimulatedEverything(t *testing.T) {
	plan := simulatedPlan()
	plan.Variants = plan.Variants[:1]
	plan.Collectives = []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll, api.AllToAllv, api.Broadcast, api.Reduce, api.SendRecv}
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
		if r.Datatype == api.Float64 && slices.Contains([]api.Collective{api.AllGather, api.ReduceScatter, api.AllToAll}, r.Collective) || r.Collective == api.AllToAllv {
			sizes = sizes[1:] // 8 B leave eight ranks without an element, and in AllToAllv peers without a share
		}
		// So many series leave room for the first and the last size only.
		if n := len(r.SizeBytes); n < 2 || r.SizeBytes[0] != sizes[0] || r.SizeBytes[n-1] != sizes[len(sizes)-1] {
			t.Errorf("%s %s %s: sizes %v, expected %v", r.Collective, r.Datatype, r.Placement, r.SizeBytes, sizes)
		}
	}
	noChildren(t)
}

func TestSimulatedFaults(t *testing.T) {
	for _, tc := range []struct {
		fault, reason, kind, name string
		stepSeconds               int32
	}{
		{"slow-link:2-5:25", api.ReasonSlowLink, "Link", simulatedPCI(2) + "<->" + simulatedPCI(5), 60},
		{"hang:3", api.ReasonRankHung, "GPU", simulatedPCI(3), 8},
		{"wrong-data:6", api.ReasonWrongData, "GPU", simulatedPCI(6), 60},
		{"init-abort:4", api.ReasonRankDied, "GPU", simulatedPCI(4), 60},
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
			noChildren(t)
		})
	}
}
