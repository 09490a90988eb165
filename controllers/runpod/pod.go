package runpod

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/state"
)

// Config is what the manager's flags say of run pods.
type Config struct {
	// AgentImage holds the agent, whose binary run pods copy out of it; an empty AgentPullPolicy leaves it to the
	// kubelet's default.
	AgentImage      string
	AgentPullPolicy corev1.PullPolicy
	// DefaultRuntimeImage and RunPriorityClass are for CommGroups that name none; either may be empty.
	DefaultRuntimeImage, RunPriorityClass string
}

// ForNode is the pod that holds a node's GPUs for one run. The user's runtime image runs; the agent's binary is
// copied in. It goes through the scheduler, which knows which GPUs are free.
func ForNode(group *state.Group, ct *v1alpha1.CommTask, runID string, cfg Config) *corev1.Pod {
	spec, overrides := &group.Spec, &group.Spec.Runtime.Pod
	podSecurity, security := runSecurity(overrides)
	bin := corev1.VolumeMount{Name: "agent", MountPath: runBinFolder}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: runPodMeta(group, ct, runID),
		Spec: corev1.PodSpec{
			ServiceAccountName:            ServiceAccount,
			AutomountServiceAccountToken:  ptr.To(true), // to report; the account itself hands none out
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To(int64(10)),
			ActiveDeadlineSeconds: ptr.To(int64(spec.Run.StartDeadlineSeconds) + int64(spec.Run.NodeDeadlineSeconds) +
				podstate.SlackSeconds),
			EnableServiceLinks: ptr.To(false),
			Affinity: &corev1.Affinity{NodeAffinity: onNode(ct.Spec.NodeName),
				PodAntiAffinity: oneRunANode()},
			Tolerations:       Tolerations(overrides.Tolerations),
			PriorityClassName: cmp.Or(overrides.PriorityClassName, cfg.RunPriorityClass),
			ImagePullSecrets:  spec.Runtime.ImagePullSecrets,
			SecurityContext:   podSecurity,
			InitContainers: []corev1.Container{{
				Name:            "install-agent",
				Image:           cfg.AgentImage,
				ImagePullPolicy: cfg.AgentPullPolicy,
				Command:         []string{agentBinary, "install", runBinFolder},
				SecurityContext: security,
				VolumeMounts:    []corev1.VolumeMount{bin},
			}},
			Containers: []corev1.Container{{
				Name:            "ranks",
				Image:           runtimeImage(spec, cfg),
				ImagePullPolicy: spec.Runtime.ImagePullPolicy,
				Command: []string{runBinFolder + "/agent", "run",
					"--group", group.Namespace + "/" + group.Name, "--node", "$(NODE_NAME)", "--run-id", runID},
				Env: []corev1.EnvVar{fieldEnv("NODE_NAME", "spec.nodeName"), fieldEnv("POD_IP", "status.podIP"),
					fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
				Resources:       runResources(spec),
				SecurityContext: security,
				VolumeMounts:    []corev1.VolumeMount{bin, {Name: "shm", MountPath: "/dev/shm"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "agent", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
					Medium:    corev1.StorageMediumMemory,
					SizeLimit: resource.NewQuantity(int64(spec.Runtime.Pod.ShmSizeMiB)<<20, resource.BinarySI)}}},
			},
		},
	}
}

// runPodMeta names the pod and has it go with the node's CommTask.
func runPodMeta(group *state.Group, ct *v1alpha1.CommTask, runID string) metav1.ObjectMeta {
	node, overrides := ct.Spec.NodeName, &group.Spec.Runtime.Pod
	labels := maps.Clone(overrides.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	// The controller's own labels win: it finds its pods by them.
	maps.Copy(labels, objects.Labels(group, v1alpha1.RoleRun))
	labels[NameLabel] = "commgroup-run"
	labels[v1alpha1.LabelRunID] = runID
	labels[v1alpha1.LabelNode] = v1alpha1.LabelValue(node)
	if group.Spec.Run.QueueName != "" {
		labels[podstate.QueueLabel] = group.Spec.Run.QueueName
	}
	annotations := maps.Clone(overrides.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationGroup] = group.Namespace + "/" + group.Name
	return metav1.ObjectMeta{
		Name: Name(group, runID, node), Namespace: group.Namespace, Labels: labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommTask", Name: ct.Name, UID: ct.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}},
	}
}

// Name differs between two groups of one name, of which the second was made while a pod of the first was still
// ending.
func Name(group *state.Group, runID, node string) string {
	return objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID+"/"+node, group.Name, runID, node)
}

const (
	runBinFolder = "/opt/commgroup/bin"
	agentBinary  = "/agent"
	agentUser    = 65532 // as the image has it
	// NameLabel names what an object is of the operator.
	NameLabel = "app.kubernetes.io/name"
)

// runResources are the GPUs, beside what the overrides ask for.
func runResources(spec *v1alpha1.CommGroupSpec) corev1.ResourceRequirements {
	gpu := corev1.ResourceName(objects.GPUResource(spec))
	gpus := *resource.NewQuantity(int64(spec.RanksPerNode), resource.DecimalSI)
	resources := *spec.Runtime.Pod.Resources.DeepCopy()
	if resources.Limits == nil {
		resources.Limits = corev1.ResourceList{}
	}
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	resources.Limits[gpu], resources.Requests[gpu] = gpus, gpus
	return resources
}

// runSecurity is as restricted as it gets. Many ROCm images run as root, so runAsNonRoot would refuse them unless a
// user is named.
func runSecurity(overrides *v1alpha1.PodOverrides) (*corev1.PodSecurityContext, *corev1.SecurityContext) {
	container := &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod := &corev1.PodSecurityContext{SeccompProfile: container.SeccompProfile,
		SupplementalGroups: overrides.SupplementalGroups}
	if overrides.RunAsUser != nil {
		pod.RunAsUser, pod.RunAsNonRoot = overrides.RunAsUser, ptr.To(true)
	}
	return pod, container
}

// Tolerations lets run pods onto a node that gating, or a NodeReadinessRule upon its condition, has tainted: else a
// node that failed once could never pass again.
func Tolerations(own []corev1.Toleration) []corev1.Toleration {
	return append(slices.Clone(own),
		corev1.Toleration{Key: v1alpha1.TaintCommFailed, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule},
		corev1.Toleration{Key: v1alpha1.TaintReadiness, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule})
}

// oneRunANode keeps the scheduler from putting two runs' pods on one node, of whatever CommGroup and namespace: two
// runs at once would measure each other. Pods that have ended do not count.
func oneRunANode() *corev1.PodAntiAffinity {
	return &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelRole: v1alpha1.RoleRun}},
		NamespaceSelector: &metav1.LabelSelector{},
		TopologyKey:       corev1.LabelHostname,
	}}}
}

// onNode lets a pod run on the node alone, and leaves it to the scheduler to put it there.
func onNode(name string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
				Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}
}

func runtimeImage(spec *v1alpha1.CommGroupSpec, cfg Config) string {
	return cmp.Or(spec.Runtime.Image, cfg.DefaultRuntimeImage)
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// Names of the accounts and roles that agents use; config/rbac holds the roles.
const (
	ServiceAccount = "commgroup-run"
	RoleBinding    = "commgroup-run"
	ClusterRole    = "commgroup-agent-run"
)
