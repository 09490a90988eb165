package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestARefusedWriteKeepsTheWakeUp checks the result after writes: a deadline comes at its time whatever is refused, a refusal is tried
// again within a minute, and what ends by itself stays an error.
func TestARefusedWriteKeepsTheWakeUp(t *testing.T) {
	now := testkit.Now
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", errors.New("changed"))
	for name, c := range map[string]struct {
		err    error
		wakeIn time.Duration // 0 for no wake-up
		want   time.Duration
		fails  bool
	}{
		"nothing":                           {},
		"a wake-up":                         {wakeIn: time.Hour, want: time.Hour},
		"a wake-up that is due":             {wakeIn: -time.Second, want: minWake},
		"refused, no wake-up":               {err: errQuota, want: refusedRetry},
		"refused, a later wake-up":          {err: errQuota, wakeIn: time.Hour, want: refusedRetry},
		"refused, an earlier wake-up":       {err: errQuota, wakeIn: 20 * time.Second, want: 20 * time.Second},
		"refused, a wake-up that is due":    {err: errQuota, wakeIn: -time.Second, want: minRefusedRetry},
		"several refused":                   {err: errors.Join(fmt.Errorf("write x: %w", errQuota), fmt.Errorf("%w: CommNode y", errTaken)), want: refusedRetry},
		"a refused closure":                 {err: fmt.Errorf("write: %w", closureError(errQuota)), wakeIn: 5 * time.Second, want: 5 * time.Second},
		"a closure without an answer":       {err: closureError(errors.New("connection refused")), fails: true},
		"refused, and one without answer":   {err: errors.Join(errQuota, errors.New("connection refused")), wakeIn: time.Second, fails: true},
		"a conflict":                        {err: conflict, fails: true},
		"refused, and a conflict behind it": {err: errors.Join(errQuota, conflict), fails: true},
		"a read that is old":                {err: closureError(conflict), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var wakeAt time.Time
			if c.wakeIn != 0 {
				wakeAt = now.Add(c.wakeIn)
			}
			got, err := afterWrites(t.Context(), c.err, wakeAt, now)
			if got != (ctrl.Result{RequeueAfter: c.want}) || (err != nil) != c.fails {
				t.Errorf("%+v, %v; expected after %s, an error: %v", got, err, c.want, c.fails)
			}
		})
	}
}

// TestBackOffIsBounded: after any number of errors the next try comes within half a minute, and another group's errors hold nothing back.
func TestBackOffIsBounded(t *testing.T) {
	limiter := controllerOptions(1).RateLimiter
	for i := range 1000 {
		if got := limiter.When(request(fmt.Sprint("g", i))); got > time.Second {
			t.Fatalf("the first retry of group %d comes after %s", i, got)
		}
	}
	var last time.Duration
	for range 100 {
		last = limiter.When(request("g"))
	}
	if last > 30*time.Second {
		t.Errorf("the retry after 100 errors comes after %s", last)
	}
}
