package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/runrecord"
)

func commRuns(verdict v1alpha1.Verdict, numbers ...int64) []v1alpha1.CommRun {
	var out []v1alpha1.CommRun
	for _, n := range numbers {
		run := v1alpha1.CommRun{Spec: v1alpha1.CommRunSpec{ID: fmt.Sprint("1-", n), Number: n}, Status: v1alpha1.CommRunStatus{Verdict: verdict}}
		run.Name = fmt.Sprint("g-", n)
		out = append(out, run)
	}
	return out
}

// TestRunsThatAreRecorded: each finished run once, and of those that passed and those that did not as many as the group's limits say.
func TestRunsThatAreRecorded(t *testing.T) {
	const pass, fail = v1alpha1.VerdictPass, v1alpha1.VerdictFail
	finished := func(number int64) *v1alpha1.GroupRunStatus {
		return &v1alpha1.GroupRunStatus{ID: fmt.Sprint("1-", number), Number: number, Phase: v1alpha1.RunPhaseFinished, Verdict: pass}
	}
	going := func(number int64, phase v1alpha1.RunPhase) *v1alpha1.GroupRunStatus {
		return &v1alpha1.GroupRunStatus{ID: fmt.Sprint("1-", number), Number: number, Phase: phase}
	}
	for name, tc := range map[string]struct {
		run    *v1alpha1.GroupRunStatus
		have   []v1alpha1.CommRun
		want   bool
		remove []string
	}{
		"no run":                   {nil, nil, false, nil},
		"going on":                 {going(1, v1alpha1.RunPhaseRunning), nil, false, nil},
		"aborted":                  {going(1, v1alpha1.RunPhaseAborted), nil, false, nil},
		"no verdict yet":           {going(1, v1alpha1.RunPhaseFinished), nil, false, nil},
		"finished":                 {finished(1), nil, true, nil},
		"recorded already":         {finished(1), commRuns(pass, 1), false, nil},
		"created without a status": {finished(1), commRuns("", 1), true, nil},
		"beside older ones":        {finished(3), commRuns(pass, 1, 2), true, nil},
		"the oldest passed one":    {finished(4), commRuns(pass, 1, 2, 3), true, []string{"g-1"}},
		"failed ones have a limit": {finished(5), slices.Concat(commRuns(fail, 1, 2, 3), commRuns(pass, 4)), true, []string{"g-1"}},
		"passed ones stay":         {finished(9), slices.Concat(commRuns(pass, 1, 2), commRuns(fail, 7, 8)), true, nil},
		"going on, too many":       {going(6, v1alpha1.RunPhaseRunning), commRuns(pass, 1, 2, 3, 4), false, []string{"g-1"}},
		"older than all that stay": {finished(1), commRuns(pass, 2, 3, 4), false, nil},
		"what the history names":   {finished(12), commRuns(pass, 10, 11, 5), true, []string{"g-10"}},
		"a limit that was lowered": {finished(7), commRuns(pass, 3, 4, 5, 6), true, []string{"g-4", "g-3"}},
		"verdicts other than Fail": {finished(7), commRuns(v1alpha1.VerdictError, 4, 5, 6), true, []string{"g-4"}},
	} {
		group := testkit.Group()
		group.Spec.HistoryLimits = v1alpha1.HistoryLimits{Passed: 3, Failed: 2}
		group.Status.Run = tc.run
		if name == "what the history names" {
			group.Status.History = []v1alpha1.RunSummary{{ID: "1-12"}, {ID: "1-11"}, {ID: "1-5"}}
		}
		got, remove := recordsOf(group, tc.have)
		if got != tc.want || !slices.Equal(remove, tc.remove) {
			t.Errorf("%s: record %v, remove %v; want %v, %v", name, got, remove, tc.want, tc.remove)
		}
	}
}

// TestARunIsRecorded plays a run to its end, records it, and reads from the CommRun what the status had.
func TestARunIsRecorded(t *testing.T) {
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
	if !d.RecordRun {
		t.Fatal("the finished run is not to be recorded")
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var refuse, refuseStatus error
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.CommRun{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuse != nil {
				return refuse
			}
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if refuseStatus != nil {
				return refuseStatus
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		}}).Build()
	r := &CommGroupReconciler{Client: c, APIReader: c, Config: testConfig}
	old := runrecord.Of(w.group, nil) // of an earlier group of this name
	old.Spec.Group.UID = "uid-of-another"
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	refuseStatus = errors.New("the API server is away")
	for range 4 { // it makes room; it creates the CommRun, and no status; it writes the status; the cache does not show that yet
		r.writeRecord(t.Context(), s, &d)
		if refuseStatus != nil && len(d.Events) > 0 {
			refuseStatus, d.Events = nil, nil
		}
	}
	if len(d.Events) != 0 {
		t.Fatalf("events of a run that was recorded: %v", d.Events)
	}
	var list v1alpha1.CommRunList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d CommRuns, %v; want one", len(list.Items), err)
	}
	got := &list.Items[0]
	if !objects.OwnedBy(got, w.group) || got.Labels[v1alpha1.LabelGroupUID] != string(w.group.UID) || got.Name != "g-1" {
		t.Errorf("CommRun %s, owners %v, labels %v", got.Name, got.OwnerReferences, got.Labels)
	}
	if got.Spec.ID != run.ID || got.Status.Origin != w.group.Status.Origin || len(got.Status.Results) != len(w.group.Status.Results) || len(got.Status.Results) == 0 {
		t.Errorf("run %s, origin %s, %d series; want %s, %s, %d", got.Spec.ID, got.Status.Origin, len(got.Status.Results), run.ID, w.group.Status.Origin, len(w.group.Status.Results))
	}
	if len(got.Status.Libraries) != 1 || got.Status.Libraries[0].Nodes != 3 {
		t.Errorf("libraries %+v, want one on 3 nodes", got.Status.Libraries)
	}
	if got.Spec.Template == nil || got.Spec.Template.RanksPerNode != 8 {
		t.Errorf("template %+v", got.Spec.Template)
	}

	// The cache forgets what was measured, and the next decision knows the CommRun.
	object, err := trimCommRun(got.DeepCopy())
	if err != nil || len(object.(*v1alpha1.CommRun).Status.Results) != 0 {
		t.Errorf("the cache holds a past run: %v", err)
	}
	s.Runs = []v1alpha1.CommRun{*object.(*v1alpha1.CommRun)}
	if next := Decide(s, testConfig); next.RecordRun || len(next.DeleteRuns) != 0 {
		t.Errorf("a recorded run is to be recorded again: %+v", next.DeleteRuns)
	}

	// A refusal is told and fails nothing.
	if err := c.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	for _, refuse = range []error{errors.New("no"), apierrors.NewForbidden(schema.GroupResource{Resource: "commruns"}, got.Name, errors.New("exceeded quota"))} {
		d := Decision{Status: d.Status, RecordRun: true}
		r.writeRecord(t.Context(), s, &d)
		if len(d.Events) != 1 || d.Events[0].Reason != v1alpha1.ReasonRunNotRecorded || !strings.Contains(d.Events[0].Note, refuse.Error()) {
			t.Errorf("events %v, want one RunNotRecorded with %q", d.Events, refuse)
		}
		testkit.WantRefusedResult(t, d.WakeAt.Sub(s.Now), nil)
	}
}
