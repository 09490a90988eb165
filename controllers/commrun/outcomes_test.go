package commrun

import (
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestPassIsHeldAgainstThePlanOfItsRun: a Pass lacks what its run's plan has. Where that is gone with the CommRun, the
// spec is asked only while it still asks for what the run measured.
func TestPassIsHeldAgainstThePlanOfItsRun(t *testing.T) {
	group := testkit.Group()
	plan := runplan.For(&group.Spec)
	run := &v1alpha1.RunAssignment{ID: "1-1", Generation: 1}
	report := testkit.Report(&plan, run, v1alpha1.VerdictPass, 300_000, testkit.Now)
	task := &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{Run: run}}
	group.Status.Run = &v1alpha1.GroupRunStatus{ID: "1-1", SpecHash: runplan.SpecHash(&group.Spec)}
	larger := *plan.DeepCopy()
	larger.SizesBytes = append(larger.SizesBytes, 1<<30)
	for name, tc := range map[string]struct {
		plan    *v1alpha1.RunPlan
		changed bool // the spec, after the run
		whole   bool // the report
		want    v1alpha1.Verdict
	}{
		"of its plan":                              {&plan, false, true, v1alpha1.VerdictPass},
		"of its plan, the spec has changed":        {&plan, true, true, v1alpha1.VerdictPass},
		"of a plan with more":                      {&larger, false, true, v1alpha1.VerdictInconclusive},
		"of less, the plan is gone":                {nil, false, false, v1alpha1.VerdictInconclusive},
		"the plan is gone":                         {nil, false, true, v1alpha1.VerdictPass},
		"the plan is gone, and the spec's another": {nil, true, true, v1alpha1.VerdictPass},
	} {
		group, report := group.DeepCopy(), report.DeepCopy()
		if group.Status.Plan = tc.plan; tc.changed {
			group.Spec.Benchmark.MaxSizeBytes = 1 << 30
		}
		if !tc.whole {
			report.Results = report.Results[1:]
		}
		nodes := []nodeState{{name: "n", phase: judge.Done, report: report, commTask: task}}
		if got := judgeNodes(nodes, group)[0]; got.Verdict != tc.want {
			t.Errorf("%s: %s: %s, want %s", name, got.Verdict, got.Message, tc.want)
		}
	}
}

// An agent leaves sizes out of the middle of a large report, never the first or the last.
func TestOmittedSizesAreNotMissing(t *testing.T) {
	run, plan := &v1alpha1.RunAssignment{ID: "1-1", Generation: 1}, runplan.For(&testkit.Group().Spec)
	last := len(plan.SizesBytes) - 1
	for at, want := range map[int]v1alpha1.Verdict{0: v1alpha1.VerdictInconclusive, 1: v1alpha1.VerdictPass,
		last: v1alpha1.VerdictInconclusive} {
		report := testkit.Report(&plan, run, v1alpha1.VerdictPass, 300_000, testkit.Now)
		report.Results[0].SizeBytes = slices.Delete(report.Results[0].SizeBytes, at, at+1)
		n := nodeState{name: "n", phase: judge.Done, report: report,
			commTask: &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{Run: run}}}
		if got := nodeOutcome(&n, &runplan.Baseline{Plan: &plan}); got.Verdict != want {
			t.Errorf("without size %d: %s: %s, want %s", at, got.Verdict, got.Message, want)
		}
	}
}

// TestANodeThatLostItsPodIsNoCulprit: it was not measured, and nothing is known against it.
func TestANodeThatLostItsPodIsNoCulprit(t *testing.T) {
	for reason, blamed := range map[string]bool{
		v1alpha1.ReasonRunPodFailed: false, v1alpha1.ReasonInterrupted: false, v1alpha1.ReasonMemberLost: false,
		v1alpha1.ReasonPreempted:     false,
		v1alpha1.ReasonNoGPUResource: true, v1alpha1.ReasonPreconditionFailed: true,
		v1alpha1.ReasonRunDeadlineExceeded: true, v1alpha1.ReasonLibraryMissing: true,
	} {
		for name, n := range map[string]nodeState{
			"closed":   {closure: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: reason}},
			"reported": {report: &v1alpha1.NodeRunStatus{Verdict: v1alpha1.VerdictError, Reason: reason}},
		} {
			n.name, n.phase = "a", judge.Done
			if o := nodeOutcome(&n, &runplan.Baseline{}); o.Verdict != v1alpha1.VerdictError ||
				(len(o.Culprits) > 0) != blamed {
				t.Errorf("%s, %s: %s with culprits %+v, expected one: %v", reason, name, o.Verdict, o.Culprits, blamed)
			}
		}
	}
	// What refuses a run pod is the namespace's: a quota, its pod security level, a taken account name. What a kubelet
	// cannot start is the node's.
	for podName, blamed := range map[string]bool{"": false, "mi300x-1-1-a": true} {
		n := nodeState{name: "a", phase: judge.Done, podName: podName,
			closure: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: v1alpha1.ReasonRunPodNotStarted}}
		if o := nodeOutcome(&n, &runplan.Baseline{}); o.Verdict != v1alpha1.VerdictError ||
			(len(o.Culprits) > 0) != blamed {
			t.Errorf("run pod %q not started: %s with culprits %+v, expected one: %v",
				podName, o.Verdict, o.Culprits, blamed)
		}
	}
}

// TestWhatIsStaleSaysSoThoughItWasClosed: a node on which the run was ended, and that rebooted since, has no verdict.
func TestWhatIsStaleSaysSoThoughItWasClosed(t *testing.T) {
	n := nodeState{name: "a", phase: judge.Done,
		closure: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: v1alpha1.ReasonRunPodFailed},
		stale:   &v1alpha1.RunStaleness{Reason: "BootIDChanged", Message: "rebooted"}}
	if o := nodeOutcome(&n, &runplan.Baseline{}); !o.Stale || o.Verdict != "" || len(o.Culprits) > 0 {
		t.Errorf("%+v", o)
	}
}

// TestWhatIsStaleHasNoVerdict: so that a node whose result no longer counts is never fit for the group.
func TestWhatIsStaleHasNoVerdict(t *testing.T) {
	n := nodeState{name: "n", phase: judge.Done, report: &v1alpha1.NodeRunStatus{Verdict: v1alpha1.VerdictPass},
		commTask: &v1alpha1.CommTask{}}
	if o := nodeOutcome(&n, &runplan.Baseline{}); !stage.Fit(&o) {
		t.Errorf("a node that passed is not fit: %+v", o)
	}
	n.stale = &v1alpha1.RunStaleness{Reason: "BootIDChanged", Message: "rebooted"}
	if o := nodeOutcome(&n, &runplan.Baseline{}); o.Verdict != "" || stage.Fit(&o) {
		t.Errorf("a stale result counts: %+v", o)
	}
}

// TestARunThatDidNotComeToTheNodeForgetsNothing: how often in a row a node's result was bad, and how often it found no
// place, goes on from one run of the changed nodes to the next, also where the run between did not come to the node.
func TestARunThatDidNotComeToTheNodeForgetsNothing(t *testing.T) {
	closed := func(verdict v1alpha1.Verdict, reason string) *v1alpha1.RunClosure {
		return &v1alpha1.RunClosure{Verdict: verdict, Reason: reason}
	}
	for name, tc := range map[string]struct {
		trigger          string
		old              v1alpha1.RunAssignment
		report           v1alpha1.Verdict
		repeats, retries int32
	}{
		"it failed": {state.TriggerNodesChanged, v1alpha1.RunAssignment{Repeats: 1, Retries: 3},
			v1alpha1.VerdictFail, 2, 0},
		"its pod died": {state.TriggerNodesChanged, v1alpha1.RunAssignment{Repeats: 1, Retries: 3,
			Closed: closed(v1alpha1.VerdictError, v1alpha1.ReasonRunPodFailed)}, "", 2, 3},
		"it found no place": {state.TriggerNodesChanged, v1alpha1.RunAssignment{Repeats: 2, Retries: 3,
			Closed: closed(v1alpha1.VerdictSkipped, v1alpha1.ReasonRunPodUnschedulable)}, "", 2, 4},
		"it was aborted": {state.TriggerNodesChanged, v1alpha1.RunAssignment{Repeats: 2, Retries: 3,
			Closed: closed(v1alpha1.VerdictSkipped, v1alpha1.ReasonSuspended)}, "", 2, 3},
		"it passed": {state.TriggerNodesChanged, v1alpha1.RunAssignment{Repeats: 2, Retries: 3},
			v1alpha1.VerdictPass, 0, 0},
		"a run of all followed": {state.TriggerRequested, v1alpha1.RunAssignment{Repeats: 2, Retries: 3},
			v1alpha1.VerdictFail, 0, 0},
	} {
		group := testkit.Group()
		plan := runplan.For(&group.Spec)
		ct := &v1alpha1.CommTask{}
		tc.old.ID, tc.old.Number, tc.old.Generation = "1-1", 1, 1
		ct.Spec.Run = &tc.old
		if ct.Status.Run = nil; tc.report != "" {
			ct.Status.Run = testkit.Report(&plan, ct.Spec.Run, tc.report, 300_000, testkit.Now)
		}
		run := &v1alpha1.GroupRunStatus{ID: "1-2", Number: 2, Since: 1, Generation: 1, Trigger: tc.trigger}
		if tc.trigger != state.TriggerNodesChanged {
			run.Since = 2
		}
		a := newAssignment(run, &nodeState{name: "n00000", commTask: ct}, Input{Now: testkit.Now, Group: group})
		if a.ID != "1-2" || a.Repeats != tc.repeats || a.Retries != tc.retries {
			t.Errorf("%s: %+v, want %d repeats and %d retries", name, a, tc.repeats, tc.retries)
		}
	}
}
