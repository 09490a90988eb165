package podstate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// StuckAfter is how long a pod that was told to end is waited for.
const StuckAfter = 5 * time.Minute

// Alive says whether the pod may still hold GPUs.
func Alive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Stuck says whether the pod was told to end and has not for long.
func Stuck(pod *corev1.Pod, now time.Time) bool {
	return !pod.DeletionTimestamp.IsZero() && now.After(givenUpAt(pod))
}

// givenUpAt is when a pod that was told to end is waited for no longer. Its deletion timestamp includes its grace
// period, which counts up to StuckAfter only: a pod with a grace period of days would hold up every run on its node.
func givenUpAt(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		if surplus := time.Duration(min(*grace, maxGraceSeconds))*time.Second - StuckAfter; surplus > 0 {
			at = at.Add(-surplus)
		}
	}
	return at.Add(StuckAfter)
}

// maxGraceSeconds keeps a foreign grace period within a Duration.
const maxGraceSeconds = math.MaxInt64 / int64(time.Second)

// FreeAt is when the last of a node's pods that hold its GPUs is given up, as far as they were told to end; such a
// pod's own grace counts first. One that was not told is checked again after StuckAfter.
func FreeAt(pods []*corev1.Pod, now time.Time) time.Time {
	at := now
	for _, pod := range pods {
		switch {
		case !Alive(pod) || Stuck(pod, now):
		case pod.DeletionTimestamp.IsZero():
			at = later(at, now.Add(StuckAfter))
		default:
			at = later(at, givenUpAt(pod).Add(time.Second))
		}
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ExitGrace is what an agent that has reported gets to end its pod by itself.
const ExitGrace = 30 * time.Second

// ReportGrace is what a report may take to reach the controller after the pod's end did.
const ReportGrace = 15 * time.Second

// OfRun is the pod of that run; nil where there is none.
func OfRun(pods []*corev1.Pod, runID string) *corev1.Pod {
	for _, pod := range pods {
		if pod.Labels[v1alpha1.LabelRunID] == runID {
			return pod
		}
	}
	return nil
}

// RanksStarted is when the pod's main container started; zero while it has not.
func RanksStarted(pod *corev1.Pod) time.Time {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i].State
		switch {
		case s.Running != nil:
			return s.Running.StartedAt.Time
		case s.Terminated != nil:
			return s.Terminated.StartedAt.Time
		}
	}
	return time.Time{}
}

// Ended is when the last container ended; zero where none says so, as with an evicted pod.
func Ended(pod *corev1.Pod) time.Time {
	var end time.Time
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// End says how a pod ended, in the kubelet's words.
func End(pod *corev1.Pod) string {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range all {
		t := all[i].State.Terminated
		if t == nil || (t.ExitCode == 0 && i < len(all)-1) {
			continue
		}
		end := fmt.Sprintf("container %s exited with code %d", all[i].Name, t.ExitCode)
		if t.Signal != 0 {
			end += fmt.Sprintf(" by signal %d", t.Signal)
		}
		if t.Reason != "" {
			end += " (" + t.Reason + ")"
		}
		if t.Message != "" {
			end += ": " + clip.Head(t.Message, 400)
		}
		return explain.Sentence(end)
	}
	if pod.Status.Reason != "" {
		return explain.Sentence(pod.Status.Reason + ": " + clip.Head(pod.Status.Message, 400))
	}
	return fmt.Sprintf("phase %s, and no container says why.", pod.Status.Phase)
}

// UnschedulableMessage is why the scheduler found no place for the pod, in its words.
func UnschedulableMessage(pod *corev1.Pod) string {
	if reason := schedulerReason(pod); reason != "" {
		return reason
	}
	return "the scheduler gave no reason."
}

func schedulerReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return explain.Sentence(clip.Head(c.Message, 400))
		}
	}
	return ""
}

// WaitingReason is the kubelet's reason for which a container waits, for example ImagePullBackOff.
func WaitingReason(pod *corev1.Pod) string {
	if reason := kubeletReason(pod, "PodInitializing"); reason != "" {
		return reason
	}
	return "the kubelet gives no reason: check that the node is Ready (`kubectl get node`)."
}

// kubeletReason is the first reason for which a container waits, but for those that tell nothing.
func kubeletReason(pod *corev1.Pod, dull ...string) string {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range all {
		if w := all[i].State.Waiting; w != nil && w.Reason != "" && !slices.Contains(dull, w.Reason) {
			text := explain.Sentence(fmt.Sprintf("container %s, image %s: %s: %s",
				all[i].Name, all[i].Image, w.Reason, clip.Head(w.Message, 300)))
			switch {
			case !strings.Contains(w.Reason, "Image"):
			case i < len(pod.Status.InitContainerStatuses):
				text += " It is the manager's --agent-image."
			default:
				text += " It is spec.runtime.image: correct it or runtime.imagePullSecrets."
			}
			return text
		}
	}
	return ""
}

// Hindrance says, while there is still time, what a run pod's start waits for: the deadline may be many minutes
// away, and a wrong image or GPUs in use are to be seen at once. A pod that merely starts has none.
func Hindrance(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return schedulerReason(pod)
	}
	return kubeletReason(pod, "PodInitializing", "ContainerCreating")
}

// SlackSeconds is what a pod may live beyond the start and the node deadline before the kubelet ends it, should
// no manager be there to do so.
const SlackSeconds = 60
