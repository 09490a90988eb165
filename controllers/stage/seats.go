package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// seat is one member of the group's stage.
type seat struct {
	index    int
	name     string
	commNode *v1alpha1.CommNode // nil where nothing is known of the node
	pod      *corev1.Pod
	// session as the API has it, nil where it is made just now; next is what it becomes.
	session *v1alpha1.SessionAssignment
	next    v1alpha1.SessionAssignment
	// report of the node's agent, of this run only.
	report *v1alpha1.SessionStatus
	// member: the node is still a member of the group, and the same node.
	member bool
	// present: the group has not gone on without it; held: so the API has it, and what this step decides is not written yet.
	present, held bool
}

// facts of the seat's node as its monitor last reported them; nil where it never did.
func (s *seat) facts() *v1alpha1.NodeFacts {
	if s.commNode == nil {
		return nil
	}
	return s.commNode.Status.Facts
}

// Fit says whether a node may take part in the group: it passed alone, and that still counts (a result that does not has no verdict).
func Fit(o *judge.Outcome) bool { return o.Verdict == v1alpha1.VerdictPass && o.Report != nil }

// takeSeats reads the seats from the CommTasks' sessions and, while the stage waits for its members, gives seats to those that
// have none. A seat keeps its index for the whole run. Seats that are given later lie between those of their neighbours in
// rank order: of the nodes only some can have fallen out since the stage began, none can have come.
func (g *machine) takeSeats() {
	members := int(g.span.Members)
	if members == 0 {
		return
	}
	g.seats = make([]*seat, members)
	uid := make(map[string]string, len(g.in.Members))
	for i := range g.in.Members {
		uid[g.in.Members[i].Name] = g.in.Members[i].UID
	}
	left, err := localize.ParseSet(g.span.LeftSet)
	g.certain = err == nil
	g.left = make(map[int]bool, len(left))
	for _, i := range left {
		g.left[i] = true
	}
	for name, ct := range g.in.CommTasks {
		s := ct.Spec.Session
		if s == nil || s.RunID != g.in.Run.ID || s.Index < 0 || int(s.Index) >= members {
			continue
		}
		one := &seat{index: int(s.Index), name: name, commNode: g.in.CommNodes[name], session: s, next: *s}
		one.present = g.certain && !g.left[one.index] && (s.State == v1alpha1.SessionOpen || g.span.Stage == v1alpha1.StageEnded)
		one.held = one.present
		one.member = uid[name] != "" && uid[name] == ct.Spec.NodeUID
		if r := ct.Status.Session; r != nil && r.RunID == g.in.Run.ID {
			one.report = r
		}
		one.pod = podstate.OfRun(g.in.Pods[name], g.in.Run.ID)
		g.seats[one.index] = one
	}
	if g.saved == nil || g.saved.Stage != v1alpha1.StageWaitingForMembers || g.in.Run.Phase != v1alpha1.RunPhaseRunning {
		return
	}
	index := 0
	for i := range g.in.Outcomes {
		o := &g.in.Outcomes[i]
		ct := g.in.CommTasks[o.Node]
		if !Fit(o) || ct == nil || uid[o.Node] != ct.Spec.NodeUID {
			continue
		}
		if s := ct.Spec.Session; s != nil && s.RunID == g.in.Run.ID {
			index = max(index, int(s.Index)+1)
			continue
		}
		for index < members && (g.seats[index] != nil || g.left[index]) {
			index++
		}
		if index == members {
			break
		}
		g.seats[index] = &seat{index: index, name: o.Node, commNode: g.in.CommNodes[o.Node], next: g.newSession(index, ct), member: true, present: true, held: true,
			pod: podstate.OfRun(g.in.Pods[o.Node], g.in.Run.ID)}
		index++
	}
}

func (g *machine) newSession(index int, ct *v1alpha1.CommTask) v1alpha1.SessionAssignment {
	spec := &g.in.Group.Spec
	return v1alpha1.SessionAssignment{
		RunID: g.in.Run.ID, RunName: g.in.Run.Name, Index: int32(index), Members: g.span.Members,
		Ranks:               cmp.Or(ct.Spec.Ranks.Count, spec.RanksPerNode),
		IdleDeadlineSeconds: g.idleDeadlineSeconds(), State: v1alpha1.SessionOpen,
	}
}

// idleDeadlineSeconds is how long an agent keeps its GPUs without a task: as long as the stage may have none for it, and a little more.
// That is while members are waited for; or while others still do a test that it has finished, and a culprit is searched for among
// others then. A round that leaves it out may follow.
func (g *machine) idleDeadlineSeconds() int32 {
	spec, members := &g.in.Group.Spec, int(g.span.Members)
	_, test := g.limits(&v1alpha1.SpanTest{Kind: v1alpha1.TestGroup}, members)
	_, round := g.limits(&v1alpha1.SpanTest{Kind: v1alpha1.TestPairs}, members)
	busy := test + podstate.ReportGrace + decision.Seconds(localizationDeadlineSeconds(spec))
	return int32((max(decision.Seconds(spec.Run.MembersDeadlineSeconds), busy) + round + podstate.ReportGrace + idleSlack) / time.Second)
}

// idleSlack is for what is on its way.
const idleSlack = time.Minute

// present members, in the order of their indexes.
func (g *machine) present() []*seat {
	if g.here == nil {
		g.here = make([]*seat, 0, len(g.seats))
		for _, s := range g.seats {
			if s != nil && s.present {
				g.here = append(g.here, s)
			}
		}
	}
	return g.here
}

func (g *machine) presentSet() localize.Set {
	var out localize.Set
	for _, s := range g.present() {
		out = append(out, s.index)
	}
	return out
}

func names(seats []*seat) []string {
	out := make([]string, len(seats))
	for i, s := range seats {
		out[i] = s.name
	}
	return out
}

// notReady are the present members whose agents are not ready for a first task.
func (g *machine) notReady() []*seat {
	var out []*seat
	for _, s := range g.present() {
		if s.report == nil || s.pod == nil || podstate.RanksStarted(s.pod).IsZero() ||
			(s.report.State != v1alpha1.SessionReady && s.report.State != v1alpha1.SessionWorking) {
			out = append(out, s)
		}
	}
	return out
}

// dropLost drops the members that can no longer take part, and returns them.
func (g *machine) dropLost() []*seat {
	var lost []*seat
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
			lost = append(lost, &seat{index: index})
		}
		g.worsen(v1alpha1.ReasonMemberLost, fmt.Sprintf("CommTasks of %s of the stage (index %s) were deleted or made anew.", words.Counted(len(gaps), "member"), localize.Set(gaps).String()))
		g.lost = true
		g.markLeft(gaps, nil)
	}
	return lost
}

// unmarkedGaps are the indexes that have no seat and are not known to be left.
func (g *machine) unmarkedGaps() []int {
	var out []int
	if !g.certain || len(g.span.LeftSet) > MaxLeftSet-100 {
		return nil // it could not be written down, and would be found again and again
	}
	for i, s := range g.seats {
		if s == nil && !g.left[i] {
			out = append(out, i)
		}
	}
	return out
}

// loss says why a member can no longer take part; empty while it can.
func (g *machine) loss(s *seat, waiting bool) (reason, message string) {
	runID := g.in.Run.ID
	switch {
	case !s.member:
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("Node %s left the group during run %s: it was deleted, made anew or no longer matches members.", s.name, runID)
	case s.pod != nil && podstate.TakenAway(s.pod) != "":
		return v1alpha1.ReasonPreempted, fmt.Sprintf("Group pod %s on node %s was taken away: %s.", s.pod.Name, s.name, podstate.TakenAway(s.pod))
	case s.refuses():
		reason := s.report.Reason
		if VerdictOf(reason) == v1alpha1.VerdictPass {
			reason = v1alpha1.ReasonPreconditionFailed
		}
		return reason, fmt.Sprintf("Node %s cannot take part: %s", s.name, cmp.Or(strings.TrimPrefix(s.report.Message, "Node "+s.name+": "), "its agent gave no reason; see the log of its group pod."))
	case s.idled():
		return v1alpha1.ReasonRunDeadlineExceeded, fmt.Sprintf("The agent of node %s gave its GPUs back, since no manager was there to give it a task: %s", s.name,
			cmp.Or(units.Unnamed(s.report.Message, s.name), "its idle deadline passed."))
	case s.report != nil && s.report.State == v1alpha1.SessionEnded:
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("The agent of node %s ended its session by itself: %s", s.name,
			cmp.Or(s.report.Message, "it was told to stop, or had no task within its idle deadline; see the log of its group pod."))
	case s.pod == nil:
		if waiting {
			return "", "" // it is made, or made again
		}
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("The group pod of node %s was deleted during run %s. Look for evictions and preemption (`kubectl get events`).", s.name, runID)
	case !podstate.Alive(s.pod):
		if grace := nodefacts.Corrected(s.commNode, podstate.Ended(s.pod)).Add(podstate.ReportGrace); !podstate.Ended(s.pod).IsZero() && g.in.Now.Before(grace) {
			g.wake(grace) // its last report may still be on its way
			return "", ""
		}
		return v1alpha1.ReasonRunPodFailed, fmt.Sprintf("Group pod %s on node %s ended before the stage did: %s", s.pod.Name, s.name, podstate.End(s.pod))
	case !s.pod.DeletionTimestamp.IsZero():
		return v1alpha1.ReasonMemberLost, fmt.Sprintf("Group pod %s on node %s is being deleted: evicted, preempted, or deleted by hand (`kubectl get events`).", s.pod.Name, s.name)
	}
	return "", ""
}

// idled: the member's agent ended its session since it was given nothing to do. Its idle deadline outlasts each test and search.
func (s *seat) idled() bool {
	return s.report != nil && s.report.State == v1alpha1.SessionEnded && s.report.Reason == v1alpha1.ReasonSessionIdle
}

// refuses: the member's agent said that it cannot take part.
func (s *seat) refuses() bool { return s.report != nil && s.report.State == v1alpha1.SessionFailed }

// dropRefused drops the members that cannot take part, once each member is ready or has said so, or the wait is over. Where most give one
// reason, it is in what they share, as spec.network, and names no node: else those that are first to say it are blamed.
func (g *machine) dropRefused() []*seat {
	var refused []*seat
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
			g.leave(s, reason, fmt.Sprintf("%d of %d members cannot take part for the same reason, so look at what they share, spec.network or spec.runtime: no node is named for it. The first: %s", n, present, message))
			continue
		}
		g.drop(s, reason, message)
	}
	return refused
}

// dropLate drops a member that is not ready at the end of the wait, and says what it waited for.
func (g *machine) dropLate(s *seat, holders occupancy) {
	limit := g.in.Group.Spec.Run.MembersDeadlineSeconds
	switch holder := holders.of(s.name); {
	case s.pod == nil && holder != "":
		g.drop(s, v1alpha1.ReasonNodeBusy, fmt.Sprintf("Node %s had no place for its group pod for %d s (run.membersDeadlineSeconds): %s.", s.name, limit, holder))
	case s.pod != nil && podstate.Queued(s.pod) && len(holders.without) > 0:
		g.drop(s, v1alpha1.ReasonWaitingForQueue, fmt.Sprintf("Kueue admits the stage's pods together, and waited with pod %s of node %s for run.membersDeadlineSeconds (%d s) for those that were not made: of %s.%s",
			s.pod.Name, s.name, limit, words.SomeNames(holders.without, 5), cmp.Or(ToldRefusal(g.in.Group), " See the manager's log for why.")))
	case s.pod != nil && podstate.Queued(s.pod):
		g.drop(s, v1alpha1.ReasonWaitingForQueue, fmt.Sprintf("Kueue has not admitted group pod %s for node %s in queue %s within run.membersDeadlineSeconds (%d s): raise that, or look at the queue's quota.",
			s.pod.Name, s.name, podstate.QueueOf(s.pod), limit))
	case s.pod == nil:
		// What refuses a pod is the namespace's: no node is named for it.
		g.leave(s, v1alpha1.ReasonRunPodNotStarted, fmt.Sprintf("Node %s has no group pod %d s (run.membersDeadlineSeconds) after the stage began.%s", s.name, limit,
			cmp.Or(ToldRefusal(g.in.Group), " See the manager's log for why it was refused.")))
	case s.pod.Spec.NodeName == "":
		g.drop(s, v1alpha1.ReasonRunPodUnschedulable, fmt.Sprintf("Group pod %s found no place on node %s within run.membersDeadlineSeconds (%d s): %s The GPUs are probably in use; the next run tries again.",
			s.pod.Name, s.name, limit, podstate.UnschedulableMessage(s.pod)))
	case podstate.RanksStarted(s.pod).IsZero():
		g.drop(s, v1alpha1.ReasonRunPodNotStarted, fmt.Sprintf("Group pod %s on node %s has not started within run.membersDeadlineSeconds (%d s): %s",
			s.pod.Name, s.name, limit, podstate.WaitingReason(s.pod)))
	default:
		g.drop(s, v1alpha1.ReasonAgentNotReporting, fmt.Sprintf("The agent in group pod %s on node %s was not ready within run.membersDeadlineSeconds (%d s); see the pod's log.",
			s.pod.Name, s.name, limit))
	}
}

// drop goes on without a member, and names it.
func (g *machine) drop(s *seat, reason, message string) {
	if v := VerdictOf(reason); v == v1alpha1.VerdictError || v == v1alpha1.VerdictFail {
		g.blame(judge.NodeCulprit(s.name, reason, message))
	}
	g.leave(s, reason, message)
}

// leave goes on without a member: its session ends, and its GPUs with it. The reason counts for the stage's verdict, and is never one that
// means Pass.
func (g *machine) leave(s *seat, reason, message string) {
	g.worsen(reason, message)
	g.lost = true
	g.release(s)
	if len(g.dropped) == 0 {
		g.why = decision.Event{Warning: true, Reason: reason, Action: "LeaveMember", Note: message}
	}
	g.dropped = append(g.dropped, s.name)
}

// release lets a member go without a word: what is to be said of it is said already.
func (g *machine) release(s *seat) {
	s.present, g.here, g.choice = false, nil, nil
	g.markLeft([]int{s.index}, []string{s.name})
}

const maxLeftNames = 16

func (g *machine) markLeft(indexes []int, leftNames []string) {
	for _, name := range leftNames {
		if len(g.span.Left) < maxLeftNames && !slices.Contains(g.span.Left, name) {
			g.span.Left = append(g.span.Left, name)
		}
	}
	for _, i := range indexes {
		g.left[i] = true
	}
	g.justLeft = append(g.justLeft, indexes...)
}

// writeLeft writes down who left, and tells of it once for all that fell out in this step.
func (g *machine) writeLeft() {
	if len(g.seats) == 0 {
		return
	}
	var set localize.Set
	for i := range g.seats {
		if g.left[i] {
			set = append(set, i)
		}
	}
	if text := set.String(); len(text) <= MaxLeftSet && g.certain {
		g.span.LeftSet = text
	} else {
		g.unwritten = true // the sessions, which are ended, tell it
	}
	if g.span.Stage != v1alpha1.StageEnded {
		g.span.Present = int32(len(g.present()))
	}
	if len(g.dropped) > 0 {
		g.tell(true, g.why.Reason, g.why.Action, "Run %s goes on without %s: %s", g.in.Run.ID, words.SomeNames(g.dropped, 5), g.why.Note)
	}
}

// MaxLeftSet is what status.span.leftSet holds.
const MaxLeftSet = 1024

// letGo says whether the member's session and pod may end: only once the API has it that the group goes on without the member,
// or that the stage is over. Were the status lost after they ended, nothing would tell why they did.
func (g *machine) letGo(s *seat) bool {
	return !s.held || g.savedOver() || g.unwritten && !s.present
}

func (g *machine) savedOver() bool { return g.saved != nil && g.saved.Stage == v1alpha1.StageEnded }

// sessions of all nodes as they should be.
func (g *machine) sessions() map[string]*v1alpha1.SessionAssignment {
	out := make(map[string]*v1alpha1.SessionAssignment, len(g.seats))
	for _, s := range g.seats {
		if s == nil {
			continue
		}
		if g.letGo(s) || s.session != nil && s.session.State == v1alpha1.SessionClosed {
			// What is ended stays so: a decision on an old read must not open it again.
			s.next.State, s.next.Task = v1alpha1.SessionClosed, nil
			if s.session == nil {
				continue
			}
		}
		next := s.next
		if was := s.session; was != nil && was.State == next.State && was.Task == next.Task && was.AddressFamily == next.AddressFamily {
			out[s.name] = was // nothing else of a session ever changes; its pointer says so to who compares
			continue
		}
		out[s.name] = &next
	}
	return out
}

// planPods makes the pods that are missing while members are waited for, and deletes those that the stage needs no longer.
func (g *machine) planPods() {
	if g.saved != nil && g.saved.Stage == v1alpha1.StageWaitingForMembers && g.span.Stage == v1alpha1.StageWaitingForMembers {
		for _, s := range g.present() {
			if s.session != nil && s.pod == nil && !g.held(s.name) {
				g.out.CreatePodsOn = append(g.out.CreatePodsOn, s.name)
			}
		}
	}
	needed, leaving := make(map[string]bool, len(g.seats)), make(map[string]bool, len(g.seats))
	for _, s := range g.seats {
		switch {
		case s == nil || s.pod == nil:
		case g.letGo(s):
			leaving[s.pod.Name] = true
		default:
			needed[s.pod.Name] = true
		}
	}
	g.deletePods(func(pod *corev1.Pod) bool {
		return needed[pod.Name] || leaving[pod.Name] && g.endsByItself(pod)
	})
}

// endsByItself says whether a pod whose session has just ended still has time to end by itself, and so to leave its log: all have at
// the stage's end, and members that are let go from the begin of the next part of the stage, which follows.
func (g *machine) endsByItself(pod *corev1.Pod) bool {
	if g.in.Run.Phase == v1alpha1.RunPhaseAborted || !podstate.Alive(pod) || podstate.RanksStarted(pod).IsZero() || g.span.StageStartTime == nil {
		return false
	}
	end := g.span.StageStartTime.Add(podstate.ExitGrace)
	if !g.in.Now.Before(end) {
		return false
	}
	g.wake(end)
	return true
}

// held says whether another run's pod still holds the node's GPUs.
func (g *machine) held(node string) bool {
	at := podstate.FreeAt(g.in.Pods[node], g.in.Now)
	if !at.After(g.in.Now) {
		return false
	}
	g.wake(at)
	return true
}

func (g *machine) deletePods(needed func(*corev1.Pod) bool) {
	for _, node := range words.SortedKeys(g.in.Pods) {
		for _, pod := range g.in.Pods[node] {
			if pod.DeletionTimestamp.IsZero() && !needed(pod) {
				g.out.DeletePods = append(g.out.DeletePods, pod.Name)
			}
		}
	}
}

// PodSeconds bounds a pod of the stage should no manager be there to end it: every wait of the stage, one after the other.
func PodSeconds(spec *v1alpha1.CommGroupSpec) int64 {
	task := int64(taskLimit(spec, spec.Run.NodeDeadlineSeconds) / time.Second)
	return int64(spec.Run.MembersDeadlineSeconds) + int64(localizationDeadlineSeconds(spec)) + task*int64(3+len(spec.Mesh)) + podstate.SlackSeconds
}
