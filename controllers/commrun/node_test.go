package commrun

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/testkit"
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
		{"GPUs in use", "", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled,
			Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes: Insufficient amd.com/gpu"}}},
			"0/1 nodes: Insufficient amd.com/gpu."},
		{"no word of the kubelet", "n", corev1.PodStatus{}, ""},
		{"init container runs", "n", corev1.PodStatus{ContainerStatuses: waits("PodInitializing", "")}, ""},
		{"image is being pulled", "n", corev1.PodStatus{ContainerStatuses: waits("ContainerCreating", "")}, ""},
		{"wrong image", "n", corev1.PodStatus{ContainerStatuses: waits("ErrImagePull", "no such tag")},
			"container ranks, image rocm/x:1: ErrImagePull: no such tag. It is spec.runtime.image: " +
				"correct it or runtime.imagePullSecrets."},
		{"image with blanks", "n",
			corev1.PodStatus{ContainerStatuses: waits("InvalidImageName", "couldn't parse image name")},
			"container ranks, image rocm/x:1: InvalidImageName: couldn't parse image name. It is spec.runtime.image: " +
				"correct it or runtime.imagePullSecrets."},
		{"no device", "n", corev1.PodStatus{ContainerStatuses: waits("CreateContainerError", "no /dev/kfd")},
			"container ranks, image rocm/x:1: CreateContainerError: no /dev/kfd."},
		{"wrong agent image", "n", corev1.PodStatus{InitContainerStatuses: waits("ImagePullBackOff", "back-off"),
			ContainerStatuses: waits("PodInitializing", "")},
			"container ranks, image rocm/x:1: ImagePullBackOff: back-off. It is the manager's --agent-image."},
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

// TestStuckPodsHoldUpNoOther: a pod that was told to end and does not, for long, takes no other node's place.
func TestStuckPodsHoldUpNoOther(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: decision.Stamp(testkit.Now)}}
	for after, want := range map[time.Duration]bool{podstate.StuckAfter: true,
		podstate.StuckAfter + time.Second: false} {
		if got := holdsGPUs([]*corev1.Pod{pod}, testkit.Now.Add(after)); got != want {
			t.Errorf("%s after it was told to end it holds GPUs: %v", after, got)
		}
	}
}

// TestAWaitFromTheFutureCountsFromNow: whoever wrote it, it puts no deadline off.
func TestAWaitFromTheFutureCountsFromNow(t *testing.T) {
	ct := &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{Run: &v1alpha1.RunAssignment{
		Waiting: &v1alpha1.RunWait{Reason: v1alpha1.ReasonNodeBusy,
			Since: metav1.NewTime(testkit.Now.Add(time.Hour))}}}}
	n := &nodeState{name: "n", commTask: ct}
	n.waitFor(Input{Now: testkit.Now, Group: testkit.Group()}, time.Minute, v1alpha1.ReasonNodeBusy, "others hold it")
	if n.waiting == nil || !n.waiting.Since.Equal(decision.Stamp(testkit.Now)) {
		t.Errorf("the wait counts from %+v, want from now", n.waiting)
	}
}

// TestChooseLooks: as many as there are places, nodes that were never looked at first, and each waiting node comes to
// its turn.
func TestChooseLooks(t *testing.T) {
	nodes := make([]nodeState, 100)
	for i := range nodes {
		nodes[i] = nodeState{name: fmt.Sprintf("n%02d", i), wantsLook: i%10 != 0}
		if i >= 5 {
			nodes[i].waiting = &v1alpha1.RunWait{}
		}
	}
	if got := chooseLooks(nodes, 3, testkit.Now, nil); len(got) != sharing.MaxLooks ||
		!slices.Equal(got[:3], []string{"n01", "n02", "n03"}) || slices.Contains(got, "n04") {
		t.Errorf("three places: %v", got)
	}
	for _, places := range []int{0, -2} { // those that wait may end
		if got := chooseLooks(nodes, places, testkit.Now, nil); len(got) != sharing.MaxLooks ||
			slices.Contains(got, "n01") {
			t.Errorf("%d places: %v", places, got)
		}
	}
	if got := chooseLooks(nodes, 1000, testkit.Now, nil); len(got) != sharing.MaxLooks {
		t.Errorf("many places: %d looks", len(got))
	}
	busyAt := map[string]time.Time{}
	for i := range nodes {
		busyAt[nodes[i].name] = testkit.Now
	}
	delete(busyAt, "n02")
	if got := chooseLooks(nodes, 3, testkit.Now.Add(sharing.BusyPoll-time.Second),
		busyAt); !slices.Equal(got, []string{"n02"}) {
		t.Errorf("seen busy just now: %v", got)
	}
	if got := chooseLooks(nodes, 3, testkit.Now.Add(sharing.BusyPoll), busyAt); len(got) != sharing.MaxLooks {
		t.Errorf("seen busy a poll ago: %v", got)
	}
	if got := chooseLooks(nodes, 3, testkit.Now.Add(-time.Hour), busyAt); len(got) != sharing.MaxLooks {
		t.Errorf("the clock was set back: %v", got)
	}
	seen := map[string]bool{}
	for i := range 30 {
		for _, name := range chooseLooks(nodes, 10, testkit.Now.Add(time.Duration(i)*sharing.BusyPoll), nil) {
			seen[name] = true
		}
	}
	if len(seen) != 90 {
		t.Errorf("%d of 90 nodes came to their turn", len(seen))
	}
}
