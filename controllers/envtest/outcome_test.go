package envtest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestConfigMapOfSomeoneElse(t *testing.T) {
	w := newWorld(t, 1, nil)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "g-rccl-settings", Namespace: w.ns},
		Data: map[string]string{"mine": "1"}}
	w.must(admin.Create(w.ctx, foreign))
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonConfigMapNotOwned, "publish.configMapName")
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	if cm := w.configMap(); cm.Data["mine"] != "1" || len(cm.Data) != 1 {
		t.Errorf("the foreign ConfigMap was changed: %v", cm.Data)
	}
	w.must(admin.Delete(w.ctx, foreign))
	w.settle()
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
}

func TestSimulatedResultsArePublishedOnlyWhenAllowed(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.settle()
	w.reportFacts(w.nodes[0], func(f *v1alpha1.NodeFacts) { f.Origin = v1alpha1.OriginSimulated })
	w.settle()
	w.finish(w.nodes[0], 300_000, nil)
	w.wantCondition(v1alpha1.ConditionSimulated, yes, v1alpha1.ReasonSimulated)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonSimulatedResults, "publish.simulated")
	if w.configMap() != nil {
		t.Fatal("published")
	}
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Publish.Simulated = v1alpha1.SimulatedAllow })
	w.settle()
	if cm := w.configMap(); cm == nil || cm.Annotations[v1alpha1.AnnotationOrigin] != "Simulated" {
		t.Errorf("published: %+v", cm)
	}
}

func TestROCmMismatchNamesTheOddNode(t *testing.T) {
	w := newWorld(t, 4, nil)
	w.settle()
	w.reportAllFacts()
	w.reportFacts(w.nodes[2], func(f *v1alpha1.NodeFacts) { f.ROCm.Version = "6.4.1" })
	w.settle()
	for _, node := range w.nodes {
		w.finish(node, 300_000, nil)
	}
	w.wantCondition(v1alpha1.ConditionCompatible, no, v1alpha1.ReasonMixedROCmVersions, w.nodes[2], "6.4.1",
		"7.0.2 on 3 nodes")
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonMixedROCmVersions)
	c := w.group.Status.Culprits
	if len(c) != 1 || c[0].Kind != "Node" || c[0].Name != w.nodes[2] || !strings.Contains(c[0].Message, "7.0.2") ||
		!strings.Contains(c[0].Message, "6.4.1") {
		t.Errorf("culprits %+v", c)
	}
}

func TestSlowLinkKeepsItsCulprit(t *testing.T) {
	w := newWorld(t, 4, func(g *v1alpha1.CommGroup) {
		g.Spec.Gating.Mode, g.Spec.Gating.MaxPercent = v1alpha1.GatingDryRun, ptr.To(int32(50))
	})
	w.running()
	for i, node := range w.nodes {
		var change func(*v1alpha1.NodeRunStatus)
		busBWMBps := int64(300_000)
		switch i {
		case 1:
			change = func(r *v1alpha1.NodeRunStatus) {
				r.Verdict, r.Reason, r.Message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink, "slow link"
				r.Culprits = []v1alpha1.Culprit{{Node: node, Kind: "Link", Name: "0000:05:00.0<->0000:26:00.0",
					Reason: v1alpha1.ReasonSlowLink, Message: "slow"}}
			}
			busBWMBps = 100_000
		case 3:
			busBWMBps = 150_000
		}
		w.finish(node, busBWMBps, change)
	}
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonSlowLink, w.nodes[1])
	c := w.group.Status.Culprits
	if len(c) != 2 || c[0].Kind != "Link" || c[1].Reason != v1alpha1.ReasonSlowNode || c[1].Node != w.nodes[3] {
		t.Errorf("culprits %+v", c)
	}
	if got := w.group.Status.WouldGate; !slices.Equal(got, []string{w.nodes[1], w.nodes[3]}) {
		t.Errorf("wouldGate %v", got)
	}
	if m := w.group.Status.Members; m.Passed != 2 || m.Failed != 2 || m.Summary != "2/4" {
		t.Errorf("members %+v", m)
	}
}

// TestChangeThatNeedsNoRun: what only publishes or times a run costs no GPU time, in the middle of a run and
// after it; the results count for the new generation.
func TestChangeThatNeedsNoRun(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Run.Schedule = "@monthly" })
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-1" || run.Phase != v1alpha1.RunPhaseRunning || run.Generation != 2 {
		t.Fatalf("in the middle of a run: %+v", run)
	}
	w.finish(w.nodes[0], 300_000, nil)
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, "1-1")
	w.update(func(g *v1alpha1.CommGroup) {
		g.Spec.Publish.Mode = v1alpha1.PublishOff
		g.Spec.Gating.Mode = v1alpha1.GatingDryRun
		g.Spec.Run.Schedule = "@yearly"
	})
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-1" || run.Phase != v1alpha1.RunPhaseFinished || run.Generation != 3 {
		t.Fatalf("after the run: %+v", run)
	}
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, "1-1")
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonPublishOff)
	for _, c := range w.group.Status.Conditions {
		if c.ObservedGeneration != 3 {
			t.Errorf("condition %s speaks of generation %d, expected 3", c.Type, c.ObservedGeneration)
		}
	}
	if got := w.commTask(w.nodes[0]).Spec.Run; got == nil || got.ID != "1-1" || got.Generation != 1 {
		t.Errorf("the assignment changed: %+v", got)
	}
}
