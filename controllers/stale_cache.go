package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// errOldRead: what was read is not what the API server has, and what was concluded from it may not be told.
var errOldRead = errors.New("what was read is old")

// oldReadPoll is when to check again whether the cache has the group as the API server has it.
const oldReadPoll = 250 * time.Millisecond

// showsLaterRun says whether anything in the snapshot names a later run than the group's status does: a node's
// assignment or session, or a pod that is not being deleted.
func showsLaterRun(s *Snapshot) bool {
	for i := range s.CommTasks {
		spec := &s.CommTasks[i].Spec
		if spec.Run != nil && runs.Later(spec.Run.ID, s.Group) ||
			spec.Session != nil && runs.Later(spec.Session.RunID, s.Group) {
			return true
		}
	}
	for i := range s.RunPods {
		if pod := &s.RunPods[i]; pod.DeletionTimestamp.IsZero() &&
			runs.Later(pod.Labels[v1alpha1.LabelRunID], s.Group) {
			return true
		}
	}
	return false
}

// checkLaterRun returns errOldRead where the API server has a later run than the status that was read: nothing may be
// decided by that status. Otherwise a later id is not the controller's, and the decision replaces it. One read settles
// it, so that a value that somebody else wrote never keeps a run waiting. Only the run's number is compared: other
// writes to the group prove nothing.
func (r *observer) checkLaterRun(ctx context.Context, s *Snapshot) error {
	if s.ListError != nil || !showsLaterRun(s) {
		return nil
	}
	live, err := state.Load(ctx, r.APIReader, client.ObjectKeyFromObject(s.Group))
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("check whether the run of the group's status is its latest: %w", err)
	case err != nil, live.UID != s.Group.UID, runs.LatestNumber(live) != runs.LatestNumber(s.Group):
		return errOldRead
	}
	return nil
}

// turnsRun says whether the decision starts a run, or ends one that goes on. The CommRuns that it rests on may be newer
// in the cache than the CommGroup is: by an older spec, the present run would be aborted.
func turnsRun(s *Snapshot, d *Decision) bool {
	was, is := s.Group.Status.Run, d.Status.Run
	return is != nil && (was == nil || was.ID != is.ID || was.Phase != is.Phase)
}

// takesAway says whether the decision deletes anything.
func (d *Decision) takesAway() bool {
	return len(d.DeletePods)+len(d.DeleteCommTasks)+len(d.DeleteConfigMaps)+len(d.DeleteRuns) > 0
}

// upToDate asks the API itself whether the group is still as it was read. Writes carry the version that they rest on; a
// delete is of a name alone, and rests on the group's status. A manager whose cache lags, or that was paused while
// another took over, would delete pods of the present run, and their nodes would be named as guilty.
func (r *observer) upToDate(ctx context.Context, s *Snapshot) error {
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
func (r *observer) stillSo(ctx context.Context, s *Snapshot, d *Decision) error {
	if d.takesAway() || turnsRun(s, d) {
		if err := r.upToDate(ctx, s); err != nil {
			return err
		}
	}
	return errors.Join(atOnce(d.restsOn, func(node string) error { return r.nodeUpToDate(ctx, s, node) })...)
}

// nodeUpToDate asks the API itself whether the node's objects are as they were read. A new manager's cache may have the
// group as it is and a node's CommTask as it was in an earlier run: the verdict would be that one's, and gating would
// mark the node; or without the session that the group's stage gave it, whose pod would be deleted, and the node named
// for that.
func (r *observer) nodeUpToDate(ctx context.Context, s *Snapshot, node string) error {
	same := func(kind schema.GroupVersionKind, namespace, name, read string) error {
		var live metav1.PartialObjectMetadata
		live.SetGroupVersionKind(kind)
		if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name},
			&live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look whether what was read of node %s is up to date: %w", node, err)
		}
		if live.ResourceVersion != read {
			return errOldRead
		}
		return nil
	}
	name := v1alpha1.CommTaskName(s.Group.Name, node)
	if err := same(v1alpha1.GroupVersion.WithKind("CommTask"), s.Group.Namespace, name,
		versionIn(s.CommTasks, name)); err != nil {
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
			if err := same(corev1.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name,
				pod.ResourceVersion); err != nil {
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
