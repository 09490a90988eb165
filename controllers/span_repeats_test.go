package controllers

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestRepeatsOverNodes: the group and the dimensions of a mesh are measured as often as was asked for, in one test each
// and with the time for it, and the stage says how far the repeats are apart; a search measures once.
func TestRepeatsOverNodes(t *testing.T) {
	for _, repeats := range []int32{0, 1, 3} {
		w := newGroupWorld(t, 4, faults{hangNodes: []int{2}}, func(g *state.Group) {
			testkit.Mesh("dp", 3, "tp", 8)(g)
			g.Spec.Benchmark.Repeats = repeats
			g.Spec.Run.NodeDeadlineSeconds = 1 << 20 // which bounds no task
		})
		got, limits := map[v1alpha1.TestKind]int32{}, map[v1alpha1.TestKind]int32{}
		w.meddle = func() {
			for _, ct := range w.commTasks {
				if s := ct.Spec.Session; s != nil && s.Task != nil {
					kind := w.test(s.Task.ID).Kind
					got[kind], limits[kind] = max(got[kind], s.Task.Repeats), s.Task.DeadlineSeconds
				}
			}
		}
		w.play()
		s, want := w.span(), runplan.Repeats(repeats)
		if len(s.Culprits) != 1 || s.Culprits[0].Node != "n00002" {
			t.Errorf("repeats %d: culprits %+v: %s", repeats, s.Culprits, s.Message)
		}
		if n := strings.Count(w.tests(), "group-"); n != 2 { // with the culprit and without
			t.Errorf("repeats %d: %d tests of the group: %s", repeats, n, w.tests())
		}
		for kind, n := range map[v1alpha1.TestKind]int32{v1alpha1.TestGroup: want, v1alpha1.TestMesh: want,
			v1alpha1.TestSearch: 0} {
			if repeats, there := got[kind]; !there || repeats != n {
				t.Errorf("a task of kind %s has %d repeats (there: %v), expected %d", kind, repeats, there, n)
			}
		}
		b, run := &w.group.Spec.Benchmark, &w.group.Spec.Run
		once := int32(len(b.Collectives)*len(b.Datatypes)*max(1, len(b.Placements))*len(runplan.Sizes(b))) *
			run.StepDeadlineSeconds
		if limit := limits[v1alpha1.TestGroup] - run.InitDeadlineSeconds; limit != once*max(1, want) {
			t.Errorf("repeats %d: %d s for a task that takes %d s once", repeats, limit, once)
		}
		for i := range s.Results {
			r := &s.Results[i]
			if r.Repeats != want || len(r.SpreadPercent) != len(r.SizeBytes)*int(min(want, 1)) {
				t.Errorf("repeats %d: %s %s tells of %d and of spreads %v",
					repeats, r.Dimension, r.Collective, r.Repeats, r.SpreadPercent)
			}
		}
	}
}

// TestRepeatsAreTold: a stage that passes says that its figures are medians and how far the repeats are apart, and its
// checks do.
func TestRepeatsAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		repeats int32
		cut     bool
		words   string
	}{
		"once":                {1, false, ""},
		"three times":         {3, false, "median of 3 repeats, which are at most"},
		"not all in a report": {3, true, "median of 3 repeats; how far they are apart did not fit"},
	} {
		w := newGroupWorld(t, 4, faults{report: func(_ int, ct *v1alpha1.CommTask) {
			for i := range ct.Status.Session.Task.Communicators {
				for k := range ct.Status.Session.Task.Communicators[i].Results {
					if tc.cut {
						ct.Status.Session.Task.Communicators[i].Results[k].SpreadPercent = nil
					}
				}
			}
		}}, func(g *state.Group) {
			g.Spec.Benchmark.Repeats = tc.repeats
			b := &g.Spec.Benchmark
			sizes := runplan.Sizes(b)
			b.Thresholds = []v1alpha1.Threshold{{Span: v1alpha1.SpanGroup, Collective: b.Collectives[0],
				Datatype: b.Datatypes[0], SizeBytes: sizes[len(sizes)-1], MinBusBandwidthMBps: ptr.To(int64(1))}}
		})
		w.play()
		s := w.span()
		if s.Verdict != v1alpha1.VerdictPass || strings.Contains(s.Message, "repeats") != (tc.words != "") ||
			!strings.Contains(s.Message, tc.words) {
			t.Errorf("%s: %s: %s", name, s.Verdict, s.Message)
		}
		told := false
		for _, c := range w.group.Status.Checks {
			told = told || strings.Contains(c.Measurement, "; 3 repeats") && c.Node == "" &&
				strings.Contains(c.Measurement, "% apart") != tc.cut
		}
		if told != (tc.repeats > 1) {
			t.Errorf("%s: checks %+v", name, w.group.Status.Checks)
		}
	}
}

// TestRepeatsThatAreMissingAreNoPass: an agent that knows no repeats, as of an older version, says Pass after one.
func TestRepeatsThatAreMissingAreNoPass(t *testing.T) {
	for _, done := range []int32{0, 2} {
		w := newGroupWorld(t, 4, faults{report: func(_ int, ct *v1alpha1.CommTask) {
			for i := range ct.Status.Session.Task.Communicators {
				ct.Status.Session.Task.Communicators[i].Repeats = done
			}
		}}, func(g *state.Group) { g.Spec.Benchmark.Repeats = 3 })
		w.play()
		if s := w.span(); s.Verdict == v1alpha1.VerdictPass || w.group.Status.Run.Verdict == v1alpha1.VerdictPass ||
			!strings.Contains(s.Message, "3 repeats") {
			t.Errorf("%d of 3 repeats: %s, run %s: %s", done, s.Verdict, w.group.Status.Run.Verdict, s.Message)
		}
	}
}
