package controllers

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestNameOfACommRun: whoever may create CommRuns may have taken the name of the next one. What they have asked for,
// and what is another group's, stays as it is.
func TestNameOfACommRun(t *testing.T) {
	group := testkit.Group()
	owned := func(run *v1alpha1.CommRun, uid types.UID) *v1alpha1.CommRun {
		run.OwnerReferences = []metav1.OwnerReference{objects.Owner(group)}
		run.OwnerReferences[0].UID = uid
		return run
	}
	next := &v1alpha1.GroupRunStatus{Name: "g-7", ID: "1-7", Number: 7, Trigger: state.TriggerScheduled}
	some := &v1alpha1.GroupRunStatus{Name: "g-7", ID: "1-7", Number: 7, Trigger: state.TriggerNodesChanged}
	asked, suspended := state.NewRun(group, "g-7"), state.NewRun(group, "g-7")
	suspended.Spec.Suspend = true
	started := owned(state.NewRun(group, "g-7"), group.UID)
	started.Status.GroupRunStatus = v1alpha1.GroupRunStatus{ID: "1-7", Number: 7, Phase: v1alpha1.RunPhaseRunning}
	earlier := owned(state.NewRun(group, "g-7"), group.UID)
	earlier.Status.GroupRunStatus = v1alpha1.GroupRunStatus{ID: "1-6", Number: 6, Phase: v1alpha1.RunPhaseFinished}
	lost := owned(state.NewRun(group, "g-7"), group.UID)
	lost.Labels = map[string]string{v1alpha1.LabelRunID: "1-7"}
	foreign := state.NewRun(group, "g-7")
	foreign.Spec.GroupName = "other"
	ofWorkflow := asked.DeepCopy()
	ofWorkflow.OwnerReferences = []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow",
		Name: "nightly", UID: "w", Controller: ptr.To(true)}}
	const itself, another = true, false
	for name, tc := range map[string]struct {
		there *v1alpha1.CommRun
		run   *v1alpha1.GroupRunStatus
		takes bool
		err   error
	}{
		"nothing there":                             {nil, next, itself, nil},
		"a request":                                 {asked, next, itself, nil},
		"a request of a workflow":                   {ofWorkflow, next, itself, nil},
		"a request, and a run of some nodes":        {asked, some, another, nil},
		"a request that is suspended":               {suspended, next, another, nil},
		"an earlier run that a user had named so":   {earlier, next, another, nil},
		"the run itself, which the cache lacks":     {started, next, another, errOldRead},
		"the run itself, whose status was not kept": {lost, next, itself, nil},
		"another group's":                           {foreign, next, another, nil},
		"an earlier group's of the name":            {owned(asked.DeepCopy(), "uid-before"), next, another, nil},
	} {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		stored, _ := group.Objects()
		s := &Snapshot{Now: testkit.Now, Stored: stored}
		b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.CommRun{})
		if tc.there != nil {
			there := tc.there.DeepCopy()
			b = b.WithObjects(there)
			s.Runs = state.RunsOf(stored, []v1alpha1.CommRun{*there})
		}
		if tc.err != nil {
			s.Runs = nil // as the cache has it
		}
		s.Group = state.Join(stored, s.Runs)
		c := b.Build()
		if len(s.Runs) > 0 {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(tc.there), &s.Runs[0]); err != nil {
				t.Fatal(err)
			}
		}
		r := New(Dependencies{Client: c, APIReader: c, Config: testConfig})
		got, err := r.takeRun(t.Context(), s, tc.run)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if err != nil {
			continue
		}
		if (got.Name == "g-7") != tc.takes || !objects.OwnedBy(got, group) || got.Spec.Suspend {
			t.Errorf("%s: it takes %s, owners %+v", name, got.Name, got.OwnerReferences)
		}
		controllers := 0
		for _, o := range got.OwnerReferences {
			if ptr.Deref(o.Controller, false) {
				controllers++
			}
		}
		if controllers != 1 {
			t.Errorf("%s: %d controllers own it: %+v", name, controllers, got.OwnerReferences)
		}
	}
}

// TestRunLivesInItsCommRun plays a run to its end with an API server that refuses writes in between, and reads from the
// CommRun what the run has measured.
func TestRunLivesInItsCommRun(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(3))
	w.settle()
	w.reportFacts()
	s := w.snapshot()
	d := Decide(s, testConfig)
	if d.Status.Run == nil || d.Status.Run.Name != "g-1" {
		t.Fatalf("run %+v, want one with the CommRun g-1", d.Status.Run)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var refuse, refuseStatus error
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.CommRun{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if refuse != nil {
					return refuse
				}
				return c.Create(ctx, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
				opts ...client.SubResourceUpdateOption) error {
				if refuseStatus != nil {
					return refuseStatus
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			}}).Build()
	r := New(Dependencies{Client: c, APIReader: c, Config: testConfig, Recorder: events.NewFakeRecorder(8)})
	s.Stored, _ = w.group.Objects()

	refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "commruns"}, "g-1", errors.New("exceeded quota"))
	if err := r.writeRun(t.Context(), s, &d); !onlyRefusals(err) {
		t.Fatalf("with a quota: %v, want a refusal", err)
	}
	refuse, refuseStatus = nil, errors.New("the API server is away")
	if err := r.writeRun(t.Context(), s, &d); err == nil || onlyRefusals(err) {
		t.Fatalf("without a status: %v, want an error that is tried again", err)
	}
	refuseStatus = nil
	if err := r.writeRun(t.Context(), s, &d); err != nil {
		t.Fatalf("with its CommRun there and without a status: %v", err)
	}
	if err := r.writeRun(t.Context(), s, &d); !errors.Is(err, errOldRead) {
		t.Fatalf("from an old read, with the run under way: %v", err)
	}

	w.runAll(300_000)
	if run := w.group.Status.Run; run == nil || run.Phase != v1alpha1.RunPhaseFinished {
		t.Fatal("the run did not finish")
	}
	s = w.snapshot()
	s.Stored, s.StoredRun = &v1alpha1.CommGroup{ObjectMeta: w.group.ObjectMeta, Spec: w.group.Spec}, &v1alpha1.CommRun{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: w.group.Namespace, Name: "g-1"}, s.StoredRun); err != nil {
		t.Fatal(err)
	}
	d = Decide(s, testConfig)
	if err := r.writeRun(t.Context(), s, &d); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.CommRun{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(s.StoredRun), got); err != nil {
		t.Fatal(err)
	}
	if !objects.OwnedBy(got, w.group) || got.Labels[v1alpha1.LabelGroupUID] != string(w.group.UID) {
		t.Errorf("CommRun %s, owners %v, labels %v", got.Name, got.OwnerReferences, got.Labels)
	}
	status := &got.Status
	if status.ID != w.group.Status.Run.ID || status.Verdict != v1alpha1.VerdictPass || len(status.Results) == 0 ||
		len(status.Results) != len(w.group.Status.Results) {
		t.Errorf("run %s, verdict %s, %d series; want %s, Pass, %d",
			status.ID, status.Verdict, len(status.Results), w.group.Status.Run.ID, len(w.group.Status.Results))
	}
	if len(status.Libraries) != 1 || status.Libraries[0].Nodes != 3 {
		t.Errorf("libraries %+v, want one on 3 nodes", status.Libraries)
	}
	if status.Template == nil || status.Template.RanksPerNode != 8 {
		t.Errorf("template %+v", status.Template)
	}
	if status.Summary == nil || status.Members == nil || status.Members.Passed != 3 {
		t.Errorf("summary %+v, members %+v; want 3 that passed", status.Summary, status.Members)
	}
}
