package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

const (
	// busyPoll is how often a node that others use is looked at again: the end of their pods is no event of this group's.
	busyPoll = 15 * time.Second
	// maxLooks is the most nodes whose pods are listed in one reconcile; one that was busy is not listed again within busyPoll.
	maxLooks = 64
)

// elsewhere is what other CommGroups do on the nodes, by node name.
type elsewhere struct {
	// pods of other groups' runs that are not over, and claims of groups whose stage over several nodes has begun.
	pods, claims map[string]string
	// ahead are the claims of groups whose stage began before this group's; of two that began in one second the lesser UID
	// is ahead.
	ahead map[string]string
}

// onNode names the other group that has the node; empty where none does.
func (e *elsewhere) onNode(node string) string { return cmp.Or(e.pods[node], e.claims[node]) }

// before names the other group that this group's stage has to let go first.
func (e *elsewhere) before(node string) string { return cmp.Or(e.pods[node], e.ahead[node]) }

// othersOf sums up what a snapshot shows of other groups' runs.
func othersOf(s *Snapshot) elsewhere {
	e := elsewhere{pods: map[string]string{}, claims: map[string]string{}, ahead: map[string]string{}}
	for i := range s.OtherRunPods {
		pod := &s.OtherRunPods[i]
		// A gated pod holds nothing yet, and the scheduler keeps it from a node with another run's pod.
		if node := plannedNode(pod); node != "" && podAlive(pod) && !podStuck(pod, s.Now) && len(pod.Spec.SchedulingGates) == 0 {
			keepLeast(e.pods, node, otherPod(s.Group, pod))
		}
	}
	own := stageOf(s.Group)
	for i := range s.Claims {
		c := &s.Claims[i]
		text := fmt.Sprintf("%s, which forms its communicator over several nodes", otherGroup(s.Group, c.Group))
		ahead := own == nil || c.earlier(own)
		for _, node := range c.Nodes {
			keepLeast(e.claims, node, text)
			if ahead {
				keepLeast(e.ahead, node, text)
			}
		}
	}
	return e
}

// Who reads a CommGroup's status may not know what other namespaces run: those are told apart from the group's own only.
const ofOtherNamespace = " of another namespace"

func otherPod(group *v1alpha1.CommGroup, pod *corev1.Pod) string {
	if pod.Namespace != group.Namespace {
		return "a run pod" + ofOtherNamespace
	}
	return fmt.Sprintf("run pod %s/%s of CommGroup %s", pod.Namespace, pod.Name, cmp.Or(pod.Annotations[v1alpha1.AnnotationGroup], "unknown"))
}

// otherGroup names the group of that namespace/name.
func otherGroup(group *v1alpha1.CommGroup, other string) string {
	if namespace, _, _ := strings.Cut(other, "/"); namespace != group.Namespace {
		return "a CommGroup" + ofOtherNamespace
	}
	return "CommGroup " + other
}

// keepLeast keeps one text a node, the same whatever the order.
func keepLeast(m map[string]string, node, text string) {
	if old, there := m[node]; !there || text < old {
		m[node] = text
	}
}

// plannedNode is the node that a run pod is on, or is made for.
func plannedNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == "metadata.name" && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return ""
}

// Claim is the wish of another group's stage for its nodes.
type Claim struct {
	// Group as namespace/name, its UID, and when its stage began to wait for its members.
	Group, UID string
	Since      time.Time
	// Nodes that its sessions are open on.
	Nodes []string
}

func (c *Claim) earlier(than *Claim) bool {
	if !c.Since.Equal(than.Since) {
		return c.Since.Before(than.Since)
	}
	return c.UID < than.UID
}

// stageOf is the group's own claim without its nodes; nil while its stage over several nodes has not begun, or is over. Later
// steps of the stage began after it took its nodes: then nobody's claim can be before it.
func stageOf(group *v1alpha1.CommGroup) *Claim {
	run, span := group.Status.Run, group.Status.Span
	if run == nil || span == nil || span.RunID != run.ID || run.Phase != v1alpha1.RunPhaseRunning || span.StageStartTime == nil {
		return nil
	}
	c := &Claim{Group: group.Namespace + "/" + group.Name, UID: string(group.UID)}
	switch span.Stage {
	case v1alpha1.StageNodes, v1alpha1.StageEnded:
		return nil
	case v1alpha1.StageWaitingForMembers:
		c.Since = span.StageStartTime.Time
	default: // it has its nodes: it goes first
	}
	return c
}

// gatherOthers reads what other groups run: their pods, and the nodes that their stages claim.
func (r *CommGroupReconciler) gatherOthers(ctx context.Context, s *Snapshot) error {
	shared := client.UnsafeDisableDeepCopy
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}, shared); err != nil {
		return fmt.Errorf("run pods of other groups: %w", err)
	}
	own := string(s.Group.UID)
	s.OtherRunPods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Labels[v1alpha1.LabelGroupUID] == own || !podAlive(&pod) })
	var groups v1alpha1.CommGroupList
	if err := r.Client.List(ctx, &groups, shared); err != nil {
		return fmt.Errorf("other groups: %w", err)
	}
	s.Claims = nil
	for i := range groups.Items {
		group := &groups.Items[i]
		claim := stageOf(group)
		if claim == nil || string(group.UID) == own {
			continue
		}
		var nodes v1alpha1.CommNodeList
		if err := r.Client.List(ctx, &nodes, client.InNamespace(group.Namespace), ofGroup(group), shared); err != nil {
			return fmt.Errorf("commnodes of %s: %w", claim.Group, err)
		}
		for j := range nodes.Items {
			cn := &nodes.Items[j]
			if a := cn.Spec.Session; a != nil && a.State == v1alpha1.SessionOpen && a.RunID == group.Status.Run.ID {
				claim.Nodes = append(claim.Nodes, cn.Spec.NodeName)
			}
		}
		s.Claims = append(s.Claims, *claim)
	}
	return nil
}

// needsLook says whether only a look at the node's pods tells that a pod of the group's stage has no others beside it. Where it
// takes all of the node's GPUs, the scheduler finds a place only once they are free. A node's own run is looked for all the same: a
// pod that waits for its place holds one of run.maxParallelNodes.
func needsLook(m *decision.Member, spec *v1alpha1.CommGroupSpec) bool {
	return spec.Run.Nodes == v1alpha1.NodeUseIdle && m != nil && m.AllocatableGPUs > int64(spec.RanksPerNode)
}

// stepFree decides whether the node's run pod may be made now, as to others that use the node.
func (n *nodeState) stepFree(in runInput) {
	spec := &in.group.Spec
	if other := in.others.onNode(n.name); other != "" {
		// Others' runs end by their own deadlines, which may be as long as this group's.
		n.waitFor(in, decision.Seconds(spec.Run.NodeDeadlineSeconds)+decision.Seconds(spec.Run.StartDeadlineSeconds),
			"one run at a time is on a node, and there is "+other)
		return
	}
	if spec.Run.Nodes != v1alpha1.NodeUseIdle {
		n.wantsPod = true
		return
	}
	holders, looked := in.looked[n.name]
	switch {
	case !looked:
		n.wantsLook, n.wakeAt = true, in.now.Add(busyPoll)
		if a := assignmentOf(n.commNode); a != nil {
			n.waiting = a.Waiting
		}
	case holders == "":
		n.wantsPod = true
	default:
		n.waitFor(in, decision.Seconds(spec.Run.StartDeadlineSeconds), "run.nodes is Idle, and GPUs there are held by "+holders)
	}
}

// waitFor notes for whom the node's run waits, and since when; past the limit the node's part ends.
func (n *nodeState) waitFor(in runInput, limit time.Duration, why string) {
	since := *decision.Stamp(in.now)
	if a := assignmentOf(n.commNode); a != nil && a.Waiting != nil {
		since = a.Waiting.Since
	}
	deadline := since.Add(limit)
	if !in.now.Before(deadline) {
		n.close(in.now, v1alpha1.VerdictSkipped, v1alpha1.ReasonNodeBusy, "No run was started on node %s within %d s: %s. It is tried again by itself.",
			n.name, int64(limit/time.Second), why)
		return
	}
	n.waiting = &v1alpha1.RunWait{Reason: v1alpha1.ReasonNodeBusy, Message: words.Shorten(why, 512), Since: since}
	n.wakeAt = decision.Earlier(in.now.Add(busyPoll), deadline)
}

// chooseLooks are the nodes to look at now: first as many of those that were not seen busy yet as there are places, then the others
// in turn, also without a place, so that their wait ends in time. The turn goes by the clock, so that it needs no memory; busyAt only
// spares the API server a second look within one poll.
func chooseLooks(nodes []nodeState, places int, now time.Time, busyAt map[string]time.Time) []string {
	var fresh, waiting []string
	for i := range nodes {
		switch n := &nodes[i]; {
		case !n.wantsLook:
		case n.waiting == nil:
			if !lately(busyAt, n.name, now) {
				fresh = append(fresh, n.name)
			}
		default:
			waiting = append(waiting, n.name)
		}
	}
	out := fresh[:min(max(0, places), maxLooks, len(fresh))]
	for _, name := range inTurn(waiting, maxLooks-len(out), now) {
		if !lately(busyAt, name, now) {
			out = append(out, name)
		}
	}
	return out
}

// lately says whether the node was seen busy less than a poll ago.
func lately(busyAt map[string]time.Time, node string, now time.Time) bool {
	ago := now.Sub(busyAt[node])
	return ago >= 0 && ago < busyPoll
}

// lookMemory is when nodes were last seen busy, by group. No decision needs it: it spares reads, and a new manager does without.
type lookMemory struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]map[string]time.Time
}

// of the group what is younger than a poll.
func (m *lookMemory) of(group types.NamespacedName, now time.Time) map[string]time.Time {
	m.lock.Lock()
	defer m.lock.Unlock()
	maps.DeleteFunc(m.groups[group], func(node string, _ time.Time) bool { return !lately(m.groups[group], node, now) })
	if len(m.groups[group]) == 0 {
		delete(m.groups, group)
	}
	return maps.Clone(m.groups[group])
}

// add notes the nodes that the look has shown to be busy.
func (m *lookMemory) add(group types.NamespacedName, looked map[string]string, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for node, holders := range looked {
		if holders == "" {
			continue
		}
		if m.groups == nil {
			m.groups = map[types.NamespacedName]map[string]time.Time{}
		}
		if m.groups[group] == nil {
			m.groups[group] = map[string]time.Time{}
		}
		m.groups[group][node] = now
	}
}

func (m *lookMemory) forget(group types.NamespacedName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.groups, group)
}

// inTurn are at most so many of the names; each poll takes the ones that follow those of the poll before.
func inTurn(names []string, limit int, now time.Time) []string {
	limit = min(limit, len(names))
	if limit <= 0 {
		return nil
	}
	out := make([]string, 0, limit)
	first := int(now.Unix()/int64(busyPoll/time.Second)) * limit % len(names)
	for i := range limit {
		out = append(out, names[(first+i)%len(names)])
	}
	return out
}

// lookAt asks the API itself which pods on the nodes hold GPUs that are not of this group's runs: the cache has none but run
// pods. By node name; empty where none holds any.
func (r *CommGroupReconciler) lookAt(ctx context.Context, s *Snapshot, nodes []string) error {
	holders := make([]string, len(nodes))
	at := make(map[string]int, len(nodes))
	for i, name := range nodes {
		at[name] = i
	}
	look := func(name string) error {
		var pods corev1.PodList
		err := r.APIReader.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)})
		if err != nil {
			return fmt.Errorf("pods on node %s: %w", name, err)
		}
		holders[at[name]] = gpuHolders(pods.Items, gpuResource(&s.Group.Spec), s.Group)
		return nil
	}
	errs := atOnce(nodes, look)
	s.Looked = make(map[string]string, len(nodes))
	for i, name := range nodes {
		if errs[i] == nil {
			s.Looked[name] = holders[i] // the others wait: not known is not free
		}
	}
	r.looks.add(client.ObjectKeyFromObject(s.Group), s.Looked, s.Now)
	return errors.Join(errs...)
}

// gpuHolders names the pods that hold GPUs, but for those of the group's own runs; of other namespaces it only counts them.
func gpuHolders(pods []corev1.Pod, resource string, group *v1alpha1.CommGroup) string {
	var names []string
	others, othersGPUs := 0, int64(0)
	for i := range pods {
		pod := &pods[i]
		own := pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRun && pod.Labels[v1alpha1.LabelGroupUID] == string(group.UID)
		gpus := gpusOf(pod, resource)
		switch {
		case gpus <= 0 || !podAlive(pod) || own:
		case pod.Namespace == group.Namespace:
			names = append(names, fmt.Sprintf("%s/%s (%d)", pod.Namespace, pod.Name, gpus))
		default:
			others++
			othersGPUs += gpus
		}
	}
	slices.Sort(names)
	parts := make([]string, 0, 2)
	if len(names) > 0 {
		parts = append(parts, words.SomeNames(names, 3))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%s%s (%d)", words.Counted(others, "pod"), ofOtherNamespace, othersGPUs))
	}
	return strings.Join(parts, " and ")
}

// heldUp sums up what keeps nodes of the run waiting for others; empty where nothing does.
func heldUp(nodes []nodeState) string {
	var names []string
	var first string
	for i := range nodes {
		if n := &nodes[i]; n.phase == nodeWaiting && n.waiting != nil {
			names = append(names, n.name)
			first = cmp.Or(first, n.waiting.Message)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Waiting for others: %s: %s", words.SomeNames(names, 3), words.Sentence(strings.TrimSpace(first)))
}

// admitGroupPods keeps the pods of the group's stage back while others have their nodes: all of them while another run is on any,
// so that two groups never each hold what the other waits for; and those on nodes where others hold GPUs.
func (st *runState) admitGroupPods(in runInput) {
	wanted := st.span.createPodsOn
	if len(wanted) == 0 {
		return
	}
	st.span.createPodsOn = nil
	poll := in.now.Add(busyPoll)
	for _, name := range wanted {
		if in.others.before(name) != "" {
			st.span.wakeAt = decision.Earlier(st.span.wakeAt, poll)
			return
		}
	}
	members := make(map[string]*decision.Member, len(in.members))
	for i := range in.members {
		members[in.members[i].Name] = &in.members[i]
	}
	var free, unknown []string
	busy := false
	for _, name := range wanted {
		holders, looked := in.looked[name]
		if !needsLook(members[name], &in.group.Spec) || looked && holders == "" {
			free = append(free, name)
			continue
		}
		if !looked && !lately(in.busyAt, name, in.now) {
			unknown = append(unknown, name)
		} else {
			busy = true
		}
		st.span.wakeAt = decision.Earlier(st.span.wakeAt, poll)
	}
	limit := maxLooks - len(st.lookAt)
	if in.group.Spec.Run.QueueName != "" && !st.queuedStage(in) {
		// Kueue admits all or none, and counts on as many as the first pod says: they are made once all are free at one look.
		if limit = len(unknown); busy {
			limit = 0
		}
		if len(free) < int(st.span.span.Present) {
			free = nil
		}
	}
	st.span.createPodsOn = free
	if in.looked == nil {
		st.lookAt = append(st.lookAt, inTurn(unknown, limit, in.now)...)
	}
}

// queuedStage says whether the stage has pods already.
func (st *runState) queuedStage(in runInput) bool {
	for _, pods := range in.groupPods {
		if podOfRun(pods, st.run.ID) != nil {
			return true
		}
	}
	return false
}

// dropBusy lets the members go whose GPUs others hold, where Kueue admits all or none: half of the wait for members is for them, the
// other half for the queue.
func (g *groupStage) dropBusy() bool {
	limit := decision.Seconds(g.in.group.Spec.Run.MembersDeadlineSeconds)
	if g.in.group.Spec.Run.QueueName == "" || g.span.StageDeadline == nil || g.in.now.Before(g.span.StageDeadline.Add(-limit/2)) {
		return false
	}
	dropped := false
	for _, s := range g.present() {
		if holders := g.in.looked[s.name]; s.pod == nil && holders != "" {
			dropped = true
			g.drop(s, v1alpha1.ReasonNodeBusy, fmt.Sprintf("Node %s had no place for its group pod for half of run.membersDeadlineSeconds (%d s): run.nodes is Idle, and GPUs there are held by %s. Kueue admits the members together, so that the others are not kept waiting for it.",
				s.name, g.in.group.Spec.Run.MembersDeadlineSeconds, holders))
		}
	}
	return dropped
}

// awaitOthers holds the group's stage back while other groups' runs are on its nodes, at most as long as a stage may take.
func (g *groupStage) awaitOthers() bool {
	why, node := "", ""
	for i := range g.in.outcomes {
		o := &g.in.outcomes[i]
		if o.report == nil || !fit(o) {
			continue
		}
		if other := g.in.others.onNode(o.node); other != "" && why == "" {
			why, node = other, o.node
		}
	}
	if g.span.Message = ""; why == "" {
		return false
	}
	if g.span.StageStartTime == nil {
		g.span.StageStartTime = decision.Stamp(g.in.now) // by the manager's clock: the wait begins
	}
	why = fmt.Sprintf("one run at a time is on a node, and on %s there is %s", node, why)
	deadline := g.span.StageStartTime.Add(time.Duration(groupPodSeconds(&g.in.group.Spec)) * time.Second)
	if !g.in.now.Before(deadline) {
		g.end(v1alpha1.VerdictSkipped, v1alpha1.ReasonNodeBusy, "The group's stage found no time when all its nodes were free: "+why+". Run it again when they are.")
		return true
	}
	g.span.Message = words.Shorten("The group's stage waits: "+why+".", 1024)
	g.wake(decision.Earlier(g.in.now.Add(busyPoll), deadline))
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
func (g *groupStage) occupancy() occupancy {
	out := occupancy{looked: map[string]bool{}}
	for _, one := range g.seats {
		if one == nil || one.pod != nil {
			continue
		}
		if one.present {
			out.without = append(out.without, one.name)
		}
		if other := g.in.others.before(one.name); other != "" {
			out.others = cmp.Or(out.others, fmt.Sprintf("one run at a time is on a node, and on %s there is %s", one.name, other))
		}
	}
	for i := range g.in.members {
		if m := &g.in.members[i]; needsLook(m, &g.in.group.Spec) {
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
			maxLooks, int(busyPoll/time.Second))
	}
	return ""
}
