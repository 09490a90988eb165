//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/test/observability/promproof"
)

// watchedGroup measures little, and something for each panel: all variants, a size at which FP8 works, and a threshold.
const watchedGroup = `
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: watched, namespace: default}
spec:
  members:
    nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}
  dda: {mode: Preferred}
  lowPrecision: {mode: Preferred}
  benchmark:
    collectives: [AllReduce]
    minSizeBytes: 16384
    maxSizeBytes: 16777216
    sizeFactor: 1024
    warmupIterations: 2
    iterations: 5
    thresholds: [{collective: AllReduce, sizeBytes: 16777216, minBusBandwidthMBps: 1000}]
  publish: {simulated: Allow}
`

// testObservability scrapes the managers and the monitors by their pods' addresses with a real Prometheus, and
// evaluates every dashboard and rule. With the group its series go.
func testObservability(t *testing.T, e *env) {
	promproof.Program(t)
	e.installOperator(t)
	e.apply(t, watchedGroup)
	key := client.ObjectKey{Namespace: "default", Name: "watched"}
	eventually(t, runDeadline, "CommGroup watched to be Ready", func(ctx context.Context) error {
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, key, &group); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady); ready == nil ||
			ready.Status != "True" {
			return fmt.Errorf("condition Ready is %+v", ready)
		}
		return nil
	})
	targets := promproof.Targets(t, e.Kube, operatorNamespace)
	server := promproof.Start(t, filepath.Join(e.Repo, "dashboards", "prometheus", "rules.yaml"), targets...)
	server.Up(promproof.Count(targets))
	server.Dashboards(filepath.Join(e.Repo, "dashboards", "grafana"), nil)
	server.Quiet(shortDeadline)
	// Where the group goes, so do its series; the monitors and the manager remain.
	e.checkDelete(t, key)
	server.Eventually("the group's series to go", shortDeadline, func(ctx context.Context) error {
		left, err := server.Query(ctx, `{__name__=~"commgroup_.*",group="watched"}`)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d series are left, for example %v", len(left), left[0].Labels)
		}
		return err
	})
	if r := server.Rules()["CommGroupManagerDown"]; len(r.Alerts) > 0 {
		t.Errorf("the manager is at work, and CommGroupManagerDown is raised: %+v", r.Alerts)
	}
}
