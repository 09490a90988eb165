package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// searchStepDeadline and searchInitDeadline bound each communicator of a search, where the plan's own are longer.
	searchStepDeadline = 10 * time.Second
	searchInitDeadline = 30 * time.Second
	// searchBytes is the largest size that a hang is searched for with: a good pair is done with it long before
	// searchStepDeadline, its data checked on the host, on any machine. With gigabytes it may not be, and would be
	// taken for one that hangs. Baseline, which a search runs, takes no other path above it.
	searchBytes = 64 << 20
)

// searchTask is what a search repeats in smaller communicators.
type searchTask struct {
	node string
	plan api.RunPlan
	pci  []string
	// what failed, in words, and the step to repeat.
	what string
	step rank.Step
	// wrongData says that it was wrong data and no hang, which may depend on the very size: it is kept, with the plan's
	// deadline, and a communicator that misses it tells nothing.
	wrongData bool
	env       []string
	// runDeadline that the search must not pass.
	runDeadline time.Time
}

// needsSearch says whether a failure leaves open which GPU or link is to blame. A death, an error of a rank's own, a
// rank that was stopped or a single one that stayed behind name it already; RAS's word alone does not.
func needsSearch(f *supervise.Failure) bool {
	if f == nil {
		return false
	}
	return f.Kind == supervise.FailHung && len(f.Stopped) == 0 && (f.Rank < 0 || f.ByRAS) ||
		f.Kind == supervise.FailRankError && (f.Code == rank.CodeInitFailed || f.Code == rank.CodeCollectiveFailed)
}

// repeatStep is the smallest step that repeats what failed at a position: at its size, a few times. Without one, as
// where the communicator was not formed, it is the plan's first.
func repeatStep(at *rank.Position, p api.RunPlan) rank.Step {
	step := rank.Step{Kind: rank.StepMeasure, Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16,
		SizesBytes: []int64{1 << 10}, WarmupIterations: 1, Iterations: 2}
	if len(p.Collectives) > 0 {
		step.Collective = rcclx.Collective(p.Collectives[0])
	}
	if len(p.Datatypes) > 0 {
		step.Datatype = rcclx.Datatype(p.Datatypes[0])
	}
	if len(p.SizesBytes) > 0 {
		step.SizesBytes = []int64{p.SizesBytes[0]}
	}
	switch {
	case at == nil:
	case at.Kind == rank.StepPairProbe:
		step.Kind, step.Collective, step.Datatype, step.SizesBytes = rank.StepPairProbe, "", "", []int64{1 << 20}
	default:
		step.Collective, step.Datatype, step.Placement, step.SizesBytes = at.Collective, at.Datatype, at.Placement,
			[]int64{at.SizeBytes}
	}
	return step
}

// search runs the rounds that the planner wants until it has no more, or something gets in its way that says nothing
// about GPUs.
func search(ctx context.Context, teams supervise.TeamRunner, task searchTask,
	onRound func(round int, groups [][]int)) Search {
	s := Search{What: task.what}
	if asked := task.step.SizesBytes; !task.wrongData {
		if task.step.SizesBytes = upTo(searchBytes, asked); !slices.Equal(asked, task.step.SizesBytes) {
			s.smaller = task.step.SizesBytes[0]
		}
	}
	gpus := len(task.pci)
	// Two are tried once more: what failed was another step, or with another size.
	problem := localize.Problem{Members: localize.Range(0, gpus), Steady: true, Fewer: gpus == 2}
	for gpus > 1 {
		step, err := localize.Next(problem, s.history())
		if s.Finding = step.Finding; err != nil || step.Done {
			break
		}
		if onRound != nil {
			var groups [][]int
			for _, t := range step.Tests {
				groups = append(groups, t.Set)
			}
			onRound(step.Round, groups)
		}
		if s.stopped = s.runRound(ctx, teams, task, step.Tests); s.stopped != "" {
			s.Finding, _ = localize.Conclude(problem, s.history())
			break
		}
	}
	return s
}

// upTo are sizes of which none is over most.
func upTo(most int64, sizes []int64) []int64 {
	out := make([]int64, len(sizes))
	for i, s := range sizes {
		out[i] = min(s, most)
	}
	return out
}

// deadline of a step of the search.
func (t searchTask) deadline() time.Duration {
	if t.wrongData {
		return seconds(t.plan.StepDeadlineSeconds)
	}
	return min(seconds(t.plan.StepDeadlineSeconds), searchStepDeadline)
}

// runRound runs the tests at once, and says what got in its way that says nothing about GPUs.
func (s *Search) runRound(ctx context.Context, teams supervise.TeamRunner, task searchTask,
	tests []localize.Test) (stopped string) {
	outcomes := make([]supervise.Outcome, len(tests))
	var wg sync.WaitGroup
	for i, t := range tests {
		wg.Go(func() {
			v := VariantPlan{Variant: rcclx.Baseline, Steps: []rank.Step{task.step}}
			specs := groupSpecs(task.node, task.plan, v, t.Set, task.pci,
				min(seconds(task.plan.InitDeadlineSeconds), searchInitDeadline), task.deadline())
			for r := range specs {
				specs[r].NonBlocking = true // nobody reads a search's times, and a failing init is seen sooner
			}
			outcomes[i] = teams.Run(ctx, supervise.Team{
				Node: task.node, Name: fmt.Sprintf("search round %d, GPU ordinals %s", t.Round, join(t.Set)),
				Specs: specs, Env: task.env, ExitDeadline: searchStepDeadline, RunDeadline: task.runDeadline,
			})
		})
	}
	wg.Wait()
	for i, t := range tests {
		p := probe{Test: t}
		if err := p.read(outcomes[i], task.wrongData); err != nil {
			return err.Error()
		}
		s.probes = append(s.probes, p)
	}
	return ""
}

// read whether the communicator worked; the error is for what says nothing about its GPUs.
func (p *probe) read(o supervise.Outcome, wrongData bool) error {
	p.Outcome = localize.Bad
	if f := o.Failure; f != nil {
		// With wrong data a hang is another fault than the one that is searched for.
		ofGPUs := f.Kind == supervise.FailHung && !wrongData || f.Kind == supervise.FailDied ||
			f.Kind == supervise.FailRankError && (f.Code == rank.CodeInitFailed || f.Code == rank.CodeCollectiveFailed)
		if p.failure = f; !ofGPUs {
			return errors.New(f.Message)
		}
		return nil
	}
	measured := false
	for _, r := range o.Ranks {
		for _, m := range r.Measurements {
			measured = true
			p.wrong += m.Wrong()
		}
		for _, pair := range r.Pairs {
			measured = true
			p.wrong += pair.WrongElements
		}
	}
	if !measured {
		return fmt.Errorf("%s ended without a measurement", o.Team)
	}
	if p.wrong == 0 {
		p.Outcome = localize.Good
	}
	return nil
}
