package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// cleaner takes away what a group leaves that is deleted, or may no longer be served.
type cleaner struct{ *writer }

const (
	// cleanupDeadline bounds the wait for run pods to go; past it the finalizer is released all the same.
	cleanupDeadline = 2 * time.Minute
	cleanupPoll     = 2 * time.Second
)

// finalize deletes what the group made. For a group that still carries the finalizer of managers up to version 0.1 it
// waits a bounded time until its pods are gone, and releases it. No error of the API keeps it from that: a missing CRD
// or namespace must not leave a CommGroup that cannot be deleted.
func (r *cleaner) finalize(ctx context.Context, group *v1alpha1.CommGroup) (ctrl.Result, error) {
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
		f := commgroup.Deleting("Waiting, at most 2 minutes, for " + explain.Names(left, 5) + " to go.")
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
			"%s", clip.Head("Still there after 2 minutes: "+explain.Names(left, 5)+
				". The group is released; delete them by hand.", 1000))
	} else {
		r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, v1alpha1.ReasonCleanedUp, "ReleaseFinalizer",
			"Run pods are gone.")
	}
	return ctrl.Result{}, nil
}

// deleteAll deletes everything that the group made and says what is still there.
func (r *cleaner) deleteAll(ctx context.Context, group *v1alpha1.CommGroup) []string {
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

func (r *cleaner) writeDeleting(ctx context.Context, group *v1alpha1.CommGroup, f decision.Finding,
	now time.Time) error {
	next := commgroup.SetConditions(group.Status.Conditions, map[string]decision.Finding{v1alpha1.ConditionReady: f},
		group.Generation, now)
	base := group.DeepCopy()
	group.Status.Conditions = next
	if objects.Same(&base.Status, &group.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, group, client.MergeFrom(base))
}

// withoutFinalizer takes off the finalizer that managers up to version 0.1 set.
func (r *cleaner) withoutFinalizer(ctx context.Context, group *v1alpha1.CommGroup) error {
	if !controllerutil.ContainsFinalizer(group, v1alpha1.Finalizer) {
		return nil
	}
	base := group.DeepCopy()
	controllerutil.RemoveFinalizer(group, v1alpha1.Finalizer)
	return client.IgnoreNotFound(r.Client.Patch(ctx, group,
		client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
}

// cleanUpAfter deletes what a group left behind that is no more. The garbage collector deletes what it owned; here go
// its run pods at once, its marks on nodes, and the account of run pods.
func (r *cleaner) cleanUpAfter(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
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

// withoutAccess cleans up after a group of a served namespace that the manager may not read. Its rights there went with
// the namespace, or a user took them: only where the namespace itself is gone, which is asked of the API server, the
// group is too.
func (r *cleaner) withoutAccess(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
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

// deleteRunPods deletes the run pods of a group that is gone, which would hold GPUs until the garbage collector comes.
func (r *cleaner) deleteRunPods(ctx context.Context, key types.NamespacedName) error {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), labelledFor(key),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("run pods: %w", err)
	}
	return errors.Join(atOnce(pods.Items, func(pod corev1.Pod) error {
		if !isOf(&pod, key) || pod.Labels[v1alpha1.LabelRole] != v1alpha1.RoleRun {
			return nil
		}
		return r.deleteExactly(ctx, &pod)
	})...)
}

// liftMarks withdraws all statements of a group that is being deleted, and says what is left.
func (r *cleaner) liftMarks(ctx context.Context, group *v1alpha1.CommGroup) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	key := gating.Key(string(group.UID))
	var marks []*gating.Mark
	var writes []gating.Write
	for i := range nodes.Items {
		node := &nodes.Items[i]
		value, ok := node.Annotations[key]
		if !ok {
			continue
		}
		m := &gating.Mark{Node: node, Why: "the group is deleted"}
		if s, err := gating.ParseStatement(value); err != nil || s.Verdict == v1alpha1.VerdictFail {
			m.Change = gating.Ungated
		}
		marks = append(marks, m)
		writes = append(writes, gating.Write{Node: node, Annotations: map[string]*string{key: nil}})
	}
	var done []*gating.Mark
	var names []string
	var first error
	for i, err := range writeNodes(ctx, r.Client, writes, r.Clock.Now()) {
		if err == nil {
			done = append(done, marks[i])
			continue
		}
		names = append(names, marks[i].Node.Name)
		if first == nil {
			first = err
		}
	}
	r.tellMarks(group, done)
	if first != nil {
		return fmt.Errorf("on nodes %s: %w", explain.Names(names, 3), first)
	}
	return nil
}

// liftMarksOf lifts the marks that a group of the name made before it was deleted.
func (r *cleaner) liftMarksOf(ctx context.Context, key types.NamespacedName) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	var errs []error
	for _, uid := range markersNamed(nodes.Items, key.String()) {
		errs = append(errs, r.liftMarks(ctx, &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name, UID: types.UID(uid)}}))
	}
	return errors.Join(errs...)
}

// markersNamed are the UIDs of the groups of that name (namespace/name) that have made statements about nodes, in
// order.
func markersNamed(nodes []corev1.Node, name string) []string {
	found := map[string]bool{}
	for i := range nodes {
		for key, s := range gating.Statements(nodes[i].Annotations) {
			if uid, ok := gating.UIDOf(key); ok && s.Group == name {
				found[uid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// labelledFor selects what may be of a group of the name: labels hold a long name cut short, so that isOf has to tell.
func labelledFor(key types.NamespacedName) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(key.Name),
		v1alpha1.LabelGroupNamespace: key.Namespace}
}

func isOf(object client.Object, key types.NamespacedName) bool {
	return object.GetAnnotations()[v1alpha1.AnnotationGroup] == key.String()
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
