package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/runarchive"
)

func archives(ids ...string) []Archive {
	var out []Archive
	for _, id := range ids {
		out = append(out, Archive{Name: "cm-" + id, RunID: id})
	}
	return out
}

func TestArchiveRun(t *testing.T) {
	var ten []string
	for n := range maxArchives {
		ten = append(ten, fmt.Sprintf("1-%d", n+1))
	}
	finished := func(id string) *v1alpha1.GroupRunStatus {
		return &v1alpha1.GroupRunStatus{ID: id, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass}
	}
	for name, tc := range map[string]struct {
		run    *v1alpha1.GroupRunStatus
		have   []Archive
		want   string
		remove []string
	}{
		"no run":              {nil, nil, "", nil},
		"going on":            {&v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseRunning}, nil, "", nil},
		"aborted":             {&v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseAborted}, nil, "", nil},
		"no verdict yet":      {&v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseFinished}, nil, "", nil},
		"finished":            {finished("1-1"), nil, "1-1", nil},
		"kept already":        {finished("1-1"), archives("1-1"), "", nil},
		"beside older ones":   {finished("2-3"), archives("1-1", "1-2"), "2-3", nil},
		"the oldest goes":     {finished("2-11"), archives(ten...), "2-11", []string{"cm-1-1"}},
		"by number, not text": {finished("1-10"), archives("1-9", "1-2"), "1-10", nil},
		"going on, too many":  {&v1alpha1.GroupRunStatus{ID: "1-12", Phase: v1alpha1.RunPhaseRunning}, archives(append(ten, "1-11")...), "", []string{"cm-1-1"}},
		"older than all kept": {finished("1-0"), archives(ten...), "", nil},
	} {
		got, remove := archiveRun(&v1alpha1.CommGroup{Status: v1alpha1.CommGroupStatus{Run: tc.run}}, tc.have)
		if got != tc.want || !slices.Equal(remove, tc.remove) {
			t.Errorf("%s: archive %q, remove %v; want %q, %v", name, got, remove, tc.want, tc.remove)
		}
	}
}

// TestArchiveKeepsTheRun plays a run to its end, keeps it, and reads from the ConfigMap what the status had.
func TestArchiveKeepsTheRun(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(3))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	run := w.group.Status.Run
	if run == nil || run.Phase != v1alpha1.RunPhaseFinished {
		t.Fatal("the run did not finish")
	}
	s := w.snapshot()
	d := Decide(s, testConfig)
	if d.ArchiveRun != run.ID {
		t.Fatalf("archive %q decided, want %q", d.ArchiveRun, run.ID)
	}
	scheme := archiveScheme(t)
	var refuse error
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuse != nil {
				return refuse
			}
			return c.Create(ctx, o, opts...)
		}}).Build()
	r := &CommGroupReconciler{Client: c, Config: testConfig}
	for range 2 { // the second time the cache does not show the first yet
		r.applyArchive(t.Context(), s, &d)
	}
	if len(d.Events) != 0 {
		t.Fatalf("events of a run that was kept: %v", d.Events)
	}
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRunArchive, v1alpha1.LabelRunID: run.ID}); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d archives, %v; want one", len(list.Items), err)
	}
	cm := &list.Items[0]
	if !objects.OwnedBy(cm, w.group) || cm.Labels[v1alpha1.LabelGroupUID] != string(w.group.UID) {
		t.Error("the archive is not the group's, so that it would outlive it")
	}
	record, err := runarchive.FromConfigMap(cm)
	if err != nil {
		t.Fatal(err)
	}
	if record.Run.ID != run.ID || record.Origin != w.group.Status.Origin || len(record.Results) != len(w.group.Status.Results) || len(record.Results) == 0 {
		t.Errorf("kept run %s, origin %s, %d series; want %s, %s, %d", record.Run.ID, record.Origin, len(record.Results), run.ID, w.group.Status.Origin, len(w.group.Status.Results))
	}
	if len(record.Libraries) != 1 || record.Libraries[0].Nodes != 3 {
		t.Errorf("libraries %+v, want one on 3 nodes", record.Libraries)
	}
	if record.Requested == nil || record.Requested.RanksPerNode != 8 {
		t.Errorf("requested %+v", record.Requested)
	}

	// The cache forgets the data, and the next decision knows the archive.
	object, err := trimConfigMap(cm.DeepCopy())
	if err != nil || len(object.(*corev1.ConfigMap).BinaryData) != 0 {
		t.Errorf("the cache holds a past run: %v", err)
	}
	s.Archives = []Archive{{Name: cm.Name, RunID: cm.Annotations[v1alpha1.AnnotationRun]}}
	if next := Decide(s, testConfig); next.ArchiveRun != "" || len(next.DeleteArchives) != 0 {
		t.Errorf("a kept run is to be kept again: %+v", next.ArchiveRun)
	}

	// A refusal is told and fails nothing.
	for _, refuse = range []error{errors.New("no"), apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, cm.Name, errors.New("exceeded quota"))} {
		d := Decision{Status: d.Status}
		d.ArchiveRun = run.ID
		r.applyArchive(t.Context(), s, &d)
		if len(d.Events) != 1 || d.Events[0].Reason != v1alpha1.ReasonRunNotArchived || !strings.Contains(d.Events[0].Note, refuse.Error()) {
			t.Errorf("events %v, want one RunNotArchived with %q", d.Events, refuse)
		}
		testkit.WantRefusedResult(t, d.WakeAt.Sub(s.Now), nil)
	}
}

func archiveScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}
