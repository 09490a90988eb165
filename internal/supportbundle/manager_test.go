package supportbundle

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNoManagerIsMissing: with managers scaled to none the bundle has no pod and log of one, says so, and is not whole.
func TestNoManagerIsMissing(t *testing.T) {
	c, kube := cluster(t, 1)
	if err := kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ops", "manager-0",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := Collect(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(b.Missing, func(m Missing) bool {
		return m.Path == "manager/pods-ops.yaml" && strings.Contains(m.Why, "no manager runs in namespace ops")
	}) {
		t.Errorf("missing: %+v, expected the manager's pods", b.Missing)
	}
	if text := byPath(b)["summary.md"]; strings.Contains(text, "Everything was gathered") ||
		!strings.Contains(text, "no manager runs") {
		t.Errorf("the summary does not say that no manager runs:\n%s", text)
	}
}
