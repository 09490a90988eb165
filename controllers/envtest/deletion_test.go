package envtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

// TestDeletionLeavesNothing: a group goes at once, manager or not, and what it made goes after it.
func TestDeletionLeavesNothing(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.start(w.nodes[1])
	w.wantOwners()
	w.must(admin.Delete(w.ctx, w.group))
	w.wantNoGroup()
	w.reconcileGone()
	w.endPods()
	w.collectGarbage()
	w.reconcileGone()
	w.wantGone()
}

// reconcileGone reconciles a group that is no more.
func (w *world) reconcileGone() {
	w.Helper()
	_, err := w.r.Reconcile(w.ctx, w.request())
	w.must(err)
}

func (w *world) wantNoGroup() {
	w.Helper()
	if err := admin.Get(w.ctx, w.request().NamespacedName, &v1alpha1.CommGroup{}); !apierrors.IsNotFound(err) {
		w.Fatalf("the CommGroup is still there: %v", err)
	}
}

// wantOwners checks that the garbage collector, which envtest lacks, reaches all that the manager leaves to it.
func (w *world) wantOwners() {
	w.Helper()
	owned := func(object client.Object, uid types.UID) {
		if !slices.ContainsFunc(object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			return ref.UID == uid
		}) {
			w.Errorf("%T %s is not owned by %s: %v", object, object.GetName(), uid, object.GetOwnerReferences())
		}
	}
	var nodes v1alpha1.CommTaskList
	w.must(admin.List(w.ctx, &nodes, client.InNamespace(w.ns)))
	byName := map[string]types.UID{}
	for i := range nodes.Items {
		owned(&nodes.Items[i], w.group.UID)
		byName[nodes.Items[i].Name] = nodes.Items[i].UID
	}
	for _, pod := range w.pods() {
		owned(&pod, byName[pod.OwnerReferences[0].Name])
	}
	if cm := w.configMap(); cm != nil {
		owned(cm, w.group.UID)
	}
}

// collectGarbage does what the garbage collector would for a group that is gone.
func (w *world) collectGarbage() {
	w.Helper()
	for _, kind := range []client.Object{&v1alpha1.CommTask{}, &corev1.ConfigMap{}} {
		w.must(admin.DeleteAllOf(w.ctx, kind, client.InNamespace(w.ns),
			client.MatchingLabels{v1alpha1.LabelGroupUID: string(w.group.UID)}))
	}
}

// TestForegroundDeletion: a group that something else holds makes nothing new, and what it made goes.
func TestForegroundDeletion(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.start(w.nodes[0])
	w.must(admin.Delete(w.ctx, w.group, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.settle()
	w.endPods()
	w.settle()
	if n := len(w.pods()); n != 0 {
		t.Errorf("%d pods are left over", n)
	}
	w.refresh()
	w.update(func(g *v1alpha1.CommGroup) { g.Finalizers = nil }) // the garbage collector's part
	w.reconcileGone()
	w.wantGone()
}

// TestOldFinalizer: a group of an earlier version is freed of its finalizer while it lives, so that it never waits for
// a manager.
func TestOldFinalizer(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.update(func(g *v1alpha1.CommGroup) { g.Finalizers = []string{v1alpha1.Finalizer} })
	w.settle()
	w.refresh()
	if len(w.group.Finalizers) != 0 {
		t.Errorf("finalizers are %v", w.group.Finalizers)
	}
	w.must(admin.Delete(w.ctx, w.group))
	w.wantNoGroup()
}

// TestDeletionOfAnOldGroup: one that was deleted with the earlier version's finalizer on it is cleaned up and released.
func TestDeletionOfAnOldGroup(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.start(w.nodes[1])
	w.update(func(g *v1alpha1.CommGroup) { g.Finalizers = []string{v1alpha1.Finalizer} })
	w.must(admin.Delete(w.ctx, w.group))
	w.settle()
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonDeleting, "run pod")
	w.endPods()
	w.settle()
	w.wantGone()
	if sent := w.sentEvents(); !slices.ContainsFunc(sent, func(e string) bool {
		return strings.HasPrefix(e, "Normal CleanedUp")
	}) {
		t.Errorf("events %q", sent)
	}
}

// wantGone checks that nothing of the group is left.
func (w *world) wantGone() {
	w.Helper()
	if err := admin.Get(w.ctx, w.request().NamespacedName, &v1alpha1.CommGroup{}); !apierrors.IsNotFound(err) {
		w.Errorf("the CommGroup is still there: %v", err)
	}
	var nodes v1alpha1.CommTaskList
	w.must(admin.List(w.ctx, &nodes, client.InNamespace(w.ns)))
	var bindings rbacv1.RoleBindingList
	w.must(admin.List(w.ctx, &bindings, client.InNamespace(w.ns)))
	if len(nodes.Items)+len(bindings.Items)+len(w.pods()) != 0 || w.configMap() != nil {
		w.Errorf("left over: %d CommTasks, %d RoleBindings, %d pods, ConfigMap %v",
			len(nodes.Items), len(bindings.Items), len(w.pods()), w.configMap())
	}
}

func TestDeletionIsBounded(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.start(w.nodes[0]) // on a node that never ends it
	w.update(func(g *v1alpha1.CommGroup) { g.Finalizers = []string{v1alpha1.Finalizer} })
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
	if err := admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: runpod.RoleBinding},
		&rbacv1.RoleBinding{}); err != nil {
		t.Errorf("the other group's account: %v", err)
	}
	w.must(admin.Delete(w.ctx, other))
}
