package testkit

import (
	"testing"
	"time"
)

// MaxRefusedRetry is how late a reconcile after a refused write may come.
const MaxRefusedRetry = time.Minute

// WantRefusedResult fails the test unless the reconcile returned no error, since its back-off would replace the next
// wake-up, and comes again within MaxRefusedRetry.
func WantRefusedResult(t *testing.T, requeueAfter time.Duration, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("a refused write is an error of the reconcile: %v", err)
	}
	if requeueAfter <= 0 || requeueAfter > MaxRefusedRetry {
		t.Fatalf("the next reconcile comes after %s, expected at most %s", requeueAfter, MaxRefusedRetry)
	}
}
