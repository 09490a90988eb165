package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// regressionWorld is a group of n nodes that holds its runs against its baseline.
func regressionWorld(n int, mode v1alpha1.JudgingMode) *world {
	group := testkit.Group()
	group.Spec.Benchmark.Regression = v1alpha1.RegressionSpec{Mode: mode, MaxDropPercent: 10}
	w := newWorld(group, testkit.Nodes(n))
	w.step()
	w.reportFacts()
	return w
}

// rerun makes one run in which the nodes reach so much, by rank order.
func (w *world) rerun(busBWMBps ...int64) *state.Status {
	if w.group.Status.Run != nil {
		w.request(fmt.Sprint(w.group.Status.Run.Number + 1))
	}
	w.runAll(busBWMBps...)
	return &w.group.Status
}

// settled makes three runs at 300 GB/s, from which on the baseline is enforced.
func (w *world) settled() *state.Status {
	for range 2 {
		w.rerun(300_000)
	}
	return w.rerun(300_000)
}

func baselineChecks(s *state.Status) []v1alpha1.PerformanceCheck {
	return slices.DeleteFunc(slices.Clone(s.Checks), func(c v1alpha1.PerformanceCheck) bool {
		return c.Source != "baseline"
	})
}

func TestBaselineGrowsAndJudges(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingEnforce)
	s := w.rerun(300_000)
	if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline == nil || s.Baseline.Runs != 1 ||
		s.Baseline.LastRunID != s.Run.ID || s.Baseline.Previous != "" {
		t.Fatalf("first run: %s, baseline %+v", s.Run.Verdict, s.Baseline)
	}
	for _, part := range []string{"rcclx-dev 2.28.3 build abc", "model MI300X", "partition SPX/NPS1",
		"8 ranks a node"} {
		if !strings.Contains(s.Baseline.Key, part) {
			t.Errorf("key %q lacks %q", s.Baseline.Key, part)
		}
	}
	s = w.rerun(310_000)
	if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 2 || len(s.Baseline.Series) == 0 ||
		!slices.Equal(s.Baseline.Series[0].SamplesMBps, []int64{300_000, 310_000}) {
		t.Fatalf("second run: %s, baseline %+v", s.Run.Verdict, s.Baseline)
	}
	if s = w.rerun(305_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 3 {
		t.Fatalf("third run: %s, baseline %+v", s.Run.Verdict, s.Baseline)
	}
	// 305000 is the median now; 274500 is 90 % of it.
	before := s.Baseline.DeepCopy()
	s = w.rerun(274_000)
	validated := groupCondition(s, v1alpha1.ConditionValidated)
	if s.Run.Verdict != v1alpha1.VerdictFail || validated.Reason != v1alpha1.ReasonRegression ||
		validated.Status != metav1.ConditionFalse {
		t.Fatalf("a loss of all: %s; %+v", s.Run.Verdict, validated)
	}
	for _, words := range []string{"measured 274.0 GB/s", "the baseline of 3 runs is 305.0 GB/s: 89 %",
		"The group lost bandwidth, and 4 of 4 members"} {
		if !strings.Contains(validated.Message, words) {
			t.Errorf("%q lacks %q", validated.Message, words)
		}
	}
	if s.Baseline.Runs != 3 || s.Baseline.LastRunID != before.LastRunID || s.Members.Failed != 0 {
		t.Errorf("a run that failed is no part of the baseline: %+v; members %+v", s.Baseline, s.Members)
	}
	if c := baselineChecks(s); len(c) == 0 || c[0].State != v1alpha1.CheckNotMet ||
		c[0].Mode != v1alpha1.JudgingEnforce || *c[0].MeasuredMBps != 274_000 || *c[0].ExpectedMBps != 305_000 ||
		*c[0].Percent != 89 {
		t.Errorf("%+v", c)
	}
	if s = w.rerun(275_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 4 {
		t.Errorf("within the drop: %s, %d runs", s.Run.Verdict, s.Baseline.Runs)
	}
}

func groupCondition(s *state.Status, name string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{}
}

// TestRegressionOfOneNode: it is named and fails; the others passed.
func TestRegressionOfOneNode(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingEnforce)
	w.settled()
	s := w.rerun(300_000, 300_000, 265_000, 300_000) // within nodeMinPercentOfMedian
	if s.Run.Verdict != v1alpha1.VerdictFail || s.Members.Failed != 1 || s.Members.Passed != 3 ||
		len(s.Culprits) != 1 || s.Culprits[0].Node != "n00002" || s.Culprits[0].Reason != v1alpha1.ReasonRegression {
		t.Fatalf("%s, members %+v, culprits %+v", s.Run.Verdict, s.Members, s.Culprits)
	}
	if c := baselineChecks(s); c[0].Node != "n00002" || c[0].State != v1alpha1.CheckNotMet || *c[0].Percent != 88 {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(s.Culprits[0].Message, "1 of 4 members did") {
		t.Errorf("%q", s.Culprits[0].Message)
	}
	// A group of one has nobody else to blame.
	w = regressionWorld(1, v1alpha1.JudgingEnforce)
	w.settled()
	if s = w.rerun(200_000); len(s.Culprits) != 1 || s.Culprits[0].Node != "n00000" {
		t.Errorf("a group of one: %s, %+v", s.Run.Verdict, s.Culprits)
	}
}

func TestRegressionReportAndOff(t *testing.T) {
	w := regressionWorld(4, v1alpha1.JudgingReport)
	w.settled()
	s := w.rerun(200_000)
	if c := baselineChecks(s); s.Run.Verdict != v1alpha1.VerdictPass || c[0].State != v1alpha1.CheckNotMet ||
		c[0].Mode != v1alpha1.JudgingReport || s.Baseline.Runs != 4 {
		t.Errorf("Report: %s, %+v, %d runs", s.Run.Verdict, c, s.Baseline.Runs)
	}
	w = regressionWorld(4, v1alpha1.JudgingOff)
	w.settled()
	if s = w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictPass || len(baselineChecks(s)) != 0 ||
		s.Baseline.Runs != 4 {
		t.Errorf("Off: %s, %+v, %d runs", s.Run.Verdict, s.Checks, s.Baseline.Runs)
	}
}

// TestRunKeepsItsKey: what is unknown or another of a node after the run changes nothing in what the run showed, and
// begins no baseline.
func TestRunKeepsItsKey(t *testing.T) {
	for part, model := range map[string]string{"unknown": "unknown", "": "", "unknown/unknown": "MI300X",
		"SPX/NPS1": "MI325X"} {
		w := regressionWorld(4, v1alpha1.JudgingEnforce)
		w.settled()
		s := w.rerun(300_000, 300_000, 265_000, 300_000)
		before := s.Baseline.DeepCopy()
		for n, name := range []string{"n00001", "n00000", "n00002", "n00003"} { // one node, then all
			facts := w.factsOn(name)
			facts.Partition, facts.GPUModel = part, model
			w.settle()
			s = &w.group.Status
			if s.Run.ID != "1-4" || s.Run.Verdict != v1alpha1.VerdictFail || len(s.Culprits) == 0 ||
				s.Culprits[0].Node != "n00002" || s.Baseline.Runs != before.Runs || s.Baseline.Key != before.Key {
				t.Fatalf("%q on %d nodes: %s, culprits %+v, baseline %+v",
					part, n+1, s.Run.Verdict, s.Culprits, s.Baseline)
			}
		}
	}
}

// TestUnknownIsNoOtherKey: a run of which a part of the key is not known is held against the baseline, and does not end
// it.
func TestUnknownIsNoOtherKey(t *testing.T) {
	w := regressionWorld(3, v1alpha1.JudgingEnforce)
	s := w.settled()
	key := s.Baseline.Key
	for _, ct := range w.commTasks {
		w.factsOn(ct.Spec.NodeName).Partition = "unknown"
	}
	s = w.rerun(200_000)
	if s.Run.Verdict != v1alpha1.VerdictFail || s.Run.BaselineKey != key || s.Baseline.Runs != 3 {
		t.Fatalf("%s under %q: %+v", s.Run.Verdict, s.Run.BaselineKey, s.Baseline)
	}
	if s = w.rerun(300_000); s.Baseline.Runs != 4 || s.Baseline.Key != key {
		t.Errorf("%+v", s.Baseline)
	}
	// Where it never was known, there is a baseline all the same, which takes the part in once it is.
	w = regressionWorld(2, v1alpha1.JudgingEnforce)
	for _, ct := range w.commTasks {
		w.factsOn(ct.Spec.NodeName).Partition = "unknown"
	}
	if s = w.settled(); s.Baseline == nil || !strings.Contains(s.Baseline.Key, "partition unknown") {
		t.Fatalf("%+v", s.Baseline)
	}
	if s = w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictFail ||
		!slices.ContainsFunc(baselineChecks(s), func(c v1alpha1.PerformanceCheck) bool {
			return strings.Contains(strings.Join(c.Causes, " "), "not known: ROCm, partition; taken to be")
		}) {
		t.Errorf("%s: %+v", s.Run.Verdict, baselineChecks(s))
	}
	for _, ct := range w.commTasks {
		w.factsOn(ct.Spec.NodeName).Partition = "SPX/NPS1"
	}
	if s = w.rerun(300_000); s.Baseline.Runs != 4 || !strings.Contains(s.Baseline.Key, "partition SPX/NPS1") {
		t.Errorf("%+v", s.Baseline)
	}
}

// TestNewNormalIsAccepted: by the annotation a run that only lost bandwidth passes and begins the baseline again; those
// after it are held against it, and the annotation that stays says nothing more.
func TestNewNormalIsAccepted(t *testing.T) {
	for _, late := range []bool{false, true} { // asked for after that run, or one run later
		w := regressionWorld(4, v1alpha1.JudgingEnforce)
		w.settled()
		s := w.rerun(200_000)
		if s.Run.Verdict != v1alpha1.VerdictFail ||
			!strings.Contains(groupCondition(s, v1alpha1.ConditionValidated).Message,
				"--overwrite rcclx.io/baseline-from=1-4") {
			t.Fatalf("%s: %+v", s.Run.Verdict, s.Conditions)
		}
		if late {
			s = w.rerun(205_000)
		}
		old := s.Baseline.Key
		for _, other := range []string{"1-9", "1", "next", ""} { // a run to come, and none
			metav1.SetMetaDataAnnotation(&w.group.ObjectMeta, v1alpha1.AnnotationBaselineFrom, other)
			w.settle()
			if s = &w.group.Status; s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.FirstRunID != "1-1" {
				t.Errorf("%q: %s, %+v", other, s.Run.Verdict, s.Baseline)
			}
		}
		metav1.SetMetaDataAnnotation(&w.group.ObjectMeta, v1alpha1.AnnotationBaselineFrom, "1-4")
		w.settle()
		s = &w.group.Status
		if s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 1 || s.Baseline.FirstRunID != s.Run.ID ||
			s.Baseline.Key != old || !strings.HasPrefix(s.Baseline.Previous, old[:60]) || len(s.Culprits) != 0 {
			t.Fatalf("late %t: %s, %+v", late, s.Run.Verdict, s.Baseline)
		}
		begun := s.Baseline.DeepCopy()
		w.settle()
		if s = &w.group.Status; s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 1 ||
			s.Baseline.Since != begun.Since {
			t.Errorf("it begins once: %+v", s.Baseline)
		}
		if s = w.rerun(190_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.Runs != 2 ||
			len(s.Baseline.Series[0].SamplesMBps) != 2 {
			t.Errorf("a run within the drop: %s, %+v", s.Run.Verdict, s.Baseline)
		}
		w.rerun(200_000)
		if s = w.rerun(150_000); s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.Runs != 3 {
			t.Errorf("a new loss: %s, %+v", s.Run.Verdict, s.Baseline)
		}
	}
	// With Report such a run was taken in before it is accepted, and begins the baseline all the same.
	r := regressionWorld(2, v1alpha1.JudgingReport)
	r.rerun(300_000)
	r.rerun(200_000)
	metav1.SetMetaDataAnnotation(&r.group.ObjectMeta, v1alpha1.AnnotationBaselineFrom, "1-2")
	r.settle()
	if b := r.group.Status.Baseline; b.Runs != 1 || b.FirstRunID != "1-2" ||
		!slices.Equal(b.Series[0].SamplesMBps, []int64{200_000}) {
		t.Errorf("%+v", b)
	}
	// It accepts bandwidth and nothing else, and waits for a run that passes.
	w := regressionWorld(3, v1alpha1.JudgingEnforce)
	w.settled()
	w.group.Annotations = map[string]string{v1alpha1.AnnotationBaselineFrom: "1-4"}
	if s := w.rerun(300_000, 300_000, 10_000); s.Run.Verdict != v1alpha1.VerdictFail || s.Baseline.FirstRunID != "1-1" {
		t.Errorf("a slow node beside the others: %s, %+v", s.Run.Verdict, s.Baseline)
	}
	if s := w.rerun(200_000); s.Run.Verdict != v1alpha1.VerdictPass || s.Baseline.FirstRunID != "1-5" {
		t.Errorf("%s, %+v", s.Run.Verdict, s.Baseline)
	}
}

// TestARegressionIsLiftedByABaseline: a node that lost bandwidth, is fixed and passes is unmarked where it was held
// against a baseline again; other GPUs begin the baseline again, and the first run of that says nothing of what was
// lost.
func TestARegressionIsLiftedByABaseline(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		lifted bool
	}{
		"the same baseline": {func(*world) {}, true},
		"other GPUs": {func(w *world) {
			for _, ct := range w.commTasks {
				w.factsOn(ct.Spec.NodeName).GPUModel = "MI325X"
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := regressionWorld(2, v1alpha1.JudgingEnforce)
			w.group.Spec.Gating = enforced(50)
			for range 3 {
				w.rerun(300_000)
			}
			w.rerun(300_000, 150_000)
			if got := w.stated(v1alpha1.VerdictFail); !slices.Equal(got, []string{"n00001"}) {
				t.Fatalf("marked %v", got)
			}
			w.writeMarks(t)
			tc.change(w)
			s := w.rerun(300_000)
			got := slices.Contains(w.stated(v1alpha1.VerdictPass), "n00001")
			if s.Run.Verdict != v1alpha1.VerdictPass || got != tc.lifted {
				t.Errorf("run %s (%s): says Pass %v, want %v; %+v",
					s.Run.ID, s.Run.Verdict, got, tc.lifted, baselineChecks(s))
			}
		})
	}
}

// TestAnAcceptedRegressionIsLifted: a user who has the baseline begin with the run that lost lifts its marks by that.
func TestAnAcceptedRegressionIsLifted(t *testing.T) {
	w := regressionWorld(2, v1alpha1.JudgingEnforce)
	w.group.Spec.Gating = enforced(50)
	for range 3 {
		w.rerun(300_000)
	}
	s := w.rerun(300_000, 150_000)
	w.writeMarks(t)
	metav1.SetMetaDataAnnotation(&w.group.ObjectMeta, v1alpha1.AnnotationBaselineFrom, s.Run.ID)
	w.step()
	if got := w.stated(v1alpha1.VerdictPass); !slices.Contains(got, "n00001") {
		t.Errorf("says Pass %v, run %s", got, w.group.Status.Run.Verdict)
	}
}
