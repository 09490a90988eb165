package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/checks"
)

// TestChecks: what was not measured shows no number, and a comparison that decides nothing says so.
func TestChecks(t *testing.T) {
	all := []v1alpha1.PerformanceCheck{
		{Source: "amd-acceptance-mi300x", Measurement: "Baseline AllReduce Float32 8589934592 B in place, median",
			State: v1alpha1.CheckNotMet, Mode: v1alpha1.JudgingEnforce,
			MeasuredMBps: ptr.To(int64(280_000)), ExpectedMBps: ptr.To(int64(304_000)), Percent: ptr.To(int32(92)),
			Node: "node-a", Causes: []string{"a link", "a fan"}},
		{Source: "baseline", Measurement: "no baseline to compare with", State: v1alpha1.CheckNotMeasured,
			Mode: v1alpha1.JudgingReport, Causes: []string{"first run"}},
		{Source: "spec", Measurement: "m", State: v1alpha1.CheckMet, Mode: v1alpha1.JudgingEnforce,
			MeasuredMBps: ptr.To(int64(9)), ExpectedMBps: ptr.To(int64(9)), Percent: ptr.To(int32(100))},
	}
	var b bytes.Buffer
	if err := Checks(&b, all); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"STATE                        MEASURED GB/s  EXPECTED GB/s  PERCENT  SOURCE                 " +
			"NODE    MEASUREMENT",
		"NotMet                       280.0          304.0          92 %     amd-acceptance-mi300x  node-a  Baseline " +
			"AllReduce Float32 8 GiB in place, median",
		"NotMeasured (only reported)  -              -              -        baseline               -       no " +
			"baseline to compare with",
		"Met                          0.01           0.01           100 %    spec                   -       m",
		"Baseline AllReduce Float32 8 GiB in place, median: look at:",
		"  a link",
		"  a fan",
		"no baseline to compare with: why:",
		"  first run",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.Reset()
	since := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err := Baseline(&b,
		&v1alpha1.BaselineStatus{Key: "ROCm 7.1.0", Since: since, Runs: 3, Previous: "ROCm 7.0.2"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"  baseline of 3 runs since 2026-03-01 12:00 UTC: ROCm 7.1.0; before: ROCm 7.0.2"},
		lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.Reset()
	if err := Baseline(&b, &v1alpha1.BaselineStatus{Key: "k", Since: since, Runs: 1}); err != nil ||
		!strings.Contains(b.String(), "baseline of 1 run since") {
		t.Errorf("%v %s", err, b.String())
	}
	// A full list may have left some out, and says so.
	for n, told := range map[int]bool{checks.Max - 1: false, checks.Max: true} {
		b.Reset()
		if err := Checks(&b, slices.Repeat(all[2:], n)); err != nil ||
			strings.Contains(b.String(), "These are the worst 16") != told {
			t.Errorf("%d checks: %v\n%s", n, err, b.String())
		}
	}
}
