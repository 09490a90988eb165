package monitor

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestAgainstAPIServer writes facts to a real API server: a missing CommTask is NotFound, the schema takes facts at the
// limits, and the monitor owns status.facts alone.
func TestAgainstAPIServer(t *testing.T) {
	c := testenv.Client(t)
	ctx, name := context.Background(), types.NamespacedName{Namespace: "default", Name: "group.node-a"}
	k := &KubeReporter{Client: c, CommTask: name}
	facts := twoGPUs(time.Unix(1e9, 0))
	if err := k.Report(ctx, facts.NodeFacts(2*time.Minute)); !apierrors.IsNotFound(err) {
		t.Fatalf("without the CommTask: %v, want NotFound", err)
	}
	ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: v1alpha1.CommTaskSpec{NodeName: "node-a", Group: v1alpha1.GroupReference{Name: "group"}, Ranks: v1alpha1.RankRange{Count: 8, WorldSize: 8}}}
	if err := c.Create(ctx, ct); err != nil {
		t.Fatal(err)
	}
	if has, err := k.Has(ctx); has || err != nil {
		t.Errorf("a new CommTask has a report: %v, %v", has, err)
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
	if err := c.Get(ctx, name, ct); err != nil {
		t.Fatal(err)
	}
	for _, m := range ct.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor {
			fields := m.FieldsV1.GetRawString()
			if m.Subresource != "status" || !strings.HasPrefix(fields, `{"f:status":{"f:facts":{`) || strings.Contains(fields, "f:run") {
				t.Errorf("the monitor owns %s of %q", fields, m.Subresource)
			}
			return
		}
	}
	t.Errorf("no field is owned by %s: %+v", v1alpha1.FieldManagerMonitor, ct.ManagedFields)
}
