// Package monitor watches one node: it scans the node's sysfs at each interval and reports the facts in the node's
// CommNode when they change, and again before they would count as too old. It writes nothing else, and nothing at all
// on a node without AMD GPUs.
package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	// scanDeadline bounds one scan as a whole; each file has a shorter deadline of its own.
	scanDeadline = 30 * time.Second
	// writeDeadline bounds one write to the API server.
	writeDeadline = 15 * time.Second
	// firstBackoff doubles with each failed write up to maxBackoff.
	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
	// askEvery is after how many looks without a write the monitor asks whether its report is still there.
	askEvery = 4
)

// Reporter writes facts to the node's CommNode.
type Reporter interface {
	Report(ctx context.Context, facts *v1alpha1.NodeFacts) error
	// Has says whether the node's CommNode has a report of a monitor.
	Has(ctx context.Context) (bool, error)
	// Last gives the facts that the CommNode has; nil where it has none yet.
	Last(ctx context.Context) (*v1alpha1.NodeFacts, error)
}

// Scanner reads the node.
type Scanner interface {
	Scan(ctx context.Context) (*discover.Facts, error)
}

// Config of a Monitor; all fields are required.
type Config struct {
	// Node is the node's name, for messages.
	Node string
	// Interval between two looks, Valid for how long a report holds.
	Interval, Valid time.Duration

	Scanner  Scanner
	Reporter Reporter
	Clock    clock.WithTicker
	// Random gives numbers in [0,1) that spread the writes of many monitors over time.
	Random func() float64
	Log    logr.Logger
	Health *Health
}

// Monitor watches one node.
type Monitor struct {
	cfg     Config
	history history
	steady  steady
	written *v1alpha1.NodeFacts // the last report that the API server took
	at      time.Time           // when it did
	origin  v1alpha1.Origin     // of the last scan that worked
	quiet   int                 // looks without a write
	failed  int                 // writes in a row that failed
	asked   bool                // for the facts of an earlier monitor
	known   bool                // the node has a CommNode with facts, of an earlier monitor
	last    *v1alpha1.NodeFacts // these, until a scan works
	idle    bool                // the node has no GPU, and has said so in the log
}

// New makes a Monitor.
func New(cfg Config) *Monitor {
	return &Monitor{cfg: cfg, origin: v1alpha1.OriginUnknown}
}

// Run watches until ctx ends, which is no error.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		wait := m.Step(ctx)
		if ctx.Err() != nil {
			m.cfg.Log.Info("monitor ends", "node", m.cfg.Node)
			return nil
		}
		timer := m.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
	}
}

// Step looks once, reports if a report is due, and returns how long to wait before the next look.
func (m *Monitor) Step(ctx context.Context) time.Duration {
	m.remember(ctx)
	facts := m.look(ctx)
	if ctx.Err() != nil {
		return 0
	}
	now := m.cfg.Clock.Now()
	m.cfg.Health.looked(now)
	if m.written == nil && !m.known && withoutGPUs(facts) {
		return m.rest(now)
	}
	if !due(m.written, facts, m.at, now, m.cfg.Valid) && !m.lost(ctx) {
		return m.pause(now)
	}
	writeCtx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	if err := m.cfg.Reporter.Report(writeCtx, facts); err != nil {
		if ctx.Err() != nil {
			return 0
		}
		m.failed++
		wait := backoff(m.failed, m.cfg.Random())
		m.logFailure(err, wait)
		return wait
	}
	if m.failed > 0 || m.written == nil {
		m.cfg.Log.Info("reported", "node", m.cfg.Node, "gpus", facts.GPUCount, "model", facts.GPUModel, "mesh",
			facts.XGMI.Mesh, "problems", len(facts.Problems), "failedBefore", m.failed)
	}
	m.failed = 0
	m.written, m.at = facts, now
	m.cfg.Health.reported(now)
	return m.pause(now)
}

// lost asks, at every fourth look, whether the CommNode still has the report: one that was deleted has none,
// and nothing else would tell the monitor. An answer that does not come changes nothing.
func (m *Monitor) lost(ctx context.Context) bool {
	if m.quiet++; m.quiet%askEvery != 0 {
		return false
	}
	askCtx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	has, err := m.cfg.Reporter.Has(askCtx)
	if err != nil || has {
		return false
	}
	m.cfg.Log.Info("the CommNode was deleted: reporting again", "node", m.cfg.Node)
	return true
}

// withoutGPUs says that the PCI bus could be read and has no GPU. That of a node whose driver took none is not empty.
func withoutGPUs(f *v1alpha1.NodeFacts) bool {
	return f.GPUCount == 0 && f.DeviceCount == 0 && f.PCIGPUCount != nil && *f.PCIGPUCount == 0
}

// rest is for a node without GPUs: it has no CommNode. A GPU may be plugged in, so that the monitor goes on to scan.
func (m *Monitor) rest(now time.Time) time.Duration {
	if !m.idle {
		m.idle = true
		m.cfg.Log.Info("the PCI bus has no AMD data-centre GPU: nothing is reported of this node", "node", m.cfg.Node)
	}
	m.cfg.Health.reported(now) // as fresh as it can be
	return m.pause(now)
}

// pause is the time to the next look: the interval with a spread of a tenth, or sooner where the report must be
// renewed.
func (m *Monitor) pause(now time.Time) time.Duration {
	wait := time.Duration(float64(m.cfg.Interval) * (0.9 + 0.2*m.cfg.Random()))
	if renew := m.at.Add(m.cfg.Valid / 2).Sub(now); !m.at.IsZero() && renew < wait {
		wait = renew
	}
	return max(wait, time.Second)
}

// look scans once. A scan that fails gives facts that say so, since silence would look like a dead agent.
func (m *Monitor) look(ctx context.Context) *v1alpha1.NodeFacts {
	scanCtx, cancel := context.WithTimeout(ctx, scanDeadline)
	defer cancel()
	facts, err := m.cfg.Scanner.Scan(scanCtx)
	now := m.cfg.Clock.Now()
	if err != nil {
		if ctx.Err() == nil {
			m.cfg.Log.Error(err, "scan failed", "node", m.cfg.Node, "deadline", scanDeadline.String())
		}
		return failedFacts(m.cfg.Node, m.origin, now, m.cfg.Valid, err)
	}
	m.origin = facts.Origin
	if m.last != nil {
		m.history, m.last = earlier(m.last, facts), nil
	}
	found, changes := m.history.look(facts, now)
	for _, c := range changes {
		m.cfg.Log.Info("change", "node", m.cfg.Node, "code", c.Code, "subject", c.Subject(), "message", c.Message)
	}
	facts.Problems = m.steady.look(append(facts.Problems, found...), now)
	return facts.NodeFacts(m.cfg.Valid)
}

// failedFacts are the facts of a node that could not be scanned.
func failedFacts(node string, origin v1alpha1.Origin, now time.Time, valid time.Duration,
	err error) *v1alpha1.NodeFacts {
	failed := discover.Facts{
		Origin: origin, ObservedTime: now,
		Driver: discover.DriverFacts{Kind: discover.DriverUnknown},
		ROCm:   discover.ROCmFacts{State: discover.ROCmUnreadable},
		Model:  discover.Unknown, GFXTarget: discover.Unknown, Partition: discover.Unknown,
		Mesh: discover.Mesh{State: discover.MeshUnknown},
		Problems: []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemSysfsUnreadable,
			Message: fmt.Sprintf("The scan of node %s failed: %v; expected it to end within %s. Look at the node's "+
				"kernel log for a hung GPU.", node, err, scanDeadline)}},
	}
	return failed.NodeFacts(valid)
}

// due says that a report must be written: never written, something changed, or half of its time is over.
func due(written, facts *v1alpha1.NodeFacts, at, now time.Time, valid time.Duration) bool {
	if written == nil || now.Sub(at) >= valid/2 {
		return true
	}
	a, b := *written, *facts
	a.ObservedTime, b.ObservedTime = metav1.Time{}, metav1.Time{}
	a.RAS = ridesAlong(a.RAS, b.RAS)
	if rose(a.XGMI.CorrectableErrors, b.XGMI.CorrectableErrors) {
		a.XGMI.CorrectableErrors = b.XGMI.CorrectableErrors
	}
	return !apiequality.Semantic.DeepEqual(a, b)
}

// ridesAlong is the written sums of error counters with those that may wait for the next report: sums of correctable
// and deferred errors that rose. The first rise made a problem, which is reported at once, and a link that errs at each
// look shall not make a write at each look.
func ridesAlong(written, now *v1alpha1.RASFacts) *v1alpha1.RASFacts {
	if written == nil || now == nil {
		return written
	}
	sums := *written
	if rose(sums.Correctable, now.Correctable) {
		sums.Correctable = now.Correctable
	}
	if rose(sums.Deferred, now.Deferred) {
		sums.Deferred = now.Deferred
	}
	return &sums
}

func rose(was, is *int64) bool { return was != nil && is != nil && *is > *was }

// backoff is the wait after so many failures in a row, spread from half to one and a half times.
func backoff(failures int, random float64) time.Duration {
	wait := firstBackoff
	for i := 1; i < failures && wait < maxBackoff; i++ {
		wait *= 2
	}
	return time.Duration(float64(min(wait, maxBackoff)) * (0.5 + random))
}

// logFailure logs the first failures and then every tenth, since an API server may be away for long.
func (m *Monitor) logFailure(err error, wait time.Duration) {
	if m.failed > 5 && m.failed%10 != 0 {
		return
	}
	keys := []any{"node", m.cfg.Node, "attempt", m.failed, "retryIn", wait.Round(time.Millisecond).String()}
	// Not Error: a stack trace tells nothing of an API server that is away.
	m.cfg.Log.Info("report was not written", append(keys, "error", err.Error())...)
}
