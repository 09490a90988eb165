package podstate

import (
	corev1 "k8s.io/api/core/v1"
)

// GPUs is how many of the resource the pod's containers hold together. Init containers end before them, but for those
// that go on beside them (restartPolicy Always).
func GPUs(pod *corev1.Pod, resource string) int64 {
	var running, starting int64
	of := func(c *corev1.Container) int64 {
		// For an extended resource a limit is a request, and there is none without the other.
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			if q, ok := list[corev1.ResourceName(resource)]; ok {
				return q.Value()
			}
		}
		return 0
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			running += of(c)
			continue
		}
		starting = max(starting, running+of(c))
	}
	for i := range pod.Spec.Containers {
		running += of(&pod.Spec.Containers[i])
	}
	return max(running, starting)
}
