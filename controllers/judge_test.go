package controllers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestPublishNeedsAgreement(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	if w.configMap == nil {
		t.Fatalf("not published: %+v", w.group.Status.Conditions)
	}
	w.commTask("n00001").Status.Run.Environment[0].Value = "0"
	w.configMap, w.group.Status.Published = nil, nil
	w.settle()
	for _, c := range w.group.Status.Conditions {
		if c.Type == v1alpha1.ConditionSettingsPublished && (c.Status != metav1.ConditionFalse ||
			!strings.Contains(c.Message, "RCCL_ENABLE_DDA_ALLREDUCE differs between node n00000 and node n00001")) {
			t.Errorf("%+v", c)
		}
	}
	if w.configMap != nil {
		t.Error("published although two nodes disagree")
	}
}

// TestTailHazardIsPublished: the condition, the event and the file for the jobs all say what is left out.
func TestTailHazardIsPublished(t *testing.T) {
	group := testkit.Group()
	group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	w := newWorld(group, testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	for _, ct := range w.commTasks {
		ct.Status.Run.Settings = append(ct.Status.Run.Settings, v1alpha1.SettingStatus{Name: "lowPrecision.AllReduce",
			Requested: "Preferred", Effective: v1alpha1.EffectivePartial, Verified: v1alpha1.VerifiedConfirmed,
			Warnings: []string{v1alpha1.WarningTailHazard}})
		ct.Status.Run.Environment = append(ct.Status.Run.Environment,
			v1alpha1.EnvVar{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "1"})
	}
	w.settle()
	published := meta.FindStatusCondition(w.group.Status.Conditions, v1alpha1.ConditionSettingsPublished)
	if published.Status != metav1.ConditionTrue || published.Reason != v1alpha1.ReasonTailHazard {
		t.Errorf("%+v", published)
	}
	if c := meta.FindStatusCondition(w.group.Status.Conditions,
		v1alpha1.ConditionSettingsInEffect); !strings.Contains(c.Message,
		"Results are not usable with lowPrecision.AllReduce (TailHazard); see status.settings of the CommRun.") {
		t.Errorf("%+v", c)
	}
	if got := w.configMap.Data; got["RCCL_LOW_PRECISION_ENABLE"] != "0" ||
		!strings.HasPrefix(got["rccl.conf"], "# FP8 gave wrong elements with AllReduce") {
		t.Errorf("%v", got)
	}
	if !slices.ContainsFunc(w.events, func(e decision.Event) bool {
		return e.Warning && e.Reason == v1alpha1.ReasonTailHazard
	}) {
		t.Errorf("no warning among the events %+v", w.events)
	}
}

func TestPublishRestoresAndStops(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	good := w.configMap.DeepCopy()
	w.configMap.Data["RCCL_ENABLE_DDA_ALLREDUCE"] = "edited"
	w.settle()
	if !samePublished(w.configMap, good) {
		t.Errorf("an edited ConfigMap was not put right: %v", w.configMap.Data)
	}
	w.group.Spec.Publish.Mode = v1alpha1.PublishOff
	s := w.snapshot()
	s.OwnedConfigMaps = []string{good.Name}
	if d := Decide(s, testConfig); !slices.Equal(d.DeleteConfigMaps, []string{good.Name}) || d.Status.Published != nil {
		t.Errorf("publish.mode Off: %v %+v", d.DeleteConfigMaps, d.Status.Published)
	}
}

func TestListFailureConcludesNothing(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(1))
	w.settle()
	w.reportFacts()
	w.runAll(300_000)
	s := w.snapshot()
	s.CommTasks, s.ListError = nil, errors.New("timeout")
	d := Decide(s, testConfig)
	if len(d.CreatePods)+len(d.CommTasks)+len(d.DeleteCommTasks)+len(d.DeletePods) != 0 {
		t.Errorf("acted on a list that failed: %+v", d)
	}
	for _, c := range d.Status.Conditions {
		if c.Status != metav1.ConditionUnknown || c.Reason != v1alpha1.ReasonListFailed {
			t.Errorf("%+v", c)
		}
	}
}

func TestCompatible(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeFacts)
		status metav1.ConditionStatus
		reason string
	}{
		"alike": {func(*v1alpha1.NodeFacts) {}, metav1.ConditionTrue, v1alpha1.ReasonAllCompatible},
		"rocm": {func(f *v1alpha1.NodeFacts) { f.ROCm.Version = "6.4" }, metav1.ConditionFalse,
			v1alpha1.ReasonMixedROCmVersions},
		"no host rocm": {func(f *v1alpha1.NodeFacts) { f.ROCm = v1alpha1.ROCmFacts{State: "NotFound"} },
			metav1.ConditionTrue, v1alpha1.ReasonAllCompatible},
		"driver": {func(f *v1alpha1.NodeFacts) { f.Driver.Version = "6.10" }, metav1.ConditionFalse,
			v1alpha1.ReasonMixedDriverVersions},
		"model": {func(f *v1alpha1.NodeFacts) { f.GPUModel = "MI325X" }, metav1.ConditionFalse,
			v1alpha1.ReasonMixedModels},
		"partition": {func(f *v1alpha1.NodeFacts) { f.Partition = "CPX/NPS4" }, metav1.ConditionFalse,
			v1alpha1.ReasonMixedPartitions},
		"fewer devices": {func(f *v1alpha1.NodeFacts) { f.DeviceCount = 7 }, metav1.ConditionFalse,
			v1alpha1.ReasonGPUCountMismatch},
		"topology": {problem("TopologyFault", "Error"), metav1.ConditionFalse, v1alpha1.ReasonTopologyFault},
		"hidden GPU": {problem(v1alpha1.ProblemGPUHidden, "Error"), metav1.ConditionFalse,
			v1alpha1.ReasonSysfsUnreadable},
		"missing link": {problem(v1alpha1.ProblemLinkMissing, "Error"), metav1.ConditionFalse,
			v1alpha1.ReasonTopologyFault},
		"missing GPU": {problem(v1alpha1.ProblemGPUMissing, "Error"), metav1.ConditionFalse,
			v1alpha1.ReasonGPUCountMismatch},
		"any other":      {problem("RASErrors", "Error"), metav1.ConditionFalse, v1alpha1.ReasonHealthDegraded},
		"only a warning": {problem("RASErrors", "Warning"), metav1.ConditionTrue, v1alpha1.ReasonAllCompatible},
		"stale": {func(f *v1alpha1.NodeFacts) { f.ObservedTime.Time = testkit.Now.Add(-time.Hour) },
			metav1.ConditionUnknown, v1alpha1.ReasonFactsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testkit.Group(), testkit.Nodes(3))
			w.settle()
			w.reportFacts()
			tc.change(w.factsOn("n00001"))
			w.settle()
			for _, c := range w.group.Status.Conditions {
				if c.Type == v1alpha1.ConditionCompatible && (c.Status != tc.status || c.Reason != tc.reason) {
					t.Errorf("%+v", c)
				}
			}
			if tc.status == metav1.ConditionFalse && !slices.ContainsFunc(w.group.Status.Culprits,
				func(c v1alpha1.Culprit) bool { return c.Node == "n00001" }) {
				t.Errorf("the odd node is not named: %+v", w.group.Status.Culprits)
			}
		})
	}
}

func problem(code, severity string) func(*v1alpha1.NodeFacts) {
	return func(f *v1alpha1.NodeFacts) {
		f.Problems = []v1alpha1.Problem{{Code: code, Severity: severity, GPU: "0000:65:00.0",
			Message: "seen, expected, next step"}}
	}
}

func TestErrorProblemKeepsRanksAway(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(2))
	w.settle()
	w.reportFacts()
	problem("TopologyFault", "Error")(w.factsOn("n00001"))
	w.runAll(300_000)
	closed := w.commTask("n00001").Spec.Run.Closed
	if closed == nil || closed.Reason != v1alpha1.ReasonPreconditionFailed ||
		!strings.Contains(closed.Message, "TopologyFault") {
		t.Fatalf("closure %+v", closed)
	}
	if run := w.group.Status.Run; run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictError {
		t.Errorf("run %+v", run)
	}
}

// TestHealthyNodesOfTwoModels: what is slower by its model is not slow.
func TestHealthyNodesOfTwoModels(t *testing.T) {
	w := newWorld(testkit.Group(), testkit.Nodes(5))
	w.step()
	w.step()
	w.reportFacts()
	for _, n := range []string{"n00003", "n00004"} {
		f := w.factsOn(n)
		f.GPUModel, f.GFXTarget = "MI250X", "gfx90a"
	}
	w.runAll(300_000, 300_000, 300_000, 125_000, 126_000)
	validated := groupCondition(&w.group.Status, v1alpha1.ConditionValidated).Message
	if w.group.Status.Run.Verdict != v1alpha1.VerdictPass ||
		!strings.Contains(validated, "fewer than 3 are alike: 2 of MI250X") {
		t.Errorf("verdict %s: %s", w.group.Status.Run.Verdict, validated)
	}
}

// TestRebootOfOthersMakesNobodyGood: a slow node stays slow while those beside which it was measured are down.
func TestRebootOfOthersMakesNobodyGood(t *testing.T) {
	for _, nodes := range []int{3, 4} {
		w := newWorld(testkit.Group(), testkit.Nodes(nodes))
		w.step()
		w.reportFacts()
		w.runAll(300_000, 300_000, 100_000, 300_000)
		w.now = w.now.Add(time.Minute)
		w.reportFacts()
		for _, at := range []int{0, 3}[:nodes-2] {
			w.reboot(w.nodes[at].Name, "boot-2")
			w.nodes[at].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "0")
		}
		w.settle()
		w.step()
		if m := w.group.Status.Members; m.Failed != 1 {
			t.Errorf("%d nodes: %+v: %s",
				nodes, m, groupCondition(&w.group.Status, v1alpha1.ConditionValidated).Message)
		}
	}
}
