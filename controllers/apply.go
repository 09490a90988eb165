package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/words"
)

// errClosureNotWritten: a node's part of the run was to be closed, and its CommTask does not say so yet.
var errClosureNotWritten = errors.New("closure not written")

// errOldRead: what was read is not what the API server has, and what was concluded from it may not be told.
var errOldRead = errors.New("what was read is old")

// oldReadPoll is when to look again whether the cache has the group as the API server has it.
const oldReadPoll = 250 * time.Millisecond

// closureError says of a closure that was not written whether it rests on an old read: the node's report may have come since, and its
// pod is gone because of that.
func closureError(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errOldRead, err)
	}
	return fmt.Errorf("%w: %w", errClosureNotWritten, err)
}

// takesAway says whether the decision deletes anything.
func (d *Decision) takesAway() bool {
	return len(d.DeletePods)+len(d.DeleteCommTasks)+len(d.DeleteConfigMaps)+len(d.DeleteRuns) > 0
}

// turnsRun says whether the decision starts a run, or ends one that goes on. The CommRuns that it rests on may be newer in the cache than
// the CommGroup is: by an older spec, the present run would be aborted.
func turnsRun(s *Snapshot, d *Decision) bool {
	was, is := s.Group.Status.Run, d.Status.Run
	return is != nil && (was == nil || was.ID != is.ID || was.Phase != is.Phase)
}

// upToDate asks the API itself whether the group is still as it was read. Writes carry the version that they rest on; a delete is of a
// name alone, and rests on the group's status. A manager whose cache lags, or that was paused while another took over, would delete
// pods of the present run, and their nodes would be named as guilty.
func (r *CommGroupReconciler) upToDate(ctx context.Context, s *Snapshot) error {
	read := map[string]client.Object{"CommGroup": s.Stored}
	if s.StoredRun != nil {
		read["CommRun"] = s.StoredRun
	}
	for kind, object := range read {
		var live metav1.PartialObjectMetadata
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(object), &live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look whether the %s that was read is up to date: %w", kind, err)
		} else if err != nil || live.UID != object.GetUID() || live.ResourceVersion != object.GetResourceVersion() {
			return errOldRead
		}
	}
	return nil
}

// stillSo looks, before anything is done that a later look cannot undo, whether what was read for it still is so.
func (r *CommGroupReconciler) stillSo(ctx context.Context, s *Snapshot, d *Decision) error {
	if d.takesAway() || turnsRun(s, d) {
		if err := r.upToDate(ctx, s); err != nil {
			return err
		}
	}
	return errors.Join(atOnce(d.restsOn, func(node string) error { return r.nodeUpToDate(ctx, s, node) })...)
}

// nodeUpToDate asks the API itself whether the node's objects are as they were read. A new manager's cache may have the group as it is and a
// node's CommTask as it was in an earlier run: the verdict would be that one's, and gating would mark the node; or without the session
// that the group's stage gave it, whose pod would be deleted, and the node named for that.
func (r *CommGroupReconciler) nodeUpToDate(ctx context.Context, s *Snapshot, node string) error {
	same := func(kind schema.GroupVersionKind, namespace, name, read string) error {
		var live metav1.PartialObjectMetadata
		live.SetGroupVersionKind(kind)
		if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look whether what was read of node %s is up to date: %w", node, err)
		}
		if live.ResourceVersion != read {
			return errOldRead
		}
		return nil
	}
	name := v1alpha1.CommTaskName(s.Group.Name, node)
	if err := same(v1alpha1.GroupVersion.WithKind("CommTask"), s.Group.Namespace, name, versionIn(s.CommTasks, name)); err != nil {
		return err
	}
	if err := same(corev1.SchemeGroupVersion.WithKind("Node"), "", node, versionIn(s.Nodes, node)); err != nil {
		return err
	}
	if err := same(v1alpha1.GroupVersion.WithKind("CommNode"), "", node, versionIn(s.CommNodes, node)); err != nil {
		return err
	}
	for i := range s.RunPods {
		if pod := &s.RunPods[i]; pod.Labels[v1alpha1.LabelNode] == v1alpha1.LabelValue(node) {
			if err := same(corev1.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name, pod.ResourceVersion); err != nil {
				return err
			}
		}
	}
	return nil
}

// versionIn is that of the object of the name; empty where there is none.
func versionIn[T any, P interface {
	*T
	client.Object
}](list []T, name string) string {
	for i := range list {
		if object := P(&list[i]); object.GetName() == name {
			return object.GetResourceVersion()
		}
	}
	return ""
}

// apply makes the cluster as decided, all but the status. It goes on after an error, so that one object that cannot be
// written holds up no other, and first frees what is to be freed. What the API server refuses is kept in the decision, to be told.
func (r *CommGroupReconciler) apply(ctx context.Context, s *Snapshot, d *Decision) error {
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
	for i, err := range atOnce(d.CommTasks, func(change commrun.Change) error { return r.writeCommTask(ctx, change) }) {
		desired, exists := d.CommTasks[i].Desired, d.CommTasks[i].Current != nil
		d.refused.commTask(desired, exists, err)
		closes := desired.Spec.Run != nil && desired.Spec.Run.Closed != nil
		if err != nil && closes && (!refuses(err) || !commrun.GaveUp(s.Group, desired.Spec.NodeName, exists, s.Now)) {
			err = closureError(err)
		}
		try("write commtask", desired.Name, err)
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

// maxWritesAtOnce is how many objects of a kind are written at once: of 12,500 members each waits for its unique id or holds
// GPUs until its pod is deleted, and one after the other would take a minute.
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

func (r *CommGroupReconciler) deleteNamed(ctx context.Context, object client.Object, namespace, name string) error {
	object.SetNamespace(namespace)
	object.SetName(name)
	return client.IgnoreNotFound(r.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

func (r *CommGroupReconciler) writeCommTask(ctx context.Context, change commrun.Change) error {
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
	// The optimistic lock keeps a decision on an old read from undoing a newer one. The status is the agent's: it is left
	// out of the patch.
	desired := change.Desired.DeepCopy()
	desired.TypeMeta, desired.Status = change.Current.TypeMeta, change.Current.Status
	return r.Client.Patch(ctx, desired, client.MergeFromWithOptions(change.Current, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(v1alpha1.FieldManagerController))
}

// clearName makes room for a CommTask whose name is taken. One of a group of that name that is gone goes: `kubectl delete
// --cascade=orphan` and a restore without owners leave it, no garbage collector comes for it, and its results are of another group.
// One of this very group is only not in the cache yet, or has lost its label, which it gets back.
func (r *CommGroupReconciler) clearName(ctx context.Context, desired *v1alpha1.CommTask, taken error) (cleared bool, err error) {
	var there v1alpha1.CommTask
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(desired), &there); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	collectors := []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}
	others := slices.DeleteFunc(slices.Clone(there.Finalizers), func(f string) bool { return slices.Contains(collectors, f) })
	switch group := there.Spec.Group; {
	case group.Name != desired.Spec.Group.Name:
		return false, fmt.Errorf("%w: CommTask %s is of CommGroup %q, not of %s: delete it", errTaken, there.Name, group.Name, desired.Spec.Group.Name)
	case !there.DeletionTimestamp.IsZero() && len(others) > 0:
		return false, fmt.Errorf("%w: CommTask %s is being deleted and waits for its finalizers %s: remove them", errTaken, there.Name, strings.Join(others, ", "))
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

// serverSideApply writes only the fields that the controller has an opinion on.
func (r *CommGroupReconciler) serverSideApply(ctx context.Context, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerController), client.ForceOwnership)
}

// createPods makes the run pods, after a look at the API itself: the cache may not yet show pods made a moment ago,
// and at most maxParallelNodes nodes may hold GPUs. Pods that were refused less than a minute ago are neither looked for nor sent.
func (r *CommGroupReconciler) createPods(ctx context.Context, s *Snapshot, d *Decision) error {
	key := client.ObjectKeyFromObject(s.Group)
	known := r.podsRefused.of(key, s)
	var refused, missing []*corev1.Pod
	for _, pod := range d.CreatePods {
		if known.why(pod) != nil {
			refused = append(refused, pod)
		} else {
			missing = append(missing, pod)
		}
	}
	var created []error
	if len(missing) > 0 {
		var err error
		if missing, created, err = r.createMissing(ctx, s, missing, &known); err != nil {
			return err
		}
		r.podsRefused.set(key, known)
	}
	byCommTask := make(map[types.UID]*v1alpha1.CommTask, len(s.CommTasks))
	for i := range s.CommTasks {
		byCommTask[s.CommTasks[i].UID] = &s.CommTasks[i]
	}
	for _, pod := range refused {
		missing, created = append(missing, pod), append(created, known.why(pod))
	}
	var errs []error
	noted := func(ct *v1alpha1.CommTask, err error) {
		if ct != nil && ct.Spec.Run != nil {
			d.refused.commTask(ct, true, err)
		}
		errs = append(errs, err)
	}
	for i, err := range created {
		pod := missing[i]
		ct := byCommTask[pod.OwnerReferences[0].UID]
		switch {
		case err == nil:
		case apierrors.IsAlreadyExists(err):
		case ofGroupStage(pod):
			errs = append(errs, err) // tried again until the deadline for members, which then says that there is no pod
		case quotaExceeded(err):
			message := quotaMessage(err, known.admitted, s.Group.Spec.Run.MaxParallelNodes)
			noted(ct, r.noteQuotaWait(ctx, ct, message, s.Now))
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			// A pod security level or the person's own overrides refuse the pod; to try again would not help.
			noted(ct, r.closeRefused(ctx, ct, pod.Name, err, s))
		case refuses(err):
			// An admission webhook that is away, which may come back.
			noted(ct, r.noteQuotaWait(ctx, ct, "the run pod was refused: "+err.Error(), s.Now))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// createMissing makes those of the pods that are not there yet and have a place, and returns them with their errors. What is refused is
// added to known.
func (r *CommGroupReconciler) createMissing(ctx context.Context, s *Snapshot, pods []*corev1.Pod, known *podRefusal) (missing []*corev1.Pod, errs []error, err error) {
	live, err := r.liveRunPods(ctx, s.Group)
	if err != nil {
		return nil, nil, err
	}
	present := make(map[string]bool, len(live))
	for i := range live {
		present[live[i].Name] = true
	}
	alive, admitted := livingPods(live, s.Now)
	taken := admitted
	for _, pod := range pods {
		// The group's stage needs all its members at once; maxParallelNodes bounds the nodes that run alone.
		if present[pod.Name] || !ofGroupStage(pod) && taken >= int(s.Group.Spec.Run.MaxParallelNodes) {
			continue
		}
		missing = append(missing, pod)
		taken++
	}
	// The pods of a namespace are alike to its quota, and to a webhook that is away: after one refusal the others need not be sent.
	var all atomic.Pointer[error]
	errs = atOnce(missing, func(pod *corev1.Pod) error {
		if refused := all.Load(); refused != nil {
			return *refused
		}
		err := r.Client.Create(ctx, pod.DeepCopy(), client.FieldOwner(v1alpha1.FieldManagerController))
		if quotaExceeded(err) || apierrors.IsInternalError(err) {
			all.Store(&err)
		}
		return err
	})
	for i, err := range errs {
		switch {
		case err == nil:
			alive++
			admitted++
		case refuses(err):
			known.pods[missing[i].Name] = err
		}
	}
	known.alive, known.admitted = alive, admitted
	if refused := all.Load(); refused != nil {
		known.all = *refused
	}
	return missing, errs, nil
}

// livingPods counts the pods that hold GPUs, and those of them that are of nodes alone.
func livingPods(pods []corev1.Pod, now time.Time) (all, alone int) {
	for i := range pods {
		if pod := &pods[i]; podstate.Alive(pod) && !podstate.Stuck(pod, now) {
			if all++; !ofGroupStage(pod) {
				alone++
			}
		}
	}
	return all, alone
}

func ofGroupStage(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelStage] == v1alpha1.StagePodGroup
}

func (r *CommGroupReconciler) closeRefused(ctx context.Context, ct *v1alpha1.CommTask, podName string, cause error, s *Snapshot) error {
	if ct == nil || ct.Spec.Run == nil {
		return cause
	}
	return r.closeNotStarted(ctx, ct, s, fmt.Sprintf("The API server refused run pod %s for node %s: %v. Fix what these words name: runtime.image, runtime.pod, the namespace's pod security level, or the fields that its quota requires; then %s.",
		podName, ct.Spec.NodeName, cause, v1alpha1.AskRun(ct.Namespace, ct.Spec.Group.Name)))
}

func (r *CommGroupReconciler) closeNotStarted(ctx context.Context, ct *v1alpha1.CommTask, s *Snapshot, message string) error {
	desired := ct.DeepCopy()
	desired.Spec.Run.Closed = &v1alpha1.RunClosure{
		Verdict: v1alpha1.VerdictError, Reason: v1alpha1.ReasonRunPodNotStarted, Time: *decision.Stamp(s.Now), Message: words.Shorten(message, 1024),
	}
	return r.writeCommTask(ctx, commrun.Change{Current: ct, Desired: desired})
}

func (r *CommGroupReconciler) writeConfigMap(ctx context.Context, existing, desired *corev1.ConfigMap) error {
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
