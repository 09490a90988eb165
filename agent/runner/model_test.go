package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// modelTeams is a TeamRunner that computes what the ranks would do, without processes.
type modelTeams struct {
	mu sync.Mutex
	// bad says what a communicator over these GPUs does: "", "hang", "wrong", "die", "init", "missingLibrary".
	bad func(v rcclx.Variant, gpus []int) string
	// pairMBps gives the bandwidth between two GPUs; nil means 48000 for all.
	pairMBps func(a, b int) int64
	// latency gives the median of a call; nil means a simple model in which DDA halves it up to 200 KiB.
	latency func(v rcclx.Variant, c rcclx.Collective, size int64) int64
	// relErr of FP8 results, parts per million.
	relErr int64
	// library changes what each rank says of its library.
	library func(*rcclx.LibraryInfo)
	teams   []Team
}

func (m *modelTeams) Run(ctx context.Context, team Team) Outcome {
	m.mu.Lock()
	m.teams = append(m.teams, team)
	m.mu.Unlock()
	out := Outcome{Team: team.Name}
	var gpus []int
	for _, s := range team.Specs {
		gpus = append(gpus, s.Device)
		r := RankOutcome{Rank: s.Rank, Device: s.Device, ProcessID: 1000 + s.Rank, PCIAddress: modelPCI(s.Device), Done: true, LastEvent: rank.EventDone, InitDuration: 5 * time.Millisecond,
			Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorSimulated, Imitates: rcclx.FlavorRCCLXDev, VersionCode: 22803, Path: "/opt/rocm/lib/librccl.so.1",
				BuildHash: "0123456789abcdef", RuntimeVersionCode: 60443484, PCIAddress: modelPCI(s.Device), TotalMemoryBytes: 192 << 30, FreeMemoryBytes: 190 << 30}}
		if m.library != nil {
			m.library(r.Library)
		}
		out.Ranks = append(out.Ranks, r)
	}
	if ctx.Err() != nil {
		out.Failure = &Failure{Kind: FailInterrupted, Rank: -1, Step: "load", Message: "interrupted: " + ctx.Err().Error()}
		return out
	}
	what := ""
	if m.bad != nil && team.Specs[0].WorldSize > 0 {
		what = m.bad(team.Specs[0].Variant, gpus)
	}
	if team.Specs[0].WorldSize == 0 {
		if m.bad != nil && m.bad("probe", gpus) == "missingLibrary" {
			out.Failure = &Failure{Kind: FailRankError, Rank: 0, Code: rank.CodeLibraryMissing, Step: "load", Message: "librccl.so.1 was not found"}
		}
		return out
	}
	first := team.Specs[0].Steps[0]
	at := fmt.Sprintf("%s %s %d B", first.Collective, first.Datatype, first.SizesBytes[0])
	switch what {
	case "hang":
		out.Failure = &Failure{Kind: FailHung, Rank: -1, Code: rank.CodeRankHung, Step: at, Message: team.Name + " missed the deadline"}
		return out
	case "init":
		out.Failure = &Failure{Kind: FailRankError, Rank: 0, Code: rank.CodeInitFailed, Step: "init", Message: team.Name + " ncclCommInitRank failed"}
		return out
	case "die":
		out.Failure = &Failure{Kind: FailDied, Rank: len(gpus) - 1, Step: "init", Message: team.Name + " rank died"}
		return out
	}
	for i := range out.Ranks {
		m.measure(&out.Ranks[i], team.Specs[i], gpus, what == "wrong")
	}
	return out
}

func (m *modelTeams) measure(r *RankOutcome, spec rank.Spec, gpus []int, wrong bool) {
	for _, step := range spec.Steps {
		for _, size := range step.SizesBytes {
			if step.Kind == rank.StepPairProbe {
				for peer := range spec.WorldSize {
					mbps := int64(48000)
					if m.pairMBps != nil {
						mbps = m.pairMBps(min(gpus[r.Rank], gpus[peer]), max(gpus[r.Rank], gpus[peer]))
					}
					if peer != r.Rank {
						r.Pairs = append(r.Pairs, rank.PairMeasurement{Peer: peer, SizeBytes: size, BandwidthMBps: mbps})
					}
				}
				continue
			}
			x := rank.Measurement{Collective: step.Collective, Datatype: step.Datatype, SizeBytes: size, Checks: []rcclx.CheckResult{{CheckedElements: 10}}}
			x.Latency.MedianNanoseconds = m.latencyOf(spec.Variant, step.Collective, size)
			if wrong {
				x.Checks[0].WrongElements = 3
			}
			if spec.Variant == rcclx.LowPrecision && size >= 16<<20 {
				x.Checks[0].MaxRelativeErrorPPM = m.relErr
			}
			r.Measurements = append(r.Measurements, x)
		}
	}
}

func (m *modelTeams) latencyOf(v rcclx.Variant, c rcclx.Collective, size int64) int64 {
	if m.latency != nil {
		return m.latency(v, c, size)
	}
	ns := 20_000 + size/100
	if v == rcclx.DDA && c == rcclx.AllReduce && size <= 200<<10 || v == rcclx.LowPrecision && size >= 16<<20 {
		ns /= 2
	}
	return ns
}

func modelPCI(device int) string { return fmt.Sprintf("0000:%x5:00.0", device+1) }

// memoryReporter is a Reporter in memory.
type memoryReporter struct {
	mu         sync.Mutex
	assignment Assignment
	reports    []api.NodeRunStatus
	// answer, where set, decides on each report.
	answer func(n int, s api.NodeRunStatus) error
}

func (m *memoryReporter) Assignment(context.Context) (Assignment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assignment, nil
}

func (m *memoryReporter) Report(_ context.Context, s api.NodeRunStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answer != nil {
		if err := m.answer(len(m.reports), s); err != nil {
			m.reports = append(m.reports, s)
			return err
		}
	}
	m.reports = append(m.reports, s)
	return nil
}

// fakeHost has no file system to read.
type fakeHost struct{ shm, memlock int64 }

func (fakeHost) BootID() (string, error)                  { return "5f0c2c5e-0000-4000-8000-000000000000", nil }
func (h fakeHost) SharedMemoryFreeBytes() (int64, error)  { return h.shm, nil }
func (h fakeHost) LockedMemoryLimitBytes() (int64, error) { return h.memlock, nil }
func (fakeHost) Hypervisor() (bool, error)                { return false, errors.New("no CPU") }
func (fakeHost) OpenRoot() (preflight.Root, error)        { return nil, errors.New("no root") }
func (fakeHost) Interfaces() ([]preflight.Interface, error) {
	return []preflight.Interface{{Name: "eth0", Running: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}, nil
}

// defaultPlan is what the controller makes of a CommGroup's defaults, with all three variants.
func defaultPlan() api.RunPlan {
	return api.RunPlan{
		Variants:    []api.Variant{api.VariantBaseline, api.VariantDDA, api.VariantLowPrecision},
		Collectives: []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll},
		Datatypes:   []api.Datatype{api.BFloat16},
		SizesBytes:  rcclx.Sizes(1024, 64<<20, 4), WarmupIterations: 10, Iterations: 20,
		DDA: api.DDASpec{Mode: api.FeaturePreferred}, LowPrecision: api.LowPrecisionSpec{Mode: api.FeaturePreferred, MaxRelativeErrorPPM: 130000},
		InitDeadlineSeconds: 120, StepDeadlineSeconds: 60, RunDeadlineSeconds: 1800, LinkMinPercent: 70,
	}
}

// runModel runs a whole run on the model and returns the last report.
func runModel(t *testing.T, plan api.RunPlan, teams *modelTeams, change func(*Runner, *memoryReporter)) (Result, *memoryReporter, error) {
	t.Helper()
	rep := &memoryReporter{assignment: assignmentOf(plan)}
	r := &Runner{
		Config: Config{Node: "node-a", RunID: "run-1", WaitForPlan: time.Minute, ReportGrace: time.Minute, InterruptedGrace: time.Minute, LockDir: t.TempDir()},
		Teams:  teams, Reporter: rep, Host: fakeHost{shm: 4 << 30, memlock: -1}, Clock: &steppingClock{clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))},
		Environ: []string{"PATH=/bin"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(r, rep)
	}
	res, err := r.Run(t.Context())
	return res, rep, err
}

// steppingClock is a fake clock whose timers fire at once, moving the time forward.
type steppingClock struct{ *clocktesting.FakeClock }

func (c *steppingClock) NewTimer(d time.Duration) clockTimer {
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}

func TestRunHealthy(t *testing.T) {
	plan := defaultPlan()
	plan.Thresholds = []api.Threshold{{Variant: api.VariantBaseline, Collective: api.AllReduce, Datatype: api.BFloat16, SizeBytes: 64 << 20, MinBusBandwidthMBps: 1000}}
	teams := &modelTeams{relErr: 40000}
	res, rep, err := runModel(t, plan, teams, nil)
	if err != nil || !res.Reported {
		t.Fatalf("error %v, reported %v", err, res.Reported)
	}
	s := rep.reports[len(rep.reports)-1]
	if s.Verdict != api.VerdictPass || s.Reason != api.ReasonAllPassed || s.Phase != api.NodeRunFinished || s.ID != "run-1" || s.Generation != 3 {
		t.Errorf("report: %s %s %s: %s", s.Phase, s.Verdict, s.Reason, s.Message)
	}
	if len(s.Results) != 12 || s.Links == nil || s.Links.MedianMBps != 48000 || s.Library.Version != "2.28.3" || s.Library.RuntimeVersion != "6.4.43484" || s.BootID == "" || s.InitNanoseconds == nil || *s.InitNanoseconds != 5_000_000 {
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
	if want := []string{"Running probing the library and GPUs", "Running Baseline", "Running DDA", "Running LowPrecision", "Finished "}; !slices.Equal(steps, want) {
		t.Errorf("reports: %q, want %q", steps, want)
	}
	if !slices.Contains(teams.teams[2].Env, "RCCL_DDA_NRANKS=8") || !slices.Contains(teams.teams[1].Env, "RCCL_DDA_NRANKS=0") {
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
		{"hang of a GPU", &modelTeams{bad: do("hang", has(5))}, nil, api.VerdictFail, api.ReasonRankHung, "GPU " + modelPCI(5), "GPU " + modelPCI(5) + " is at fault"},
		{"hang of a link", &modelTeams{bad: do("hang", has(2, 7))}, nil, api.VerdictFail, api.ReasonRankHung, "Link " + modelPCI(2) + "<->" + modelPCI(7), ""},
		{"wrong data of a GPU", &modelTeams{bad: do("wrong", has(0))}, nil, api.VerdictFail, api.ReasonWrongData, "GPU " + modelPCI(0), "wrong elements"},
		{"init fails with one GPU", &modelTeams{bad: do("init", has(6))}, nil, api.VerdictFail, api.ReasonInitFailed, "GPU " + modelPCI(6), ""},
		{"a rank dies", &modelTeams{bad: do("die", has(7))}, nil, api.VerdictFail, api.ReasonRankDied, "GPU " + modelPCI(7), ""},
		{"hang with DDA only", &modelTeams{bad: onlyDDA}, nil, api.VerdictFail, api.ReasonRankHung, "", "inconclusive: none of"},
		{"library missing", &modelTeams{bad: func(rcclx.Variant, []int) string { return "missingLibrary" }}, nil, api.VerdictError, api.ReasonLibraryMissing, "", "was not found"},
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
			p.Thresholds = []api.Threshold{{Collective: api.AllReduce, SizeBytes: 1024, MinBusBandwidthMBps: 1_000_000}}
		}, api.VerdictFail, api.ReasonBelowThreshold, "", "expected at least 1000000 MB/s"},
		{"threshold at a size that was not measured", &modelTeams{}, func(p *api.RunPlan) {
			p.Thresholds = []api.Threshold{{Collective: api.AllReduce, SizeBytes: 1000, MinBusBandwidthMBps: 1}}
		}, api.VerdictInconclusive, api.ReasonInconclusive, "", "not measured"},
		{"required DDA without a gain", &modelTeams{latency: func(rcclx.Variant, rcclx.Collective, int64) int64 { return 20000 }},
			func(p *api.RunPlan) { p.DDA.Mode = api.FeatureRequired }, api.VerdictFail, api.ReasonRequirementNotMet, "", "no faster than Baseline"},
		{"required DDA with a gain", &modelTeams{}, func(p *api.RunPlan) { p.DDA.Mode = api.FeatureRequired }, api.VerdictPass, api.ReasonAllPassed, "", ""},
		{"required FP8 without rounding", &modelTeams{}, func(p *api.RunPlan) { p.LowPrecision.Mode = api.FeatureRequired }, api.VerdictFail, api.ReasonRequirementNotMet, "", "no FP8 rounding"},
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
			if !containsText(s.Message, tc.words) {
				t.Errorf("message %q lacks %q", s.Message, tc.words)
			}
		})
	}
}

// TestPreconditions: what fails ends the run before a communicator, under its own name; the rest is kept as evidence.
func TestPreconditions(t *testing.T) {
	modelPCIs := []string{modelPCI(0), modelPCI(1), modelPCI(2), modelPCI(3), modelPCI(4), modelPCI(5), modelPCI(6), modelPCI(7)}
	heldDir := t.TempDir()
	release, held := preflight.Lock(heldDir, modelPCIs[3:4], preflight.Holder{Run: "run-0", Start: time.Unix(1_800_000_000, 0)})
	defer release()
	if held != nil {
		t.Fatal(held)
	}
	for name, tc := range map[string]struct {
		change       func(*Runner)
		teams        *modelTeams
		reason, text string
		teamsStarted int
	}{
		"shared memory": {func(r *Runner) { r.Host = fakeHost{shm: 1 << 20, memlock: -1} }, nil, api.ReasonPreconditionFailed, "SharedMemory: node node-a: /dev/shm has 1048576 bytes free", 0},
		"hidden GPUs":   {nil, nil, api.ReasonPreconditionFailed, "HiddenGPUs: node node-a: ROCR_VISIBLE_DEVICES=0 leaves a rank 1 GPUs", 0},
		"memory": {nil, &modelTeams{library: func(l *rcclx.LibraryInfo) { l.FreeMemoryBytes = 1 << 30 }}, api.ReasonInsufficientMemory,
			"GPUMemory: node node-a: rank 0 (GPU 0000:15:00.0) has 1073741824 of", 1},
		"shared GPU": {nil, &modelTeams{library: func(l *rcclx.LibraryInfo) { l.PCIAddress = modelPCI(0) }}, api.ReasonPreconditionFailed,
			"SharedGPU: node node-a: ranks 0 and 1 both got GPU", 1},
		"second run": {func(r *Runner) { r.Config.LockDir = heldDir }, nil, api.ReasonPreconditionFailed, `GPUBusy: node node-a: GPU ` + modelPCI(3) + ` is in use by run "run-0"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			plan := defaultPlan()
			if name == "hidden GPUs" {
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
			if err != nil || res.Status.Verdict != api.VerdictError || res.Status.Reason != tc.reason || !strings.HasPrefix(res.Status.Message, tc.text) {
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
			if res, _, err := runModel(t, defaultPlan(), &modelTeams{relErr: 40000}, func(r *Runner, _ *memoryReporter) { r.Config.LockDir = dir }); err != nil || res.Status.Verdict != api.VerdictPass {
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
					return ErrSuperseded
				}
				return nil
			}
		})
		if !errors.Is(err, ErrSuperseded) || len(rep.reports) != 3 {
			t.Errorf("error %v, %d reports", err, len(rep.reports))
		}
	})
	t.Run("rejected, then the verdict only", func(t *testing.T) {
		res, _, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) {
			m.answer = func(_ int, s api.NodeRunStatus) error {
				if len(s.Results) > 0 {
					return fmt.Errorf("%w: no such field", ErrRejected)
				}
				return nil
			}
		})
		if err != nil || res.Status.Verdict != api.VerdictPass || len(res.Status.Results) > 0 || !containsText(res.Status.Message, "no such field") {
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
		r := &Runner{Config: Config{Node: "node-a", RunID: "run-1", InterruptedGrace: time.Hour}, Teams: &modelTeams{}, Reporter: rep, Host: fakeHost{shm: 1 << 30},
			Clock: &steppingClock{clocktesting.NewFakeClock(time.Now())}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		res, err := r.Run(ctx)
		if err != nil || res.Status.Verdict != api.VerdictError || res.Status.Reason != api.ReasonInterrupted {
			t.Errorf("error %v, status %+v", err, res.Status)
		}
	})
	t.Run("another run is asked for", func(t *testing.T) {
		_, _, err := runModel(t, defaultPlan(), &modelTeams{}, func(_ *Runner, m *memoryReporter) { m.assignment.Run.ID = "run-2" })
		if err == nil || !containsText(err.Error(), "asks for run run-2") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("already reported", func(t *testing.T) {
		teams := &modelTeams{}
		res, _, err := runModel(t, defaultPlan(), teams, func(_ *Runner, m *memoryReporter) {
			m.assignment.Reported = &api.NodeRunStatus{ID: "run-1", Phase: api.NodeRunFinished, Verdict: api.VerdictFail, FinishTime: ptr.To(metav1.Now())}
		})
		if err != nil || !res.Reported || len(teams.teams) != 0 {
			t.Errorf("error %v, %d teams started", err, len(teams.teams))
		}
	})
}
