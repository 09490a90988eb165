package envtest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

// TestNamespacedCache: a manager that serves some namespaces neither reads nor watches CommGroups of others, and its monitors' namespace
// is watched for them all the same.
func TestNamespacedCache(t *testing.T) {
	served, other := newWorld(t, 1, nil), newWorld(t, 1, nil)
	served.settle()
	if len(served.monitors()) != 1 {
		t.Fatal("the served group has no monitors")
	}
	options := controllers.CacheOptions(operatorNamespace, served.ns)
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
	var monitors appsv1.DaemonSetList
	served.must(c.List(served.ctx, &monitors, client.InNamespace(operatorNamespace)))
	found := false
	for i := range monitors.Items {
		found = found || monitors.Items[i].Name == served.monitors()[0].Name
	}
	if !found {
		t.Error("the cache lacks the monitors in the operator's namespace")
	}
}

// TestNoLongerServed: where a namespace is served no longer, its monitors go, and its CommGroups are left as they are.
func TestNoLongerServed(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.settle()
	if len(w.monitors()) != 1 {
		t.Fatal("the group has no monitors")
	}
	w.refresh()
	before := w.group.ResourceVersion
	w.r.Config.Namespaces = []string{"another"}
	w.reconcileGone()
	w.refresh()
	if len(w.monitors()) != 0 || w.group.ResourceVersion != before {
		t.Errorf("there are %d monitors, and the group was written: %v", len(w.monitors()), w.group.ResourceVersion != before)
	}
}
