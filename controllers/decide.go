package controllers

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/accept"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/state"
)

// Decision is what should be.
type Decision struct {
	// CommTasks to create or update, in rank order.
	CommTasks []commrun.Change
	// DeleteCommTasks by name.
	DeleteCommTasks []string
	// CreatePods in rank order; DeletePods by name.
	CreatePods []*corev1.Pod
	DeletePods []string
	// ConfigMap to create or update; nil means leave what is there.
	ConfigMap *corev1.ConfigMap
	// DeleteConfigMaps by name, all owned by the group.
	DeleteConfigMaps []string
	// DeleteRuns are CommRuns beyond the history limits.
	DeleteRuns []*v1alpha1.CommRun
	// LookAt asks to look up the pods of these nodes in the API and to decide again.
	LookAt []string
	// NeedConfigMapLookup asks to look the ConfigMap up in the API and to decide again.
	NeedConfigMapLookup bool
	// NodeMarks are statements of gating to write to Nodes, the most urgent first.
	NodeMarks []gating.Mark
	Status    state.Status
	// RunEvents speak of the CommRun's status, Events of the CommGroup's.
	RunEvents, Events []decision.Event
	// restsOn are the nodes whose objects have to be as they were read: by one's result the verdict of a run that is
	// over would become worse; on others the run ends since they or their pods are not there; others are let go by the
	// group's stage, or their pods are deleted.
	restsOn []string
	// running is the condition Running without what was refused.
	running decision.Finding
	// refused is what the API server did not take once the decision was applied.
	refused refusals
	// WakeAt is the nearest deadline; zero means none.
	WakeAt time.Time
}

// Decide works out what should be from what is. It reads no clock and does no I/O, and changes nothing in the snapshot.
func Decide(s *Snapshot, cfg Config) Decision {
	group := s.Group
	var d Decision
	if s.ListError != nil {
		d.Status = *group.Status.DeepCopy()
		d.Status.Conditions = commgroup.SetConditions(d.Status.Conditions, commgroup.ListFailed(s.ListError),
			group.Generation, s.Now)
		return d
	}
	members, accepted, membersErr := membersOf(group, s.Nodes, cfg, s.Now)
	in := inputOf(s, members, accepted.IsTrue())
	run := commrun.Next(in)
	d.CommTasks, d.DeleteCommTasks, d.DeletePods, d.LookAt = run.Changes, run.DeleteCommTasks,
		run.DeletePods, run.LookAt
	d.RunEvents, d.restsOn, d.WakeAt = run.Events, run.RestsOn, run.WakeAt
	for _, name := range run.CreatePodsOn {
		d.CreatePods = append(d.CreatePods, runpod.ForNode(group, in.CommTasks[name], run.Run.ID, cfg.pods()))
	}
	for _, name := range run.CreateGroupPodsOn {
		pod := runpod.ForGroup(group, in.CommTasks[name], run.Run.ID, stage.PodSeconds(&group.Spec), cfg.pods())
		runpod.QueueTogether(pod, group, run.Run.ID, run.GroupPods)
		d.CreatePods = append(d.CreatePods, pod)
	}
	next := commgroup.Next(commgroup.Input{Input: &in, Run: &run, Accepted: accepted,
		MembersKnown: membersErr == nil, Nodes: s.Nodes, Runs: s.Runs, ConfigMap: s.ConfigMap,
		ConfigMapCertain: s.ConfigMapCertain, FormerConfigMap: s.FormerConfigMap, OwnedConfigMaps: s.OwnedConfigMaps,
		PrivilegedNamespaces: cfg.PrivilegedNamespaces})
	d.Status, d.Events, d.WakeAt = next.Status, next.Events, decision.Earlier(d.WakeAt, next.WakeAt)
	d.ConfigMap, d.DeleteConfigMaps, d.NeedConfigMapLookup = next.ConfigMap, next.DeleteConfigMaps,
		next.NeedConfigMapLookup
	d.DeleteRuns, d.NodeMarks, d.running = next.DeleteRuns, next.NodeMarks, next.Running
	return d
}

// inputOf is what the run looks at, by node.
func inputOf(s *Snapshot, members []decision.Member, accepted bool) commrun.Input {
	in := commrun.Input{
		Now: s.Now, Group: s.Group, RunDeleted: s.RunDeleted, StartRefused: s.StartRefused,
		Accepted: accepted, Members: members,
		CommTasks: make(map[string]*v1alpha1.CommTask, len(s.CommTasks)), CommNodes: commNodesOf(s.CommNodes, s.Nodes),
		Pods: map[string][]*corev1.Pod{}, GroupPods: map[string][]*corev1.Pod{},
		Others: sharing.Of(s.Group, s.OtherRunPods, s.Claims, s.Now), Looked: s.Looked,
		Unread: s.Unread, BusyAt: s.BusyAt,
	}
	nodeOfPod := make(map[string]string, len(s.CommTasks)) // by UID of the CommTask
	for i := range s.CommTasks {
		ct := &s.CommTasks[i]
		in.CommTasks[ct.Spec.NodeName] = ct
		nodeOfPod[string(ct.UID)] = ct.Spec.NodeName
	}
	for i := range s.RunPods {
		pod := &s.RunPods[i]
		pods, node := in.Pods, podNode(pod, nodeOfPod)
		if ofGroupStage(pod) {
			pods = in.GroupPods
		}
		pods[node] = append(pods[node], pod)
	}
	return in
}

// membersOf selects the group's members and says whether its spec can be carried out on them.
func membersOf(group *state.Group, nodes []corev1.Node, cfg Config,
	now time.Time) ([]decision.Member, decision.Finding, error) {
	members, err := membership.Select(&group.Spec, nodes)
	accepted := accept.Spec(&group.Spec, members, err, cfg.DefaultRuntimeImage, now)
	accepted.Message += membership.UnknownNames(&group.Spec, nodes)
	return members, accept.Overrides(accept.HostNetwork(accepted, group, cfg.PrivilegedNamespaces), &group.Spec), err
}

// commNodesOf are the CommNodes by node name, without those of a Node object that was deleted and created again under
// its name.
func commNodesOf(commNodes []v1alpha1.CommNode, nodes []corev1.Node) map[string]*v1alpha1.CommNode {
	uids := make(map[string]string, len(nodes))
	for i := range nodes {
		uids[nodes[i].Name] = string(nodes[i].UID)
	}
	out := make(map[string]*v1alpha1.CommNode, len(commNodes))
	for i := range commNodes {
		cn := &commNodes[i]
		if uid, ok := uids[cn.Name]; !ok || uid == cn.Spec.NodeUID {
			out[cn.Name] = cn
		}
	}
	return out
}

// podNode is the node that a run pod is meant for, from its owner; a pod whose CommTask is gone goes by its own node.
func podNode(pod *corev1.Pod, nodeOfCommTask map[string]string) string {
	for _, ref := range pod.OwnerReferences {
		if name, ok := nodeOfCommTask[string(ref.UID)]; ok {
			return name
		}
	}
	return pod.Spec.NodeName
}
