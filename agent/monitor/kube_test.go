package monitor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestKubeReporter(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Namespace: "ml", Name: "group.node-a"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.CommTask{}).Build()
	k := &KubeReporter{Client: c, CommTask: name}
	ctx := context.Background()
	report := func() error {
		return k.Report(ctx, twoGPUs(time.Unix(1e9, 0)).NodeFacts(2*time.Minute))
	}
	if facts, err := k.Last(ctx); facts != nil || err != nil {
		t.Errorf("facts of no CommTask: %v, %v", facts, err)
	}
	ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Spec: v1alpha1.CommTaskSpec{NodeName: "node-a"}}
	if err := c.Create(ctx, ct); err != nil {
		t.Fatal(err)
	}
	run := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"run": map[string]any{
		"id": "r1", "generation": int64(1), "phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}}}
	run.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommTask"))
	run.SetNamespace(name.Namespace)
	run.SetName(name.Name)
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(run), client.FieldOwner(v1alpha1.FieldManagerRun), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	if facts, err := k.Last(ctx); facts != nil || err != nil {
		t.Errorf("facts before any report: %v, %v", facts, err)
	}
	for range 2 {
		if err := report(); err != nil {
			t.Fatal(err)
		}
	}
	if facts, err := k.Last(ctx); err != nil || facts.GPUCount != 2 || facts.GPUs[1].PCIAddress != "0000:2b:00.0" {
		t.Errorf("last facts %+v, %v", facts, err)
	}
	if err := c.Get(ctx, name, ct); err != nil {
		t.Fatal(err)
	}
	if ct.Status.Facts == nil || ct.Status.Facts.GPUCount != 2 || ct.Status.Run == nil || ct.Status.Run.ID != "r1" || ct.Spec.NodeName != "node-a" {
		t.Errorf("CommTask after both agents wrote: %+v", ct)
	}
}

func TestHealth(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	h := NewHealth(clock, 30*time.Second, 2*time.Minute)
	check := func(path string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	check("/readyz", 503)
	check("/healthz", 503)
	check("/livez", 200)
	check("/other", 404)
	h.looked(clock.Now())
	h.reported(clock.Now())
	check("/readyz", 200)
	check("/healthz", 200)
	clock.Step(3 * time.Minute)
	check("/readyz", 503) // the report is too old
	check("/livez", 200)
	clock.Step(10 * time.Minute)
	check("/livez", 503)
	(*Health)(nil).looked(clock.Now())
	(*Health)(nil).reported(clock.Now())
}
