package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// oldCache is a manager's client whose cache has an object as it was, while it lags; all else is as the API server has
// it.
type oldCache struct {
	api client.Client
	old map[client.ObjectKey]client.Object
	// run is the number of the last CommRun that it has; nil where it has all.
	run *int64
	// writes that went through.
	writes atomic.Int64 // the reconciler deletes several objects at once
}

// has puts a group into the cache as it was.
func (c *oldCache) has(past *state.Group) {
	group, run := past.Objects()
	c.run = new(int64)
	group.ResourceVersion, c.old[client.ObjectKeyFromObject(group)] = "1", group
	if run != nil {
		run.ResourceVersion, c.old[client.ObjectKeyFromObject(run)], *c.run = "1", run, run.Status.Number
	}
}

// cameUp: the cache has all that the API server has.
func (c *oldCache) cameUp() {
	clear(c.old)
	c.run = nil
}

// managerOf makes a reconciler over an API server that has the world's objects. Its cache lags where old says so.
func managerOf(t *testing.T, w *groupWorld) (*CommGroupReconciler, *oldCache) {
	t.Helper()
	scheme := testkit.Scheme(t)
	group, run := w.group.Objects()
	objects := []client.Object{group}
	if run != nil {
		objects = append(objects, run)
	}
	for i := range w.nodes {
		objects = append(objects, &w.nodes[i])
	}
	for _, name := range slices.Sorted(maps.Keys(w.commNodes)) {
		objects = append(objects, w.commNodes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		objects = append(objects, w.commTasks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		objects = append(objects, w.pods[name])
	}
	for _, object := range objects {
		object.SetResourceVersion("")
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.CommGroup{}, &v1alpha1.CommRun{}, &v1alpha1.CommTask{},
			&v1alpha1.CommNode{}).Build()
	cache := &oldCache{api: api, old: map[client.ObjectKey]client.Object{}}
	lagging := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
			opts ...client.GetOption) error {
			group, ok := into.(*v1alpha1.CommGroup)
			if old := cache.old[key]; ok && old != nil {
				old.(*v1alpha1.CommGroup).DeepCopyInto(group)
				return nil
			}
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, into, opts...)
			if list, ok := into.(*v1alpha1.CommRunList); ok {
				list.Items = slices.DeleteFunc(list.Items, func(r v1alpha1.CommRun) bool {
					return cache.run != nil && r.Status.Number > *cache.run
				})
				for i := range list.Items {
					if old := cache.old[client.ObjectKeyFromObject(&list.Items[i])]; old != nil {
						list.Items[i] = *old.(*v1alpha1.CommRun).DeepCopy()
					}
				}
			}
			if list, ok := into.(*v1alpha1.CommTaskList); ok {
				for i := range list.Items {
					if old := cache.old[client.ObjectKeyFromObject(&list.Items[i])]; old != nil {
						list.Items[i] = *old.(*v1alpha1.CommTask).DeepCopy()
					}
				}
			}
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			cache.writes.Add(1)
			return c.Delete(ctx, object, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object,
			opts ...client.SubResourceUpdateOption) error {
			cache.writes.Add(1)
			return c.SubResource(sub).Update(ctx, object, opts...)
		},
	})
	return New(Dependencies{Client: lagging, APIReader: api, Recorder: events.NewFakeRecorder(1000),
		Clock: clocktesting.NewFakePassiveClock(w.now), Config: testConfig}), cache
}

// storedGroup is the group as it is stored.
func storedGroup(t *testing.T, c client.Reader, key client.ObjectKey) *state.Group {
	t.Helper()
	group, err := state.Load(t.Context(), c, key)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// TestOldGroupTakesNothingAway: a manager whose cache has an older CommGroup than the API server deletes nothing by it,
// tells nothing, and checks again soon.
func TestOldGroupTakesNothingAway(t *testing.T) {
	for name, tc := range map[string]struct {
		state string
		age   func(*state.Status)
	}{
		"before the first run": {fromRunning, func(s *state.Status) { *s = state.Status{} }},
		"before the stage began": {fromStage, func(s *state.Status) {
			*s.Span = v1alpha1.SpanStatus{RunID: s.Run.ID, Stage: v1alpha1.StageNodes}
		}},
		"before there was one": {fromStage, func(s *state.Status) { s.Span = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := tableWorld(t, tc.state)
			s := w.snapshot()
			s.Group = w.group.DeepCopy()
			tc.age(&s.Group.Status)
			if d := Decide(s, testConfig); len(d.DeletePods) == 0 {
				t.Fatal("an old status deletes nothing even without a look at the API")
			}
			r, cache := managerOf(t, w)
			key := client.ObjectKeyFromObject(w.group)
			old := storedGroup(t, cache.api, key).DeepCopy()
			tc.age(&old.Status)
			cache.has(old)
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != oldReadPoll {
				t.Errorf("%+v, %v", result, err)
			}
			for _, pod := range w.pods {
				now := pod.DeepCopy()
				if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil ||
					!now.DeletionTimestamp.IsZero() {
					t.Errorf("pod %s: %v", pod.Name, err)
				}
			}
			if cache.writes.Load() > 0 {
				t.Errorf("%d deletes and writes of the status", cache.writes.Load())
			}
			cache.cameUp()
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOldCommTaskNamesNobody: a node's report has come and its pod is gone because of that; a manager whose cache has
// the CommTask without the report neither closes the run on the node nor names it.
func TestOldCommTaskNamesNobody(t *testing.T) {
	w := tableWorld(t, fromRunning)
	node := w.nodes[0].Name
	old := w.commTask(node).DeepCopy()
	ct := w.commTask(node)
	ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	delete(w.pods, w.podOn(node).Name)
	r, cache := managerOf(t, w)
	key := client.ObjectKeyFromObject(ct)
	old.ResourceVersion = "1"
	cache.old[key] = old
	group := client.ObjectKeyFromObject(w.group)
	reconcile := func() (*state.Group, error) {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: group})
		if err == nil && result.RequeueAfter == oldReadPoll {
			err = errOldRead
		}
		return storedGroup(t, cache.api, group), err
	}
	before := w.group.Status.DeepCopy()
	if now, err := reconcile(); !errors.Is(err, errOldRead) ||
		!equality.Semantic.DeepEqual(now.Status.Culprits, before.Culprits) || cache.writes.Load() > 0 {
		t.Errorf("%v, culprits %+v, %d writes of the status", err, now.Status.Culprits, cache.writes.Load())
	}
	delete(cache.old, key)
	if now, err := reconcile(); err != nil || len(now.Status.Culprits) > 0 || now.Status.Members.Passed != 1 {
		t.Errorf("with the report: %v, %+v", err, now.Status)
	}
}
