package controllers

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/state"
)

// queueTogether has Kueue admit the pods of a group's stage all at once or not at all: some of them alone would hold GPUs for
// nothing. Kueue wants the same number on each.
func queueTogether(pod *corev1.Pod, group *state.Group, runID string, members int32) {
	if podstate.QueueOf(pod) == "" || members <= 0 {
		return
	}
	pod.Labels[podstate.PodGroupLabel] = objects.Name(validation.DNS1123LabelMaxLength, string(group.UID)+"/"+runID, group.Name, runID)
	pod.Annotations[podstate.PodGroupCountAnnotation] = strconv.Itoa(int(members))
	pod.Annotations[podstate.NotRetriableAnnotation] = "false"
	pod.Annotations[podstate.RoleHashAnnotation] = objects.Hash(string(group.UID) + "/" + runID)[:8]
}
