package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	contract "rcclx.io/commgroup-operator/internal/metrics"
)

// host is a fake Scanner and Reporter whose scan takes two seconds of the clock.
type host struct {
	clock             *clocktesting.FakePassiveClock
	facts             *discover.Facts
	scanErr, writeErr error
}

func (h *host) Scan(context.Context) (*discover.Facts, error) {
	h.clock.SetTime(h.clock.Now().Add(2 * time.Second))
	return h.facts, h.scanErr
}
func (h *host) Report(context.Context, *v1alpha1.NodeFacts) error { return h.writeErr }
func (h *host) Has(context.Context) (bool, error)                 { return true, nil }
func (h *host) Last(context.Context) (*v1alpha1.NodeFacts, error) { return nil, nil }
func xgmi() *discover.Link {
	return &discover.Link{Type: discover.LinkXGMI, Weight: 15}
}
func counts(ue, ce uint64, deferred *uint64) discover.ErrorCounts {
	return discover.ErrorCounts{Uncorrectable: ue, Correctable: ce, Deferred: deferred}
}

// threeGPUs have all links but one; the third has no error counters.
func threeGPUs(now time.Time) *discover.Facts {
	gpu := func(address string) discover.GPU { return discover.GPU{PCIAddress: address, Model: "MI300X"} }
	f := &discover.Facts{Origin: v1alpha1.OriginSimulated, ObservedTime: now, Model: "MI300X",
		Partition: "SPX/NPS1", GenerationStable: true, Driver: discover.DriverFacts{Kind: discover.DriverInTree},
		ROCm: discover.ROCmFacts{State: discover.ROCmFound, Version: "7.0.2"},
		GPUs: []discover.GPU{gpu("a"), gpu("b"), gpu("c")},
		Mesh: discover.Mesh{State: discover.MeshIncomplete, Hives: 1, Links: 5, ExpectedLinks: ptr.To(6),
			Pairs: [][]*discover.Link{{nil, xgmi(), xgmi()}, {xgmi(), nil, {Type: discover.LinkPCIe}},
				{xgmi(), xgmi(), nil}}}}
	f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": counts(1, 20, ptr.To[uint64](4)), "gfx": counts(2, 30, nil),
		discover.RASBlockXGMI: counts(0, 7, nil)}
	f.GPUs[0].XGMIUncorrectableErrors, f.GPUs[0].XGMICorrectableErrors = ptr.To[uint64](0), ptr.To[uint64](7)
	f.GPUs[1].RAS = map[string]discover.ErrorCounts{"gfx": counts(0, 0, nil)}
	return f
}

func newRecorder() (*Recorder, *host) {
	h := &host{clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
	h.facts = threeGPUs(time.Unix(1001, 0))
	return &Recorder{Node: "n1", Version: "v1", Scanner: h, Reporter: h, Clock: h.clock}, h
}

// series are those of one metric, as its labels after the node's, with a value each.
func series(r *Recorder, m *contract.Metric) map[string]float64 {
	out := map[string]float64{}
	for _, s := range r.Samples() {
		if s.Metric.Name == m.Name {
			out[strings.Join(s.Labels[1:], " ")] = s.Value
		}
	}
	return out
}

func want(t *testing.T, r *Recorder, what string, m *contract.Metric, values map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(values, series(r, m)); diff != "" {
		t.Errorf("%s: %s (-want +got)\n%s", what, m.Name, diff)
	}
}

var none = map[string]float64{}

func TestRecorder(t *testing.T) {
	ctx := context.Background()
	r, h := newRecorder()
	want(t, r, "before the first look", &contract.AgentScanFails, map[string]float64{"": 0})
	for _, m := range []*contract.Metric{&contract.AgentScan, &contract.AgentScanTime, &contract.AgentReport,
		&contract.AgentGPUs, &contract.AgentInfo} {
		want(t, r, "before the first look", m, none)
	}
	if _, err := r.Scan(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, r, "a scan", &contract.AgentInfo, map[string]float64{"v1 7.0.2 InTree MI300X SPX/NPS1 Simulated": 1})
	want(t, r, "a scan", &contract.AgentScan, map[string]float64{"": 1001})
	want(t, r, "a scan", &contract.AgentScanTime, map[string]float64{"": 2})
	want(t, r, "a scan", &contract.AgentGPUs, map[string]float64{"": 3})
	want(t, r, "a scan", &contract.AgentXGMILinks, map[string]float64{"up": 5, "expected": 6})
	want(t, r, "a scan", &contract.AgentXGMILinkUp,
		map[string]float64{"a b": 1, "a c": 1, "b a": 1, "b c": 0, "c a": 1, "c b": 1})
	want(t, r, "a scan", &contract.AgentRAS, map[string]float64{"a uncorrectable": 3, "a correctable": 57,
		"a deferred": 4, "b uncorrectable": 0, "b correctable": 0})
	want(t, r, "a scan", &contract.AgentXGMIErrors, map[string]float64{"a uncorrectable": 0, "a correctable": 7})
	want(t, r, "a scan that is not reported", &contract.AgentReport, none)
	want(t, r, "a scan that is not reported", &contract.AgentValid, none)

	problems := []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemLinkLost, GPU: "b",
		PeerGPU: "c", Message: "no label"}}
	h.writeErr = errors.New("the API server is away")
	if err := r.Report(ctx,
		&v1alpha1.NodeFacts{Problems: problems, ValidForSeconds: 600}); !errors.Is(err, h.writeErr) {
		t.Fatalf("Report: %v", err)
	}
	want(t, r, "a report that was not taken", &contract.AgentFailures, map[string]float64{"": 1})
	want(t, r, "a report that was not taken", &contract.AgentReport, none)
	want(t, r, "a report that was not taken", &contract.AgentProblems, map[string]float64{"Error LinkLost b<->c": 1})
	want(t, r, "a report that was not taken", &contract.AgentValid, map[string]float64{"": 600})
	h.writeErr = nil
	if err := r.Report(ctx, &v1alpha1.NodeFacts{}); err != nil {
		t.Fatal(err)
	}
	want(t, r, "a report", &contract.AgentReport, map[string]float64{"": 1002})
	want(t, r, "a report without problems", &contract.AgentProblems, none)

	// What an earlier scan saw is not what is there now.
	h.scanErr = errors.New("hung")
	if _, err := r.Scan(ctx); !errors.Is(err, h.scanErr) {
		t.Fatalf("Scan: %v", err)
	}
	want(t, r, "a scan that failed", &contract.AgentScanFails, map[string]float64{"": 1})
	want(t, r, "a scan that failed", &contract.AgentScan, map[string]float64{"": 1001})
	for _, m := range []*contract.Metric{&contract.AgentGPUs, &contract.AgentInfo, &contract.AgentRAS,
		&contract.AgentXGMILinkUp} {
		want(t, r, "a scan that failed", m, none)
	}
}

// TestLinksThatAreNotKnown are absent, never down.
func TestLinksThatAreNotKnown(t *testing.T) {
	up := map[string]float64{"a b": 1, "a c": 1, "b a": 1, "c a": 1, "c b": 1}
	for _, tc := range []struct {
		name   string
		change func(*discover.Facts)
		want   map[string]float64
	}{
		{"a GPU is hidden", func(f *discover.Facts) { f.HiddenNodes = []int{4} }, none},
		{"the topology changed during the scan", func(f *discover.Facts) { f.GenerationStable = false }, none},
		{"a model without xGMI", func(f *discover.Facts) { f.Mesh.State = discover.MeshNotApplicable }, none},
		{"a mesh that is not known", func(f *discover.Facts) { f.Mesh.State = discover.MeshUnknown }, none},
		{"a model that does not join each two", func(f *discover.Facts) { f.Mesh.ExpectedLinks = ptr.To(4) }, up},
		{"no expectation", func(f *discover.Facts) { f.Mesh.ExpectedLinks = nil }, up},
	} {
		r, h := newRecorder()
		tc.change(h.facts)
		if _, err := r.Scan(context.Background()); err != nil {
			t.Fatal(err)
		}
		want(t, r, tc.name, &contract.AgentXGMILinkUp, tc.want)
	}
}

// TestSeriesAreBounded: a node of 64 GPUs has no more series than one of 16.
func TestSeriesAreBounded(t *testing.T) {
	r, h := newRecorder()
	f := h.facts
	f.GPUs, f.Mesh.Pairs = nil, nil
	for i := range 64 {
		f.GPUs = append(f.GPUs, discover.GPU{PCIAddress: string(rune('A' + i)),
			RAS: map[string]discover.ErrorCounts{"umc": counts(1, 1, ptr.To[uint64](1))}})
		f.Mesh.Pairs = append(f.Mesh.Pairs, make([]*discover.Link, 64))
		for j := range 64 {
			f.Mesh.Pairs[i][j] = xgmi()
		}
	}
	if _, err := r.Scan(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(series(r, &contract.AgentXGMILinkUp)); n != 240 {
		t.Errorf("%d series of links, want 240", n)
	}
	if n := len(series(r, &contract.AgentRAS)); n != 48 {
		t.Errorf("%d series of errors, want 48", n)
	}
}

// TestWholeContract: a full scan has every metric of the agents' contract, and promlint finds nothing.
func TestWholeContract(t *testing.T) {
	r, _ := newRecorder()
	if _, err := r.Scan(context.Background()); err != nil {
		t.Fatal(err)
	}
	twice := v1alpha1.Problem{Code: "C", Severity: v1alpha1.SeverityWarning, Path: "s"}
	if err := r.Report(context.Background(),
		&v1alpha1.NodeFacts{Problems: []v1alpha1.Problem{twice, twice}}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	there := map[string]bool{}
	for _, f := range families {
		there[f.GetName()] = true
	}
	for _, m := range contract.All() {
		if m.Source == contract.Agent && !there[m.Name] {
			t.Errorf("no %s", m.Name)
		}
	}
}
