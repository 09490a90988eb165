package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// Aftermath is what was seen since a change of FaultyNode. What passes quickly stays in it once it was seen.
type Aftermath struct {
	// RunBefore and Assigned are the group's and each node's run before the change.
	RunBefore string
	Assigned  map[string]string
	// Group and Tasks are as seen last, Elapsed after the change.
	Group   *state.Group
	Tasks   []v1alpha1.CommTask
	Elapsed time.Duration
	// Pods counts the run pods that started, by node.
	Pods map[string]int
	// Stale is the finding of FaultyNode, StaleCount the largest status.members.stale, StaleEvent the event's words.
	Stale      *v1alpha1.RunStaleness
	StaleCount int32
	StaleEvent string
	// Reported is when FaultyNode's facts first had an Error, Named when the group first named it; 0 is not yet.
	Reported, Named time.Duration
}

func assignments(tasks []v1alpha1.CommTask) map[string]string {
	out := map[string]string{}
	for i := range tasks {
		if a := tasks[i].Spec.Run; a != nil {
			out[tasks[i].Spec.NodeName] = a.ID
		}
	}
	return out
}

// drain hands on each event of a watch that has come since the last look. An error says that the watch ended.
func drain(w watch.Interface, take func(watch.Event)) error {
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return fmt.Errorf("a watch ended: %v", e.Object)
			}
			take(e)
		default:
			return nil
		}
	}
}

// takePod counts a run pod that started, also one that is gone again.
func (a *Aftermath) takePod(e watch.Event) {
	if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
		a.Pods[pod.Labels[v1alpha1.LabelNode]]++
	}
}

// takeGroup takes in one version of the group, and says what is new in it.
func (a *Aftermath) takeGroup(group *v1alpha1.CommGroup) (lines []string) {
	if s := group.Status.Members.Stale; s > a.StaleCount {
		a.StaleCount = s
		lines = append(lines, fmt.Sprintf("status.members.stale is %d", s))
	}
	return lines
}

// takeTask takes in one version of a CommTask, and says what is new in it.
func (a *Aftermath) takeTask(t *v1alpha1.CommTask) (lines []string) {
	if run := t.Spec.Run; t.Spec.NodeName == FaultyNode && run != nil && run.Stale != nil && a.Stale == nil {
		a.Stale = run.Stale.DeepCopy()
		lines = append(lines,
			fmt.Sprintf("CommTask %s: the result of run %s is stale (%s)", t.Name, run.ID, run.Stale.Reason))
	}
	return lines
}

// takeNode takes in one version of a CommNode, and says what is new in it.
func (a *Aftermath) takeNode(n *v1alpha1.CommNode, elapsed time.Duration) (lines []string) {
	if n.Name != FaultyNode || n.Status.Facts == nil || a.Reported != 0 {
		return nil
	}
	for _, p := range n.Status.Facts.Problems {
		if p.Severity == v1alpha1.SeverityError {
			a.Reported = elapsed
			return append(lines, fmt.Sprintf("CommNode %s reports %s: %s",
				n.Name, strings.TrimSpace(p.Code+" "+p.Subject()), p.Message))
		}
	}
	return lines
}

// takeEvents looks for the event of the stale result. bootID is the node's present one.
func (a *Aftermath) takeEvents(events []corev1.Event, bootID string) (lines []string) {
	for i := range events {
		e := &events[i]
		if a.StaleEvent == "" && e.Reason == v1alpha1.ReasonResultsStale && e.InvolvedObject.Name == groupName &&
			strings.Contains(e.Message, bootID) {
			a.StaleEvent = e.Message
			lines = append(lines, fmt.Sprintf("event %s: %s", e.Reason, e.Message))
		}
	}
	return lines
}

// strangers are the other nodes on which a run pod started.
func (a *Aftermath) strangers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.Pods)), func(node string) bool { return node == FaultyNode })
}

func (a *Aftermath) podsText() string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(a.Pods)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", node, a.Pods[node]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// JudgeChange says whether what was seen after a change is the outcome that the demo expects of it.
func JudgeChange(a *Aftermath, fault *Fault, pci []string) Outcome {
	if others := a.strangers(); len(others) > 0 {
		return Outcome{Done: true,
			Seen: fmt.Sprintf("run pods started on %s, which did not change", strings.Join(others, ", "))}
	}
	if fault.Incompatible {
		return a.judgeIncompatible(fault, pci)
	}
	return a.judgeRerun(fault)
}

func (a *Aftermath) judgeRerun(fault *Fault) Outcome {
	run, ready := a.Group.Status.Run, current(a.Group, v1alpha1.ConditionReady)
	if !a.Group.Status.Settled() || run.ID == a.RunBefore || ready == nil ||
		ready.Reason == v1alpha1.ReasonRunInProgress {
		return Outcome{Seen: "no run after the change has finished yet"}
	}
	// From here on the run is over, and what is missing will not come, but for the event and the last writes.
	done := func(format string, args ...any) Outcome {
		return Outcome{Done: true, Seen: fmt.Sprintf(format, args...)}
	}
	switch {
	case run.Trigger != "NodesChanged":
		return done("run %s has trigger %s, want NodesChanged", run.ID, run.Trigger)
	case a.Pods[FaultyNode] == 0:
		return done("run %s started no run pod on %s", run.ID, FaultyNode)
	case a.Stale == nil || !oneOf(a.Stale.Reason, fault.Reasons):
		return done("the result of %s was not marked stale as %s", FaultyNode, strings.Join(fault.Reasons, " or "))
	case a.StaleCount != 1:
		return done("status.members.stale was %d at most, want 1", a.StaleCount)
	case a.StaleEvent == "" || !strings.Contains(a.StaleEvent, FaultyNode):
		return Outcome{Seen: fmt.Sprintf("no event %s names %s; there is %q",
			v1alpha1.ReasonResultsStale, FaultyNode, a.StaleEvent)}
	case a.Group.Status.Members.Stale != 0:
		return Outcome{Seen: fmt.Sprintf("status.members.stale is %d after run %s",
			a.Group.Status.Members.Stale, run.ID)}
	}
	now := assignments(a.Tasks)
	for node, before := range a.Assigned {
		want := before
		if node == FaultyNode {
			want = run.ID
		}
		if now[node] != want {
			return done("%s has run %q, want %q", node, now[node], want)
		}
	}
	if ready.Status != metav1.ConditionTrue {
		return done("Ready is %s (%s): %s", ready.Status, ready.Reason, ready.Message)
	}
	return Outcome{Done: true, Reached: true,
		Seen: fmt.Sprintf("%s; run %s (%s) measured %s alone; Ready is %s (%s): %s",
			a.Stale.Reason, run.ID, run.Trigger, FaultyNode, ready.Status, ready.Reason, ready.Message)}
}

func (a *Aftermath) judgeIncompatible(fault *Fault, pci []string) Outcome {
	const limit = interval + interval/10 + reportSlack // the monitor spreads its looks by a tenth
	switch run := a.Group.Status.Run; {
	case run == nil || run.ID != a.RunBefore || len(a.Pods) > 0:
		return Outcome{Done: true, Seen: fmt.Sprintf("a run started for it; run pods: %s", a.podsText())}
	case a.Reported > limit || a.Reported == 0 && a.Elapsed > limit:
		return Outcome{Done: true, Seen: fmt.Sprintf("the monitor did not report it within %s (interval %s); after %s",
			limit, interval, a.Elapsed.Round(time.Millisecond))}
	case a.Reported == 0:
		return Outcome{Seen: "the monitor has not reported it yet"}
	}
	ready, compatible := current(a.Group, v1alpha1.ConditionReady), current(a.Group, v1alpha1.ConditionCompatible)
	var culprit *v1alpha1.Culprit
	for i := range a.Group.Status.Culprits {
		if c := &a.Group.Status.Culprits[i]; c.Node == FaultyNode && c.Reason == fault.Problem &&
			names(*c, fault.GPUs, pci) {
			culprit = c
			break
		}
	}
	isFalse := func(c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionFalse && oneOf(c.Reason, fault.Reasons)
	}
	// The status follows the report within moments; where it does not in a minute, it will not.
	late := a.Elapsed-a.Reported > time.Minute
	if !isFalse(ready) || !isFalse(compatible) || culprit == nil {
		return Outcome{Done: late,
			Seen: fmt.Sprintf("the group does not name it: culprits %+v; Ready is %+v; Compatible is %+v",
				a.Group.Status.Culprits, ready, compatible)}
	}
	if a.Named == 0 { // that no run starts shows only with time: one more interval
		a.Named = a.Elapsed
	}
	seen := fmt.Sprintf("reported after %.1f s (monitor's interval %s); "+
		"Ready is False (%s); no run started; culprit %s (%s): %s",
		a.Reported.Seconds(), interval, ready.Reason, explain.Culprit(culprit), culprit.Reason, culprit.Message)
	settled := a.Elapsed-a.Named >= interval
	return Outcome{Done: settled, Reached: settled, Seen: seen}
}
