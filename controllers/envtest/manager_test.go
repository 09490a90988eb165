package envtest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/internal/serverclock"
)

// aheadClock is a clock that is ahead by so much.
type aheadClock time.Duration

func (c aheadClock) Now() time.Time                  { return time.Now().Add(time.Duration(c)) }
func (c aheadClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestWatchesDriveARun lets a real manager with its cache and its own permissions do everything: nobody calls
// Reconcile.
func TestWatchesDriveARun(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: managerUser,
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	// The manager's own clock is ahead: it goes by the API server's.
	now := serverclock.New(aheadClock(11 * time.Minute))
	cfg.Wrap(now.Wrap)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: controllers.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	w.must(err)
	r := controllers.New(controllers.Dependencies{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Clock: now,
		Recorder: mgr.GetEventRecorder("commgroup-manager"),
		Config: controllers.Config{AgentImage: agentImage, DefaultRuntimeImage: "rocm:test",
			PrivilegedNamespaces: []string{w.ns}}})
	w.must(r.SetupWithManager(mgr, 2))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	w.eventually("CommTasks", func() bool {
		var list v1alpha1.CommTaskList
		w.must(admin.List(w.ctx, &list))
		n := 0
		for i := range list.Items {
			if list.Items[i].Namespace == w.ns {
				n++
			}
		}
		return n == 2
	})
	// The first node's clock is behind by more than its reports hold: they count all the same, and that is told.
	const clockOff = -11 * time.Minute
	behind := func(f *v1alpha1.NodeFacts) { f.ObservedTime = metav1.NewTime(time.Now().Add(clockOff)) }
	w.applyFacts(w.nodes[0], behind)
	w.applyFacts(w.nodes[1], nil)
	w.eventually("ClockSkew", func() bool {
		w.refresh()
		c := meta.FindStatusCondition(w.group.Status.Conditions, v1alpha1.ConditionAgentsReporting)
		return c != nil && c.Status == yes && strings.Contains(c.Message, v1alpha1.ReasonClockSkew) &&
			strings.Contains(c.Message, w.nodes[0]+" (behind)")
	})
	w.eventually("run pods", func() bool { return len(w.pods()) == 2 })
	for _, node := range w.nodes {
		pod := w.start(node)
		w.report(node, 300_000, func(r *v1alpha1.NodeRunStatus) {
			if node == w.nodes[0] {
				r.StartTime, r.FinishTime = metav1.NewTime(r.StartTime.Add(clockOff)),
					ptr.To(metav1.NewTime(r.FinishTime.Add(clockOff)))
			}
		})
		w.end(pod, 0, "")
	}
	w.eventually("Ready", func() bool {
		w.endPods()
		w.refresh()
		return meta.IsStatusConditionTrue(w.group.Status.Conditions, v1alpha1.ConditionReady)
	})
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)

	// Gating sees through the cache what it wrote, and what someone takes away by hand.
	validated := func() bool {
		return w.node(w.nodes[0]).Labels[v1alpha1.LabelCommValidated] == v1alpha1.CommValidatedPassed &&
			w.node(w.nodes[1]).Labels[v1alpha1.LabelCommValidated] == v1alpha1.CommValidatedPassed
	}
	w.eventually("the label", validated)
	node := w.node(w.nodes[0])
	base := node.DeepCopy()
	delete(node.Labels, v1alpha1.LabelCommValidated)
	w.must(admin.Patch(w.ctx, node, client.MergeFrom(base)))
	w.eventually("the label once more", validated)

	// A monitor that falls silent and comes back with the very same facts: nothing but time has changed.
	w.applyFacts(w.nodes[0], func(f *v1alpha1.NodeFacts) { behind(f); f.ValidForSeconds = 10 })
	w.eventually("AgentNotReporting", func() bool {
		w.refresh()
		return meta.IsStatusConditionFalse(w.group.Status.Conditions, v1alpha1.ConditionReady)
	})
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonAgentNotReporting)
	w.applyFacts(w.nodes[0], func(f *v1alpha1.NodeFacts) { behind(f); f.ValidForSeconds = 10 })
	w.eventually("Ready after the silence", func() bool {
		w.refresh()
		return meta.IsStatusConditionTrue(w.group.Status.Conditions, v1alpha1.ConditionReady)
	})
	w.eventually("the pods' end", func() bool { w.endPods(); return len(w.pods()) == 0 })
	w.must(admin.Delete(w.ctx, w.group))
	w.wantNoGroup()
	w.eventually("the end of the run pods' account", func() bool {
		return apierrors.IsNotFound(admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: runpod.ServiceAccount},
			&corev1.ServiceAccount{}))
	})
	w.collectGarbage()
	w.wantGone()
}

// eventually asks again until a deadline that only a broken controller reaches.
func (w *world) eventually(what string, done func() bool) {
	w.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.refresh()
			w.Fatalf("no %s within a minute; the status is %+v", what, w.group.Status)
		}
	}
}
