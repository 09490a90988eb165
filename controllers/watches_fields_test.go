package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestChangesOfAGroupThatCount: each of these alone wakes the controller, also those that it has written itself: its
// next step rests on the written status.
func TestChangesOfAGroupThatCount(t *testing.T) {
	group := func() *state.Group {
		g := testkit.Group()
		g.Status.Run = &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseRunning}
		g.Status.Span = &v1alpha1.SpanStatus{RunID: "1-1", Stage: v1alpha1.StageGroup, Present: 4,
			Tests: []v1alpha1.SpanTest{{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1}}}
		return g
	}
	now := metav1.NewTime(testkit.Now)
	for name, tc := range map[string]struct {
		change func(*state.Group)
		want   bool
	}{
		"spec":             {func(g *state.Group) { g.Generation++ }, true},
		"deletion":         {func(g *state.Group) { g.DeletionTimestamp = &now }, true},
		"run starts":       {func(g *state.Group) { g.Status.Run.ID = "1-2" }, true},
		"run ends":         {func(g *state.Group) { g.Status.Run.Phase = v1alpha1.RunPhaseFinished }, true},
		"run is gone":      {func(g *state.Group) { g.Status.Run = nil }, true},
		"stage goes on":    {func(g *state.Group) { g.Status.Span.Stage = v1alpha1.StageMesh }, true},
		"stage is gone":    {func(g *state.Group) { g.Status.Span = nil }, true},
		"member is let go": {func(g *state.Group) { g.Status.Span.Present-- }, true},
		"test ends":        {func(g *state.Group) { g.Status.Span.Tests[0].Verdict = v1alpha1.VerdictPass }, true},
		"one ends, another opens": {func(g *state.Group) {
			g.Status.Span.Tests = []v1alpha1.SpanTest{{ID: "group-1", Kind: v1alpha1.TestGroup, Round: 1,
				Verdict: v1alpha1.VerdictFail}, {ID: "localize-1-1", Kind: v1alpha1.TestSearch, Round: 1, Index: 1}}
		}, true},
		"counts":     {func(g *state.Group) { g.Status.Members.Passed++ }, false},
		"conditions": {func(g *state.Group) { g.Status.Conditions = []metav1.Condition{{Type: cReady}} }, false},
		"labels":     {func(g *state.Group) { g.Labels = map[string]string{"a": "b"} }, false},
	} {
		after := group()
		tc.change(after)
		beforeGroup, beforeRun := group().Objects()
		afterGroup, afterRun := after.Objects()
		if got := groupChanged(beforeGroup, afterGroup) ||
			afterRun != nil && commRunChanged(beforeRun, afterRun); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSuspendingARunCounts: a change of a CommRun's spec wakes its group, which it names.
func TestSuspendingARunCounts(t *testing.T) {
	before := state.NewRun(testkit.Group(), "g-1")
	after := before.DeepCopy()
	after.Spec.Suspend, after.Generation = true, 2
	if !commRunChanged(before, after) || commRunChanged(before, before.DeepCopy()) {
		t.Error("a change of spec.suspend does not count, or no change does")
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	stored, _ := testkit.Group().Objects()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
	recorder := events.NewFakeRecorder(8)
	r := New(Dependencies{Client: c, APIReader: c, Recorder: recorder})
	if woken := r.groupOfCommRun(t.Context(), after); len(woken) != 1 ||
		woken[0].NamespacedName != client.ObjectKeyFromObject(stored) {
		t.Errorf("it wakes %v", woken)
	}
	if len(recorder.Events) > 0 {
		t.Errorf("with its group there, it is told %s", <-recorder.Events)
	}
	after.Spec.GroupName = "none" // a name that no group has wakes nothing
	if woken := r.groupOfCommRun(t.Context(), after); len(woken) != 0 {
		t.Errorf("without a group it wakes %v", woken)
	}
	if len(recorder.Events) != 1 {
		t.Fatalf("without a group there are %d events, want one", len(recorder.Events))
	}
	if e := <-recorder.Events; !strings.HasPrefix(e,
		"Warning "+v1alpha1.ReasonNoCommGroup+" There is no CommGroup none in namespace") {
		t.Errorf("without a group it is told %s", e)
	}
	after.Status.ID, after.Status.Phase = "1-1", v1alpha1.RunPhaseFinished // one of a group that is being deleted
	if r.groupOfCommRun(t.Context(), after); len(recorder.Events) > 0 {
		t.Errorf("a run that is over is told %s", <-recorder.Events)
	}
}

// TestChangesOfANodeThatCount, and those of its CommTask beside reports (TestReportsThatCount).
func TestChangesOfANodeThatCount(t *testing.T) {
	now := metav1.NewTime(testkit.Now)
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"labels":    {func(n *corev1.Node) { n.Labels = map[string]string{"gpu": "no"} }, true},
		"made anew": {func(n *corev1.Node) { n.UID = "another" }, true},
		"rebooted":  {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }, true},
		"deletion":  {func(n *corev1.Node) { n.DeletionTimestamp = &now }, true},
		"allocatable": {func(n *corev1.Node) {
			n.Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "4")
		}, true},
		"capacity": {func(n *corev1.Node) { n.Status.Capacity = testkit.Resources(v1alpha1.ResourceGPU, "4") }, true},
		"heartbeat": {func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: now}}
		}, false},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
	} {
		before, after := testkit.Node("n", nil), testkit.Node("n", nil)
		tc.change(&after)
		if got := nodeChanged(&before, &after); got != tc.want {
			t.Errorf("node, %s: %v", name, got)
		}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CommTask)
		want   bool
	}{
		"spec":       {func(ct *v1alpha1.CommTask) { ct.Generation++ }, true},
		"deletion":   {func(ct *v1alpha1.CommTask) { ct.DeletionTimestamp = &now }, true},
		"labels":     {func(ct *v1alpha1.CommTask) { ct.Labels = map[string]string{"a": "b"} }, true},
		"run report": {func(ct *v1alpha1.CommTask) { ct.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1"} }, true},
		"session": {func(ct *v1alpha1.CommTask) {
			ct.Status.Session = &v1alpha1.SessionStatus{RunID: "1-1"}
		}, true},
		"annotations": {func(ct *v1alpha1.CommTask) { ct.Annotations = map[string]string{"a": "b"} }, false},
	} {
		before := &v1alpha1.CommTask{}
		after := before.DeepCopy()
		tc.change(after)
		if got := commTaskChanged(before, after); got != tc.want {
			t.Errorf("CommTask, %s: %v", name, got)
		}
	}
}

// TestNodesWakeTheirGroups: that of which they are members, and that whose mark they still carry.
func TestNodesWakeTheirGroups(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	group := testkit.Group()
	stored, _ := group.Objects()
	r := New(Dependencies{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()})
	member, stranger, marked := testkit.Node("a", nil), testkit.Node("b", map[string]string{"gpu": "no"}),
		testkit.Node("c", map[string]string{"gpu": "no"})
	marked.Annotations = map[string]string{gating.Key(string(group.UID)): "{}"}
	for node, want := range map[*corev1.Node]int{&member: 1, &stranger: 0, &marked: 1} {
		if got := r.groupsOfNode(t.Context(), node); len(got) != want {
			t.Errorf("node %s wakes %v", node.Name, got)
		}
	}
}
