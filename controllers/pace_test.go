package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestMinReconcileInterval: small groups have none, and it grows with the members.
func TestMinReconcileInterval(t *testing.T) {
	for members, want := range map[int]time.Duration{0: 0, 100: 0, 666: 0, 667: 100050 * time.Microsecond,
		12_500: 1875 * time.Millisecond} {
		if got := minReconcileInterval(members); got != want {
			t.Errorf("%d members: %s, want %s", members, got, want)
		}
	}
}

// TestLargeGroupIsPaced: a reconcile of a large group that comes too soon is put off until its time.
func TestLargeGroupIsPaced(t *testing.T) {
	for members, paced := range map[int]bool{4: false, 1000: true} {
		w := bigWorld(members)
		r, _ := managerOf(t, &groupWorld{world: w})
		clock := r.Clock.(*clocktesting.FakePassiveClock)
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)}
		interval := minReconcileInterval(members)
		if _, err := r.paced(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if wait := r.pace.wait(req.NamespacedName, clock.Now()); wait != interval || (wait > 0) != paced {
			t.Errorf("%d members: the next reconcile waits %s, want %s", members, wait, interval)
		}
		if !paced {
			continue
		}
		clock.SetTime(clock.Now().Add(interval / 3))
		if result, err := r.paced(t.Context(), req); err != nil || result.RequeueAfter != interval-interval/3 {
			t.Errorf("too soon: %+v, %v", result, err)
		}
		clock.SetTime(clock.Now().Add(interval))
		if _, err := r.paced(t.Context(), req); err != nil || r.pace.wait(req.NamespacedName, clock.Now()) != interval {
			t.Errorf("in time, it did not run: %v", err)
		}
	}
}

// TestWakesOfForeignObjects: only objects that the controller can have made for a group wake its reconcile.
func TestWakesOfForeignObjects(t *testing.T) {
	meta := func(namespace, group string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Annotations: map[string]string{v1alpha1.AnnotationGroup: group},
			OwnerReferences: owners}
	}
	yes := true
	commTaskOf := func(group, node string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommTask",
			Name: v1alpha1.CommTaskName(group, node), Controller: &yes}
	}
	commTask := commTaskOf("g", "n1")
	for name, tc := range map[string]struct {
		got  []ctrl.Request
		want int
	}{
		"the group's run pod": {groupOfRunPod(t.Context(),
			&corev1.Pod{ObjectMeta: meta("team", "team/g", commTask)}), 1},
		"of another group": {groupOfRunPod(t.Context(),
			&corev1.Pod{ObjectMeta: meta("team", "team/g", commTaskOf("group", "n1"))}), 0},
		"in another namespace": {groupOfRunPod(t.Context(),
			&corev1.Pod{ObjectMeta: meta("evil", "team/g", commTask)}), 0},
		"without an owner": {groupOfRunPod(t.Context(), &corev1.Pod{ObjectMeta: meta("team", "team/g")}), 0},
		"of another owner": {groupOfRunPod(t.Context(), &corev1.Pod{ObjectMeta: meta("team", "team/g",
			metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Controller: &yes})}), 0},
		"no name": {groupOfRunPod(t.Context(),
			&corev1.Pod{ObjectMeta: meta("team", "team", commTask)}), 0},
	} {
		if len(tc.got) != tc.want || tc.want == 1 && tc.got[0].String() != "team/g" {
			t.Errorf("%s: wakes %v, want %d", name, tc.got, tc.want)
		}
	}
	long := strings.Repeat("n", 240)
	for group, node := range map[string]string{"g": long, long: "n1", "a.b": long} {
		got := groupOfRunPod(t.Context(), &corev1.Pod{ObjectMeta: meta("team", "team/"+group, commTaskOf(group, node))})
		if len(got) != 1 || got[0].String() != "team/"+group {
			t.Errorf("group %s, node %s: wakes %v", group, node, got)
		}
	}
}
