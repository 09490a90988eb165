package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// failingReads is a client whose lists of Nodes fail while it says so.
type failingReads struct {
	client.Client
	fail bool
}

func (f *failingReads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.NodeList); ok && f.fail {
		return errors.New("connection refused")
	}
	return f.Client.List(ctx, list, opts...)
}

// TestAFailedReadKeepsTheStatus: reads that fail for less than a minute change neither status nor events; longer ones
// turn the conditions Unknown, and the grace begins again once a read has succeeded.
func TestAFailedReadKeepsTheStatus(t *testing.T) {
	group := testkit.Group()
	nothing := func(client.Object) error { return nil }
	r, c, recorder := refusing(t, group, &nothing)
	reads := &failingReads{Client: r.Client}
	r.Client = reads
	clock := r.Clock.(*clocktesting.FakePassiveClock)
	key := client.ObjectKeyFromObject(group)
	reconcile := func() state.Status {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); (err != nil) != reads.fail {
			t.Fatalf("reconcile: %v", err)
		}
		return storedGroup(t, c, key).Status
	}
	reconcile()
	known := reconcile()
	for len(recorder.Events) > 0 {
		<-recorder.Events
	}
	for flap := range 3 {
		reads.fail = true
		for _, after := range []time.Duration{0, 30 * time.Second, 29 * time.Second} {
			clock.SetTime(clock.Now().Add(after))
			if got := reconcile(); !objects.Same(&got, &known) {
				t.Fatalf("flap %d, after %s: the status changed: %+v", flap, after, got.Conditions)
			}
		}
		reads.fail = false
		if got := reconcile(); !objects.Same(&got, &known) || len(recorder.Events) > 0 {
			t.Fatalf("flap %d: %d events, status %+v", flap, len(recorder.Events), got.Conditions)
		}
	}
	reads.fail = true
	reconcile()
	clock.SetTime(clock.Now().Add(time.Minute))
	got := reconcile()
	if is := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); is == nil ||
		is.Reason != v1alpha1.ReasonListFailed {
		t.Errorf("after a minute Ready is %+v", is)
	}
}
