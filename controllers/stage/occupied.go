package stage

import (
	"cmp"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/words"
)

// dropBusy lets the members go whose GPUs others hold, where Kueue admits all or none: half of the wait for members is for them, the
// other half for the queue.
func (g *machine) dropBusy() bool {
	limit := decision.Seconds(g.in.Group.Spec.Run.MembersDeadlineSeconds)
	if g.in.Group.Spec.Run.QueueName == "" || g.span.StageDeadline == nil || g.in.Now.Before(g.span.StageDeadline.Add(-limit/2)) {
		return false
	}
	dropped := false
	for _, s := range g.present() {
		if holders := g.in.Looked[s.name]; s.pod == nil && holders != "" {
			dropped = true
			g.drop(s, v1alpha1.ReasonNodeBusy, fmt.Sprintf("Node %s had no place for its group pod for half of run.membersDeadlineSeconds (%d s): run.nodes is Idle, and GPUs there are held by %s. Kueue admits the members together, so that the others are not kept waiting for it.",
				s.name, g.in.Group.Spec.Run.MembersDeadlineSeconds, holders))
		}
	}
	return dropped
}

// awaitOthers holds the group's stage back while other groups' runs are on its nodes, at most as long as a stage may take.
func (g *machine) awaitOthers() bool {
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
		g.end(v1alpha1.VerdictSkipped, v1alpha1.ReasonNodeBusy, "The group's stage found no time when all its nodes were free: "+why+". Run it again when they are.")
		return true
	}
	g.span.Message = words.Shorten("The group's stage waits: "+why+".", 1024)
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

// occupancy of the seats before any member is dropped for it.
func (g *machine) occupancy() occupancy {
	out := occupancy{looked: map[string]bool{}}
	for _, one := range g.seats {
		if one == nil || one.pod != nil {
			continue
		}
		if one.present {
			out.without = append(out.without, one.name)
		}
		if other := g.in.Others.Before(one.name); other != "" {
			out.others = cmp.Or(out.others, fmt.Sprintf("one run at a time is on a node, and on %s there is %s", one.name, other))
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
		return fmt.Sprintf("run.nodes is Idle, and no look showed its GPUs free of other pods (at most %d nodes are looked at every %d s), or the API server refused the pod (see the manager's log)",
			sharing.MaxLooks, int(sharing.BusyPoll/time.Second))
	}
	return ""
}
