package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestRepeats: a node's table has a column for how far its repeats are apart, the group's a line for the node where
// that is most; what no report tells is told as such, and without repeats nothing is said.
func TestRepeats(t *testing.T) {
	member := func(name string, spread ...int32) Member {
		n := NoMember(name)
		n.Spec.Run = &v1alpha1.RunAssignment{ID: "1-1"}
		n.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1", Results: []v1alpha1.ResultSeries{
			{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				SizeBytes: []int64{1 << 10, 1 << 20}, LatencyNanoseconds: []int64{1000, 2000},
				BusBandwidthMBps: []int64{1000, 2000}, SpreadPercent: spread}}}
		return n
	}
	older := member("older", 90, 90)
	older.Status.Run.ID = "1-0"
	stale := member("stale", 80, 80)
	stale.Spec.Run.Stale = &v1alpha1.RunStaleness{}
	group := &state.Group{}
	group.Status.Results = []v1alpha1.GroupResultSeries{{Variant: v1alpha1.VariantBaseline,
		Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, Placement: v1alpha1.OutOfPlace,
		SizeBytes: []int64{1 << 10, 1 << 20}, LatencyNanoseconds: []int64{1000, 2000},
		BusBandwidthMBps: []int64{1000, 2000}}}
	for name, tc := range map[string]struct {
		repeats int32
		nodes   []Member
		want    string
	}{
		"two nodes": {3, []Member{member("a", 2, 0), member("b", 1, 7), older, stale},
			"  Baseline: medians of 3 repeats, at most 7 % apart (b at 1M)"},
		"none apart": {2, []Member{member("a", 0, 0)}, "  Baseline: medians of 2 repeats, at most 0 % apart (a at 1K)"},
		"not in a report": {3, []Member{member("a")},
			"  Baseline: medians of 3 repeats; how far they are apart is in no report"},
		"no repeats": {0, []Member{member("a")}, ""},
	} {
		group.Status.Plan = &v1alpha1.RunPlan{Repeats: tc.repeats}
		var b bytes.Buffer
		if err := GroupAB(&b, group, tc.nodes); err != nil {
			t.Fatal(err)
		}
		if text := lines(&b); tc.want != "" && !slices.Contains(text, tc.want) ||
			tc.want == "" && strings.Contains(strings.Join(text, ""), "repeats") {
			t.Errorf("%s: expected %q in\n%s", name, tc.want, strings.Join(text, "\n"))
		}
	}
	one := member("a", 2)
	var b bytes.Buffer
	if err := NodeAB(&b, &one); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SIZE  BASELINE us  GB/s  APART", "1K    1.0          1.00  2 %",
		"1M    2.0          2.00  -"} {
		if text := lines(&b); !slices.Contains(text, want) {
			t.Errorf("expected %q in\n%s", want, strings.Join(text, "\n"))
		}
	}
}

// TestFiguresOfAnotherRun: a node of whose present run nothing came shows those of the run before, and says so.
func TestFiguresOfAnotherRun(t *testing.T) {
	n := &Member{}
	n.Status.Run = &v1alpha1.NodeRunStatus{ID: "2-2"}
	for want, run := range map[string]*v1alpha1.RunAssignment{
		"":  nil,
		" ": {ID: "2-2"},
		"NOTE: these figures are of run 2-2; run 2-3 has not reported yet": {ID: "2-3"},
		"NOTE: these figures are of run 2-2; run 2-3 gave none: Error (NoGPUResource)": {ID: "2-3",
			Closed: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: v1alpha1.ReasonNoGPUResource}},
	} {
		n.Spec.Run = run
		var b bytes.Buffer
		if err := NodeAB(&b, n); err != nil {
			t.Fatal(err)
		}
		if got := lines(&b)[0]; strings.TrimSpace(want) != "" && got != want ||
			strings.TrimSpace(want) == "" && strings.Contains(got, "NOTE") {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
