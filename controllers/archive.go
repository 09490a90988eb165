package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	"rcclx.io/commgroup-operator/internal/runarchive"
)

// maxArchives is how many past runs are kept; those that the history names go last.
const maxArchives = maxHistory

// Archive is a ConfigMap that keeps a past run.
type Archive struct {
	Name  string
	RunID string
}

// archiveRun says which run is to be kept, or "", and which archives have to go. It looks at the status as it is written: what a
// run has measured is final there, and its archive is the same whenever it is made.
func archiveRun(group *v1alpha1.CommGroup, have []Archive) (runID string, remove []string) {
	all := slices.Clone(have)
	run := group.Status.Run
	if run != nil && run.Phase == v1alpha1.RunPhaseFinished && run.Verdict != "" &&
		!slices.ContainsFunc(have, func(a Archive) bool { return a.RunID == run.ID }) {
		runID = run.ID
		all = append(all, Archive{RunID: run.ID})
	}
	past := make(map[string]int, len(group.Status.History))
	for i := range group.Status.History {
		past[group.Status.History[i].ID] = 1
	}
	slices.SortFunc(all, func(a, b Archive) int {
		return cmp.Or(cmp.Compare(past[b.RunID], past[a.RunID]), cmp.Compare(runs.NumberOf(b.RunID), runs.NumberOf(a.RunID)))
	})
	for _, old := range all[min(len(all), maxArchives):] {
		if old.Name != "" {
			remove = append(remove, old.Name)
		}
		if old.Name == "" {
			runID = "" // older than all that are kept
		}
	}
	return runID, remove
}

// archiveOf is the ConfigMap that keeps the run of the group's status.
func archiveOf(group *v1alpha1.CommGroup, commTasks []v1alpha1.CommTask) (*corev1.ConfigMap, error) {
	record := runarchive.FromStatus(group, commTasks)
	if record == nil {
		return nil, fmt.Errorf("the status of %s/%s has no run", group.Namespace, group.Name)
	}
	data, err := runarchive.Encode(record)
	if err != nil {
		return nil, err
	}
	run := group.Status.Run
	labels := objects.Labels(group, v1alpha1.RoleRunArchive)
	labels[v1alpha1.LabelRunID] = v1alpha1.LabelValue(run.ID)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			// The hash of the UID keeps a group that was made anew apart from what is left of the one before.
			Name:      objects.Name(200, string(group.UID)+"/"+run.ID, group.Name, "run", run.ID),
			Namespace: group.Namespace,
			Labels:    labels,
			Annotations: map[string]string{
				v1alpha1.AnnotationRun: run.ID, v1alpha1.AnnotationOrigin: string(group.Status.Origin), v1alpha1.AnnotationVerdict: string(run.Verdict),
				v1alpha1.AnnotationGroup: group.Namespace + "/" + group.Name,
			},
			OwnerReferences: []metav1.OwnerReference{objects.Owner(group)},
		},
		BinaryData: map[string][]byte{runarchive.Key: data},
	}, nil
}

// applyArchive keeps the run that is to be kept. That it cannot is told, and holds up nothing: the run's verdict stands without.
func (r *CommGroupReconciler) applyArchive(ctx context.Context, s *Snapshot, d *Decision) {
	if d.ArchiveRun == "" {
		return
	}
	cm, err := archiveOf(s.Group, s.CommTasks)
	if err == nil {
		err = r.Client.Create(ctx, cm, client.FieldOwner(v1alpha1.FieldManagerController))
	}
	// One that is there already is the same: the cache does not show it yet.
	if err == nil || apierrors.IsAlreadyExists(err) {
		return
	}
	logf.FromContext(ctx).Error(err, "Could not keep the results of a run for comparison; trying again later", "run", d.ArchiveRun)
	what := "keep the results of run " + d.ArchiveRun
	add(&d.refused.others, what, err)
	if !strings.Contains(stage.ToldRefusal(s.Group), what) {
		d.Events = append(d.Events, decision.Event{Warning: true, Reason: v1alpha1.ReasonRunNotArchived, Action: "ArchiveRun",
			Note: words.Shorten(fmt.Sprintf("The results of run %s could not be kept for comparison: %v. The run's verdict stands; mend what refuses the ConfigMap.", d.ArchiveRun, err), 1000)})
	}
	d.WakeAt = decision.Earlier(d.WakeAt, s.Now.Add(refusedRetry))
}

// trimConfigMap keeps past runs out of memory: the controller never reads them again.
func trimConfigMap(object any) (any, error) {
	if cm, ok := object.(*corev1.ConfigMap); ok {
		cm.ManagedFields = nil
		if cm.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRunArchive {
			cm.Data, cm.BinaryData = nil, nil
		}
	}
	return object, nil
}
