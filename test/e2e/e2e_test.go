//go:build e2e

package e2e

import "testing"

// step is one end-to-end test. A step finds a cluster with nodes and nothing else on it, and leaves it so
// (installOperator cleans up by itself).
type step struct {
	name string
	run  func(*testing.T, *env)
}

// steps run in this order, on one cluster. Each has its own file.
var steps = []step{
	{"Quickstart", testQuickstart},
	{"SpanGroup", testSpanGroup},
	{"Security", testSecurity},
	{"Observability", testObservability},
	{"ChartUpgrade", testChartUpgrade},
	{"ChartLifecycle", testChartLifecycle},
	{"ChartNamespaced", testChartNamespaced},
	{"Metrics", testMetrics},
	{"Images", testImages},
}

func TestE2E(t *testing.T) {
	e := newEnv(t)
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { s.run(t, e) })
	}
}
