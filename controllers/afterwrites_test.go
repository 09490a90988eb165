package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestARefusedWriteKeepsTheWakeUp checks the result after writes: a deadline comes at its time whatever is refused, a
// refusal is tried again within a minute, and what ends by itself stays an error.
func TestARefusedWriteKeepsTheWakeUp(t *testing.T) {
	now := testkit.Now
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", errors.New("changed"))
	for name, c := range map[string]struct {
		err    error
		wakeIn time.Duration // 0 for no wake-up
		want   time.Duration
		fails  bool
	}{
		"nothing":                        {},
		"a wake-up":                      {wakeIn: time.Hour, want: time.Hour},
		"a wake-up that is due":          {wakeIn: -time.Second, want: minWake},
		"refused, no wake-up":            {err: errQuota, want: refusedRetry},
		"refused, a later wake-up":       {err: errQuota, wakeIn: time.Hour, want: refusedRetry},
		"refused, an earlier wake-up":    {err: errQuota, wakeIn: 20 * time.Second, want: 20 * time.Second},
		"refused, a wake-up that is due": {err: errQuota, wakeIn: -time.Second, want: minRefusedRetry},
		"several refused": {err: errors.Join(fmt.Errorf("write x: %w", errQuota),
			fmt.Errorf("%w: CommTask y", errTaken)), want: refusedRetry},
		"a refused closure": {err: fmt.Errorf("write: %w", closureError(errQuota)),
			wakeIn: 5 * time.Second, want: 5 * time.Second},
		"a closure without an answer": {err: closureError(errors.New("connection refused")), fails: true},
		"refused, and one without answer": {err: errors.Join(errQuota, errors.New("connection refused")),
			wakeIn: time.Second, fails: true},
		"a conflict":                        {err: conflict, fails: true},
		"refused, and a conflict behind it": {err: errors.Join(errQuota, conflict), fails: true},
		"a read that is old":                {err: closureError(conflict), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var wakeAt time.Time
			if c.wakeIn != 0 {
				wakeAt = now.Add(c.wakeIn)
			}
			got, err := afterWrites(t.Context(), c.err, wakeAt, now)
			if got != (ctrl.Result{RequeueAfter: c.want}) || (err != nil) != c.fails {
				t.Errorf("%+v, %v; expected after %s, an error: %v", got, err, c.want, c.fails)
			}
		})
	}
}

// failWrites lets the writes of the reconciler fail as fails says. The verb of a status write is "status"; that of
// server-side apply has no object.
func failWrites(r *CommGroupReconciler, fails func(verb string, o client.Object) error) {
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := fails("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration,
			opts ...client.ApplyOption) error {
			if err := fails("apply", nil); err != nil {
				return err
			}
			return c.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			if err := fails("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := fails("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			if err := fails(sub, o); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
}

func isGroupStatus(verb string, o client.Object) bool {
	_, ok := o.(*v1alpha1.CommGroup)
	return ok && verb == "status"
}

func isClosure(verb string, o client.Object) bool {
	ct, ok := o.(*v1alpha1.CommTask)
	return ok && verb == "patch" && ct.Spec.Run != nil && ct.Spec.Run.Closed != nil
}

func isConfigMap(verb string, o client.Object) bool {
	_, ok := o.(*corev1.ConfigMap)
	return ok && verb == "create"
}

func isCommRun(verb string, o client.Object) bool {
	_, ok := o.(*v1alpha1.CommRun)
	return ok && verb != "delete"
}

// aboutToRun is a group whose run begins with the next reconcile.
func aboutToRun() *groupWorld {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	return &groupWorld{world: w}
}

// lastReport is a group whose run ends with the next reconcile.
func lastReport() *groupWorld {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.settle()
	ct := w.commTask(w.nodes[0].Name)
	ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	return &groupWorld{world: w}
}

// podIsGone is a group whose run ends with the next reconcile, since its only node's pod is gone.
func podIsGone() *groupWorld {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.settle()
	clear(w.pods)
	return &groupWorld{world: w}
}

// sentEvents takes what was sent: of the run's start and end, and all else.
func sentEvents(r *CommGroupReconciler) (others, ofRun []string) {
	for sent := r.Recorder.(*events.FakeRecorder).Events; len(sent) > 0; {
		e := <-sent
		if strings.Contains(e, " RunStarted ") || strings.Contains(e, " "+v1alpha1.ReasonRunFinished+" ") {
			ofRun = append(ofRun, e)
		} else {
			others = append(others, e)
		}
	}
	return others, ofRun
}

// TestRefusedWritesKeepTheTimers reconciles where writes of one kind are refused: that is no error, and the next
// reconcile comes when it comes without the refusal, or within a minute. Events wait until the status is written.
func TestRefusedWritesKeepTheTimers(t *testing.T) {
	finished := func() *groupWorld {
		group := testkit.Group()
		group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: testkit.EveryAction}
		w := newWorld(group, testkit.Nodes(2))
		w.settle()
		w.reportFacts()
		w.runAll(300_000)
		return &groupWorld{world: w}
	}
	for name, tc := range map[string]struct {
		world   func() *groupWorld
		refused func(verb string, o client.Object) bool
		status  bool // the status is refused
		// ofRun are the events of the run while all is refused, withLater those with what follows: the run is written
		// before the status.
		ofRun, withLater int
	}{
		"the status":                   {aboutToRun, isGroupStatus, true, 2, 2},
		"the status that ends the run": {lastReport, isGroupStatus, true, 1, 1},
		"settings":                     {finished, isConfigMap, false, 0, 0},
		"the run":                      {aboutToRun, isCommRun, false, 0, 0},
		"results":                      {lastReport, isCommRun, false, 0, 0},
		"marks": {finished, func(verb string, o client.Object) bool {
			_, ok := o.(*corev1.Node)
			return ok && verb == "patch"
		}, false, 0, 0},
		"the closure": {podIsGone, isClosure, false, 0, 0},
		"the closure that ends the run, and the status": {podIsGone, func(verb string, o client.Object) bool {
			return isClosure(verb, o) || isGroupStatus(verb, o)
		}, true, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var over atomic.Bool
			var refused atomic.Int32
			w := tc.world()
			r, _ := managerOf(t, w)
			failWrites(r, func(verb string, o client.Object) error {
				if over.Load() || !tc.refused(verb, o) {
					return nil
				}
				refused.Add(1)
				return errQuota
			})
			twin, _ := managerOf(t, tc.world())
			req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)}
			first := true
			for range 4 {
				before := refused.Load()
				result, err := r.Reconcile(t.Context(), req)
				free, freeErr := twin.Reconcile(t.Context(), req)
				if err != nil || freeErr != nil {
					t.Fatalf("reconcile: %v, and without refusals: %v", err, freeErr)
				}
				if refused.Load() == before {
					continue
				}
				testkit.WantRefusedResult(t, result.RequeueAfter, err)
				if first && free.RequeueAfter > 0 && result.RequeueAfter > max(minRefusedRetry, free.RequeueAfter) {
					t.Errorf("the next reconcile comes after %s; without the refusal it comes after %s",
						result.RequeueAfter, free.RequeueAfter)
				}
				first = false
			}
			if first {
				t.Fatal("nothing was refused")
			}
			early, ofRun := sentEvents(r)
			if tc.status && (len(early) > 0 || len(ofRun) != tc.ofRun) {
				t.Errorf("while the status is not written: events %q, of the run %q, want %d", early, ofRun, tc.ofRun)
			}
			over.Store(true)
			_, err := r.Reconcile(t.Context(), req)
			if late, again := sentEvents(r); err != nil ||
				tc.status && (len(late) == 0 || len(ofRun)+len(again) != tc.withLater) {
				t.Errorf("once nothing is refused: %v, events %q, of the run %q and before %q", err, late, again, ofRun)
			}
		})
	}
}

// TestStatusThatMayYetBeWritten: a status write that another writer came first with, or that has no answer, is tried
// again soon, also where other writes are refused.
func TestStatusThatMayYetBeWritten(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "commgroups"}, "g", errors.New("changed"))
	for name, tc := range map[string]struct {
		status, closure error
		retry           time.Duration
	}{
		"a conflict":                {conflict, nil, conflictPause},
		"a conflict, and a refusal": {conflict, errQuota, conflictPause},
		"no answer":                 {errors.New("connection refused"), nil, 0},
		"no answer, and a refusal":  {errors.New("connection refused"), errQuota, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := podIsGone()
			r, _ := managerOf(t, w)
			failWrites(r, func(verb string, o client.Object) error {
				switch {
				case isGroupStatus(verb, o):
					return tc.status
				case isClosure(verb, o):
					return tc.closure
				}
				return nil
			})
			result, err := r.paced(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)})
			if result.RequeueAfter != tc.retry || (err == nil) != (tc.retry > 0) {
				t.Errorf("%+v, %v; want a retry after %s", result, err, tc.retry)
			}
			if sent, _ := sentEvents(r); len(sent) > 0 {
				t.Errorf("events of a status that was not written: %q", sent)
			}
		})
	}
}

// TestRefusedCleanUp: that what is left of a group may not be deleted or released is no error, and is tried again; an
// API server that is away is one.
func TestRefusedCleanUp(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*testing.T, *CommGroupReconciler, *state.Group)
		verb    string
		wakeIn  time.Duration // without a failure
	}{
		"a group that is gone": {func(t *testing.T, r *CommGroupReconciler, g *state.Group) {
			stored, _ := g.Objects()
			if err := r.Client.Delete(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
		}, "delete", 0},
		"a finalizer": {func(t *testing.T, r *CommGroupReconciler, g *state.Group) {
			var live v1alpha1.CommGroup
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(g), &live); err != nil {
				t.Fatal(err)
			}
			live.Finalizers = []string{v1alpha1.Finalizer}
			if err := errors.Join(r.Client.Update(t.Context(), &live),
				r.Client.Delete(t.Context(), &live)); err != nil {
				t.Fatal(err)
			}
			// the fake API server's clock is the real one
			r.Clock.(*clocktesting.FakePassiveClock).SetTime(time.Now().Add(time.Hour))
		}, "patch", 0},
	} {
		for failed, failure := range map[string]error{"nothing": nil, "refused": errQuota,
			"no answer": errors.New("connection refused")} {
			t.Run(name+"/"+failed, func(t *testing.T) {
				w := aboutToRun()
				r, _ := managerOf(t, w)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.Namespace, Name: "left",
					Labels: objects.Labels(w.group, v1alpha1.RoleRun), Annotations: map[string]string{
						v1alpha1.AnnotationGroup: client.ObjectKeyFromObject(w.group).String()}}}
				if err := r.Client.Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				tc.arrange(t, r, w.group)
				writes := 0
				failWrites(r, func(verb string, _ client.Object) error {
					if verb != tc.verb {
						return nil
					}
					writes++
					return failure
				})
				result, err := r.Reconcile(t.Context(),
					ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)})
				switch {
				case writes == 0:
					t.Error("nothing was written")
				case refuses(failure):
					testkit.WantRefusedResult(t, result.RequeueAfter, err)
				case failure == nil && (err != nil || result.RequeueAfter != tc.wakeIn),
					failure != nil && (!errors.Is(err, failure) || result.RequeueAfter != 0):
					t.Errorf("%+v, %v", result, err)
				}
			})
		}
	}
}

// TestBackOffIsBounded: after any number of errors the next try comes within half a minute, and another group's errors
// hold nothing back.
func TestBackOffIsBounded(t *testing.T) {
	limiter := controllerOptions(1).RateLimiter
	for i := range 1000 {
		if got := limiter.When(request(fmt.Sprint("g", i))); got > time.Second {
			t.Fatalf("the first retry of group %d comes after %s", i, got)
		}
	}
	var last time.Duration
	for range 100 {
		last = limiter.When(request("g"))
	}
	if last > 30*time.Second {
		t.Errorf("the retry after 100 errors comes after %s", last)
	}
}
