package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/words"
)

const (
	// cleanupDeadline bounds the wait for run pods to go; past it the finalizer is released all the same.
	cleanupDeadline = 2 * time.Minute
	cleanupPoll     = 2 * time.Second
)

// finalize deletes what the group made. For a group that still carries the finalizer of managers up to version 0.1 it waits a
// bounded time until its pods are gone, and releases it. No
// error of the API keeps it from that: a missing CRD or namespace must not leave a CommGroup that cannot be deleted.
func (r *CommGroupReconciler) finalize(ctx context.Context, group *v1alpha1.CommGroup) (ctrl.Result, error) {
	left := r.deleteAll(ctx, group)
	if !controllerutil.ContainsFinalizer(group, v1alpha1.Finalizer) {
		// Someone else holds the group, as foreground deletion does. What it made goes meanwhile.
		if len(left) > 0 {
			return ctrl.Result{RequeueAfter: cleanupPoll}, nil
		}
		return ctrl.Result{}, nil
	}
	deadline := group.DeletionTimestamp.Add(cleanupDeadline)
	now := r.Clock.Now()
	if len(left) > 0 && now.Before(deadline) {
		f := deletingFinding("Waiting, at most 2 minutes, for " + words.SomeNames(left, 5) + " to go.")
		if err := r.writeDeleting(ctx, group, f, now); client.IgnoreNotFound(err) != nil {
			logf.FromContext(ctx).Error(err, "Could not write that the group is being deleted")
		}
		return ctrl.Result{RequeueAfter: min(cleanupPoll, deadline.Sub(now))}, nil
	}
	if len(left) > 0 {
		// A run pod that nobody can end, as on a lost node, loses its right to report with the group.
		if err := r.deleteRunAccess(ctx, group); err != nil {
			logf.FromContext(ctx).Error(err, "Could not delete", "what", "run account")
		}
	}
	base := group.DeepCopy()
	controllerutil.RemoveFinalizer(group, v1alpha1.Finalizer)
	err := r.Client.Patch(ctx, group, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return afterWrites(ctx, fmt.Errorf("release finalizer: %w", err), time.Time{}, now)
	}
	if len(left) > 0 {
		r.Recorder.Eventf(group, nil, corev1.EventTypeWarning, v1alpha1.ReasonCleanupTimedOut, "ReleaseFinalizer",
			"%s", words.Shorten("Still there after 2 minutes: "+words.SomeNames(left, 5)+". The group is released; delete them by hand.", 1000))
	} else {
		r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, v1alpha1.ReasonCleanedUp, "ReleaseFinalizer", "Run pods are gone.")
	}
	return ctrl.Result{}, nil
}

// deleteAll deletes everything that the group made and says what is still there.
func (r *CommGroupReconciler) deleteAll(ctx context.Context, group *v1alpha1.CommGroup) []string {
	log := logf.FromContext(ctx)
	var left []string
	// gone says whether an error means that there is nothing left of the kind.
	gone := func(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
	try := func(what string, err error) {
		if err != nil && !gone(err) {
			log.Error(err, "Could not delete", "what", what)
			left = append(left, fmt.Sprintf("%s (%v)", what, err))
		}
	}
	inGroup := []client.DeleteAllOfOption{client.InNamespace(group.Namespace), ofGroup(group)}
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)

	pods, err := r.liveRunPods(ctx, group)
	try("run pods", err)
	errs := atOnce(pods, func(pod corev1.Pod) error {
		if !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		return r.Client.Delete(ctx, &pod, background)
	})
	for i := range pods {
		name := pods[i].Name
		try("run pod "+name, errs[i])
		left = append(left, "run pod "+name)
	}
	try("marks", r.liftMarks(ctx, group))
	try("ConfigMaps", r.Client.DeleteAllOf(ctx, &corev1.ConfigMap{}, inGroup...))
	if len(pods) == 0 {
		// Only now: a CommTask owns its run pod, and the pod's end is waited for above.
		try("CommTasks", r.Client.DeleteAllOf(ctx, &v1alpha1.CommTask{}, inGroup...))
		try("run account", r.deleteRunAccess(ctx, group))
	}
	return left
}

func (r *CommGroupReconciler) writeDeleting(ctx context.Context, group *v1alpha1.CommGroup, f decision.Finding, now time.Time) error {
	next := setConditions(group.Status.Conditions, map[string]decision.Finding{v1alpha1.ConditionReady: f}, group.Generation, now)
	base := group.DeepCopy()
	group.Status.Conditions = next
	if objects.Same(&base.Status, &group.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, group, client.MergeFrom(base))
}
