package commgroup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// Update changes conditions of a status that is decided, and returns its events, which were events before. What is as
// it was keeps its time of transition, and is no event.
func Update(status *state.Status, events []decision.Event, group *state.Group, now time.Time,
	changed map[string]decision.Finding) []decision.Event {
	all := make(map[string]decision.Finding, len(ConditionTypes))
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.ObservedGeneration == group.Generation {
			all[c.Type] = decision.Finding{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	maps.Copy(all, changed)
	if _, ok := changed[v1alpha1.ConditionAgentsReporting]; ok {
		all[v1alpha1.ConditionReady] = readiness(all)
	}
	status.Conditions = SetConditions(group.Status.Conditions, all, group.Generation, now)
	status.Remarks = slices.DeleteFunc(slices.Clone(status.Remarks), func(r v1alpha1.Remark) bool {
		_, again := changed[remarks[r.Reason].of]
		return again
	})
	added := remarksOf(changed)
	status.Remarks = append(status.Remarks, added...)
	var after []metav1.Condition
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if _, again := changed[c.Type]; again || c.Type == v1alpha1.ConditionReady {
			after = append(after, *c)
		}
	}
	events = slices.DeleteFunc(events, func(e decision.Event) bool {
		_, again := changed[remarks[e.Reason].of]
		return again && e.Action == remarks[e.Reason].action ||
			slices.ContainsFunc(after, func(c metav1.Condition) bool { return e.Action == "Set"+c.Type })
	})
	return slices.Concat(events, remarkEvents(group.Status.Remarks, added), Transitions(group.Status.Conditions, after))
}

// ConditionTypes in the order in which a reader wants them.
var ConditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAccepted, v1alpha1.ConditionAgentsReporting,
	v1alpha1.ConditionCompatible,
	v1alpha1.ConditionRunning, v1alpha1.ConditionValidated, v1alpha1.ConditionSettingsInEffect,
	v1alpha1.ConditionSettingsPublished, v1alpha1.ConditionSimulated,
}

// SetConditions writes the findings as conditions of this generation. Times change only where the status does.
func SetConditions(conditions []metav1.Condition, findings map[string]decision.Finding, generation int64,
	now time.Time) []metav1.Condition {
	out := slices.Clone(conditions)
	for _, t := range ConditionTypes {
		f, ok := findings[t]
		if !ok {
			continue
		}
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: t, Status: f.Status, Reason: f.Reason, Message: explain.OneLine(f.Text()),
			ObservedGeneration: generation, LastTransitionTime: *decision.Stamp(now),
		})
	}
	return out
}

// ListFailed says Unknown of everything: nothing may be concluded from a part that could not be read.
func ListFailed(err error) map[string]decision.Finding {
	out := make(map[string]decision.Finding, len(ConditionTypes))
	for _, t := range ConditionTypes {
		out[t] = decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonListFailed,
			Message: clip.Head(fmt.Sprintf("The group's objects could not be read: %v. The controller tries again.",
				err), 1024)}
	}
	return out
}

// readiness is the condition Ready: the first of its parts that is False, else the first that is Unknown.
func readiness(f map[string]decision.Finding) decision.Finding {
	parts := []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionValidated, v1alpha1.ConditionCompatible,
		v1alpha1.ConditionAgentsReporting}
	for _, t := range parts {
		if f[t].Status == metav1.ConditionFalse {
			return f[t]
		}
	}
	// Of what is not yet known, the earliest step says most.
	for _, t := range []string{v1alpha1.ConditionAgentsReporting, v1alpha1.ConditionCompatible,
		v1alpha1.ConditionValidated} {
		if f[t].Status == metav1.ConditionUnknown {
			return f[t]
		}
	}
	return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: f[v1alpha1.ConditionValidated].Message}
}

// agentsReporting is the condition of the same name. An agent that has not reported since its CommTask was made gets
// graceSeconds. It returns when the finding changes by time alone.
func agentsReporting(members []decision.Member, commTasks map[string]*v1alpha1.CommTask,
	commNodes map[string]*v1alpha1.CommNode, now time.Time, graceSeconds int32) (decision.Finding, time.Time) {
	var silent, waiting []string
	var wakeAt time.Time
	for i := range members {
		name := members[i].Name
		ct, cn := commTasks[name], commNodes[name]
		switch {
		case nodefacts.Hold(cn, now):
			wakeAt = decision.Earlier(wakeAt, nodefacts.HoldUntil(cn))
		case ct == nil:
			waiting = append(waiting, name)
		case cn != nil && cn.Status.Facts != nil:
			silent = append(silent, name)
		default:
			deadline := ct.CreationTimestamp.Add(decision.Seconds(graceSeconds))
			if now.Before(deadline) {
				waiting = append(waiting, name)
				wakeAt = decision.Earlier(wakeAt, deadline)
			} else {
				silent = append(silent, name)
			}
		}
	}
	remark := skewRemark(members, commNodes, now)
	switch {
	case len(members) == 0:
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoNodesMatched,
			Message: "There is no member."}, wakeAt
	case len(silent) > 0:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAgentNotReporting,
			Message: fmt.Sprintf("The monitors of %d of %d members do not report: %s. Check that each "+
				"runs (`kubectl get pods -A -l %s=%s -o wide`; the chart's values monitor.nodeSelector and "+
				"monitor.affinity choose the nodes) and its log: on a node without AMD GPUs a monitor reports nothing.",
				len(silent), len(members), explain.Names(silent, 5), v1alpha1.LabelRole, v1alpha1.RoleMonitor),
			Remark: remark}, wakeAt
	case len(waiting) > 0:
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWaitingForAgents,
			Message: fmt.Sprintf("%d of %d members have reported; the others' monitors are starting: %s.",
				len(members)-len(waiting), len(members), explain.Names(waiting, 5)), Remark: remark}, wakeAt
	}
	return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReporting,
		Message: fmt.Sprintf("All %d members report.", len(members)), Remark: remark}, wakeAt
}

// skewRemark names members whose clocks are off, for the condition AgentsReporting; nil where none is.
func skewRemark(members []decision.Member, commNodes map[string]*v1alpha1.CommNode, now time.Time) *v1alpha1.Remark {
	var apart []string
	for i := range members {
		cn := commNodes[members[i].Name]
		if !nodefacts.Hold(cn, now) {
			continue
		}
		// No amount: it would make each report a change.
		switch skew := nodefacts.ClockSkew(cn); {
		case skew > 0:
			apart = append(apart, members[i].Name+" (ahead)")
		case skew < 0:
			apart = append(apart, members[i].Name+" (behind)")
		}
	}
	if len(apart) == 0 {
		return nil
	}
	return &v1alpha1.Remark{Reason: v1alpha1.ReasonClockSkew, Message: fmt.Sprintf("by the reports "+
		"of their monitors the clocks of %s are more than %d s off the API server's: %s. "+
		"No deadline depends on them; mend time synchronisation there, or times in logs and reports mislead.",
		units.Counted(len(apart), "member"), int(nodefacts.MaxClockSkew/time.Second), explain.Names(apart, 5))}
}

// Running is the condition of the same name. waiting says why no run starts, hindrance what a run that goes on waits
// for.
func Running(group *state.Group, run *v1alpha1.GroupRunStatus, counts v1alpha1.MemberCounts,
	waiting, hindrance string) decision.Finding {
	switch {
	case run != nil && run.Phase == v1alpha1.RunPhaseRunning:
		return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunInProgress,
			Message: fmt.Sprintf("Run %s (%s): %s run pods, %d wait, %d are done.",
				run.ID, run.Trigger, explain.NodesHave(counts.Running), counts.Pending,
				counts.Passed+counts.Failed+counts.Inconclusive+counts.Errored+counts.Skipped) + hindrance}
	case group.Spec.Run.State == v1alpha1.RunSuspended:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSuspended,
			Message: "run.state is Suspended: no run starts until it is Active."}
	case group.Status.RunSuspended:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSuspended,
			Message: commrun.Suspended(run)}
	case waiting != "":
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaiting, Message: waiting}
	case run == nil:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNeverRan,
			Message: "No run has been made."}
	case run.Phase == v1alpha1.RunPhaseAborted:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSuperseded,
			Message: fmt.Sprintf("Run %s was aborted.", run.ID)}
	}
	return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRunFinished,
		Message: fmt.Sprintf("Run %s finished: %s.", run.ID, run.Verdict)}
}

// validationOf is the condition Validated. A re-run of the same spec on the same members does not take back what the
// run before it has shown; only its own result does.
func validationOf(group *state.Group, d *commrun.Decision, accepted bool) decision.Finding {
	run, waiting, outcomes := d.Run, d.Waiting, d.Compared.With(d.Outcomes)
	unknown := func(reason, format string, args ...any) decision.Finding {
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case run == nil && waiting != "":
		return unknown(v1alpha1.ReasonWaiting, "%s", waiting)
	case run == nil && group.Spec.Run.State == v1alpha1.RunSuspended:
		return unknown(v1alpha1.ReasonSuspended, "run.state is Suspended, and no run has been made.")
	case run == nil:
		return unknown(v1alpha1.ReasonNeverRan, "No run has been made.")
	case run.Phase == v1alpha1.RunPhaseRunning:
		if runs.Partial(run) {
			return judge.ValidatedAgain(run, outcomes)
		}
		if state.Repeats(run) && run.ProvenRunID != "" && !run.Moved {
			return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPassed,
				Message: fmt.Sprintf("Run %s passed on all members; run %s repeats it.", run.ProvenRunID, run.ID)}
		}
		return unknown(v1alpha1.ReasonRunInProgress, "Run %s is going on.", run.ID)
	case run.Phase == v1alpha1.RunPhaseAborted:
		if group.Spec.Run.State == v1alpha1.RunSuspended {
			return unknown(v1alpha1.ReasonSuspended, "Run %s was aborted since run.state is Suspended.", run.ID)
		}
		if group.Status.RunSuspended {
			return unknown(v1alpha1.ReasonSuspended, "Run %s was aborted. %s", run.ID, commrun.Suspended(run))
		}
		return unknown(v1alpha1.ReasonSuperseded,
			"Run %s was aborted since the spec changed, or its CommRun was deleted.", run.ID)
	case run.Generation != group.Generation:
		return unknown(v1alpha1.ReasonSuperseded, "Run %s measured generation %d of the spec; this is %d.",
			run.ID, run.Generation, group.Generation)
	}
	next := "A run of these nodes starts by itself."
	switch {
	case group.Spec.Run.State == v1alpha1.RunSuspended:
		next = "run.state is Suspended: no run starts until it is Active."
	case !accepted:
		next = "No run starts while the condition Accepted is False."
	case waiting != "":
		next = waiting
	}
	f := judge.Validated(run, outcomes, stage.Outcome(&group.Spec, run, d.Span, len(outcomes)), next)
	if lost := lostResults(outcomes); f.Reason == v1alpha1.ReasonInconclusive && len(lost) > 0 {
		f.Message = clip.Head(explain.Sentence(f.Message)+fmt.Sprintf(" The result of %s is gone: CommTask or "+
			"report was deleted. No run starts for that by itself: %s.", explain.Names(lost, 5), runs.Ask(group)), 2048)
	}
	return f
}

// lostResults are the nodes of a run that is over of which nothing is known any more.
func lostResults(outcomes []judge.Outcome) (names []string) {
	for i := range outcomes {
		if o := &outcomes[i]; o.Phase != judge.Done && !o.Stale {
			names = append(names, o.Node)
		}
	}
	return names
}

func simulated(origin v1alpha1.Origin) decision.Finding {
	switch origin {
	case v1alpha1.OriginSimulated:
		return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSimulated,
			Message: "Facts or results of this group come from the simulator, not from hardware."}
	case v1alpha1.OriginHardware:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHardware,
			Message: "All facts and results come from hardware."}
	case v1alpha1.OriginUnknown:
	}
	return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonFactsUnknown,
		Message: "No facts are known."}
}

// Transitions are the events for conditions that changed since the last status.
func Transitions(before, after []metav1.Condition) []decision.Event {
	quiet := map[string]bool{v1alpha1.ConditionRunning: true, v1alpha1.ConditionSimulated: true}
	loud := map[string]bool{v1alpha1.ReasonTailHazard: true, v1alpha1.ReasonResultsNotUsable: true,
		v1alpha1.ReasonMixedFP8Encodings: true}
	quietReasons := map[string]bool{v1alpha1.ReasonNotProven: true, v1alpha1.ReasonPublishOff: true,
		v1alpha1.ReasonNotRequested: true}
	var out []decision.Event
	for i := range after {
		c := &after[i]
		old := meta.FindStatusCondition(before, c.Type)
		if quiet[c.Type] || quietReasons[c.Reason] || c.Status == metav1.ConditionUnknown {
			continue
		}
		if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
			continue // one of its parts speaks
		}
		if old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		warning := c.Status == metav1.ConditionFalse || loud[c.Reason]
		out = append(out, decision.Event{Warning: warning, Reason: c.Reason, Action: "Set" + c.Type,
			Note: clip.Head(c.Type+"="+string(c.Status)+": "+c.Message, 1000)})
	}
	return out
}

// remarks by their reason: the condition that each is of, and the action of its event.
var remarks = map[string]struct{ of, action string }{
	v1alpha1.ReasonInventoryMismatch: {v1alpha1.ConditionCompatible, "CompareLabels"},
	v1alpha1.ReasonClockSkew:         {v1alpha1.ConditionAgentsReporting, "CompareClocks"},
	v1alpha1.ReasonWritesRefused:     {v1alpha1.ConditionRunning, "WriteObjects"},
}

// maxRemark is what the API holds of a remark's message.
const maxRemark = 1024

// remarksOf are those of the findings, each once, in the order of the conditions.
func remarksOf(findings map[string]decision.Finding) []v1alpha1.Remark {
	var out []v1alpha1.Remark
	for _, t := range ConditionTypes {
		r := findings[t].Remark
		if r == nil || slices.ContainsFunc(out, func(o v1alpha1.Remark) bool { return o.Reason == r.Reason }) {
			continue
		}
		out = append(out, v1alpha1.Remark{Reason: r.Reason, Message: clip.Head(explain.OneLine(r.Message), maxRemark)})
	}
	return out
}

// remarkEvents tell each remark once, when it appears.
func remarkEvents(before, after []v1alpha1.Remark) []decision.Event {
	var out []decision.Event
	for i := range after {
		r := &after[i]
		if slices.ContainsFunc(before, func(o v1alpha1.Remark) bool { return o.Reason == r.Reason }) {
			continue
		}
		out = append(out, decision.Event{Warning: true, Reason: r.Reason, Action: remarks[r.Reason].action,
			Note: clip.Head(r.Reason+": "+r.Message, 1000)})
	}
	return out
}

// Deleting is what Ready says while the group is being deleted.
func Deleting(what string) decision.Finding {
	return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeleting, Message: what}
}
