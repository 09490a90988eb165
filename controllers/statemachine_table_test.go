package controllers

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// listFails is one decision on objects of which a part could not be read.
func (w *groupWorld) listFails(t *testing.T) {
	t.Helper()
	s := w.snapshot()
	s.ListError = errors.New("the API does not answer")
	s.CommTasks, s.RunPods = nil, nil
	before := w.group.Status.DeepCopy()
	d := Decide(s, testConfig)
	if n := len(d.CommTasks) + len(d.CreatePods) + len(d.DeletePods) + len(d.DeleteCommTasks) + len(d.NodeMarks) +
		len(d.DeleteConfigMaps); n > 0 || d.ConfigMap != nil || len(d.Events)+len(d.RunEvents) > 0 {
		t.Errorf("%d writes after a read that failed: %+v", n, d)
	}
	before.Conditions = d.Status.Conditions
	if !objects.Same(before, &d.Status) {
		t.Errorf("more than the conditions changed: %+v", d.Status)
	}
	w.runs.write(w.group, &d.Status)
}

// isDeleted takes the group through the reconciler with its deletion timestamp, until the finalizer is gone.
func (w *groupWorld) isDeleted(t *testing.T) {
	t.Helper()
	scheme := testkit.Scheme(t)
	group, _ := w.group.Objects()
	group = group.DeepCopy()
	group.Finalizers, group.DeletionTimestamp = []string{v1alpha1.Finalizer}, decision.Stamp(w.now)
	objects := []client.Object{group}
	for _, ct := range w.commTasks {
		objects = append(objects, ct.DeepCopy())
	}
	for _, pod := range w.pods {
		pod = pod.DeepCopy()
		pod.Finalizers = []string{"example.com/kubelet"} // it stays until the kubelet has ended it
		objects = append(objects, pod)
	}
	clock := clocktesting.NewFakePassiveClock(w.now)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.CommGroup{}, &v1alpha1.CommRun{}, &v1alpha1.CommTask{}).Build()
	r := New(Dependencies{Client: c, APIReader: c, Recorder: events.NewFakeRecorder(100), Clock: clock,
		Config: testConfig})
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(group)}
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if len(w.pods) > 0 {
		reconcile()
		now := &v1alpha1.CommGroup{}
		if err := c.Get(t.Context(), req.NamespacedName, now); err != nil {
			t.Fatal(err)
		}
		w.group.Status.Conditions = now.Status.Conditions
		for name, pod := range w.pods {
			live := pod.DeepCopy()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), live); err != nil ||
				live.DeletionTimestamp.IsZero() {
				t.Errorf("pod %s of a deleted group was not told to end: %v", name, err)
			}
		}
		if result := reconcile(); result.RequeueAfter == 0 {
			t.Error("nothing looks again whether the pods are gone")
		}
	} else {
		w.group.Status.Conditions = commgroup.SetConditions(w.group.Status.Conditions,
			map[string]decision.Finding{v1alpha1.ConditionReady: commgroup.Deleting("")}, group.Generation, w.now)
	}
	clock.SetTime(w.now.Add(cleanupDeadline)) // the kubelet never answers: the group goes all the same
	reconcile()
	if err := c.Get(t.Context(), req.NamespacedName, &v1alpha1.CommGroup{}); client.IgnoreNotFound(err) != nil ||
		err == nil {
		t.Errorf("the group is still there: %v", err)
	}
}

// stays and cannotBe are what the table says where no condition changes, and where the state has nothing that the event
// could happen to.
const (
	stays    = "(stays)"
	cannotBe = "(cannot be)"
)

// rowOf is what the table says of a state and an event: the conditions that change, each with its status and reason.
func rowOf(t *testing.T, state, event string) string {
	t.Helper()
	var rows []string
	for row, events := range rowsOf(state) {
		if slices.Contains(splitTrimmed(events, ";"), event) {
			rows = append(rows, row)
		}
	}
	if len(rows) != 1 {
		t.Errorf("the table has %d rows for state %s, event %s", len(rows), state, event)
		return ""
	}
	return rows[0]
}

func splitTrimmed(text, by string) []string {
	out := strings.Split(text, by)
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// wordsOf the conditions, by their types.
func wordsOf(t *testing.T, conditions []metav1.Condition) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range commgroup.ConditionTypes {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			t.Fatalf("no condition %s", kind)
		}
		out[kind] = string(c.Status) + "/" + c.Reason
	}
	return out
}

// tableSeen is what was seen over all cells of the table.
type tableSeen struct {
	cells                              int
	phases, stages, triggers, verdicts map[string]bool
	statuses                           map[string]map[string]bool // by condition
}

func (seen *tableSeen) note(w *groupWorld) {
	s := &w.group.Status
	for i := range w.runs {
		seen.phases[string(w.runs[i].Status.Phase)] = true
	}
	if s.Run != nil {
		seen.triggers[s.Run.Trigger], seen.verdicts[string(s.Run.Verdict)] = true, true
	}
	for _, ct := range w.commTasks {
		if run := ct.Spec.Run; run != nil && run.Closed != nil {
			seen.verdicts[string(run.Closed.Verdict)] = true
		}
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if seen.statuses[c.Type] == nil {
			seen.statuses[c.Type] = map[string]bool{}
		}
		if c.Reason != v1alpha1.ReasonListFailed {
			seen.statuses[c.Type][string(c.Status)] = true
		}
	}
}

// TestConditionsAfterEvents: each condition after each event in each state, by the table.
func TestConditionsAfterEvents(t *testing.T) {
	seen := tableSeen{phases: map[string]bool{}, stages: map[string]bool{}, triggers: map[string]bool{},
		verdicts: map[string]bool{}, statuses: map[string]map[string]bool{}}
	for _, state := range tableStates {
		var start *groupWorld // made once: to come there takes longer than the event
		for _, event := range slices.Sorted(maps.Keys(tableEvents)) {
			t.Run(state+"/"+event, func(t *testing.T) {
				seen.cells++
				if start == nil {
					start = tableWorld(t, state)
				}
				playCell(t, start.clone(t), state, event, &seen)
			})
		}
	}
	for _, state := range slices.Concat(slices.Sorted(maps.Keys(conditionsAfter)),
		slices.Sorted(maps.Keys(conditionsAfterInGroup))) {
		for row, events := range rowsOf(state) {
			for _, event := range splitTrimmed(events, ";") {
				if _, ok := tableEvents[event]; !ok || !slices.Contains(tableStates, state) {
					t.Errorf("the table has a row for %s, %s, which there is not: %s", state, event, row)
				}
			}
		}
	}
	if seen.cells == len(tableStates)*len(tableEvents) { // else only some were asked for
		seen.check(t)
	}
}

// playCell plays one event in one state, which w is in.
func playCell(t *testing.T, w *groupWorld, state, event string, seen *tableSeen) {
	before := w.objects()
	was := wordsOf(t, before.group.Status.Conditions)
	if got := joined9(was); got != conditionsBefore[state] {
		t.Errorf("the conditions before are not those of the table:\nbefore: %q: %q,", state, got)
	}
	if run := w.group.Status.Run; run != nil {
		seen.phases[string(run.Phase)] = true
	}
	if s := w.span(); s != nil {
		seen.stages[string(s.Stage)] = true
	}
	switch event {
	case "ListError":
		w.listFails(t)
	case "group deleted":
		w.group.DeletionTimestamp = decision.Stamp(w.now)
		w.isDeleted(t)
	default:
		tableEvents[event].do(w)
	}
	changed, told := before.change(w, tableEvents[event].of)
	meanwhile := wordsOf(t, w.group.Status.Conditions) // an event may have steps
	if event != "ListError" && event != "group deleted" {
		w.settle()
	}
	var news []string
	is := wordsOf(t, w.group.Status.Conditions)
	for _, kind := range commgroup.ConditionTypes {
		if is[kind] != was[kind] {
			news = append(news, kind+"="+is[kind])
		}
		old, c := meta.FindStatusCondition(before.group.Status.Conditions, kind),
			meta.FindStatusCondition(w.group.Status.Conditions, kind)
		if c.ObservedGeneration < old.ObservedGeneration {
			t.Errorf("%s: generation %d after %d", kind, c.ObservedGeneration, old.ObservedGeneration)
		}
	}
	row := cmp.Or(strings.Join(news, " "), stays)
	if !changed {
		row = cannotBe
	}
	if want := rowOf(t, state, event); row != want {
		t.Errorf("the table has %s\nrow: %q: %q: %q,", want, state, event, row)
	}
	if !told && !maps.Equal(meanwhile, is) {
		t.Errorf("nothing wakes the manager, and %s would change", row)
	}
	seen.note(w)
	if event == "group deleted" {
		return
	}
	if event != "ListError" {
		before := w.group.Status.DeepCopy().Conditions
		w.listFails(t)
		w.settle()
		if words := otherConditions(before, w.group.Status.Conditions); words != "" {
			t.Errorf("after a read that failed, and is done again, %s", words)
		}
	}
	if words := contradictions(&w.group.Status); words != "" {
		t.Error(words)
	}
}

// joined9 gives all conditions in their order.
func joined9(of map[string]string) string {
	var out []string
	for _, kind := range commgroup.ConditionTypes {
		out = append(out, of[kind])
	}
	return strings.Join(out, " ")
}

// rowsOf a state.
func rowsOf(state string) map[string]string {
	if rows := conditionsAfter[state]; rows != nil {
		return rows
	}
	return conditionsAfterInGroup[state]
}
