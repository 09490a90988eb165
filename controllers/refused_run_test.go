package controllers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// refusedRun is a group of four nodes whose monitors report, and whose run pods pass as soon as they are there, unless
// they stay.
type refusedRun struct {
	*testing.T
	r     *CommGroupReconciler
	api   client.Client
	group *state.Group
	clock *clocktesting.FakePassiveClock
	stay  bool
	// rebooted is the CommTask of a node with another boot id.
	rebooted string
}

func newRefusedRun(t *testing.T, group *state.Group) *refusedRun {
	group.Spec.Run.MaxParallelNodes = 4
	group.Spec.Run.StartDeadlineSeconds = 60 // each second of it is a reconcile, or nearly
	w := newWorld(group, testkit.Nodes(4))
	r, cache := managerOf(t, &groupWorld{world: w})
	return &refusedRun{T: t, r: r, api: cache.api, group: w.group, clock: r.Clock.(*clocktesting.FakePassiveClock)}
}

// step reconciles once and plays the agents; it returns the status and when the next reconcile comes.
func (w *refusedRun) step() (state.Status, time.Duration) {
	w.Helper()
	ctx, now := w.Context(), w.clock.Now()
	var pods corev1.PodList
	var nodes v1alpha1.CommTaskList
	if err := errors.Join(w.api.List(ctx, &pods), w.api.List(ctx, &nodes)); err != nil {
		w.Fatal(err)
	}
	plan := runplan.For(&w.group.Spec)
	if err := playMonitors(ctx, w.api, func(node string) *v1alpha1.NodeFacts {
		facts := testkit.Facts(now)
		if node == w.rebooted {
			facts.BootID = "another"
		}
		return facts
	}); err != nil {
		w.Fatal(err)
	}
	for i := range nodes.Items {
		ct := &nodes.Items[i]
		if a := ct.Spec.Run; a != nil && a.Closed == nil && !w.stay &&
			slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.OwnerReferences[0].Name == ct.Name }) {
			ct.Status.Run = testkit.Report(&plan, a, v1alpha1.VerdictPass, 300_000, now)
		}
		if err := w.api.Status().Update(ctx, ct); err != nil {
			w.Fatal(err)
		}
	}
	result, err := w.r.paced(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)})
	if err != nil {
		w.Fatal(err)
	}
	return storedGroup(w.T, w.api, client.ObjectKeyFromObject(w.group)).Status, result.RequeueAfter
}

// TestARunEndsWhateverIsRefused: a run whose writes are refused ends within twice startDeadlineSeconds. Nodes that have
// a result keep it, the others count as Error without a culprit, the words say what refused them, and later reconciles
// say the same.
func TestARunEndsWhateverIsRefused(t *testing.T) {
	away := apierrors.NewInternalError(errors.New("failed calling webhook: connection refused"))
	isCommTask := func(o client.Object) bool { _, ok := o.(*v1alpha1.CommTask); return ok }
	isPod := func(o client.Object) bool { _, ok := o.(*corev1.Pod); return ok }
	for name, tc := range map[string]struct {
		group func(*state.Group)
		// running: the refusal begins once run pods are there; gone: they are deleted then.
		running, gone bool
		fails         func(verb string, o client.Object) error
		passed        int32
		reason, words string
		// again: once the refusal ends, a run of the nodes that were given up begins by itself.
		again bool
	}{
		"a quota on CommTasks": {
			fails: func(verb string, o client.Object) error {
				if verb == "create" && isCommTask(o) && strings.HasSuffix(o.GetName(), "3") {
					return errQuota
				}
				return nil
			},
			passed: 3, reason: v1alpha1.ReasonCommTasksRefused, words: "exceeded quota: small", again: true},
		"closures": {
			running: true, gone: true,
			fails: func(verb string, o client.Object) error {
				if isClosure(verb, o) {
					return away
				}
				return nil
			},
			reason: v1alpha1.ReasonCommTasksRefused, words: "failed calling webhook"},
		"pods, and that they are": {
			fails: func(verb string, o client.Object) error {
				if verb == "create" && isPod(o) {
					return errQuota
				}
				if ct, ok := o.(*v1alpha1.CommTask); ok && verb == "patch" &&
					(ct.Spec.Run.Waiting != nil || ct.Spec.Run.Closed != nil) {
					return away
				}
				return nil
			},
			reason: v1alpha1.ReasonCommTasksRefused, words: "failed calling webhook"},
		"pods": {
			fails: func(verb string, o client.Object) error {
				if verb == "create" && isPod(o) {
					return away
				}
				return nil
			},
			reason: v1alpha1.ReasonRunPodNotStarted, words: "failed calling webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			group := testkit.Group()
			if tc.group != nil {
				tc.group(group)
			}
			w := newRefusedRun(t, group)
			w.stay = tc.running
			refusing := !tc.running
			failWrites(w.r, func(verb string, o client.Object) error {
				if verb == "create" { // as the API server does
					o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
					o.SetUID(types.UID("uid-" + o.GetName()))
				}
				if !refusing {
					return nil
				}
				return tc.fails(verb, o)
			})
			var status state.Status
			var next time.Duration
			limit := 2*decision.Seconds(group.Spec.Run.StartDeadlineSeconds) + time.Minute
			for steps := 0; ; steps++ {
				status, next = w.step()
				run := status.Run
				if run != nil && run.Phase != v1alpha1.RunPhaseRunning {
					break
				}
				if run != nil && next <= 0 {
					t.Fatal("no next reconcile while the run goes on")
				}
				var pods corev1.PodList
				if err := w.api.List(t.Context(), &pods,
					client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}); err != nil {
					t.Fatal(err)
				}
				if tc.running && !refusing && len(pods.Items) == 4 {
					w.step() // the CommTasks have the pods' names
					refusing = true
					for i := range pods.Items {
						if err := w.api.Delete(t.Context(), &pods.Items[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
				if next = max(next, time.Second); steps < 8 {
					next = time.Second // events of what was written; later nothing but its own wake-ups come
				}
				w.clock.SetTime(w.clock.Now().Add(next))
				if run != nil && w.clock.Now().After(run.StartTime.Add(limit)) {
					t.Fatalf("run %s goes on after %s: %+v", run.ID, limit, run.Refused)
				}
			}
			check := func(status *state.Status) {
				t.Helper()
				if status.Run.Phase != v1alpha1.RunPhaseFinished || status.Run.Verdict != v1alpha1.VerdictError {
					t.Fatalf("the run: %+v", status.Run)
				}
				if m := status.Members; m.Passed != tc.passed || m.Errored != 4-tc.passed {
					t.Errorf("members: %+v", m)
				}
				if c := meta.FindStatusCondition(status.Conditions,
					v1alpha1.ConditionValidated); c.Status != metav1.ConditionFalse || c.Reason != tc.reason ||
					!strings.Contains(c.Message, tc.words) || !strings.Contains(c.Message, "kubectl commgroup run") {
					t.Errorf("Validated: %+v", c)
				}
				if len(status.Culprits) > 0 {
					t.Errorf("culprits: %+v", status.Culprits)
				}
			}
			check(&status)
			for range 3 {
				w.clock.SetTime(w.clock.Now().Add(time.Minute))
				if status, _ = w.step(); status.Run.Number != 1 {
					t.Fatalf("run %s began by itself", status.Run.ID)
				}
				check(&status)
			}
			refusing = false
			w.clock.SetTime(w.clock.Now().Add(time.Minute))
			w.step()
			status, _ = w.step()
			if tc.again {
				for range 4 {
					w.clock.SetTime(w.clock.Now().Add(time.Second))
					status, _ = w.step()
				}
				if run := status.Run; run.Number != 2 || run.Trigger != state.TriggerNodesChanged ||
					run.Verdict != v1alpha1.VerdictPass || status.Members.Passed != 4 {
					t.Errorf("the next run: %+v, members %+v", run, status.Members)
				}
				return
			}
			check(&status)
			if status.Run.Number == 1 { // a run that is asked for is not held up
				if err := w.api.Create(t.Context(), state.NewRun(group, "now")); err != nil {
					t.Fatal(err)
				}
				if status, _ = w.step(); status.Run.Number != 2 || status.Run.Refused != nil && tc.group == nil {
					t.Errorf("the next run: %+v", status.Run)
				}
			}
		})
	}
}

// TestGroupStageWithoutARefusedMember: the group's stage goes on without a member whose CommTask is refused, and the
// run ends by its verdict; once the CommTask is taken in the middle of it, nothing changes for the run.
func TestGroupStageWithoutARefusedMember(t *testing.T) {
	const refused = 3
	for name, taken := range map[string]v1alpha1.RunStage{"for good": "",
		"until the members are awaited": v1alpha1.StageWaitingForMembers, "until its test": v1alpha1.StageGroup} {
		t.Run(name, func(t *testing.T) {
			w := groupWorldOf(t, newWorld(testkit.SpanGroup(8, func(g *state.Group) {
				g.Spec.Members.MinMembers = 4
			}), testkit.Nodes(8)))
			for i := range w.nodes {
				w.index[w.nodes[i].Name] = i
			}
			w.refusesNode = func(node string) bool {
				return node == w.nodes[refused].Name && (taken == "" || w.span() == nil || w.span().Stage != taken) &&
					w.commTask(node) == nil
			}
			w.settle()
			w.reportFacts()
			w.play()
			run := w.group.Status.Run
			if run.Number != 1 || run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictError {
				t.Fatalf("the run: %+v", run)
			}
			if s := w.span(); s.Verdict != v1alpha1.VerdictPass || s.Present != 7 {
				t.Errorf("the stage of %d members: %s %s: %s", s.Present, s.Verdict, s.Reason, s.Message)
			}
			if m := w.group.Status.Members; m.Passed != 7 || m.Errored != 1 {
				t.Errorf("members: %+v", m)
			}
			if c := meta.FindStatusCondition(w.group.Status.Conditions,
				v1alpha1.ConditionValidated); c.Reason != v1alpha1.ReasonCommTasksRefused ||
				!strings.Contains(c.Message, "exceeded quota: small") {
				t.Errorf("Validated: %+v", c)
			}
			if len(w.culprits()) > 0 {
				t.Errorf("culprits: %v", w.culprits())
			}
		})
	}
}

// TestARunForARefusedNodeIsNotRepeatedAtOnce: a node whose result no longer counts has a run of its own. Where that
// gave the node up since its CommTask is refused, the next one comes an hour later, by itself.
func TestARunForARefusedNodeIsNotRepeatedAtOnce(t *testing.T) {
	w := newRefusedRun(t, testkit.Group())
	refusing := false
	failWrites(w.r, func(verb string, o client.Object) error {
		o2, ok := o.(*v1alpha1.CommTask)
		switch {
		case verb == "create":
			o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
			o.SetUID(types.UID("uid-" + o.GetName()))
		case refusing && verb == "patch" && ok && o2.Spec.NodeName == w.rebooted:
			return errQuota
		}
		return nil
	})
	until := func(what string, most time.Duration, done func(*v1alpha1.GroupRunStatus) bool) {
		t.Helper()
		for end := w.clock.Now().Add(most); ; {
			status, next := w.step()
			if status.Run != nil && done(status.Run) {
				return
			}
			if w.clock.Now().After(end) {
				t.Fatalf("%s takes longer than %s: %+v", what, most, status.Run)
			}
			w.clock.SetTime(w.clock.Now().Add(min(max(next, time.Second), time.Minute)))
		}
	}
	over := func(number int64) func(*v1alpha1.GroupRunStatus) bool {
		return func(run *v1alpha1.GroupRunStatus) bool {
			return run.Number == number && run.Phase == v1alpha1.RunPhaseFinished
		}
	}
	until("run 1", 10*time.Minute, over(1))
	w.rebooted, refusing = "n00000", true
	until("run 2", 12*time.Minute, over(2))
	finished := w.clock.Now()
	until("the pause",
		commrun.RefusedPause+time.Minute, func(run *v1alpha1.GroupRunStatus) bool { return run.Number == 3 })
	if paused := w.clock.Now().Sub(finished); paused < commrun.RefusedPause {
		t.Errorf("run 3 began after %s", paused)
	}
	refusing = false
	until("run 3", 2*time.Minute, func(run *v1alpha1.GroupRunStatus) bool {
		return over(3)(run) && run.Verdict == v1alpha1.VerdictPass
	})
}

// TestARefusedCommRunKeepsNoCommTaskBack: without a run, too, a member has its CommTask, and a monitor that stays
// silent is named.
func TestARefusedCommRunKeepsNoCommTaskBack(t *testing.T) {
	group := testkit.Group()
	group.Spec.Members.MinMembers = 3
	w := newRefusedRun(t, group)
	failWrites(w.r, func(verb string, o client.Object) error {
		if verb != "create" {
			return nil
		}
		o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
		o.SetUID(types.UID("uid-" + o.GetName()))
		if _, ok := o.(*v1alpha1.CommRun); ok {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("commruns").GroupResource(), o.GetName(),
				errors.New("exceeded quota: count/commruns"))
		}
		return nil
	})
	nodes := testkit.Nodes(4)
	silent, key := nodes[3].Name, client.ObjectKeyFromObject(w.group)
	for elapsed := time.Duration(0); elapsed <= decision.Seconds(group.Spec.Run.StartDeadlineSeconds)+
		time.Minute; elapsed += 10 * time.Second {
		now := w.clock.Now()
		if err := playMonitors(t.Context(), w.api, func(node string) *v1alpha1.NodeFacts {
			if node == silent {
				return nil
			}
			return testkit.Facts(now)
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.r.paced(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(now.Add(10 * time.Second))
	}
	var commTasks v1alpha1.CommTaskList
	if err := w.api.List(t.Context(), &commTasks); err != nil || len(commTasks.Items) != len(nodes) {
		t.Errorf("%d CommTasks of %d members, %v", len(commTasks.Items), len(nodes), err)
	}
	c := meta.FindStatusCondition(storedGroup(t, w.api, key).Status.Conditions, v1alpha1.ConditionAgentsReporting)
	if c == nil || c.Reason != v1alpha1.ReasonAgentNotReporting || !strings.Contains(c.Message, silent) {
		t.Errorf("AgentsReporting is %+v, want that %s is named", c, silent)
	}
}
