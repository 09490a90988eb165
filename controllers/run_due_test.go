package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// passedOnce is a world whose first run has passed on all nodes.
func passedOnce(t *testing.T, nodes int, change func(*state.Group)) *world {
	t.Helper()
	g := testkit.Group()
	change(g)
	w := newWorld(g, testkit.Nodes(nodes))
	w.step()
	w.reportFacts()
	if w.runAll(300_000); w.group.Status.Run.Verdict != v1alpha1.VerdictPass {
		t.Fatalf("run %+v", w.group.Status.Run)
	}
	return w
}

// rebooted lets all monitors report now, that of one node with a boot id of its own.
func (w *world) rebooted(node, boot string) {
	w.reportFacts()
	w.factsOn(node).BootID = boot
}

func (w *world) runningSays() string {
	if c := meta.FindStatusCondition(w.group.Status.Conditions, v1alpha1.ConditionRunning); c != nil {
		return c.Message
	}
	return ""
}

// TestARunOfSomeNodesTakesNoScheduledRunsPlace: a node that reboots between the schedule's time and the delayed start
// is measured, and the scheduled run of all comes all the same, at its time, once a day.
func TestARunOfSomeNodesTakesNoScheduledRunsPlace(t *testing.T) {
	w := passedOnce(t, 3, func(g *state.Group) { g.Spec.Run.Schedule, g.Spec.Run.JitterSeconds = "0 2 * * *", 3600 })
	boot, some := "boot-1", 0
	for day := range 15 { // more often than the history has entries
		two := time.Date(2026, 3, 2+day, 2, 0, 0, 0, time.UTC)
		want, ran := w.group.Status.NextRunTime.Time, ""
		if want.Before(two) || want.After(two.Add(time.Hour)) {
			t.Fatalf("day %d: status.nextRunTime is %s", day, want)
		}
		for minute := -1; minute <= 61; minute++ {
			w.now = two.Add(time.Duration(minute) * time.Minute)
			w.rebooted("n00001", boot)
			if minute == 0 {
				boot = fmt.Sprint("boot-", day+2)
				w.rebooted("n00001", boot)
			}
			before := w.group.Status.Run.ID
			w.runAll(300_000)
			switch run := w.group.Status.Run; {
			case run.ID == before:
			case run.Trigger == state.TriggerNodesChanged:
				if some++; run.StartTime.Before(decision.Stamp(want)) &&
					!w.group.Status.NextRunTime.Equal(decision.Stamp(want)) {
					t.Errorf("day %d: the node's run moved status.nextRunTime from %s to %s",
						day, want, w.group.Status.NextRunTime)
				}
			case run.Trigger == state.TriggerScheduled && ran == "":
				if ran = run.ID; run.StartTime.Time.Before(want) || run.StartTime.Sub(want) > time.Minute {
					t.Errorf("day %d: scheduled run at %s, expected %s", day, run.StartTime, want)
				}
			default:
				t.Errorf("day %d: run %s (%s) after %q", day, run.ID, run.Trigger, ran)
			}
		}
		if ran == "" {
			t.Errorf("day %d: no scheduled run; next at %s", day, w.group.Status.NextRunTime)
		}
	}
	if some == 0 {
		t.Error("no node was measured by itself")
	}
}

// TestScheduleCountsFromTheLastRunOfAll, from its end, also where the history no longer has it; and from when the line
// was written.
func TestScheduleCountsFromTheLastRunOfAll(t *testing.T) {
	hour := func(hours int) *metav1.Time { return decision.Stamp(testkit.Now.Add(time.Duration(hours) * time.Hour)) }
	past := func(start, end int, trigger string) v1alpha1.RunSummary {
		return v1alpha1.RunSummary{Trigger: trigger, StartTime: *hour(start), FinishTime: hour(end)}
	}
	run := func(start int, end *metav1.Time, trigger string) *v1alpha1.GroupRunStatus {
		return &v1alpha1.GroupRunStatus{Trigger: trigger, StartTime: *hour(start), FinishTime: end}
	}
	const some, line, now = state.TriggerNodesChanged, "0 3 * * *", 12
	for name, tc := range map[string]struct {
		run     *v1alpha1.GroupRunStatus
		history []v1alpha1.RunSummary
		known   *v1alpha1.ScheduleStatus
		want    int
	}{
		"of all": {run(8, hour(9), state.TriggerRequested),
			[]v1alpha1.RunSummary{past(8, 9, state.TriggerRequested), past(3, 4, state.TriggerScheduled)}, nil, 9},
		"of all, goes on": {run(8, nil, state.TriggerRequested),
			[]v1alpha1.RunSummary{past(3, 4, state.TriggerScheduled)}, nil, now},
		"of some, after one of all": {run(8, hour(9), some), []v1alpha1.RunSummary{past(8, 9, some), past(7, 8, some),
			past(5, 6, state.TriggerRequested), past(3, 4, state.TriggerScheduled)}, nil, 6},
		"of some, goes on": {run(9, nil, some),
			[]v1alpha1.RunSummary{past(8, 9, some), past(5, 6, state.TriggerMembersChanged)}, nil, 6},
		"none of all is known": {run(9, nil, some),
			[]v1alpha1.RunSummary{past(8, 9, some), past(7, 8, some)}, nil, 7},
		"no history": {run(9, hour(10), some), nil, nil, 9},
		"the line is as old": {run(8, hour(9), state.TriggerRequested), nil,
			&v1alpha1.ScheduleStatus{Line: line, Since: *hour(2)}, 9},
		"the line is new": {run(8, hour(9), state.TriggerRequested), nil,
			&v1alpha1.ScheduleStatus{Line: line, Since: *hour(10)}, 10},
		"another line was there": {run(8, hour(9), state.TriggerRequested), nil,
			&v1alpha1.ScheduleStatus{Line: "@daily", Since: *hour(2)}, now},
		"no line was there, or none": {run(8, hour(9), state.TriggerRequested), nil, &v1alpha1.ScheduleStatus{}, now},
	} {
		g := testkit.Group()
		if tc.known != nil {
			g.Spec.Run.Schedule, g.Status.Schedule = line, tc.known
		}
		if tc.known != nil && tc.known.Line == "" {
			g.Status.Schedule = nil // as it is without a schedule, and of a manager before there was this memory
		}
		if got := schedule.Done(g, tc.history, tc.run, hour(now).Time); !got.Equal(hour(tc.want).Time) {
			t.Errorf("%s: %s, expected hour %d", name, got, tc.want)
		}
	}
}

// TestChangeOfScheduleStartsNoRun: a line that is written at noon, whatever it was before, starts no run at noon, and
// one at its next time.
func TestChangeOfScheduleStartsNoRun(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		next          time.Time
		jitter        int32
	}{
		"added":                    {"", "0 3 * * *", time.Date(2026, 3, 5, 3, 0, 0, 0, time.UTC), 0},
		"moved to an hour ago":     {"0 13 1 * *", "0 11 * * *", time.Date(2026, 3, 5, 11, 0, 0, 0, time.UTC), 0},
		"yearly, of the day past":  {"0 13 1 * *", "0 3 4 3 *", time.Date(2027, 3, 4, 3, 0, 0, 0, time.UTC), 0},
		"more often":               {"0 13 1 * *", "*/5 * * * *", time.Date(2026, 3, 4, 12, 5, 0, 0, time.UTC), 0},
		"added, with a long delay": {"", "30 11 * * *", time.Date(2026, 3, 5, 11, 30, 0, 0, time.UTC), 3600},
	} {
		t.Run(name, func(t *testing.T) {
			w := passedOnce(t, 2, func(g *state.Group) { g.Spec.Run.Schedule = tc.before })
			w.now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
			w.reportFacts()
			if w.runAll(300_000); w.group.Status.Run.FinishTime.After(w.now) {
				t.Fatal("the run's end is in the future")
			}
			number := w.group.Status.Run.Number
			w.group.Spec.Run.Schedule, w.group.Spec.Run.JitterSeconds = tc.after, tc.jitter
			w.group.Generation++
			tc.next = tc.next.Add(schedule.Jitter(string(w.group.UID), tc.next, decision.Seconds(tc.jitter)))
			for range 3 {
				w.now = w.now.Add(time.Minute)
				w.settle()
			}
			if run := w.group.Status.Run; run.Number != number || !w.group.Status.NextRunTime.Time.Equal(tc.next) {
				t.Fatalf("run %+v, next at %s, expected %s", run, w.group.Status.NextRunTime, tc.next)
			}
			w.now = tc.next
			w.reportFacts()
			if w.settle(); w.group.Status.Run.Trigger != state.TriggerScheduled ||
				w.group.Status.Run.Number != number+1 {
				t.Errorf("at its time run %+v", w.group.Status.Run)
			}
		})
	}
}

// TestScheduleShorterThanTheRun: an hourly line and runs of 70 minutes leave the GPUs free until the next full hour.
func TestScheduleShorterThanTheRun(t *testing.T) {
	w := passedOnce(t, 1, func(g *state.Group) {
		g.Spec.Run.Schedule, g.Spec.Run.NodeDeadlineSeconds = "0 * * * *", 86400
	})
	idle := map[bool]int{}
	for range 24 * 6 {
		w.now = w.now.Add(10 * time.Minute)
		w.reportFacts()
		w.settle()
		run, pod, ct := w.group.Status.Run, w.podOn("n00000"), w.commTask("n00000")
		if idle[run.Phase != v1alpha1.RunPhaseRunning]++; run.Phase != v1alpha1.RunPhaseRunning {
			continue
		}
		if startPod(pod, "n00000", w.now); w.now.Sub(run.StartTime.Time) >= 70*time.Minute {
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
			endPod(pod, 0, w.now)
			w.settle()
		}
	}
	// Each run holds 8 of the 12 looks from its start to the next one's, two hours later.
	if n := w.group.Status.Run.Number; n != 1+12 || idle[true] != 5+11*4 {
		t.Errorf("%d runs, idle at %d of %d looks", n, idle[true], idle[true]+idle[false])
	}
}

// TestAChangedNodeNeedNotWaitForTheRunOfAll: where the scheduled run has to wait, the small one that may start starts,
// and the scheduled one stays due.
func TestAChangedNodeNeedNotWaitForTheRunOfAll(t *testing.T) {
	for name, tc := range map[string]struct {
		minutes int64 // that the last run of all took
		used    int64
		silent  bool // all but two monitors are
		starts  bool
		says    string
	}{
		"fits into no day":         {minutes: 120, starts: true, says: "does not fit into any day"},
		"fits tomorrow":            {minutes: 80, used: 60, starts: true, says: "waits until 2026-03-02"},
		"neither fits today":       {minutes: 80, used: 90, says: "A run of 1 node with stale results waits, too"},
		"too few monitors report":  {minutes: 8, silent: true, starts: true, says: "monitors of at least 3"},
		"the scheduled run starts": {minutes: 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := passedOnce(t, 4, func(g *state.Group) {
				g.Spec.Run.Schedule, g.Spec.Run.MaxGPUMinutesPerDay, g.Spec.Members.MinMembers = "0 * * * *", 100, 3
			})
			w.group.Status.History[0].GPUMinutes, w.group.Status.Budget.UsedGPUMinutes = tc.minutes, tc.used
			facts := w.now
			w.now = w.now.Add(2 * time.Hour)
			w.rebooted("n00001", "boot-2")
			if tc.silent {
				for _, node := range []string{"n00002", "n00003"} {
					w.setFacts(node, testkit.Facts(facts))
				}
			}
			w.settle()
			run := w.group.Status.Run
			switch {
			case tc.starts:
				if run.ID != "1-2" || run.Trigger != state.TriggerNodesChanged || w.podOn("n00001") == nil ||
					!podstate.Alive(w.podOn("n00001")) {
					t.Fatalf("run %+v, Running says %q", run, w.runningSays())
				}
				w.runAll(300_000)
				if w.settle(); w.group.Status.Run.ID != "1-2" || !strings.Contains(w.runningSays(), tc.says) ||
					!strings.Contains(w.runningSays(), state.TriggerScheduled) {
					t.Errorf("afterwards run %+v, Running says %q", w.group.Status.Run, w.runningSays())
				}
			case tc.says != "":
				if run.ID != "1-1" || !strings.Contains(w.runningSays(), tc.says) || w.decided.WakeAt.IsZero() {
					t.Errorf("run %+v, Running says %q, wakes at %s", run, w.runningSays(), w.decided.WakeAt)
				}
			case run.Trigger != state.TriggerScheduled:
				t.Errorf("run %+v", run)
			}
		})
	}
}

// TestAChangedNodeNeedNotWaitForARequest: where the run that a user asked for waits for monitors, the changed node
// that can be measured is, within the budget; the request stays, and starts once the monitors are back.
func TestAChangedNodeNeedNotWaitForARequest(t *testing.T) {
	for name, used := range map[string]int64{"it fits today": 0, "it does not": 1000} {
		t.Run(name, func(t *testing.T) {
			w := passedOnce(t, 4, func(g *state.Group) {
				g.Spec.Members.MinMembers, g.Spec.Run.MaxGPUMinutesPerDay = 4, 1000
			})
			w.group.Status.Budget.UsedGPUMinutes = used
			silent := w.now
			w.now = w.now.Add(time.Hour)
			w.rebooted("n00001", "boot-2")
			w.setFacts("n00003", testkit.Facts(silent))
			w.request("x")
			w.events = nil
			w.settle()
			if used > 0 {
				if w.group.Status.Run.ID != "1-1" || !strings.Contains(w.runningSays(), "monitors of at least 4") ||
					!strings.Contains(w.runningSays(), "A run of 1 node with stale results waits, too") {
					t.Errorf("run %+v, Running says %q", w.group.Status.Run, w.runningSays())
				}
				return
			}
			if run := w.group.Status.Run; run.ID != "1-2" || run.Trigger != state.TriggerNodesChanged ||
				run.Name == "x" || !podstate.Alive(w.podOn("n00001")) {
				t.Fatalf("run %+v, Running says %q", run, w.runningSays())
			}
			for _, e := range w.events {
				if e.Reason == "RunStarted" && !strings.Contains(e.Note, "(NodesChanged)") {
					t.Errorf("event %q", e.Note)
				}
			}
			w.runAll(300_000)
			if !strings.Contains(w.runningSays(), "(Requested) and waits until the monitors of at least 4") {
				t.Errorf("Running says %q", w.runningSays())
			}
			w.rebooted("n00001", "boot-2")
			if w.settle(); w.group.Status.Run.ID != "1-3" || w.group.Status.Run.Trigger != state.TriggerRequested ||
				w.group.Status.Run.Name != "x" {
				t.Errorf("run %+v", w.group.Status.Run)
			}
		})
	}
}

// TestSuspendedRun: spec.suspend of a CommRun ends its pods and blames nobody; no other run starts meanwhile, and the
// run starts again from its beginning once it is false.
func TestSuspendedRun(t *testing.T) {
	w := passedOnce(t, 2, func(*state.Group) {})
	w.request("before-the-upgrade")
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Name != "before-the-upgrade" ||
		run.Phase != v1alpha1.RunPhaseRunning || len(w.pods) == 0 {
		t.Fatalf("run %+v, %d pods", run, len(w.pods))
	}
	w.runs.suspend(w.group, true)
	w.now = w.now.Add(time.Second)
	w.request("another")
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Phase != v1alpha1.RunPhaseAborted ||
		!w.group.Status.RunSuspended {
		t.Errorf("run %+v", run)
	}
	for _, pod := range w.pods {
		if podstate.Alive(pod) && pod.DeletionTimestamp.IsZero() {
			t.Errorf("pod %s stays", pod.Name)
		}
	}
	if !strings.Contains(w.runningSays(), "CommRun before-the-upgrade is suspended") ||
		len(w.group.Status.Culprits) > 0 {
		t.Errorf("Running says %q, culprits %+v", w.runningSays(), w.group.Status.Culprits)
	}
	clear(w.pods) // the kubelets have ended them
	w.runs.suspend(w.group, false)
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-3" || run.Name != "before-the-upgrade" ||
		run.Phase != v1alpha1.RunPhaseRunning {
		t.Errorf("run %+v", run)
	}
	w.runAll(300_000)
	if w.settle(); w.group.Status.Run.Name != "another" {
		t.Errorf("the next run is %+v", w.group.Status.Run)
	}
}

// TestRequestThatIsSuspended: a CommRun that is created with spec.suspend waits, and keeps no other run from starting.
func TestRequestThatIsSuspended(t *testing.T) {
	w := passedOnce(t, 2, func(*state.Group) {})
	waiting := state.NewRun(w.group, "in-the-queue")
	waiting.Spec.Suspend = true
	w.runs = append(w.runs, *waiting)
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-1" {
		t.Errorf("run %+v", run)
	}
	w.request("now")
	if w.settle(); w.group.Status.Run.Name != "now" {
		t.Errorf("run %+v", w.group.Status.Run)
	}
}

// TestARequestIsToldBesideWhatGoesFirst: who asks for a run sees that it was heard, whatever the run is due for.
func TestARequestIsToldBesideWhatGoesFirst(t *testing.T) {
	w := passedOnce(t, 2, func(*state.Group) {})
	w.group.Spec.Benchmark.Iterations++
	w.group.Generation++
	w.now = w.now.Add(time.Hour) // the monitors are silent
	w.settle()
	before := w.runningSays()
	w.request("now")
	if w.settle(); before == w.runningSays() || !strings.Contains(w.runningSays(), "(SpecChanged and requested)") {
		t.Errorf("Running says %q, and said %q before", w.runningSays(), before)
	}
	w.reportFacts()
	w.settle()
	told := false
	for _, e := range w.events {
		told = told || e.Reason == "RunStarted" && strings.Contains(e.Note, "Run 2-2 ") &&
			strings.Contains(e.Note, "(SpecChanged and requested)")
	}
	if run := w.group.Status.Run; run.ID != "2-2" || run.Name != "now" || !told {
		t.Errorf("run %+v, events %+v", run, w.events)
	}
}

// TestBudgetOfAGroupsStage: whoever a run is for, its stage over several nodes takes all members, and the budget is
// asked for that.
func TestBudgetOfAGroupsStage(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, func(g *state.Group) { g.Spec.Run.MaxGPUMinutesPerDay = 1000 })
	w.play()
	w.group.Status.History[0].GPUMinutes, w.group.Status.Budget.UsedGPUMinutes = 400, 700
	w.now = w.now.Add(time.Hour)
	w.rebooted("n00003", "boot-2")
	if w.settle(); w.group.Status.Run.ID != "1-1" || !strings.Contains(w.runningSays(), "would take about 400") {
		t.Fatalf("run %+v, Running says %q", w.group.Status.Run, w.runningSays())
	}
	w.group.Status.Budget.UsedGPUMinutes = 600
	w.events = nil
	if w.settle(); w.group.Status.Run.ID != "1-2" || len(w.events) == 0 {
		t.Fatalf("run %+v, Running says %q", w.group.Status.Run, w.runningSays())
	}
	for _, e := range w.events {
		if e.Reason == "RunStarted" && !strings.Contains(e.Note, "on n00003, and then as a group on all members") {
			t.Errorf("event %q", e.Note)
		}
	}
}

// TestNodesWithoutAPlaceWaitForTheSchedule: where the group was formed without them, a retry would form it over all
// members again; without a schedule, or without a group, nothing else would measure them.
func TestNodesWithoutAPlaceWaitForTheSchedule(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule   string
		minMembers int32
		retried    bool
	}{
		"formed, with a schedule":    {"0 2 * * *", 2, false},
		"formed, without a schedule": {"", 2, true},
		"not formed":                 {"0 2 * * *", 4, true},
	} {
		w := newGroupWorld(t, 4, faults{}, func(g *state.Group) {
			g.Spec.Run.Schedule, g.Spec.Members.MinMembers = tc.schedule, tc.minMembers
		})
		pod := w.podOn("n00003")
		startPod(pod, "n00003", w.now)
		pod.Status.Conditions = []corev1.PodCondition{testkit.PodCondition(corev1.DisruptionTarget,
			corev1.ConditionTrue, "PreemptionByScheduler")}
		w.settle()
		delete(w.pods, pod.Name)
		w.play()
		if span := w.span(); (len(span.Tests) > 0) != (tc.minMembers == 2) {
			t.Fatalf("%s: span %+v", name, span)
		}
		w.now = w.now.Add(commrun.RetryPause)
		w.reportFacts()
		if w.settle(); (w.group.Status.Run.Number == 2) != tc.retried {
			t.Errorf("%s: run %+v", name, w.group.Status.Run)
		}
		if tc.retried {
			continue
		}
		w.now = w.group.Status.NextRunTime.Time
		w.reportFacts()
		if w.settle(); w.group.Status.Run.Trigger != state.TriggerScheduled || w.podOn("n00003") == nil {
			t.Errorf("%s: at the schedule's time run %+v", name, w.group.Status.Run)
		}
	}
}
