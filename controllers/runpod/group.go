package runpod

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/state"
)

// ForGroup is the pod that keeps a node's GPUs for the group's stage of a run, at most activeSeconds long. It is a run
// pod whose agent follows the session in the CommTask, on the network that the group asks for.
func ForGroup(group *state.Group, ct *v1alpha1.CommTask, runID string, activeSeconds int64, cfg Config) *corev1.Pod {
	pod := ForNode(group, ct, runID, cfg)
	pod.Name = GroupName(group, runID, ct.Spec.NodeName)
	pod.Labels[v1alpha1.LabelStage] = v1alpha1.StagePodGroup
	pod.Spec.ActiveDeadlineSeconds = ptr.To(activeSeconds)
	ranks := &pod.Spec.Containers[0]
	ranks.Command = append(ranks.Command, "--stage=Group")
	setNetwork(pod, ranks, &group.Spec.Network)
	return pod
}

// GroupName differs from the name of the pod that had the node alone in the same run.
func GroupName(group *state.Group, runID, node string) string {
	return objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID+"/"+node+"/group",
		group.Name, runID, "group", node)
}

// QueueTogether has Kueue admit the pods of a group's stage all at once or not at all: some of them alone would hold
// GPUs for nothing. Kueue wants the same number on each.
func QueueTogether(pod *corev1.Pod, group *state.Group, runID string, members int32) {
	if podstate.QueueOf(pod) == "" || members <= 0 {
		return
	}
	pod.Labels[podstate.PodGroupLabel] = objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID,
		group.Name, runID)
	pod.Annotations[podstate.PodGroupCountAnnotation] = strconv.Itoa(int(members))
	pod.Annotations[podstate.NotRetriableAnnotation] = "false"
	pod.Annotations[podstate.RoleHashAnnotation] = objects.Hash(string(group.UID) + "/" + runID)[:8]
}

const (
	// MultusAnnotation names the further networks of a pod (k8snetworkplumbingwg's specification).
	MultusAnnotation = "k8s.v1.cni.cncf.io/networks"
	// portRangeSysctl is what the kernel takes ports from for who asks for any, IPv6 too. It belongs to a network
	// namespace, and every kubelet counts it as safe (pkg/kubelet/sysctl/safe_sysctls.go).
	portRangeSysctl = "net.ipv4.ip_local_port_range"
)

// setNetwork puts a pod on the network that a group asks for.
func setNetwork(pod *corev1.Pod, ranks *corev1.Container, network *v1alpha1.NetworkSpec) {
	switch network.Mode {
	case v1alpha1.NetworkHost:
		pod.Spec.HostNetwork = true
		// ClusterFirst means the node's resolver on the node's network, which does not know the API server's name.
		pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	case v1alpha1.NetworkMultus:
		// A user's own annotation would take networks away that the group asks for.
		pod.Annotations[MultusAnnotation] = strings.Join(network.MultusNetworks, ",")
	}
	// On the node's network the kubelet refuses the pod that would change the node.
	if r := network.PortRange; r != nil && !pod.Spec.HostNetwork {
		pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls,
			corev1.Sysctl{Name: portRangeSysctl, Value: fmt.Sprintf("%d %d", r.First, r.Last)})
	}
	for _, r := range network.RDMAResources {
		name, count := corev1.ResourceName(r.Name), *resource.NewQuantity(int64(r.Count), resource.DecimalSI)
		if _, there := ranks.Resources.Limits[name]; there {
			continue // the GPUs, or what the overrides ask for: the budget and the person's own figures rest on them
		}
		ranks.Resources.Limits[name], ranks.Resources.Requests[name] = count, count
	}
	if len(network.RDMAResources) > 0 {
		// RDMA locks the memory that it registers. The containers share one SecurityContext: the first keeps none.
		security := ranks.SecurityContext.DeepCopy()
		security.Capabilities.Add = append(security.Capabilities.Add, "IPC_LOCK")
		ranks.SecurityContext = security
	}
}
