package simnode

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func alive(ready bool) containerView {
	return containerView{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		Started: true, Ready: ready}
}

func ended(code int32, again bool) containerView {
	return containerView{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		willRestart: again}
}

func waitingAfter(code int32) containerView {
	return containerView{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		Last:  corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
	}
}

func TestComputeStatus(t *testing.T) {
	sidecar := corev1.Container{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	one := &corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}},
		Containers: []corev1.Container{{Name: "a"}}}
	two := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}
	withSidecar := &corev1.PodSpec{InitContainers: []corev1.Container{sidecar},
		Containers: []corev1.Container{{Name: "a"}}}
	tests := map[string]struct {
		spec  *corev1.PodSpec
		in    statusInput
		phase corev1.PodPhase
		ready corev1.ConditionStatus
		// waiting reason of the first main container, where it waits.
		waiting string
	}{
		"new": {one, statusInput{}, corev1.PodPending, corev1.ConditionFalse, "PodInitializing"},
		"init runs": {one, statusInput{Containers: map[string]containerView{"init": alive(true)}},
			corev1.PodPending, corev1.ConditionFalse, "PodInitializing"},
		"init failed for good": {one, statusInput{Containers: map[string]containerView{"init": ended(1, false)}},
			corev1.PodFailed, corev1.ConditionFalse, "PodInitializing"},
		"init fails, again": {one, statusInput{Containers: map[string]containerView{"init": ended(1, true)}},
			corev1.PodPending, corev1.ConditionFalse, "PodInitializing"},
		"init done": {one, statusInput{Containers: map[string]containerView{"init": ended(0, false)}},
			corev1.PodPending, corev1.ConditionFalse, "ContainerCreating"},
		"runs, ready": {one,
			statusInput{Containers: map[string]containerView{"init": ended(0, false), "a": alive(true)}},
			corev1.PodRunning, corev1.ConditionTrue, ""},
		"runs, not ready": {two, statusInput{Containers: map[string]containerView{"a": alive(true), "b": alive(false)}},
			corev1.PodRunning, corev1.ConditionFalse, ""},
		"one of two done": {two,
			statusInput{Containers: map[string]containerView{"a": ended(0, false), "b": alive(true)}},
			corev1.PodRunning, corev1.ConditionFalse, ""},
		"all done": {two,
			statusInput{Containers: map[string]containerView{"a": ended(0, false), "b": ended(0, false)}},
			corev1.PodSucceeded, corev1.ConditionFalse, ""},
		"one failed": {two,
			statusInput{Containers: map[string]containerView{"a": ended(0, false), "b": ended(2, false)}},
			corev1.PodFailed, corev1.ConditionFalse, ""},
		"between two starts": {two,
			statusInput{Containers: map[string]containerView{"a": alive(true), "b": ended(2, true)}}, corev1.PodRunning,
			corev1.ConditionFalse, ""},
		"crash loop": {two,
			statusInput{Containers: map[string]containerView{"a": waitingAfter(1), "b": alive(true)}},
			corev1.PodRunning, corev1.ConditionFalse, "CrashLoopBackOff"},
		"refused": {two, statusInput{FailedReason: "OutOfamd.com/gpu"}, corev1.PodFailed, corev1.ConditionFalse,
			"ContainerCreating"},
		"stopped before start": {two, statusInput{Stopping: true}, corev1.PodFailed, corev1.ConditionFalse,
			"ContainerCreating"},
		"stopped while again": {two, statusInput{Stopping: true,
			Containers: map[string]containerView{"a": ended(0, false), "b": ended(137, true)}},
			corev1.PodFailed, corev1.ConditionFalse, ""},
		"sidecar not started": {withSidecar, statusInput{Containers: map[string]containerView{"side": {}}},
			corev1.PodPending, corev1.ConditionFalse, "PodInitializing"},
		"sidecar and main": {withSidecar,
			statusInput{Containers: map[string]containerView{"side": alive(true), "a": alive(true)}}, corev1.PodRunning,
			corev1.ConditionTrue, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := computeStatus(tc.spec, tc.in)
			if s.Phase != tc.phase {
				t.Errorf("phase %s, want %s", s.Phase, tc.phase)
			}
			for _, c := range s.Conditions {
				if c.Type == corev1.PodReady && c.Status != tc.ready {
					t.Errorf("Ready %s, want %s", c.Status, tc.ready)
				}
			}
			waiting := ""
			if w := s.ContainerStatuses[0].State.Waiting; w != nil {
				waiting = w.Reason
			}
			if waiting != tc.waiting {
				t.Errorf("first container waits for %q, want %q", waiting, tc.waiting)
			}
		})
	}
}

func TestConditionsKeepOthersAndTimes(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}
	s := computeStatus(spec, statusInput{
		Now: now, Containers: map[string]containerView{"a": alive(true)}, Generation: 3,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: then},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: then},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: then},
		},
	})
	times := map[corev1.PodConditionType]metav1.Time{}
	for _, c := range s.Conditions {
		times[c.Type] = c.LastTransitionTime
	}
	if times[corev1.PodScheduled] != then || times[corev1.PodInitialized] != then || times[corev1.PodReady] != now {
		t.Errorf("times of change: %v; only Ready changed", times)
	}
	if s.ObservedGeneration != 3 {
		t.Errorf("observedGeneration %d, want 3", s.ObservedGeneration)
	}
}
