package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestRunHealthy(t *testing.T) {
	plan := defaultPlan()
	plan.Thresholds = []api.Threshold{{Variant: api.VariantBaseline, Collective: api.AllReduce, Datatype: api.BFloat16,
		SizeBytes: 64 << 20, MinBusBandwidthMBps: ptr.To(int64(1000))}}
	teams := &modelTeams{relErr: 40000}
	res, rep, err := runModel(t, plan, teams, nil)
	if err != nil || !res.Reported {
		t.Fatalf("error %v, reported %v", err, res.Reported)
	}
	s := rep.reports[len(rep.reports)-1]
	if s.Verdict != api.VerdictPass || s.Reason != api.ReasonAllPassed || s.Phase != api.NodeRunFinished ||
		s.ID != "run-1" || s.Generation != 3 {
		t.Errorf("report: %s %s %s: %s", s.Phase, s.Verdict, s.Reason, s.Message)
	}
	if len(s.Results) != 12 || s.Links == nil || s.Links.MedianMBps != 48000 || s.Library.Version != "2.28.3" ||
		s.Library.RuntimeVersion != "6.4.43484" || s.BootID == "" || s.InitNanoseconds == nil ||
		*s.InitNanoseconds != 5_000_000 {
		t.Errorf("report: %d results, links %+v, library %+v, boot %q", len(s.Results), s.Links, s.Library, s.BootID)
	}
	want := map[string][2]string{
		"dda.AllReduce": {"Partial", "Confirmed"}, "dda.AllGather": {"NotInEffect", "Unknown"},
		"lowPrecision.AllReduce": {"Partial", "Confirmed"}, "lowPrecision.AllToAll": {"Partial", "Confirmed"},
	}
	for _, x := range s.Settings {
		if w, ok := want[x.Name]; ok && (string(x.Effective) != w[0] || string(x.Verified) != w[1]) {
			t.Errorf("%s: %s %s (%s), expected %v", x.Name, x.Effective, x.Verified, x.Message, w)
		}
	}
	var steps []string
	for _, r := range rep.reports {
		steps = append(steps, string(r.Phase)+" "+r.Step)
	}
	if want := []string{"Running probing the library and GPUs", "Running Baseline", "Running DDA",
		"Running LowPrecision", "Finished "}; !slices.Equal(steps, want) {
		t.Errorf("reports: %q, want %q", steps, want)
	}
	if !slices.Contains(teams.teams[2].Env, "RCCL_DDA_NRANKS=8") ||
		!slices.Contains(teams.teams[1].Env, "RCCL_DDA_NRANKS=0") {
		t.Errorf("environments: Baseline %v, DDA %v", teams.teams[1].Env, teams.teams[2].Env)
	}
}

func TestRunFaults(t *testing.T) {
	has := func(want ...int) func(rcclx.Variant, []int) string {
		return func(_ rcclx.Variant, gpus []int) string {
			for _, w := range want {
				if !slices.Contains(gpus, w) {
					return ""
				}
			}
			return "x"
		}
	}
	do := func(what string, when func(rcclx.Variant, []int) string) func(rcclx.Variant, []int) string {
		return func(v rcclx.Variant, gpus []int) string {
			if when(v, gpus) != "" {
				return what
			}
			return ""
		}
	}
	onlyDDA := func(v rcclx.Variant, _ []int) string {
		if v == rcclx.DDA {
			return "hang"
		}
		return ""
	}
	for _, tc := range []struct {
		name    string
		teams   *modelTeams
		change  func(*api.RunPlan)
		verdict api.Verdict
		reason  string
		culprit string
		words   string
	}{
		{"hang of a GPU", &modelTeams{bad: do("hang", has(5))}, nil, api.VerdictFail, api.ReasonRankHung,
			"GPU " + modelPCI(5), "GPU " + modelPCI(5) + " is at fault"},
		{"hang of a link", &modelTeams{bad: do("hang", has(2, 7))}, nil, api.VerdictFail, api.ReasonRankHung,
			"Link " + modelPCI(2) + "<->" + modelPCI(7), ""},
		{"wrong data of a GPU", &modelTeams{bad: do("wrong", has(0))}, nil, api.VerdictFail, api.ReasonWrongData,
			"GPU " + modelPCI(0), "wrong elements"},
		{"init fails with one GPU", &modelTeams{bad: do("init", has(6))}, nil, api.VerdictFail, api.ReasonInitFailed,
			"GPU " + modelPCI(6), ""},
		{"a rank dies", &modelTeams{bad: do("die", has(7))}, nil, api.VerdictFail, api.ReasonRankDied,
			"GPU " + modelPCI(7), ""},
		{"hang with DDA only", &modelTeams{bad: onlyDDA}, nil, api.VerdictFail, api.ReasonRankHung, "",
			"inconclusive: none of"},
		{"library missing", &modelTeams{bad: func(rcclx.Variant, []int) string { return "missingLibrary" }}, nil,
			api.VerdictError, api.ReasonLibraryMissing, "", "was not found"},
		{"slow link", &modelTeams{pairMBps: func(a, b int) int64 {
			if a == 1 && b == 4 {
				return 12000
			}
			return 48000
		}}, nil, api.VerdictFail, api.ReasonSlowLink, "Link " + modelPCI(1) + "<->" + modelPCI(4), "25 %"},
		{"slow GPU", &modelTeams{pairMBps: func(a, b int) int64 {
			if a == 3 || b == 3 {
				return 12000
			}
			return 48000
		}}, nil, api.VerdictFail, api.ReasonSlowGPU, "GPU " + modelPCI(3), "7 of its 7"},
		{"below threshold", &modelTeams{}, func(p *api.RunPlan) {
			p.Thresholds = []api.Threshold{{Collective: api.AllReduce, SizeBytes: 1024,
				MinBusBandwidthMBps: ptr.To(int64(1_000_000))}}
		}, api.VerdictFail, api.ReasonBelowThreshold, "", "expected at least 1000.0 GB/s"},
		{"threshold at a size that was not measured", &modelTeams{}, func(p *api.RunPlan) {
			p.Thresholds = []api.Threshold{{Collective: api.AllReduce, SizeBytes: 1000,
				MinBusBandwidthMBps: ptr.To(int64(1))}}
		}, api.VerdictInconclusive, api.ReasonInconclusive, "", "not measured"},
		{"required DDA without a gain", &modelTeams{latency: func(rcclx.Variant, rcclx.Collective, int64) int64 {
			return 20000
		}}, func(p *api.RunPlan) { p.DDA.Mode = api.FeatureRequired }, api.VerdictFail, api.ReasonRequirementNotMet, "",
			"no faster than Baseline"},
		{"required DDA with a gain", &modelTeams{}, func(p *api.RunPlan) { p.DDA.Mode = api.FeatureRequired },
			api.VerdictPass, api.ReasonAllPassed, "", ""},
		{"required FP8 without rounding", &modelTeams{}, func(p *api.RunPlan) {
			p.LowPrecision.Mode = api.FeatureRequired
		}, api.VerdictFail, api.ReasonRequirementNotMet, "", "no FP8 rounding"},
		{"FP8 too coarse", &modelTeams{relErr: 200000}, nil, api.VerdictFail, api.ReasonWrongData, "", "20.00 %"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := defaultPlan()
			if tc.change != nil {
				tc.change(&plan)
			}
			res, _, err := runModel(t, plan, tc.teams, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := res.Status
			if s.Verdict != tc.verdict || s.Reason != tc.reason {
				t.Errorf("%s %s: %s; expected %s %s", s.Verdict, s.Reason, s.Message, tc.verdict, tc.reason)
			}
			got := ""
			if len(s.Culprits) > 0 {
				got = s.Culprits[0].Kind + " " + s.Culprits[0].Name
			}
			if got != tc.culprit || len(s.Culprits) > 1 {
				t.Errorf("culprits %+v, expected %q", s.Culprits, tc.culprit)
			}
			if !strings.Contains(s.Message, tc.words) {
				t.Errorf("message %q lacks %q", s.Message, tc.words)
			}
		})
	}
}

// treeHost has a generated node's file system.
type treeHost struct {
	fakeHost
	root string
}

func (h treeHost) OpenRoot() (preflight.Root, error) {
	return preflight.PodHost{Root: h.root}.OpenRoot()
}

// TestPreconditions: what fails ends the run before a communicator, under its own name; the rest is kept as evidence.
func TestPreconditions(t *testing.T) {
	modelPCIs := []string{modelPCI(0), modelPCI(1), modelPCI(2), modelPCI(3), modelPCI(4), modelPCI(5),
		modelPCI(6), modelPCI(7)}
	heldDir := t.TempDir()
	release, held := preflight.Lock(heldDir, modelPCIs[3:4],
		preflight.Holder{Run: "run-0", Start: time.Unix(1_800_000_000, 0)})
	defer release()
	if held != nil {
		t.Fatal(held)
	}
	node, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	node.Name = "sim-node-0"
	dir := t.TempDir()
	if err := nodetree.Write(dir, node); err != nil {
		t.Fatal(err)
	}
	onNode := func(r *Runner) { r.Host = treeHost{fakeHost{shm: 4 << 30, memlock: -1}, dir} }
	for name, tc := range map[string]struct {
		change       func(*Runner)
		teams        *modelTeams
		reason, text string
		teamsStarted int
	}{
		"shared memory": {func(r *Runner) { r.Host = fakeHost{shm: 1 << 10, memlock: -1} }, nil,
			api.ReasonPreconditionFailed, "SharedMemory: node node-a: /dev/shm is full: 1024 bytes are free", 0},
		"hidden GPUs": {onNode, nil, api.ReasonPreconditionFailed,
			"HiddenGPUs: node node-a: ROCR_VISIBLE_DEVICES=0 leaves a rank 1 GPUs", 0},
		"hidden GPUs of a library": {nil, nil, api.ReasonPreconditionFailed,
			"HiddenGPUs: node node-a: ROCR_VISIBLE_DEVICES=0 leaves a rank 1 GPUs", 1},
		"memory": {nil, &modelTeams{library: func(l *rcclx.LibraryInfo) { l.FreeMemoryBytes = 1 << 30 }},
			api.ReasonInsufficientMemory, "GPUMemory: node node-a: rank 0 (GPU 0000:15:00.0) has 1073741824 of", 1},
		"shared GPU": {onNode, &modelTeams{library: func(l *rcclx.LibraryInfo) { l.PCIAddress = "0000:05:00.0" }},
			api.ReasonPreconditionFailed, "SharedGPU: node node-a: ranks 0 and 1 both got GPU", 1},
		"second run": {func(r *Runner) { r.LockDir = heldDir }, nil, api.ReasonPreconditionFailed,
			`GPUBusy: node node-a: GPU ` + modelPCI(3) + ` is in use by run "run-0"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			plan := defaultPlan()
			if strings.HasPrefix(name, "hidden GPUs") {
				plan.Env = []api.EnvVar{{Name: "ROCR_VISIBLE_DEVICES", Value: "0"}}
			}
			teams := tc.teams
			if teams == nil {
				teams = &modelTeams{}
			}
			res, _, err := runModel(t, plan, teams, func(r *Runner, _ *memoryReporter) {
				if tc.change != nil {
					tc.change(r)
				}
			})
			if err != nil || res.Status.Verdict != api.VerdictError || res.Status.Reason != tc.reason ||
				!strings.HasPrefix(res.Status.Message, tc.text) {
				t.Errorf("error %v, status %+v", err, res.Status)
			}
			if len(teams.teams) != tc.teamsStarted {
				t.Errorf("%d teams were started, expected %d", len(teams.teams), tc.teamsStarted)
			}
		})
	}
	t.Run("a run gives its locks back", func(t *testing.T) {
		dir := t.TempDir()
		for range 2 {
			if res, _, err := runModel(t, defaultPlan(),
				&modelTeams{relErr: 40000}, func(r *Runner, _ *memoryReporter) { r.LockDir = dir }); err != nil ||
				res.Status.Verdict != api.VerdictPass {
				t.Fatalf("error %v, status %+v", err, res.Status)
			}
		}
	})
	t.Run("enough memory without FP8", func(t *testing.T) {
		plan := defaultPlan()
		plan.Variants = plan.Variants[:1]
		teams := &modelTeams{library: func(l *rcclx.LibraryInfo) { l.FreeMemoryBytes = 1 << 30 }}
		if res, _, err := runModel(t, plan, teams, nil); err != nil || res.Status.Verdict != api.VerdictPass {
			t.Fatalf("error %v, status %+v", err, res.Status)
		}
	})
}

func TestReporting(t *testing.T) {
	down := errors.New("connection refused")
	t.Run("the API server comes back", func(t *testing.T) {
		res, rep, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.answer = func(n int, _ api.NodeRunStatus) error {
				if n < 8 {
					return down
				}
				return nil
			}
		})
		if err != nil || !res.Reported || len(rep.reports) != 9 {
			t.Errorf("error %v, %d reports", err, len(rep.reports))
		}
	})
	t.Run("the API server stays away", func(t *testing.T) {
		res, _, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.answer = func(int, api.NodeRunStatus) error { return down }
		})
		if !errors.Is(err, down) || res.Reported || res.Full.Verdict != api.VerdictPass {
			t.Errorf("error %v, result %v", err, res.Full.Verdict)
		}
	})
	t.Run("superseded in the middle", func(t *testing.T) {
		_, rep, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.answer = func(n int, _ api.NodeRunStatus) error {
				if n == 2 {
					return commtask.ErrSuperseded
				}
				return nil
			}
		})
		if !errors.Is(err, commtask.ErrSuperseded) || len(rep.reports) != 3 {
			t.Errorf("error %v, %d reports", err, len(rep.reports))
		}
	})
	t.Run("rejected, then the verdict only", func(t *testing.T) {
		res, _, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.answer = func(_ int, s api.NodeRunStatus) error {
				if len(s.Results) > 0 {
					return fmt.Errorf("%w: no such field", commtask.ErrRejected)
				}
				return nil
			}
		})
		if err != nil || res.Status.Verdict != api.VerdictPass || len(res.Status.Results) > 0 ||
			!strings.Contains(res.Status.Message, "no such field") {
			t.Errorf("error %v, status %+v", err, res.Status)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rep := &memoryReporter{assignment: assignmentOf(defaultPlan())}
		rep.answer = func(n int, _ api.NodeRunStatus) error {
			if n == 1 {
				cancel()
			}
			return nil
		}
		r := &Runner{Config: Config{RunID: "run-1", InterruptedGrace: time.Hour}, Reporter: rep,
			Node: Node{Name: "node-a", Teams: &modelTeams{}, Host: fakeHost{shm: 1 << 30},
				Clock: &steppingClock{clocktesting.NewFakeClock(time.Now())},
				Log:   slog.New(slog.NewTextHandler(io.Discard, nil))}}
		res, err := r.Run(ctx)
		if err != nil || res.Status.Verdict != api.VerdictError || res.Status.Reason != api.ReasonInterrupted {
			t.Errorf("error %v, status %+v", err, res.Status)
		}
	})
	t.Run("another run is asked for", func(t *testing.T) {
		_, _, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.assignment.Run.ID = "run-2"
		})
		if err == nil || !strings.Contains(err.Error(), "asks for run run-2") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("already reported", func(t *testing.T) {
		teams := &modelTeams{}
		res, _, err := runModel(t, defaultPlan(), teams, func(_ *Runner, m *memoryReporter) {
			m.assignment.Reported = &api.NodeRunStatus{ID: "run-1", Phase: api.NodeRunFinished,
				Verdict: api.VerdictFail, FinishTime: ptr.To(metav1.Now())}
		})
		if err != nil || !res.Reported || len(teams.teams) != 0 {
			t.Errorf("error %v, %d teams started", err, len(teams.teams))
		}
	})
}
