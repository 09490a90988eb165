package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

func gpuContainer(gpus string) corev1.Container {
	c := corev1.Container{}
	if gpus != "" {
		c.Resources.Limits = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse(gpus)}
	}
	return c
}

func TestGPUHolders(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, labels map[string]string, init, main []corev1.Container) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{InitContainers: init, Containers: main}}
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
		"an init container that goes on beside them": {pod("a", corev1.PodRunning, nil, []corev1.Container{beside}, some("2")), "team/a (3)"},
		"of the group itself":                        {pod("a", corev1.PodRunning, run("uid-g"), nil, some("2")), ""},
		"of another group":                           {pod("a", corev1.PodRunning, run("uid-h"), nil, some("2")), "team/a (2)"},
		"zero asked":                                 {pod("a", corev1.PodRunning, nil, nil, some("0")), ""},
	} {
		if got := gpuHolders([]corev1.Pod{tc.pod}, v1alpha1.ResourceGPU, testGroup()); got != tc.want {
			t.Errorf("%s: %q, expected %q", name, got, tc.want)
		}
	}
}

// TestOthersAreNotNamed: who reads a CommGroup may not know what other namespaces run.
func TestOthersAreNotNamed(t *testing.T) {
	held := func(namespace, name, gpus string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{gpuContainer(gpus)}}}
	}
	pods := []corev1.Pod{held("secret-project", "merger-model-0", "2"), held("team", "b", "1"), held("secret-project", "merger-model-1", "3"), held("team", "a", "4")}
	if got, want := gpuHolders(pods, v1alpha1.ResourceGPU, testGroup()), "team/a (4), team/b (1) and 2 pods of another namespace (5)"; got != want {
		t.Errorf("holders: %q, expected %q", got, want)
	}
	if got, want := gpuHolders(pods[:1], v1alpha1.ResourceGPU, testGroup()), "1 pod of another namespace (2)"; got != want {
		t.Errorf("holders: %q, expected %q", got, want)
	}
	s := &Snapshot{Group: testGroup(), Claims: []Claim{{Group: "secret-project/merger", UID: "x", Nodes: []string{"n"}}, {Group: "team/h", UID: "y", Nodes: []string{"m"}}}}
	for i, pod := range pods[:2] {
		pod.Spec.NodeName = string(rune('p' + i))
		s.OtherRunPods = append(s.OtherRunPods, pod)
	}
	e := othersOf(s)
	for _, texts := range []map[string]string{e.pods, e.claims, e.ahead} {
		for node, text := range texts {
			if strings.Contains(text, "secret") || strings.Contains(text, "merger") {
				t.Errorf("node %s: %q", node, text)
			}
		}
	}
	if !strings.Contains(e.pods["p"], "of another namespace") || !strings.Contains(e.pods["q"], "team/b") || !strings.Contains(e.claims["m"], "team/h") || !strings.Contains(e.claims["n"], "of another namespace") {
		t.Errorf("pods %v, claims %v", e.pods, e.claims)
	}
}

// idleGroup takes 4 of its nodes' 8 GPUs, so that the scheduler alone does not tell whether others hold some.
func idleGroup() *v1alpha1.CommGroup {
	g := testGroup()
	g.Spec.RanksPerNode, g.Spec.Run.Nodes = 4, v1alpha1.NodeUseIdle
	return g
}

func TestBusyNode(t *testing.T) {
	w := newWorld(idleGroup(), testNodes(2))
	busy, free := w.nodes[0].Name, w.nodes[1].Name
	w.holders = map[string]string{busy: "prod/train-0 (2)"}
	w.settle()
	w.reportFacts()
	w.settle()
	if w.podOn(busy) != nil || w.podOn(free) == nil {
		t.Fatalf("pods %v", words.SortedKeys(w.pods))
	}
	a := w.commNode(busy).Spec.Run
	if a.Waiting == nil || a.Waiting.Reason != v1alpha1.ReasonNodeBusy || !strings.Contains(a.Waiting.Message, "prod/train-0 (2)") {
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
	if a = w.commNode(busy).Spec.Run; a.Waiting == nil || !a.Waiting.Since.Equal(&since) {
		t.Fatalf("waiting %+v, since %s", a.Waiting, since)
	}
	if got := w.decided.WakeAt; got.After(w.now.Add(busyPoll)) {
		t.Errorf("looks again at %s, now is %s", got, w.now)
	}
	w.now = since.Add(600 * time.Second)
	w.reportFacts()
	w.settle()
	a = w.commNode(busy).Spec.Run
	if a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonNodeBusy || a.Closed.Verdict != v1alpha1.VerdictSkipped || a.Waiting != nil || !strings.Contains(a.Closed.Message, "prod/train-0 (2)") {
		t.Fatalf("after the deadline: %+v, closed %+v", a, a.Closed)
	}
	cn := w.commNode(free)
	cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
	endPod(w.podOn(free), 0, w.now)
	w.settle()
	// The job ends: the node is measured by itself after the pause.
	w.holders = nil
	w.now = w.now.Add(retryPause)
	w.reportFacts()
	w.settle()
	if run := w.group.Status.Run; run.Number != 2 || run.Trigger != triggerNodesChanged || w.podOn(busy) == nil {
		t.Errorf("run %+v, pods %v", run, words.SortedKeys(w.pods))
	}
}

// TestNodeGetsFree: the wait ends as soon as nobody holds GPUs there.
func TestNodeGetsFree(t *testing.T) {
	w := newWorld(idleGroup(), testNodes(1))
	node := w.nodes[0].Name
	w.holders = map[string]string{node: "prod/train-0 (2)"}
	w.settle()
	w.reportFacts()
	w.settle()
	w.holders = nil
	w.now = w.now.Add(busyPoll)
	w.settle()
	if a := w.commNode(node).Spec.Run; w.podOn(node) == nil || a.Waiting != nil {
		t.Errorf("waiting %+v, pods %v", a.Waiting, words.SortedKeys(w.pods))
	}
}

// TestNoLookWithoutNeed: where the run may share the GPUs, nothing is looked up.
func TestNoLookWithoutNeed(t *testing.T) {
	for _, ranks := range []int32{4, 8} {
		g := idleGroup()
		g.Spec.RanksPerNode, g.Spec.Run.Nodes = ranks, v1alpha1.NodeUseAny
		w := newWorld(g, testNodes(3))
		w.settle()
		w.reportFacts()
		w.settle()
		if w.looks > 0 || len(w.pods) != 3 {
			t.Errorf("ranks %d, nodes %s: %d look-ups, %d pods", g.Spec.RanksPerNode, g.Spec.Run.Nodes, w.looks, len(w.pods))
		}
	}
}

// TestBusyNodesTakeNoPlaces: nodes that others use keep no idle one from its run, whether the run takes some of their GPUs or all,
// and end in time themselves.
func TestBusyNodesTakeNoPlaces(t *testing.T) {
	for _, ranks := range []int32{4, 8} {
		g := idleGroup()
		g.Spec.RanksPerNode, g.Spec.DDA.Mode = ranks, v1alpha1.FeatureDisabled
		const nodes, busy = 200, 100
		w := newWorld(g, testNodes(nodes))
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
				node := plannedNode(pod)
				cn := w.commNode(node)
				if !podAlive(pod) {
					continue
				}
				if alive++; w.holders[node] != "" {
					continue // the scheduler has no place for it
				}
				startPod(pod, node, w.now)
				cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
				endPod(pod, 0, w.now)
			}
			most = max(most, alive)
			if m := w.group.Status.Members; m.Passed == nodes-busy && passed == 0 {
				passed = w.now.Sub(start)
			}
			w.now = w.now.Add(busyPoll)
			w.reportFacts()
		}
		run, took := w.group.Status.Run, w.now.Sub(start)
		if m := w.group.Status.Members; run.Phase != v1alpha1.RunPhaseFinished || m.Passed != nodes-busy || m.Skipped != busy || took > 15*time.Minute || passed == 0 || passed > 5*time.Minute {
			t.Errorf("%d ranks: run %s after %s, the idle nodes had passed after %s; members %+v", ranks, run.Phase, took, passed, m)
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
	w := newWorld(g, testNodes(100))
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
		w.looks, w.now = 0, w.now.Add(busyPoll)
		for range 100 {
			w.step()
			w.now = w.now.Add(time.Millisecond)
		}
		if w.looks == 0 || w.looks > 100 {
			t.Errorf("poll %d: %d looks in 100 reconciles", poll, w.looks)
		}
		w.now = w.now.Truncate(time.Second)
	}
	stage := newGroupWorld(t, 4, faults{}, func(g *v1alpha1.CommGroup) { g.Spec.RanksPerNode, g.Spec.Run.Nodes = 4, v1alpha1.NodeUseIdle })
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
	stage.holders, stage.now = nil, stage.now.Add(busyPoll)
	if stage.settle(); stage.groupPod("n00001") == nil {
		t.Error("no pod on a node that got free")
	}
}

// TestLookMemory forgets what is older than a poll, what is not busy, and groups that are gone.
func TestLookMemory(t *testing.T) {
	var m lookMemory
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	m.add(a, map[string]string{"busy": "x", "free": ""}, testNow)
	m.add(b, map[string]string{"other": "x"}, testNow)
	m.add(a, map[string]string{"later": "x"}, testNow.Add(busyPoll-time.Second))
	if got := words.SortedKeys(m.of(a, testNow.Add(busyPoll-time.Second))); !slices.Equal(got, []string{"busy", "later"}) {
		t.Errorf("before a poll is over: %v", got)
	}
	if got := words.SortedKeys(m.of(a, testNow.Add(busyPoll))); !slices.Equal(got, []string{"later"}) {
		t.Errorf("after a poll: %v", got)
	}
	m.forget(b)
	if m.of(a, testNow.Add(time.Hour)); len(m.groups) != 0 {
		t.Errorf("left: %v", m.groups)
	}
}

// TestChooseLooks: as many as there are places, nodes that were never looked at first, and each waiting node comes to its turn.
func TestChooseLooks(t *testing.T) {
	nodes := make([]nodeState, 100)
	for i := range nodes {
		nodes[i] = nodeState{name: fmt.Sprintf("n%02d", i), wantsLook: i%10 != 0}
		if i >= 5 {
			nodes[i].waiting = &v1alpha1.RunWait{}
		}
	}
	if got := chooseLooks(nodes, 3, testNow, nil); len(got) != maxLooks || !slices.Equal(got[:3], []string{"n01", "n02", "n03"}) || slices.Contains(got, "n04") {
		t.Errorf("three places: %v", got)
	}
	for _, places := range []int{0, -2} { // those that wait may end
		if got := chooseLooks(nodes, places, testNow, nil); len(got) != maxLooks || slices.Contains(got, "n01") {
			t.Errorf("%d places: %v", places, got)
		}
	}
	if got := chooseLooks(nodes, 1000, testNow, nil); len(got) != maxLooks {
		t.Errorf("many places: %d looks", len(got))
	}
	busyAt := map[string]time.Time{}
	for i := range nodes {
		busyAt[nodes[i].name] = testNow
	}
	delete(busyAt, "n02")
	if got := chooseLooks(nodes, 3, testNow.Add(busyPoll-time.Second), busyAt); !slices.Equal(got, []string{"n02"}) {
		t.Errorf("seen busy just now: %v", got)
	}
	if got := chooseLooks(nodes, 3, testNow.Add(busyPoll), busyAt); len(got) != maxLooks {
		t.Errorf("seen busy a poll ago: %v", got)
	}
	if got := chooseLooks(nodes, 3, testNow.Add(-time.Hour), busyAt); len(got) != maxLooks {
		t.Errorf("the clock was set back: %v", got)
	}
	seen := map[string]bool{}
	for i := range 30 {
		for _, name := range chooseLooks(nodes, 10, testNow.Add(time.Duration(i)*busyPoll), nil) {
			seen[name] = true
		}
	}
	if len(seen) != 90 {
		t.Errorf("%d of 90 nodes came to their turn", len(seen))
	}
}

// runPodOfOther is a run pod of group team/h for the node, not yet placed.
func runPodOfOther(node string) corev1.Pod {
	other := testGroup()
	other.Name, other.UID = "h", "uid-h"
	pod := runPodFor(other, &v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeName: node}}, "1-1", testConfig)
	pod.Status.Phase = corev1.PodPending
	return *pod
}

// TestOneRunANode: while another group's run is on a node, this one's waits and says for whom, at most for both deadlines.
func TestOneRunANode(t *testing.T) {
	for name, set := range map[string]func(w *world, node string){
		"a pod without a place yet": func(w *world, node string) { w.others = []corev1.Pod{runPodOfOther(node)} },
		"a pod that runs": func(w *world, node string) {
			pod := runPodOfOther("elsewhere")
			startPod(&pod, node, w.now)
			w.others = []corev1.Pod{pod}
		},
		"a claim": func(w *world, node string) {
			w.claims = []Claim{{Group: "team/h", UID: "uid-h", Nodes: []string{node}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testGroup(), testNodes(2))
			taken, free := w.nodes[0].Name, w.nodes[1].Name
			set(w, taken)
			w.settle()
			w.reportFacts()
			w.settle()
			if w.podOn(taken) != nil || w.podOn(free) == nil {
				t.Fatalf("pods %v", words.SortedKeys(w.pods))
			}
			if a := w.commNode(taken).Spec.Run; a.Waiting == nil || !strings.Contains(a.Waiting.Message, "team/h") {
				t.Fatalf("waiting %+v", a.Waiting)
			}
			w.now = w.now.Add(2399 * time.Second) // 600 s and 1800 s
			w.reportFacts()
			w.settle()
			if a := w.commNode(taken).Spec.Run; a.Closed != nil || a.Waiting == nil {
				t.Fatalf("given up too early: %+v", a.Closed)
			}
			w.now = w.now.Add(time.Second)
			w.settle()
			if a := w.commNode(taken).Spec.Run; a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonNodeBusy {
				t.Fatalf("after the deadline: %+v", a)
			}
		})
	}
}

// TestPodsThatBarNobody: pods that are over, that Kueue holds back, or that sit on a node that does not answer.
func TestPodsThatBarNobody(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"over": func(p *corev1.Pod) { endPod(p, 0, testNow) },
		"queued": func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		},
		"stuck": func(p *corev1.Pod) { p.DeletionTimestamp = decision.Stamp(testNow.Add(-time.Hour)) },
	} {
		pod := runPodOfOther("a")
		change(&pod)
		if e := othersOf(&Snapshot{Now: testNow, Group: testGroup(), OtherRunPods: []corev1.Pod{pod}}); e.onNode("a") != "" {
			t.Errorf("%s: %q", name, e.onNode("a"))
		}
	}
}

// TestClaimOrder: of two groups that claim a node exactly one is ahead, whoever looks: the earlier, then the lesser UID; and a group
// that has its nodes lets nobody go first.
func TestClaimOrder(t *testing.T) {
	group := func(uid types.UID, stage v1alpha1.RunStage, since time.Time) *v1alpha1.CommGroup {
		g := testGroup()
		g.UID = uid
		g.Status.Run = &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseRunning}
		g.Status.Span = &v1alpha1.SpanStatus{RunID: "1-1", Stage: stage, StageStartTime: decision.Stamp(since)}
		return g
	}
	const waiting, working = v1alpha1.StageWaitingForMembers, v1alpha1.StageGroup
	later := testNow.Add(time.Minute)
	for name, tc := range map[string]struct {
		first, second *v1alpha1.CommGroup
	}{
		"earlier":              {group("b", waiting, testNow), group("a", waiting, later)},
		"at once":              {group("a", waiting, testNow), group("b", waiting, testNow)},
		"has its nodes":        {group("b", working, later), group("a", waiting, testNow)},
		"a stage and no stage": {group("b", waiting, later), group("a", v1alpha1.StageNodes, testNow)},
	} {
		sees := func(own, other *v1alpha1.CommGroup) bool {
			s := &Snapshot{Now: testNow, Group: own}
			if c := stageOf(other); c != nil {
				c.Nodes = []string{"n"}
				s.Claims = append(s.Claims, *c)
			}
			e := othersOf(s)
			return e.before("n") != ""
		}
		if sees(tc.first, tc.second) || !sees(tc.second, tc.first) {
			t.Errorf("%s: the first waits: %v, the second waits: %v", name, sees(tc.first, tc.second), sees(tc.second, tc.first))
		}
	}
	for _, g := range []*v1alpha1.CommGroup{group("a", v1alpha1.StageEnded, testNow), group("a", v1alpha1.StageNodes, testNow), testGroup()} {
		if c := stageOf(g); c != nil {
			t.Errorf("%+v claims nodes: %+v", g.Status.Span, c)
		}
	}
}

// TestGroupStageAwaitsOthers: the stage begins once no other run is on any of its nodes; it makes no pod at all while a group that
// is ahead has one of them; and both waits end.
func TestGroupStageAwaitsOthers(t *testing.T) {
	group := groupSpan(3, nil)
	w := newWorld(group, testNodes(3))
	w.settle()
	w.reportFacts()
	w.settle()
	for i := range w.nodes {
		startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
		cn := w.commNode(w.nodes[i].Name)
		cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
		endPod(w.podOn(w.nodes[i].Name), 0, w.now)
	}
	w.others = []corev1.Pod{runPodOfOther(w.nodes[2].Name)}
	w.settle()
	span := w.group.Status.Span
	if span == nil || span.Stage != v1alpha1.StageNodes || !strings.Contains(span.Message, "team/h") || w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("while another run is there: %+v", span)
	}
	// It ends, and the stage begins; then a group comes that was ahead by the API's clock.
	w.others = nil
	w.step()
	if span = w.group.Status.Span; span.Stage != v1alpha1.StageWaitingForMembers || span.Message != "" {
		t.Fatalf("once it has ended: %+v", span)
	}
	w.claims = []Claim{{Group: "team/h", UID: "uid-a", Since: span.StageStartTime.Add(-time.Second), Nodes: []string{w.nodes[1].Name}}}
	w.pods = map[string]*corev1.Pod{}
	w.settle()
	if len(w.pods) != 0 {
		t.Fatalf("pods %v beside the other group's", words.SortedKeys(w.pods))
	}
	if got := w.decided.WakeAt; got.IsZero() || got.After(w.now.Add(busyPoll)) {
		t.Errorf("looks again at %s, now is %s", got, w.now)
	}
	w.claims[0].Since = span.StageStartTime.Add(time.Second)
	w.settle()
	if len(w.pods) != 3 {
		t.Fatalf("pods %v though the other came later", words.SortedKeys(w.pods))
	}
	w.pods = map[string]*corev1.Pod{}
	w.claims[0].Since = span.StageStartTime.Add(-time.Second)
	w.now = w.now.Add(decision.Seconds(group.Spec.Run.MembersDeadlineSeconds))
	w.reportFacts()
	w.settle()
	if span = w.group.Status.Span; span.Stage != v1alpha1.StageEnded || span.Verdict != v1alpha1.VerdictSkipped || span.Reason != v1alpha1.ReasonNodeBusy || len(span.Culprits) > 0 {
		t.Errorf("after the members' deadline: %+v", span)
	}
}

// TestFreeMembersAreFoundBehindBusyOnes: where others hold the GPUs of more members than one reconcile looks at, the free ones
// behind them are looked at too and get their pods.
func TestFreeMembersAreFoundBehindBusyOnes(t *testing.T) {
	const members, busy = maxLooks + 40, maxLooks + 10
	group := groupSpan(members, func(g *v1alpha1.CommGroup) {
		g.Spec.RanksPerNode, g.Spec.Run.Nodes, g.Spec.DDA.Mode = 4, v1alpha1.NodeUseIdle, v1alpha1.FeatureDisabled
	})
	w := newWorld(group, testNodes(members))
	for alone := 0; alone < members; w.now = w.now.Add(time.Second) {
		if w.now.Sub(testNow) > time.Minute {
			t.Fatalf("%d nodes passed alone; run %+v", alone, w.group.Status.Run)
		}
		w.settle()
		w.reportFacts()
		for i := range w.nodes {
			if pod, cn := w.podOn(w.nodes[i].Name), w.commNode(w.nodes[i].Name); pod != nil && podAlive(pod) {
				startPod(pod, w.nodes[i].Name, w.now)
				cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
				endPod(pod, 0, w.now)
				alone++
			}
		}
	}
	w.holders = map[string]string{}
	for i := range busy {
		w.holders[w.nodes[i].Name] = "team/job (4)"
	}
	for range 4 {
		w.now = w.now.Add(busyPoll)
		w.reportFacts()
		w.settle()
	}
	made := 0
	for _, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelStage] == v1alpha1.StagePodGroup {
			made++
			if node := plannedNode(pod); w.holders[node] != "" {
				t.Errorf("a pod for node %s, whose GPUs others hold", node)
			}
		}
	}
	if made != members-busy {
		t.Errorf("%d pods for %d free members; span %+v", made, members-busy, w.group.Status.Span)
	}
}

// TestAwaitingOthersGoesByOneClock: how long the stage waits for other runs does not depend on the nodes' clocks.
func TestAwaitingOthersGoesByOneClock(t *testing.T) {
	for _, off := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
		group := groupSpan(3, nil)
		w := newWorld(group, testNodes(3))
		w.settle()
		w.reportFacts()
		w.settle()
		for i := range w.nodes {
			startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
			cn := w.commNode(w.nodes[i].Name)
			cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now.Add(off))
			endPod(w.podOn(w.nodes[i].Name), 0, w.now)
		}
		w.others = []corev1.Pod{runPodOfOther(w.nodes[2].Name)}
		w.settle()
		limit := time.Duration(groupPodSeconds(&group.Spec)) * time.Second
		for _, step := range []time.Duration{limit - time.Second, time.Second} {
			if span := w.group.Status.Span; span == nil || span.Stage != v1alpha1.StageNodes || !strings.Contains(span.Message, "team/h") {
				t.Fatalf("nodes' clocks off by %s: %+v", off, span)
			}
			w.now = w.now.Add(step)
			w.reportFacts()
			w.settle()
		}
		if span := w.group.Status.Span; span.Stage != v1alpha1.StageEnded || span.Reason != v1alpha1.ReasonNodeBusy {
			t.Errorf("nodes' clocks off by %s, after %s: %+v", off, limit, span)
		}
	}
}
