package bench

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// TestReferences: a mark is compared only with exactly what it is of, and what the machine shows comes first of the
// causes.
func TestReferences(t *testing.T) {
	bench := func(model string, change func(*results.Result)) []reference.Check {
		r := results.Result{Variant: rcclx.Baseline, Collective: rcclx.AllReduce, Datatype: rcclx.Float32,
			Placement: rcclx.InPlace, SizeBytes: 8 << 30, Latency: rcclx.LatencyStats{MedianNanoseconds: 50_000_000,
				MinNanoseconds: 49_000_000, MaxNanoseconds: 51_000_000}}
		if change != nil {
			change(&r)
		}
		x := &bench{Bench: Bench{Config: Config{Devices: make([]int, 8)}},
			lib: &rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCL}, report: results.Report{Results: []results.Result{r}},
			facts: preflight.NodeFacts{Discovered: &discover.Facts{Model: model, Partition: "SPX/NPS1"}},
			found: []preflight.Finding{{Name: preflight.NUMABalancing, State: preflight.Warning, Rank: -1},
				{Name: preflight.IOMMU, State: preflight.Met, Rank: -1}}}
		return x.references()
	}
	got := bench("MI300X", nil)
	if len(got) != 1 || got[0].Source != "amd-acceptance-mi300x" || got[0].State != reference.NotMet ||
		got[0].Mode != reference.Report || got[0].MeasuredMBps != 300_648 || got[0].Percent != 98 {
		t.Fatalf("%+v", got)
	}
	if !strings.Contains(got[0].Causes[0], "numa_balancing") {
		t.Errorf("%q", got[0].Causes)
	}
	for name, change := range map[string]func(*results.Result){
		"datatype":  func(r *results.Result) { r.Datatype = rcclx.BFloat16 },
		"placement": func(r *results.Result) { r.Placement = rcclx.OutOfPlace },
		"size":      func(r *results.Result) { r.SizeBytes = 4 << 30 },
	} {
		if got = bench("MI300X", change); len(got) != 1 || got[0].State != reference.NotMeasured ||
			!strings.Contains(got[0].Causes[0], "amd-acceptance-mi300x") {
			t.Errorf("another %s: %+v", name, got)
		}
	}
	if got = bench("MI300X", func(r *results.Result) { r.Variant = rcclx.DDA }); len(got) != 0 {
		t.Errorf("no Baseline: %+v", got)
	}
	if got = bench("unknown", nil); len(got) != 0 {
		t.Errorf("an unknown model: %+v", got)
	}
}
