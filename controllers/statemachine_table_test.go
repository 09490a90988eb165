package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/controllers/words"
)

// States that a group of four nodes is in before an event of the table.
const (
	fromReady   = "Ready"       // span Node, run 1 passed on all
	fromRunning = "Running"     // span Node, run 1 goes on, ranks run on all
	fromStage   = "Group stage" // span Group, all passed alone, the communicator over the group is being formed
)

var tableStates = []string{fromReady, fromRunning, fromStage}

// tableEvents are the events of the table by name. After one the controller settles; agents do no more than the event says.
var tableEvents = map[string]func(*groupWorld){
	"spec change": func(w *groupWorld) {
		w.group.Spec.Benchmark.Iterations++
		w.group.Generation++
	},
	"member added": func(w *groupWorld) { w.nodes = append(slices.Clone(w.nodes), testkit.Node("n99999", nil)) },
	"member lost": func(w *groupWorld) {
		gone := w.nodes[3].Name
		w.nodes = slices.Clone(w.nodes[:3])
		for name, pod := range w.pods {
			if pod.Spec.NodeName == gone {
				delete(w.pods, name) // the pod collector takes the pods of a Node that is gone
			}
		}
	},
	"report pass":    func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictPass, "") },
	"report fail":    func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink) },
	"report error":   func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictError, v1alpha1.ReasonInterrupted) },
	"report expired": func(w *groupWorld) { w.wait(601*time.Second, 0) },
	"pod lost": func(w *groupWorld) {
		for name, pod := range w.pods {
			if pod.Labels[v1alpha1.LabelNode] == w.nodes[0].Name {
				delete(w.pods, name)
			}
		}
	},
	"suspended": func(w *groupWorld) { w.setState(v1alpha1.RunSuspended) },
	"resumed": func(w *groupWorld) {
		w.setState(v1alpha1.RunSuspended)
		w.settle()
		w.setState(v1alpha1.RunActive)
	},
	"requested": func(w *groupWorld) {
		w.group.Annotations = map[string]string{v1alpha1.AnnotationRunRequested: "once"}
	},
	"schedule due": func(w *groupWorld) {
		w.group.Spec.Run.Schedule = "*/5 * * * *"
		w.group.Generation++
		w.settle()
		w.wait(5*time.Minute, -1)
	},
	"ListError": nil, // decided below
	"node rebooted": func(w *groupWorld) {
		w.commNode(w.nodes[0].Name).Status.Facts.BootID = "boot-2"
	},
	"group deleted": nil, // decided below
}

func (w *groupWorld) setState(s v1alpha1.RunState) {
	w.group.Spec.Run.State = s
	w.group.Generation++
}

// wait lets time go by, in which all monitors report but the one of the node at the given place.
func (w *groupWorld) wait(d time.Duration, but int) {
	w.now = w.now.Add(d)
	for i := range w.nodes {
		if i != but {
			w.commNode(w.nodes[i].Name).Status.Facts.ObservedTime = *decision.Stamp(w.now)
		}
	}
}

// everyoneReports lets each agent report: the first node's with the verdict, the others' with a pass. In the group's stage they
// go on until it is over.
func (w *groupWorld) everyoneReports(verdict v1alpha1.Verdict, reason string) {
	if w.group.Spec.Span == v1alpha1.SpanGroup {
		switch verdict {
		case v1alpha1.VerdictFail:
			w.faults.dieNodes = []int{0}
		case v1alpha1.VerdictError:
			s := w.commNode(w.nodes[0].Name).Status.Session
			s.State, s.Reason, s.Message = v1alpha1.SessionFailed, reason, "SIGTERM"
		}
		w.play()
		return
	}
	for i := range w.nodes {
		cn := w.commNode(w.nodes[i].Name)
		one, why := v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed
		if i == 0 && verdict != v1alpha1.VerdictPass {
			one, why = verdict, reason
		}
		cn.Status.Run = testkit.Report(cn.Spec.Run, one, 300_000, w.now)
		cn.Status.Run.Reason = why
		if pod := w.podOn(w.nodes[i].Name); pod != nil {
			endPod(pod, 0, w.now)
		}
	}
}

// tableWorld is a group in the state.
func tableWorld(t *testing.T, state string) *groupWorld {
	w := newGroupWorld(t, 4, faults{}, func(g *v1alpha1.CommGroup) {
		if state != fromStage {
			g.Spec.Span = v1alpha1.SpanNode
		}
	})
	switch state {
	case fromReady:
		w.runAll(300_000)
		for name, pod := range w.pods {
			if podstate.Alive(pod) {
				t.Fatalf("pod %s is left", name)
			}
		}
	case fromRunning:
		for i := range w.nodes {
			startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
		}
	case fromStage:
		for range 20 {
			w.settle()
			if len(w.tasks) > 0 {
				break
			}
			w.playNodes()
			w.playAgents()
		}
		if s := w.span(); s == nil || s.Stage != v1alpha1.StageGroup || len(w.tasks) != 1 {
			t.Fatalf("span %+v, tasks %v", s, w.tasks)
		}
	}
	w.settle()
	return w
}

// listFails is one decision on objects of which a part could not be read.
func (w *groupWorld) listFails(t *testing.T) {
	t.Helper()
	s := w.snapshot()
	s.ListError = errors.New("the API does not answer")
	s.CommNodes, s.RunPods = nil, nil
	before := w.group.Status.DeepCopy()
	d := Decide(s, testConfig)
	if n := len(d.CommNodes) + len(d.CreatePods) + len(d.DeletePods) + len(d.DeleteCommNodes) + len(d.NodeMarks) + len(d.DeleteConfigMaps); n > 0 || d.ConfigMap != nil || len(d.Events) > 0 {
		t.Errorf("%d writes after a read that failed: %+v", n, d)
	}
	before.Conditions = d.Status.Conditions
	if !equalStatus(before, &d.Status) {
		t.Errorf("more than the conditions changed: %+v", d.Status)
	}
	w.group.Status = d.Status
}

// isDeleted takes the group through the reconciler with its deletion timestamp, until the finalizer is gone.
func (w *groupWorld) isDeleted(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	group := w.group.DeepCopy()
	group.Finalizers, group.DeletionTimestamp = []string{v1alpha1.Finalizer}, decision.Stamp(w.now)
	objects := []client.Object{group}
	for _, cn := range w.commNodes {
		objects = append(objects, cn.DeepCopy())
	}
	for _, pod := range w.pods {
		pod = pod.DeepCopy()
		pod.Finalizers = []string{"example.com/kubelet"} // it stays until the kubelet has ended it
		objects = append(objects, pod)
	}
	clock := clocktesting.NewFakePassiveClock(w.now)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.CommGroup{}, &v1alpha1.CommNode{}).Build()
	r := &CommGroupReconciler{Client: c, APIReader: c, Recorder: events.NewFakeRecorder(100), Clock: clock, Config: testConfig}
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
		w.group.Status = now.Status
		for name, pod := range w.pods {
			live := pod.DeepCopy()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), live); err != nil || live.DeletionTimestamp.IsZero() {
				t.Errorf("pod %s of a deleted group was not told to end: %v", name, err)
			}
		}
		if result := reconcile(); result.RequeueAfter == 0 {
			t.Error("nothing looks again whether the pods are gone")
		}
	} else {
		w.group.Status.Conditions = setConditions(w.group.Status.Conditions, map[string]decision.Finding{v1alpha1.ConditionReady: deletingFinding("")}, group.Generation, w.now)
	}
	clock.SetTime(w.now.Add(cleanupDeadline)) // the kubelet never answers: the group goes all the same
	reconcile()
	if err := c.Get(t.Context(), req.NamespacedName, &v1alpha1.CommGroup{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the group is still there: %v", err)
	}
}

// TestConditionsAfterEvents: each condition after each event in each state, by the table.
func TestConditionsAfterEvents(t *testing.T) {
	seen := map[string]bool{}
	for _, state := range tableStates {
		for _, event := range words.SortedKeys(tableEvents) {
			cells := strings.Fields(conditionsAfter[state][event])
			if len(cells) != len(conditionTypes) {
				t.Errorf("state %s, event %s: the table has %d cells, there are %d conditions", state, event, len(cells), len(conditionTypes))
			}
			t.Run(state+"/"+event, func(t *testing.T) {
				w := tableWorld(t, state)
				before := w.group.DeepCopy()
				switch event {
				case "ListError":
					w.listFails(t)
				case "group deleted":
					w.isDeleted(t)
				default:
					tableEvents[event](w)
					w.settle()
				}
				var got []string
				for i, kind := range conditionTypes {
					c := meta.FindStatusCondition(w.group.Status.Conditions, kind)
					if c == nil {
						t.Fatalf("no condition %s", kind)
					}
					got = append(got, string(c.Status)+"/"+c.Reason)
					if i < len(cells) && got[i] != cells[i] {
						t.Errorf("%s is %s, the table has %s: %s", kind, got[i], cells[i], c.Message)
					}
					if old := meta.FindStatusCondition(before.Status.Conditions, kind); c.ObservedGeneration < old.ObservedGeneration {
						t.Errorf("%s: generation %d after %d", kind, c.ObservedGeneration, old.ObservedGeneration)
					}
					seen[got[i]] = true
				}
				if row := strings.Join(got, " "); row != strings.Join(cells, " ") {
					t.Logf("row: %q: %q,", event, row)
				}
				if event != "ListError" && event != "group deleted" {
					before := w.group.Status.DeepCopy().Conditions
					w.listFails(t)
					w.settle()
					if words := otherConditions(before, w.group.Status.Conditions); words != "" {
						t.Errorf("after a read that failed, and is done again, %s", words)
					}
				}
				if words := contradictions(&w.group.Status); event != "group deleted" && words != "" {
					t.Error(words)
				}
			})
		}
	}
	for state, rows := range conditionsAfter {
		for event := range rows {
			if _, ok := tableEvents[event]; !ok || !slices.Contains(tableStates, state) {
				t.Errorf("the table has a row for %s, %s, which there is not", state, event)
			}
		}
	}
	for _, status := range []metav1.ConditionStatus{"True", "False", "Unknown"} {
		if !slices.ContainsFunc(words.SortedKeys(seen), func(s string) bool { return strings.HasPrefix(s, string(status)+"/") }) {
			t.Error(fmt.Sprint("no cell is ", status))
		}
	}
}
