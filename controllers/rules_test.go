package controllers

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestRulesOfTheGroup: what AMD and the library state of versions, for a group of three of which the second is odd.
func TestRulesOfTheGroup(t *testing.T) {
	container := func(ct *v1alpha1.CommTask, version string) {
		ct.Status.Run.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: version}
	}
	gfx950 := func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) {
		f.GPUModel, f.GFXTarget, f.Firmware = "MI355X", "gfx950", nil
	}
	for name, tc := range map[string]struct {
		spec     func(*v1alpha1.CommGroupSpec)
		all, odd func(*v1alpha1.CommTask, *v1alpha1.NodeFacts)
		status   metav1.ConditionStatus
		reason   string
		words    []string
		culprit  bool
	}{
		"container alike": {all: func(ct *v1alpha1.CommTask, _ *v1alpha1.NodeFacts) { container(ct, "7.0.2") },
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible},
		"container differs": {
			all:    func(ct *v1alpha1.CommTask, _ *v1alpha1.NodeFacts) { container(ct, "7.0.2") },
			odd:    func(ct *v1alpha1.CommTask, _ *v1alpha1.NodeFacts) { container(ct, "7.1.0") },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonMixedROCmVersions,
			words: []string{"ROCm version in the run's container", "7.1.0 on n00001"}, culprit: true},
		"container too old": {
			all:    func(ct *v1alpha1.CommTask, _ *v1alpha1.NodeFacts) { container(ct, "6.2.0") },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonROCmTooOld,
			words: []string{"n00000, n00001, n00002", "6.2.0", "6.4"}, culprit: true},
		"container not known": {
			all: func(ct *v1alpha1.CommTask, _ *v1alpha1.NodeFacts) {
				ct.Status.Run.ROCm = &v1alpha1.ROCmFacts{State: "Ambiguous", Version: "5.0"}
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible},
		"driver far from the container": {
			all: func(ct *v1alpha1.CommTask, f *v1alpha1.NodeFacts) {
				container(ct, "7.0.2")
				ct.Spec.Run.Platform, f.Driver.Version = nil, "6.7.0"
			},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible,
			words: []string{"DriverMismatch on n00000, n00001, n00002", "in the run's container"}},
		"driver far from the host": {
			odd:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.ROCm.Version = "5.7.1" },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonMixedROCmVersions,
			words: []string{"DriverMismatch on n00001", "on the host"}, culprit: true},
		"FP8 of two encodings": {
			spec: func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeaturePreferred }, odd: gfx950,
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonMixedFP8Encodings,
			words: []string{"gfx942", "gfx950", "No FP8 setting is published", "MI355X on n00001"}, culprit: true},
		"no FP8 asked for": {odd: gfx950, status: metav1.ConditionFalse,
			reason: v1alpha1.ReasonMixedModels, culprit: true},
		"firmware differs": {
			all:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.Firmware.MEC = "185" },
			odd:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.Firmware.MEC = "180" },
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible,
			words: []string{"MixedFirmware: Mixed GPU firmware", "MEC 180, SDMA 24 on n00001"}},
		"firmware on both sides of the limit": {
			odd:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.Firmware.MEC = "176" },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonMixedFirmware,
			words:   []string{"MEC firmware 176 on n00001", "177", "HSA_NO_SCRATCH_RECLAIM=1", "2 nodes have newer"},
			culprit: true},
		"firmware below the limit everywhere": {
			all:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.Firmware.MEC = "170" },
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible},
		"firmware not known": {
			odd:    func(_ *v1alpha1.CommTask, f *v1alpha1.NodeFacts) { f.Firmware = nil },
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonAllCompatible},
	} {
		t.Run(name, func(t *testing.T) {
			w := readyWorld(t, 3)
			if tc.spec != nil {
				tc.spec(&w.group.Spec)
			}
			for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
				ct := w.commTasks[name]
				ct.Spec.Run.Platform = nil // the rules, not staleness, are looked at here
				if tc.all != nil {
					tc.all(ct, w.factsOn(ct.Spec.NodeName))
				}
				if tc.odd != nil && ct.Spec.NodeName == "n00001" {
					tc.odd(ct, w.factsOn(ct.Spec.NodeName))
				}
			}
			w.step()
			w.want(t, v1alpha1.ConditionCompatible, tc.status, tc.reason, tc.words...)
			if got := slices.ContainsFunc(w.group.Status.Culprits, func(c v1alpha1.Culprit) bool {
				return c.Node == "n00001"
			}); got != tc.culprit {
				t.Errorf("culprits %+v", w.group.Status.Culprits)
			}
		})
	}
}

// TestMixedFP8IsNotPublished: each node's run proves FP8, and between the nodes it would be wrong data.
func TestMixedFP8IsNotPublished(t *testing.T) {
	for mode, want := range map[v1alpha1.FeatureMode]metav1.ConditionStatus{
		v1alpha1.FeaturePreferred: metav1.ConditionTrue, v1alpha1.FeatureRequired: metav1.ConditionFalse} {
		group := testkit.Group()
		group.Spec.LowPrecision.Mode = mode
		w := newWorld(group, testkit.Nodes(2))
		w.settle()
		w.reportFacts()
		w.factsOn("n00001").GFXTarget = "gfx950"
		w.runAll(300_000)
		for _, ct := range w.commTasks {
			ct.Status.Run.Settings = append(ct.Status.Run.Settings,
				v1alpha1.SettingStatus{Name: "lowPrecision.AllReduce", Requested: string(mode),
					Effective: v1alpha1.EffectivePartial, Verified: v1alpha1.VerifiedConfirmed})
			ct.Status.Run.Environment = append(ct.Status.Run.Environment,
				v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "1"})
		}
		w.configMap, w.group.Status.Published = nil, nil
		w.settle()
		w.want(t, v1alpha1.ConditionSettingsPublished, want, v1alpha1.ReasonMixedFP8Encodings, "gfx950")
		if !slices.ContainsFunc(w.events, func(e decision.Event) bool {
			return e.Warning && e.Reason == v1alpha1.ReasonMixedFP8Encodings
		}) {
			t.Errorf("%s: no warning among %+v", mode, w.events)
		}
		switch {
		case want == metav1.ConditionFalse && w.configMap != nil:
			t.Errorf("%s: published %v", mode, w.configMap.Data)
		case want == metav1.ConditionTrue &&
			(w.configMap == nil || w.configMap.Data["RCCL_LOW_PRECISION_ENABLE"] != "0" ||
				!strings.HasPrefix(w.configMap.Data["rccl.conf"], "# FP8 is off")):
			t.Errorf("%s: published %+v", mode, w.configMap)
		}
	}
}

// TestInventoryOfVersions: the container's ROCm, the hosts' RCCL and the firmware are listed where they are known.
func TestInventoryOfVersions(t *testing.T) {
	w := readyWorld(t, 2)
	ct := w.commTask("n00001")
	ct.Status.Run.ROCm = &v1alpha1.ROCmFacts{State: "Found", Version: "7.0.2"}
	w.factsOn(ct.Spec.NodeName).ROCm.RCCLVersion = "2.26.6"
	w.step()
	got := map[string]string{}
	for _, item := range w.group.Status.Inventory {
		got[item.Property+"="+item.Value] = item.Example
	}
	for key, example := range map[string]string{"ContainerROCm=7.0.2": "n00001", "HostRCCL=2.26.6": "n00001",
		"Firmware=MEC 177, SDMA 24": "n00000"} {
		if got[key] != example {
			t.Errorf("%s is not listed with %s: %v", key, example, got)
		}
	}
	if c := meta.FindStatusCondition(w.group.Status.Conditions,
		v1alpha1.ConditionCompatible); c.Status != metav1.ConditionTrue {
		t.Errorf("what one node does not tell is no mixture: %+v", c)
	}
}
