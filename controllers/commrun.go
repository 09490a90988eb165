package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/runrecord"
)

// recordsOf says whether the group's run has to be recorded as a CommRun, and which CommRuns are beyond the group's
// limits. It looks at the status as it is written: what a run has measured is final there, and its CommRun is the same
// whenever it is written.
func recordsOf(group *v1alpha1.CommGroup, have []v1alpha1.CommRun) (record bool, remove []string) {
	type kept struct {
		name   string
		number int64
		passed bool
	}
	all := make([]kept, 0, len(have)+1)
	run := group.Status.Run
	record = run != nil && run.Phase == v1alpha1.RunPhaseFinished && run.Verdict != ""
	for i := range have {
		r := &have[i]
		if record && r.Spec.ID == run.ID {
			record = r.Status.Verdict == "" // its status was not written
			continue
		}
		all = append(all, kept{r.Name, r.Spec.Number, r.Status.Verdict == v1alpha1.VerdictPass})
	}
	if run != nil && run.Phase == v1alpha1.RunPhaseFinished {
		all = append(all, kept{"", run.Number, run.Verdict == v1alpha1.VerdictPass})
	}
	// What the history names goes last: runs of some nodes shall not push out those that measured all.
	past := make(map[int64]int, len(group.Status.History))
	for i := range group.Status.History {
		past[runs.NumberOf(group.Status.History[i].ID)] = 1
	}
	slices.SortFunc(all, func(a, b kept) int {
		return cmp.Or(cmp.Compare(past[b.number], past[a.number]), cmp.Compare(b.number, a.number))
	})
	limits := group.Spec.HistoryLimits
	left := map[bool]int32{
		true:  cmp.Or(limits.Passed, defaultHistoryLimit),
		false: cmp.Or(limits.Failed, defaultHistoryLimit),
	}
	for _, r := range all {
		switch left[r.passed]--; {
		case left[r.passed] >= 0:
		case r.name != "":
			remove = append(remove, r.name)
		default:
			record = false // older than all that are kept
		}
	}
	return record, remove
}

// defaultHistoryLimit is that of a group from before the limits.
const defaultHistoryLimit = 5

// writeRecord writes the CommRun of the run that the status speaks of. That it cannot is told, and holds up nothing: the
// run's verdict stands without.
func (r *CommGroupReconciler) writeRecord(ctx context.Context, s *Snapshot, d *Decision) {
	if !d.RecordRun {
		return
	}
	run := runrecord.Of(s.Group, s.CommTasks)
	run.Labels = objects.Labels(s.Group, "")
	run.OwnerReferences = []metav1.OwnerReference{objects.Owner(s.Group)}
	err := r.writeRun(ctx, run)
	if err == nil {
		return
	}
	logf.FromContext(ctx).Error(err, "Could not record a run; trying again later", "run", run.Spec.ID)
	what := "write CommRun " + run.Name
	add(&d.refused.others, what, err)
	if !strings.Contains(stage.ToldRefusal(s.Group), what) {
		d.Events = append(d.Events, decision.Event{Warning: true, Reason: v1alpha1.ReasonRunNotRecorded, Action: "RecordRun",
			Note: words.Shorten(fmt.Sprintf("The results of run %s could not be kept for comparison: %v. "+
				"The run's verdict stands; fix what refuses the CommRun.", run.Spec.ID, err), 1000)})
	}
	d.WakeAt = decision.Earlier(d.WakeAt, s.Now.Add(refusedRetry))
}

// writeRun creates the CommRun and writes its status. One that is there already without a status is the same run's.
func (r *CommGroupReconciler) writeRun(ctx context.Context, run *v1alpha1.CommRun) error {
	next := run.DeepCopy()
	err := r.Client.Create(ctx, next, client.FieldOwner(v1alpha1.FieldManagerController))
	if apierrors.IsAlreadyExists(err) {
		if err = r.APIReader.Get(ctx, client.ObjectKeyFromObject(run), next); err != nil {
			return client.IgnoreNotFound(err) // it goes just now; the next reconcile creates it
		}
		switch {
		case next.Spec.Group.UID != run.Spec.Group.UID: // of an earlier group of this name
			return r.deleteExactly(ctx, next)
		case next.Status.Verdict != "":
			return nil // the cache does not show it yet
		}
	}
	if err != nil {
		return err
	}
	next.Status = run.Status
	return r.Client.Status().Update(ctx, next, client.FieldOwner(v1alpha1.FieldManagerController))
}

// trimCommRun keeps what past runs measured out of memory: the controller never reads it again.
func trimCommRun(object any) (any, error) {
	if run, ok := object.(*v1alpha1.CommRun); ok {
		run.ManagedFields, run.Spec.Template = nil, nil
		run.Status = v1alpha1.CommRunStatus{Verdict: run.Status.Verdict}
	}
	return object, nil
}
