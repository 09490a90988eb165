package main

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/metrics"
)

func TestPage(t *testing.T) {
	var b strings.Builder
	if err := write(&b, metrics.All()); err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics.All() {
		if n := strings.Count(b.String(), "| `"+m.Name+"` |"); n != 1 {
			t.Errorf("%s is %d times in the tables", m.Name, n)
		}
	}
}

func TestUnit(t *testing.T) {
	for name, want := range map[string]string{
		"commgroup_busbw_bytes_per_second": "bytes/s", "commgroup_run_start_timestamp_seconds": "s since 1970",
		"commgroup_budget_used_gpu_seconds": "GPU s",
		"commgroup_latency_seconds":         "s", "commgroup_check_ratio": "ratio", "commgroup_runs_total": "",
		"commgroup_info": "",
	} {
		if got := unit(name); got != want {
			t.Errorf("unit(%s) = %q, want %q", name, got, want)
		}
	}
}
