package controllers

import (
	"context"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/internal/state"
)

// SetupWithManager wires the reconciler's watches. Each ignores what cannot change a decision.
func (r *CommGroupReconciler) SetupWithManager(mgr ctrl.Manager, maxConcurrent int) error {
	r.pace.slowWorkers = slowWorkers(maxConcurrent)
	sweeper := &MarkSweeper{Client: r.Client, APIReader: r.APIReader, Namespaces: r.Config.Namespaces,
		Access: r.Access, Now: r.Clock.Now, Tick: time.NewTicker(sweepInterval).C,
		Report: func(err error) { mgr.GetLogger().Error(err, "Could not sweep gating's marks; trying again later") }}
	if err := mgr.Add(sweeper); err != nil {
		return err
	}
	if r.Access != nil {
		if err := mgr.Add(r.Access); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.CommGroup{}, builder.WithPredicates(updates(groupChanged))).
		Owns(&v1alpha1.CommTask{}, builder.WithPredicates(updates(commTaskChanged))).
		Owns(&corev1.ConfigMap{}).
		Watches(&v1alpha1.CommRun{}, handler.EnqueueRequestsFromMapFunc(r.groupOfCommRun),
			builder.WithPredicates(updates(commRunChanged))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(groupOfRunPod)).
		Watches(&v1alpha1.CommNode{}, handler.EnqueueRequestsFromMapFunc(r.groupsOfCommNode),
			builder.WithPredicates(updates(r.commNodeChanged))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.groupsOfNode),
			builder.WithPredicates(updates(nodeChanged))).
		WithOptions(controllerOptions(maxConcurrent)).
		Complete(reconcile.Func(r.paced))
}

const (
	// firstErrorRetry and maxErrorRetry bound the back-off after an error. While the API server cannot be reached,
	// deadlines are seen this much late at most.
	firstErrorRetry = 10 * time.Millisecond
	maxErrorRetry   = 30 * time.Second
	// reconcileDeadline ends a reconcile whose requests the API server does not answer, which would hold its worker for
	// ever. To write the objects of 12,500 members for the first time takes less.
	reconcileDeadline = 2 * time.Minute
	// cacheDeadline ends a manager whose cache does not fill. A shorter outage of the API server is no reason to.
	cacheDeadline = 10 * time.Minute
)

// controllerOptions are those of the queue and its workers.
func controllerOptions(maxConcurrent int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: maxConcurrent,
		ReconciliationTimeout:   reconcileDeadline,
		CacheSyncTimeout:        cacheDeadline,
		// First in, first out. controller-runtime's priority queue puts objects of the initial list, and all that a
		// reconcile of them requeues, behind each event: where other groups always have one, a group that only the
		// initial list named would never be reconciled.
		UsePriorityQueue: ptr.To(false),
		// Without the token bucket of the default, which all groups share: after an outage it would hold back each by
		// the errors of all.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstErrorRetry,
			maxErrorRetry),
	}
}

// conflictPause lets the cache see what the other writer wrote.
const conflictPause = 200 * time.Millisecond

// retryConflict asks for another attempt where another writer came first. That is how optimistic locks work and no
// error: logged as one, with a stack trace, it would alarm whoever reads the manager's log. An error that came along
// with the conflict shows at the next attempt.
func retryConflict(ctx context.Context, result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		logf.FromContext(ctx).V(1).Info("Another writer came first; trying again", "conflict", err.Error())
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

// updates lets creations and deletions pass, and of the updates those that changed says matter.
func updates(changed func(before, after client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return changed(e.ObjectOld, e.ObjectNew) }}
}

func generationChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() ||
		!before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp())
}

// groupChanged ignores the controller's own status writes, but for a run that starts or ends: its next step follows.
func groupChanged(before, after client.Object) bool {
	a, okA := before.(*v1alpha1.CommGroup)
	b, okB := after.(*v1alpha1.CommGroup)
	if !okA || !okB || generationChanged(before, after) || !maps.Equal(a.Annotations, b.Annotations) {
		return true
	}
	if a.Status.Run == nil || b.Status.Run == nil {
		return a.Status.Run != b.Status.Run
	}
	return a.Status.Run.ID != b.Status.Run.ID || a.Status.Run.Phase != b.Status.Run.Phase
}

// commRunChanged ignores the controller's own status writes, but for a run that starts or ends, or whose group's stage
// has taken a step: its next step follows.
func commRunChanged(before, after client.Object) bool {
	a, okA := before.(*v1alpha1.CommRun)
	b, okB := after.(*v1alpha1.CommRun)
	return !okA || !okB || generationChanged(before, after) || a.Status.ID != b.Status.ID ||
		a.Status.Phase != b.Status.Phase || spanMoved(a.Status.Span, b.Status.Span)
}

// spanMoved says whether the group's stage has taken a step: tasks and pods follow from the written status.
func spanMoved(a, b *v1alpha1.SpanStatus) bool {
	if a == nil || b == nil {
		return a != b
	}
	open := func(s *v1alpha1.SpanStatus) (n int) {
		for i := range s.Tests {
			if s.Tests[i].Verdict == "" {
				n++
			}
		}
		return n
	}
	return a.Stage != b.Stage || a.Present != b.Present || len(a.Tests) != len(b.Tests) || open(a) != open(b)
}

// commTaskChanged ignores writes that change nothing but the managed fields.
func commTaskChanged(before, after client.Object) bool {
	a, okA := before.(*v1alpha1.CommTask)
	b, okB := after.(*v1alpha1.CommTask)
	return !okA || !okB || generationChanged(before, after) || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Status, b.Status)
}

// commNodeChanged ignores a report that only confirms one that still holds: the reconciler wakes when a report runs
// out. Once the earlier one has run out, the same facts again are news: the node's monitor is back. Sums of error
// counters alone are none: the group looks at problems only, and on thousands of nodes some memory always corrects
// something.
func (r *CommGroupReconciler) commNodeChanged(before, after client.Object) bool {
	a, okA := before.(*v1alpha1.CommNode)
	b, okB := after.(*v1alpha1.CommNode)
	if !okA || !okB || generationChanged(before, after) {
		return true
	}
	if (nodefacts.ClockSkew(a) != 0) != (nodefacts.ClockSkew(b) != 0) {
		return true
	}
	x, y := a.Status, b.Status
	if x.Facts != nil && y.Facts != nil && nodefacts.Hold(a, r.Clock.Now()) {
		confirmed := *x.Facts
		confirmed.ObservedTime, confirmed.RAS = y.Facts.ObservedTime, y.Facts.RAS
		confirmed.XGMI.UncorrectableErrors, confirmed.XGMI.CorrectableErrors = y.Facts.XGMI.UncorrectableErrors,
			y.Facts.XGMI.CorrectableErrors
		x.Facts = &confirmed
	}
	return !equality.Semantic.DeepEqual(x, y)
}

// nodeChanged ignores heartbeats: labels, existence, the boot, the node's resources and gating's marks decide.
func nodeChanged(before, after client.Object) bool {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	return !okA || !okB || !maps.Equal(a.Labels, b.Labels) || a.UID != b.UID ||
		a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() || gating.Changed(a, b) ||
		!equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) ||
		!equality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity)
}

// groupOfRunPod is the group of a run pod. Anybody can give a pod labels and annotations; only one in the group's own
// namespace that a CommTask of the group controls is the controller's, and wakes the group.
func groupOfRunPod(_ context.Context, pod client.Object) []reconcile.Request {
	group, ok := groupAnnotation(pod)
	owner := metav1.GetControllerOf(pod)
	if !ok || group.Namespace != pod.GetNamespace() || owner == nil || owner.Kind != "CommTask" ||
		owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	// CommTaskName puts the group first and shortens what is longer than 200 bytes. The node is left out: a pod's label
	// may shorten it.
	const whole = 180
	if prefix := group.Name + "."; !strings.HasPrefix(owner.Name, prefix[:min(len(prefix), whole)]) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: group}}
}

// groupOfCommRun is the group that a CommRun names, which it may ask for a run.
func (r *CommGroupReconciler) groupOfCommRun(ctx context.Context, object client.Object) []reconcile.Request {
	run, ok := object.(*v1alpha1.CommRun)
	if !ok {
		return nil
	}
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Spec.GroupName}
	err := r.Client.Get(ctx, key, &v1alpha1.CommGroup{})
	if apierrors.IsNotFound(err) && state.GroupOf(run) == "" && state.Pending(run) {
		err = r.APIReader.Get(ctx, key, &v1alpha1.CommGroup{}) // the cache may not have it yet
		if apierrors.IsNotFound(err) {
			r.Recorder.Eventf(run, nil, corev1.EventTypeWarning, v1alpha1.ReasonNoCommGroup, "FindCommGroup",
				"There is no CommGroup %s in namespace %s, so that nothing runs. Create it, or delete this "+
					"CommRun and create one whose spec.groupName is one of `kubectl get commgroups -n %s`.",
				key.Name, key.Namespace, key.Namespace)
		}
	}
	if err != nil {
		return nil // the group wakes itself once it is there
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func groupAnnotation(object client.Object) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(object.GetAnnotations()[v1alpha1.AnnotationGroup], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// groupsOfNode are the groups that the node is or may become a member of.
func (r *CommGroupReconciler) groupsOfNode(ctx context.Context, object client.Object) []reconcile.Request {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	var groups v1alpha1.CommGroupList
	if err := r.Client.List(ctx, &groups); err != nil {
		logf.FromContext(ctx).Error(err, "Could not list CommGroups for a changed node", "node", node.Name)
		return nil
	}
	var out []reconcile.Request
	for i := range groups.Items {
		group := &groups.Items[i]
		if members, err := membership.Select(&group.Spec, []corev1.Node{*node}); err == nil && len(members) == 0 &&
			node.Annotations[gating.Key(string(group.UID))] == "" {
			continue
		}
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(group)})
	}
	return out
}

// groupsOfCommNode are the groups that the CommNode's node is a member of.
func (r *CommGroupReconciler) groupsOfCommNode(ctx context.Context, object client.Object) []reconcile.Request {
	var node corev1.Node
	if err := r.Client.Get(ctx, client.ObjectKey{Name: object.GetName()}, &node); err != nil {
		return nil // without its Node it is no member
	}
	return r.groupsOfNode(ctx, &node)
}
