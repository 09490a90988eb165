package commrun

import (
	"cmp"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// startIfDue sets out.run to a new run where one is due and can start. The new run is written to the status first;
// CommTasks and pods follow in the next reconcile, so that a lost write never leaves two runs with one id.
func startIfDue(out *runState, in Input, hash string, suspended bool) {
	if suspended {
		return
	}
	last := out.run
	if in.Group.Status.RunSuspended {
		out.waiting = Suspended(last)
		return
	}
	trigger, due := dueTrigger(in, last, out.nodes, hash)
	if trigger == "" {
		out.wakeAt = decision.Earlier(out.wakeAt, due)
		return
	}
	if !in.Accepted {
		return
	}
	nodes, wait := in.mayStart(trigger, last, out.nodes)
	if wait.why != "" && (trigger == state.TriggerScheduled || trigger == state.TriggerRequested) {
		// What a run of all waits for, as the budget's next day, may be no wait for a run of the few that changed. A
		// request stays.
		if due, ready, _ := dueNodes(last, out.nodes, in); len(ready) > 0 && last.SpecHash == hash {
			if some, held := in.mayStart(state.TriggerNodesChanged, last, out.nodes); held.why == "" {
				trigger, nodes, wait = state.TriggerNodesChanged, some, runWait{}
			} else {
				wait.why = clip.Head(wait.why+fmt.Sprintf(" A run of %s with stale results waits, too.",
					units.Counted(len(due), "node")), 1024)
				wait.until = decision.Earlier(wait.until, held.until)
			}
		}
	}
	if in.StartRefused != nil {
		wait.why = clip.Head(fmt.Sprintf("A run is due (%s), and its CommRun cannot be created: %v.",
			dueFor(in, trigger), in.StartRefused), 1024)
	}
	if wait.why != "" {
		out.waiting, out.wakeAt = wait.why, decision.Earlier(out.wakeAt, wait.until)
		return
	}
	number := int64(1)
	if last != nil {
		number = last.Number + 1
	}
	since, name := number, v1alpha1.CommRunName(in.Group.Name, number)
	if trigger == state.TriggerNodesChanged {
		since = runs.Since(last)
	} else {
		out.nodes = nil
		if asked(in) {
			name = in.Group.Status.Requests[0] // whatever else it is due for
		}
	}
	out.run = &v1alpha1.GroupRunStatus{
		Name:        name,
		ID:          fmt.Sprintf("%d-%d", in.Group.Generation, number),
		Number:      number,
		Since:       since,
		Generation:  in.Group.Generation,
		Trigger:     trigger,
		MembersHash: in.hash,
		SpecHash:    hash,
		Phase:       v1alpha1.RunPhaseRunning,
		StartTime:   *decision.Stamp(in.Now),
		ProvenRunID: provenBy(last, in.Group),
	}
	if trigger == state.TriggerNodesChanged && in.Group.Spec.Span == v1alpha1.SpanGroup {
		nodes += ", and then as a group on all members that pass"
	}
	out.events = append(out.events, decision.Event{Reason: "RunStarted", Action: "StartRun",
		Note: fmt.Sprintf("Run %s started on %s (%s).", out.run.ID, nodes, dueFor(in, trigger))})
}

// Suspended says that the group waits for a run that was suspended, and what to do.
func Suspended(run *v1alpha1.GroupRunStatus) string {
	return fmt.Sprintf("CommRun %s is suspended: set its spec.suspend to false and it starts again, or delete it.",
		run.Name)
}

// runWait says why a run that is due does not start, and until when at most where that is known; empty where it may.
type runWait struct {
	why   string
	until time.Time
}

// mayStart names the nodes that a run for the trigger is to measure, and says what it has to wait for.
func (in *Input) mayStart(trigger string, last *v1alpha1.GroupRunStatus,
	nodes []nodeState) (names string, wait runWait) {
	names, count := units.Counted(len(in.Members), "node"), len(in.Members)
	if trigger == state.TriggerNodesChanged {
		due, ready, waiting := dueNodes(last, nodes, *in)
		if len(ready) == 0 && len(due) > 0 {
			return "", runWait{why: fmt.Sprintf("A run of %s with stale results is due and waits: %s.",
				units.Counted(len(due), "node"), explain.Names(waiting, 3)), until: pausedUntil(last, in.Now)}
		}
		names, count = explain.Names(due, 5), len(due)
	} else if why := tooFewReport(*in, trigger); why != "" {
		return "", runWait{why: why}
	}
	if in.Group.Spec.Span == v1alpha1.SpanGroup {
		count = len(in.Members) // whoever it is for, the group's stage takes all
	}
	why, until := overBudget(*in, trigger, count)
	return names, runWait{why, until}
}

// dueFor is the trigger in words: that a user asks for the run, too, is told beside one that goes first. A run of
// some nodes is not the one that was asked for.
func dueFor(in Input, trigger string) string {
	if asked(in) && trigger != state.TriggerRequested && trigger != state.TriggerNodesChanged {
		return trigger + " and requested"
	}
	return trigger
}

// provenBy is the id of the run that is over where it passed by the spec of now; empty where nothing is proven. It is
// kept with the run that follows: conditions are no memory, as a read that fails makes all of them Unknown.
func provenBy(last *v1alpha1.GroupRunStatus, group *state.Group) string {
	if last == nil || last.Phase != v1alpha1.RunPhaseFinished || last.Verdict != v1alpha1.VerdictPass ||
		last.Generation != group.Generation || group.Status.ObservedGeneration != group.Generation {
		return ""
	}
	return last.ID
}

// tooFewReport says that fewer monitors report than a run of all members needs; empty where enough do.
func tooFewReport(in Input, trigger string) string {
	reporting := 0
	for i := range in.Members {
		if nodefacts.Hold(in.CommNodes[in.Members[i].Name], in.Now) {
			reporting++
		}
	}
	need := max(1, int(in.Group.Spec.Members.MinMembers))
	if reporting >= need {
		return ""
	}
	return fmt.Sprintf("A run is due (%s) and waits until the monitors of at least %s report; "+
		"%d of %d do. See `kubectl get commtasks` and the monitor pods.",
		dueFor(in, trigger), units.Counted(need, "node"), reporting, len(in.Members))
}

// dueTrigger says why a run is due now; where none is, it gives the time at which the schedule is due next. A run of
// all members measures the changed ones, too, so that it goes first.
func dueTrigger(in Input, last *v1alpha1.GroupRunStatus, nodes []nodeState,
	hash string) (trigger string, next time.Time) {
	resume := resumes(last, in, hash)
	if last == nil || (last.Generation != in.Group.Generation && !resume) {
		return state.TriggerSpecChanged, time.Time{}
	}
	if last.MembersHash != in.hash {
		return state.TriggerMembersChanged, time.Time{}
	}
	if asked(in) {
		return state.TriggerRequested, time.Time{}
	}
	next = schedule.Next(in.Group, schedule.Done(in.Group, in.Group.Status.History, last, in.Now))
	if !next.IsZero() && !next.After(in.Now) {
		return state.TriggerScheduled, time.Time{}
	}
	if due, _, _ := dueNodes(last, nodes, in); resume || len(due) > 0 {
		if last.SpecHash != hash {
			// another version of the operator plans otherwise: nothing measured counts
			return state.TriggerSpecChanged, time.Time{}
		}
		return state.TriggerNodesChanged, time.Time{}
	}
	return "", decision.Earlier(next, nextRetry(nodes, &in))
}

// asked says whether a CommRun asks for a run that has not started yet, whatever else it is due for.
func asked(in Input) bool {
	return len(in.Group.Status.Requests) > 0
}

// overBudget says why a run waits for the next day, and until when; empty where it may start. What a user asks for by
// a CommRun runs all the same, and counts; a run of some nodes is none that was asked for.
func overBudget(in Input, trigger string, nodes int) (why string, until time.Time) {
	b := history.Budget(&in.Group.Status, in.Group.Spec.Run.MaxGPUMinutesPerDay, in.Now)
	if b == nil || asked(in) && trigger != state.TriggerNodesChanged {
		return "", time.Time{}
	}
	needs, basis := history.Estimate(&in.Group.Spec, in.Group.Status.History, nodes)
	if b.UsedGPUMinutes+needs <= b.LimitGPUMinutes {
		return "", time.Time{}
	}
	figures := fmt.Sprintf("run.maxGPUMinutesPerDay is %s, %d used on %s (UTC), and the run would take about %d (%s)",
		units.Counted(b.LimitGPUMinutes, "GPU-minute"), b.UsedGPUMinutes, b.Day, needs, basis)
	until = history.NextDay(in.Now)
	if needs > b.LimitGPUMinutes {
		return fmt.Sprintf("A run is due (%s) and does not fit into any day: %s. Raise the limit, measure less, or %s.",
			trigger, figures, runs.Ask(in.Group)), until
	}
	return fmt.Sprintf("A run is due (%s) and waits until %s: %s. To run now, %s.",
		trigger, until.Format(time.RFC3339), figures, runs.Ask(in.Group)), until
}

// dueNodes are the nodes for which a run of the changed nodes is due: all of them, those that can be measured now, and
// for the others why they cannot.
func dueNodes(last *v1alpha1.GroupRunStatus, nodes []nodeState, in Input) (due, ready, waiting []string) {
	aborted := last.Phase == v1alpha1.RunPhaseAborted
	for i := range nodes {
		n := &nodes[i]
		if n.stale == nil && !n.recovered(in) && !n.retryDue(in) && (!aborted || !n.needsResult(in)) {
			continue
		}
		due = append(due, n.name)
		if why := cmp.Or(n.unmeasurable(in), n.paused(last, in.Now)); why != "" {
			waiting = append(waiting, n.name+" ("+why+")")
		} else {
			ready = append(ready, n.name)
		}
	}
	return due, ready, waiting
}

// resumes says whether the aborted run is to be taken up again: it measured only the changed nodes, and what the others
// have shown still counts.
func resumes(last *v1alpha1.GroupRunStatus, in Input, hash string) bool {
	return last != nil && last.Phase == v1alpha1.RunPhaseAborted && runs.Partial(last) && hash != "" &&
		last.SpecHash == hash && last.MembersHash == in.hash
}
