package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

var errQuota = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x",
	errors.New("exceeded quota: small"))

// TestOnlyAnAnswerThatStandsIsARefusal: what ends by itself is no condition.
func TestOnlyAnAnswerThatStandsIsARefusal(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":               {nil, false},
		"forbidden":          {errQuota, true},
		"wrapped and joined": {errors.Join(errors.New("other"), fmt.Errorf("write x: %w", errQuota)), true},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "x", nil), true},
		"bad request":        {apierrors.NewBadRequest("no"), true},
		"webhook is away":    {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"name is taken":      {fmt.Errorf("%w: CommTask x", errTaken), true},
		"conflict":           {apierrors.NewConflict(resource, "x", errors.New("changed")), false},
		"there already":      {apierrors.NewAlreadyExists(resource, "x"), false},
		"gone":               {apierrors.NewNotFound(resource, "x"), false},
		"too many requests":  {apierrors.NewTooManyRequests("later", 1), false},
		"timeout":            {apierrors.NewTimeoutError("slow", 1), false},
		"server timeout":     {apierrors.NewServerTimeout(resource, "create", 1), true},
		"unavailable":        {apierrors.NewServiceUnavailable("away"), false},
		"no answer":          {errors.New("connection refused"), false},
		"the manager's end":  {context.Canceled, false},
	} {
		if got := refuses(c.err); got != c.want {
			t.Errorf("%s: refused %v, want %v", name, got, c.want)
		}
	}
}

// refusing is a reconciler on a fake API server that refuses what refuse says.
func refusing(t *testing.T, group *state.Group,
	refuse *func(client.Object) error) (*CommGroupReconciler, client.Client, *events.FakeRecorder) {
	t.Helper()
	scheme := testkit.Scheme(t)
	nodes := testkit.Nodes(2)
	stored, _ := group.Objects()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored, &nodes[0], &nodes[1]).
		WithStatusSubresource(&v1alpha1.CommGroup{}, &v1alpha1.CommRun{}, &v1alpha1.CommTask{}, &v1alpha1.CommNode{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := (*refuse)(o); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
		}).Build()
	recorder := events.NewFakeRecorder(100)
	return New(Dependencies{Client: c, APIReader: c, Recorder: recorder,
		Clock: clocktesting.NewFakePassiveClock(testkit.Now), Config: testConfig}), c, recorder
}

// TestRefusedWritesAreToldAndTakenBack: what the API server refuses is a condition with its words and one event; the
// same refusal again changes nothing in the status, and once it is over the condition is what the children say.
func TestRefusedWritesAreToldAndTakenBack(t *testing.T) {
	for reason, refused := range map[string]client.Object{
		v1alpha1.ReasonCommTasksRefused: &v1alpha1.CommTask{},
	} {
		t.Run(reason, func(t *testing.T) {
			group := testkit.Group()
			refuse := func(o client.Object) error {
				if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", refused) {
					return errQuota
				}
				return nil
			}
			r, c, recorder := refusing(t, group, &refuse)
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(group)}
			reconcile := func() state.Status {
				t.Helper()
				r.Clock.(*clocktesting.FakePassiveClock).SetTime(r.Clock.Now().Add(time.Minute))
				result, err := r.Reconcile(t.Context(), request)
				if err != nil {
					t.Fatalf("reconcile: %v", err)
				}
				if refuse(refused) != nil {
					testkit.WantRefusedResult(t, result.RequeueAfter, err)
				}
				return storedGroup(t, c, request.NamespacedName).Status
			}
			told := func() (n int) {
				for {
					select {
					case e := <-recorder.Events:
						if strings.Contains(e, reason) {
							n++
						}
					default:
						return n
					}
				}
			}
			first := reconcile()
			for _, conditionType := range []string{v1alpha1.ConditionAgentsReporting, v1alpha1.ConditionReady} {
				is := meta.FindStatusCondition(first.Conditions, conditionType)
				if is == nil || is.Status != metav1.ConditionFalse || is.Reason != reason ||
					!strings.Contains(is.Message, "exceeded quota: small") ||
					!strings.Contains(is.Message, "tried again by itself") {
					t.Errorf("%s is %+v, want False %s with the server's words and the next step",
						conditionType, is, reason)
				}
			}
			if n := told(); n != 1 {
				t.Errorf("%d events of %s, want one", n, reason)
			}
			if again := reconcile(); !objects.Same(&first, &again) {
				t.Errorf("the same refusal changed the status:\n%+v\n%+v", first.Conditions, again.Conditions)
			}
			if n := told(); n != 0 {
				t.Errorf("%d more events of the same refusal", n)
			}
			refuse = func(client.Object) error { return nil }
			after := reconcile()
			if is := meta.FindStatusCondition(after.Conditions,
				v1alpha1.ConditionAgentsReporting); is.Reason == reason || strings.Contains(is.Message, "quota") {
				t.Errorf("after the refusal AgentsReporting is %+v", is)
			}
		})
	}
}

// TestOtherRefusedWritesAreARemark: what has no condition of its own is told in Running, once as an event, and goes
// with the refusal.
func TestOtherRefusedWritesAreARemark(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	for range 3 {
		d := Decide(w.snapshot(), testConfig)
		before := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionRunning).Message
		var told refusals
		add(&told.others, "create run pods in team", errors.Join(errQuota, errQuota))
		told.tell(&d, w.group, w.now)
		is := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionRunning)
		if !strings.HasPrefix(is.Message, before) || !strings.Contains(is.Message, "exceeded quota: small") ||
			strings.Count(is.Message, v1alpha1.ReasonWritesRefused) != 1 {
			t.Fatalf("Running says %q", is.Message)
		}
		n := len(slices.DeleteFunc(slices.Clone(d.Events), func(e decision.Event) bool {
			return e.Reason != v1alpha1.ReasonWritesRefused
		}))
		if first := stage.ToldRefusal(w.group) == ""; first != (n == 1) || n > 1 {
			t.Fatalf("%d events, first time: %v", n, first)
		}
		w.runs.write(w.group, &d.Status)
	}
	if told := stage.ToldRefusal(w.group); !strings.Contains(told, "exceeded quota") {
		t.Errorf("told: %q", told)
	}
	d := Decide(w.snapshot(), testConfig)
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionRunning); strings.Contains(c.Message,
		v1alpha1.ReasonWritesRefused) {
		t.Errorf("after the refusal Running says %q", c.Message)
	}
}

// TestRefusedClosureIsTold: where a run may not end since a CommTask cannot be written, the status keeps all but the
// conditions that say so.
func TestRefusedClosureIsTold(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	held := Decision{Status: *w.group.Status.DeepCopy()}
	var told refusals
	add(&told.commTasks, "write CommTask g.n00000", errQuota)
	told.tell(&held, w.group, w.now)
	if !objects.Same(held.Status.Run, w.group.Status.Run) ||
		len(held.Status.Conditions) != len(w.group.Status.Conditions) {
		t.Error("the held status changed more than conditions")
	}
	if c := meta.FindStatusCondition(held.Status.Conditions,
		v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonCommTasksRefused {
		t.Errorf("Ready is %+v", c)
	}
}

// TestNameOfACommTaskIsCleared: one of an earlier group goes, one of this group gets its label back, another's is told.
func TestNameOfACommTaskIsCleared(t *testing.T) {
	nothing := func(client.Object) error { return nil }
	group := testkit.Group()
	for name, c := range map[string]struct {
		change func(*v1alpha1.CommTask)
		taken  string
	}{
		"of an earlier group": {change: func(ct *v1alpha1.CommTask) {
			ct.Spec.Group.UID, ct.UID = "uid-old", "uid-orphan"
		}},
		"of this group, no label": {change: func(ct *v1alpha1.CommTask) { ct.Labels = nil }},
		"of another": {change: func(ct *v1alpha1.CommTask) { ct.Spec.Group.Name = "other" },
			taken: `is of CommGroup "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			r, api, _ := refusing(t, group.DeepCopy(), &nothing)
			w := newWorld(group.DeepCopy(), testkit.Nodes(1))
			d := Decide(w.snapshot(), testConfig)
			desired := d.CommTasks[0].Desired
			there := desired.DeepCopy()
			c.change(there)
			there.OwnerReferences = nil
			if err := api.Create(t.Context(), there); err != nil {
				t.Fatal(err)
			}
			err := r.writeCommTask(t.Context(), commrun.Change{Desired: desired})
			var is v1alpha1.CommTask
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(desired), &is); err != nil {
				t.Fatal(err)
			}
			if c.taken != "" {
				if !errors.Is(err, errTaken) || !strings.Contains(err.Error(), c.taken) ||
					is.Spec.Group.Name != "other" {
					t.Errorf("%v, want %q and the other's CommTask left", err, c.taken)
				}
				return
			}
			if err != nil || is.Spec.Group.UID != string(group.UID) ||
				is.Labels[v1alpha1.LabelGroupUID] != string(group.UID) {
				t.Errorf("%v; the CommTask is of group %v with labels %v", err, is.Spec.Group, is.Labels)
			}
		})
	}
}
