package controllers

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// bigWorld is a group with a finished run of all four collectives on every node.
func bigWorld(nodes int) *world {
	group := testkit.Group()
	group.Spec.Run.MaxParallelNodes = 20000
	group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	group.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather,
		v1alpha1.ReduceScatter, v1alpha1.AllToAll}
	group.Spec.Benchmark.MaxSizeBytes = 64 << 20
	w := newWorld(group, testkit.Nodes(nodes))
	w.step() // CommTasks
	w.reportFacts()
	w.step() // run
	w.step() // assignments
	i := 0
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		ct := w.commTasks[name]
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000+int64(i%1000), w.now)
		i++
	}
	w.step()
	return w
}

// TestStatusStaysSmall: the parent's status stays under 64 KiB at any number of members and however long their words.
func TestStatusStaysSmall(t *testing.T) {
	w := bigWorld(testenv.Draws(1_500, 12_500))
	if v := w.group.Status.Run.Verdict; v != v1alpha1.VerdictPass {
		t.Fatalf("verdict %s", v)
	}
	checkSize(t, "all passed", &w.group.Status)

	// The nodes share the lists that no node has of its own: each would be the same, and together they were gigabytes.
	long := strings.Repeat("long word ", 100)
	var settings []v1alpha1.SettingStatus
	for j := range 80 {
		settings = append(settings,
			v1alpha1.SettingStatus{Name: fmt.Sprintf("env.NCCL_%s_%d", strings.Repeat("X", 100), j),
				Requested: long[:256], Effective: v1alpha1.EffectiveNotInEffect,
				Reason: v1alpha1.SettingReasonUnknownVariable, Verified: v1alpha1.VerifiedUnknown, Message: long[:512]})
	}
	var dataErrors []v1alpha1.DataErrors
	for j := range 16 {
		e := v1alpha1.DataErrors{Variant: v1alpha1.VariantLowPrecision,
			Datatype: v1alpha1.Datatype(fmt.Sprint("Datatype", j)), Data: v1alpha1.DataActivations}
		for k := range 16 {
			e.Collectives, e.SizeBytes = append(e.Collectives, v1alpha1.ReduceScatter),
				append(e.SizeBytes, 1<<34+int64(k))
			for _, list := range []*[]int64{&e.MaxErrorPPM, &e.MeanErrorPPM, &e.CheckedElements, &e.NaNElements,
				&e.OverflowElements} {
				*list = append(*list, 1<<40)
			}
		}
		dataErrors = append(dataErrors, e)
	}
	i := 0
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		r := w.commTasks[name].Status.Run
		r.Verdict, r.Reason, r.Message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink, long
		r.Settings, r.DataErrors = settings, dataErrors
		for j := range 8 {
			r.Culprits = append(r.Culprits, v1alpha1.Culprit{Node: w.commTasks[name].Spec.NodeName, Kind: "Link",
				Name: fmt.Sprintf("0000:%02x:00.0<->0000:%02x:00.0", j, j+8), Reason: v1alpha1.ReasonSlowLink,
				Message: long[:512]})
		}
		w.commTasks[name].Spec.Run.Platform = nil // so that other facts make no result stale
		f := w.factsOn(w.commTasks[name].Spec.NodeName)
		f.ROCm.Version, f.Driver.Version, f.KernelRelease = fmt.Sprint("7.", i), fmt.Sprint("6.", i),
			long[:120]+fmt.Sprint(i)
		i++
	}
	w.group.Spec.Gating.Mode, w.group.Spec.Gating.MaxPercent = v1alpha1.GatingDryRun, ptr.To(int32(100))
	w.step()
	s := &w.group.Status
	checkSize(t, "all failed, all different", s)
	if len(s.Culprits) != 16 || len(s.WouldGate) != 16 || len(s.Inventory) > 32 || len(s.Settings) > 80 ||
		len(s.DataErrors) > 16 {
		t.Errorf("lists: %d culprits, %d wouldGate, %d inventory, %d settings",
			len(s.Culprits), len(s.WouldGate), len(s.Inventory), len(s.Settings))
	}
}

func checkSize(t *testing.T, what string, status *state.Status) {
	t.Helper()
	group, run := (&state.Group{Status: *status}).Objects()
	t.Logf("%s: CommGroup's status %d bytes, CommRun %d", what, testkit.SizeOf(t, group.Status), testkit.SizeOf(t, run))
	if n := testkit.SizeOf(t, group.Status); n > commgroup.MaxGroupBytes {
		t.Errorf("%s: the CommGroup's status has %d bytes, at most %d are allowed", what, n, commgroup.MaxGroupBytes)
	}
	if n := testkit.SizeOf(t, run); n > commgroup.MaxRunBytes {
		t.Errorf("%s: the CommRun has %d bytes, at most %d are allowed", what, n, commgroup.MaxRunBytes)
	}
}

// BenchmarkDecide12500 is one whole decision for 12,500 members with a finished run.
func BenchmarkDecide12500(b *testing.B) {
	s := bigWorld(12_500).snapshot()
	b.ReportAllocs()
	for b.Loop() {
		Decide(s, testConfig)
	}
}

// BenchmarkDecideGroup12500 is one whole decision for 12,500 members of span Group while the group's stage searches for
// a node that hangs: all sessions are there, tests are under way, and nothing was reported since.
func BenchmarkDecideGroup12500(b *testing.B) {
	w := newGroupWorld(b, 12_500, faults{hangNodes: []int{777}}, func(g *state.Group) {
		g.Spec.Run.NodeDeadlineSeconds = 86400
	})
	for w.span() == nil || w.span().Stage != v1alpha1.StageLocalizing {
		w.step()
		if !w.playNodes() && !w.playAgents() {
			w.now = w.now.Add(time.Second)
		}
	}
	for range 5 {
		w.step() // the round's tests are given out
	}
	if w.group.Status.Run.Phase != v1alpha1.RunPhaseRunning || len(w.span().Tests) < 2 {
		b.Fatalf("%+v", w.span())
	}
	s := w.snapshot()
	b.ReportAllocs()
	for b.Loop() {
		Decide(s, testConfig)
	}
}

// cost of one decision, in allocations and bytes; the second of two, so that nothing that is made once counts.
func cost(s *Snapshot) (objects, bytes uint64) {
	Decide(s, testConfig)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Decide(s, testConfig)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// TestOneStaleOfMany: of many members one reboot costs one run, and neither many writes nor much more of the
// controller's time than a decision without it.
func TestOneStaleOfMany(t *testing.T) {
	const nodes = 2_000
	w := bigWorld(nodes)
	plainObjects, plainBytes := cost(w.snapshot())
	w.reboot("n00042", "boot-2")
	objects, bytes := cost(w.snapshot())
	t.Logf("without a stale node %d allocations, %d kB; with one %d, %d kB",
		plainObjects, plainBytes/1e3, objects, bytes/1e3)
	if float64(objects) > 1.1*float64(plainObjects) || float64(bytes) > 1.1*float64(plainBytes) {
		t.Errorf("one stale node makes a decision cost %d allocations and %d B instead of %d and %d B",
			objects, bytes, plainObjects, plainBytes)
	}

	for i, want := range []int{1, 1, 0} { // marked stale; assigned; pod made
		d := w.step()
		if len(d.CommTasks) != want || d.Status.Run.Trigger != state.TriggerNodesChanged {
			t.Fatalf("step %d writes %d CommTasks in run %+v, expected %d", i, len(d.CommTasks), d.Status.Run, want)
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
}

// TestSteadyDecisionCostsLittle: a decision on a finished run writes nothing where nothing changed, and what it
// allocates for a member is far less than a copy of its CommTask's metadata and a comparison of its plan would be (150
// objects and more).
func TestSteadyDecisionCostsLittle(t *testing.T) {
	few, many := bigWorld(500), bigWorld(2_000)
	few.settle()
	many.settle()
	if d := many.step(); len(d.CommTasks) > 0 {
		t.Fatalf("%d CommTasks are written in a steady group", len(d.CommTasks))
	}
	fewObjects, fewBytes := cost(few.snapshot())
	manyObjects, manyBytes := cost(many.snapshot())
	t.Logf("500 members: %d allocations, %d kB; 2000: %d, %d kB", fewObjects, fewBytes/1e3, manyObjects, manyBytes/1e3)
	const perMember, perMemberBytes = 60, 16_000
	if manyObjects-fewObjects > 1_500*perMember || manyBytes-fewBytes > 1_500*perMemberBytes {
		t.Errorf("1500 members more cost %d allocations and %d B more, want at most %d allocations and %d B for each",
			manyObjects-fewObjects, manyBytes-fewBytes, perMember, perMemberBytes)
	}
}
