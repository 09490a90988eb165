// Package metrics shows what a node's monitor sees as Prometheus metrics: the agents' part of the contract in
// internal/metrics, over HTTPS, for those whom the API server gives the right to read them.
package metrics

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/monitor"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	contract "rcclx.io/commgroup-operator/internal/metrics"
)

// Recorder stands between a monitor and what it scans and reports with, and keeps of both what the metrics tell.
type Recorder struct {
	Node, Version string

	Scanner  monitor.Scanner
	Reporter monitor.Reporter
	Clock    clock.PassiveClock

	mu                          sync.Mutex
	scanned, reported           time.Time
	scanTook                    time.Duration
	looked                      bool
	scanFailures, writeFailures int
	seen                        []contract.Sample // of the last scan; none where it failed
	toReport                    []contract.Sample // of the last facts that were to be reported
}

var (
	_ monitor.Scanner      = &Recorder{}
	_ monitor.Reporter     = &Recorder{}
	_ prometheus.Collector = &Recorder{}
)

// Scan implements monitor.Scanner.
func (r *Recorder) Scan(ctx context.Context) (*discover.Facts, error) {
	start := r.Clock.Now()
	facts, err := r.Scanner.Scan(ctx)
	took := r.Clock.Since(start)
	var seen []contract.Sample
	if err == nil {
		seen = r.scanSamples(facts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked, r.scanTook, r.seen = true, took, seen
	if err != nil {
		r.scanFailures++
	} else {
		r.scanned = facts.ObservedTime
	}
	return facts, err
}

// Report implements monitor.Reporter. The monitor calls it whenever its problems changed.
func (r *Recorder) Report(ctx context.Context, facts *v1alpha1.NodeFacts) error {
	toReport := append(r.problemSamples(facts.Problems), r.sample(&contract.AgentValid, float64(facts.ValidForSeconds)))
	err := r.Reporter.Report(ctx, facts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.toReport = toReport
	if err != nil {
		r.writeFailures++
	} else {
		r.reported = r.Clock.Now()
	}
	return err
}

// Has implements monitor.Reporter.
func (r *Recorder) Has(ctx context.Context) (bool, error) { return r.Reporter.Has(ctx) }

// Last implements monitor.Reporter.
func (r *Recorder) Last(ctx context.Context) (*v1alpha1.NodeFacts, error) {
	return r.Reporter.Last(ctx)
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(out chan<- *prometheus.Desc) { contract.Describe(contract.Agent, out) }

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(out chan<- prometheus.Metric) {
	samples := r.Samples()
	contract.NewEmitter(out, len(samples)).Emit(samples)
}

// Samples are the metrics as they are now. What is not known is absent.
func (r *Recorder) Samples() []contract.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []contract.Sample{
		r.sample(&contract.AgentScanFails, float64(r.scanFailures)),
		r.sample(&contract.AgentFailures, float64(r.writeFailures)),
	}
	if r.looked {
		out = append(out, r.sample(&contract.AgentScanTime, r.scanTook.Seconds()))
	}
	if !r.scanned.IsZero() {
		out = append(out, r.sample(&contract.AgentScan, float64(r.scanned.Unix())))
	}
	if !r.reported.IsZero() {
		out = append(out, r.sample(&contract.AgentReport, float64(r.reported.Unix())))
	}
	return append(append(out, r.seen...), r.toReport...)
}

func (r *Recorder) sample(m *contract.Metric, value float64, labels ...string) contract.Sample {
	return contract.Sample{Metric: m, Value: value, Labels: append([]string{r.Node}, labels...)}
}

func (r *Recorder) problemSamples(problems []v1alpha1.Problem) []contract.Sample {
	out := make([]contract.Sample, 0, len(problems))
	for _, p := range problems {
		out = append(out, r.sample(&contract.AgentProblems, 1, p.Severity, p.Code, p.Subject()))
	}
	return out
}

// maxGPUs bounds the series of one node, as the API bounds NodeFacts.gpus.
const maxGPUs = 16

func (r *Recorder) scanSamples(f *discover.Facts) []contract.Sample {
	out := []contract.Sample{r.sample(&contract.AgentInfo, 1, r.Version, cmp.Or(f.ROCm.Version, discover.Unknown),
		cmp.Or(f.Driver.Version, f.Driver.Kind, discover.DriverUnknown), cmp.Or(f.Model, discover.Unknown),
		cmp.Or(f.Partition, discover.Unknown), string(cmp.Or(f.Origin, v1alpha1.OriginUnknown)))}
	if f.GPUsCertain() {
		out = append(out, r.sample(&contract.AgentGPUs, float64(len(f.GPUs))))
	}
	out = append(out, r.linkSamples(f)...)
	for i := range f.GPUs[:min(len(f.GPUs), maxGPUs)] {
		out = append(out, r.errorSamples(&f.GPUs[i])...)
	}
	return out
}

// linkSamples are those of the xGMI mesh; none where the model has none, or where a link that is not seen may be there.
func (r *Recorder) linkSamples(f *discover.Facts) []contract.Sample {
	if !f.LinksCertain() || f.Mesh.State != discover.MeshFull && f.Mesh.State != discover.MeshIncomplete {
		return nil
	}
	out := []contract.Sample{r.sample(&contract.AgentXGMILinks, float64(f.Mesh.Links), contract.LinksUp)}
	eachTwo := false
	if n := f.Mesh.ExpectedLinks; n != nil {
		out = append(out, r.sample(&contract.AgentXGMILinks, float64(*n), contract.LinksExpected))
		eachTwo = *n == len(f.GPUs)*(len(f.GPUs)-1)
	}
	gpus := min(len(f.GPUs), len(f.Mesh.Pairs), maxGPUs)
	for i := range gpus {
		for j := range min(gpus, len(f.Mesh.Pairs[i])) {
			if i == j {
				continue
			}
			switch way := f.Mesh.Pairs[i][j]; {
			case way != nil && way.Type == discover.LinkXGMI:
				out = append(out, r.sample(&contract.AgentXGMILinkUp, 1, f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress))
			case eachTwo:
				out = append(out, r.sample(&contract.AgentXGMILinkUp, 0, f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress))
			}
		}
	}
	return out
}

func (r *Recorder) errorSamples(g *discover.GPU) []contract.Sample {
	var out []contract.Sample
	add := func(m *contract.Metric, n *uint64, severity string) {
		if n != nil {
			out = append(out, r.sample(m, float64(*n), g.PCIAddress, severity))
		}
	}
	add(&contract.AgentXGMIErrors, g.XGMIUncorrectableErrors, contract.SeverityUncorrectable)
	add(&contract.AgentXGMIErrors, g.XGMICorrectableErrors, contract.SeverityCorrectable)
	if !g.RASReadable() {
		return out // a part of a sum is no sum
	}
	var uncorrectable, correctable uint64
	var deferred *uint64
	for _, block := range g.RAS {
		uncorrectable += block.Uncorrectable
		correctable += block.Correctable
		if block.Deferred != nil {
			if deferred == nil {
				deferred = new(uint64)
			}
			*deferred += *block.Deferred
		}
	}
	add(&contract.AgentRAS, &uncorrectable, contract.SeverityUncorrectable)
	add(&contract.AgentRAS, &correctable, contract.SeverityCorrectable)
	add(&contract.AgentRAS, deferred, contract.SeverityDeferred)
	return out
}
