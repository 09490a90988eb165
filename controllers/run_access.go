package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

// errNotOurs: an account or binding of the run pods' name is someone else's. Run pods would have whatever rights it
// has, so none are made, and it is neither changed nor deleted.
var errNotOurs = errors.New("it lacks the label " + objects.ManagedByLabel + "=" + objects.ManagedBy +
	", so it is not this operator's")

// ensureRunAccess gives the namespace's run pods an account that may write its CommTasks' status, and nothing else.
// All groups of a namespace share it.
func (r *writer) ensureRunAccess(ctx context.Context, namespace string) error {
	labels := map[string]string{objects.ManagedByLabel: objects.ManagedBy, runpod.NameLabel: "commgroup-run"}
	account := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: runpod.ServiceAccount, Namespace: namespace, Labels: labels},
		// Run pods ask for the token themselves; another pod that runs as this account gets none unasked.
		AutomountServiceAccountToken: ptr.To(false),
	}
	binding := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: runpod.RoleBinding, Namespace: namespace, Labels: labels},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: runpod.ClusterRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: runpod.ServiceAccount,
			Namespace: namespace}},
	}
	key := types.NamespacedName{Namespace: namespace, Name: runpod.ServiceAccount}
	var have corev1.ServiceAccount
	switch err := r.Client.Get(ctx, key, &have); {
	case apierrors.IsNotFound(err):
		if err := r.serverSideApply(ctx, account); err != nil {
			return err
		}
	case err != nil:
		return err
	case !ours(&have):
		return fmt.Errorf("ServiceAccount %s/%s exists: %w", namespace, have.Name, errNotOurs)
	}
	key.Name = runpod.RoleBinding
	var bound rbacv1.RoleBinding
	switch err := r.Client.Get(ctx, key, &bound); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !ours(&bound):
		return fmt.Errorf("RoleBinding %s/%s exists: %w", namespace, bound.Name, errNotOurs)
	case equality.Semantic.DeepEqual(bound.RoleRef, binding.RoleRef) &&
		equality.Semantic.DeepEqual(bound.Subjects, binding.Subjects):
		return nil
	}
	return r.serverSideApply(ctx, binding)
}

func ours(object client.Object) bool {
	return object.GetLabels()[objects.ManagedByLabel] == objects.ManagedBy
}

// closeWithoutAccess ends the nodes' part in the run that have no pod since there is no account for them: to try again
// would not help until a user has acted. The group's stage is held by its deadline for members.
func (r *writer) closeWithoutAccess(ctx context.Context, s *Snapshot, d *Decision, cause error) error {
	byUID := make(map[types.UID]*v1alpha1.CommTask, len(s.CommTasks))
	for i := range s.CommTasks {
		byUID[s.CommTasks[i].UID] = &s.CommTasks[i]
	}
	var closed []*v1alpha1.CommTask
	for _, pod := range d.CreatePods {
		if ct := byUID[pod.OwnerReferences[0].UID]; !ofGroupStage(pod) && ct != nil && ct.Spec.Run != nil {
			closed = append(closed, ct)
		}
	}
	errs := atOnce(closed, func(ct *v1alpha1.CommTask) error {
		return r.closeNotStarted(ctx, ct, s,
			fmt.Sprintf("No run pod for node %s: %v. Rename or delete what has the run pods' name, then %s.",
				ct.Spec.NodeName, cause, v1alpha1.AskRun(ct.Namespace, ct.Spec.Group.Name)))
	})
	for i, err := range errs {
		d.refused.commTask(closed[i], true, err)
	}
	return errors.Join(errs...)
}

// deleteRunAccess removes the account of run pods unless another group of the namespace needs it, or it is not this
// operator's.
func (r *writer) deleteRunAccess(ctx context.Context, group *v1alpha1.CommGroup) error {
	var groups v1alpha1.CommGroupList
	if err := r.Client.List(ctx, &groups, client.InNamespace(group.Namespace)); err != nil {
		return err
	}
	for i := range groups.Items {
		if other := &groups.Items[i]; other.UID != group.UID && other.DeletionTimestamp.IsZero() {
			return nil
		}
	}
	// The right goes before the account: a binding to an account that is gone would serve the next one of its name.
	for _, object := range []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: runpod.RoleBinding}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: runpod.ServiceAccount}},
	} {
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: group.Namespace, Name: object.GetName()}, object)
		if apierrors.IsNotFound(err) || err == nil && !ours(object) {
			continue
		}
		if err == nil {
			uid := object.GetUID()
			err = client.IgnoreNotFound(r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
