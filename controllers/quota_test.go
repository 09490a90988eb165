package controllers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// quotaWorld is a run of four nodes at once in a namespace whose quota admits so many pods.
func quotaWorld(t *testing.T, quota int) (reconcile func(time.Duration) map[string]*v1alpha1.RunAssignment,
	api client.Client) {
	t.Helper()
	group := testkit.Group()
	group.Spec.Run.MaxParallelNodes = 4
	w := newWorld(group, testkit.Nodes(4))
	w.settle()
	w.reportFacts()
	r, cache := managerOf(t, &groupWorld{world: w})
	var lock sync.Mutex // as the API server's quota admission counts
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return c.Create(ctx, o, opts...)
			}
			lock.Lock()
			defer lock.Unlock()
			var pods corev1.PodList
			if err := c.List(ctx, &pods, client.InNamespace(pod.Namespace)); err != nil {
				return err
			}
			used := 0
			for i := range pods.Items {
				if podstate.Alive(&pods.Items[i]) {
					used++
				}
			}
			if used >= quota {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name,
					errors.New("exceeded quota: gpus, requested: requests.amd.com/gpu=8, used: "+
						"requests.amd.com/gpu=8, limited: requests.amd.com/gpu=8"))
			}
			pod.CreationTimestamp = metav1.NewTime(r.Clock.Now())
			return c.Create(ctx, pod, opts...)
		},
	})
	return func(after time.Duration) map[string]*v1alpha1.RunAssignment {
		t.Helper()
		r.Clock.(*clocktesting.FakePassiveClock).SetTime(r.Clock.Now().Add(after))
		var nodes v1alpha1.CommTaskList
		if err := playMonitors(t.Context(), cache.api, func(string) *v1alpha1.NodeFacts {
			return testkit.Facts(r.Clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := r.Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)}); err != nil &&
				!apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
		if err := cache.api.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		out := map[string]*v1alpha1.RunAssignment{}
		for i := range nodes.Items {
			out[nodes.Items[i].Spec.NodeName] = nodes.Items[i].Spec.Run
		}
		return out
	}, cache.api
}

// TestQuotaIsWaitedFor: a run pod that a quota has no room for waits up to startDeadlineSeconds, and gets its turn
// where the run's own pods end before that. After the deadline the message says which maxParallelNodes would fit.
func TestQuotaIsWaitedFor(t *testing.T) {
	reconcile, api := quotaWorld(t, 1)
	waiting := func(all map[string]*v1alpha1.RunAssignment) (n int) {
		for node, a := range all {
			if a.Closed != nil {
				t.Fatalf("closed on %s: %+v", node, a.Closed)
			}
			if a.Waiting != nil {
				n++
				if !strings.Contains(a.Waiting.Message, "exceeded quota: gpus") ||
					!strings.Contains(a.Waiting.Message, "run.maxParallelNodes of 1 would fit instead of 4") {
					t.Errorf("%s waits: %q", node, a.Waiting.Message)
				}
			}
		}
		return n
	}
	if n := waiting(reconcile(0)); n != 3 {
		t.Fatalf("%d nodes wait, want 3", n)
	}
	var pods corev1.PodList
	if err := api.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%v, %d pods", err, len(pods.Items))
	}
	pods.Items[0].Status.Phase = corev1.PodSucceeded
	if err := api.Status().Update(t.Context(), &pods.Items[0]); err != nil {
		t.Fatal(err)
	}
	reconcile(30 * time.Second) // the pod ended without a report: its node is closed, and the next one has its turn
	if err := api.List(t.Context(), &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}); err != nil {
		t.Fatal(err)
	}
	alive := 0
	for i := range pods.Items {
		if podstate.Alive(&pods.Items[i]) {
			alive++
		}
	}
	if alive != 1 {
		t.Fatalf("%d pods live after the first has ended, want the next one's", alive)
	}
	closed := 0
	for _, a := range reconcile(time.Hour) {
		if c := a.Closed; c != nil && strings.Contains(c.Message, "exceeded quota") {
			closed++
			if c.Verdict != v1alpha1.VerdictError || c.Reason != v1alpha1.ReasonRunPodNotStarted ||
				!strings.Contains(c.Message, "run.maxParallelNodes of 1 would fit") {
				t.Errorf("%+v", c)
			}
		}
	}
	if closed != 2 {
		t.Errorf("%d nodes are closed for the quota, want 2", closed)
	}
}

// TestQuotaOfOthers: where none of the run's pods hold the quota, no smaller maxParallelNodes is advised.
func TestQuotaOfOthers(t *testing.T) {
	reconcile, _ := quotaWorld(t, 0)
	for node, a := range reconcile(0) {
		if a.Waiting == nil || strings.Contains(a.Waiting.Message, "would fit instead") ||
			!strings.Contains(a.Waiting.Message, "raise the quota") {
			t.Errorf("%s: %+v", node, a.Waiting)
		}
	}
}
