package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func lines(b *bytes.Buffer) []string {
	var out []string
	for line := range strings.Lines(b.String()) {
		out = append(out, strings.TrimRight(line, " \n"))
	}
	return out
}

// TestABTable: a size that one variant did not reach shows as unknown, and a gain is only given where both were
// measured.
func TestABTable(t *testing.T) {
	group := &state.Group{Status: state.Status{Results: []v1alpha1.GroupResultSeries{
		{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1024, 65536}, LatencyNanoseconds: []int64{20000, 24000},
			BusBandwidthMBps: []int64{90, 4779}},
		{Variant: v1alpha1.VariantDDA, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1024}, LatencyNanoseconds: []int64{10000}, BusBandwidthMBps: []int64{179},
			WrongElements: 3},
		{Variant: v1alpha1.VariantLowPrecision, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{65536}, LatencyNanoseconds: []int64{24000}, BusBandwidthMBps: []int64{4779},
			MaxRelativeErrorPPM: ptr.To[int64](31250)},
	}}}
	var b bytes.Buffer
	if err := GroupAB(&b, group, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"AllReduce BFloat16, out of place (latency in us, bus bandwidth in GB/s = 10^9 bytes/s, gain against Baseline)",
		"SIZE  BASELINE us  GB/s  DDA us  GB/s  GAIN   LOWPRECISION us  GB/s  GAIN",
		"1K    20.0         0.09  10.0    0.18  2.00x  -                -     -",
		"64K   24.0         4.78  -       -     -      24.0             4.78  1.00x",
		"  DDA: 3 elements wrong",
		"  LowPrecision: largest relative error 3.12 %",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestOutcome: a report of another run never counts, and silence is not a verdict.
func TestOutcome(t *testing.T) {
	run := &v1alpha1.RunAssignment{ID: "2-5"}
	finished := func(id string) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{ID: id, Phase: v1alpha1.NodeRunFinished, Verdict: v1alpha1.VerdictPass,
			Reason: "AllPassed"}
	}
	closed := &v1alpha1.RunAssignment{ID: "2-5",
		Closed: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: "RunPodFailed"}}
	stale := &v1alpha1.RunAssignment{ID: "2-5", Stale: &v1alpha1.RunStaleness{Reason: v1alpha1.StaleNodeRebooted}}
	for name, tc := range map[string]struct {
		spec        *v1alpha1.RunAssignment
		status      *v1alpha1.NodeRunStatus
		wantVerdict v1alpha1.Verdict
		wantReason  string
	}{
		"nothing assigned":     {nil, finished("1-1"), "", ""},
		"reported":             {run, finished("2-5"), v1alpha1.VerdictPass, "AllPassed"},
		"report of older run":  {run, finished("1-4"), "", "waiting"},
		"closed without one":   {closed, nil, v1alpha1.VerdictError, "RunPodFailed"},
		"report beats closure": {closed, finished("2-5"), v1alpha1.VerdictPass, "AllPassed"},
		"stale":                {stale, finished("2-5"), "", "stale: NodeRebooted"},
		"going on": {run, &v1alpha1.NodeRunStatus{ID: "2-5", Phase: v1alpha1.NodeRunRunning, Step: "DDA"},
			"", "running: DDA"},
	} {
		n := &Member{}
		n.Spec.Run, n.Status.Run = tc.spec, tc.status
		if v, r := Outcome(n); v != tc.wantVerdict || r != tc.wantReason {
			t.Errorf("%s: got %q %q, want %q %q", name, v, r, tc.wantVerdict, tc.wantReason)
		}
	}
}

// TestUnknownIsNotZero: a node that never reported shows dashes.
func TestUnknownIsNotZero(t *testing.T) {
	var b bytes.Buffer
	node := NoMember("n1")
	node.Spec.Ranks.Summary = "0-7/8"
	if err := Nodes(&b, &state.Group{}, []Member{node}, 0); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(lines(&b)[1]), " ")
	if want := "n1 0-7/8 - - - - - - - - - -"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTopologyAndNotices(t *testing.T) {
	node := NoMember("n1")
	node.Node = &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{
		Origin: v1alpha1.OriginSimulated, GPUCount: 2, GPUModel: "MI300X", GFXTarget: "gfx942", Partition: "SPX/NPS1",
		GPUs: []v1alpha1.GPUFacts{{PCIAddress: "0000:05:00.0", NUMANode: ptr.To[int32](0), Links: "-a"},
			{PCIAddress: "0000:26:00.0", Links: "?-"}},
		LinkClasses: []v1alpha1.LinkClass{{Letter: "a", Type: "XGMI", Weight: 15, Pairs: 1}},
		XGMI:        v1alpha1.XGMIFacts{Mesh: "Incomplete", Hives: 1, Links: 1, ExpectedLinks: ptr.To[int32](2)},
		Problems: []v1alpha1.Problem{{Severity: "Error", Code: "LinkMissing", GPU: "0000:26:00.0",
			Message: "no link back"}},
	}}}
	var b bytes.Buffer
	if err := Topology(&b, &node); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{SimulatedNotice, "Incomplete (1/2 links)",
		"Error LinkMissing 0000:26:00.0: no link back", "GPU1  0000:26:00.0  -"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, b.String())
		}
	}
}

// TestTopologyInFull: counts by source, modules, NICs and error counters, and nothing for what is not known.
func TestTopologyInFull(t *testing.T) {
	gpu := func(address, nic, links string, module int32) v1alpha1.GPUFacts {
		return v1alpha1.GPUFacts{PCIAddress: address, NUMANode: ptr.To[int32](0), Hive: ptr.To[int32](1),
			Module: &module, NIC: nic, NICPath: "Switch", Links: links}
	}
	node := NoMember("n1")
	node.Node = &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{
		Origin: v1alpha1.OriginHardware, GPUCount: 2, DeviceCount: 2, PCIGPUCount: ptr.To[int32](3),
		ModuleCount: ptr.To[int32](1), Function: "Physical",
		GPUModel: "MI250X", GFXTarget: "gfx90a", Partition: "NotApplicable",
		Firmware: &v1alpha1.FirmwareFacts{MEC: "92"},
		Driver:   v1alpha1.DriverFacts{Kind: "InTree"},
		ROCm:     v1alpha1.ROCmFacts{State: "Found", Version: "6.4.1", RCCLVersion: "2.22.3"},
		GPUs:     []v1alpha1.GPUFacts{gpu("0000:c1:00.0", "mlx5_0", "-a", 0), gpu("0000:c6:00.0", "", "b-", 0)},
		LinkClasses: []v1alpha1.LinkClass{{Letter: "a", Type: "XGMI", Weight: 15, Pairs: 1},
			{Letter: "b", Type: "PCIE", Weight: 72, Pairs: 1}},
		NICs: []v1alpha1.NICFacts{{Name: "mlx5_0", LinkLayer: "InfiniBand",
			State: "Active", RateMbps: ptr.To[int64](200000)},
			{Name: "mlx5_1", Interface: "ib1", LinkLayer: "InfiniBand", State: "Down", RateMbps: ptr.To[int64](2500)}},
		XGMI: v1alpha1.XGMIFacts{Mesh: "Incomplete", Hives: 1, Links: 1, ExpectedLinks: ptr.To[int32](2)},
		RAS:  &v1alpha1.RASFacts{Uncorrectable: ptr.To[int64](2), Unreadable: 1},
	}}}
	var b bytes.Buffer
	if err := Topology(&b, &node); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"n1: 2 x MI250X (gfx90a, NotApplicable), xGMI mesh Incomplete (1/2 links), 1 hive; weights by KFD: " +
			"15 = one xGMI hop, p = over PCIe, ? = no link known",
		"  GPUs: KFD 2 (2 devices), PCI 3, render nodes -, modules 1; function Physical; firmware MEC 92, " +
			"SDMA -; amdgpu InTree;",
		"  ROCm 6.4.1, RCCL 2.22.3",
		"      PCI ADDRESS   NUMA  HIVE  MODULE  NIC              GPU0  GPU1",
		"GPU0  0000:c1:00.0  0     1     0       mlx5_0 (Switch)  -     15",
		"GPU1  0000:c6:00.0  0     1     0       -                72p   -",
		"LINKS  WEIGHT  HOPS  STATED GB/s  BETWEEN",
		"XGMI   15      -     -            1 directions",
		"PCIE   72      -     -            1 directions",
		"RDMA DEVICE  INTERFACE  LINK        STATE   Gbit/s  NUMA",
		"mlx5_0       -          InfiniBand  Active  200     -",
		"mlx5_1       ib1        InfiniBand  Down    2.5     -",
		"errors since the driver was loaded: 2 uncorrectable, - correctable, - deferred; - retired pages; " +
			"counters of 1 GPUs could not be read and are not in it",
		"",
	}
	if got := b.String(); got != strings.Join(want, "\n") {
		t.Errorf("output is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestPlacementsAndDataErrors: results in place stand in a table of their own, and FP8's errors below, with the counts
// that are left out in the API where nothing was lost.
func TestPlacementsAndDataErrors(t *testing.T) {
	node := &Member{CommTask: v1alpha1.CommTask{Status: v1alpha1.CommTaskStatus{Run: &v1alpha1.NodeRunStatus{
		OmittedSeries: 3,
		Results: []v1alpha1.ResultSeries{
			{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				SizeBytes: []int64{1024}, LatencyNanoseconds: []int64{20000}, BusBandwidthMBps: []int64{90}},
			{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				Placement: v1alpha1.InPlace, SizeBytes: []int64{1024}, LatencyNanoseconds: []int64{10000},
				BusBandwidthMBps: []int64{180}},
		},
		DataErrors: []v1alpha1.DataErrors{
			{Variant: v1alpha1.VariantBaseline, Datatype: v1alpha1.BFloat16, Data: v1alpha1.DataGradients,
				Collectives: []v1alpha1.Collective{v1alpha1.AllReduce}, SizeBytes: []int64{64 << 20},
				MaxErrorPPM: []int64{3900}, MeanErrorPPM: []int64{1700}, CheckedElements: []int64{100}},
			{Variant: v1alpha1.VariantLowPrecision, Datatype: v1alpha1.BFloat16, Data: v1alpha1.DataActivations,
				Collectives: []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllReduce},
				SizeBytes:   []int64{16 << 20, 64 << 20}, MaxErrorPPM: []int64{62500, 62500},
				MeanErrorPPM: []int64{20000, 21000}, CheckedElements: []int64{50, 100}, NaNElements: []int64{0, 12}},
		},
	}}}}
	var b bytes.Buffer
	if err := NodeAB(&b, node); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"AllReduce BFloat16, out of place (latency in us, bus bandwidth in GB/s = 10^9 bytes/s, gain against Baseline)",
		"SIZE  BASELINE us  GB/s",
		"1K    20.0         0.09",
		"",
		"AllReduce BFloat16, in place (latency in us, bus bandwidth in GB/s = 10^9 bytes/s, gain against Baseline)",
		"SIZE  BASELINE us  GB/s",
		"1K    10.0         0.18",
		"3 more series were measured and judged; the run pod's log has them",
		"",
		"Errors against an fp32 reference with random data (max: over the largest magnitude; mean: " +
			"over the mean magnitude; elements over all ranks)",
		"COLLECTIVE  DATATYPE  DATA         SIZE  VARIANT       MAX ERROR  MEAN ERROR  NAN  OVERFLOWED  CHECKED",
		"AllReduce   BFloat16  Activations  16M   LowPrecision  6.25 %     2.00 %      0    0           50",
		"AllReduce   BFloat16  Activations  64M   LowPrecision  6.25 %     2.10 %      12   0           100",
		"AllReduce   BFloat16  Gradients    64M   Baseline      0.39 %     0.17 %      0    0           100",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestPreconditions: each stands once, however many nodes and ranks lack it, and the worst comes first.
func TestPreconditions(t *testing.T) {
	lacks := func(name string, of ...v1alpha1.PreconditionStatus) Member {
		m := NoMember(name)
		m.Status.Run = &v1alpha1.NodeRunStatus{Preconditions: of}
		return m
	}
	numa := v1alpha1.PreconditionStatus{Name: "NUMABalancing", State: "Warning", Message: "it is on"}
	busy := func(rank int32) v1alpha1.PreconditionStatus {
		return v1alpha1.PreconditionStatus{Name: "GPUBusy", State: "Failed", Rank: ptr.To(rank), Message: "process 7"}
	}
	nodes := []Member{lacks("n1", numa), {}, lacks("n2", busy(3), busy(4), numa)}
	nodes[2].Status.Run.RASVerdict = "rank 3 does not answer"
	if !HasPreconditions(nodes) || HasPreconditions(nodes[1:2]) || !HasRASVerdicts(nodes) || HasRASVerdicts(nodes[:2]) {
		t.Error("who has something to print is not told apart")
	}
	var b bytes.Buffer
	if err := Preconditions(&b, nodes); err != nil {
		t.Fatal(err)
	}
	if err := RASVerdicts(&b, nodes); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PRECONDITION   STATE    NODES  FOR EXAMPLE",
		"GPUBusy        Failed   1      n2",
		"NUMABalancing  Warning  2      n1",
		"  GPUBusy on n2: process 7",
		"  NUMABalancing on n1: it is on",
		"  n2: rank 3 does not answer",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	nodes[2].Node = &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{}}}
	b.Reset()
	if err := Topology(&b, &nodes[2]); err != nil ||
		!strings.Contains(b.String(), "precondition GPUBusy Failed (rank 4): process 7") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestCulpritsAreNamedOnce(t *testing.T) {
	var out strings.Builder
	err := Culprits(&out, []v1alpha1.Culprit{
		{Node: "n1", Kind: "Node", Name: "n1", Reason: "SlowNode"},
		{Node: "n1", Kind: "Pair", Pair: []string{"n1", "n2"}, Name: "n1<->n2", Reason: "SlowPair"},
		{Kind: "Link", Name: "dp/3", Reason: "SlowCommunicator"},
		{Node: "n2", Kind: "NIC", Name: "mlx5_1", Reason: "SlowRail"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Node n1: SlowNode\n", "Pair n1<->n2: SlowPair\n", "Link dp/3: SlowCommunicator\n",
		"NIC mlx5_1 on node n2: SlowRail\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}
