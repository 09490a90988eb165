package envtest

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

// TestNamespacedCache: a manager that serves some namespaces neither reads nor watches CommGroups of others; CommNodes,
// which are in no namespace, it has all the same.
func TestNamespacedCache(t *testing.T) {
	served, other := newWorld(t, 1, nil), newWorld(t, 1, nil)
	served.reportAllFacts()
	options := controllers.CacheOptions(served.ns)
	options.Scheme = scheme
	c, err := cache.New(restConfig, options)
	served.must(err)
	go func() {
		if err := c.Start(served.ctx); err != nil {
			t.Errorf("cache: %v", err)
		}
	}()
	if !c.WaitForCacheSync(served.ctx) { // else it may be asked before it has started
		t.Fatal("the cache did not start")
	}
	var groups v1alpha1.CommGroupList
	served.must(c.List(served.ctx, &groups))
	if len(groups.Items) != 1 || groups.Items[0].Namespace != served.ns {
		t.Errorf("the cache has %d groups, expected that of %s alone", len(groups.Items), served.ns)
	}
	if err := c.Get(served.ctx, other.request().NamespacedName, &v1alpha1.CommGroup{}); err == nil {
		t.Errorf("the cache gave a group of %s, which is not served", other.ns)
	}
	var cn v1alpha1.CommNode
	if err := c.Get(served.ctx, client.ObjectKey{Name: served.nodes[0]}, &cn); err != nil || cn.Status.Facts == nil {
		t.Errorf("CommNode in the cache: %v, facts %v", err, cn.Status.Facts)
	}
}

// TestNoLongerServed: where a namespace is served no longer, its CommGroups are left as they are.
func TestNoLongerServed(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.settle()
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Members.MinMembers = 2 })
	before := w.fingerprint()
	w.r.Config.Namespaces = []string{"another"}
	w.reconcileGone()
	if after := w.fingerprint(); after != before {
		t.Errorf("a group that is not served was written:\n%s, before:\n%s", after, before)
	}
}
