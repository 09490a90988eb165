package monitor

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestAgainstAPIServer writes facts to a real API server: the monitor creates the CommNode, the schema takes facts at the limits, and
// the status has no other owner.
func TestAgainstAPIServer(t *testing.T) {
	c := testenv.Client(t)
	ctx, name := t.Context(), client.ObjectKey{Name: "node-a"}
	k := &KubeReporter{Client: c, Node: "node-a"}
	facts := twoGPUs(time.Unix(1e9, 0))
	if err := k.Report(ctx, facts.NodeFacts(2*time.Minute)); !apierrors.IsNotFound(err) {
		t.Fatalf("without the Node: %v, want NotFound", err)
	}
	if has, err := k.Has(ctx); has || err != nil {
		t.Errorf("no CommNode has a report: %v, %v", has, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	if err := c.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	full := twoGPUs(time.Unix(1e9, 0))
	full.GPUs, full.Mesh.Pairs = make([]discover.GPU, 16), make([][]*discover.Link, 16)
	for i := range full.GPUs {
		full.GPUs[i] = discover.GPU{PCIAddress: "10000:" + string(rune('a'+i)) + "0:00.0", Model: strings.Repeat("m", 100)}
		full.Mesh.Pairs[i] = make([]*discover.Link, 16)
	}
	for range 40 {
		full.Problems = append(full.Problems, v1alpha1.Problem{Severity: v1alpha1.SeverityWarning, Code: strings.Repeat("C", 99),
			Subject: strings.Repeat("s", 300), Message: strings.Repeat("é", 900)})
	}
	failed := failedFacts("node-a", v1alpha1.OriginUnknown, time.Unix(1e9, 0), 2*time.Minute, context.DeadlineExceeded)
	for what, f := range map[string]*v1alpha1.NodeFacts{"usual": facts.NodeFacts(2 * time.Minute), "full": full.NodeFacts(2 * time.Minute), "failed": failed} {
		if err := k.Report(ctx, f); err != nil {
			t.Errorf("%s facts: %v", what, err)
		}
	}
	if has, err := k.Has(ctx); !has || err != nil {
		t.Errorf("has a report: %v, %v", has, err)
	}
	var cn v1alpha1.CommNode
	if err := c.Get(ctx, name, &cn); err != nil {
		t.Fatal(err)
	}
	if cn.Spec.NodeUID != string(node.UID) {
		t.Errorf("CommNode of Node %s, want %s", cn.Spec.NodeUID, node.UID)
	}
	for _, m := range cn.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor && m.Operation == metav1.ManagedFieldsOperationApply {
			fields := m.FieldsV1.GetRawString()
			if m.Subresource != "status" || !strings.HasPrefix(fields, `{"f:status":{"f:facts":{`) {
				t.Errorf("the monitor owns %s of %q", fields, m.Subresource)
			}
			return
		}
	}
	t.Errorf("no field is owned by %s: %+v", v1alpha1.FieldManagerMonitor, cn.ManagedFields)
}
