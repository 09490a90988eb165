package controllers

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestReadsOfMissingPodsAreBounded: a few awaited pods that the cache lacks are read by name; many are listed, page by page. Either way
// what the API server has is in the snapshot.
func TestReadsOfMissingPodsAreBounded(t *testing.T) {
	const nodes = maxPodGets + 10
	for name, tc := range map[string]struct {
		uncached, deleted int
		gets, lists       int
	}{
		"none":                   {0, 0, 0, 0},
		"one is gone":            {0, 1, 1, 0},
		"the cache lags":         {3, 0, 3, 0},
		"both":                   {3, 2, 5, 0},
		"as many as read singly": {maxPodGets, 0, maxPodGets, 0},
		"more":                   {maxPodGets + 1, 0, 0, 1},
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
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
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
		s := r.gather(t.Context(), &live)
		if s.ListError != nil || len(s.RunPods) != nodes-tc.deleted || int(gets.Load()) != tc.gets || lists != tc.lists {
			t.Errorf("%s: %v, %d pods, %d reads and %d lists; want %d pods, %d reads and %d lists", name, s.ListError, len(s.RunPods), gets.Load(), lists,
				nodes-tc.deleted, tc.gets, tc.lists)
		}
	}
}
