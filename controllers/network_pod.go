package controllers

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// multusAnnotation names the further networks of a pod (k8snetworkplumbingwg's specification).
	multusAnnotation = "k8s.v1.cni.cncf.io/networks"
	// portRangeSysctl is what the kernel takes ports from for who asks for any, IPv6 too. It belongs to a network namespace,
	// and every kubelet counts it as safe (pkg/kubelet/sysctl/safe_sysctls.go).
	portRangeSysctl = "net.ipv4.ip_local_port_range"
)

// groupPodName differs from the name of the pod that had the node alone in the same run.
func groupPodName(group *state.Group, runID, node string) string {
	return objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID+"/"+node+"/group", group.Name, runID, "group", node)
}

// groupPodFor is the pod that keeps a node's GPUs for the group's stage of a run, at most activeSeconds long. It is a run
// pod whose agent follows the session in the CommTask, on the network that the group asks for.
func groupPodFor(group *state.Group, ct *v1alpha1.CommTask, runID string, activeSeconds int64, cfg Config) *corev1.Pod {
	pod := runPodFor(group, ct, runID, cfg)
	pod.Name = groupPodName(group, runID, ct.Spec.NodeName)
	pod.Labels[v1alpha1.LabelStage] = v1alpha1.StagePodGroup
	pod.Spec.ActiveDeadlineSeconds = ptr.To(activeSeconds)
	ranks := &pod.Spec.Containers[0]
	ranks.Command[1] = "group"
	setNetwork(pod, ranks, &group.Spec.Network)
	return pod
}

// setNetwork puts a pod on the network that a group asks for.
func setNetwork(pod *corev1.Pod, ranks *corev1.Container, network *v1alpha1.NetworkSpec) {
	switch network.Mode {
	case v1alpha1.NetworkHost:
		pod.Spec.HostNetwork = true
		// ClusterFirst means the node's resolver on the node's network, which does not know the API server's name.
		pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	case v1alpha1.NetworkMultus:
		// A person's own annotation would take networks away that the group asks for.
		pod.Annotations[multusAnnotation] = strings.Join(network.MultusNetworks, ",")
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

// hostNetworkAllowed takes an acceptance back where the group asks for the nodes' network and its namespace may not have it:
// a pod there sees and reaches whatever listens on the node.
func hostNetworkAllowed(accepted decision.Finding, group *state.Group, cfg Config) decision.Finding {
	spec := &group.Spec
	if !accepted.IsTrue() || spec.Span != v1alpha1.SpanGroup || spec.Network.Mode != v1alpha1.NetworkHost ||
		slices.Contains(cfg.PrivilegedNamespaces, group.Namespace) {
		return accepted
	}
	allowed := "none"
	if len(cfg.PrivilegedNamespaces) > 0 {
		allowed = words.SomeNames(cfg.PrivilegedNamespaces, 5)
	}
	return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostNetworkNotAllowed, Message: fmt.Sprintf(
		"network.mode is Host, which namespace %s may not use; allowed: %s. Use mode Pod or Multus, or have the administrator name the namespace in the manager's --privileged-namespaces.",
		group.Namespace, allowed)}
}
