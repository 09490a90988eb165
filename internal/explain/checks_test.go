package explain

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestChecks(t *testing.T) {
	notMet := []api.PerformanceCheck{
		{Source: "worse", Measurement: "dp: m", State: api.CheckNotMet, MeasuredMBps: ptr.To(int64(6)),
			ExpectedMBps: ptr.To(int64(8)), Percent: ptr.To(int32(75)), Causes: []string{"d"}},
		{Source: "bad", Measurement: "dp: m", State: api.CheckNotMet, MeasuredMBps: ptr.To(int64(7)),
			ExpectedMBps: ptr.To(int64(8)), Percent: ptr.To(int32(87)), Causes: []string{"a", "b", "c"}},
	}
	open := []api.PerformanceCheck{{Source: "open", Measurement: "m", State: api.CheckNotMeasured,
		Causes: []string{"why"}}}
	if got, want := Checks(notMet), "dp: m: measured 0.006 GB/s, expected at least 0.008 GB/s (worse): 75 %; "+
		"look at: d; dp: m: measured 0.007 GB/s, expected at least 0.008 GB/s (bad): 87 %"; got != want {
		t.Errorf("not met: %q, want %q", got, want)
	}
	if got, want := Checks(open), "m (open) could not be judged: why"; got != want {
		t.Errorf("not measured: %q, want %q", got, want)
	}
	if got := Checks(slices.Repeat(notMet, 3)); !strings.HasSuffix(got, "; and 3 more, see the checks") {
		t.Errorf("many: %q", got)
	}
}

func TestCulprit(t *testing.T) {
	for want, c := range map[string]api.Culprit{
		"Node a":                     {Kind: "Node", Node: "a", Name: "a"},
		"Pair a<->b":                 {Kind: "Pair", Pair: []string{"a", "b"}, Name: "a<->b"},
		"GPU 0000:05:00.0 on node a": {Kind: "GPU", Node: "a", Name: "0000:05:00.0"},
		"Communicator tp 3":          {Kind: "Communicator", Name: "tp 3"},
	} {
		if got := Culprit(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
