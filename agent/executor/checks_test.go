package executor

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// acceptancePlan measures what AMD's acceptance mark for one node is of.
func acceptancePlan() api.RunPlan {
	p := defaultPlan()
	p.Variants, p.Collectives, p.Datatypes, p.Placements = p.Variants[:1], p.Collectives[:1],
		[]api.Datatype{api.Float32}, []api.Placement{api.InPlace}
	p.SizesBytes = []int64{1 << 30, 8 << 30}
	return p
}

// acceptance is the run of such a plan in which 8 GiB take so long; 1 GiB takes an eighth.
func acceptance(t *testing.T, plan api.RunPlan, nanoseconds int64,
	platform func(*api.PlatformFacts)) api.NodeRunStatus {
	t.Helper()
	teams := &modelTeams{latency: func(_ rcclx.Variant, _ rcclx.Collective, size int64) int64 {
		return nanoseconds * (size >> 20) / (8 << 10)
	}}
	res, _, err := runModel(t, plan, teams, func(_ *Runner, m *memoryReporter) {
		m.assignment.Run.Platform = &api.PlatformFacts{Model: "MI300X", Partition: "SPX/NPS1", Devices: 8, Mesh: "Full"}
		if platform != nil {
			platform(m.assignment.Run.Platform)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.Full
}

// Bus bandwidth of 8 GiB over eight ranks is 15032385536 B over the time: 304000 MB/s are 49448636 ns.
const atTheMark = 49_448_636

func TestReferenceDecides(t *testing.T) {
	for _, tc := range []struct {
		name        string
		nanoseconds int64
		plan        func(*api.RunPlan)
		platform    func(*api.PlatformFacts)
		verdict     api.Verdict
		state       api.CheckState // of the worst check that is no Informative one
		words       string         // in message, measurement or causes
	}{
		{"at the mark", atTheMark - 1, nil, nil, api.VerdictPass, api.CheckMet, ""},
		{"below it", atTheMark + 200_000, nil, nil, api.VerdictFail, api.CheckNotMet,
			"measured 302.8 GB/s, expected at least 304.0 GB/s (amd-acceptance-mi300x): 99 %"},
		{"as over PCIe", 12 * atTheMark, nil, nil, api.VerdictFail, api.CheckNotMet, "may not use xGMI"},
		{"below it, only reported", 2 * atTheMark, func(p *api.RunPlan) { p.References = api.JudgingReport }, nil,
			api.VerdictPass, api.CheckNotMet, ""},
		{"another model", 2 * atTheMark, nil, func(f *api.PlatformFacts) { f.Model = "MI308X" }, api.VerdictPass,
			api.CheckNotMeasured, "no built-in reference is known for MI308X"},
		{"the model is not known", 2 * atTheMark, nil, func(f *api.PlatformFacts) { f.Model = "unknown" },
			api.VerdictPass, api.CheckNotMeasured, "unknown model"},
		{"partitioned", 2 * atTheMark, nil, func(f *api.PlatformFacts) { f.Partition = "CPX/NPS4" }, api.VerdictPass,
			api.CheckNotMeasured, "partition CPX/NPS4 instead of SPX/NPS1"},
		{"another datatype", 2 * atTheMark, func(p *api.RunPlan) { p.Datatypes = []api.Datatype{api.BFloat16} }, nil,
			api.VerdictPass, api.CheckNotMeasured, "datatypes: [Float32]"},
		{"out of place", 2 * atTheMark, func(p *api.RunPlan) { p.Placements = nil }, nil, api.VerdictPass,
			api.CheckNotMeasured, "placements: [InPlace]"},
		{"another size", 2 * atTheMark, func(p *api.RunPlan) { p.SizesBytes = []int64{4 << 30} }, nil, api.VerdictPass,
			api.CheckNotMeasured, "a size of 8589934592 B (the largest was 4294967296 B)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := acceptancePlan()
			if tc.plan != nil {
				tc.plan(&plan)
			}
			s := acceptance(t, plan, tc.nanoseconds, tc.platform)
			var c *api.PerformanceCheck
			for i := range s.Checks {
				if c == nil && !strings.HasPrefix(s.Checks[i].Source, "seen-") {
					c = &s.Checks[i]
				}
			}
			if c == nil || s.Verdict != tc.verdict || c.State != tc.state {
				t.Fatalf("%s: %s; checks %+v", s.Verdict, s.Message, s.Checks)
			}
			if all := s.Message + c.Measurement + strings.Join(c.Causes, " "); !strings.Contains(all, tc.words) {
				t.Errorf("%q lacks %q", all, tc.words)
			}
			if s.Verdict == api.VerdictFail &&
				(s.Reason != api.ReasonBelowThreshold || !strings.Contains(s.Message, "; look at: ")) {
				t.Errorf("%s: %s", s.Reason, s.Message)
			}
		})
	}
	plan := acceptancePlan()
	plan.References = api.JudgingOff
	if s := acceptance(t, plan, 2*atTheMark, nil); s.Verdict != api.VerdictPass || len(s.Checks) != 0 {
		t.Errorf("references Off: %s %+v", s.Verdict, s.Checks)
	}
}

// TestThresholdThatDoesNotApply: a key that the node does not have leaves the threshold out, and that is said.
func TestThresholdThatDoesNotApply(t *testing.T) {
	plan := acceptancePlan()
	plan.References = api.JudgingOff
	for _, tc := range []struct {
		name    string
		key     func(*api.Threshold)
		verdict api.Verdict
		state   api.CheckState
		words   string
	}{
		{"applies", func(*api.Threshold) {}, api.VerdictFail, api.CheckNotMet, ""},
		{"span", func(th *api.Threshold) { th.Span = api.SpanGroup }, api.VerdictPass, "", ""},
		{"model", func(th *api.Threshold) { th.Model = "MI325X" }, api.VerdictPass, api.CheckNotMeasured,
			"model MI325X, and this is MI300X"},
		{"partition", func(th *api.Threshold) { th.Partition = "CPX/NPS4" }, api.VerdictPass, api.CheckNotMeasured,
			"partition CPX/NPS4, and this is SPX/NPS1"},
		{"ranks", func(th *api.Threshold) { th.Ranks = ptr.To(int32(4)) }, api.VerdictPass, api.CheckNotMeasured,
			"4 ranks, and these are 8"},
		{"nodes", func(th *api.Threshold) { th.Nodes = ptr.To(int32(2)) }, api.VerdictPass, api.CheckNotMeasured,
			"2 nodes, and these are 1"},
		{"transport", func(th *api.Threshold) { th.Transport = "RDMA" }, api.VerdictPass, api.CheckNotMeasured,
			"transport RDMA, and this is none, within one node"},
		{"flavor", func(th *api.Threshold) { th.Flavor = "rccl" }, api.VerdictPass, api.CheckNotMeasured,
			"flavor rccl, and this is simulated"},
		{"flavor that is imitated", func(th *api.Threshold) { th.Flavor = "rcclx-dev" }, api.VerdictFail,
			api.CheckNotMet, ""},
		{"variant", func(th *api.Threshold) { th.Variant = api.VariantDDA }, api.VerdictInconclusive,
			api.CheckNotMeasured, "was not measured"},
		{"collective", func(th *api.Threshold) { th.Collective = api.AllGather }, api.VerdictInconclusive,
			api.CheckNotMeasured, "was not measured"},
		{"datatype", func(th *api.Threshold) { th.Datatype = api.BFloat16 }, api.VerdictInconclusive,
			api.CheckNotMeasured, "was not measured"},
		{"placement", func(th *api.Threshold) { th.Placement = api.OutOfPlace }, api.VerdictInconclusive,
			api.CheckNotMeasured, "was not measured"},
		{"size", func(th *api.Threshold) { th.SizeBytes = 2 << 30 }, api.VerdictInconclusive, api.CheckNotMeasured,
			"1073741824, 8589934592"},
		{"statistic that was not measured", func(th *api.Threshold) { th.Statistic = api.StatisticP5 },
			api.VerdictInconclusive, api.CheckNotMeasured, "5th percentile was not measured"},
		{"percent of the reference", func(th *api.Threshold) {
			th.MinBusBandwidthMBps, th.MinPercentOfReference = nil, ptr.To(int32(60))
		}, api.VerdictFail, api.CheckNotMet, ""},
		{"percent that is reached", func(th *api.Threshold) {
			th.MinBusBandwidthMBps, th.MinPercentOfReference = nil, ptr.To(int32(50))
		}, api.VerdictPass, api.CheckMet, ""},
		{"percent of a reference that is not there", func(th *api.Threshold) {
			th.SizeBytes, th.MinBusBandwidthMBps, th.MinPercentOfReference = 2<<30, nil, ptr.To(int32(50))
		}, api.VerdictInconclusive, api.CheckNotMeasured, ""},
	} {
		th := api.Threshold{Collective: api.AllReduce, Datatype: api.Float32, Placement: api.InPlace,
			SizeBytes: 8 << 30, MinBusBandwidthMBps: ptr.To(int64(160_000))}
		tc.key(&th)
		plan.Thresholds = []api.Threshold{th}
		s := acceptance(t, plan, 2*atTheMark-2, nil)
		if tc.state == "" {
			if s.Verdict != tc.verdict || len(s.Checks) != 0 {
				t.Errorf("%s: %s, checks %+v", tc.name, s.Verdict, s.Checks)
			}
			continue
		}
		if s.Verdict != tc.verdict || len(s.Checks) != 1 || s.Checks[0].State != tc.state ||
			!strings.Contains(strings.Join(s.Checks[0].Causes, " "), tc.words) {
			t.Errorf("%s: %s: %s; checks %+v", tc.name, s.Verdict, s.Message, s.Checks)
		}
	}
	plan.Thresholds = []api.Threshold{{Collective: api.AllReduce, Datatype: api.Float32, Placement: api.InPlace,
		SizeBytes: 8 << 30, Model: "MI300X", MinBusBandwidthMBps: ptr.To(int64(1))}}
	s := acceptance(t, plan, atTheMark, func(f *api.PlatformFacts) { f.Model = "unknown" })
	if s.Verdict != api.VerdictInconclusive ||
		!strings.Contains(s.Message, "whether the threshold applies is not known: it names model MI300X") {
		t.Errorf("an unknown model: %s: %s", s.Verdict, s.Message)
	}
}

func TestHostFacts(t *testing.T) {
	gpu := func(address string, power, uptime uint64) discover.GPU {
		return discover.GPU{PCIAddress: address, Metrics: &discover.Metrics{AccumulationCounter: &uptime,
			ThrottleAccumulators: map[string]uint64{discover.ThrottlePower: power}}}
	}
	own := &discover.Facts{Model: "MI300X", Partition: "SPX/NPS1",
		GPUs: []discover.GPU{gpu("0000:05:00.0", 5, 1000), gpu("0000:25:00.0", 250, 1000), gpu("0000:45:00.0", 1, 0)}}
	monitor := &api.PlatformFacts{Model: "MI325X", Partition: "CPX/NPS1", Devices: 8, Mesh: "Incomplete"}
	h := hostFacts(monitor, own)
	if h != (HostFacts{Model: "MI300X", Partition: "SPX/NPS1", Mesh: "Incomplete", GPUs: 8,
		Throttled: "GPU 0000:25:00.0 25 % of the time since the driver was loaded (power)"}) {
		t.Errorf("%+v", h)
	}
	if h = hostFacts(monitor, &discover.Facts{Model: "unknown", Partition: "unknown"}); h.Model != "MI325X" ||
		h.Partition != "CPX/NPS1" {
		t.Errorf("%+v", h)
	}
	if h = hostFacts(nil, nil); h != (HostFacts{}) {
		t.Errorf("%+v", h)
	}
}

// TestCausesOfARun: what was seen on the node stands first.
func TestCausesOfARun(t *testing.T) {
	plan := acceptancePlan()
	plan.Env = []api.EnvVar{{Name: "NCCL_MAX_NCHANNELS", Value: "4"}}
	e := Evidence{Node: "n", Plan: plan, Ranks: 8,
		Host: HostFacts{Model: "MI300X", Partition: "SPX/NPS1", Mesh: "Full", GPUs: 8},
		Prepared: Prepared{Preconditions: []preflight.Finding{{Name: preflight.NUMABalancing, State: preflight.Warning,
			Rank: -1}, {Name: preflight.IOMMU, State: preflight.Met, Rank: -1}}}}
	table := Table{Ranks: 8, Series: []Series{{SeriesKey{rcclx.Baseline, rcclx.AllReduce, rcclx.Float32, rcclx.InPlace},
		[]Cell{{SizeBytes: 8 << 30, MovedBytes: 8 << 30, LatencyNanoseconds: 2 * atTheMark}}}}}
	got := judgeChecks(e, table, LinkFindings{Probe: &api.LinkProbe{MedianMBps: 48000, MinMBps: 40000,
		Slowest: "0000:05:00.0<->0000:25:00.0"}}, nil)
	want := []string{"the link 0000:05:00.0<->0000:25:00.0 moves 40.0 GB/s, 83 %", "kernel.numa_balancing is on",
		"measure once without NCCL_MAX_NCHANNELS", "compare clocks"}
	if len(got) == 0 || len(got[0].Causes) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, words := range want {
		if !strings.Contains(got[0].Causes[i], words) {
			t.Errorf("cause %d is %q, expected %q", i, got[0].Causes[i], words)
		}
	}
}
