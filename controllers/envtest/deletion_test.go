package envtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

func TestDeletionLeavesNothing(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.start(w.nodes[1])
	w.must(admin.Delete(w.ctx, w.group))
	w.settle()
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonDeleting, "run pod")
	if len(w.monitors()) != 0 {
		t.Error("monitors go on")
	}
	w.endPods()
	w.settle()
	w.wantGone()
	if sent := w.sentEvents(); !slices.ContainsFunc(sent, func(e string) bool { return strings.HasPrefix(e, "Normal CleanedUp") }) {
		t.Errorf("events %q", sent)
	}
}

// wantGone checks that nothing of the group is left.
func (w *world) wantGone() {
	w.Helper()
	if err := admin.Get(w.ctx, w.request().NamespacedName, &v1alpha1.CommGroup{}); !apierrors.IsNotFound(err) {
		w.Errorf("the CommGroup is still there: %v", err)
	}
	var nodes v1alpha1.CommNodeList
	w.must(admin.List(w.ctx, &nodes, client.InNamespace(w.ns)))
	var bindings rbacv1.RoleBindingList
	w.must(admin.List(w.ctx, &bindings, client.InNamespace(w.ns)))
	if len(nodes.Items)+len(bindings.Items)+len(w.pods())+len(w.monitors()) != 0 || w.configMap() != nil {
		w.Errorf("left over: %d CommNodes, %d RoleBindings, %d pods, %d DaemonSets, ConfigMap %v",
			len(nodes.Items), len(bindings.Items), len(w.pods()), len(w.monitors()), w.configMap())
	}
}

func TestDeletionIsBounded(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.start(w.nodes[0]) // on a node that never ends it
	w.must(admin.Delete(w.ctx, w.group))
	w.settle()
	w.pass(3 * time.Minute)
	w.settle()
	if err := admin.Get(w.ctx, w.request().NamespacedName, &v1alpha1.CommGroup{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the finalizer was not released: %v", err)
	}
	sent := w.sentEvents()
	if !slices.ContainsFunc(sent, func(e string) bool {
		return strings.HasPrefix(e, "Warning CleanupTimedOut") && strings.Contains(e, "run pod")
	}) {
		t.Errorf("events %q", sent)
	}
}

func TestDeletionKeepsTheAccountForOtherGroups(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	other := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.ns}, Spec: w.group.Spec}
	w.must(admin.Create(w.ctx, other))
	w.must(admin.Delete(w.ctx, w.group))
	w.settle()
	w.settle()
	if err := admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: controllers.RunRoleBinding}, &rbacv1.RoleBinding{}); err != nil {
		t.Errorf("the other group's account: %v", err)
	}
	w.must(admin.Delete(w.ctx, other))
}
