package sharing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// Holders names the pods that hold GPUs, but for those of the group's own runs; of other namespaces it only counts
// them.
func Holders(pods []corev1.Pod, resource string, group *state.Group) string {
	var names []string
	others, othersGPUs := 0, int64(0)
	for i := range pods {
		pod := &pods[i]
		own := pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRun &&
			pod.Labels[v1alpha1.LabelGroupUID] == string(group.UID)
		gpus := podstate.GPUs(pod, resource)
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
		parts = append(parts, explain.Names(names, 3))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%s%s (%d)", units.Counted(others, "pod"), ofOtherNamespace, othersGPUs))
	}
	return strings.Join(parts, " and ")
}
