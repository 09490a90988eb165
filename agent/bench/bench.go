// Package bench measures collectives on the GPUs of one machine, as a user would with rccl-tests, without Kubernetes:
// each variant of settings in fresh rank processes on the same GPUs, every result checked.
package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

// Config is what a user asks for.
type Config struct {
	// Node is the machine's name, for messages and as the library's host id.
	Node string
	// Ranks of the communicator; zero means one for each of Devices, or for each GPU of the machine where that is
	// empty, too.
	Ranks int
	// Devices are the GPUs' ordinals, by rank; empty means 0 and up.
	Devices     []int
	Collectives []rcclx.Collective
	Datatypes   []rcclx.Datatype
	Placements  []rcclx.Placement
	SizesBytes  []int64
	Variants    []rcclx.Variant
	// Data to check with; empty means Exact, and in LowPrecision Rounding, Gradients and Activations for what FP8
	// takes.
	Data                         []rcclx.Data
	WarmupIterations, Iterations int
	// DDA's thresholds, and the collectives of LowPrecision; the modes are the variants' business.
	DDA          rcclx.DDASettings
	LowPrecision rcclx.LowPrecisionSettings
	// Env are variables for the ranks, which win over those of Environ.
	Env []rcclx.EnvVar
	// LibraryPath and RuntimePath to load; empty means librccl.so.1 and libamdhip64.so by the loader's search.
	LibraryPath, RuntimePath string
	// InitDeadline bounds the forming of a communicator, StepDeadline one measurement, Deadline the whole.
	InitDeadline, StepDeadline, Deadline time.Duration
	// PairProbe measures all pairs of ranks, too.
	PairProbe bool
	// NonBlocking forms communicators without blocking, see rank.Spec.
	NonBlocking bool
}

// Bench is one measurement to be carried out.
type Bench struct {
	Config
	Teams supervise.TeamRunner
	Host  preflight.Host
	// LockDir is where runs on this machine meet, see preflight.Lock.
	LockDir string
	Clock   clock.Clock
	// Environ is the user's environment, as os.Environ gives it. The library's own variables in it reach the ranks.
	Environ []string
	// Progress hears how far the measurement is; nil for none.
	Progress Progress
}

// Progress hears how far a measurement is. Its calls come one at a time.
type Progress interface {
	// Note is what happens next, in a few words.
	Note(text string)
	// Measured is one result that all ranks have, the done-th of total.
	Measured(done, total int, r results.Result)
}

// UsageError is a request that cannot be carried out as it stands; nothing was measured.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

func usage(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// bench is a Bench under way; its Config is a copy.
type bench struct {
	Bench
	until  time.Time
	env    []rcclx.EnvVar // the person's own variables
	facts  preflight.NodeFacts
	found  []preflight.Finding // preconditions, those that hold too
	lib    *rcclx.LibraryInfo
	pci    []string // by rank
	plan   plan
	report results.Report
	done   int
}

// Run measures. The report holds what was measured, and why it ended early, if it did. The error is a UsageError.
func (b *Bench) Run(ctx context.Context) (results.Report, error) {
	began := b.Clock.Now()
	x := &bench{Bench: *b, env: ownVariables(b.Environ, b.Env)}
	if b.Deadline > 0 {
		x.until = began.Add(b.Deadline)
	}
	if err := x.validate(); err != nil {
		return results.Report{}, err
	}
	x.note("looking at the machine")
	x.facts = preflight.Gather(ctx, b.Host, b.Environ)
	if err := x.choose(); err != nil {
		return results.Report{}, err
	}
	x.report = results.Report{Source: results.SourceBench, Node: x.Node,
		Time: began.UTC().Truncate(time.Second), Ranks: len(x.Devices), Nodes: 1, Results: []results.Result{},
		Environment: map[rcclx.Variant][]rcclx.EnvVar{}, InitNanoseconds: map[rcclx.Variant]int64{}}
	var err error
	if x.plan, err = makePlan(x.Config, x.env); err != nil {
		return results.Report{}, err
	}
	x.report.Warnings = x.plan.warnings()
	if err := x.carryOut(ctx); err != nil {
		return results.Report{}, err
	}
	return x.report, nil
}

func (x *bench) note(format string, args ...any) {
	if x.Progress != nil {
		x.Progress.Note(fmt.Sprintf(format, args...))
	}
}

// carryOut goes from the preconditions to the last variant, or to the first failure.
func (x *bench) carryOut(ctx context.Context) error {
	if x.precondition(preflight.CheckNode(x.facts, x.need())) {
		return nil
	}
	probed, ok := x.probe(ctx)
	if !ok {
		return nil
	}
	if x.NonBlocking && x.lib != nil && !x.lib.NonBlocking() {
		x.warn("communicators are formed blocking: the library is version %s, and non-blocking ones need version "+
			"2.14.0 or later", x.lib.VersionString())
	}
	if err := x.fit(); err != nil {
		return err
	}
	release, held := preflight.Lock(x.LockDir, x.pci, preflight.Holder{Run: "agent bench", Start: x.Clock.Now()})
	defer release()
	if held != nil && x.precondition([]preflight.Finding{*held}) {
		return nil
	}
	if x.memory(probed) || x.precondition(preflight.CheckRanks(x.facts, rankFacts(probed), x.need())) {
		return nil
	}
	x.report.Settings = x.settings()
	for _, v := range x.plan.variants {
		if failed := x.variant(ctx, v); failed {
			return nil
		}
	}
	x.report.Checks = x.references()
	return nil
}

// need is what the measurement asks of the machine; of its memory only once a library was loaded.
func (x *bench) need() preflight.Need {
	n := preflight.Need{Ranks: len(x.Devices), Nodes: 1, Variants: x.Variants,
		Environ: supervise.RankEnvironment(x.Environ, x.env, x.Node)}
	if x.lib != nil {
		n.Flavor, n.Environ = x.lib.Gates(), x.environ(rcclx.Baseline)
		n.MemoryBytes = x.plan.memoryBytes(x.lib.Gates(), len(x.Devices), noLimit)
	}
	return n
}

// environ is the whole environment of a variant's ranks.
func (x *bench) environ(v rcclx.Variant) []string {
	return supervise.RankEnvironment(x.Environ, rcclx.Environment(x.lib.Gates(), v, x.settingsOf(v)), x.Node)
}

// settingsOf are the settings that a variant stands for.
func (x *bench) settingsOf(v rcclx.Variant) rcclx.Settings { return settingsOf(x.Config, x.env, v) }

func settingsOf(c Config, env []rcclx.EnvVar, v rcclx.Variant) rcclx.Settings {
	s := rcclx.Settings{DDA: c.DDA, LowPrecision: c.LowPrecision, Env: env}
	s.DDA.Mode, s.LowPrecision.Mode = rcclx.ModeDisabled, rcclx.ModeDisabled
	switch v {
	case rcclx.DDA:
		s.DDA.Mode = rcclx.ModePreferred
	case rcclx.LowPrecision:
		s.LowPrecision.Mode = rcclx.ModePreferred
	}
	return s
}

// precondition puts what was found into the report; true where it ends the measurement.
func (x *bench) precondition(findings []preflight.Finding) (failed bool) {
	x.found = preflight.Join(x.found, findings)
	for _, f := range findings {
		switch {
		case f.Pending: // found again once the library is known
		case f.State == preflight.Warning:
			x.warn("%s: %s", f.Name, f.Advised(audience.Shell))
		case f.State == preflight.Unknown:
			x.warn("not known: %s: %s", f.Name, f.Advised(audience.Shell))
		}
	}
	f := preflight.FirstFailed(findings)
	if f == nil {
		return false
	}
	code := rank.CodePreconditionFailed
	if f.Name == preflight.GPUMemory {
		code = rank.CodeInsufficientMemory
	}
	x.failBefore(code, f.Rank, f.Name+": "+f.Advised(audience.Shell))
	return true
}

// deadlineFlag is what bounds the whole.
const deadlineFlag = "--deadline"

func (x *bench) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(x.report.Warnings, text) {
		x.report.Warnings = append(x.report.Warnings, text)
	}
}

// failBefore ends the measurement before the first communicator. Nothing was measured that a warning could be about.
func (x *bench) failBefore(code string, r int, message string) {
	f := &results.Failure{Kind: string(supervise.FailRankError), Code: code, Step: "preconditions", Message: message}
	if r >= 0 {
		f.Rank, f.Device = &r, x.device(r)
	}
	x.report.Failure, x.report.Warnings = f, nil
}

const nextWithoutGPU = "load the amdgpu driver and look for it in the kernel log; in a container, give it --device " +
	"/dev/kfd --device /dev/dri"

// failLoading ends the measurement because a process could not load the library or use its GPU: where the kernel shows
// no GPU at all, that is the cause, and what the process said is not told. Of the warnings those stay that can explain
// it.
func (x *bench) failLoading(out supervise.Outcome) {
	f := x.failure("", out)
	x.report.Failure, x.report.Warnings = f, nil
	for _, p := range x.found {
		switch {
		case p.Name == preflight.GPUCount && x.facts.ShowsNoGPU():
			x.failBefore(rank.CodePreconditionFailed, -1, "no GPU was found: "+p.Message)
			x.report.Failure.Next = nextWithoutGPU
			return
		case p.State == preflight.Warning && (p.Name == preflight.HiddenGPUs || p.Name == preflight.ROCmVersion):
			x.warn("%s: %s", p.Name, p.Advised(audience.Shell))
		}
	}
}

// device names a rank's GPU.
func (x *bench) device(r int) string {
	switch {
	case r < len(x.pci) && x.pci[r] != "":
		return x.pci[r]
	case r < len(x.Devices):
		return fmt.Sprintf("ordinal %d", x.Devices[r])
	}
	return ""
}

func rankFacts(ranks []supervise.RankOutcome) []preflight.RankFacts {
	out := make([]preflight.RankFacts, len(ranks))
	for i, r := range ranks {
		out[i] = preflight.RankFacts{Rank: r.Rank, Device: r.Device, ProcessID: r.ProcessID, Library: r.Library}
	}
	return out
}

// probe starts one process on each GPU that only loads the library: what it says decides the environment of all others.
func (x *bench) probe(ctx context.Context) (ranks []supervise.RankOutcome, ok bool) {
	x.note("loading the library on %d GPUs", len(x.Devices))
	team := supervise.Team{Node: x.Node, Name: "probe", Audience: audience.Shell, RunDeadlineField: deadlineFlag,
		Env: supervise.RankEnvironment(x.Environ, x.env, x.Node), RunDeadline: x.until}
	for r, d := range x.Devices {
		team.Specs = append(team.Specs, rank.Spec{Node: x.Node, Variant: rcclx.Baseline,
			Rank: r, WorldSize: 0, Nodes: 1, Device: d, LibraryPath: x.LibraryPath,
			RuntimePath: x.RuntimePath, InitDeadline: x.InitDeadline, StepDeadline: x.StepDeadline})
	}
	out := x.Teams.Run(ctx, team)
	x.pci = make([]string, len(x.Devices))
	for i, r := range out.Ranks {
		if r.Library == nil {
			continue
		}
		x.pci[i] = r.Library.PCIAddress
		x.report.Devices = append(x.report.Devices, results.Device{Rank: r.Rank, Ordinal: r.Device,
			PCIAddress: r.Library.PCIAddress, Name: r.Library.DeviceName})
		if x.lib == nil {
			x.lib = r.Library
			shown := *r.Library // what is one device's stands with the devices
			shown.DeviceName, shown.PCIAddress, shown.TotalMemoryBytes, shown.FreeMemoryBytes = "", "", 0, 0
			x.report.Library, x.report.Simulated = &shown, shown.Simulated()
		}
	}
	if out.Failure != nil {
		x.failLoading(out)
		return nil, false
	}
	return out.Ranks, true
}

// variant measures one variant; true where it failed.
func (x *bench) variant(ctx context.Context, v variantPlan) (failed bool) {
	x.note("%s: forming a communicator of %d ranks", v.variant, len(x.Devices))
	c := newCollector(v.variant, len(x.Devices))
	team := supervise.Team{Node: x.Node, Name: string(v.variant), Audience: audience.Shell,
		RunDeadlineField: deadlineFlag, Env: x.environ(v.variant), RunDeadline: x.until, OnEvent: func(e rank.Event) {
			if e.Kind != rank.EventMeasured {
				return
			}
			if r, complete := c.add(e.Rank, *e.Measurement); complete {
				x.done++
				if x.Progress != nil {
					x.Progress.Measured(x.done, x.plan.total, r)
				}
			}
		}}
	for r, d := range x.Devices {
		team.Specs = append(team.Specs, rank.Spec{Node: x.Node, Variant: v.variant, Rank: r,
			WorldSize: len(x.Devices), Nodes: 1, Device: d, PCIAddress: x.pci[r], LibraryPath: x.LibraryPath,
			RuntimePath: x.RuntimePath, NonBlocking: x.NonBlocking, Settings: x.settingsOf(v.variant), Steps: v.steps,
			InitDeadline: x.InitDeadline, StepDeadline: x.StepDeadline})
	}
	out := x.Teams.Run(ctx, team)
	measured := c.results()
	x.report.Results = append(x.report.Results, measured...)
	for _, text := range slices.Concat(hazardous(measured), lostValues(measured)) {
		x.warn("%s", text)
	}
	x.report.Environment[v.variant] = rcclx.Environment(x.lib.Gates(), v.variant, x.settingsOf(v.variant))
	var slowest time.Duration
	for _, r := range out.Ranks {
		slowest = max(slowest, r.InitDuration)
	}
	if slowest > 0 {
		x.report.InitNanoseconds[v.variant] = slowest.Nanoseconds()
	}
	for _, p := range executor.PairBandwidths(out.Ranks) {
		x.report.Pairs = append(x.report.Pairs, results.Pair{RankA: p.A, RankB: p.B, SizeBytes: p.SizeBytes,
			BandwidthMBps: p.BandwidthMBps, WrongElements: p.WrongElements})
	}
	for _, text := range c.incomplete() {
		x.warn("%s", text)
	}
	if out.Failure != nil {
		x.report.Failure = x.failure(v.variant, out)
		return true
	}
	for _, text := range v.missing(c, len(x.Devices), len(x.report.Pairs)) {
		x.warn("%s", text)
		if !failed {
			x.report.Failure = &results.Failure{Variant: v.variant, Kind: "Incomplete", Message: text}
		}
		failed = true
	}
	return failed
}
