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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/state"
)

// isPlanned says whether a CommTask of the pod's namespace and group controls it. Anybody may label a pod as one of a run: one that is on no
// node holds no GPU, and must not keep a node from others.
func (r *CommGroupReconciler) isPlanned(ctx context.Context, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "CommTask" {
		return false
	}
	var ct v1alpha1.CommTask
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, &ct, client.UnsafeDisableDeepCopy)
	return err == nil && ct.UID == owner.UID && ct.Spec.Group.UID == pod.Labels[v1alpha1.LabelGroupUID]
}

// gatherOthers reads what other groups run: their pods, and the nodes that their stages claim.
func (r *CommGroupReconciler) gatherOthers(ctx context.Context, s *Snapshot) error {
	shared := client.UnsafeDisableDeepCopy
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}, shared); err != nil {
		return fmt.Errorf("run pods of other groups: %w", err)
	}
	own := string(s.Group.UID)
	s.OtherRunPods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Labels[v1alpha1.LabelGroupUID] == own || !podstate.Alive(&pod) || pod.Spec.NodeName == "" && !r.isPlanned(ctx, &pod)
	})
	var groups v1alpha1.CommGroupList
	if err := r.Client.List(ctx, &groups, shared); err != nil {
		return fmt.Errorf("other groups: %w", err)
	}
	s.Claims = nil
	var runs v1alpha1.CommRunList
	if err := r.Client.List(ctx, &runs, shared); err != nil {
		return fmt.Errorf("runs of other groups: %w", err)
	}
	going := slices.DeleteFunc(groups.Items, func(g v1alpha1.CommGroup) bool {
		return g.Status.Run == nil || g.Status.Run.Phase != v1alpha1.RunPhaseRunning || string(g.UID) == own
	})
	all := state.JoinAll(going, runs.Items)
	for i := range all {
		group := &all[i]
		claim := sharing.ClaimOf(group)
		if claim == nil || string(group.UID) == own {
			continue
		}
		var nodes v1alpha1.CommTaskList
		if err := r.Client.List(ctx, &nodes, client.InNamespace(group.Namespace), ofGroup(group), shared); err != nil {
			return fmt.Errorf("commtasks of %s: %w", claim.Group, err)
		}
		for j := range nodes.Items {
			ct := &nodes.Items[j]
			if a := ct.Spec.Session; a != nil && a.State == v1alpha1.SessionOpen && a.RunID == group.Status.Run.ID {
				claim.Nodes = append(claim.Nodes, ct.Spec.NodeName)
			}
		}
		s.Claims = append(s.Claims, *claim)
	}
	return nil
}

// stepFree decides whether the node's run pod may be made now, as to others that use the node.
func (n *nodeState) stepFree(in runInput) {
	spec := &in.group.Spec
	if other := in.others.OnNode(n.name); other != "" {
		// Others' runs end by their own deadlines, which may be as long as this group's.
		n.waitFor(in, decision.Seconds(spec.Run.NodeDeadlineSeconds)+decision.Seconds(spec.Run.StartDeadlineSeconds), v1alpha1.ReasonNodeBusy,
			"one run at a time is on a node, and there is "+other)
		return
	}
	if spec.Run.Nodes != v1alpha1.NodeUseIdle {
		n.waitForQuota(in)
		return
	}
	holders, looked := in.looked[n.name]
	unread, failed := in.unread[n.name]
	switch {
	case failed:
		reason := v1alpha1.ReasonListFailed
		if a := runs.AssignmentOf(n.commTask); a != nil && a.Waiting != nil {
			reason = a.Waiting.Reason // one that was seen busy stays so
		}
		n.waitFor(in, decision.Seconds(spec.Run.StartDeadlineSeconds), reason, "run.nodes is Idle, and whether other pods hold GPUs there could not be read: "+unread)
	case !looked:
		n.wantsLook, n.wakeAt = true, in.now.Add(sharing.BusyPoll)
		if a := runs.AssignmentOf(n.commTask); a != nil {
			n.waiting = a.Waiting
		}
	case holders == "":
		n.waitForQuota(in)
	default:
		n.waitFor(in, decision.Seconds(spec.Run.StartDeadlineSeconds), v1alpha1.ReasonNodeBusy, "run.nodes is Idle, and GPUs there are held by "+holders)
	}
}

// waitFor notes what the node's run waits for, and since when; past the limit the node's part ends: Skipped where others had the
// node, Error where nobody could tell.
func (n *nodeState) waitFor(in runInput, limit time.Duration, reason, why string) {
	since := *decision.Stamp(in.now)
	if a := runs.AssignmentOf(n.commTask); a != nil && a.Waiting != nil && a.Waiting.Since.Before(&since) {
		since = a.Waiting.Since // a time in the future is nobody's wait, and would put the deadline off
	}
	deadline := since.Add(limit)
	if !in.now.Before(deadline) {
		verdict, next := v1alpha1.VerdictSkipped, "It is tried again by itself."
		if !retriable(&v1alpha1.RunClosure{Reason: reason}) {
			verdict, next = v1alpha1.VerdictError, runAgain(in.group)
		}
		n.close(in.now, verdict, reason, "No run was started on node %s within %d s: %s %s", n.name, int64(limit/time.Second), words.Sentence(why), next)
		return
	}
	n.waiting = &v1alpha1.RunWait{Reason: reason, Message: words.Shorten(why, 512), Since: since}
	n.wakeAt = decision.Earlier(in.now.Add(sharing.BusyPoll), deadline)
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
	out := fresh[:min(max(0, places), sharing.MaxLooks, len(fresh))]
	for _, name := range sharing.InTurn(waiting, sharing.MaxLooks-len(out), now) {
		if !lately(busyAt, name, now) {
			out = append(out, name)
		}
	}
	return out
}

// lately says whether the node was seen busy less than a poll ago.
func lately(busyAt map[string]time.Time, node string, now time.Time) bool {
	ago := now.Sub(busyAt[node])
	return ago >= 0 && ago < sharing.BusyPoll
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

// lookAt asks the API itself which pods on the nodes hold GPUs that are not of this group's runs: the cache has none but run
// pods. A node whose pods cannot be listed waits as a busy one does: not known is not free.
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
		holders[at[name]] = gpuHolders(pods.Items, objects.GPUResource(&s.Group.Spec), s.Group)
		return nil
	}
	errs := atOnce(nodes, look)
	s.Looked, s.Unread = make(map[string]string, len(nodes)), map[string]string{}
	for i, name := range nodes {
		if errs[i] == nil {
			s.Looked[name] = holders[i]
		} else {
			s.Unread[name] = errs[i].Error()
		}
	}
	r.looks.add(client.ObjectKeyFromObject(s.Group), s.Looked, s.Now)
	r.looks.add(client.ObjectKeyFromObject(s.Group), s.Unread, s.Now)
	return errors.Join(errs...)
}

// gpuHolders names the pods that hold GPUs, but for those of the group's own runs; of other namespaces it only counts them.
func gpuHolders(pods []corev1.Pod, resource string, group *state.Group) string {
	var names []string
	others, othersGPUs := 0, int64(0)
	for i := range pods {
		pod := &pods[i]
		own := pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRun && pod.Labels[v1alpha1.LabelGroupUID] == string(group.UID)
		gpus := gpusOf(pod, resource)
		switch {
		case gpus <= 0 || !podstate.Alive(pod) || own:
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
		parts = append(parts, fmt.Sprintf("%s%s (%d)", words.Counted(others, "pod"), sharing.OfOtherNamespace, othersGPUs))
	}
	return strings.Join(parts, " and ")
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
	return fmt.Sprintf(" Waiting for others: %s: %s", words.SomeNames(names, 3), words.Sentence(strings.TrimSpace(first)))
}

// admitGroupPods keeps the pods of the group's stage back while others have their nodes: all of them while another run is on any,
// so that two groups never each hold what the other waits for; and those on nodes where others hold GPUs.
func (st *runState) admitGroupPods(in runInput) {
	wanted := st.span.CreatePodsOn
	if len(wanted) == 0 {
		return
	}
	st.span.CreatePodsOn = nil
	poll := in.now.Add(sharing.BusyPoll)
	for _, name := range wanted {
		if in.others.Before(name) != "" {
			st.span.WakeAt = decision.Earlier(st.span.WakeAt, poll)
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
		if !sharing.NeedsLook(members[name], &in.group.Spec) || looked && holders == "" {
			free = append(free, name)
			continue
		}
		if !looked && !lately(in.busyAt, name, in.now) {
			unknown = append(unknown, name)
		} else {
			busy = true
		}
		st.span.WakeAt = decision.Earlier(st.span.WakeAt, poll)
	}
	limit := sharing.MaxLooks - len(st.lookAt)
	if in.group.Spec.Run.QueueName != "" && !st.queuedStage(in) {
		// Kueue admits all or none, and counts on as many as the first pod says: they are made once all are free at one look.
		if limit = len(unknown); busy {
			limit = 0
		}
		if len(free) < int(st.span.Span.Present) {
			free = nil
		}
	}
	st.span.CreatePodsOn = free
	if in.looked == nil {
		st.lookAt = append(st.lookAt, sharing.InTurn(unknown, limit, in.now)...)
	}
}

// queuedStage says whether the stage has pods already.
func (st *runState) queuedStage(in runInput) bool {
	for _, pods := range in.groupPods {
		if podstate.OfRun(pods, st.run.ID) != nil {
			return true
		}
	}
	return false
}
