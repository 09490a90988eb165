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
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// searchStepDeadline and searchInitDeadline bound each communicator of a search, where the plan's own are longer.
	searchStepDeadline = 10 * time.Second
	searchInitDeadline = 30 * time.Second
	// searchBytes is the largest size that a hang is searched for with: a good pair is done with it long before searchStepDeadline,
	// its data checked on the host, on any machine. With gigabytes it may not be, and would be taken for one that hangs. Baseline, which
	// a search runs, takes no other path above it.
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
	// wrongData says that it was wrong data and no hang, which may depend on the very size: it is kept, with the plan's deadline, and
	// a communicator that misses it tells nothing.
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
	return f.Kind == supervise.FailHung && len(f.Stopped) == 0 && (f.Rank < 0 || f.ByRAS) || f.Kind == supervise.FailRankError && (f.Code == rank.CodeInitFailed || f.Code == rank.CodeCollectiveFailed)
}

// repeatStep is the smallest step that repeats what failed at a position: at its size, a few times. Without one, as where the
// communicator was not formed, it is the plan's first.
func repeatStep(at *rank.Position, p api.RunPlan) rank.Step {
	step := rank.Step{Kind: rank.StepMeasure, Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizesBytes: []int64{1 << 10}, WarmupIterations: 1, Iterations: 2}
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
		step.Collective, step.Datatype, step.Placement, step.SizesBytes = at.Collective, at.Datatype, at.Placement, []int64{at.SizeBytes}
	}
	return step
}

// search runs the rounds that NextRound plans until it has no more, the rounds or the run's time are used up, or
// something gets in its way that says nothing about GPUs.
func search(ctx context.Context, teams supervise.TeamRunner, task searchTask, onRound func(round int, groups [][]int)) Search {
	asked := task.step.SizesBytes
	if !task.wrongData {
		task.step.SizesBytes = upTo(searchBytes, asked)
	}
	var probes []Probe
	stopped := ""
	gpus := len(task.pci)
	for round := 1; round <= MaxRounds(gpus) && stopped == ""; round++ {
		groups := NextRound(gpus, probes)
		if len(groups) == 0 {
			break
		}
		if onRound != nil {
			onRound(round, groups)
		}
		var found []Probe
		found, stopped = runRound(ctx, teams, task, round, groups)
		probes = append(probes, found...)
	}
	s := Search{What: task.what, Finding: Conclude(gpus, probes)}
	if len(s.Finding.GPUs)+len(s.Finding.Links) > 0 {
		return s
	}
	if stopped != "" {
		s.Finding.Why = "it was cut short: " + stopped
	} else if !anyBad(probes) && !slices.Equal(asked, task.step.SizesBytes) {
		s.Finding.Why += fmt.Sprintf(" with %d B: all GPUs and links work, so the step may have been too long for its deadline, and no hang; "+
			"raise run.stepDeadlineSeconds, or measure smaller sizes", task.step.SizesBytes[0])
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

func runRound(ctx context.Context, teams supervise.TeamRunner, task searchTask, round int, groups [][]int) ([]Probe, string) {
	outcomes := make([]supervise.Outcome, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			v := VariantPlan{Variant: rcclx.Baseline, Steps: []rank.Step{task.step}}
			specs := groupSpecs(task.node, task.plan, v, g, task.pci,
				min(seconds(task.plan.InitDeadlineSeconds), searchInitDeadline), task.deadline())
			for r := range specs {
				specs[r].NonBlocking = true // nobody reads a search's times, and a failing init is seen sooner
			}
			outcomes[i] = teams.Run(ctx, supervise.Team{
				Node: task.node, Name: fmt.Sprintf("search round %d, GPU ordinals %s", round, join(g)),
				Specs: specs, Env: task.env, ExitDeadline: searchStepDeadline, RunDeadline: task.runDeadline,
			})
		})
	}
	wg.Wait()
	var probes []Probe
	for i, g := range groups {
		bad, saw, err := readProbe(outcomes[i], task.wrongData)
		if err != nil {
			return probes, err.Error()
		}
		probes = append(probes, Probe{Round: round, GPUs: g, Bad: bad, Saw: saw})
	}
	return probes, ""
}

// readProbe says whether a communicator of the search worked; the error is for what says nothing about its GPUs.
func readProbe(o supervise.Outcome, wrongData bool) (bad bool, saw string, err error) {
	if f := o.Failure; f != nil {
		switch f.Kind {
		case supervise.FailHung:
			if wrongData {
				break // another fault than the one that is searched for
			}
			return true, "hung at " + f.Step, nil
		case supervise.FailDied:
			return true, fmt.Sprintf("lost rank %d at %s", f.Rank, f.Step), nil
		case supervise.FailRankError:
			if f.Code == rank.CodeInitFailed || f.Code == rank.CodeCollectiveFailed {
				return true, "failed at " + f.Step, nil
			}
		}
		return false, "", errors.New(f.Message)
	}
	var wrong int64
	measured := false
	for _, r := range o.Ranks {
		for _, m := range r.Measurements {
			measured = true
			wrong += m.Wrong()
		}
		for _, p := range r.Pairs {
			measured = true
			wrong += p.WrongElements
		}
	}
	if !measured {
		return false, "", fmt.Errorf("%s ended without a measurement", o.Team)
	}
	if wrong > 0 {
		return true, fmt.Sprintf("gave %d wrong elements", wrong), nil
	}
	return false, "", nil
}
