package controllers

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// runPodOfOther is a run pod of group team/h for the node, not yet placed.
func runPodOfOther(node string) corev1.Pod {
	other := testkit.Group()
	other.Name, other.UID = "h", "uid-h"
	pod := runpod.ForNode(other, &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{NodeName: node}}, "1-1",
		testConfig.pods())
	pod.Status.Phase = corev1.PodPending
	return *pod
}

// TestOneRunANode: while another group's run is on a node, this one's waits and says for whom, at most for both
// deadlines.
func TestOneRunANode(t *testing.T) {
	for name, set := range map[string]func(w *world, node string){
		"a pod without a place yet": func(w *world, node string) { w.others = []corev1.Pod{runPodOfOther(node)} },
		"a pod that runs": func(w *world, node string) {
			pod := runPodOfOther("elsewhere")
			startPod(&pod, node, w.now)
			w.others = []corev1.Pod{pod}
		},
		"a claim": func(w *world, node string) {
			w.claims = []sharing.Claim{{Group: "team/h", UID: "uid-h", Nodes: []string{node}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testkit.Group(), testkit.Nodes(2))
			taken, free := w.nodes[0].Name, w.nodes[1].Name
			set(w, taken)
			w.settle()
			w.reportFacts()
			w.settle()
			if w.podOn(taken) != nil || w.podOn(free) == nil {
				t.Fatalf("pods %v", slices.Sorted(maps.Keys(w.pods)))
			}
			if a := w.commTask(taken).Spec.Run; a.Waiting == nil || !strings.Contains(a.Waiting.Message, "team/h") {
				t.Fatalf("waiting %+v", a.Waiting)
			}
			w.now = w.now.Add(2399 * time.Second) // 600 s and 1800 s
			w.reportFacts()
			w.settle()
			if a := w.commTask(taken).Spec.Run; a.Closed != nil || a.Waiting == nil {
				t.Fatalf("given up too early: %+v", a.Closed)
			}
			w.now = w.now.Add(time.Second)
			w.settle()
			if a := w.commTask(taken).Spec.Run; a.Closed == nil || a.Closed.Reason != v1alpha1.ReasonNodeBusy {
				t.Fatalf("after the deadline: %+v", a)
			}
		})
	}
}

// TestPodsThatBarNobody: pods that are over, that Kueue holds back, or that sit on a node that does not answer.
func TestPodsThatBarNobody(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"over": func(p *corev1.Pod) { endPod(p, 0, testkit.Now) },
		"queued": func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		},
		"stuck": func(p *corev1.Pod) { p.DeletionTimestamp = decision.Stamp(testkit.Now.Add(-time.Hour)) },
	} {
		pod := runPodOfOther("a")
		change(&pod)
		if e := sharing.Of(testkit.Group(), []corev1.Pod{pod}, nil, testkit.Now); e.OnNode("a") != "" {
			t.Errorf("%s: %q", name, e.OnNode("a"))
		}
	}
}

// TestClaimOrder: of two groups that claim a node exactly one is ahead, whoever looks: the earlier, then the lesser
// UID; and a group that has its nodes lets nobody go first.
func TestClaimOrder(t *testing.T) {
	group := func(uid types.UID, stage v1alpha1.RunStage, since time.Time) *state.Group {
		g := testkit.Group()
		g.UID = uid
		g.Status.Run = &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseRunning}
		g.Status.Span = &v1alpha1.SpanStatus{RunID: "1-1", Stage: stage, StageStartTime: decision.Stamp(since)}
		return g
	}
	const waiting, working = v1alpha1.StageWaitingForMembers, v1alpha1.StageGroup
	later := testkit.Now.Add(time.Minute)
	for name, tc := range map[string]struct {
		first, second *state.Group
	}{
		"earlier":              {group("b", waiting, testkit.Now), group("a", waiting, later)},
		"at once":              {group("a", waiting, testkit.Now), group("b", waiting, testkit.Now)},
		"has its nodes":        {group("b", working, later), group("a", waiting, testkit.Now)},
		"a stage and no stage": {group("b", waiting, later), group("a", v1alpha1.StageNodes, testkit.Now)},
	} {
		sees := func(own, other *state.Group) bool {
			s := &Snapshot{Now: testkit.Now, Group: own}
			if c := sharing.ClaimOf(other); c != nil {
				c.Nodes = []string{"n"}
				s.Claims = append(s.Claims, *c)
			}
			e := sharing.Of(s.Group, s.OtherRunPods, s.Claims, s.Now)
			return e.Before("n") != ""
		}
		if sees(tc.first, tc.second) || !sees(tc.second, tc.first) {
			t.Errorf("%s: the first waits: %v, the second waits: %v",
				name, sees(tc.first, tc.second), sees(tc.second, tc.first))
		}
	}
	for _, g := range []*state.Group{group("a", v1alpha1.StageEnded, testkit.Now),
		group("a", v1alpha1.StageNodes, testkit.Now), testkit.Group()} {
		if c := sharing.ClaimOf(g); c != nil {
			t.Errorf("%+v claims nodes: %+v", g.Status.Span, c)
		}
	}
}

// TestGroupStageAwaitsOthers: the stage begins once no other run is on any of its nodes; it makes no pod at all while a
// group that is ahead has one of them; and both waits end.
func TestGroupStageAwaitsOthers(t *testing.T) {
	group := testkit.SpanGroup(3, nil)
	w := newWorld(group, testkit.Nodes(3))
	w.settle()
	w.reportFacts()
	w.settle()
	for i := range w.nodes {
		startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
		ct := w.commTask(w.nodes[i].Name)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
		endPod(w.podOn(w.nodes[i].Name), 0, w.now)
	}
	w.others = []corev1.Pod{runPodOfOther(w.nodes[2].Name)}
	w.settle()
	span := w.group.Status.Span
	if span == nil || span.Stage != v1alpha1.StageNodes || !strings.Contains(span.Message, "team/h") ||
		w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning {
		t.Fatalf("while another run is there: %+v", span)
	}
	// It ends, and the stage begins; then a group comes that was ahead by the API's clock.
	w.others = nil
	w.step()
	if span = w.group.Status.Span; span.Stage != v1alpha1.StageWaitingForMembers || span.Message != "" {
		t.Fatalf("once it has ended: %+v", span)
	}
	w.claims = []sharing.Claim{{Group: "team/h", UID: "uid-a", Since: span.StageStartTime.Add(-time.Second),
		Nodes: []string{w.nodes[1].Name}}}
	w.pods = map[string]*corev1.Pod{}
	w.settle()
	if len(w.pods) != 0 {
		t.Fatalf("pods %v beside the other group's", slices.Sorted(maps.Keys(w.pods)))
	}
	if got := w.decided.WakeAt; got.IsZero() || got.After(w.now.Add(sharing.BusyPoll)) {
		t.Errorf("looks again at %s, now is %s", got, w.now)
	}
	w.claims[0].Since = span.StageStartTime.Add(time.Second)
	w.settle()
	if len(w.pods) != 3 {
		t.Fatalf("pods %v though the other came later", slices.Sorted(maps.Keys(w.pods)))
	}
	w.pods = map[string]*corev1.Pod{}
	w.claims[0].Since = span.StageStartTime.Add(-time.Second)
	w.now = w.now.Add(decision.Seconds(group.Spec.Run.MembersDeadlineSeconds))
	w.reportFacts()
	w.settle()
	if span = w.group.Status.Span; span.Stage != v1alpha1.StageEnded || span.Verdict != v1alpha1.VerdictSkipped ||
		span.Reason != v1alpha1.ReasonNodeBusy || len(span.Culprits) > 0 {
		t.Errorf("after the members' deadline: %+v", span)
	}
}

// TestFreeMembersAreFoundBehindBusyOnes: where others hold the GPUs of more members than one reconcile looks at, the
// free ones behind them are looked at too and get their pods.
func TestFreeMembersAreFoundBehindBusyOnes(t *testing.T) {
	const members, busy = sharing.MaxLooks + 40, sharing.MaxLooks + 10
	group := testkit.SpanGroup(members, func(g *state.Group) {
		g.Spec.RanksPerNode, g.Spec.Run.Nodes, g.Spec.DDA.Mode = 4, v1alpha1.NodeUseIdle, v1alpha1.FeatureDisabled
	})
	w := newWorld(group, testkit.Nodes(members))
	for alone := 0; alone < members; w.now = w.now.Add(time.Second) {
		if w.now.Sub(testkit.Now) > time.Minute {
			t.Fatalf("%d nodes passed alone; run %+v", alone, w.group.Status.Run)
		}
		w.settle()
		w.reportFacts()
		for i := range w.nodes {
			if pod, ct := w.podOn(w.nodes[i].Name), w.commTask(w.nodes[i].Name); pod != nil && podstate.Alive(pod) {
				startPod(pod, w.nodes[i].Name, w.now)
				ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
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
		w.now = w.now.Add(sharing.BusyPoll)
		w.reportFacts()
		w.settle()
	}
	made := 0
	for _, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelStage] == v1alpha1.StagePodGroup {
			made++
			if node := sharing.PlannedNode(pod); w.holders[node] != "" {
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
		group := testkit.SpanGroup(3, nil)
		w := newWorld(group, testkit.Nodes(3))
		w.settle()
		w.reportFacts()
		w.settle()
		for i := range w.nodes {
			startPod(w.podOn(w.nodes[i].Name), w.nodes[i].Name, w.now)
			ct := w.commTask(w.nodes[i].Name)
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now.Add(off))
			endPod(w.podOn(w.nodes[i].Name), 0, w.now)
		}
		w.others = []corev1.Pod{runPodOfOther(w.nodes[2].Name)}
		w.settle()
		limit := time.Duration(stage.PodSeconds(&group.Spec)) * time.Second
		for _, step := range []time.Duration{limit - time.Second, time.Second} {
			if span := w.group.Status.Span; span == nil || span.Stage != v1alpha1.StageNodes ||
				!strings.Contains(span.Message, "team/h") {
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

// TestOnlyPlannedPodsCount: a pod that is on no node keeps it from other groups only where a CommTask of its own
// namespace and group controls it. Anybody may put the label on pods of their own.
func TestOnlyPlannedPodsCount(t *testing.T) {
	w := &groupWorld{world: newWorld(testkit.Group(), testkit.Nodes(1))}
	r, cache := managerOf(t, w)
	ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: "o.n", UID: "uid-ct"},
		Spec: v1alpha1.CommTaskSpec{NodeName: "n", Group: v1alpha1.GroupReference{Name: "o", UID: "uid-o"}}}
	if err := cache.api.Create(t.Context(), ct); err != nil {
		t.Fatal(err)
	}
	pod := func(name string, change func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: name,
			Labels: map[string]string{v1alpha1.LabelRole: v1alpha1.RoleRun, v1alpha1.LabelGroupUID: "uid-o"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommTask",
				Name: ct.Name, UID: ct.UID, Controller: ptr.To(true)}}}}
		change(p)
		if err := cache.api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	pod("planned", func(*corev1.Pod) {})
	pod("on-a-node", func(p *corev1.Pod) { p.OwnerReferences, p.Spec.NodeName = nil, "n" })
	pod("without-owner", func(p *corev1.Pod) { p.OwnerReferences = nil })
	pod("of-another-uid", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" })
	pod("elsewhere", func(p *corev1.Pod) { p.Namespace = "evil" })
	pod("of-another-group", func(p *corev1.Pod) { p.Labels[v1alpha1.LabelGroupUID] = "x" })
	s := &Snapshot{Group: w.group}
	if err := r.gatherOthers(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range s.OtherRunPods {
		got = append(got, s.OtherRunPods[i].Name)
	}
	slices.Sort(got)
	if want := []string{"on-a-node", "planned"}; !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
