package simnode

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type containerKind int

const (
	kindMain containerKind = iota
	kindInit
	kindSidecar
)

// initKind tells a sidecar from an init container that runs to its end.
func initKind(c *corev1.Container) containerKind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return kindSidecar
	}
	return kindInit
}

// containerView is what is known of a container at one moment.
type containerView struct {
	State        corev1.ContainerState
	Last         corev1.ContainerState
	RestartCount int32
	// Started: running and past its startup probe. Ready: past its readiness probe too.
	Started, Ready bool
	// ID of the present or last run.
	ID string
	// willRestart: it ended, and restart policy starts it again.
	willRestart bool
}

// statusInput is all that a pod's status is computed from.
type statusInput struct {
	HostIP, PodIP string
	StartTime     *metav1.Time
	Containers    map[string]containerView
	// FailedReason and FailedMessage override the phase: the pod was refused, or its deadline passed.
	FailedReason, FailedMessage string
	// Stopping: the pod is being ended, so that nothing is started again.
	Stopping bool
	// Conditions that the pod has, of all writers.
	Conditions []corev1.PodCondition
	Generation int64
	Now        metav1.Time
}

// computeStatus is the pure core of the kubelet's status manager.
func computeStatus(spec *corev1.PodSpec, in statusInput) corev1.PodStatus {
	status := corev1.PodStatus{
		HostIP: in.HostIP, StartTime: in.StartTime, QOSClass: "", ObservedGeneration: in.Generation,
		Reason: in.FailedReason, Message: in.FailedMessage,
	}
	if in.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: in.HostIP}}
	}
	if in.PodIP != "" {
		status.PodIP, status.PodIPs = in.PodIP, []corev1.PodIP{{IP: in.PodIP}}
	}
	initialized := true
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		view := in.Containers[c.Name]
		one := containerStatus(c, view, "PodInitializing")
		if initKind(c) == kindInit {
			one.Ready = initDone(kindInit, view)
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, one)
		if !initDone(initKind(c), view) {
			initialized = false
		}
	}
	var notReady []string
	for i := range spec.Containers {
		c := &spec.Containers[i]
		view := in.Containers[c.Name]
		waiting := "ContainerCreating"
		if !initialized {
			waiting = "PodInitializing"
		}
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c, view, waiting))
		if !view.Ready {
			notReady = append(notReady, c.Name)
		}
	}
	status.Phase = phase(spec, in, initialized)
	status.Conditions = conditions(status.Phase, in, initialized, notReady)
	return status
}

func initDone(kind containerKind, view containerView) bool {
	if kind == kindSidecar {
		return view.Started
	}
	return view.State.Terminated != nil && view.State.Terminated.ExitCode == 0
}

func containerStatus(c *corev1.Container, view containerView, waiting string) corev1.ContainerStatus {
	state := view.State
	if state.Waiting == nil && state.Running == nil && state.Terminated == nil {
		state.Waiting = &corev1.ContainerStateWaiting{Reason: waiting}
	}
	started := view.Started
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, ContainerID: view.ID, State: state,
		LastTerminationState: view.Last, RestartCount: view.RestartCount, Ready: view.Ready, Started: &started,
	}
}

// phase follows the kubelet's getPhase.
func phase(spec *corev1.PodSpec, in statusInput, initialized bool) corev1.PodPhase {
	if in.FailedReason != "" {
		return corev1.PodFailed
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		view := in.Containers[c.Name]
		t := view.State.Terminated
		if initKind(c) == kindInit && t != nil && t.ExitCode != 0 && !view.willRestart {
			return corev1.PodFailed
		}
	}
	if !initialized && !in.Stopping {
		return corev1.PodPending
	}
	running, waiting, succeeded, failed := 0, 0, 0, 0
	for _, c := range spec.Containers {
		view := in.Containers[c.Name]
		switch {
		case view.State.Running != nil:
			running++
		case view.State.Terminated != nil && view.willRestart && !in.Stopping:
			running++
		case view.State.Terminated != nil && view.State.Terminated.ExitCode == 0:
			succeeded++
		case view.State.Terminated != nil:
			failed++
		case view.Last.Terminated != nil && !in.Stopping:
			// Between two starts the pod counts as running.
			running++
		default:
			waiting++
		}
	}
	switch {
	case waiting > 0 && in.Stopping:
		return corev1.PodFailed
	case waiting > 0:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	case succeeded > 0:
		return corev1.PodSucceeded
	}
	return corev1.PodPending
}

func conditions(phase corev1.PodPhase, in statusInput, initialized bool, notReady []string) []corev1.PodCondition {
	terminal := phase == corev1.PodSucceeded || phase == corev1.PodFailed
	reason, message := "", ""
	switch {
	case phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case phase == corev1.PodFailed:
		reason = "PodFailed"
	case len(notReady) > 0:
		reason, message = "ContainersNotReady",
			fmt.Sprintf("containers with unready status: [%s]", strings.Join(notReady, " "))
	}
	ready := !terminal && len(notReady) == 0 && initialized
	initReason := ""
	if !initialized {
		initReason = "ContainersNotInitialized"
	}
	sandbox := in.StartTime != nil && !terminal
	own := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, sandbox, "", ""),
		condition(corev1.PodInitialized, initialized || phase == corev1.PodSucceeded, initReason, ""),
		condition(corev1.PodReady, ready, reason, message),
		condition(corev1.ContainersReady, ready, reason, message),
	}
	// Conditions of other writers (PodScheduled, DisruptionTarget) stay.
	out := slices.Clone(in.Conditions)
	for _, c := range own {
		i := slices.IndexFunc(out, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		c.LastTransitionTime = in.Now
		switch {
		case i < 0:
			out = append(out, c)
		case out[i].Status == c.Status:
			c.LastTransitionTime = out[i].LastTransitionTime
			out[i] = c
		default:
			out[i] = c
		}
		if i >= 0 {
			out[i].ObservedGeneration = in.Generation
		} else {
			out[len(out)-1].ObservedGeneration = in.Generation
		}
	}
	return out
}

func condition(kind corev1.PodConditionType, is bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	if is {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
	}
	return c
}
