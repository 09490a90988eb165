package accept

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// HostNetwork takes an acceptance back where the group asks for the nodes' network and its namespace may not have it:
// a pod there sees and reaches whatever listens on the node.
func HostNetwork(accepted decision.Finding, group *state.Group, privileged []string) decision.Finding {
	spec := &group.Spec
	if !accepted.IsTrue() || spec.Span != v1alpha1.SpanGroup || spec.Network.Mode != v1alpha1.NetworkHost ||
		slices.Contains(privileged, group.Namespace) {
		return accepted
	}
	allowed := "none"
	if len(privileged) > 0 {
		allowed = explain.Names(privileged, 5)
	}
	return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostNetworkNotAllowed,
		Message: fmt.Sprintf(
			"network.mode is Host, which namespace %s may not use; allowed: %s. Use mode Pod or Multus, or have the "+
				"administrator name the namespace in the manager's --privileged-namespaces.",
			group.Namespace, allowed)}
}
