package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// writeRun writes what the decision says of the run into its CommRun, which it creates for a run that starts. It is
// written before the group's status, which only repeats it in short. The run's events go out with it: once it is
// written, no later decision makes them again.
func (r *writer) writeRun(ctx context.Context, s *Snapshot, d *Decision) error {
	if err := r.writeRunStatus(ctx, s, d); err != nil {
		return err
	}
	r.send(s.Stored, d.RunEvents)
	return nil
}

func (r *writer) writeRunStatus(ctx context.Context, s *Snapshot, d *Decision) error {
	run := d.Status.Run
	if run == nil {
		return nil
	}
	stored := s.StoredRun
	if was := s.Group.Status.Run; was == nil || was.ID != run.ID {
		var err error
		if stored, err = r.takeRun(ctx, s, run); err != nil {
			return fmt.Errorf("take commrun %s/%s: %w", s.Group.Namespace, run.Name, err)
		}
		run.Name = stored.Name
	}
	if stored == nil {
		return nil // it was deleted, and the run has ended with it
	}
	group := state.Group{ObjectMeta: s.Group.ObjectMeta, Spec: s.Group.Spec, Status: d.Status}
	next := stored.DeepCopy()
	if next.Status = group.RunStatus(stored); objects.Same(&stored.Status, &next.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, next, client.FieldOwner(v1alpha1.FieldManagerController)); err != nil {
		return fmt.Errorf("status of commrun %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// maxRunName bounds the second name of a CommRun.
const maxRunName = 200

// takeRun gives the CommRun of a run that starts: the one that asks for it, or else a new one.
func (r *writer) takeRun(
	ctx context.Context, s *Snapshot, next *v1alpha1.GroupRunStatus,
) (*v1alpha1.CommRun, error) {
	if !runs.Partial(next) && slices.Contains(s.Group.Status.Requests, next.Name) {
		at := slices.IndexFunc(s.Runs, func(r v1alpha1.CommRun) bool { return r.Name == next.Name })
		return r.ownRun(ctx, s, &s.Runs[at])
	}
	// Whoever may create CommRuns may have taken the name. The second one nobody has by chance.
	var there *v1alpha1.CommRun
	for _, name := range []string{next.Name, objects.Name(maxRunName, string(s.Group.UID)+next.ID, next.Name)} {
		run := state.NewRun(s.Stored, name)
		run.Labels = objects.Labels(s.Group, "")
		run.Labels[v1alpha1.LabelRunID] = next.ID
		run.OwnerReferences = []metav1.OwnerReference{objects.Owner(s.Group)}
		err := r.Client.Create(ctx, run, client.FieldOwner(v1alpha1.FieldManagerController))
		if !apierrors.IsAlreadyExists(err) {
			return run, err
		}
		there = &v1alpha1.CommRun{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(run), there); err != nil {
			return nil, cmp.Or(client.IgnoreNotFound(err), errOldRead)
		}
		switch {
		case state.GroupOf(there) != s.Group.UID:
		case there.Status.Number == next.Number:
			return nil, errOldRead // the run has started, and the cache does not show it yet
		case there.Status.ID == "" && there.Labels[v1alpha1.LabelRunID] == next.ID:
			return there, nil // it was created for this run, and its status was not written
		}
	}
	return nil, fmt.Errorf("%w: CommRun %s is none of the CommGroup's: delete it", errTaken, there.Name)
}

// ownRequests makes the CommRuns that users have created the group's own, so that they go with it, and a later group
// of its name does not find them. The one that starts now follows with the run.
func (r *writer) ownRequests(ctx context.Context, s *Snapshot, starts *v1alpha1.GroupRunStatus) error {
	var errs []error
	for i := range s.Runs {
		run := &s.Runs[i]
		if state.GroupOf(run) != "" || starts != nil && starts.Name == run.Name || !run.DeletionTimestamp.IsZero() {
			continue
		}
		if _, err := r.ownRun(ctx, s, run); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("own commrun %s/%s: %w", run.Namespace, run.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ownRun gives a CommRun that a user created the group's labels and owner, so that it goes with the group.
func (r *writer) ownRun(
	ctx context.Context, s *Snapshot, run *v1alpha1.CommRun,
) (*v1alpha1.CommRun, error) {
	next := run.DeepCopy()
	next.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommRun"}
	for key, value := range objects.Labels(s.Group, "") {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	if !objects.OwnedBy(next, s.Group) {
		owner := objects.Owner(s.Group)
		if metav1.GetControllerOf(next) != nil {
			owner.Controller = nil // there can be one alone
		}
		next.OwnerReferences = append(next.OwnerReferences, owner)
	}
	if objects.Same(&next.ObjectMeta, &run.ObjectMeta) {
		return next, nil
	}
	lock := client.MergeFromWithOptions(run, client.MergeFromWithOptimisticLock{})
	return next, r.Client.Patch(ctx, next, lock, client.FieldOwner(v1alpha1.FieldManagerController))
}
