package executor

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/agent/commtask"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// TestRunAgainstAPIServer reports whole model runs to a real API server: its schema takes every one of them, and
// a run that is no longer asked for is not reported.
func TestRunAgainstAPIServer(t *testing.T) {
	c := startServer(t).admin
	ctx, name := t.Context(), types.NamespacedName{Namespace: "default", Name: "group.node-a"}
	k := KubeTask{Client: c, Name: name, RunID: "run-1"}
	if _, err := k.Assignment(ctx); !errors.Is(err, commtask.ErrSuperseded) {
		t.Fatalf("without the CommTask: %v, want commtask.ErrSuperseded", err)
	}
	node := wholeCommTask(api.NodeRunStatus{})
	node.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
	node.Spec.Group = api.GroupReference{Name: "group"}
	node.Spec.Run.ID = "run-1"
	node.Status = api.CommTaskStatus{}
	if err := c.Create(ctx, &node); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Assignment(ctx); !errors.Is(err, commtask.ErrSuperseded) {
		t.Fatalf("without the CommRun: %v, want commtask.ErrSuperseded", err)
	}
	run := testRun()
	run.Name = node.Spec.Run.Name
	status := run.Status
	if err := c.Create(ctx, &run); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Assignment(ctx); !errors.Is(err, errNoPlan) {
		t.Fatalf("before the CommRun has a plan: %v, want errNoPlan", err)
	}
	plan := defaultPlan()
	status.Plan = &plan
	run.Status = status
	if err := c.Status().Update(ctx, &run); err != nil {
		t.Fatal(err)
	}
	for what, teams := range map[string]*modelTeams{
		"pass": {relErr: 40000},
		"hang": {bad: func(rcclx.Variant, []int) string { return "hang" }},
	} {
		res, _, err := runModel(t, defaultPlan(), teams, func(r *Runner, _ *memoryReporter) { r.Reporter = k })
		if err != nil || !res.Reported || len(res.Status.Settings) == 0 {
			t.Fatalf("%s: %v, reported %v", what, err, res.Reported)
		}
		var got api.CommTask
		if err := c.Get(ctx, name, &got); err != nil {
			t.Fatal(err)
		}
		if got.Status.Run == nil || got.Status.Run.Verdict != res.Status.Verdict ||
			got.Status.Run.Phase != api.NodeRunFinished || got.Status.Run.Step != res.Status.Step {
			t.Errorf("%s: stored %+v, reported %s", what, got.Status.Run, res.Status.Verdict)
		}
		for _, m := range got.ManagedFields {
			if m.Manager == api.FieldManagerRun &&
				(m.Subresource != "status" || m.FieldsV1.GetRawString() != `{"f:status":{"f:run":{}}}`) {
				t.Errorf("%s: the run owns %s of %q", what, m.FieldsV1.GetRawString(), m.Subresource)
			}
		}
		// The next run model starts over.
		got.Status.Run = nil
		if err := c.Status().Update(ctx, &got); err != nil {
			t.Fatal(err)
		}
	}
	rejected := api.NodeRunStatus{ID: "run-1", Phase: "Dancing", StartTime: metav1.Now()}
	if err := k.ReportRun(ctx, rejected); !errors.Is(err, commtask.ErrRejected) {
		t.Errorf("a phase that does not exist: %v, want commtask.ErrRejected", err)
	}
	var got api.CommTask
	if err := c.Get(ctx, name, &got); err != nil {
		t.Fatal(err)
	}
	got.Spec.Run.ID = "run-2"
	if err := c.Update(ctx, &got); err != nil {
		t.Fatal(err)
	}
	if err := k.ReportRun(ctx, api.NodeRunStatus{ID: "run-1", Phase: api.NodeRunRunning,
		StartTime: metav1.Now()}); !errors.Is(err, commtask.ErrSuperseded) {
		t.Errorf("another run is asked for: %v, want commtask.ErrSuperseded", err)
	}
}
