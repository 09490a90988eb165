package controllers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}}
}

// TestBusyGroupsStarveNoOther: a group that the controller finds at its start, and that no event names again, is
// reconciled although other groups always have the next event. In controller-runtime's priority queue it never was: its
// priority is below that of events, and a requeue keeps it there. The limit is a number of reconciles, not a time.
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
		for i := range busy { // each run changes the CommTasks of all on the same nodes
			changed(fmt.Sprint("busy", i))
		}
		return reconcile.Result{}, nil
	})
	c, err := controller.NewUnmanaged("queue", options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Func(func(_ context.Context,
		q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
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
		t.Errorf("the quiet group was reconciled %d times of %d, expected its turn among %d others",
			got, reconciles.Load(), busy)
	}
}

// TestSlowGroupsLeaveAWorker: the writes of sixteen groups never return, however few their members are. They hold all
// workers but one, and a new group is accepted meanwhile.
func TestSlowGroupsLeaveAWorker(t *testing.T) {
	for _, members := range []int{2, quickMembers + 1} {
		t.Run(fmt.Sprint(members), func(t *testing.T) { slowGroupsLeaveAWorker(t, members) })
	}
}

func slowGroupsLeaveAWorker(t *testing.T, members int) {
	const slow, workers = 16, 4
	w := &groupWorld{world: newWorld(testkit.Group(), testkit.Nodes(members))}
	r, cache := managerOf(t, w)
	create := func(name string) {
		g := testkit.Group()
		g.Name, g.UID = name, types.UID(name)
		stored, _ := g.Objects()
		if err := cache.api.Create(t.Context(), stored); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	var held sync.Map         // by group: its reconcile waits for the API server
	var heldThen atomic.Int64 // how many were held when the new group was accepted
	createNew := sync.OnceFunc(func() {
		create("new")
		queue.Add(request("new"))
	})
	failWrites(r, func(verb string, o client.Object) error {
		switch {
		case isGroupStatus(verb, o) && o.GetName() == "new":
			heldThen.Store(int64(count(&held)))
			cancel()
		case verb == "create":
			held.Store(metav1.GetControllerOf(o).Name, true)
			if count(&held) == workers-1 {
				createNew()
			}
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	options := controllerOptions(workers)
	options.SkipNameValidation, options.Logger = ptr.To(true), logr.Discard()
	options.Reconciler = reconcile.Func(r.paced)
	r.pace.slowWorkers = slowWorkers(workers)
	c, err := controller.NewUnmanaged("queue", options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Func(func(_ context.Context,
		q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		for i := range slow {
			name := fmt.Sprint("slow", i)
			create(name)
			q.Add(request(name))
		}
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if n := heldThen.Load(); n != workers-1 {
		t.Errorf("when the new group was accepted slow ones held %d of %d workers, want %d; 0: it never was",
			n, workers, workers-1)
	}
}

func count(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// TestPacerKnowsSlowGroups: a group is slow until one of its reconciles was quick, for a while after one that was not,
// and by its members.
func TestPacerKnowsSlowGroups(t *testing.T) {
	now := time.Now()
	large, small, other := types.NamespacedName{Name: "large"}, types.NamespacedName{Name: "small"},
		types.NamespacedName{Name: "other"}
	p := pacer{slowWorkers: 1}
	for group, members := range map[types.NamespacedName]int{large: quickMembers + 1, small: quickMembers, other: 1} {
		p.counted(group, members)
	}
	begin := func(group types.NamespacedName, want bool) func(time.Time) {
		t.Helper()
		end, ok := p.begin(group, now)
		if ok != want {
			t.Fatalf("%s: begins %t, want %t", group.Name, ok, want)
		}
		return end
	}
	endSmall := begin(small, true)
	begin(other, false) // neither is known to be quick
	endSmall(now.Add(quickReconcile))
	endOther := begin(other, true)
	now = now.Add(time.Minute)
	begin(small, true)(now.Add(2 * quickReconcile))
	begin(small, false)
	endOther(now)
	begin(small, true)(now) // as a slow one
	endLarge := begin(large, true)
	begin(small, false) // one that was quick since changes nothing
	now = now.Add(2*quickReconcile + slowFor)
	begin(small, true)(now)
	p.forget(large)
	endLarge(now)
	if _, ok := p.groups[large]; ok || p.slowNow != 0 {
		t.Errorf("a group that is gone left %v, and %d workers", p.groups, p.slowNow)
	}
}
