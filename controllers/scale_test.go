package controllers

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// bigWorld is a group with a finished run of all four collectives on every node.
func bigWorld(nodes int) *world {
	group := testGroup()
	group.Spec.Run.MaxParallelNodes = 20000
	group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	group.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather, v1alpha1.ReduceScatter, v1alpha1.AllToAll}
	group.Spec.Benchmark.MaxSizeBytes = 64 << 20
	w := newWorld(group, testNodes(nodes))
	w.step() // CommNodes
	w.reportFacts()
	w.step() // run
	w.step() // assignments
	i := 0
	for _, name := range sortedKeys(w.commNodes) {
		cn := w.commNodes[name]
		cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, 300_000+int64(i%1000), w.now)
		i++
	}
	w.step()
	return w
}

// TestStatusStaysSmall: the parent's status stays under 64 KiB at any number of members and however long their words.
func TestStatusStaysSmall(t *testing.T) {
	w := bigWorld(12_500)
	if v := w.group.Status.Run.Verdict; v != v1alpha1.VerdictPass {
		t.Fatalf("verdict %s", v)
	}
	checkSize(t, "all passed", &w.group.Status)

	long := strings.Repeat("long word ", 100)
	i := 0
	for _, name := range sortedKeys(w.commNodes) {
		r := w.commNodes[name].Status.Run
		r.Verdict, r.Reason, r.Message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink, long
		r.Settings = nil
		for j := range 80 {
			r.Settings = append(r.Settings, v1alpha1.SettingStatus{Name: fmt.Sprintf("env.NCCL_%s_%d", strings.Repeat("X", 100), j),
				Requested: long[:256], Effective: v1alpha1.EffectiveNotInEffect, Reason: v1alpha1.SettingReasonUnknownVariable,
				Verified: v1alpha1.VerifiedUnknown, Message: long[:512]})
		}
		for j := range 8 {
			r.Culprits = append(r.Culprits, v1alpha1.Culprit{Node: w.commNodes[name].Spec.NodeName, Kind: "Link",
				Name: fmt.Sprintf("0000:%02x:00.0<->0000:%02x:00.0", j, j+8), Reason: v1alpha1.ReasonSlowLink, Message: long[:512]})
		}
		for j := range 16 {
			e := v1alpha1.DataErrors{Variant: v1alpha1.VariantLowPrecision, Datatype: v1alpha1.Datatype(fmt.Sprint("Datatype", j)), Data: v1alpha1.DataActivations}
			for k := range 16 {
				e.Collectives, e.SizeBytes = append(e.Collectives, v1alpha1.ReduceScatter), append(e.SizeBytes, 1<<34+int64(k))
				for _, list := range []*[]int64{&e.MaxErrorPPM, &e.MeanErrorPPM, &e.CheckedElements, &e.NaNElements, &e.OverflowElements} {
					*list = append(*list, 1<<40)
				}
			}
			r.DataErrors = append(r.DataErrors, e)
		}
		w.commNodes[name].Spec.Run.Platform = nil // so that other facts make no result stale
		f := w.commNodes[name].Status.Facts
		f.ROCm.Version, f.Driver.Version, f.KernelRelease = fmt.Sprint("7.", i), fmt.Sprint("6.", i), long[:120]+fmt.Sprint(i)
		i++
	}
	w.group.Spec.Gating.Mode = v1alpha1.GatingDryRun
	w.step()
	s := &w.group.Status
	checkSize(t, "all failed, all different", s)
	if len(s.Culprits) != 16 || len(s.WouldGate) != 16 || len(s.Inventory) > 32 || len(s.Settings) > 80 || len(s.DataErrors) > 16 {
		t.Errorf("lists: %d culprits, %d wouldGate, %d inventory, %d settings", len(s.Culprits), len(s.WouldGate), len(s.Inventory), len(s.Settings))
	}
}

func checkSize(t *testing.T, what string, status *v1alpha1.CommGroupStatus) {
	t.Helper()
	data, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) >= 64<<10 {
		t.Errorf("%s: the status has %d bytes, at most 65535 are allowed", what, len(data))
	}
	t.Logf("%s: %d bytes of status", what, len(data))
}

// BenchmarkDecide12500 is one whole decision for 12,500 members with a finished run.
func BenchmarkDecide12500(b *testing.B) {
	s := bigWorld(12_500).snapshot()
	b.ReportAllocs()
	for b.Loop() {
		Decide(s, testConfig)
	}
}

// staleWorld is bigWorld with one node that was rebooted after its run.
func staleWorld(nodes int) *world {
	w := bigWorld(nodes)
	w.reboot("n00042", "boot-2")
	return w
}

// TestOneStaleOfMany: at 12,500 members one reboot costs one run, and neither many writes nor much more of the controller's
// time than a decision without it.
func TestOneStaleOfMany(t *testing.T) {
	const nodes = 12_500
	w := staleWorld(nodes)
	for i, want := range []int{1, 1, 0} { // marked stale; assigned; pod made
		d := w.step()
		if len(d.CommNodes) != want || d.Status.Run.Trigger != triggerNodesChanged {
			t.Fatalf("step %d writes %d CommNodes in run %+v, expected %d", i, len(d.CommNodes), d.Status.Run, want)
		}
	}
	if len(w.pods) != 1 || w.podOn("n00042") == nil {
		t.Fatalf("%d pods", len(w.pods))
	}
	checkSize(t, "one stale", &w.group.Status)
	w.measure(v1alpha1.VerdictPass, "n00042")
	if m := w.group.Status.Members; m.Passed != nodes || w.group.Status.Run.Verdict != v1alpha1.VerdictPass {
		t.Fatalf("members %+v, run %+v", m, w.group.Status.Run)
	}

	cost := func(w *world) (objects, bytes uint64, took time.Duration) {
		s := w.snapshot()
		Decide(s, testConfig)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		Decide(s, testConfig)
		took = time.Since(start)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc, took
	}
	plainObjects, plainBytes, plain := cost(bigWorld(nodes))
	objects, bytes, took := cost(staleWorld(nodes))
	t.Logf("without a stale node %d allocations, %d MB, %v; with one %d, %d MB, %v: ratios %.3f, %.3f, %.3f", plainObjects, plainBytes/1e6, plain,
		objects, bytes/1e6, took, float64(objects)/float64(plainObjects), float64(bytes)/float64(plainBytes), took.Seconds()/plain.Seconds())
	if float64(objects) > 1.1*float64(plainObjects) || float64(bytes) > 1.1*float64(plainBytes) {
		t.Errorf("one stale node makes a decision cost %d allocations instead of %d", objects, plainObjects)
	}
}
