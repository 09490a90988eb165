package controllers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestRefusedPodsAreNotSentAgainAtOnce: pods that the API server refuses are listed and sent once a minute, however
// often the group is reconciled; what refuses every pod of the namespace is met by as many as are sent at once. A pod
// that ends, another run, or an answer that ends by itself has them sent again.
func TestRefusedPodsAreNotSentAgainAtOnce(t *testing.T) {
	const nodes = 3 * maxWritesAtOnce
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("violates PodSecurity"))
	away := apierrors.NewInternalError(errors.New("failed calling webhook"))
	second := func(s *Snapshot) { s.Now = s.Now.Add(time.Second) }
	for name, tc := range map[string]struct {
		stage  bool
		err    error
		change func(*Snapshot)
		// sent at first and at most, again after the change.
		sent  int
		again bool
	}{
		"nodes, a quota":       {false, errQuota, second, maxWritesAtOnce, false},
		"nodes, a webhook":     {false, away, second, maxWritesAtOnce, false},
		"the stage, a quota":   {true, errQuota, second, maxWritesAtOnce, false},
		"the stage, a webhook": {true, away, second, maxWritesAtOnce, false},
		"the stage, a policy":  {true, forbidden, second, nodes, false},
		"just before the minute": {true, errQuota, func(s *Snapshot) { s.Now = s.Now.Add(refusedRetry - time.Second) },
			maxWritesAtOnce, false},
		"after a minute": {true, errQuota, func(s *Snapshot) { s.Now = s.Now.Add(refusedRetry) },
			maxWritesAtOnce, true},
		"the clock was set back": {true, errQuota, func(s *Snapshot) { s.Now = s.Now.Add(-time.Second) },
			maxWritesAtOnce, true},
		"another run": {true, errQuota, func(s *Snapshot) { s.Group.Status.Run.ID = "1-2" },
			maxWritesAtOnce, true},
		"a pod of the group ended":   {true, errQuota, func(s *Snapshot) { s.RunPods = nil }, maxWritesAtOnce, true},
		"what ends by itself":        {true, apierrors.NewTooManyRequests("later", 1), second, nodes, true},
		"nodes, what ends by itself": {false, errors.New("connection refused"), second, nodes, true},
	} {
		t.Run(name, func(t *testing.T) {
			group := testkit.Group()
			group.Spec.Run.MaxParallelNodes = 2 * nodes
			w := newWorld(group, testkit.Nodes(nodes+1))
			w.settle()
			w.reportFacts()
			w.settle()
			kept := w.podOn(w.nodes[nodes].Name)
			w.pods = map[string]*corev1.Pod{kept.Name: kept}
			r, cache := managerOf(t, &groupWorld{world: w})
			var lists, creates atomic.Int32
			r.APIReader = interceptor.NewClient(cache.api.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, o client.ObjectList,
					opts ...client.ListOption) error {
					lists.Add(1)
					return c.List(ctx, o, opts...)
				},
			})
			failWrites(r, func(verb string, o client.Object) error {
				if _, ok := o.(*corev1.Pod); ok && verb == "create" {
					creates.Add(1)
					return tc.err
				}
				return nil
			})
			s := &Snapshot{Now: w.now, Group: w.group.DeepCopy(), RunPods: []corev1.Pod{*kept}}
			create := func() (int, int, error) {
				var all v1alpha1.CommTaskList
				if err := cache.api.List(t.Context(), &all); err != nil {
					t.Fatal(err)
				}
				s.CommTasks = all.Items
				var d Decision
				for i := range nodes {
					ct := w.commTask(w.nodes[i].Name)
					pod := runpod.ForNode(s.Group, ct, s.Group.Status.Run.ID, testConfig.pods())
					if tc.stage {
						pod = runpod.ForGroup(s.Group, ct, s.Group.Status.Run.ID, 900, testConfig.pods())
					}
					d.CreatePods = append(d.CreatePods, pod)
				}
				lists.Store(0)
				creates.Store(0)
				err := r.createPods(t.Context(), s, &d)
				return int(lists.Load()), int(creates.Load()), err
			}
			listed, sent, err := create()
			if listed != 1 || sent == 0 || sent > tc.sent || tc.sent == nodes && sent < nodes {
				t.Errorf("%d lists, %d pods sent; want 1 list and %d pods at most", listed, sent, tc.sent)
			}
			tc.change(s)
			listed, sent, again := create()
			if want := tc.again; (listed > 0) != want || (sent > 0) != want {
				t.Errorf("then %d lists and %d pods sent; want any: %v", listed, sent, want)
			}
			if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() && !tc.again {
				t.Errorf("first %v\nthen %v", err, again)
			}
			waiting := 0
			for i := range s.CommTasks {
				if a := s.CommTasks[i].Spec.Run; a != nil && a.Waiting != nil {
					waiting++
				}
			}
			if noted := !tc.stage && refuses(tc.err); noted && waiting != nodes || !noted && waiting > 0 {
				t.Errorf("%d CommTasks say that they wait", waiting)
			}
		})
	}
}
