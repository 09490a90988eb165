package judge

import (
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestGroupVerdict(t *testing.T) {
	const p, f, i, e, s = v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive,
		v1alpha1.VerdictError, v1alpha1.VerdictSkipped
	for _, tc := range []struct {
		verdicts  []v1alpha1.Verdict
		unchanged bool
		want      v1alpha1.Verdict
	}{
		{[]v1alpha1.Verdict{p, p}, true, p},
		{[]v1alpha1.Verdict{p, p}, false, i},
		{[]v1alpha1.Verdict{p, ""}, true, i},
		{nil, true, i},
		{[]v1alpha1.Verdict{p, s}, true, s},
		{[]v1alpha1.Verdict{s, i}, true, i},
		{[]v1alpha1.Verdict{i, e, p}, true, e},
		{[]v1alpha1.Verdict{e, f, p}, true, f},
	} {
		var outcomes []Outcome
		for _, v := range tc.verdicts {
			outcomes = append(outcomes, Outcome{Verdict: v})
		}
		if got, _ := GroupVerdict(outcomes, tc.unchanged); got != tc.want {
			t.Errorf("%v (members unchanged: %v) gives %s, expected %s", tc.verdicts, tc.unchanged, got, tc.want)
		}
	}
}

func reported(node string, busBWMBps int64) Outcome {
	figures := []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline,
		Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
		SizeBytes: []int64{1024, 4096}, LatencyNanoseconds: []int64{10, 20}, BusBandwidthMBps: []int64{1, busBWMBps}}}
	return Outcome{Node: node, Verdict: v1alpha1.VerdictPass, Report: &v1alpha1.NodeRunStatus{Results: figures},
		Figures: figures}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []int64
		want   int64
	}{{nil, 0}, {[]int64{3}, 3}, {[]int64{5, 1}, 3}, {[]int64{9, 1, 2}, 2}, {[]int64{1 << 62, 1<<62 + 2}, 1<<62 + 1}} {
		if got := Median(tc.values); got != tc.want {
			t.Errorf("median of %v is %d, expected %d", tc.values, got, tc.want)
		}
	}
}
