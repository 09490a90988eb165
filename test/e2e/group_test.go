//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// spanGroup is one communicator over three nodes, small enough for a simulator that adds up on two processors.
const spanGroup = `
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: across, namespace: default}
spec:
  span: Group
  ranksPerNode: 2
  mesh: [{name: dp, size: 3}, {name: tp, size: 2}]
  members:
    minMembers: 3
    nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}
  network: {requireTransport: RDMA}
  dda: {mode: Disabled}
  lowPrecision: {mode: Disabled}
  benchmark:
    variants: [Baseline]
    collectives: [AllReduce]
    minSizeBytes: 1048576
    maxSizeBytes: 16777216
    sizeFactor: 16
    warmupIterations: 2
    iterations: 5
  publish: {simulated: Allow}
`

// testSpanGroup runs over all nodes together: the ranks meet by the pods' own addresses, over the nodes' network.
func testSpanGroup(t *testing.T, e *env) {
	e.installOperator(t)
	e.apply(t, spanGroup)
	key := client.ObjectKey{Namespace: "default", Name: "across"}
	seen := map[string]netip.Addr{} // node to the address of its run pod
	logged := map[string]string{}
	eventually(t, runDeadline, "CommGroup across to be Ready", func(ctx context.Context) error {
		e.followRunPods(ctx, key, seen, logged)
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, key, &group); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != "True" {
			return fmt.Errorf("condition Ready is %+v", ready)
		}
		return nil
	})
	group := e.checkReady(t, key, v1alpha1.SpanGroup)
	if !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionSettingsPublished) {
		t.Errorf("settings were not published: %+v",
			meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionSettingsPublished))
	}
	subnets := map[netip.Prefix]bool{}
	for node, address := range seen {
		prefix, err := address.Prefix(24)
		if err != nil {
			t.Fatal(err)
		}
		subnets[prefix] = true
		if !strings.Contains(logged[node], "msg=precondition") {
			t.Errorf("kubectl logs of the run pod on %s said %.300q, expected what the agent says of its preconditions",
				node, logged[node])
		}
	}
	if len(seen) != nodeCount || len(subnets) != nodeCount {
		t.Errorf("run pods had the addresses %v, expected %d, each in its node's own network", seen, nodeCount)
	}
	e.checkDelete(t, key)
}

// followRunPods notes addresses and logs while the pods are there: a run's pods go with its end.
func (e *env) followRunPods(ctx context.Context, key client.ObjectKey, addresses map[string]netip.Addr,
	logs map[string]string) {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}); err != nil {
		return // the next look tries again
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		address, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil || p.Status.Phase != corev1.PodRunning {
			continue
		}
		addresses[p.Spec.NodeName] = address
		if out, err := e.try(ctx, "", "kubectl", "logs", "--namespace", p.Namespace, p.Name,
			"--container", "ranks"); err == nil && out != "" {
			logs[p.Spec.NodeName] = out
		}
	}
}
