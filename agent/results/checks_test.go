package results

import (
	"bytes"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TestChecksInTable: each line is a comment, so that whatever reads rows skips them.
func TestChecksInTable(t *testing.T) {
	var b bytes.Buffer
	err := WriteTable(&b, TableOptions{}, Report{Source: SourceBench, Checks: []reference.Check{
		{Source: "amd-acceptance-mi300x", Measurement: "Baseline AllReduce Float32 8589934592 B in place, median",
			State: reference.NotMet, MeasuredMBps: 280_000, ExpectedMBps: 304_000, Percent: 92,
			Causes: []string{"a link"}},
		{Source: "reference", Measurement: "no reference for exactly what was measured", State: reference.NotMeasured,
			Causes: []string{"set a size"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "#", "")), " ") // long lines are wrapped
	for _, want := range []string{
		"amd-acceptance-mi300x: Baseline AllReduce Float32 8589934592 B in place, median: measured 280.0 GB/s of " +
			"304.0 GB/s, 92 %: NotMet a link",
		"no reference for exactly what was measured set a size",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%s\nlacks %q", b.String(), want)
		}
	}
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("%q is no comment", line)
		}
	}
}
