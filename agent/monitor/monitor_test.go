package monitor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// node is a fake Scanner and Reporter.
type node struct {
	deleted  bool // the CommNode
	hasErr   error
	facts    func() *discover.Facts
	scanErr  error
	writeErr error
	reports  []*v1alpha1.NodeFacts
	tries    int
	last     *v1alpha1.NodeFacts // what an earlier monitor wrote
	lastErr  error
}

func (n *node) Last(context.Context) (*v1alpha1.NodeFacts, error) { return n.last, n.lastErr }

// Has is true until a test deletes the CommNode.
func (n *node) Has(context.Context) (bool, error) { return !n.deleted, n.hasErr }

func (n *node) Scan(context.Context) (*discover.Facts, error) {
	if n.scanErr != nil {
		return nil, n.scanErr
	}
	return n.facts(), nil
}

func (n *node) Report(_ context.Context, facts *v1alpha1.NodeFacts) error {
	n.tries++
	if n.writeErr != nil {
		return n.writeErr
	}
	n.reports = append(n.reports, facts)
	return nil
}

// twoGPUs are the facts of a healthy node with two GPUs and a link each way.
func twoGPUs(now time.Time) *discover.Facts {
	hive, zero := uint64(7), uint64(0)
	link := func() *discover.Link { return &discover.Link{Type: discover.LinkXGMI, Weight: 15} }
	gpu := func(address string) discover.GPU {
		return discover.GPU{PCIAddress: address, Model: "MI300X", HiveID: &hive, Complete: true,
			XGMIUncorrectableErrors: &zero, XGMICorrectableErrors: &zero}
	}
	return &discover.Facts{Origin: v1alpha1.OriginHardware, ObservedTime: now,
		BootID: "boot-1", Model: "MI300X", GFXTarget: "gfx942", Partition: "SPX/NPS1",
		Driver: discover.DriverFacts{Kind: discover.DriverDKMS, Version: "6.14.14"},
		ROCm:   discover.ROCmFacts{State: discover.ROCmNotFound},
		GPUs:   []discover.GPU{gpu("0000:05:00.0"), gpu("0000:2b:00.0")}, GenerationStable: true,
		Mesh: discover.Mesh{State: discover.MeshFull, Hives: 1, Links: 2,
			Pairs: [][]*discover.Link{{nil, link()}, {link(), nil}}}}
}

func newTestMonitor(n *node, log logr.Logger) (*Monitor, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	if n.facts == nil {
		n.facts = func() *discover.Facts { return twoGPUs(clock.Now()) }
	}
	const interval, valid = 30 * time.Second, 120 * time.Second
	return New(Config{Node: "node-a", Interval: interval, Valid: valid, Scanner: n, Reporter: n, Clock: clock,
		Random: func() float64 { return 0.5 }, Log: log, Health: NewHealth(clock, interval, valid)}), clock
}

func TestReportsOnChangeAndBeforeTooOld(t *testing.T) {
	n := &node{}
	m, clock := newTestMonitor(n, logr.Discard())
	ctx := context.Background()
	step := func(wantReports int, what string) {
		t.Helper()
		wait := m.Step(ctx)
		if len(n.reports) != wantReports {
			t.Fatalf("%s: %d reports, want %d", what, len(n.reports), wantReports)
		}
		clock.Step(wait)
	}
	step(1, "first look")           // 0 s
	step(1, "nothing changed")      // 30 s
	step(2, "half of the validity") // 60 s
	step(2, "nothing changed")      // 90 s
	driver := "6.16.6"
	n.facts = func() *discover.Facts {
		f := twoGPUs(clock.Now())
		f.Driver.Version = driver
		return f
	}
	step(3, "driver changed") // 120 s
	if last := n.reports[2]; last.Driver.Version != driver || len(last.Problems) != 1 ||
		last.Problems[0].Code != v1alpha1.ProblemDriverChanged {
		t.Errorf("report %+v", last)
	}
	if last := n.reports[1]; !last.ObservedTime.Time.Equal(time.Unix(1e9+60, 0)) || last.ValidForSeconds != 120 {
		t.Errorf("observed %s, valid for %d s", last.ObservedTime, last.ValidForSeconds)
	}
}

// TestRenewsInTime: the next look comes at half of the validity also where the interval is longer.
func TestRenewsInTime(t *testing.T) {
	n := &node{}
	m, _ := newTestMonitor(n, logr.Discard())
	m.cfg.Valid = 20 * time.Second
	if wait := m.Step(context.Background()); wait != 10*time.Second {
		t.Errorf("next look in %s, want 10s", wait)
	}
}

func TestFailedWrites(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	n := &node{writeErr: apierrors.NewServiceUnavailable("etcd is away")}
	m, clock := newTestMonitor(n, log)
	total := time.Duration(0)
	for range 20 {
		wait := m.Step(context.Background())
		if wait > maxBackoff {
			t.Fatalf("waits %s, more than %s", wait, maxBackoff)
		}
		total += wait
		clock.Step(wait)
	}
	if total < 5*time.Minute || n.tries != 20 || len(n.reports) != 0 {
		t.Errorf("%d tries over %s", n.tries, total)
	}
	if len(lines) != 7 || !strings.Contains(lines[0], "etcd is away") {
		t.Errorf("log has %d lines for 20 failures: %q", len(lines), lines)
	}
	if err := m.cfg.Health.ready(); err == nil {
		t.Error("ready without a report")
	}
	n.writeErr = errors.New("the server is currently unable to handle the request")
	m.Step(context.Background())
	n.writeErr = nil
	m.Step(context.Background())
	if len(n.reports) != 1 || m.failed != 0 || m.cfg.Health.ready() != nil {
		t.Errorf("%d reports, %d failed, ready: %v", len(n.reports), m.failed, m.cfg.Health.ready())
	}
}

// TestFailedScan: a scan that fails is reported, and a rising problem is never silence.
func TestFailedScan(t *testing.T) {
	n := &node{}
	m, _ := newTestMonitor(n, logr.Discard())
	m.Step(context.Background())
	n.scanErr = context.DeadlineExceeded
	m.Step(context.Background())
	if len(n.reports) != 2 {
		t.Fatalf("%d reports", len(n.reports))
	}
	last := n.reports[1]
	if last.GPUModel != "unknown" || last.XGMI.Mesh != "Unknown" || last.Origin != v1alpha1.OriginHardware ||
		len(last.Problems) != 1 || last.Problems[0].Code != v1alpha1.ProblemSysfsUnreadable ||
		!strings.Contains(last.Problems[0].Message, "node-a") {
		t.Errorf("report %+v", last)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	n := &node{}
	m, _ := newTestMonitor(n, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	n.facts = func() *discover.Facts {
		cancel() // as SIGTERM would, in the middle of a look
		return twoGPUs(time.Unix(1e9, 0))
	}
	if err := m.Run(ctx); err != nil || n.tries != 0 {
		t.Errorf("Run returned %v after %d writes", err, n.tries)
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second,
		6: maxBackoff, 1 << 40: maxBackoff} {
		if got := backoff(failures, 0.5); got != want {
			t.Errorf("backoff(%d) = %s, want %s", failures, got, want)
		}
	}
}

// TestDue: error sums that only rise may wait for the renewal, since the first rise makes a problem; nothing else may.
func TestDue(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	facts := func(correctable, deferred, uncorrectable *int64) *v1alpha1.NodeFacts {
		return &v1alpha1.NodeFacts{RAS: &v1alpha1.RASFacts{Correctable: correctable,
			Deferred: deferred, Uncorrectable: uncorrectable},
			XGMI: v1alpha1.XGMIFacts{CorrectableErrors: correctable, UncorrectableErrors: uncorrectable}}
	}
	at := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		written, now *v1alpha1.NodeFacts
		after        time.Duration
		want         bool
	}{
		"never written":       {nil, facts(nil, nil, nil), 0, true},
		"the same":            {facts(n(1), n(1), n(1)), facts(n(1), n(1), n(1)), 299 * time.Second, false},
		"half of the time":    {facts(n(1), n(1), n(1)), facts(n(1), n(1), n(1)), 300 * time.Second, true},
		"correctable rose":    {facts(n(1), n(1), n(1)), facts(n(2), n(1), n(1)), 0, false},
		"deferred rose":       {facts(n(1), n(1), n(1)), facts(n(1), n(2), n(1)), 0, false},
		"uncorrectable rose":  {facts(n(1), n(1), n(1)), facts(n(1), n(1), n(2)), 0, true},
		"correctable fell":    {facts(n(2), n(1), n(1)), facts(n(1), n(1), n(1)), 0, true},
		"deferred fell":       {facts(n(1), n(2), n(1)), facts(n(1), n(1), n(1)), 0, true},
		"correctable unread":  {facts(n(2), n(1), n(1)), facts(nil, n(1), n(1)), 0, true},
		"correctable is read": {facts(nil, n(1), n(1)), facts(n(1), n(1), n(1)), 0, true},
		"no counters":         {facts(n(2), n(1), n(1)), &v1alpha1.NodeFacts{}, 0, true},
		"first counters":      {&v1alpha1.NodeFacts{}, facts(n(0), n(0), n(0)), 0, true},
	} {
		before := c.written.DeepCopy()
		if got := due(c.written, c.now, at, at.Add(c.after), 600*time.Second); got != c.want {
			t.Errorf("%s: due is %v", name, got)
		}
		if !reflect.DeepEqual(before, c.written) {
			t.Errorf("%s: the written facts were changed", name)
		}
	}
}

// BenchmarkLook is the monitor's part of a look at a node of eight GPUs of which nothing changed; the scan is not in
// it.
func BenchmarkLook(b *testing.B) {
	w := newWorld(1)
	n := &node{}
	m, clock := newTestMonitor(n, logr.Discard())
	m.cfg.Valid = 600 * time.Second
	f := w.facts(clock.Now())
	for i := range f.GPUs {
		f.GPUs[i].RAS = map[string]discover.ErrorCounts{}
		for block := range 20 {
			f.GPUs[i].RAS[fmt.Sprint("block", block)] = discover.ErrorCounts{}
		}
	}
	n.facts = func() *discover.Facts { c := *f; c.Problems = nil; return &c }
	ctx := context.Background()
	m.Step(ctx)
	b.ReportAllocs()
	for b.Loop() {
		m.Step(ctx)
	}
	if len(n.reports) != 1 {
		b.Fatalf("%d reports", len(n.reports))
	}
}

// TestCommNodeDeleted: a CommNode that was deleted is there again within four looks, and an answer that does not come
// makes no write.
func TestCommNodeDeleted(t *testing.T) {
	n := &node{}
	m, clock := newTestMonitor(n, logr.Discard())
	m.cfg.Valid = time.Hour
	look := func(times int) {
		for range times {
			clock.Step(m.Step(context.Background()))
		}
	}
	look(9)
	if len(n.reports) != 1 {
		t.Fatalf("%d reports, want 1", len(n.reports))
	}
	n.deleted, n.hasErr = true, errors.New("away")
	look(2 * askEvery)
	if len(n.reports) != 1 {
		t.Fatalf("%d reports while the API server is away, want 1", len(n.reports))
	}
	n.hasErr = nil
	look(askEvery)
	if len(n.reports) != 2 {
		t.Errorf("%d reports after the CommNode was deleted, want 2", len(n.reports))
	}
}

// TestNodeWithoutGPUs: nothing is written of a node whose PCI bus has no GPU; but of one that had a CommNode, that gets
// a GPU, or whose bus cannot be read, everything is.
func TestNodeWithoutGPUs(t *testing.T) {
	scan := func(change func(*nodetree.Node)) *discover.Facts {
		t.Helper()
		n, err := nodetree.Defaults("MI300X")
		if err != nil {
			t.Fatal(err)
		}
		n.Name = "node-a"
		change(&n)
		tree, err := nodetree.Generate(n)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := discover.NewScanner(tree, discover.Options{}).Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	none, some := scan(func(n *nodetree.Node) { n.GPUs = nil }), scan(func(*nodetree.Node) {})
	var lines []string
	n := &node{facts: func() *discover.Facts { return none }}
	m, clock := newTestMonitor(n, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	look := func(m *Monitor) {
		for range 3 * askEvery {
			clock.Step(m.Step(t.Context()))
		}
	}
	if look(m); n.tries != 0 || len(lines) != 1 || m.cfg.Health.ready() != nil {
		t.Errorf("a node without GPUs: %d writes, ready: %v, log %q", n.tries, m.cfg.Health.ready(), lines)
	}
	n.facts = func() *discover.Facts { return some }
	if m.Step(t.Context()); len(n.reports) != 1 || n.reports[0].GPUCount != 8 {
		t.Errorf("GPUs were plugged in: %d reports, want 1", len(n.reports))
	}
	n.facts = func() *discover.Facts { return none }
	if m.Step(t.Context()); len(n.reports) != 2 || n.reports[1].GPUCount != 0 {
		t.Errorf("all GPUs are gone: %d reports, want 2", len(n.reports))
	}
	n = &node{facts: func() *discover.Facts { return none }, last: some.NodeFacts(time.Minute),
		lastErr: context.DeadlineExceeded}
	m, _ = newTestMonitor(n, logr.Discard())
	m.Step(t.Context())
	n.lastErr = nil
	if m.Step(t.Context()); len(n.reports) != 1 {
		t.Errorf("the CommNode could not be read at first: %d reports, want 1", len(n.reports))
	}
	for what, n := range map[string]*node{
		"with a CommNode": {facts: func() *discover.Facts { return none }, last: some.NodeFacts(time.Minute)},
		"whose bus cannot be read": {facts: func() *discover.Facts {
			return &discover.Facts{Model: discover.Unknown}
		}},
		"that cannot be scanned":    {scanErr: context.DeadlineExceeded},
		"whose GPUs have no driver": {facts: func() *discover.Facts { return &discover.Facts{PCIGPUs: some.PCIGPUs} }},
	} {
		m, _ := newTestMonitor(n, logr.Discard())
		if m.Step(t.Context()); len(n.reports) != 1 {
			t.Errorf("a node %s: %d reports, want 1", what, len(n.reports))
		}
	}
}
