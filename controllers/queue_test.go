package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/go-logr/logr"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}}
}

// TestBusyGroupsStarveNoOther: a group that the controller finds at its start, and that no event names again, is reconciled although
// other groups always have the next event. In controller-runtime's priority queue it never was: its priority is below that of
// events, and a requeue keeps it there. The limit is a number of reconciles, not a time.
func TestBusyGroupsStarveNoOther(t *testing.T) {
	const busy, limit = 16, 2000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	group := func(name string) client.Object {
		g := testkit.Group()
		g.Namespace, g.Name = "team", name
		return g
	}
	events := &handler.EnqueueRequestForObject{}
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	found := func(name string) {
		events.Create(ctx, event.CreateEvent{Object: group(name), IsInInitialList: true}, queue)
	}
	changed := func(name string) {
		before, after := group(name), group(name)
		before.SetResourceVersion("1")
		after.SetResourceVersion("2")
		events.Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	}
	var reconciles, quietOnes atomic.Int64
	options := controllerOptions(4)
	options.SkipNameValidation, options.Logger = ptr.To(true), logr.Discard()
	options.Reconciler = reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
		if n := reconciles.Add(1); n >= limit {
			cancel()
			return reconcile.Result{}, nil
		}
		if r.Name == "quiet" {
			if quietOnes.Add(1) == 3 { // the first, and two wake-ups of its own
				cancel()
			}
			return reconcile.Result{RequeueAfter: 1}, nil
		}
		for i := range busy { // each run changes the CommNodes of all on the same nodes
			changed(fmt.Sprint("busy", i))
		}
		return reconcile.Result{}, nil
	})
	c, err := controller.NewUnmanaged("queue", options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		for i := range busy {
			found(fmt.Sprint("busy", i))
			changed(fmt.Sprint("busy", i))
		}
		found("quiet")
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := quietOnes.Load(); got < 3 {
		t.Errorf("the quiet group was reconciled %d times of %d, expected its turn among %d others", got, reconciles.Load(), busy)
	}
}
