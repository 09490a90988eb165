package controllers

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/internal/state"
)

// Config is what the manager's flags say.
type Config struct {
	// AgentImage holds /agent: run pods copy the binary out of it.
	AgentImage string
	// AgentPullPolicy of that image; empty leaves it to the kubelet's default.
	AgentPullPolicy corev1.PullPolicy
	// Namespaces are the only ones that the operator serves; none means all.
	Namespaces []string
	// DefaultRuntimeImage of run pods whose CommGroup names none; may be empty.
	DefaultRuntimeImage string
	// PrivilegedNamespaces are those whose CommGroups may do what reaches beyond their namespace: run pods in the node's
	// network, and mark nodes.
	PrivilegedNamespaces []string
	// RunPriorityClass of run pods whose CommGroup names none; empty leaves it to the cluster's default.
	RunPriorityClass string
}

// Names of the accounts and roles that agents use; config/rbac holds the roles.
const (
	RunServiceAccount = "commgroup-run"
	RunRoleBinding    = "commgroup-run"
	RunClusterRole    = "commgroup-agent-run"
)

// Snapshot is everything that a decision rests on, read at one time. Deciding never changes it: its objects may be
// shared with the cache.
type Snapshot struct {
	Now   time.Time
	Group *state.Group
	// Stored is the CommGroup as it was read, StoredRun the CommRun of the run that Group.Status.Run is; nil where there is none.
	Stored    *v1alpha1.CommGroup
	StoredRun *v1alpha1.CommRun
	// RunDeleted: the CommRun of the group's latest run was deleted, and the run is known by the group's status alone.
	RunDeleted bool
	// Nodes of the cluster.
	Nodes []corev1.Node
	// CommNodes of the cluster.
	CommNodes []v1alpha1.CommNode
	// CommTasks and RunPods that carry the group's UID.
	CommTasks []v1alpha1.CommTask
	RunPods   []corev1.Pod
	// OtherRunPods are those of other groups, of all namespaces, that are not over; Claims are the nodes that other groups'
	// stages have.
	OtherRunPods []corev1.Pod
	Claims       []sharing.Claim
	// Looked is who holds GPUs on the nodes that were looked up, by node name; empty where nobody does. Nil before.
	Looked map[string]string
	// Unread are nodes that were to be looked up and whose pods could not be listed, with the API server's words.
	Unread map[string]string
	// BusyAt is when this manager last saw others' pods hold GPUs on a node, by its name: it is not looked at again so soon.
	BusyAt map[string]time.Time
	// ConfigMap of the name that settings are published under, nil where none was found.
	ConfigMap *corev1.ConfigMap
	// ConfigMapCertain: the ConfigMap was looked up in the API, so that nil means that there is none.
	ConfigMapCertain bool
	// FormerConfigMap is the group's own that status.published names, where it has another name by now.
	FormerConfigMap *corev1.ConfigMap
	// OwnedConfigMaps are the names of all ConfigMaps that carry the group's UID.
	OwnedConfigMaps []string
	// Runs are the group's CommRuns, those too that have not started.
	Runs []v1alpha1.CommRun
	// StartRefused says why the API server takes no CommRun for the run that is to start; nil where it was not tried, or does.
	StartRefused error
	// ListError is set when a part could not be read; nothing may be concluded then.
	ListError error
}

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
	// restsOn are the nodes whose objects have to be as they were read: by one's result the verdict of a run that is over would become worse;
	// on others the run ends since they or their pods are not there; others are let go by the group's stage, or their pods are deleted.
	restsOn []string
	// refused is what the API server did not take once the decision was applied.
	refused refusals
	// WakeAt is the nearest deadline; zero means none.
	WakeAt time.Time
}
