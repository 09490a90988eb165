package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/commnode"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// Assignment is what the controller asks of the node.
type Assignment struct {
	// Group that the CommNode is of.
	Group types.NamespacedName
	// Run is nil while nothing is asked for.
	Run *api.RunAssignment
	// Ranks on this node.
	Ranks int
	// Reported is the last report, if any.
	Reported *api.NodeRunStatus
	// BudgetBytes is what a report may take as JSON.
	BudgetBytes int
	// Facts that the node's monitor last reported; nil where it never did.
	Facts *api.NodeFacts
}

// Reporter is the way to the CommNode.
type Reporter interface {
	// Assignment reads what is asked for; commnode.ErrSuperseded where the object is gone.
	Assignment(ctx context.Context) (Assignment, error)
	// Report writes status.run, unless the CommNode asks for another run (commnode.ErrSuperseded).
	Report(ctx context.Context, status api.NodeRunStatus) error
}

// Config says which run to carry out.
type Config struct {
	Node, RunID string
	// WaitForPlan bounds the wait for the CommNode to ask for the run.
	WaitForPlan time.Duration
	// ReportGrace is how long after the run deadline reports are still tried; InterruptedGrace how long after SIGTERM,
	// which must fit the pod's grace period.
	ReportGrace, InterruptedGrace time.Duration
	// LockDir is where runs on this machine keep each other off their GPUs (preflight.Lock).
	LockDir string
}

// Runner carries out one run on one node.
type Runner struct {
	Config   Config
	Teams    supervise.TeamRunner
	Reporter Reporter
	Host     preflight.Host
	Clock    clock.Clock
	// Environ is the pod's environment, as os.Environ gives it.
	Environ []string
	Log     *slog.Logger
}

// Result is what a run came to.
type Result struct {
	// Status as it was last reported or tried to; Full is the same with every size and message.
	Status, Full api.NodeRunStatus
	// Reported says that the API server took it.
	Reported bool
}

const (
	planPollInterval = time.Second
	attemptTimeout   = 10 * time.Second
	backoffFirst     = 500 * time.Millisecond
	backoffMax       = 10 * time.Second
)

// Run waits for the plan, carries it out and reports. The error is nil where a final report was written, whatever its
// verdict; else it says why none was, and the result holds what there is.
func (r *Runner) Run(ctx context.Context) (Result, error) {
	a, err := r.awaitPlan(ctx)
	if err != nil {
		return Result{}, err
	}
	if a.Reported != nil && a.Reported.ID == a.Run.ID && a.Reported.Phase == api.NodeRunFinished {
		r.Log.Info("this run was already reported", "verdict", a.Reported.Verdict)
		return Result{Status: *a.Reported, Full: *a.Reported, Reported: true}, nil
	}
	began := r.Clock.Now()
	base := api.NodeRunStatus{ID: a.Run.ID, Generation: a.Run.Generation, Phase: api.NodeRunRunning, StartTime: metav1.NewTime(began)}
	if base.BootID, err = r.Host.BootID(); err != nil {
		r.Log.Warn("boot id unknown", "error", err)
	}
	base.BootID = clip.Head(base.BootID, 64)
	plan := a.Run.Plan
	plan.Env = api.WithoutComputed(plan.Env)
	x := &execution{Runner: r, base: base, plan: plan, ranks: a.Ranks, nodes: 1, runDeadline: began.Add(seconds(a.Run.Plan.RunDeadlineSeconds))}
	e, err := x.carryOut(ctx)
	if err != nil {
		return Result{Status: base, Full: base}, err
	}
	e.Group = a.Group
	e.Host = hostFacts(a.Facts, x.facts.Discovered)
	j := Judge(e)
	full := Finished(base, e, j, metav1.NewTime(r.Clock.Now()))
	result := Result{Status: Fit(full, a.BudgetBytes, thresholdSizes(a.Run.Plan)), Full: full}
	r.Log.Info("run finished", "verdict", full.Verdict, "reason", full.Reason, "message", full.Message)

	until := x.runDeadline.Add(r.Config.ReportGrace)
	// A run that was told to stop still says so, within its grace.
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.Config.InterruptedGrace, cancel) })()
	result.Status, err = r.reportFinal(rctx, result.Status, until)
	result.Reported = err == nil
	return result, err
}

// awaitPlan polls the CommNode until it asks for this run.
func (r *Runner) awaitPlan(ctx context.Context) (Assignment, error) {
	until := r.Clock.Now().Add(r.Config.WaitForPlan)
	for {
		var seen string
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		a, err := r.Reporter.Assignment(actx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return a, fmt.Errorf("node %s: interrupted while waiting for run %s: %w", r.Config.Node, r.Config.RunID, context.Cause(ctx))
		case errors.Is(err, commnode.ErrSuperseded):
			return a, err
		case err != nil:
			seen = err.Error()
		case a.Run == nil:
			seen = "a CommNode that asks for no run"
		case a.Run.ID != r.Config.RunID:
			seen = "a CommNode that asks for run " + a.Run.ID
		case a.Run.Closed != nil:
			return a, fmt.Errorf("node %s: %w: run %s was closed by the controller: %s", r.Config.Node, commnode.ErrSuperseded, a.Run.ID, a.Run.Closed.Message)
		case a.Ranks < 1:
			seen = "a CommNode that gives the node no ranks"
		default:
			return a, nil
		}
		if !r.Clock.Now().Before(until) {
			return a, fmt.Errorf("node %s: waited %s for run %s, saw %s: the run may have been superseded; check the CommNode's spec.run and the pod's access to it",
				r.Config.Node, r.Config.WaitForPlan, r.Config.RunID, seen)
		}
		r.pause(ctx, planPollInterval)
	}
}

// pause waits on the runner's clock, or until the context ends.
func (r *Runner) pause(ctx context.Context, d time.Duration) {
	t := r.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}

// reportFinal writes the last report, again and again until it is taken, refused for good, or the time is up.
func (r *Runner) reportFinal(ctx context.Context, s api.NodeRunStatus, until time.Time) (api.NodeRunStatus, error) {
	wait := backoffFirst
	reduced := false
	for {
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := r.Reporter.Report(actx, s)
		cancel()
		switch {
		case err == nil, errors.Is(err, commnode.ErrSuperseded):
			return s, err
		case errors.Is(err, commnode.ErrRejected) && !reduced:
			r.Log.Error("report rejected, trying it with the verdict only", "error", err)
			s, reduced = verdictOnly(s, err), true
			continue
		case errors.Is(err, commnode.ErrRejected):
			return s, err
		}
		r.Log.Warn("report not written, trying again", "error", err, "after", wait.String())
		if ctx.Err() != nil || r.Clock.Now().Add(wait).After(until) {
			return s, fmt.Errorf("node %s: run %s ended with %s (%s), but the report could not be written: %w", r.Config.Node, s.ID, s.Verdict, s.Reason, err)
		}
		r.pause(ctx, wait)
		wait = min(2*wait, backoffMax)
	}
}

// verdictOnly is a report that any API server of this version takes.
func verdictOnly(s api.NodeRunStatus, cause error) api.NodeRunStatus {
	return api.NodeRunStatus{
		ID: s.ID, Generation: s.Generation, Phase: s.Phase, StartTime: s.StartTime, FinishTime: s.FinishTime, BootID: s.BootID,
		Verdict: s.Verdict, Reason: s.Reason, Culprits: s.Culprits, Library: s.Library,
		Message: clip.Head(clip.Head(s.Message, 640)+"; details are only in the run pod's log, since the API server rejected them: "+cause.Error(), 1024),
	}
}

// execution is a run being carried out.
type execution struct {
	*Runner
	base        api.NodeRunStatus
	plan        api.RunPlan
	ranks       int
	nodes       int // that its communicators reach over
	runDeadline time.Time
	facts       preflight.NodeFacts // before any rank was started
}

// carryOut gathers the evidence. Its error is commnode.ErrSuperseded; all else is evidence.
func (x *execution) carryOut(ctx context.Context) (Evidence, error) {
	e := Evidence{Node: x.Config.Node, Plan: x.plan, Ranks: x.ranks, PCI: make([]string, x.ranks)}
	if err := x.progress(ctx, "probing the library and GPUs"); err != nil {
		return e, err
	}
	if e.Failure = x.precheck(ctx, &e); e.Failure != nil {
		return e, nil
	}
	probed, failure := x.probe(ctx, &e)
	if e.Failure = failure; failure != nil {
		return e, nil
	}
	release, failure := x.lock(&e, probed)
	defer release()
	if e.Failure = failure; failure != nil {
		return e, nil
	}
	for _, a := range attempts(x.plan, x.ranks) {
		v := a.VariantPlan
		if err := x.progress(ctx, a.name()); err != nil {
			return e, err
		}
		out := x.Teams.Run(ctx, supervise.Team{
			Node: e.Node, Name: a.name(), Specs: specs(e.Node, x.plan, v, e.PCI),
			Env: x.environment(e.Library, v.Variant), RunDeadline: x.runDeadline,
		})
		x.Log.Info("variant finished", "variant", a.name(), "duration", out.Duration.String(), "ok", out.Failure == nil)
		e.Variants = append(e.Variants, VariantOutcome{v.Variant, out})
		e.Failure = out.Failure
		wrong, isWrong := FirstWrong(Tabulate(e.Variants, x.ranks))
		switch {
		case isWrong:
			return e, x.search(ctx, &e, wrong.String()+" gives wrong data", ptr.To(wrong.at()), true)
		case needsSearch(out.Failure):
			verb := "fails"
			if out.Failure.Kind == supervise.FailHung {
				verb = "hangs"
			}
			return e, x.search(ctx, &e, fmt.Sprintf("%s %s %s", v.Variant, out.Failure.Step, verb), out.Failure.At, false)
		case out.Failure != nil:
			return e, nil
		}
	}
	return e, nil
}

// probe starts one process on each GPU that only loads the library: what it says decides the environment of all others.
func (x *execution) probe(ctx context.Context, e *Evidence) ([]supervise.RankOutcome, *supervise.Failure) {
	team := supervise.Team{Node: e.Node, Name: "probe", Env: supervise.RankEnvironment(x.Environ, SettingsOf(x.plan).Env, e.Node), RunDeadline: x.runDeadline}
	for i := range x.ranks {
		team.Specs = append(team.Specs, rank.Spec{
			Node: e.Node, Variant: rcclx.Baseline, Rank: i, WorldSize: 0, Nodes: 1, Device: i, LibraryPath: x.plan.LibraryPath,
			InitDeadline: seconds(x.plan.InitDeadlineSeconds), StepDeadline: seconds(x.plan.StepDeadlineSeconds),
		})
	}
	out := x.Teams.Run(ctx, team)
	for i, r := range out.Ranks {
		if r.Library != nil {
			e.PCI[i] = r.PCIAddress
			if e.Library == nil {
				e.Library = r.Library
			}
		}
	}
	return out.Ranks, out.Failure
}

func (x *execution) environment(lib *rcclx.LibraryInfo, v rcclx.Variant) []string {
	return supervise.RankEnvironment(x.Environ, rcclx.Environment(lib.Gates(), v, SettingsOf(x.plan)), x.Config.Node)
}

func (x *execution) search(ctx context.Context, e *Evidence, what string, at *rank.Position, wrongData bool) error {
	if err := x.progress(ctx, clip.Head("search for the culprit: "+what, 128)); err != nil {
		return err
	}
	s := search(ctx, x.Teams, searchTask{
		node: e.Node, plan: x.plan, pci: e.PCI, what: what, step: repeatStep(at, x.plan), wrongData: wrongData,
		env: x.environment(e.Library, rcclx.Baseline), runDeadline: x.runDeadline,
	}, func(round int, groups [][]int) {
		x.Log.Info("search for the culprit", "round", round, "groups", fmt.Sprint(groups))
	})
	x.Log.Info("search finished", "gpus", s.Finding.GPUs, "links", s.Finding.Links, "why", s.Finding.Why)
	e.Search = &s
	return nil
}

// progress reports the step that the run is at, once: a report that fails here is not repeated, since the next one says
// more. Only commnode.ErrSuperseded is an error: it ends the run.
func (x *execution) progress(ctx context.Context, step string) error {
	s := x.base
	s.Step = step
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := x.Reporter.Report(actx, s)
	if errors.Is(err, commnode.ErrSuperseded) {
		return fmt.Errorf("node %s: %w: the ranks were ended", x.Config.Node, err)
	}
	if err != nil && ctx.Err() == nil {
		x.Log.Warn("progress not reported", "step", step, "error", err)
	}
	return nil
}
