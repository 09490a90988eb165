package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestUnits(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Bytes(1024), "1K"}, {Bytes(16 << 20), "16M"}, {Bytes(1 << 30), "1G"}, {Bytes(1000), "1000"}, {Bytes(1536), "1536"}, {Bytes(0), "0"},
		{Microseconds(9400), "9.4"}, {Microseconds(1234567), "1235"},
		{GBps(315400), "315.4"}, {GBps(98), "0.10"},
		{Percent(62500), "6.25 %"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func lines(b *bytes.Buffer) []string {
	var out []string
	for line := range strings.Lines(b.String()) {
		out = append(out, strings.TrimRight(line, " \n"))
	}
	return out
}

// TestABTable: a size that one variant did not reach shows as unknown, and a gain is only given where both were measured.
func TestABTable(t *testing.T) {
	group := &v1alpha1.CommGroup{Status: v1alpha1.CommGroupStatus{Results: []v1alpha1.GroupResultSeries{
		{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1024, 65536}, LatencyNanoseconds: []int64{20000, 24000}, BusBandwidthMBps: []int64{90, 4779}},
		{Variant: v1alpha1.VariantDDA, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1024}, LatencyNanoseconds: []int64{10000}, BusBandwidthMBps: []int64{179}, WrongElements: 3},
		{Variant: v1alpha1.VariantLowPrecision, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{65536}, LatencyNanoseconds: []int64{24000}, BusBandwidthMBps: []int64{4779}, MaxRelativeErrorPPM: ptr.To[int64](31250)},
	}}}
	var b bytes.Buffer
	if err := GroupAB(&b, group); err != nil {
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
		return &v1alpha1.NodeRunStatus{ID: id, Phase: v1alpha1.NodeRunFinished, Verdict: v1alpha1.VerdictPass, Reason: "AllPassed"}
	}
	closed := &v1alpha1.RunAssignment{ID: "2-5", Closed: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: "RunPodFailed"}}
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
		"going on":             {run, &v1alpha1.NodeRunStatus{ID: "2-5", Phase: v1alpha1.NodeRunRunning, Step: "DDA"}, "", "running: DDA"},
	} {
		n := &v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{Run: tc.spec}, Status: v1alpha1.CommNodeStatus{Run: tc.status}}
		if v, r := Outcome(n); v != tc.wantVerdict || r != tc.wantReason {
			t.Errorf("%s: got %q %q, want %q %q", name, v, r, tc.wantVerdict, tc.wantReason)
		}
	}
}

// TestUnknownIsNotZero: a node that never reported shows dashes.
func TestUnknownIsNotZero(t *testing.T) {
	var b bytes.Buffer
	node := v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeName: "n1", Ranks: v1alpha1.RankRange{Summary: "0-7/8"}}}
	if err := Nodes(&b, []v1alpha1.CommNode{node}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(lines(&b)[1]), " ")
	if want := "n1 0-7/8 - - - - - - - - - -"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTopologyAndNotices(t *testing.T) {
	node := &v1alpha1.CommNode{
		Spec: v1alpha1.CommNodeSpec{NodeName: "n1"},
		Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{
			Origin: v1alpha1.OriginSimulated, GPUCount: 2, GPUModel: "MI300X", GFXTarget: "gfx942", Partition: "SPX/NPS1",
			GPUs:     []v1alpha1.GPUFacts{{PCIAddress: "0000:05:00.0", NUMANode: ptr.To[int32](0), Weights: "- 15"}, {PCIAddress: "0000:26:00.0", Weights: "? -"}},
			XGMI:     v1alpha1.XGMIFacts{Mesh: "Incomplete", Hives: 1, Links: 1, ExpectedLinks: ptr.To[int32](2)},
			Problems: []v1alpha1.Problem{{Severity: "Error", Code: "LinkMissing", Subject: "0000:26:00.0", Message: "no link back"}},
		}},
	}
	var b bytes.Buffer
	if err := Topology(&b, node); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{SimulatedNotice, "Incomplete (1/2 links)", "Error LinkMissing 0000:26:00.0: no link back", "GPU1  0000:26:00.0  -"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, b.String())
		}
	}
}
