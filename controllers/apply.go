package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/internal/explain"
)

// writer makes the cluster as decided, and writes what was decided into the status.
type writer struct {
	*observer
	podsRefused refusedPods
}

// errClosureNotWritten: a node's part of the run was to be closed, and its CommTask does not say so yet.
var errClosureNotWritten = errors.New("closure not written")

// closureError says of a closure that was not written whether it rests on a stale read: the node's report may have come
// since, and its pod is gone because of that.
func closureError(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errOldRead, err)
	}
	return fmt.Errorf("%w: %w", errClosureNotWritten, err)
}

// apply makes the cluster as decided, all but the status. It goes on after an error, so that one object that cannot be
// written holds up no other, and first frees what is to be freed. What the API server refuses is kept in the decision,
// to be told.
func (r *writer) apply(ctx context.Context, s *Snapshot, d *Decision) error {
	var errs []error
	try := func(what, name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", what, name, err))
		}
	}
	// told is try for what no condition of its own tells of.
	told := func(what, name string, err error) {
		try(what, name, err)
		add(&d.refused.others, what+" "+name, err)
	}
	ns := s.Group.Namespace
	remove := func(what string, names []string, empty func() client.Object) {
		for i, err := range atOnce(names, func(name string) error { return r.deleteNamed(ctx, empty(), ns, name) }) {
			told("delete "+what, names[i], err)
		}
	}
	remove("run pod", d.DeletePods, func() client.Object { return &corev1.Pod{} })
	remove("commtask", d.DeleteCommTasks, func() client.Object { return &v1alpha1.CommTask{} })
	remove("configmap", d.DeleteConfigMaps, func() client.Object { return &corev1.ConfigMap{} })
	for _, run := range d.DeleteRuns {
		told("delete commrun", run.Name, r.deleteExactly(ctx, run.DeepCopy()))
	}
	told("own commruns of", s.Group.Name, r.ownRequests(ctx, s, d.Status.Run))
	if err := r.writeCommTasks(ctx, s, d); err != nil {
		errs = append(errs, err)
	}
	if len(d.CreatePods) > 0 {
		access := r.ensureRunAccess(ctx, ns)
		told("make the account of run pods in", ns, access)
		if errors.Is(access, errNotOurs) {
			told("create run pods in", ns, r.closeWithoutAccess(ctx, s, d, access))
		} else {
			told("create run pods in", ns, r.createPods(ctx, s, d))
		}
	}
	if d.ConfigMap != nil {
		existing := s.ConfigMap
		if former := s.FormerConfigMap; former != nil && former.Name == d.ConfigMap.Name {
			existing = former
		}
		err := r.writeConfigMap(ctx, existing, d.ConfigMap)
		if err != nil {
			configMapRefused(d, s.Group, s.Now, err)
		}
		try("publish configmap", d.ConfigMap.Name, err)
	}
	told("mark nodes for", s.Group.Name, r.applyNodeMarks(ctx, s, d))
	if run := d.Status.Run; run != nil && run.Phase == v1alpha1.RunPhaseRunning || finishes(s.Group, d) {
		d.refused.note(run, s.Now)
	}
	d.refused.tell(d, s.Group, s.Now)
	return errors.Join(errs...)
}

// writeCommTasks creates and changes CommTasks as decided.
func (r *writer) writeCommTasks(ctx context.Context, s *Snapshot, d *Decision) error {
	var errs []error
	for i, err := range atOnce(d.CommTasks, func(change commrun.Change) error { return r.writeCommTask(ctx, change) }) {
		desired, exists := d.CommTasks[i].Desired, d.CommTasks[i].Current != nil
		d.refused.commTask(desired, exists, err)
		closes := desired.Spec.Run != nil && desired.Spec.Run.Closed != nil
		if err != nil && closes && (!refuses(err) || !commrun.GaveUp(s.Group, desired.Spec.NodeName, exists, s.Now)) {
			err = closureError(err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write commtask %s: %w", desired.Name, err))
		}
	}
	return errors.Join(errs...)
}

// maxWritesAtOnce is how many objects of a kind are written at once: of 12,500 members each waits for its unique id or
// holds GPUs until its pod is deleted, and one after the other would take a minute.
const maxWritesAtOnce = 16

// atOnce calls write for each of all, some at once, and returns their errors in order.
func atOnce[T any](all []T, write func(T) error) []error {
	errs := make([]error, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(maxWritesAtOnce, len(all)) {
		workers.Go(func() {
			for i := range next {
				errs[i] = write(all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
	return errs
}

func (r *writer) deleteNamed(ctx context.Context, object client.Object, namespace, name string) error {
	object.SetNamespace(namespace)
	object.SetName(name)
	return client.IgnoreNotFound(r.Client.Delete(ctx, object,
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// deleteExactly deletes the object that was read, and none that was re-created under its name.
func (r *writer) deleteExactly(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	uid := object.GetUID()
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) {
		return nil // another object of the name by now
	}
	return client.IgnoreNotFound(err)
}

func (r *writer) writeCommTask(ctx context.Context, change commrun.Change) error {
	if change.Current == nil {
		create := func() error {
			return r.Client.Create(ctx, change.Desired.DeepCopy(), client.FieldOwner(v1alpha1.FieldManagerController))
		}
		err := create()
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if cleared, why := r.clearName(ctx, change.Desired, err); !cleared {
			return why
		}
		return create()
	}
	// The optimistic lock keeps a decision on a stale read from undoing a newer one. The status is the agent's: it is
	// left out of the patch.
	desired := change.Desired.DeepCopy()
	desired.TypeMeta, desired.Status = change.Current.TypeMeta, change.Current.Status
	return r.Client.Patch(ctx, desired,
		client.MergeFromWithOptions(change.Current, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(v1alpha1.FieldManagerController))
}

// clearName makes room for a CommTask whose name is taken. One of a group of that name that is gone goes: `kubectl
// delete --cascade=orphan` and a restore without owners leave it, no garbage collector comes for it, and its results
// are of another group. One of this very group is only not in the cache yet, or has lost its label, which it gets back.
func (r *writer) clearName(ctx context.Context, desired *v1alpha1.CommTask, taken error) (cleared bool, err error) {
	var there v1alpha1.CommTask
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(desired), &there); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	collectors := []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}
	others := slices.DeleteFunc(slices.Clone(there.Finalizers), func(f string) bool {
		return slices.Contains(collectors, f)
	})
	switch group := there.Spec.Group; {
	case group.Name != desired.Spec.Group.Name:
		return false, fmt.Errorf("%w: CommTask %s is of CommGroup %q, not of %s: delete it",
			errTaken, there.Name, group.Name, desired.Spec.Group.Name)
	case !there.DeletionTimestamp.IsZero() && len(others) > 0:
		return false, fmt.Errorf("%w: CommTask %s is being deleted and waits for its finalizers %s: remove them",
			errTaken, there.Name, strings.Join(others, ", "))
	case !there.DeletionTimestamp.IsZero():
		return false, taken // the garbage collector is at it
	case group.UID != desired.Spec.Group.UID:
		return true, r.deleteExactly(ctx, &there)
	case there.Labels[v1alpha1.LabelGroupUID] == group.UID:
		return false, taken
	}
	next := there.DeepCopy()
	for key, value := range desired.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	return false, r.writeCommTask(ctx, commrun.Change{Current: &there, Desired: next})
}

func (r *writer) writeConfigMap(ctx context.Context, existing, desired *corev1.ConfigMap) error {
	if existing == nil {
		return r.Client.Create(ctx, desired.DeepCopy(), client.FieldOwner(v1alpha1.FieldManagerController))
	}
	next := existing.DeepCopy()
	next.Data, next.BinaryData = desired.Data, nil
	for key, value := range desired.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	for key, value := range desired.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	// An update carries the version that was read: a ConfigMap that changed hands meanwhile is not overwritten.
	return r.Client.Update(ctx, next, client.FieldOwner(v1alpha1.FieldManagerController))
}

// serverSideApply writes only the fields that the controller has an opinion on.
func (r *writer) serverSideApply(ctx context.Context, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(v1alpha1.FieldManagerController), client.ForceOwnership)
}

// writeStatus is the one status write of a reconcile; what did not change is not written. The update carries the
// version that was read, so that a decision on a stale read is refused.
func (r *writer) writeStatus(ctx context.Context, group *v1alpha1.CommGroup, d *Decision) error {
	next := group.DeepCopy()
	if next.Status = d.Status.GroupStatus(); !objects.Same(&group.Status, &next.Status) {
		if err := r.Client.Status().Update(ctx, next, client.FieldOwner(v1alpha1.FieldManagerController)); err != nil {
			return fmt.Errorf("status of commgroup %s/%s: %w", group.Namespace, group.Name, err)
		}
	}
	r.send(group, d.Events)
	return nil
}

func (r *writer) send(group *v1alpha1.CommGroup, events []decision.Event) {
	for _, e := range events {
		kind := corev1.EventTypeNormal
		if e.Warning {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(group, nil, kind, e.Reason, e.Action, "%s", explain.OneLine(e.Note))
	}
}
