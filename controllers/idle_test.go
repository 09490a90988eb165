package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

func gpuContainer(gpus string) corev1.Container {
	c := corev1.Container{}
	if gpus != "" {
		c.Resources.Limits = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(gpus)}
	}
	return c
}

func TestGPUHolders(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, labels map[string]string,
		init, main []corev1.Container) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels},
			Status: corev1.PodStatus{Phase: phase}, Spec: corev1.PodSpec{InitContainers: init, Containers: main}}
	}
	some := func(gpus ...string) (out []corev1.Container) {
		for _, g := range gpus {
			out = append(out, gpuContainer(g))
		}
		return out
	}
	beside := gpuContainer("1")
	beside.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	run := func(uid string) map[string]string {
		return map[string]string{v1alpha1.LabelRole: v1alpha1.RoleRun, v1alpha1.LabelGroupUID: uid}
	}
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"no GPUs":                 {pod("a", corev1.PodRunning, nil, nil, some("")), ""},
		"one":                     {pod("a", corev1.PodRunning, nil, nil, some("2")), "team/a (2)"},
		"pending, on the node":    {pod("a", corev1.PodPending, nil, nil, some("2")), "team/a (2)"},
		"over":                    {pod("a", corev1.PodSucceeded, nil, nil, some("2")), ""},
		"failed":                  {pod("a", corev1.PodFailed, nil, nil, some("2")), ""},
		"two containers":          {pod("a", corev1.PodRunning, nil, nil, some("2", "", "3")), "team/a (5)"},
		"a larger init container": {pod("a", corev1.PodRunning, nil, some("4"), some("1")), "team/a (4)"},
		"an init container that goes on beside them": {pod("a", corev1.PodRunning, nil, []corev1.Container{beside},
			some("2")), "team/a (3)"},
		"of the group itself": {pod("a", corev1.PodRunning, run("uid-g"), nil, some("2")), ""},
		"of another group": {pod("a", corev1.PodRunning, run("uid-h"), nil, some("2")),
			"team/a (2)"},
		"zero asked": {pod("a", corev1.PodRunning, nil, nil, some("0")), ""},
	} {
		if got := sharing.Holders([]corev1.Pod{tc.pod}, v1alpha1.ResourceGPU, testkit.Group()); got != tc.want {
			t.Errorf("%s: %q, expected %q", name, got, tc.want)
		}
	}
}

// TestOthersAreNotNamed: who reads a CommGroup may not know what other namespaces run.
func TestOthersAreNotNamed(t *testing.T) {
	held := func(namespace, name, gpus string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
			Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{gpuContainer(gpus)}}}
	}
	pods := []corev1.Pod{held("secret-project", "merger-model-0", "2"), held("team", "b", "1"),
		held("secret-project", "merger-model-1", "3"), held("team", "a", "4")}
	if got, want := sharing.Holders(pods, v1alpha1.ResourceGPU, testkit.Group()),
		"team/a (4), team/b (1) and 2 pods of another namespace (5)"; got != want {
		t.Errorf("holders: %q, expected %q", got, want)
	}
	if got, want := sharing.Holders(pods[:1], v1alpha1.ResourceGPU, testkit.Group()),
		"1 pod of another namespace (2)"; got != want {
		t.Errorf("holders: %q, expected %q", got, want)
	}
	s := &Snapshot{Group: testkit.Group(), Claims: []sharing.Claim{{Group: "secret-project/merger", UID: "x",
		Nodes: []string{"n"}}, {Group: "team/h", UID: "y", Nodes: []string{"m"}}}}
	for i, pod := range pods[:2] {
		pod.Spec.NodeName = string(rune('p' + i))
		s.OtherRunPods = append(s.OtherRunPods, pod)
	}
	e := sharing.Of(s.Group, s.OtherRunPods, s.Claims, s.Now)
	for _, texts := range []map[string]string{e.Pods, e.Claims, e.Ahead} {
		for node, text := range texts {
			if strings.Contains(text, "secret") || strings.Contains(text, "merger") {
				t.Errorf("node %s: %q", node, text)
			}
		}
	}
	if !strings.Contains(e.Pods["p"], "of another namespace") || !strings.Contains(e.Pods["q"], "team/b") ||
		!strings.Contains(e.Claims["m"], "team/h") || !strings.Contains(e.Claims["n"], "of another namespace") {
		t.Errorf("pods %v, claims %v", e.Pods, e.Claims)
	}
}

// idleGroup takes 4 of its nodes' 8 GPUs, so that the scheduler alone does not tell whether others hold some.
func idleGroup() *state.Group {
	g := testkit.Group()
	g.Spec.RanksPerNode, g.Spec.Run.Nodes = 4, v1alpha1.NodeUseIdle
	return g
}

func TestBusyNode(t *testing.T) {
	w := newWorld(idleGroup(), testkit.Nodes(2))
	busy, free := w.nodes[0].Name, w.nodes[1].Name
	w.holders = map[string]string{busy: "prod/train-0 (2)"}
	w.settle()
	w.reportFacts()
	w.settle()
	if w.podOn(busy) != nil || w.podOn(free) == nil {
		t.Fatalf("pods %v", slices.Sorted(maps.Keys(w.pods)))
	}
	a := w.commTask(busy).Spec.Run
	if a.Waiting == nil || a.Waiting.Reason != v1alpha1.ReasonNodeBusy ||
		!strings.Contains(a.Waiting.Message, "prod/train-0 (2)") {
		t.Fatalf("waiting %+v", a.Waiting)
	}
	var text string
	for _, c := range w.group.Status.Conditions {
		if c.Type == v1alpha1.ConditionRunning {
			text = c.Message
		}
	}
	if !strings.Contains(text, busy) || !strings.Contains(text, "prod/train-0 (2)") {
		t.Errorf("Running says %q", text)
	}
	since := a.Waiting.Since
	startPod(w.podOn(free), free, w.now)
	w.now = w.now.Add(300 * time.Second)
	w.reportFacts()
	w.settle()
	if a = w.commTask(busy).Spec.Run; a.Waiting == nil || !a.Waiting.Since.Equal(&since) {
		t.Fatalf("waiting %+v, since %s", a.Waiting, since)
	}
	if got := w.decided.WakeAt; got.After(w.now.Add(sharing.BusyPoll)) {
		t.Errorf("looks again at %s, now is %s", got, w.now)
	}
	w.now = since.Add(600 * time.Second)
	w.reportFacts()
	w.settle()
	a = w.commTask(busy).Spec.Run
	if a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonNodeBusy || a.Closed.Verdict != v1alpha1.VerdictSkipped ||
		a.Waiting != nil || !strings.Contains(a.Closed.Message, "prod/train-0 (2)") {
		t.Fatalf("after the deadline: %+v, closed %+v", a, a.Closed)
	}
	ct := w.commTask(free)
	ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	endPod(w.podOn(free), 0, w.now)
	w.settle()
	// The job ends: the node is measured by itself after the pause.
	w.holders = nil
	w.now = w.now.Add(commrun.RetryPause)
	w.reportFacts()
	w.settle()
	if run := w.group.Status.Run; run.Number != 2 || run.Trigger != state.TriggerNodesChanged || w.podOn(busy) == nil {
		t.Errorf("run %+v, pods %v", run, slices.Sorted(maps.Keys(w.pods)))
	}
}

// TestNodeThatCannotBeLookedAt: where the pods of a node cannot be listed its run waits as long as on a busy one, says
// why, and ends as an Error: nobody knows whether it was busy. One that was seen busy stays so. The other node is
// measured meanwhile.
func TestNodeThatCannotBeLookedAt(t *testing.T) {
	const why = "pods on node n00000: pods is forbidden"
	for name, tc := range map[string]struct {
		busyFirst, readAtLast bool
		reason                string
		verdict               v1alpha1.Verdict
	}{
		"never":                  {reason: v1alpha1.ReasonListFailed, verdict: v1alpha1.VerdictError},
		"busy, then never again": {busyFirst: true, reason: v1alpha1.ReasonNodeBusy, verdict: v1alpha1.VerdictSkipped},
		"read in time":           {readAtLast: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(idleGroup(), testkit.Nodes(2))
			bad, good := w.nodes[0].Name, w.nodes[1].Name
			w.settle()
			w.reportFacts()
			if tc.busyFirst {
				w.holders = map[string]string{bad: "prod/train-0 (2)"}
				w.settle()
				w.now = w.now.Add(sharing.BusyPoll)
			}
			w.unread = map[string]string{bad: why}
			w.settle()
			a := w.commTask(bad).Spec.Run
			if a.Waiting == nil || !strings.Contains(a.Waiting.Message, why) ||
				!strings.Contains(w.runningSays(), why) || w.podOn(bad) != nil {
				t.Fatalf("waiting %+v, Running says %q", a.Waiting, w.runningSays())
			}
			since := a.Waiting.Since.Time
			looks := w.looks
			if w.settle(); w.looks != looks || w.decided.WakeAt.After(w.now.Add(sharing.BusyPoll)) {
				t.Errorf("%d looks more within one poll; wakes at %s", w.looks-looks, w.decided.WakeAt)
			}
			ct := w.commTask(good)
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
			w.now = since.Add(600*time.Second - sharing.BusyPoll)
			w.reportFacts()
			if w.settle(); w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
				t.Fatalf("before the deadline: run %+v", w.group.Status.Run)
			}
			w.now = since.Add(600 * time.Second)
			if tc.readAtLast {
				w.unread = nil
				w.now = w.now.Add(sharing.BusyPoll)
			}
			w.settle()
			a = w.commTask(bad).Spec.Run
			if tc.readAtLast {
				if w.podOn(bad) == nil || a.Closed != nil || a.Waiting != nil {
					t.Errorf("it could be read, and it is %+v, pods %v", a, slices.Sorted(maps.Keys(w.pods)))
				}
				return
			}
			if a.Closed == nil || a.Closed.Reason != tc.reason || a.Closed.Verdict != tc.verdict ||
				!strings.Contains(a.Closed.Message, why) || w.group.Status.Run.Phase != v1alpha1.RunPhaseFinished {
				t.Errorf("after the deadline: %+v, closed %+v, run %+v", a, a.Closed, w.group.Status.Run)
			}
		})
	}
}

// TestRefusedLookHasADeadline: a manager that may not list pods of all namespaces does not give the run up to the
// queue's growing pauses: it checks again each poll, and the run ends by its deadline.
func TestRefusedLookHasADeadline(t *testing.T) {
	nothing := func(client.Object) error { return nil }
	r, c, _ := refusing(t, idleGroup(), &nothing)
	r.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if o := (&client.ListOptions{}).ApplyOptions(opts); o.FieldSelector != nil {
			return errQuota
		}
		return c.List(ctx, list, opts...)
	}})
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(idleGroup())}
	clock := r.Clock.(*clocktesting.FakePassiveClock)
	for range 600/int(sharing.BusyPoll/time.Second) + 10 {
		result, err := r.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		var g v1alpha1.CommGroup
		var nodes v1alpha1.CommTaskList
		if err := errors.Join(c.Get(t.Context(), request.NamespacedName, &g), c.List(t.Context(), &nodes)); err != nil {
			t.Fatal(err)
		}
		if err := playMonitors(t.Context(), c, func(string) *v1alpha1.NodeFacts {
			return testkit.Facts(clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
		for i := range nodes.Items {
			ct := &nodes.Items[i]
			if a := ct.Spec.Run; a != nil && a.Waiting != nil {
				if testkit.WantRefusedResult(t, result.RequeueAfter, err); result.RequeueAfter > sharing.BusyPoll {
					t.Fatalf("it waits, and looks again after %s", result.RequeueAfter)
				}
			}
		}
		if run := g.Status.Run; run != nil && run.Phase == v1alpha1.RunPhaseFinished {
			if v := meta.FindStatusCondition(g.Status.Conditions,
				v1alpha1.ConditionValidated); v.Reason != v1alpha1.ReasonListFailed ||
				!strings.Contains(v.Message, "exceeded quota: small") {
				t.Errorf("Validated is %+v", v)
			}
			return
		}
		clock.SetTime(clock.Now().Add(sharing.BusyPoll))
	}
	t.Error("the run goes on")
}

// TestNodeGetsFree: the wait ends as soon as nobody holds GPUs there.
func TestNodeGetsFree(t *testing.T) {
	w := newWorld(idleGroup(), testkit.Nodes(1))
	node := w.nodes[0].Name
	w.holders = map[string]string{node: "prod/train-0 (2)"}
	w.settle()
	w.reportFacts()
	w.settle()
	w.holders = nil
	w.now = w.now.Add(sharing.BusyPoll)
	w.settle()
	if a := w.commTask(node).Spec.Run; w.podOn(node) == nil || a.Waiting != nil {
		t.Errorf("waiting %+v, pods %v", a.Waiting, slices.Sorted(maps.Keys(w.pods)))
	}
}

// TestNoLookWithoutNeed: where the run may share the GPUs, nothing is looked up.
func TestNoLookWithoutNeed(t *testing.T) {
	for _, ranks := range []int32{4, 8} {
		g := idleGroup()
		g.Spec.RanksPerNode, g.Spec.Run.Nodes = ranks, v1alpha1.NodeUseAny
		w := newWorld(g, testkit.Nodes(3))
		w.settle()
		w.reportFacts()
		w.settle()
		if w.looks > 0 || len(w.pods) != 3 {
			t.Errorf("ranks %d, nodes %s: %d look-ups, %d pods",
				g.Spec.RanksPerNode, g.Spec.Run.Nodes, w.looks, len(w.pods))
		}
	}
}

// TestBusyNodesTakeNoPlaces: nodes that others use keep no idle one from its run, whether the run takes some of their
// GPUs or all, and end in time themselves.
func TestBusyNodesTakeNoPlaces(t *testing.T) {
	for _, ranks := range []int32{4, 8} {
		g := idleGroup()
		g.Spec.RanksPerNode, g.Spec.DDA.Mode = ranks, v1alpha1.FeatureDisabled
		const nodes, busy = 200, 100
		w := newWorld(g, testkit.Nodes(nodes))
		w.holders = map[string]string{}
		for i := range busy {
			w.holders[w.nodes[i].Name] = "prod/train (8)"
		}
		w.settle()
		w.reportFacts()
		w.settle()
		start, most := w.now, 0
		var passed time.Duration
		for w.now.Sub(start) < time.Hour && w.group.Status.Run.Phase == v1alpha1.RunPhaseRunning {
			w.settle()
			alive := 0
			for _, pod := range w.pods {
				node := sharing.PlannedNode(pod)
				ct := w.commTask(node)
				if !podstate.Alive(pod) {
					continue
				}
				if alive++; w.holders[node] != "" {
					continue // the scheduler has no place for it
				}
				startPod(pod, node, w.now)
				ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
				endPod(pod, 0, w.now)
			}
			most = max(most, alive)
			if m := w.group.Status.Members; m.Passed == nodes-busy && passed == 0 {
				passed = w.now.Sub(start)
			}
			w.now = w.now.Add(sharing.BusyPoll)
			w.reportFacts()
		}
		run, took := w.group.Status.Run, w.now.Sub(start)
		if m := w.group.Status.Members; run.Phase != v1alpha1.RunPhaseFinished || m.Passed != nodes-busy ||
			m.Skipped != busy || took > 15*time.Minute || passed == 0 || passed > 5*time.Minute {
			t.Errorf("%d ranks: run %s after %s, the idle nodes had passed after %s; members %+v",
				ranks, run.Phase, took, passed, m)
		}
		if most > int(g.Spec.Run.MaxParallelNodes) {
			t.Errorf("%d ranks: %d pods at once", ranks, most)
		}
	}
}

// TestBusyNodesAreLookedAtOncePerPoll: whatever else wakes the group meanwhile, also for the stage over several nodes.
func TestBusyNodesAreLookedAtOncePerPoll(t *testing.T) {
	g := idleGroup()
	g.Spec.Run.MaxParallelNodes = 128
	w := newWorld(g, testkit.Nodes(100))
	w.holders = map[string]string{}
	for i := range w.nodes {
		w.holders[w.nodes[i].Name] = "prod/train (4)"
	}
	w.settle()
	w.reportFacts()
	w.settle()
	if w.looks != 100 {
		t.Fatalf("%d looks at 100 nodes that nobody has looked at", w.looks)
	}
	for poll := range 3 {
		w.looks, w.now = 0, w.now.Add(sharing.BusyPoll)
		for range 100 {
			w.step()
			w.now = w.now.Add(time.Millisecond)
		}
		if w.looks == 0 || w.looks > 100 {
			t.Errorf("poll %d: %d looks in 100 reconciles", poll, w.looks)
		}
		w.now = w.now.Truncate(time.Second)
	}
	stage := newGroupWorld(t, 4, faults{}, func(g *state.Group) {
		g.Spec.RanksPerNode, g.Spec.Run.Nodes = 4, v1alpha1.NodeUseIdle
	})
	stage.settle()
	stage.playNodes()
	stage.holders = map[string]string{"n00001": "prod/train (4)", "n00002": "prod/train (4)"}
	for stage.settle(); stage.span().Stage == v1alpha1.StageNodes; stage.settle() {
		stage.now = stage.now.Add(time.Second)
		stage.playNodes()
	}
	stage.looks = 0
	for range 50 {
		stage.now = stage.now.Add(time.Millisecond)
		stage.step()
	}
	if stage.looks != 0 {
		t.Errorf("%d looks at the stage's busy nodes within a poll", stage.looks)
	}
	stage.holders, stage.now = nil, stage.now.Add(sharing.BusyPoll)
	if stage.settle(); stage.groupPod("n00001") == nil {
		t.Error("no pod on a node that got free")
	}
}

// TestLookMemory forgets what is older than a poll, what is not busy, and groups that are gone.
func TestLookMemory(t *testing.T) {
	var m lookMemory
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	m.add(a, map[string]string{"busy": "x", "free": ""}, testkit.Now)
	m.add(b, map[string]string{"other": "x"}, testkit.Now)
	m.add(a, map[string]string{"later": "x"}, testkit.Now.Add(sharing.BusyPoll-time.Second))
	if got := slices.Sorted(maps.Keys(m.of(a, testkit.Now.Add(sharing.BusyPoll-time.Second)))); !slices.Equal(got,
		[]string{"busy", "later"}) {
		t.Errorf("before a poll is over: %v", got)
	}
	if got := slices.Sorted(maps.Keys(m.of(a, testkit.Now.Add(sharing.BusyPoll)))); !slices.Equal(got,
		[]string{"later"}) {
		t.Errorf("after a poll: %v", got)
	}
	m.forget(b)
	if m.of(a, testkit.Now.Add(time.Hour)); len(m.groups) != 0 {
		t.Errorf("left: %v", m.groups)
	}
}
