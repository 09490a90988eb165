package commrun

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestHeldSeconds(t *testing.T) {
	run := &v1alpha1.GroupRunStatus{ID: "1-3", Number: 3}
	gpus := corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("8")}}
	pod := func(started, ended time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelRunID: run.ID}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "ranks", Resources: gpus}}}}
		if ended > 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
		if started != 0 {
			s := corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: *decision.Stamp(testkit.Now.Add(started))}}
			if ended > 0 {
				s = corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{StartedAt: *decision.Stamp(testkit.Now.Add(started)),
						FinishedAt: *decision.Stamp(testkit.Now.Add(ended))}}
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: s}}
		}
		return p
	}
	node := func(id string, report *v1alpha1.NodeRunStatus, closed *v1alpha1.RunClosure) *v1alpha1.CommTask {
		ct := &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{Ranks: v1alpha1.RankRange{Count: 8},
			Run: &v1alpha1.RunAssignment{ID: id, Closed: closed}}}
		if ct.Status.Run = report; report != nil {
			report.ID, report.Phase, report.Verdict = id, v1alpha1.NodeRunFinished, v1alpha1.VerdictPass
		}
		return ct
	}
	report := func(seconds int) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{StartTime: *decision.Stamp(testkit.Now),
			FinishTime: decision.Stamp(testkit.Now.Add(time.Duration(seconds) * time.Second))}
	}
	// evicted is a pod that is kept for its log and does not say when it ended.
	evicted := pod(-time.Hour, 0)
	evicted.Status.Phase = corev1.PodFailed
	span := &v1alpha1.SpanStatus{RunID: run.ID, Present: 2, Tests: []v1alpha1.SpanTest{
		{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1, StartTime: *decision.Stamp(testkit.Now),
			Seconds: ptr.To(int32(30))}, {ID: "group-2", Kind: v1alpha1.TestGroup, Round: 2,
			StartTime: *decision.Stamp(testkit.Now.Add(50 * time.Second)), Seconds: ptr.To(int32(10))}}}
	for name, tc := range map[string]struct {
		node          *v1alpha1.CommTask
		pod, groupPod *corev1.Pod
		span          *v1alpha1.SpanStatus
		want          int64
	}{
		"reported":                    {node: node("1-3", report(100), nil), want: 800},
		"reported, of the run before": {node: node("1-2", report(100), nil), want: 0},
		"a clock that ran back":       {node: node("1-3", report(-100), nil), want: 0},
		"still running":               {node: node("1-3", nil, nil), pod: pod(-time.Minute, 0), want: 480},
		"pod never started":           {node: node("1-3", nil, nil), pod: pod(0, 0), want: 0},
		"closed while it ran":         {node: node("1-3", nil, &v1alpha1.RunClosure{HeldSeconds: 20}), want: 160},
		"closed, and the pod not gone": {node: node("1-3", nil, &v1alpha1.RunClosure{HeldSeconds: 20}),
			pod: pod(-30*time.Second, 0), want: 240},
		"closed, kept for its log": {node: node("1-3", nil, &v1alpha1.RunClosure{HeldSeconds: 20}),
			pod: evicted, want: 160},
		"the group's pod": {node: node("1-3", report(100), nil),
			groupPod: pod(-50*time.Second, 0), want: 1200},
		"the group's pods are gone": {node: node("1-3", report(100), nil), span: span, want: 800 + 60*2*8},
		"the tests of another run": {node: node("1-3", report(100), nil),
			span: &v1alpha1.SpanStatus{RunID: "1-2", Present: 9, Tests: span.Tests}, want: 800},
	} {
		in := Input{Now: testkit.Now, Group: testkit.Group(), CommTasks: map[string]*v1alpha1.CommTask{"a": tc.node},
			Pods: map[string][]*corev1.Pod{}, GroupPods: map[string][]*corev1.Pod{}}
		if tc.pod != nil {
			in.Pods["a"] = []*corev1.Pod{tc.pod}
		}
		if tc.groupPod != nil {
			in.GroupPods["a"] = []*corev1.Pod{tc.groupPod}
		}
		got, nodes := HeldSeconds(run, tc.span, in)
		if own := tc.want > 0 && (tc.groupPod == nil || tc.node.Status.Run != nil); got != tc.want ||
			own != (nodes == 1) {
			t.Errorf("%s: %d s on %d nodes, expected %d", name, got, nodes, tc.want)
		}
	}
}
