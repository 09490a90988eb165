package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// tooMuchEnv is what a CommGroup could hold before runtime.env had a bound on its total.
func tooMuchEnv() []v1alpha1.EnvVar {
	var env []v1alpha1.EnvVar
	for i := range 64 {
		env = append(env, v1alpha1.EnvVar{Name: fmt.Sprintf("NCCL_X%d", i), Value: strings.Repeat("x", 1024)})
	}
	return env
}

// TestTooLargeObjectsAreNotWritten: one group must not fill etcd, which is everybody's.
func TestTooLargeObjectsAreNotWritten(t *testing.T) {
	nothing := func(client.Object) error { return nil }
	r, api, _ := refusing(t, testkit.Group(), &nothing)
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	good := Decide(w.snapshot(), testConfig).CommTasks[0].Desired
	bad := good.DeepCopy()
	bad.Spec.Run = &v1alpha1.RunAssignment{ID: "1-1", Plan: v1alpha1.RunPlan{Env: tooMuchEnv()}}
	want := func(err error) {
		t.Helper()
		if !errors.Is(err, errTooLarge) || !refuses(err) || !onlyRefusals(errors.Join(fmt.Errorf("write: %w", err))) || !strings.Contains(err.Error(), "shorten runtime.env") {
			t.Errorf("got %v", err)
		}
	}
	want(r.writeCommTask(t.Context(), CommTaskChange{Desired: bad}))
	var is v1alpha1.CommTask
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(good), &is); !apierrors.IsNotFound(err) {
		t.Fatalf("created: %v", err)
	}
	if err := r.writeCommTask(t.Context(), CommTaskChange{Desired: good}); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(good), &is); err != nil {
		t.Fatal(err)
	}
	bad.ObjectMeta = is.ObjectMeta
	want(r.writeCommTask(t.Context(), CommTaskChange{Current: &is, Desired: bad}))

	large := is.DeepCopy() // the agents' part has bounds of its own
	large.Status.Run = &v1alpha1.NodeRunStatus{Environment: tooMuchEnv()}
	if err := withinBounds(large); err != nil {
		t.Errorf("the status counts: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/x": strings.Repeat("x", maxWrittenBytes)}}}
	if err := withinBounds(pod); !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "runtime.pod.annotations") {
		t.Errorf("a pod: %v", err)
	}
}

// TestTooLargeGroupIsTold: a group from before the bound says what to shorten, and its reconcile comes again.
func TestTooLargeGroupIsTold(t *testing.T) {
	nothing := func(client.Object) error { return nil }
	group := testkit.Group()
	group.Spec.Runtime.Env = tooMuchEnv()
	r, api, _ := refusing(t, group, &nothing)
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(group)}
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	reconcile()
	if err := playMonitors(t.Context(), api, func(string) *v1alpha1.NodeFacts { return testkit.Facts(testkit.Now) }); err != nil {
		t.Fatal(err)
	}
	reconcile()
	result := reconcile()
	testkit.WantRefusedResult(t, result.RequeueAfter, nil)
	var is v1alpha1.CommGroup
	if err := api.Get(t.Context(), request.NamespacedName, &is); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionAgentsReporting); c == nil || c.Reason != v1alpha1.ReasonCommTasksRefused || !strings.Contains(c.Message, "shorten runtime.env") {
		t.Errorf("%+v", c)
	}
}
