package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
)

// TestStartHindrance: a pod that merely starts has nothing to say; one that cannot start says why before its deadline.
func TestStartHindrance(t *testing.T) {
	waits := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "ranks", Image: "rocm/x:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
	for _, tc := range []struct {
		name, node string
		status     corev1.PodStatus
		want       string
	}{
		{"new", "", corev1.PodStatus{}, ""},
		{"GPUs in use", "", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes: Insufficient amd.com/gpu"}}}, "0/1 nodes: Insufficient amd.com/gpu."},
		{"no word of the kubelet", "n", corev1.PodStatus{}, ""},
		{"init container runs", "n", corev1.PodStatus{ContainerStatuses: waits("PodInitializing", "")}, ""},
		{"image is being pulled", "n", corev1.PodStatus{ContainerStatuses: waits("ContainerCreating", "")}, ""},
		{"wrong image", "n", corev1.PodStatus{ContainerStatuses: waits("ErrImagePull", "no such tag")},
			"container ranks, image rocm/x:1: ErrImagePull: no such tag. It is spec.runtime.image: correct it or runtime.imagePullSecrets."},
		{"image with blanks", "n", corev1.PodStatus{ContainerStatuses: waits("InvalidImageName", "couldn't parse image name")},
			"container ranks, image rocm/x:1: InvalidImageName: couldn't parse image name. It is spec.runtime.image: correct it or runtime.imagePullSecrets."},
		{"no device", "n", corev1.PodStatus{ContainerStatuses: waits("CreateContainerError", "no /dev/kfd")}, "container ranks, image rocm/x:1: CreateContainerError: no /dev/kfd."},
		{"wrong agent image", "n", corev1.PodStatus{InitContainerStatuses: waits("ImagePullBackOff", "back-off"),
			ContainerStatuses: waits("PodInitializing", "")}, "container ranks, image rocm/x:1: ImagePullBackOff: back-off. It is the manager's --agent-image."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: tc.node}, Status: tc.status}
			if got := podstate.Hindrance(pod); got != tc.want {
				t.Errorf("%q, expected %q", got, tc.want)
			}
		})
	}
	nodes := []nodeState{
		{name: "a", phase: judge.Starting, hindrance: "x."}, {name: "b", phase: judge.Starting, hindrance: "y."},
		{name: "c", phase: judge.Starting}, {name: "d", phase: judge.Done, hindrance: "z."},
	}
	if got, want := hindered(nodes), " Not started yet: a, b: x."; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if got := hindered(nodes[2:]); got != "" {
		t.Errorf("%q, expected nothing", got)
	}
}
