package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// What random histories have shown, each by itself.

// TestLostStatusLosesNothing: whenever the objects were written and the status was not, the next decision comes to the
// same end.
func TestLostStatusLosesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		faults faults
		change func(*state.Group)
		lose   bool
	}{
		"good":         {},
		"mesh":         {change: testkit.Mesh("dp", 4, "tp", 8)},
		"dies":         {faults: faults{dieNodes: []int{1}}},
		"hangs":        {faults: faults{hangNodes: []int{2}}},
		"slow":         {faults: faults{slowNodes: []int{2}}},
		"never ready":  {faults: faults{neverReady: []int{3}}},
		"mute":         {faults: faults{muteNodes: []int{3}}},
		"pod lost":     {lose: true},
		"too few left": {lose: true, change: func(g *state.Group) { g.Spec.Members.MinMembers = 4 }},
	} {
		t.Run(name, func(t *testing.T) {
			end := func(losing bool) string {
				w := newGroupWorld(t, 4, tc.faults, tc.change)
				lose := func() {}
				if tc.lose {
					w.at(v1alpha1.TestGroup, func() { w.losePod(3) })
					lose = w.meddle
				}
				w.meddle = func() {
					lose()
					if losing {
						before := w.group.Status.DeepCopy()
						w.step()
						w.group.Status = *before
					}
				}
				w.play()
				s := w.span()
				return fmt.Sprintf("run %s, stage %s (%s), left %q, present %d, culprits %v",
					w.group.Status.Run.Verdict, s.Verdict, s.Reason, s.LeftSet, s.Present, w.culprits())
			}
			if want, got := end(false), end(true); got != want {
				t.Errorf("with each status lost once: %s\notherwise: %s", got, want)
			}
		})
	}
}

// TestTestThatWasNeverGivenOut: the manager wrote the test down and was then away until past its deadline. No one was
// asked, so that no one passed, and no one is to blame.
func TestTestThatWasNeverGivenOut(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, nil)
	gone := false
	w.meddle = func() {
		if s := w.span(); !gone && s != nil && s.Stage == v1alpha1.StageWaitingForMembers && w.alive() == 4 {
			gone = true
			w.playAgents() // all are ready
			w.step()
			if len(w.span().Tests) != 1 || len(w.tasks) > 0 {
				t.Fatalf("%+v, tasks %v", w.span(), w.tasks)
			}
			w.now = w.now.Add(20 * time.Hour)
		}
	}
	w.play()
	if s := w.span(); !gone || s.Verdict != v1alpha1.VerdictError || s.Reason != v1alpha1.ReasonRunDeadlineExceeded ||
		len(s.Culprits) > 0 || len(s.Results) > 0 {
		t.Errorf("%v, %+v", gone, s)
	}
}

// TestReportThatComesWithTheStage: a node is given up at its deadline and so left out of the group's communicator, and
// its pass comes before that is written. The stage begins only once it is; and a node that was not in the communicator
// is no pass.
func TestReportThatComesWithTheStage(t *testing.T) {
	w := newGroupWorld(t, 3, faults{}, nil)
	late := w.nodes[2].Name
	for i := range w.nodes {
		name := w.nodes[i].Name
		startPod(w.podOn(name), name, w.now)
		if name != late {
			w.commTask(name).Status.Run = testkit.Report(w.plan(), w.commTask(name).Spec.Run,
				v1alpha1.VerdictPass, 300_000, w.now)
			endPod(w.podOn(name), 0, w.now)
		}
	}
	w.settle()
	w.now = w.now.Add(decision.Seconds(w.group.Spec.Run.NodeDeadlineSeconds))
	w.reportFacts()
	d := Decide(w.snapshot(), testConfig)
	closes := slices.ContainsFunc(d.CommTasks, func(c commrun.Change) bool {
		return c.Desired.Spec.NodeName == late && c.Desired.Spec.Run != nil && c.Desired.Spec.Run.Closed != nil
	})
	if d.Status.Span.Stage != v1alpha1.StageWaitingForMembers || d.Status.Span.Members != 2 || !closes {
		t.Fatalf("%+v, closes %v", d.Status.Span, closes)
	}
	if !finishes(w.group, &d) {
		t.Error("the stage's members would be written although the closure of one that is none was not")
	}
	run := d.Status.Run
	span := &v1alpha1.SpanStatus{RunID: run.ID, Stage: v1alpha1.StageEnded, Verdict: v1alpha1.VerdictPass, Members: 2}
	if o := stage.Outcome(&w.group.Spec, run, span, 3); o.Verdict != v1alpha1.VerdictInconclusive {
		t.Errorf("a communicator over 2 of 3 nodes: %+v", o)
	}
	if o := stage.Outcome(&w.group.Spec, run, span, 2); o.Verdict != v1alpha1.VerdictPass {
		t.Errorf("a communicator over all nodes: %+v", o)
	}
	w.group.Spec.Span, span.Verdict = v1alpha1.SpanNode, v1alpha1.VerdictFail
	if o := stage.Outcome(&w.group.Spec, run, span, 2); o == nil || o.Verdict != v1alpha1.VerdictFail {
		t.Errorf("the spec became one of span Node after the run failed over several nodes: %+v", o)
	}
	if o := stage.Outcome(&w.group.Spec, run, nil, 2); o != nil {
		t.Errorf("a run of span Node: %+v", o)
	}
}

// TestDueScheduleWaitsQuietly: a run that is due and cannot start wakes the controller by what it waits for, not again
// and again.
func TestDueScheduleWaitsQuietly(t *testing.T) {
	for name, cannot := range map[string]func(*groupWorld){
		"no member": func(w *groupWorld) { w.nodes = []corev1.Node{} },
		"no report": func(w *groupWorld) {
			for _, ct := range w.commTasks {
				w.setFacts(ct.Spec.NodeName, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := tableWorld(t, fromReady)
			w.group.Spec.Run.Schedule = "*/5 * * * *"
			cannot(w)
			w.now = w.now.Add(time.Hour)
			w.settle()
			if at := w.decided.WakeAt; !at.IsZero() && !at.After(w.now) {
				t.Errorf("wakes at %s, it is %s", at, w.now)
			}
			if run := w.group.Status.Run; run.Number != 1 {
				t.Errorf("run %+v", run)
			}
		})
	}
}

// TestStartProvesNothing: after a run that failed, the settings of the one before are not proven again by the start of
// the next.
func TestStartProvesNothing(t *testing.T) {
	w := tableWorld(t, fromReady)
	ask := func(word string) {
		w.request(word)
		w.settle()
	}
	if got := condition(w.group, v1alpha1.ConditionSettingsPublished); got != "True" {
		t.Fatal(got)
	}
	ask("2")
	if got := condition(w.group, v1alpha1.ConditionSettingsPublished); got != "True" {
		t.Errorf("while it is repeated: %s", got)
	}
	w.everyoneReports(v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	w.settle()
	if got := condition(w.group, v1alpha1.ConditionSettingsPublished); got != "False" {
		t.Errorf("after it failed: %s", got)
	}
	ask("3")
	if got := condition(w.group, v1alpha1.ConditionSettingsPublished); got != "False" ||
		w.group.Status.Run.Number != 3 {
		t.Errorf("while run %d follows: %s", w.group.Status.Run.Number, got)
	}
}

// TestClockAheadKeepsNoGPUs: an agent gets a little time to end its pod by itself, however far ahead its node's clock
// is.
func TestClockAheadKeepsNoGPUs(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, 20 * time.Second, 3 * time.Minute, 24 * time.Hour} {
		w := tableWorld(t, fromRunning)
		for i := range w.nodes {
			ct := w.commTask(w.nodes[i].Name)
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now.Add(ahead))
		}
		w.settle()
		w.now = w.now.Add(2 * podstate.ExitGrace)
		w.settle()
		for name, pod := range w.pods {
			if pod.DeletionTimestamp.IsZero() {
				t.Errorf("clock %s ahead: pod %s holds its GPUs %s after the report", ahead, name, 2*podstate.ExitGrace)
			}
		}
	}
}

// TestOldStatusTakesNoRunAway: a manager that takes over may read a status that is older than the CommTasks and pods.
// It takes nothing of the newer run away: its status is refused, what it deleted would be gone.
func TestOldStatusTakesNoRunAway(t *testing.T) {
	w := tableWorld(t, fromReady)
	past := []*state.Group{w.group.DeepCopy()}
	w.request("2")
	past = append(past, w.group.DeepCopy())
	w.settle()
	for i := range w.nodes {
		startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
	}
	if run := w.group.Status.Run; run.Number != 2 || run.Phase != v1alpha1.RunPhaseRunning || w.alive() != 4 {
		t.Fatalf("%+v, %d pods", run, w.alive())
	}
	for _, group := range past {
		takesNothingAway(t, w, group)
	}
}

// takesNothingAway reconciles with a cache that has a past CommGroup: assignments, sessions and pods stay as they are.
func takesNothingAway(t *testing.T, w *groupWorld, past *state.Group) {
	t.Helper()
	r, cache := managerOf(t, w)
	key := client.ObjectKeyFromObject(w.group)
	cache.has(past.DeepCopy())
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != oldReadPoll || cache.writes.Load() > 0 {
		t.Errorf("%+v, %v, %d deletes and writes of the status", result, err, cache.writes.Load())
	}
	for name, ct := range w.commTasks {
		var live v1alpha1.CommTask
		if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(ct), &live); err != nil ||
			!objects.SameSpec(&live.Spec, &ct.Spec) {
			t.Errorf("CommTask %s: %v, %+v", name, err, live.Spec)
		}
	}
}

// TestConflictRepeatsNoFailedRead: a ConfigMap that another writer came first with leaves the last word of it, but none
// of a read that failed: that is over.
func TestConflictRepeatsNoFailedRead(t *testing.T) {
	w := tableWorld(t, fromReady)
	w.listFails(t)
	d := Decide(w.snapshot(), testConfig)
	d.ConfigMap = &corev1.ConfigMap{}
	configMapRefused(&d, w.group, w.now, errConflict)
	for _, c := range d.Status.Conditions {
		if c.Reason == v1alpha1.ReasonListFailed {
			t.Errorf("%+v", c)
		}
	}
}

// TestOldResultMakesNoVerdictWorse: a new manager's cache may have the group as it is, and a node's CommTask as it was
// in an earlier run. By that result the verdict of the run that is over would become worse, and the node be marked;
// what the API has counts.
func TestOldResultMakesNoVerdictWorse(t *testing.T) {
	for name, old := range map[string]bool{"an old read": true, "as it is": false} {
		t.Run(name, func(t *testing.T) {
			w := tableWorld(t, fromPartial)
			w.everyoneReports(v1alpha1.VerdictPass, "")
			w.settle()
			node := w.nodes[0].Name
			earlier := w.commTask(node).DeepCopy()
			earlier.ResourceVersion, earlier.Spec.Run.ID, earlier.Spec.Run.Number = "1", "1-1", 1
			earlier.Spec.Run.Closed = &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError,
				Reason: v1alpha1.ReasonRunPodFailed, Message: "in run 1-1", Time: *decision.Stamp(w.now)}
			if run := w.group.Status.Run; run.ID != "1-2" || run.Verdict != v1alpha1.VerdictPass {
				t.Fatalf("%+v", run)
			}
			r, cache := managerOf(t, w)
			if key := client.ObjectKeyFromObject(earlier); old {
				cache.old[key] = earlier
			} else {
				var live v1alpha1.CommTask
				if err := cache.api.Get(t.Context(), key, &live); err != nil {
					t.Fatal(err)
				}
				live.Spec.Run = earlier.Spec.Run
				if err := cache.api.Update(t.Context(), &live); err != nil {
					t.Fatal(err)
				}
			}
			key := client.ObjectKeyFromObject(w.group)
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil || old != (result.RequeueAfter == oldReadPoll) || old && cache.writes.Load() > 0 {
				t.Errorf("%+v, %v, %d writes", result, err, cache.writes.Load())
			}
			now := storedGroup(t, cache.api, key)
			if bad := now.Status.Run.Verdict != v1alpha1.VerdictPass; bad == old {
				t.Errorf("run %+v", now.Status.Run)
			}
		})
	}
}

// TestOldCommTaskEndsNoMemberOfTheStage: a new manager's cache has the group in its stage, and a member's CommTask as
// it was before: its pod is not deleted as one of no member, and it is not named as lost.
func TestOldCommTaskEndsNoMemberOfTheStage(t *testing.T) {
	w := tableWorld(t, fromStage)
	ct := w.commTask(w.nodes[1].Name)
	pod := w.groupPod(w.nodes[1].Name)
	old := ct.DeepCopy()
	old.ResourceVersion, old.Spec.Session, old.Status.Session = "1", nil, nil
	r, cache := managerOf(t, w)
	cache.old[client.ObjectKeyFromObject(ct)] = old
	key := client.ObjectKeyFromObject(w.group)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != oldReadPoll || cache.writes.Load() > 0 {
		t.Errorf("%+v, %v, %d writes", result, err, cache.writes.Load())
	}
	var live corev1.Pod
	if err := cache.api.Get(t.Context(), client.ObjectKeyFromObject(pod), &live); err != nil ||
		!live.DeletionTimestamp.IsZero() {
		t.Errorf("pod %s: %v", pod.Name, err)
	}
	delete(cache.old, client.ObjectKeyFromObject(ct)) // the cache has come up
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Error(err)
	}
	if now := storedGroup(t, cache.api, key); now.Status.Span.LeftSet != "" {
		t.Errorf("%+v", now.Status.Span)
	}
}

// TestWhatALossRestsOn: before a node is closed or let go since it, its pod or its CommTask is not there, these are
// looked up.
func TestWhatALossRestsOn(t *testing.T) {
	for _, tc := range []struct {
		state, event string
		want         []string
	}{
		{fromRunning, "pod lost", []string{"n00000"}},
		{fromRunning, "pod failed", []string{"n00000"}},
		{fromRunning, "node labelled away", []string{"n00003"}},
		{fromRunning, "report fail", nil},
		{fromStage, "pod lost", []string{"n00000"}},
		{fromStage, "pod evicted", []string{"n00000"}},
		{fromStage, "node labelled away", []string{"n00003"}},
		{fromSearch, "pod lost", []string{"n00000"}},
		{fromStage, "suspended", nil},
		{fromReady, "report turns bad", []string{"n00000"}},
		{fromReady, "report lost", []string{"n00000"}},
		{fromReady, "deadlines passed", nil},
	} {
		w := tableWorld(t, tc.state)
		tableEvents[tc.event].do(w)
		if got := Decide(w.snapshot(), testConfig).restsOn; !slices.Equal(got, tc.want) {
			t.Errorf("%s, %s: it rests on %v, want %v", tc.state, tc.event, got, tc.want)
		}
	}
	w := tableWorld(t, fromStage)
	tableEvents["CommTask deleted"].do(w) // who is missing then is not known
	if got := Decide(w.snapshot(), testConfig).restsOn; !slices.Equal(got, []string{"n00000"}) {
		t.Errorf("a participant that nobody is rests on %v", got)
	}
}
