package testkit

import (
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// MaxRefusedRetry is how late a reconcile after a refused write may come.
const MaxRefusedRetry = time.Minute

// WantRefusedResult fails the test unless the reconcile returned no error, since its back-off would replace the next wake-up, and
// comes again within MaxRefusedRetry.
func WantRefusedResult(t *testing.T, result ctrl.Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("a refused write is an error of the reconcile: %v", err)
	}
	if result.RequeueAfter <= 0 || result.RequeueAfter > MaxRefusedRetry {
		t.Fatalf("the next reconcile comes after %s, expected at most %s", result.RequeueAfter, MaxRefusedRetry)
	}
}
