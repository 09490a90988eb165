package controllers

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

func TestOwnerIsNamed(t *testing.T) {
	ref := func(kind, version, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, APIVersion: version, Name: name, UID: "another"}}
	}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		labels map[string]string
		words  string
	}{
		"another group": {ref("CommGroup", "rcclx.io/v1alpha1", "other"), nil,
			"belongs to CommGroup other, which publishes under the same name"},
		"a group of a like": {ref("CommGroup", "example.com/v1", "other"), nil,
			"belongs to CommGroup other; it is left alone"},
		"a Deployment": {ref("Deployment", "apps/v1", "web"), nil, "belongs to Deployment web"},
		"our labels, no owner": {nil, map[string]string{objects.ManagedByLabel: objects.ManagedBy},
			"has this operator's labels, but no owner"},
		"nobody": {nil, nil, "does not belong to this CommGroup"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testkit.Group(), testkit.Nodes(1))
			w.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "g-rccl-settings", Namespace: "team",
				OwnerReferences: tc.owners, Labels: tc.labels}, Data: map[string]string{"a": "b"}}
			w.settle()
			w.reportFacts()
			w.runAll(300_000)
			w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionFalse, v1alpha1.ReasonConfigMapNotOwned,
				tc.words, "publish.configMapName")
			if w.configMap.Data["a"] != "b" || len(w.configMap.Data) != 1 || w.group.Status.Published != nil {
				t.Errorf("touched: %+v", w.configMap)
			}
			if wake := w.decided.WakeAt; wake.IsZero() || wake.Sub(w.now) > 5*time.Minute {
				t.Errorf("looks again at %v, that is in %v", wake, wake.Sub(w.now))
			}
		})
	}
}

func samePublished(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && maps.Equal(a.Annotations, b.Annotations)
}

// TestChangedByHand: while a run proves the settings they are put back and an event says so; when none does, nothing
// can be put back, and the ConfigMap is not called proven any more.
func TestChangedByHand(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	good := w.configMap.DeepCopy()
	restored := func() int { return w.count(v1alpha1.ReasonSettingsRestored) }
	for i, change := range []func(cm *corev1.ConfigMap){
		func(cm *corev1.ConfigMap) { cm.Data["NCCL_DEBUG"] = "TRACE" },
		func(cm *corev1.ConfigMap) { cm.Data["rccl.conf"] += "NCCL_DEBUG=TRACE\n" },
		func(cm *corev1.ConfigMap) { delete(cm.Data, "HSA_NO_SCRATCH_RECLAIM") },
		func(cm *corev1.ConfigMap) { cm.Data = nil },
	} {
		w.configMap = good.DeepCopy()
		change(w.configMap)
		w.settle()
		if !samePublished(w.configMap, good) || restored() != i+1 {
			t.Errorf("change %d: %d events, %v", i, restored(), w.configMap.Data)
		}
	}
	w.configMap = good.DeepCopy()
	delete(w.configMap.Annotations, v1alpha1.AnnotationRun)
	w.settle()
	if !samePublished(w.configMap, good) || restored() != 4 {
		t.Errorf("a lost annotation is put back without an event: %d, %v", restored(), w.configMap.Annotations)
	}

	w.configMap.Data["HSA_NO_SCRATCH_RECLAIM"] = "0"
	w.request("now")
	w.step()
	w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionFalse, v1alpha1.ReasonConfigMapChanged,
		"put back once a run passes")
	w.runAll(300_000)
	w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionTrue, v1alpha1.ReasonPublished, "1-2")
	if w.configMap.Data["HSA_NO_SCRATCH_RECLAIM"] != "1" || restored() != 5 {
		t.Errorf("%d events, %v", restored(), w.configMap.Data)
	}
}

func TestInvalidNameIsNeverLookedUp(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.group.Spec.Publish.ConfigMapName = "Not_A_Name"
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	w.want(t, v1alpha1.ConditionSettingsPublished, metav1.ConditionFalse,
		v1alpha1.ReasonConfigMapNameInvalid, `"Not_A_Name"`)
	if w.configMap != nil || w.decided.NeedConfigMapLookup {
		t.Error("written or looked up")
	}
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// TestRefusedConfigMap: a ConfigMap that was not written is not called published, nor does an event say so.
func TestRefusedConfigMap(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	published := metav1.Condition{Type: v1alpha1.ConditionSettingsPublished, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonPublished, Message: "new"}
	for name, tc := range map[string]struct {
		err    error
		before []metav1.Condition
		status metav1.ConditionStatus
		reason string
		events int
	}{
		"quota": {apierrors.NewForbidden(resource, "x", errors.New("exceeded quota")), nil, metav1.ConditionFalse,
			v1alpha1.ReasonConfigMapNotWritten, 1},
		"quota, told already": {apierrors.NewForbidden(resource, "x", errors.New("exceeded quota")),
			[]metav1.Condition{{Type: v1alpha1.ConditionSettingsPublished,
				Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapNotWritten}},
			metav1.ConditionFalse, v1alpha1.ReasonConfigMapNotWritten, 0},
		"another came first": {apierrors.NewAlreadyExists(resource, "x"), nil, metav1.ConditionUnknown,
			v1alpha1.ReasonNotProven, 0},
		"another came first again": {apierrors.NewConflict(resource, "x", errors.New("changed")),
			[]metav1.Condition{{Type: v1alpha1.ConditionSettingsPublished, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonNotProven, Message: "old"}}, metav1.ConditionFalse, v1alpha1.ReasonNotProven, 0},
	} {
		t.Run(name, func(t *testing.T) {
			group := testkit.Group()
			group.Status.Conditions = tc.before
			d := &Decision{ConfigMap: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
				Events: []decision.Event{{Reason: v1alpha1.ReasonPublished,
					Action: "Set" + v1alpha1.ConditionSettingsPublished},
					{Reason: v1alpha1.ReasonReady, Action: "SetReady"}}}
			d.Status.Published = &v1alpha1.PublishedStatus{ConfigMapName: "x"}
			d.Status.Conditions = []metav1.Condition{published}
			configMapRefused(d, group, now, tc.err)
			c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionSettingsPublished)
			if c.Status != tc.status || c.Reason != tc.reason || d.Status.Published != nil ||
				strings.Contains(c.Message, "new") {
				t.Errorf("%+v, published %+v", c, d.Status.Published)
			}
			if len(d.Events) != 1+tc.events ||
				!slices.ContainsFunc(d.Events, func(e decision.Event) bool { return e.Action == "SetReady" }) {
				t.Errorf("events %+v", d.Events)
			}
		})
	}
}

// TestFormerNameStays: a group that may not publish under a new name keeps what it has under the old one.
func TestFormerNameStays(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	published := w.group.Status.Published.DeepCopy()
	w.group.Spec.Publish.ConfigMapName = "taken"
	w.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "taken", Namespace: "team"}}
	s := w.snapshot()
	s.OwnedConfigMaps = []string{published.ConfigMapName}
	d := Decide(s, testConfig)
	if p := d.Status.Published; p == nil || p.ConfigMapName != published.ConfigMapName ||
		len(d.DeleteConfigMaps) != 0 || d.ConfigMap != nil {
		t.Errorf("published %+v, deleted %v", p, d.DeleteConfigMaps)
	}
	s.OwnedConfigMaps = nil
	if d = Decide(s, testConfig); d.Status.Published != nil {
		t.Errorf("published %+v although it is gone", d.Status.Published)
	}
}

// TestFormerNameStaysWhileNothingIsProven: a name that is changed after the results ceased to count is told beside what
// jobs still use.
func TestFormerNameStaysWhileNothingIsProven(t *testing.T) {
	w := passedOnce(t, 2, func(*state.Group) {})
	former := w.group.Status.Published.ConfigMapName
	w.rebooted("n00001", "boot-2")
	w.group.Spec.Run.State = v1alpha1.RunSuspended
	w.group.Generation++
	w.settle()
	w.group.Spec.Publish.ConfigMapName = "other"
	w.group.Generation++
	s := w.snapshot()
	s.ConfigMap, s.OwnedConfigMaps = nil, []string{former} // as gather reads it
	d := Decide(s, testConfig)
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionSettingsPublished)
	if p := d.Status.Published; p == nil || p.ConfigMapName != former || len(d.DeleteConfigMaps) > 0 ||
		c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "ConfigMap "+former) {
		t.Errorf("published %+v, deleted %v, %+v", p, d.DeleteConfigMaps, c)
	}
}
