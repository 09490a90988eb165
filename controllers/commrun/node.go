package commrun

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// nodeState is one node in the run.
type nodeState struct {
	name     string
	member   *decision.Member   // nil: no longer a member
	commTask *v1alpha1.CommTask // nil: not yet made
	commNode *v1alpha1.CommNode // nil: nothing is known of the node

	phase judge.Phase
	// report counts for this run: same id, same generation, finished. Set with phase judge.Done, unless closed.
	report *v1alpha1.NodeRunStatus
	// closure is the present or new decision to end the run on this node without a report.
	closure *v1alpha1.RunClosure
	// stale: the report or closure no longer counts, since the node changed; found: the same, where it was found just
	// now.
	stale, found *v1alpha1.RunStaleness
	// exhausted: so it is, but the result was bad too often in a row to be measured again by itself.
	exhausted *v1alpha1.RunStaleness
	// moved: the node is not done, and is not what it was when its last result was measured, or that is not known.
	moved bool
	// renewed: the node has an older assignment that counts and whose result does not; it gets a new one.
	renewed bool
	// podName of the pod that was seen.
	podName string
	// hindrance is what keeps the pod's ranks from starting, as far as the cluster says.
	hindrance string
	wantsPod  bool
	// wantsLook: whether others hold GPUs of the node is to be looked up first; waiting: they do, or it
	// could not be looked up.
	wantsLook bool
	waiting   *v1alpha1.RunWait
	wakeAt    time.Time
}

// facts of the node as its monitor last reported them; nil where it never did.
func (n *nodeState) facts() *v1alpha1.NodeFacts {
	if n.commNode == nil {
		return nil
	}
	return n.commNode.Status.Facts
}

func (n *nodeState) closed() bool { return n.closure != nil }

func (n *nodeState) close(now time.Time, verdict v1alpha1.Verdict, reason, format string, args ...any) {
	n.phase = judge.Done
	n.closure = &v1alpha1.RunClosure{
		Verdict: verdict,
		Reason:  reason,
		Message: clip.Head(fmt.Sprintf(format, args...), 1024),
		Time:    *decision.Stamp(now),
	}
}

// runAgain is the next step where nothing but a new run can tell whether the cause is fixed: nothing starts one by
// itself.
func runAgain(group *state.Group) string { return "Once it is mended, " + runs.Ask(group) + "." }

// runByItself is the next step where the controller sees for itself that the cause is fixed.
const runByItself = "Once it is mended, a run of the node starts by itself."

// stepNode works out where the run is on one node. Every wait in it has a deadline, so that a run always ends.
func stepNode(n *nodeState, run *v1alpha1.GroupRunStatus, in Input) {
	a := runs.AssignmentOf(n.commTask)
	ours := a != nil && a.ID == run.ID
	switch {
	case a == nil:
		n.moved = true
	case ours:
		n.podName = a.PodName
		if n.stepTakenAway(run, in) {
			return
		}
		if n.recall(a, in); n.phase == judge.Done {
			return
		}
	case runs.Counts(a, run):
		n.recall(a, in)
		if !n.renew(run, in) && n.phase == judge.Done {
			return
		}
	default:
		n.moved = !nodefacts.Hold(n.commNode, in.Now) || a.Stale != nil ||
			nodefacts.Stale(a.Platform, runs.FinishedReport(n.commTask), n.facts()) != nil
	}
	switch run.Phase {
	case v1alpha1.RunPhaseAborted:
		n.close(in.Now, v1alpha1.VerdictSkipped, abortReason(in),
			"Run %s was aborted before node %s reported.", run.ID, n.name)
		return
	case v1alpha1.RunPhaseFinished:
		// The run is over and this node's result is gone, for example because its CommTask was deleted. No result is
		// never a pass.
		if n.phase = judge.Waiting; run.Refused != nil {
			n.closeRefused(run, in)
		}
		return
	case v1alpha1.RunPhaseRunning:
	}
	if n.member == nil {
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost,
			"Node %s left the group during run %s: it was deleted, made anew or no longer matches members.",
			n.name, run.ID)
		return
	}
	if pod := podstate.OfRun(in.Pods[n.name], run.ID); pod != nil {
		n.podName = pod.Name
		if stepPod(n, pod, in); n.closed() {
			n.closure.HeldSeconds = podHeldSeconds(n.commNode, pod, in.Now)
		}
		return
	}
	if n.podName != "" {
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonRunPodFailed,
			"Run pod %s on node %s was deleted before the agent reported. Look for evictions and preemption "+
				"(`kubectl get events`), then %s.", n.podName, n.name, runs.Ask(in.Group))
		return
	}
	stepWaiting(n, run, in, ours)
}

func abortReason(in Input) string {
	if in.Group.Spec.Run.State == v1alpha1.RunSuspended || in.Group.Status.RunSuspended {
		return v1alpha1.ReasonSuspended
	}
	return v1alpha1.ReasonSuperseded
}

// stepWaiting decides for a node that has no pod yet.
func stepWaiting(n *nodeState, run *v1alpha1.GroupRunStatus, in Input, assigned bool) {
	n.phase = judge.Waiting
	spec := &in.Group.Spec
	if n.member.AllocatableGPUs < int64(spec.RanksPerNode) {
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonNoGPUResource,
			"Node %s has %d allocatable %s and a run needs %d: check the device plugin on it (`kubectl describe "+
				"node %s`), lower ranksPerNode, or exclude the node.%s %s", n.name, n.member.AllocatableGPUs,
			objects.GPUResource(spec), spec.RanksPerNode, n.name, membership.TaintRemark(*n.member), runByItself)
		return
	}
	if !nodefacts.Hold(n.commNode, in.Now) {
		deadline := run.StartTime.Add(decision.Seconds(spec.Run.StartDeadlineSeconds))
		if in.Now.Before(deadline) {
			n.wakeAt = deadline
			return
		}
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonAgentNotReporting,
			"The monitor of node %s has not reported within %d s of the start of run %s: %s. "+
				"Look at its pod in the operator's namespace (`kubectl get pods -A -l %s=%s -o wide`). %s",
			n.name, spec.Run.StartDeadlineSeconds, run.ID, lastSeen(n.commNode), v1alpha1.LabelRole,
			v1alpha1.RoleMonitor, runByItself)
		return
	}
	if problems := nodefacts.ErrorProblems(n.facts()); len(problems) > 0 {
		p := &problems[0]
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonPreconditionFailed,
			"No ranks were started on node %s since its facts show %s (%s): %s %s", n.name, p.Code,
			cmp.Or(p.Subject(), "node"), explain.Sentence(p.Message), runAgain(in.Group))
		return
	}
	if !assigned {
		return // the assignment is written first: the agent reads its plan from it
	}
	if holdsGPUs(in.Pods[n.name], in.Now) || holdsGPUs(in.GroupPods[n.name], in.Now) {
		// an older run's pod still holds the GPUs
		n.wakeAt = podstate.FreeAt(slices.Concat(in.Pods[n.name], in.GroupPods[n.name]), in.Now)
		return
	}
	n.stepFree(in)
}

func lastSeen(cn *v1alpha1.CommNode) string {
	if cn == nil || cn.Status.Facts == nil {
		return "it never reported"
	}
	return "its last report of " + nodefacts.ReportedAt(cn).UTC().Format(time.RFC3339) + " has run out"
}

// stepPod decides for a node whose run pod is there.
func stepPod(n *nodeState, pod *corev1.Pod, in Input) {
	policy := &in.Group.Spec.Run
	if !podstate.Alive(pod) {
		ended := nodefacts.Corrected(n.commNode, podstate.Ended(pod))
		// An end in the future is of a clock that is ahead: it must not put the wait off by as much.
		if grace := ended.Add(podstate.ReportGrace); !ended.IsZero() && in.Now.Before(grace) &&
			!ended.After(in.Now.Add(podstate.ReportGrace)) {
			n.phase, n.wakeAt = judge.Running, grace
			return
		}
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonRunPodFailed,
			"Run pod %s on node %s ended without a report of the agent: %s %s",
			pod.Name, n.name, podstate.End(pod), runAgain(in.Group))
		return
	}
	if started := nodefacts.Corrected(n.commNode, podstate.RanksStarted(pod)); !started.IsZero() {
		deadline := started.Add(decision.Seconds(policy.NodeDeadlineSeconds))
		if started.After(in.Now) { // a clock that is ahead
			deadline = podstate.StartDeadline(pod, policy).Add(decision.Seconds(policy.NodeDeadlineSeconds))
		}
		if in.Now.Before(deadline) {
			n.phase, n.wakeAt = judge.Running, deadline
			return
		}
		n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonRunDeadlineExceeded,
			"Node %s has not reported within nodeDeadlineSeconds (%d s) of the start of its ranks; it was at: %s. "+
				"The pod is deleted to free the GPUs. Raise the deadline or measure less: either starts a run of "+
				"all members.", n.name, policy.NodeDeadlineSeconds, agentStep(n.commTask, in.Group.Status.Run))
		return
	}
	if n.stepQueued(pod, in) {
		return
	}
	deadline := podstate.StartDeadline(pod, policy)
	if in.Now.Before(deadline) {
		n.phase, n.wakeAt, n.hindrance = judge.Starting, deadline, podstate.Hindrance(pod)
		return
	}
	if pod.Spec.NodeName == "" {
		n.close(in.Now, v1alpha1.VerdictSkipped, v1alpha1.ReasonRunPodUnschedulable,
			"Run pod %s found no place on node %s within startDeadlineSeconds (%d s): "+
				"%s The GPUs are probably in use; it is tried again by itself.",
			pod.Name, n.name, policy.StartDeadlineSeconds, podstate.UnschedulableMessage(pod))
		return
	}
	n.close(in.Now, v1alpha1.VerdictError, v1alpha1.ReasonRunPodNotStarted,
		"Run pod %s on node %s has not started its ranks within startDeadlineSeconds (%d s): %s %s",
		pod.Name, n.name, policy.StartDeadlineSeconds, podstate.WaitingReason(pod), runAgain(in.Group))
}

// agentStep is what the agent last said it was at.
func agentStep(ct *v1alpha1.CommTask, run *v1alpha1.GroupRunStatus) string {
	if ct == nil || run == nil || ct.Status.Run == nil || ct.Status.Run.ID != run.ID {
		return "no word from the agent"
	}
	return cmp.Or(ct.Status.Run.Step, "no step named")
}

// hindered sums up what keeps nodes of the run from starting; empty where nothing is known to.
func hindered(nodes []nodeState) string {
	var names []string
	var first string
	for i := range nodes {
		if n := &nodes[i]; n.phase == judge.Starting && n.hindrance != "" {
			names = append(names, n.name)
			first = cmp.Or(first, n.hindrance)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Not started yet: %s: %s", explain.Names(names, 3), first)
}
