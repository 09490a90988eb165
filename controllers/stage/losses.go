package stage

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// dropLost drops the members that can no longer take part, and returns them.
func (g *members) dropLost() []*participant {
	var lost []*participant
	waiting := g.span.Stage == v1alpha1.StageWaitingForMembers
	for _, s := range g.present() {
		if waiting && s.refuses() {
			continue // dropRefused looks at all of these together
		}
		reason, message := g.loss(s, waiting)
		if reason == "" {
			continue
		}
		lost = append(lost, s)
		if s.idled() {
			g.leave(s, reason, message) // whoever was given nothing to do is not guilty of that
			continue
		}
		g.drop(s, reason, message)
	}
	if waiting {
		lost = append(lost, g.dropRefused()...)
	}
	if gaps := g.unmarkedGaps(); len(gaps) > 0 {
		// Their nodes' objects are gone, and their names with them.
		for _, index := range gaps {
			lost = append(lost, &participant{index: index})
		}
		g.worsen(v1alpha1.ReasonMemberLost,
			fmt.Sprintf("CommTasks of %s of the stage (index %s) were deleted or made anew.",
				units.Counted(len(gaps), "member"), localize.Set(gaps).String()))
		g.lost = true
		g.markDeparted(gaps, nil)
	}
	return lost
}

// loss says why a member can no longer take part; empty while it can.
func (g *members) loss(s *participant, waiting bool) (reason, message string) {
	runID := g.in.Run.ID
	switch {
	case !s.member:
		return v1alpha1.ReasonMemberLost,
			fmt.Sprintf("Node %s left the group during run %s: it was deleted, made anew or no longer matches members.",
				s.name, runID)
	case s.pod != nil && podstate.TakenAway(s.pod) != "":
		return v1alpha1.ReasonPreempted,
			fmt.Sprintf("Group pod %s on node %s was taken away: %s.", s.pod.Name, s.name, podstate.TakenAway(s.pod))
	case s.refuses():
		reason := s.report.Reason
		if VerdictOf(reason) == v1alpha1.VerdictPass {
			reason = v1alpha1.ReasonPreconditionFailed
		}
		return reason, fmt.Sprintf("Node %s cannot take part: %s", s.name, cmp.Or(strings.TrimPrefix(s.report.Message,
			"Node "+s.name+": "), "its agent gave no reason; see the log of its group pod."))
	case s.idled():
		return v1alpha1.ReasonRunDeadlineExceeded,
			fmt.Sprintf("The agent of node %s gave its GPUs back, since no manager was there to give it a task: %s",
				s.name, cmp.Or(units.Unnamed(s.report.Message, s.name), "its idle deadline passed."))
	case s.report != nil && s.report.State == v1alpha1.SessionEnded:
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("The agent of node %s ended its session by itself: %s", s.name,
			cmp.Or(s.report.Message,
				"it was told to stop, or had no task within its idle deadline; see the log of its group pod."))
	case s.pod == nil:
		if waiting {
			return "", "" // it is made, or made again
		}
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("The group pod of node %s was deleted during run %s. "+
			"Look for evictions and preemption (`kubectl get events`).", s.name, runID)
	case !podstate.Alive(s.pod):
		if grace := nodefacts.Corrected(s.commNode, podstate.Ended(s.pod)).
			Add(podstate.ReportGrace); !podstate.Ended(s.pod).IsZero() && g.in.Now.Before(grace) {
			g.wake(grace) // its last report may still be on its way
			return "", ""
		}
		return v1alpha1.ReasonRunPodFailed, fmt.Sprintf("Group pod %s on node %s ended before the stage did: %s",
			s.pod.Name, s.name, podstate.End(s.pod))
	case !s.pod.DeletionTimestamp.IsZero():
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("Group pod %s on node %s is being deleted: evicted, preempted, "+
			"or deleted by hand (`kubectl get events`).", s.pod.Name, s.name)
	}
	return "", ""
}

// dropRefused drops the members that cannot take part, once each member is ready or has said so, or the wait is over.
// Where most give one reason, it is in what they share, as spec.network, and names no node: else those that are first
// to say it are blamed.
func (g *members) dropRefused() []*participant {
	var refused []*participant
	count := map[string]int{}
	for _, s := range g.notReady() {
		switch {
		case s.refuses():
			refused = append(refused, s)
			count[s.report.Reason]++
		case !g.deadlinePassed():
			return nil
		}
	}
	present := len(g.present())
	for _, s := range refused {
		reason, message := g.loss(s, true)
		if n := count[s.report.Reason]; 2*n > present && VerdictOf(reason) == v1alpha1.VerdictError {
			g.leave(s, reason, fmt.Sprintf("%d of %d members cannot take part for the same reason, "+
				"so look at what they share, spec.network or spec.runtime: no node is named for it. The first: %s",
				n, present, message))
			continue
		}
		g.drop(s, reason, message)
	}
	return refused
}

// dropLate drops a member that is not ready at the end of the wait, and says what it waited for.
func (g *members) dropLate(s *participant, holders occupancy) {
	limit := g.in.Group.Spec.Run.MembersDeadlineSeconds
	switch holder := holders.of(s.name); {
	case s.pod == nil && holder != "":
		g.drop(s, v1alpha1.ReasonNodeBusy,
			fmt.Sprintf("Node %s had no place for its group pod for %d s (run.membersDeadlineSeconds): %s.",
				s.name, limit, holder))
	case s.pod != nil && podstate.Queued(s.pod) && len(holders.without) > 0:
		g.drop(s, v1alpha1.ReasonWaitingForQueue, fmt.Sprintf("Kueue admits the stage's pods together, and waited "+
			"with pod %s of node %s for run.membersDeadlineSeconds (%d s) for those that were not made: of %s.%s",
			s.pod.Name, s.name, limit, explain.Names(holders.without, 5),
			cmp.Or(ToldRefusal(g.in.Group), " See the manager's log for why.")))
	case s.pod != nil && podstate.Queued(s.pod):
		g.drop(s, v1alpha1.ReasonWaitingForQueue, fmt.Sprintf("Kueue has not admitted group pod %s for node "+
			"%s in queue %s within run.membersDeadlineSeconds (%d s): raise that, or look at the queue's quota.",
			s.pod.Name, s.name, podstate.QueueOf(s.pod), limit))
	case s.pod == nil:
		// What refuses a pod is the namespace's: no node is named for it.
		g.leave(s, v1alpha1.ReasonRunPodNotStarted,
			fmt.Sprintf("Node %s has no group pod %d s (run.membersDeadlineSeconds) after the stage began.%s",
				s.name, limit, cmp.Or(ToldRefusal(g.in.Group), " See the manager's log for why it was refused.")))
	case s.pod.Spec.NodeName == "":
		g.drop(s, v1alpha1.ReasonRunPodUnschedulable, fmt.Sprintf("Group pod %s found no place on node %s "+
			"within run.membersDeadlineSeconds (%d s): %s The GPUs are probably in use; the next run tries again.",
			s.pod.Name, s.name, limit, podstate.UnschedulableMessage(s.pod)))
	case podstate.RanksStarted(s.pod).IsZero():
		g.drop(s, v1alpha1.ReasonRunPodNotStarted,
			fmt.Sprintf("Group pod %s on node %s has not started within run.membersDeadlineSeconds (%d s): %s",
				s.pod.Name, s.name, limit, podstate.WaitingReason(s.pod)))
	default:
		g.drop(s, v1alpha1.ReasonAgentNotReporting, fmt.Sprintf("The agent in group pod %s on node %s was not ready "+
			"within run.membersDeadlineSeconds (%d s); see the pod's log.", s.pod.Name, s.name, limit))
	}
}

// dropBusy lets the members go whose GPUs others hold, where Kueue admits all or none: half of the wait for members is
// for them, the other half for the queue.
func (g *members) dropBusy() bool {
	limit := decision.Seconds(g.in.Group.Spec.Run.MembersDeadlineSeconds)
	if g.in.Group.Spec.Run.QueueName == "" || g.span.StageDeadline == nil ||
		g.in.Now.Before(g.span.StageDeadline.Add(-limit/2)) {
		return false
	}
	dropped := false
	for _, s := range g.present() {
		if holders := g.in.Looked[s.name]; s.pod == nil && holders != "" {
			dropped = true
			g.drop(s, v1alpha1.ReasonNodeBusy, fmt.Sprintf("Node %s had no place for its group pod for half "+
				"of run.membersDeadlineSeconds (%d s): run.nodes is Idle, and GPUs there are held by %s. "+
				"Kueue admits the members together, so that the others are not kept waiting for it.",
				s.name, g.in.Group.Spec.Run.MembersDeadlineSeconds, holders))
		}
	}
	return dropped
}

// awaitOthers holds the group's stage back while other groups' runs are on its nodes, at most as long as a stage may
// take.
func (g *members) awaitOthers() bool {
	why, node := "", ""
	for i := range g.in.Outcomes {
		o := &g.in.Outcomes[i]
		if o.Report == nil || !Fit(o) {
			continue
		}
		if other := g.in.Others.OnNode(o.Node); other != "" && why == "" {
			why, node = other, o.Node
		}
	}
	if g.span.Message = ""; why == "" {
		return false
	}
	if g.span.StageStartTime == nil {
		g.span.StageStartTime = decision.Stamp(g.in.Now) // by the manager's clock: the wait begins
	}
	why = fmt.Sprintf("one run at a time is on a node, and on %s there is %s", node, why)
	deadline := g.span.StageStartTime.Add(time.Duration(PodSeconds(&g.in.Group.Spec)) * time.Second)
	if !g.in.Now.Before(deadline) {
		g.end(v1alpha1.VerdictSkipped, v1alpha1.ReasonNodeBusy,
			"The group's stage found no time when all its nodes were free: "+why+". Run it again when they are.")
		return true
	}
	g.span.Message = clip.Head("The group's stage waits: "+why+".", 1024)
	g.wake(decision.Earlier(g.in.Now.Add(sharing.BusyPoll), deadline))
	return true
}

// occupancy says what keeps members' pods of the group's stage from being made.
type occupancy struct {
	// others is the other run that holds all of the group's pods back; empty where none is known to.
	others string
	// looked: members of these names get a pod only once a look showed their GPUs free.
	looked map[string]bool
	// without are the members that have no pod.
	without []string
}

// occupancy of the participants before any member is dropped for it.
func (g *members) occupancy() occupancy {
	out := occupancy{looked: map[string]bool{}}
	for _, one := range g.participants {
		if one == nil || one.pod != nil {
			continue
		}
		if one.present {
			out.without = append(out.without, one.name)
		}
		if other := g.in.Others.Before(one.name); other != "" {
			out.others = cmp.Or(out.others,
				fmt.Sprintf("one run at a time is on a node, and on %s there is %s", one.name, other))
		}
	}
	for i := range g.in.Members {
		if m := &g.in.Members[i]; sharing.NeedsLook(m, &g.in.Group.Spec) {
			out.looked[m.Name] = true
		}
	}
	return out
}

// of says who keeps the member's pod from being made; empty where nobody is known to.
func (o occupancy) of(node string) string {
	switch {
	case o.others != "":
		return o.others
	case o.looked[node]:
		return fmt.Sprintf("run.nodes is Idle, and no look showed its GPUs free of other pods (at most "+
			"%d nodes are looked at every %d s), or the API server refused the pod (see the manager's log)",
			sharing.MaxLooks, int(sharing.BusyPoll/time.Second))
	}
	return ""
}

// ToldRefusal is what the group's status says of refused writes, as a sentence to add; empty where it says nothing.
func ToldRefusal(group *state.Group) string {
	for i := range group.Status.Remarks {
		if r := &group.Status.Remarks[i]; r.Reason == v1alpha1.ReasonWritesRefused {
			return " " + r.Message
		}
	}
	return ""
}
