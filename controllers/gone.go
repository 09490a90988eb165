package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/words"
)

// A CommGroup carries no finalizer (docs/decisions/0016-no-finalizer.md): without a manager, as after an uninstall, nobody would
// take it off, and neither the group nor its namespace could ever be deleted. What the garbage collector cannot reach is deleted
// here, once the group is gone; a manager that was away meanwhile leaves run pods to the garbage collector, and marks to the
// MarkSweeper.

// withoutFinalizer takes off the finalizer that managers up to version 0.1 set.
func (r *CommGroupReconciler) withoutFinalizer(ctx context.Context, group *v1alpha1.CommGroup) error {
	if !controllerutil.ContainsFinalizer(group, v1alpha1.Finalizer) {
		return nil
	}
	base := group.DeepCopy()
	controllerutil.RemoveFinalizer(group, v1alpha1.Finalizer)
	return client.IgnoreNotFound(r.Client.Patch(ctx, group, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
}

// cleanUpAfter deletes what a group left behind that is no more. The garbage collector deletes what it owned; here go its
// run pods at once, its marks on nodes, and the account of run pods.
func (r *CommGroupReconciler) cleanUpAfter(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	// The cache may not have the group yet, and its run pods would go for nothing.
	err := r.APIReader.Get(ctx, key, &v1alpha1.CommGroup{})
	if err == nil {
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	if apierrors.IsForbidden(err) && len(r.Config.Namespaces) > 0 {
		return r.withoutAccess(ctx, key)
	}
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("whether commgroup %s is gone: %w", key, err)
	}
	gone := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	errs := []error{r.deleteRunPods(ctx, key), r.liftMarksOf(ctx, key), r.deleteRunAccess(ctx, gone)}
	err = errors.Join(errs...)
	if err != nil {
		err = fmt.Errorf("clean up after commgroup %s: %w", key, err)
	}
	return afterWrites(ctx, err, time.Time{}, r.Clock.Now())
}

// withoutAccess cleans up after a group of a served namespace that the manager may not read. Its rights there went with the
// namespace, or a person took them: only where the namespace itself is gone, which is asked of the API server, the group is too.
func (r *CommGroupReconciler) withoutAccess(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	now := r.Clock.Now()
	namespace, err := namespaceOf(ctx, r.APIReader, key.Namespace)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("whether commgroup %s is gone, which the manager may not read: %w", key, err)
	}
	if namespace == nil {
		if err = r.liftMarksOf(ctx, key); err != nil {
			err = fmt.Errorf("clean up after commgroup %s, whose namespace is gone: %w", key, err)
		}
	}
	return afterWrites(ctx, err, now.Add(accessInterval), now)
}

// namespaceOf asks the API server for the namespace; nil where there is none.
func namespaceOf(ctx context.Context, reader client.Reader, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w; let the manager get it", name, err)
	}
	return namespace, nil
}

// deleteRunPods deletes the run pods of a group that is gone, which would hold GPUs until the garbage collector comes.
func (r *CommGroupReconciler) deleteRunPods(ctx context.Context, key types.NamespacedName) error {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), labelledFor(key), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("run pods: %w", err)
	}
	return errors.Join(atOnce(pods.Items, func(pod corev1.Pod) error {
		if !isOf(&pod, key) || pod.Labels[v1alpha1.LabelRole] != v1alpha1.RoleRun {
			return nil
		}
		return r.deleteExactly(ctx, &pod)
	})...)
}

// deleteExactly deletes the object that was read, and none that was made anew under its name.
func (r *CommGroupReconciler) deleteExactly(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	uid := object.GetUID()
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) {
		return nil // another object of the name by now
	}
	return client.IgnoreNotFound(err)
}

// liftMarksOf lifts the marks that a group of the name made before it was deleted.
func (r *CommGroupReconciler) liftMarksOf(ctx context.Context, key types.NamespacedName) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	var errs []error
	for _, uid := range markersNamed(nodes.Items, key.String()) {
		errs = append(errs, r.liftMarks(ctx, &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}}))
	}
	return errors.Join(errs...)
}

// markersNamed are the UIDs of the groups of that name (namespace/name) that have made statements about nodes, in order.
func markersNamed(nodes []corev1.Node, name string) []string {
	found := map[string]bool{}
	for i := range nodes {
		for key, s := range gating.Statements(nodes[i].Annotations) {
			if uid, ok := gating.UIDOf(key); ok && s.Group == name {
				found[uid] = true
			}
		}
	}
	return words.SortedKeys(found)
}

// labelledFor selects what may be of a group of the name: labels hold a long name cut short, so that isOf has to tell.
func labelledFor(key types.NamespacedName) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(key.Name), v1alpha1.LabelGroupNamespace: key.Namespace}
}

func isOf(object client.Object, key types.NamespacedName) bool {
	return object.GetAnnotations()[v1alpha1.AnnotationGroup] == key.String()
}
