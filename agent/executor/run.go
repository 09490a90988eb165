package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// Assignment is what the controller asks of the node.
type Assignment struct {
	// Group that the CommTask is of.
	Group types.NamespacedName
	// Run is nil while nothing is asked for.
	Run *api.RunAssignment
	// Plan is the CommRun's.
	Plan api.RunPlan
	// Ranks on this node.
	Ranks int
	// Reported is the last report, if any.
	Reported *api.NodeRunStatus
	// BudgetBytes is what a report may take as JSON.
	BudgetBytes int
}

// Reporter is the way to the CommTask.
type Reporter interface {
	// Assignment reads what is asked for; commtask.ErrSuperseded where the object is gone.
	Assignment(ctx context.Context) (Assignment, error)
	// ReportRun writes status.run, unless the CommTask asks for another run (commtask.ErrSuperseded).
	ReportRun(ctx context.Context, status api.NodeRunStatus) error
}

// Config says which run to carry out, and how long to wait.
type Config struct {
	RunID string
	// Wait bounds the wait for the CommTask to ask for the run.
	Wait time.Duration
	// ReportGrace is how long after the end of its work the last report is still tried; InterruptedGrace how long
	// after SIGTERM, which must fit the pod's grace period.
	ReportGrace, InterruptedGrace time.Duration
}

// Runner carries out one run on one node.
type Runner struct {
	Node
	Config   Config
	Reporter Reporter
}

// Result is what a run came to.
type Result struct {
	// Status as it was last reported or tried to; Full is the same with every size and message.
	Status, Full api.NodeRunStatus
	// Reported says that the API server took it.
	Reported bool
}

const planPollInterval = time.Second

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
	x := r.begin(a)
	e, err := x.carryOut(ctx)
	if err != nil {
		return Result{Status: x.base, Full: x.base}, err
	}
	e.Group, e.Host = a.Group, hostFacts(a.Run.Platform, e.Discovered)
	full := Finished(x.base, e, Judge(e), metav1.NewTime(r.Clock.Now()))
	r.Log.Info("run finished", "verdict", full.Verdict, "reason", full.Reason, "message", full.Message)
	within := x.runDeadline.Add(r.Config.ReportGrace).Sub(r.Clock.Now())
	fitted := FitRun(full, a.BudgetBytes, thresholdSizes(x.plan))
	status, err := r.reporter().last(ctx, fitted, within, r.Config.InterruptedGrace)
	if err != nil {
		err = fmt.Errorf("node %s: run %s ended with %s (%s), but the report could not be written: %w",
			r.Name, full.ID, full.Verdict, full.Reason, err)
	}
	return Result{Status: status, Full: full, Reported: err == nil}, err
}

// begin starts the time of a run.
func (r *Runner) begin(a Assignment) *execution {
	began := r.Clock.Now()
	boot, err := r.Host.BootID()
	if err != nil {
		r.Log.Warn("boot id unknown", "error", err)
	}
	base := api.NodeRunStatus{ID: a.Run.ID, Generation: a.Run.Generation, Phase: api.NodeRunRunning,
		StartTime: metav1.NewTime(began), BootID: clip.Head(boot, 64)}
	return &execution{Runner: r, base: base, plan: a.Plan, ranks: a.Ranks,
		runDeadline: began.Add(seconds(a.Plan.RunDeadlineSeconds))}
}

func (r *Runner) reporter() reporter[api.NodeRunStatus] {
	return reporter[api.NodeRunStatus]{write: r.Reporter.ReportRun, verdictOnly: verdictOnly,
		clock: r.Clock, log: r.Log}
}

// awaitPlan polls the CommTask until it asks for this run.
func (r *Runner) awaitPlan(ctx context.Context) (Assignment, error) {
	until := r.Clock.Now().Add(r.Config.Wait)
	for {
		var seen string
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		a, err := r.Reporter.Assignment(actx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return a, fmt.Errorf("node %s: interrupted while waiting for run %s: %w",
				r.Name, r.Config.RunID, context.Cause(ctx))
		case errors.Is(err, commtask.ErrSuperseded):
			return a, err
		case err != nil:
			seen = err.Error()
		case a.Run == nil:
			seen = "a CommTask that asks for no run"
		case a.Run.ID != r.Config.RunID:
			seen = "a CommTask that asks for run " + a.Run.ID
		case a.Run.Closed != nil:
			return a, fmt.Errorf("node %s: %w: run %s was closed by the controller: %s",
				r.Name, commtask.ErrSuperseded, a.Run.ID, a.Run.Closed.Message)
		case a.Ranks < 1:
			seen = "a CommTask that gives the node no ranks"
		default:
			return a, nil
		}
		if !r.Clock.Now().Before(until) {
			return a, fmt.Errorf("node %s: waited %s for run %s, saw %s: the run may have been superseded; "+
				"check spec.run of the CommTask, its CommRun, and the pod's access to both",
				r.Name, r.Config.Wait, r.Config.RunID, seen)
		}
		pause(ctx, r.Clock, planPollInterval)
	}
}

// pause waits so long, or until the context ends.
func pause(ctx context.Context, c clock.Clock, d time.Duration) {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}

// verdictOnly is a report that any API server of this version takes.
func verdictOnly(s api.NodeRunStatus, cause error) api.NodeRunStatus {
	return api.NodeRunStatus{
		ID: s.ID, Generation: s.Generation, Phase: s.Phase, StartTime: s.StartTime, FinishTime: s.FinishTime,
		BootID:  s.BootID,
		Verdict: s.Verdict, Reason: s.Reason, Culprits: s.Culprits, Library: s.Library,
		Message: clip.Head(clip.Head(s.Message, 640)+
			"; details are only in the run pod's log, since the API server rejected them: "+cause.Error(), 1024),
	}
}

// execution is a run being carried out.
type execution struct {
	*Runner
	base        api.NodeRunStatus
	plan        api.RunPlan
	ranks       int
	runDeadline time.Time
}

// carryOut gathers the evidence. Its error is commtask.ErrSuperseded; all else is evidence.
func (x *execution) carryOut(ctx context.Context) (Evidence, error) {
	e := Evidence{Node: x.Name, Plan: x.plan, Ranks: x.ranks}
	if err := x.progress(ctx, "probing the library and GPUs"); err != nil {
		return e, err
	}
	e.Prepared, e.Failure = x.Prepare(ctx, Preparation{RunID: x.base.ID, Ranks: x.ranks, Nodes: 1, Plan: x.plan,
		Deadline: x.runDeadline})
	defer e.Release()
	if e.Failure != nil {
		return e, nil
	}
	for _, a := range attempts(x.plan, x.ranks) {
		v := a.VariantPlan
		if err := x.progress(ctx, a.name()); err != nil {
			return e, err
		}
		out := x.Teams.Run(ctx, supervise.Team{
			Node: e.Node, Name: a.name(), Specs: specs(e.Node, x.plan, v, e.PCI),
			Env: x.rankEnvironment(x.plan, *e.Library, v.Variant), RunDeadline: x.runDeadline,
		})
		x.Log.Info("variant finished", "variant", a.name(), "duration", out.Duration.String(), "ok", out.Failure == nil)
		e.Variants = append(e.Variants, VariantOutcome{v.Variant, out})
		e.Failure = out.Failure
		wrong := Tabulate(e.Variants, x.ranks, allRanks(x.ranks)).Wrong
		switch {
		case wrong != nil:
			return e, x.search(ctx, &e, wrong.String()+" gives wrong data", ptr.To(wrong.at()), true)
		case needsSearch(out.Failure):
			verb := "fails"
			if out.Failure.Kind == supervise.FailHung {
				verb = "hangs"
			}
			return e,
				x.search(ctx, &e, fmt.Sprintf("%s %s %s", v.Variant, out.Failure.Step, verb), out.Failure.At, false)
		case out.Failure != nil:
			return e, nil
		}
	}
	return e, nil
}

func (x *execution) search(ctx context.Context, e *Evidence, what string, at *rank.Position, wrongData bool) error {
	if err := x.progress(ctx, clip.Head("search for the culprit: "+what, 128)); err != nil {
		return err
	}
	s := search(ctx, x.Teams, searchTask{
		node: e.Node, plan: x.plan, pci: e.PCI, what: what, step: repeatStep(at, x.plan), wrongData: wrongData,
		env: x.rankEnvironment(x.plan, *e.Library, rcclx.Baseline), runDeadline: x.runDeadline,
	}, func(round int, groups [][]int) {
		x.Log.Info("search for the culprit", "round", round, "groups", fmt.Sprint(groups))
	})
	x.Log.Info("search finished", "gpus", s.Finding.Members, "links", s.Finding.Pairs, "why", s.why())
	e.Search = &s
	return nil
}

// progress reports the step that the run is at, once: a report that fails here is not repeated, since the next one says
// more. Only commtask.ErrSuperseded is an error: it ends the run.
func (x *execution) progress(ctx context.Context, step string) error {
	s := x.base
	s.Step = step
	err := x.reporter().once(ctx, s)
	if errors.Is(err, commtask.ErrSuperseded) {
		return fmt.Errorf("node %s: %w: the ranks were ended", x.Name, err)
	}
	if err != nil && ctx.Err() == nil {
		x.Log.Warn("progress not reported", "step", step, "error", err)
	}
	return nil
}
