package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// wholeCommTask is a CommTask with the given report.
func wholeCommTask(run api.NodeRunStatus) api.CommTask {
	node := api.CommTask{
		TypeMeta: metav1.TypeMeta{APIVersion: "rcclx.io/v1alpha1", Kind: "CommTask"},
		ObjectMeta: metav1.ObjectMeta{Name: "training.gpu-node-0001", Namespace: "ml-platform",
			UID: "5f0c2c5e-1111-4000-8000-000000000000", Generation: 4, ResourceVersion: "123456",
			CreationTimestamp: metav1.Unix(1_790_000_000, 0),
			Labels: map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator",
				api.LabelGroup: "training", api.LabelGroupNamespace: "ml-platform",
				api.LabelGroupUID: "5f0c2c5e-3333-4000-8000-000000000000", api.LabelNode: "gpu-node-0001"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "rcclx.io/v1alpha1",
				Kind: "CommGroup", Name: "training", UID: "5f0c2c5e-3333-4000-8000-000000000000",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}},
		Spec: api.CommTaskSpec{NodeName: "gpu-node-0001", NodeUID: "5f0c2c5e-2222-4000-8000-000000000000",
			Group: api.GroupReference{Name: "training", UID: "5f0c2c5e-3333-4000-8000-000000000000"},
			Ranks: api.RankRange{Summary: "0-7/32", Count: 8, WorldSize: 32}, Run: &api.RunAssignment{ID: run.ID,
				Generation: 3, Name: "training-1", PodName: "training-3-1-gpu-node-0001-932d020b",
				Platform: &api.PlatformFacts{BootID: "5f0c2c5e-0000-4000-8000-000000000000", Driver: "6.12.12",
					ROCm: "7.0.2, RCCL 2.26.6", Partition: "SPX/NPS1", Firmware: "MEC 166, SDMA 22",
					GPUs: "8/1f0c22ab", Model: "MI300X", Mesh: "Full", Devices: 8}}},
		Status: api.CommTaskStatus{Run: &run},
	}
	return node
}

// assignmentOf is what KubeTask reads from such a CommTask.
func assignmentOf(plan api.RunPlan) Assignment {
	node := wholeCommTask(api.NodeRunStatus{ID: "run-1"})
	node.Status.Run = nil
	return Assignment{Run: node.Spec.Run, Plan: plan, Ranks: int(node.Spec.Ranks.Count),
		BudgetBytes: reportBudget(node)}
}

// TestReportBudget: a run's report and a session's have a share each, so that neither leaves the other too little.
func TestReportBudget(t *testing.T) {
	usual := wholeCommTask(api.NodeRunStatus{ID: "run-1"})
	budget := reportBudget(usual)
	if budget < 7800 || budget > 8400 {
		t.Errorf("a report gets %d bytes, expected 7800 to 8400", budget)
	}
	usual.Status.Session = &api.SessionStatus{RunID: "run-0", Message: strings.Repeat("m", 1000)}
	if got := reportBudget(usual); got != budget {
		t.Errorf("beside a session's report a run's gets %d bytes, expected %d", got, budget)
	}
	usual.Status.Run = &api.NodeRunStatus{ID: "run-1", Message: strings.Repeat("m", budget-100)}
	if got := sessionBudget(usual); got < mostBytes-100 {
		t.Errorf("beside a full report a session's gets %d bytes, expected %d", got, mostBytes)
	}
	usual.Annotations = map[string]string{"note": strings.Repeat("m", taskBytes)}
	if got := reportBudget(usual); got != leastReportBytes {
		t.Errorf("in a very large object a report gets %d bytes, expected %d", got, leastReportBytes)
	}
}

func TestDefaultReportFitsItsBudget(t *testing.T) {
	plan := defaultPlan()
	for name, tc := range map[string]struct {
		teams *modelTeams
		sizes int // that each Baseline series keeps at least
	}{
		"pass": {&modelTeams{relErr: 40000}, 9},
		"two slow links": {&modelTeams{relErr: 40000, pairMBps: func(a, b int) int64 {
			if a == 0 && b == 1 || a == 2 && b == 3 {
				return 100
			}
			return 48000
		}}, 5},
		"large latencies": {&modelTeams{relErr: 40000,
			latency: func(_ rcclx.Variant, _ rcclx.Collective, size int64) int64 { return 1_234_567_890 + size }}, 9},
	} {
		teams := tc.teams
		res, _, err := runModel(t, plan, teams, nil)
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(wholeCommTask(res.Status)); err != nil {
			t.Fatal(err)
		}
		data := buf.Bytes()
		t.Logf("%s: CommTask %d bytes, status.run %d bytes, %d sizes",
			name, len(data), encodedBytes(res.Status), len(res.Status.Results[0].SizeBytes))
		if len(data) > taskBytes {
			t.Errorf("%s: CommTask takes %d bytes, expected at most %d", name, len(data), taskBytes)
		}
		if got := len(res.Status.Results[0].SizeBytes); got < tc.sizes {
			t.Errorf("%s: Baseline has %d sizes, expected at least %d", name, got, tc.sizes)
		}
		if got := len(res.Status.Results); got != 12 {
			t.Errorf("%s: %d series, expected 12", name, got)
		}
	}
}

func TestFitKeepsEndsAndThresholds(t *testing.T) {
	s := api.NodeRunStatus{ID: "r", Verdict: api.VerdictPass}
	sizes := rcclx.Sizes(1024, 1<<34, 2)
	for _, v := range []api.Variant{api.VariantBaseline, api.VariantDDA, api.VariantLowPrecision} {
		for i := range 12 {
			r := api.ResultSeries{Variant: v, Collective: api.AllReduce, Datatype: api.Datatype(fmt.Sprint("D", i))}
			for _, size := range sizes {
				r.SizeBytes = append(r.SizeBytes, size)
				r.LatencyNanoseconds = append(r.LatencyNanoseconds, size)
				r.BusBandwidthMBps = append(r.BusBandwidthMBps, -size)
			}
			s.Results = append(s.Results, r)
		}
	}
	keep := []int64{4096}
	got := FitRun(s, 5000, keep)
	for _, r := range got.Results {
		if r.SizeBytes[0] != sizes[0] || r.SizeBytes[len(r.SizeBytes)-1] != sizes[len(sizes)-1] ||
			!slices.Contains(r.SizeBytes, 4096) {
			t.Fatalf("sizes %v", r.SizeBytes)
		}
		for k, size := range r.SizeBytes {
			if r.LatencyNanoseconds[k] != size || r.BusBandwidthMBps[k] != -size {
				t.Fatalf("columns of %v went out of step", r)
			}
		}
	}
	if len(s.Results[0].SizeBytes) != len(sizes) {
		t.Error("Fit changed its argument")
	}
}

// TestNoiseGivesWayToSizes: it stays in step with the sizes, and goes before a size at which the setting acts.
func TestNoiseGivesWayToSizes(t *testing.T) {
	sizes := rcclx.Sizes(1024, 64<<20, 4)
	s := api.NodeRunStatus{ID: "r", Verdict: api.VerdictPass,
		Settings: []api.SettingStatus{{Name: "dda.AllReduce", Requested: "Preferred", Effective: api.EffectivePartial,
			MaxBytes: &sizes[2]}}}
	for _, v := range []api.Variant{api.VariantBaseline, api.VariantDDA} {
		r := api.ResultSeries{Variant: v, Collective: api.AllReduce, Datatype: api.BFloat16}
		for i, size := range sizes {
			r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, size),
				append(r.LatencyNanoseconds, size), append(r.BusBandwidthMBps, size)
			r.NoisePercent = append(r.NoisePercent, int32(i+1))
		}
		s.Results = append(s.Results, r)
	}
	whole := encodedBytes(s)
	fewer := FitRun(s, whole-1, nil).Results[1]
	if len(fewer.SizeBytes) == len(sizes) || len(fewer.NoisePercent) != len(fewer.SizeBytes) {
		t.Fatalf("%+v", fewer)
	}
	for k, size := range fewer.SizeBytes {
		if fewer.NoisePercent[k] != int32(slices.Index(sizes, size)+1) {
			t.Errorf("noise went out of step with the sizes: %+v", fewer)
		}
	}
	without := FitRun(s, whole-110, nil)
	if without.Results[0].NoisePercent != nil || len(without.Results[0].SizeBytes) != len(sizes) {
		t.Errorf("a size went before the noise: %+v", without.Results)
	}
}

// TestLargestPlanFitsItsBudget: of the most series that the API admits, Baseline's stay and the rest is counted.
func TestLargestPlanFitsItsBudget(t *testing.T) {
	for name, change := range map[string]func(*api.RunPlan){
		"eight collectives of three datatypes": func(p *api.RunPlan) {
			p.Collectives = append(p.Collectives, api.AllToAllv, api.Broadcast, api.Reduce, api.SendRecv)
			p.Datatypes = []api.Datatype{api.BFloat16, api.Float32, api.Float8E4M3}
		},
		"in place too": func(p *api.RunPlan) {
			p.Datatypes = []api.Datatype{api.BFloat16, api.Float32, api.Float8E4M3}
			p.Placements = []api.Placement{api.OutOfPlace, api.InPlace}
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := defaultPlan()
			plan.SizesBytes = rcclx.Sizes(64, 64<<20, 2)
			change(&plan)
			res, _, err := runModel(t, plan, &modelTeams{relErr: 40000, tailWrong: 5, activationNaNs: 12}, nil)
			if err != nil {
				t.Fatal(err)
			}
			node := wholeCommTask(res.Status)
			t.Logf("CommTask %d bytes, %d of %d series",
				encodedBytes(node), len(res.Status.Results), len(res.Full.Results))
			if n := encodedBytes(node); n > taskBytes {
				t.Errorf("CommTask takes %d bytes, expected at most %d", n, taskBytes)
			}
			count := func(results []api.ResultSeries) (baseline int) {
				for _, r := range results {
					if r.Variant == api.VariantBaseline {
						baseline++
					}
				}
				return baseline
			}
			if got, want := count(res.Status.Results), count(res.Full.Results); got != want ||
				res.Full.Verdict != api.VerdictPass {
				t.Errorf("%s: %d Baseline series of %d: %s", res.Full.Verdict, got, want, res.Full.Message)
			}
			if int(res.Status.OmittedSeries) != len(res.Full.Results)-len(res.Status.Results) {
				t.Errorf("%d series omitted, %d of %d are there",
					res.Status.OmittedSeries, len(res.Status.Results), len(res.Full.Results))
			}
			for _, s := range res.Status.Settings {
				if strings.HasPrefix(s.Name, "lowPrecision.AllReduce") &&
					!slices.Contains(s.Warnings, api.WarningTailHazard) {
					t.Errorf("the warning was given up: %+v", s)
				}
			}
		})
	}
}

func TestFitSession(t *testing.T) {
	s := api.SessionStatus{RunID: "run-1", State: api.SessionReady,
		Message: strings.Repeat("x", 1000), Network: &api.NetworkStatus{Interface: "eth0"},
		Task: &api.NodeTaskStatus{ID: "mesh-dp-1", Phase: api.TaskFinished}}
	for i := range 8 {
		c := api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", i), Verdict: api.VerdictFail,
			Reason: api.ReasonRankHung, Message: strings.Repeat("m", 512), Guilty: &api.Culprit{Node: "node-a",
				Kind: "GPU", Name: pci(0), Reason: "R", Message: strings.Repeat("g", 512)}}
		for range 3 {
			r := api.ResultSeries{Variant: api.VariantBaseline, Collective: api.AllReduce, Datatype: api.Float32,
				NoisePercent: []int32{1, 2, 3}}
			for k := range int64(20) {
				r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, 1024<<k),
					append(r.LatencyNanoseconds, 100000+k), append(r.BusBandwidthMBps, 300000+k)
			}
			c.Results = append(c.Results, r)
		}
		s.Task.Communicators = append(s.Task.Communicators, c)
	}
	for _, n := range []int{1, 2, 4, 8} {
		part := *s.DeepCopy()
		part.Task.Communicators = part.Task.Communicators[:n]
		if got := encodedBytes(FitSession(part, 1<<20, nil)); got > mostBytes {
			t.Errorf("%d communicators take %d bytes", n, got)
		}
	}
	small := FitSession(s, 0, nil)
	for i, c := range small.Task.Communicators {
		if c.Verdict != api.VerdictFail || c.Reason == "" || c.Guilty == nil || c.Guilty.Name != pci(0) ||
			len(c.Results)+int(c.OmittedSeries) != 3 {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if len(s.Task.Communicators[0].Results[0].SizeBytes) != 20 {
		t.Error("the report itself was changed")
	}
	over := *s.DeepCopy()
	over.Task.Communicators[0].UniqueID = make([]byte, 128)
	if got := FitSession(over, 0, nil); got.Task.Communicators[0].UniqueID != nil {
		t.Error("an id that nobody needs was kept where space is short")
	}
	ids := api.SessionStatus{
		Task: &api.NodeTaskStatus{Communicators: []api.TaskCommunicatorStatus{{UniqueID: make([]byte, 128)}}}}
	if got := FitSession(ids, 10, nil); len(got.Task.Communicators[0].UniqueID) != 128 {
		t.Error("an id was cut")
	}
}

func TestThin(t *testing.T) {
	for _, tc := range []struct {
		n, least int
		want     string
		keep     []int64
	}{{7, 3, "[0 2 4 6]", nil}, {6, 3, "[0 2 4 5]", nil}, {4, 3, "[0 2 3]", nil}, {3, 3, "[0 1 2]", nil},
		{3, 2, "[0 2]", nil}, {2, 2, "[0 1]", nil}, {1, 2, "[0]", nil}, {5, 2, "[0 2 4]", nil},
		{7, 2, "[0 1 3 5 6]", []int64{1, 5}}, {5, 2, "[0 1 3 4]", []int64{1, 3}}, {4, 2, "[0 1 2 3]", []int64{1, 2}}} {
		var r api.ResultSeries
		for i := range int64(tc.n) {
			r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, i),
				append(r.LatencyNanoseconds, i), append(r.BusBandwidthMBps, i)
		}
		thin(&r, tc.least, tc.keep)
		if got := fmt.Sprint(r.SizeBytes); got != tc.want || fmt.Sprint(r.BusBandwidthMBps) != tc.want ||
			fmt.Sprint(r.LatencyNanoseconds) != tc.want {
			t.Errorf("%d sizes, at least %d: %s, expected %s", tc.n, tc.least, got, tc.want)
		}
	}
}

// TestFitKeepsWhatJudges: whatever a spec may ask for, a series that stays in a report has its first and its last size
// and those of thresholds, those that do not stay are counted, and each communicator keeps its first while there is
// room.
func TestFitKeepsWhatJudges(t *testing.T) {
	collectives := []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll, api.Broadcast,
		api.Reduce, api.SendRecv, api.AllToAllv}
	for _, comms := range []int{1, 2, 8, 64} {
		for _, series := range []int{1, 4, 16, 24} {
			if comms*series > 256 {
				continue // larger than the largest status, and seconds of work
			}
			for _, sizes := range []int{1, 2, 12, 40} {
				for _, budget := range []int{2 << 10, 2900, 1 << 20} {
					s := api.SessionStatus{RunID: "run-1", State: api.SessionReady,
						SettingsHash: strings.Repeat("a", 64), Library: &api.LibraryFacts{Flavor: "rccl",
							Version: "2.28.3", Path: "/opt/rocm/lib/librccl.so.1"},
						Network: &api.NetworkStatus{Interface: "eth0", Addresses: []string{"10.0.0.1"}},
						Task:    &api.NodeTaskStatus{ID: "mesh-dp-1", Phase: api.TaskFinished}}
					var keep []int64
					for c := range comms {
						one := api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", c), Verdict: api.VerdictPass,
							Transport: "RDMA", UniqueID: make([]byte, 40)}
						for k := range series {
							r := api.ResultSeries{Variant: api.VariantBaseline, Collective: collectives[k%8],
								Datatype: api.BFloat16}
							for i := range int64(sizes) {
								r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, 1000+i),
									append(r.LatencyNanoseconds, 123456), append(r.BusBandwidthMBps, 312345)
							}
							one.Results = append(one.Results, r)
						}
						s.Task.Communicators = append(s.Task.Communicators, one)
					}
					if sizes == 12 {
						keep = []int64{1003, 1007}
					}
					got := FitSession(s, budget, keep)
					least := 0
					for _, c := range got.Task.Communicators {
						if least = max(least, len(c.Results)); len(c.Results)+int(c.OmittedSeries) != series ||
							c.Verdict != api.VerdictPass {
							t.Fatalf("%d communicators of %d series: %s has %d and says that %d are left out",
								comms, series, c.Name, len(c.Results), c.OmittedSeries)
						}
						for _, r := range c.Results {
							n := len(r.SizeBytes)
							if r.SizeBytes[0] != 1000 || r.SizeBytes[n-1] != 999+int64(sizes) ||
								len(r.LatencyNanoseconds) != n || len(r.BusBandwidthMBps) != n {
								t.Fatalf("%d communicators of %d series: sizes %v of %d",
									comms, series, r.SizeBytes, sizes)
							}
							if comms == 1 && len(keep) > 0 &&
								(!slices.Contains(r.SizeBytes, keep[0]) || !slices.Contains(r.SizeBytes, keep[1])) {
								t.Fatalf("%d series: sizes %v lack those of thresholds", series, r.SizeBytes)
							}
						}
						if comms <= 8 && budget > leastBytes && len(c.Results) == 0 {
							t.Errorf("%d communicators of %d series: none is left of %s", comms, series, c.Name)
						}
					}
					// Verdicts stay whatever they take; results only while there is room.
					if n := encodedBytes(got); n > max(leastBytes, min(mostBytes, budget)) && least > 0 || n > 6<<10 {
						t.Errorf("%d communicators of %d series of %d sizes: %d bytes of %d",
							comms, series, sizes, n, budget)
					}
				}
			}
		}
	}
}

// TestSpreadIsCutWithItsSizes: where a report has to be cut, each spread stays with its size or all are gone.
func TestSpreadIsCutWithItsSizes(t *testing.T) {
	var r api.ResultSeries
	for i := range 12 {
		r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, int64(i)),
			append(r.LatencyNanoseconds, 100_000), append(r.BusBandwidthMBps, 300_000)
		r.SpreadPercent = append(r.SpreadPercent, int32(i))
	}
	thin(&r, 3, nil)
	if len(r.SizeBytes) == 12 || fmt.Sprint(r.SizeBytes) != fmt.Sprint(r.SpreadPercent) {
		t.Errorf("sizes %v, spreads %v", r.SizeBytes, r.SpreadPercent)
	}
	s := api.SessionStatus{Task: &api.NodeTaskStatus{Phase: api.TaskFinished}}
	for i := range 16 {
		s.Task.Communicators = append(s.Task.Communicators, api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", i),
			Verdict: api.VerdictPass, Repeats: 3, Results: []api.ResultSeries{*r.DeepCopy()}})
	}
	got := FitSession(s, 1<<20, nil)
	for _, c := range got.Task.Communicators {
		if c.Repeats != 3 {
			t.Errorf("%s tells of %d repeats", c.Name, c.Repeats)
		}
		for _, r := range c.Results {
			if n := len(r.SpreadPercent); n != 0 && n != len(r.SizeBytes) {
				t.Errorf("%s has %d spreads of %d sizes", c.Name, n, len(r.SizeBytes))
			}
		}
	}
}

// TestChecksFitTheReport: as many and as long checks as the API takes leave the verdict and the worst of them, in any
// budget that a report can have.
func TestChecksFitTheReport(t *testing.T) {
	s := acceptance(t, acceptancePlan(), 2*atTheMark, nil)
	s.Checks = s.Checks[:1]
	s.Checks[0].Causes = []string{strings.Repeat("a", 200), strings.Repeat("b", 200), strings.Repeat("c", 200),
		strings.Repeat("d", 200)}
	worst := s.Checks[0]
	for len(s.Checks) < 16 {
		s.Checks = append(s.Checks, *worst.DeepCopy())
	}
	for _, budget := range []int{64 << 10, 9000, leastReportBytes} {
		got := FitRun(s, budget, nil)
		if n := encodedBytes(got); n > budget && budget > leastReportBytes {
			t.Errorf("%d bytes in a budget of %d", n, budget)
		}
		if len(got.Checks) == 0 || got.Checks[0].State != api.CheckNotMet ||
			*got.Checks[0].MeasuredMBps != *worst.MeasuredMBps || got.Verdict != api.VerdictFail {
			t.Errorf("budget %d: %+v", budget, got.Checks)
		}
		if budget == 64<<10 && len(got.Checks[15].Causes) != 4 {
			t.Error("words were dropped without need")
		}
	}
}
