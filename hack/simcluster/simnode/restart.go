package simnode

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet's delays: the first restart is immediate, then 10 s doubling up to 5 minutes, forgotten after 10 minutes
// of running.
const (
	firstBackoff    = 10 * time.Second
	largestBackoff  = 5 * time.Minute
	backoffForgiven = 10 * time.Minute
)

// ShouldRestart says whether a container that ended starts again.
func ShouldRestart(policy corev1.RestartPolicy, kind containerKind, exitCode int32) bool {
	switch kind {
	case kindSidecar:
		return true
	case kindInit:
		return exitCode != 0 && policy != corev1.RestartPolicyNever
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// NextBackoff gives the delay before the next start from the one before the last start and the time that it ran.
// restarts counts the starts that went before.
func NextBackoff(previous, ran time.Duration, restarts int32) time.Duration {
	switch {
	case restarts == 0 || ran >= backoffForgiven:
		return 0
	case previous == 0:
		return firstBackoff
	}
	return min(2*previous, largestBackoff)
}

// Grace is how long a pod has between SIGTERM and SIGKILL.
func Grace(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return 30 * time.Second
}

// Exit is how a process ended.
type Exit struct {
	Code int32
	// Signal that ended it, or 0.
	Signal int32
}

// ExitReason is the kubelet's word for an exit.
func ExitReason(code int32) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}

// Unsupported names what a pod asks for and a simulated node cannot do; empty means that there is nothing.
func Unsupported(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		s := v.VolumeSource
		if s.EmptyDir == nil && s.HostPath == nil && s.ConfigMap == nil && s.Secret == nil && s.Projected == nil &&
			s.DownwardAPI == nil {
			return "volume " + v.Name + " is of a kind that the simulated node has not: use emptyDir, hostPath, " +
				"configMap, secret, projected or downwardAPI"
		}
	}
	for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.GRPC != nil {
				return "container " + c.Name +
					" has a gRPC probe, which the simulated node has not: use httpGet, exec or tcpSocket"
			}
		}
		if c.Lifecycle != nil {
			return "container " + c.Name + " has lifecycle hooks, which the simulated node has not"
		}
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return "the pod has resource claims, which the simulated node has not: ask for amd.com/gpu"
	}
	return ""
}
