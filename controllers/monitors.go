package controllers

import (
	"cmp"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/words"
)

const (
	hostRoot      = "/host"
	agentBinary   = "/agent"
	monitorHealth = 8081
	maxNamedTerms = 1024
	agentUser     = 65532 // as the image has it
	nameLabel     = "app.kubernetes.io/name"
)

// monitorName carries namespace, name and UID of the group, since all monitors live in the operator's namespace.
func monitorName(group *v1alpha1.CommGroup) string {
	// A DaemonSet's pods carry its name and a suffix: 52 leaves them below 63 characters.
	return objects.Name(52, group.Namespace+"/"+group.Name+"/"+string(group.UID), "monitor", group.Namespace, group.Name)
}

// monitorFor is the DaemonSet of monitors, one pod on each member.
func monitorFor(group *v1alpha1.CommGroup, members []decision.Member, cfg Config) *appsv1.DaemonSet {
	labels := objects.Labels(group, v1alpha1.RoleMonitor)
	labels[nameLabel] = "commgroup-monitor"
	annotations := map[string]string{v1alpha1.AnnotationGroup: group.Namespace + "/" + group.Name}
	selector := map[string]string{v1alpha1.LabelRole: v1alpha1.RoleMonitor, v1alpha1.LabelGroupUID: string(group.UID)}
	pod := monitorPod(group, members, cfg)
	cfg.Monitors.set(&pod, cfg.AgentPullPolicy)
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		// The group cannot be its owner: an owner in another namespace is not allowed. cleanUpAfter deletes it with the group.
		ObjectMeta: metav1.ObjectMeta{Name: monitorName(group), Namespace: cfg.OperatorNamespace, Labels: labels, Annotations: annotations},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType,
				// Monitors serve nobody: many may be away at once, and a report holds longer than a restart takes.
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("25%"))},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       pod,
			},
		},
	}
}

func monitorPod(group *v1alpha1.CommGroup, members []decision.Member, cfg Config) corev1.PodSpec {
	health := nodefacts.HealthInEffect(group.Spec.Health, len(members))
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	for _, h := range monitorHostPaths {
		name := strings.ReplaceAll(h.path, "/", "-")[1:]
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: h.path, Type: ptr.To(h.kind)}}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: hostRoot + h.path, ReadOnly: true})
	}
	return corev1.PodSpec{
		ServiceAccountName:            MonitorServiceAccount,
		AutomountServiceAccountToken:  ptr.To(true), // to report; the account itself hands none out
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(5)),
		Affinity:                      &corev1.Affinity{NodeAffinity: membersAffinity(&group.Spec, members)},
		// A monitor tells of sick nodes too, so it tolerates every taint.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name:  "monitor",
			Image: cfg.AgentImage,
			Command: []string{agentBinary, "monitor",
				"--group", group.Namespace + "/" + group.Name,
				"--node", "$(NODE_NAME)",
				"--host-root", hostRoot,
				"--interval", strconv.Itoa(int(health.IntervalSeconds)),
				"--valid", strconv.Itoa(int(health.ReportValidSeconds)),
				"--health-port", strconv.Itoa(monitorHealth),
			},
			Env: []corev1.EnvVar{fieldEnv("NODE_NAME", "spec.nodeName"), fieldEnv("POD_IP", "status.podIP"),
				fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
			Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: monitorHealth, Protocol: corev1.ProtocolTCP}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("health")}},
				PeriodSeconds: 10,
			},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: intstr.FromString("health")}},
				InitialDelaySeconds: 30, PeriodSeconds: 30,
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				// Privileged because KFD answers EPERM for the properties of every GPU outside the container's device cgroup, and a
				// monitor holds no device. It is no root all the same: a user without capabilities reads what everyone may read, and can
				// neither write a file of sysfs nor open a device of root's. Its root and everything mounted are read-only.
				Privileged:             ptr.To(true),
				RunAsNonRoot:           ptr.To(true),
				RunAsUser:              ptr.To(int64(agentUser)),
				RunAsGroup:             ptr.To(int64(agentUser)),
				ReadOnlyRootFilesystem: ptr.To(true),
			},
			VolumeMounts: mounts,
		}},
		Volumes: volumes,
	}
}

// monitorHostPaths are all that a monitor sees of its host; the chart's policy commgroup-manager-monitors allows no other. Of /proc
// the kernel's own values only: the host's processes are none of a monitor's business.
var monitorHostPaths = []struct {
	path string
	kind corev1.HostPathType
}{
	{"/sys", corev1.HostPathDirectory},
	{"/proc/sys", corev1.HostPathDirectory},
	{"/proc/cmdline", corev1.HostPathFile},
	{"/opt", corev1.HostPathUnset}, // may be absent on a host without ROCm; an unset type checks nothing
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// membersAffinity lets a pod run on the members only. With maxMembers the members are named, since no selector says
// "the first n"; beyond maxNamedTerms the selector has to do, and the surplus monitors find no CommTask and wait.
func membersAffinity(spec *v1alpha1.CommGroupSpec, members []decision.Member) *corev1.NodeAffinity {
	var terms []corev1.NodeSelectorTerm
	if spec.Members.MaxMembers != nil && len(members) <= maxNamedTerms {
		for i := range members {
			terms = append(terms, namedTerm(members[i].Name))
		}
		return requiredAffinity(terms)
	}
	excluded := map[string]bool{}
	for _, name := range spec.Members.Exclude {
		excluded[name] = true
	}
	if selector := spec.Members.NodeSelector; selector != nil {
		var term corev1.NodeSelectorTerm
		for _, key := range words.SortedKeys(selector.MatchLabels) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector.MatchLabels[key]}})
		}
		for _, e := range selector.MatchExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
		}
		for _, name := range spec.Members.Exclude {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{name}})
		}
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			// An empty term matches no node, unlike an empty label selector; this one matches every Linux node.
			term.MatchExpressions = []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpNotIn, Values: []string{string(corev1.Windows)}}}
		}
		terms = append(terms, term)
	}
	for _, name := range spec.Members.NodeNames {
		if !excluded[name] {
			terms = append(terms, namedTerm(name))
		}
	}
	return requiredAffinity(terms)
}

func namedTerm(node string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
}

func requiredAffinity(terms []corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func runtimeImage(spec *v1alpha1.CommGroupSpec, cfg Config) string {
	return cmp.Or(spec.Runtime.Image, cfg.DefaultRuntimeImage)
}
