package controllers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestReadsOfMissingPodsAreBounded: a few awaited pods that the cache lacks are read by name; many are listed, page by
// page. Either way what the API server has is in the snapshot. What it does not have is asked for once a minute.
func TestReadsOfMissingPodsAreBounded(t *testing.T) {
	const nodes = maxPodGets + 10
	for name, tc := range map[string]struct {
		uncached, deleted int
		gets, lists       int
		againGets         int // within the minute
		againLists        int
	}{
		"none":                   {0, 0, 0, 0, 0, 0},
		"one is gone":            {0, 1, 1, 0, 0, 0},
		"the cache lags":         {3, 0, 3, 0, 3, 0},
		"both":                   {3, 2, 5, 0, 3, 0},
		"as many as read singly": {maxPodGets, 0, maxPodGets, 0, maxPodGets, 0},
		"more":                   {maxPodGets + 1, 0, 0, 1, 0, 1},
		"more are gone":          {0, maxPodGets + 1, 0, 1, 0, 0},
		"more, most are gone":    {3, maxPodGets + 1, 0, 1, 3, 0},
	} {
		group := testkit.Group()
		group.Spec.Run.MaxParallelNodes = nodes
		w := newWorld(group, testkit.Nodes(nodes))
		w.settle()
		w.reportFacts()
		w.settle()
		r, cache := managerOf(t, &groupWorld{world: w})
		gone := map[string]bool{}
		for i := range nodes {
			pod := w.podOn(w.nodes[i].Name)
			if i < tc.uncached+tc.deleted {
				gone[pod.Name] = true
			}
			if i >= tc.uncached && i < tc.uncached+tc.deleted {
				if err := cache.api.Delete(t.Context(), pod.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
		}
		var gets atomic.Int32
		lists := 0
		r.APIReader = interceptor.NewClient(cache.api.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, ok := o.(*corev1.Pod); ok {
					gets.Add(1)
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				var options client.ListOptions
				options.ApplyOptions(opts)
				if lists++; options.Limit != podsPerPage {
					t.Errorf("%s: a list with the limit %d", name, options.Limit)
				}
				return c.List(ctx, o, opts...)
			},
		})
		r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, o, opts...)
				if pods, ok := o.(*corev1.PodList); ok {
					kept := pods.Items[:0]
					for i := range pods.Items {
						if !gone[pods.Items[i].Name] {
							kept = append(kept, pods.Items[i])
						}
					}
					pods.Items = kept
				}
				return err
			},
		})
		var live v1alpha1.CommGroup
		if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(w.group), &live); err != nil {
			t.Fatal(err)
		}
		clock := r.Clock.(*clocktesting.FakePassiveClock)
		for _, look := range []struct {
			after       time.Duration
			gets, lists int
		}{
			{0, tc.gets, tc.lists},
			{goneHolds - time.Second, tc.againGets, tc.againLists},
			{time.Second, tc.gets, tc.lists},
		} {
			clock.SetTime(clock.Now().Add(look.after))
			lists = 0
			gets.Store(0)
			s := r.gather(t.Context(), &live)
			if s.ListError != nil || len(s.RunPods) != nodes-tc.deleted || int(gets.Load()) != look.gets ||
				lists != look.lists {
				t.Errorf("%s, after %s: %v, %d pods, %d reads and %d lists; want %d pods, %d reads and %d lists",
					name, look.after, s.ListError, len(s.RunPods), gets.Load(), lists, nodes-tc.deleted,
					look.gets, look.lists)
			}
		}
	}
}

// TestAPodThatCameBackIsReadAgain: that the API server had no such pod says nothing of a later pod of the name.
func TestAPodThatCameBackIsReadAgain(t *testing.T) {
	var gone gonePods
	key := client.ObjectKey{Namespace: "team", Name: "g"}
	unread := func(want bool) {
		t.Helper()
		if got := gone.unread(key, []string{"pod"}, testkit.Now); (len(got) == 1) != want {
			t.Errorf("to be read: %v, want %v", got, want)
		}
	}
	unread(true)
	unread(true)
	gone.add(key, []string{"pod"}, testkit.Now)
	unread(false)
	gone.unread(key, nil, testkit.Now) // the cache has it
	unread(true)
	gone.add(key, []string{"pod"}, testkit.Now.Add(time.Second)) // the clock was set back
	unread(true)
}
