package commrun

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// stepFree decides whether the node's run pod may be made now, as to others that use the node.
func (n *nodeState) stepFree(in Input) {
	spec := &in.Group.Spec
	if other := in.Others.OnNode(n.name); other != "" {
		// Others' runs end by their own deadlines, which may be as long as this group's.
		n.waitFor(in, decision.Seconds(spec.Run.NodeDeadlineSeconds)+decision.Seconds(spec.Run.StartDeadlineSeconds),
			v1alpha1.ReasonNodeBusy, "one run at a time is on a node, and there is "+other)
		return
	}
	if spec.Run.Nodes != v1alpha1.NodeUseIdle {
		n.waitForQuota(in)
		return
	}
	holders, looked := in.Looked[n.name]
	unread, failed := in.Unread[n.name]
	switch {
	case failed:
		reason := v1alpha1.ReasonListFailed
		if a := runs.AssignmentOf(n.commTask); a != nil && a.Waiting != nil {
			reason = a.Waiting.Reason // one that was seen busy stays so
		}
		n.waitFor(in, decision.Seconds(spec.Run.StartDeadlineSeconds), reason,
			"run.nodes is Idle, and whether other pods hold GPUs there could not be read: "+unread)
	case !looked:
		n.wantsLook, n.wakeAt = true, in.Now.Add(sharing.BusyPoll)
		if a := runs.AssignmentOf(n.commTask); a != nil {
			n.waiting = a.Waiting
		}
	case holders == "":
		n.waitForQuota(in)
	default:
		n.waitFor(in, decision.Seconds(spec.Run.StartDeadlineSeconds), v1alpha1.ReasonNodeBusy,
			"run.nodes is Idle, and GPUs there are held by "+holders)
	}
}

// waitFor notes what the node's run waits for, and since when; past the limit the node's part ends: Skipped where
// others had the node, Error where nobody could tell.
func (n *nodeState) waitFor(in Input, limit time.Duration, reason, why string) {
	since := *decision.Stamp(in.Now)
	if a := runs.AssignmentOf(n.commTask); a != nil && a.Waiting != nil && a.Waiting.Since.Before(&since) {
		since = a.Waiting.Since // a time in the future is nobody's wait, and would put the deadline off
	}
	deadline := since.Add(limit)
	if !in.Now.Before(deadline) {
		verdict, next := v1alpha1.VerdictSkipped, "It is tried again by itself."
		if !retriable(&v1alpha1.RunClosure{Reason: reason}) {
			verdict, next = v1alpha1.VerdictError, runAgain(in.Group)
		}
		n.close(in.Now, verdict, reason, "No run was started on node %s within %d s: %s %s", n.name,
			int64(limit/time.Second), explain.Sentence(why), next)
		return
	}
	n.waiting = &v1alpha1.RunWait{Reason: reason, Message: clip.Head(why, 512), Since: since}
	n.wakeAt = decision.Earlier(in.Now.Add(sharing.BusyPoll), deadline)
}

// waitForQuota lets the node try to create its run pod again, until startDeadlineSeconds after the quota refused it
// first: the run's own pods on other nodes may hold the quota, and end.
func (n *nodeState) waitForQuota(in Input) {
	n.wantsPod = true
	a := runs.AssignmentOf(n.commTask)
	if a == nil || a.Waiting == nil || a.Waiting.Reason != v1alpha1.ReasonRunPodNotStarted {
		return
	}
	n.waitFor(in, decision.Seconds(in.Group.Spec.Run.StartDeadlineSeconds), v1alpha1.ReasonRunPodNotStarted,
		a.Waiting.Message)
	n.wantsPod = !n.closed()
}

// chooseLooks are the nodes to look at now: first as many of those that were not seen busy yet as there are places,
// then the others in turn, also without a place, so that their wait ends in time. The turn goes by the clock, so that
// it needs no memory; busyAt only spares the API server a second look within one poll.
func chooseLooks(nodes []nodeState, places int, now time.Time, busyAt map[string]time.Time) []string {
	var fresh, waiting []string
	for i := range nodes {
		switch n := &nodes[i]; {
		case !n.wantsLook:
		case n.waiting == nil:
			if !Lately(busyAt, n.name, now) {
				fresh = append(fresh, n.name)
			}
		default:
			waiting = append(waiting, n.name)
		}
	}
	out := fresh[:min(max(0, places), sharing.MaxLooks, len(fresh))]
	for _, name := range sharing.InTurn(waiting, sharing.MaxLooks-len(out), now) {
		if !Lately(busyAt, name, now) {
			out = append(out, name)
		}
	}
	return out
}

// Lately says whether the node was seen busy less than a poll ago.
func Lately(busyAt map[string]time.Time, node string, now time.Time) bool {
	ago := now.Sub(busyAt[node])
	return ago >= 0 && ago < sharing.BusyPoll
}

// heldUp sums up what keeps nodes of the run waiting for others; empty where nothing does.
func heldUp(nodes []nodeState) string {
	var names []string
	var first string
	for i := range nodes {
		if n := &nodes[i]; n.phase == judge.Waiting && n.waiting != nil {
			names = append(names, n.name)
			first = cmp.Or(first, n.waiting.Message)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Waiting for others: %s: %s",
		explain.Names(names, 3), explain.Sentence(strings.TrimSpace(first)))
}

// admitGroupPods keeps the pods of the group's stage back while others have their nodes: all of them while another run
// is on any, so that two groups never each hold what the other waits for; and those on nodes where others hold GPUs.
func (st *runState) admitGroupPods(in Input) {
	wanted := st.span.CreatePodsOn
	if len(wanted) == 0 {
		return
	}
	st.span.CreatePodsOn = nil
	poll := in.Now.Add(sharing.BusyPoll)
	for _, name := range wanted {
		if in.Others.Before(name) != "" {
			st.span.WakeAt = decision.Earlier(st.span.WakeAt, poll)
			return
		}
	}
	members := make(map[string]*decision.Member, len(in.Members))
	for i := range in.Members {
		members[in.Members[i].Name] = &in.Members[i]
	}
	var free, unknown []string
	busy := false
	for _, name := range wanted {
		holders, looked := in.Looked[name]
		if !sharing.NeedsLook(members[name], &in.Group.Spec) || looked && holders == "" {
			free = append(free, name)
			continue
		}
		if !looked && !Lately(in.BusyAt, name, in.Now) {
			unknown = append(unknown, name)
		} else {
			busy = true
		}
		st.span.WakeAt = decision.Earlier(st.span.WakeAt, poll)
	}
	limit := sharing.MaxLooks - len(st.lookAt)
	if in.Group.Spec.Run.QueueName != "" && !st.queuedStage(in) {
		// Kueue admits all or none, and counts on as many as the first pod says: they are made once all are free at one
		// look.
		if limit = len(unknown); busy {
			limit = 0
		}
		if len(free) < int(st.span.Span.Present) {
			free = nil
		}
	}
	st.span.CreatePodsOn = free
	if in.Looked == nil {
		st.lookAt = append(st.lookAt, sharing.InTurn(unknown, limit, in.Now)...)
	}
}

// queuedStage says whether the stage has pods already.
func (st *runState) queuedStage(in Input) bool {
	for _, pods := range in.GroupPods {
		if podstate.OfRun(pods, st.run.ID) != nil {
			return true
		}
	}
	return false
}

// stagePods is how many pods of the group's stage are to be admitted together: what is said on those that are there,
// else one for each member that is present.
func (in *Input) stagePods(st *runState) int32 {
	for _, pods := range in.GroupPods {
		if pod := podstate.OfRun(pods, st.run.ID); pod != nil {
			if n, err := strconv.ParseInt(pod.Annotations[podstate.PodGroupCountAnnotation], 10, 32); err == nil {
				return int32(n)
			}
		}
	}
	return st.span.Span.Present
}
