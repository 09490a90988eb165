package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
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
	// tailWrong elements of each FP8 call whose count is no multiple of what FP8 needs, activationNaNs of each checked
	// one.
	tailWrong, activationNaNs int64
	// wrongBefore moves the first of tailWrong so many elements before the tail.
	wrongBefore int64
	// unchecked leaves a kind of data out of the checks.
	unchecked rcclx.Data
	// library changes what each rank says of its library.
	library func(*rcclx.LibraryInfo)
	teams   []supervise.Team
}

func (m *modelTeams) Run(ctx context.Context, team supervise.Team) supervise.Outcome {
	m.mu.Lock()
	m.teams = append(m.teams, team)
	m.mu.Unlock()
	out := supervise.Outcome{Team: team.Name}
	var gpus []int
	for _, s := range team.Specs {
		gpus = append(gpus, s.Device)
		r := supervise.RankOutcome{Rank: s.Rank, Device: s.Device, ProcessID: 1000 + s.Rank,
			PCIAddress: modelPCI(s.Device), Done: true, LastEvent: rank.EventDone, InitDuration: 5 * time.Millisecond,
			Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorSimulated, Imitates: rcclx.FlavorRCCLXDev,
				VersionCode: 22803, Path: "/opt/rocm/lib/librccl.so.1",
				BuildHash: "0123456789abcdef", RuntimeVersionCode: 60443484, PCIAddress: modelPCI(s.Device),
				TotalMemoryBytes: 192 << 30, FreeMemoryBytes: 190 << 30}}
		if m.library != nil {
			m.library(r.Library)
		}
		out.Ranks = append(out.Ranks, r)
	}
	if ctx.Err() != nil {
		out.Failure = &supervise.Failure{Kind: supervise.FailInterrupted, Rank: -1, Step: "load",
			Message: "interrupted: " + ctx.Err().Error()}
		return out
	}
	what := ""
	if m.bad != nil && team.Specs[0].WorldSize > 0 {
		what = m.bad(team.Specs[0].Variant, gpus)
	}
	if team.Specs[0].WorldSize == 0 {
		if m.bad != nil && m.bad("probe", gpus) == "missingLibrary" {
			out.Failure = &supervise.Failure{Kind: supervise.FailRankError, Rank: 0, Code: rank.CodeLibraryMissing,
				Step: "load", Message: "librccl.so.1 was not found"}
		}
		return out
	}
	first := team.Specs[0].Steps[0]
	at := &rank.Position{Kind: first.Kind, Collective: first.Collective, Datatype: first.Datatype,
		SizeBytes: first.SizesBytes[0]}
	switch what {
	case "hang":
		out.Failure = &supervise.Failure{Kind: supervise.FailHung, Rank: -1, Code: rank.CodeRankHung, Step: at.String(),
			At: at, Message: team.Name + " missed the deadline"}
		return out
	case "init":
		out.Failure = &supervise.Failure{Kind: supervise.FailRankError, Rank: 0, Code: rank.CodeInitFailed,
			Step: "init", Message: team.Name + " ncclCommInitRank failed"}
		return out
	case "die":
		out.Failure = &supervise.Failure{Kind: supervise.FailDied, Rank: len(gpus) - 1, Step: "init",
			Message: team.Name + " rank died"}
		return out
	}
	for i := range out.Ranks {
		m.measure(&out.Ranks[i], team.Specs[i], gpus, what == "wrong")
	}
	return out
}

func (m *modelTeams) measure(r *supervise.RankOutcome, spec rank.Spec, gpus []int, wrong bool) {
	for _, step := range spec.Steps {
		for _, size := range step.SizesBytes {
			if step.Kind == rank.StepPairProbe {
				for peer := range spec.WorldSize {
					mbps := int64(48000)
					if m.pairMBps != nil {
						mbps = m.pairMBps(min(gpus[r.Rank], gpus[peer]), max(gpus[r.Rank], gpus[peer]))
					}
					if peer != r.Rank {
						r.Pairs = append(r.Pairs,
							rank.PairMeasurement{Peer: peer, SizeBytes: size, BandwidthMBps: mbps})
					}
				}
				continue
			}
			r.Measurements = append(r.Measurements, m.measurement(spec, step, size, wrong))
		}
	}
}

func (m *modelTeams) measurement(spec rank.Spec, step rank.Step, size int64, wrong bool) rank.Measurement {
	x := rank.Measurement{Collective: step.Collective, Datatype: step.Datatype,
		Placement: step.Placement, SizeBytes: size}
	shape, _ := rcclx.ShapeOf(step.Collective, step.Datatype, size, spec.WorldSize)
	x.CountElements = shape.CountElements
	x.Latency.MedianNanoseconds = m.latencyOf(spec.Variant, step.Collective, size)
	fp8 := spec.Variant == rcclx.LowPrecision && size >= 16<<20 &&
		rcclx.KnowsLowPrecision(step.Collective, step.Datatype)
	if fp8 {
		x.Hazard = rcclx.Hazard(rcclx.FlavorRCCLXDev, spec.Variant, spec.Settings,
			rcclx.Call{Collective: step.Collective, Datatype: step.Datatype, Op: "Sum", SizeBytes: size,
				Ranks: spec.WorldSize, Nodes: 1})
	}
	for _, d := range step.Data {
		check := rcclx.CheckResult{Data: d, CheckedElements: 10}
		switch {
		case d == m.unchecked:
			continue
		case d == rcclx.DataGradients:
			check.MaxRelativeErrorPPM, check.MeanRelativeErrorPPM = 3900, 1700
			if fp8 {
				check.MaxRelativeErrorPPM, check.MeanRelativeErrorPPM = 61234, 23456
			}
		case d == rcclx.DataActivations:
			check.MaxRelativeErrorPPM, check.MeanRelativeErrorPPM, check.NaNElements, check.WrongElements = 62345,
				24567, m.activationNaNs, m.activationNaNs
		case fp8:
			check.MaxRelativeErrorPPM = m.relErr
			if x.Hazard != "" {
				check.WrongElements, check.MaxRelativeErrorPPM = m.tailWrong, 900_000
				if m.tailWrong > 0 {
					first := max(0,
						rcclx.HazardStart(step.Collective, spec.Rank, spec.WorldSize, x.CountElements)-m.wrongBefore)
					check.FirstWrongElement = &first
				}
			}
		}
		if wrong {
			check.WrongElements += 3
		}
		x.Checks = append(x.Checks, check)
	}
	if len(step.Data) == 0 { // a search's own step
		x.Checks = []rcclx.CheckResult{{CheckedElements: 10}}
		if wrong {
			x.Checks[0].WrongElements = 3
		}
	}
	return x
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

func (m *memoryReporter) ReportRun(_ context.Context, s api.NodeRunStatus) error {
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
	return []preflight.Interface{{Name: "eth0", Running: true,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}, nil
}

// defaultPlan is what the controller makes of a CommGroup's defaults, with all three variants.
func defaultPlan() api.RunPlan {
	return api.RunPlan{
		Variants:    []api.Variant{api.VariantBaseline, api.VariantDDA, api.VariantLowPrecision},
		Collectives: []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll},
		Datatypes:   []api.Datatype{api.BFloat16},
		SizesBytes:  rcclx.Sizes(1024, 64<<20, 4), WarmupIterations: 10, Iterations: 20,
		DDA:                 api.DDASpec{Mode: api.FeaturePreferred},
		LowPrecision:        api.LowPrecisionSpec{Mode: api.FeaturePreferred, MaxRelativeErrorPPM: 130000},
		InitDeadlineSeconds: 120, StepDeadlineSeconds: 60, RunDeadlineSeconds: 1800, LinkMinPercent: 70,
	}
}

// runModel runs a whole run on the model and returns the last report.
func runModel(t *testing.T, plan api.RunPlan, teams *modelTeams,
	change func(*Runner, *memoryReporter)) (Result, *memoryReporter, error) {
	t.Helper()
	rep := &memoryReporter{assignment: assignmentOf(plan)}
	r := &Runner{
		Node: Node{Name: "node-a", Teams: teams, Host: fakeHost{shm: 4 << 30, memlock: -1}, LockDir: t.TempDir(),
			Clock:   &steppingClock{clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))},
			Environ: []string{"PATH=/bin"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Config:   Config{RunID: "run-1", Wait: time.Minute, ReportGrace: time.Minute, InterruptedGrace: time.Minute},
		Reporter: rep,
	}
	if change != nil {
		change(r, rep)
	}
	res, err := r.Run(t.Context())
	return res, rep, err
}

// steppingClock is a fake clock whose timers fire at once, moving the time forward.
type steppingClock struct{ *clocktesting.FakeClock }

func (c *steppingClock) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}
