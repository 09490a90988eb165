package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// showsLaterRun says whether anything in the snapshot names a later run than the group's status does: a node's assignment or session,
// or a pod that is not being deleted.
func showsLaterRun(s *Snapshot) bool {
	for i := range s.CommTasks {
		spec := &s.CommTasks[i].Spec
		if spec.Run != nil && runs.Later(spec.Run.ID, s.Group) || spec.Session != nil && runs.Later(spec.Session.RunID, s.Group) {
			return true
		}
	}
	for i := range s.RunPods {
		if pod := &s.RunPods[i]; pod.DeletionTimestamp.IsZero() && runs.Later(pod.Labels[v1alpha1.LabelRunID], s.Group) {
			return true
		}
	}
	return false
}

// checkLaterRun returns errOldRead where the API server has a later run than the status that was read: nothing may be decided by
// that status. Otherwise a later id is not the controller's, and the decision replaces it. One read settles it, so that a value that
// somebody else wrote never keeps a run waiting. Only the run's number is compared: other writes to the group prove nothing.
func (r *CommGroupReconciler) checkLaterRun(ctx context.Context, s *Snapshot) error {
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
