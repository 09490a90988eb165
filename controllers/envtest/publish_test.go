package envtest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// second is another CommGroup of the same namespace, with nodes of its own; the world's group keeps the first ones.
func (w *world) second(name string, nodes []string, change func(*v1alpha1.CommGroup)) *world {
	w.Helper()
	other := *w
	other.nodes = nodes
	other.group = &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns},
		Spec: v1alpha1.CommGroupSpec{
			Members: v1alpha1.MembersSpec{NodeNames: nodes},
			Benchmark: v1alpha1.BenchmarkSpec{Collectives: []v1alpha1.Collective{v1alpha1.AllReduce},
				MinSizeBytes: 1024, MaxSizeBytes: 1 << 20},
		},
	}
	change(other.group)
	w.must(admin.Create(w.ctx, other.group))
	w.Cleanup(func() { other.cleanUp() })
	return &other
}

// TestTwoGroupsOneConfigMap: who comes second overwrites nothing and is told whose it is; once the first lets go of the
// name, the second publishes.
func TestTwoGroupsOneConfigMap(t *testing.T) {
	w := newWorld(t, 0, nil)
	for _, name := range []string{"-a", "-b"} {
		w.addNode(w.ns+name, 8)
	}
	w.update(func(g *v1alpha1.CommGroup) {
		g.Spec.Members = v1alpha1.MembersSpec{NodeNames: []string{w.ns + "-a"}}
	})
	w.nodes = []string{w.ns + "-a"}
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
	before := w.configMap()

	h := w.second("h", []string{w.ns + "-b"}, func(g *v1alpha1.CommGroup) {
		g.Spec.Publish.ConfigMapName = "g-rccl-settings"
	})
	h.running()
	h.finish(h.nodes[0], 300_000, func(r *v1alpha1.NodeRunStatus) {
		r.Environment = append(r.Environment, v1alpha1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"})
	})
	h.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonConfigMapNotOwned,
		"belongs to CommGroup g, which publishes under the same name", "publish.configMapName")
	if h.group.Status.Published != nil {
		t.Errorf("published %+v", h.group.Status.Published)
	}
	if after := w.configMap(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the other group's ConfigMap was written: %v", after.Data)
	}
	w.settle()
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)

	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Publish.ConfigMapName = "mine" })
	w.settle()
	result := h.settle()
	if result.RequeueAfter <= 0 && w.configMap() == nil {
		t.Error("the second group never looks again")
	}
	h.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
	cm := w.configMap()
	if cm == nil || cm.Data["NCCL_DEBUG"] != "INFO" || len(cm.OwnerReferences) != 1 ||
		cm.OwnerReferences[0].Name != "h" {
		t.Errorf("%+v", cm)
	}
}

// TestConfigMapWithOurLabelsAndNoOwner: labels alone are no title.
func TestConfigMapWithOurLabelsAndNoOwner(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	cm := w.configMap()
	cm.OwnerReferences, cm.Data = nil, map[string]string{"NCCL_DEBUG": "TRACE"}
	w.must(admin.Update(w.ctx, cm))
	result := w.settle()
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonConfigMapNotOwned, "labels, but no owner")
	if got := w.configMap().Data; len(got) != 1 || result.RequeueAfter <= 0 {
		t.Errorf("%v; looks again in %v", got, result.RequeueAfter)
	}
}

// TestConfigMapChangedByHand: put back, and told.
func TestConfigMapChangedByHand(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	w.finish(w.nodes[0], 300_000, nil)
	good := w.configMap()
	w.sentEvents()
	cm := good.DeepCopy()
	cm.Data["NCCL_DEBUG"] = "TRACE"
	w.must(admin.Update(w.ctx, cm))
	w.settle()
	if got := w.configMap(); got.Data["NCCL_DEBUG"] != "" || got.Data["rccl.conf"] != good.Data["rccl.conf"] {
		t.Errorf("not put back: %v", got.Data)
	}
	if events := w.sentEvents(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.Contains(e, "Warning "+v1alpha1.ReasonSettingsRestored)
	}) {
		t.Errorf("events %q", events)
	}

	// One that nobody may change any more cannot be put right: it is told, and not called published.
	cm = w.configMap()
	cm.Data["NCCL_DEBUG"], cm.Immutable = "TRACE", ptr.To(true)
	w.must(admin.Update(w.ctx, cm))
	w.reconcileRefused()
	w.refresh()
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonConfigMapNotWritten, "immutable")
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	w.must(admin.Delete(w.ctx, cm))
	w.settle()
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
}

// TestPublishedNameIsChecked: a name that no ConfigMap can have is refused with the CommGroup.
func TestPublishedNameIsChecked(t *testing.T) {
	for name, valid := range map[string]bool{"": true, "settings": true, "a.b-c": true, "Settings": false, "a_b": false,
		"-a": false, "a.": false, "a..b": false} {
		g := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{GenerateName: "name-", Namespace: "default"},
			Spec: v1alpha1.CommGroupSpec{Members: v1alpha1.MembersSpec{NodeNames: []string{"nobody"}},
				Publish: v1alpha1.PublishSpec{ConfigMapName: name}}}
		err := admin.Create(t.Context(), g, client.DryRunAll)
		if (err == nil) != valid ||
			err != nil && !strings.Contains(err.Error(), "publish.configMapName is no name that a ConfigMap can have") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAdviceReachesTheAPI: what the numbers say passes the API's own checks, and the published settings follow it.
func TestAdviceReachesTheAPI(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	for _, node := range w.nodes {
		w.finish(node, 300_000, func(r *v1alpha1.NodeRunStatus) {
			r.Environment = []v1alpha1.EnvVar{{Name: "RCCL_DDA_NRANKS", Value: "8"},
				{Name: "RCCL_ENABLE_DDA_ALL_REDUCE", Value: "1"}}
			for i := range r.Results {
				s := &r.Results[i]
				for k, size := range s.SizeBytes {
					s.NoisePercent = append(s.NoisePercent, 1)
					if s.Variant == v1alpha1.VariantDDA {
						s.LatencyNanoseconds[k] = 15_000
						if size > 256<<10 {
							s.LatencyNanoseconds[k] = 25_000
						}
					}
				}
			}
		})
	}
	advice := w.joined.Status.Advice
	if len(advice) != 1 || advice[0].State != v1alpha1.WorthMixed ||
		advice[0].Recommend != "dda.allReduceTreeMaxBytes=262144" || len(advice[0].Bands) != 2 {
		t.Fatalf("%+v", advice)
	}
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonPublished)
	if got := w.configMap().Data; got["RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES"] != "262144" ||
		got["RCCL_DDA_NRANKS"] != "8" {
		t.Errorf("%v", got)
	}
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Publish.Choice = v1alpha1.PublishAsRequested })
	w.settle()
	if got := w.configMap().Data; got["RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES"] != "" || got["RCCL_DDA_NRANKS"] != "8" {
		t.Errorf("as requested: %v", got)
	}
	if run := w.group.Status.Run; run.ID != "1-1" {
		t.Errorf("publish.choice started run %s", run.ID)
	}
	var all corev1.ConfigMapList
	w.must(admin.List(w.ctx, &all, client.InNamespace(w.ns),
		client.MatchingLabels{v1alpha1.LabelGroupUID: string(w.group.UID)}))
	if len(all.Items) != 1 {
		t.Errorf("%d ConfigMaps of settings", len(all.Items))
	}
}

// TestWithdrawnAcceptance: who no longer accepts a loss has it out of what jobs take, also under a former name and
// though no run passes.
func TestWithdrawnAcceptance(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) {
		g.Spec.LowPrecision = v1alpha1.LowPrecisionSpec{Mode: v1alpha1.FeaturePreferred,
			Collectives: []string{"AllToAll"}}
		g.Spec.Publish.Choice, g.Spec.Publish.AcceptedLosses = v1alpha1.PublishAsRequested,
			[]v1alpha1.AcceptedLoss{v1alpha1.AcceptOverflow}
	})
	w.running()
	w.finish(w.nodes[0], 300_000, func(r *v1alpha1.NodeRunStatus) {
		r.Settings = append(r.Settings, v1alpha1.SettingStatus{Name: "lowPrecision.AllToAll",
			Requested: "Preferred", Effective: v1alpha1.EffectivePartial,
			Reason: v1alpha1.SettingReasonBelowThreshold, Verified: v1alpha1.VerifiedConfirmed,
			Usable: v1alpha1.ResultsNotUsable, Warnings: []string{v1alpha1.WarningOverflow}})
	})
	w.wantCondition(v1alpha1.ConditionSettingsPublished, yes, v1alpha1.ReasonResultsNotUsable)
	if p := w.group.Status.Published; len(p.LowPrecision) != 1 || p.LowPrecision[0].Collective != v1alpha1.AllToAll ||
		!slices.Equal(p.LowPrecision[0].Losses, []string{v1alpha1.WarningOverflow}) {
		t.Fatalf("published %+v", p)
	}
	w.again("2")
	w.settle()
	w.finish(w.nodes[0], 300_000, func(r *v1alpha1.NodeRunStatus) {
		r.Verdict, r.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonWrongData
	})
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonNotProven, "still holds")
	if cm := w.configMap(); cm == nil || cm.Data["RCCL_LOW_PRECISION_ENABLE_ALLTOALL"] != "1" {
		t.Fatalf("an accepted loss does not stay published: %+v", cm)
	}
	former := w.configMap().Name
	w.sentEvents()
	w.update(func(g *v1alpha1.CommGroup) {
		g.Spec.Publish.ConfigMapName, g.Spec.Publish.AcceptedLosses = "other", nil
	})
	w.settle()
	var cm corev1.ConfigMap
	w.must(admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: former}, &cm))
	if p := w.group.Status.Published; p == nil || p.ConfigMapName != former || len(p.LowPrecision) > 0 ||
		cm.Data["RCCL_LOW_PRECISION_ENABLE_ALLTOALL"] != "0" {
		t.Errorf("still published: %+v, %+v", p, cm.Data)
	}
	if events := w.sentEvents(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.Contains(e, v1alpha1.ReasonVariableNotPublishable)
	}) {
		t.Errorf("events %q", events)
	}
}
