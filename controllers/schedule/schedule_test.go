package schedule

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestParse(t *testing.T) {
	if next := next("0 3 * * *", testkit.Now); !next.Equal(time.Date(2026, 3, 2, 3, 0, 0, 0, time.UTC)) {
		t.Errorf("next is %s", next)
	}
	if next := next("", testkit.Now); !next.IsZero() {
		t.Errorf("no schedule, but next is %s", next)
	}
}

// TestOddLines: a line that the API's rule refuses, of an object from before there was the rule, is told and takes no
// manager down.
func TestOddLines(t *testing.T) {
	for _, line := range []string{"TZ=Europe/Berlin", "TZ=", "TZ=Europe/Berlin 0 3 * * *",
		"CRON_TZ=Asia/Tokyo 0 3 * * *", "@every 1s", "@every 0 0 0 0", "0 3 * * 7", "0 3 * *", " "} {
		if schedule, err := Parse(line); err == nil || schedule != nil || !next(line, testkit.Now).IsZero() {
			t.Errorf("%q is taken: %v", line, err)
		}
	}
	for _, line := range append([]string{"0 3 * * *"}, names...) {
		if schedule, err := Parse(line); err != nil || schedule == nil || next(line, testkit.Now).IsZero() {
			t.Errorf("%q: %v, %v", line, schedule, err)
		}
	}
}

// TestNext: the delay is the same each time it is computed, within its limit, never up to the next time of the
// schedule, and spread over the groups.
func TestNext(t *testing.T) {
	at := func(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }
	for _, tc := range []struct {
		schedule string
		jitter   int32
		due      time.Time // the time by the cron line
		limit    time.Duration
	}{
		{"", 600, time.Time{}, 0},
		{"0 0 30 2 *", 600, time.Time{}, 0},
		{"0 13 * * *", 0, at(13, 0), 0},
		{"0 13 * * *", 600, at(13, 0), 600 * time.Second},
		{"*/5 * * * *", 3600, at(12, 5), 299 * time.Second},
	} {
		early, late := time.Duration(1<<62), time.Duration(-1)
		for i := range 500 {
			g := testkit.Group()
			g.UID = types.UID(fmt.Sprint("uid-", i))
			g.Spec.Run.Schedule, g.Spec.Run.JitterSeconds = tc.schedule, tc.jitter
			got := Next(g, testkit.Now)
			if tc.due.IsZero() {
				if !got.IsZero() {
					t.Fatalf("%q: %s, expected never", tc.schedule, got)
				}
				continue
			}
			if again := Next(g, testkit.Now.Add(time.Second)); !again.Equal(got) {
				t.Fatalf("%q: %s, then %s", tc.schedule, got, again)
			}
			early, late = min(early, got.Sub(tc.due)), max(late, got.Sub(tc.due))
		}
		if tc.due.IsZero() {
			continue
		}
		if early < 0 || late > tc.limit {
			t.Errorf("%q: delays from %s to %s, expected at most %s", tc.schedule, early, late, tc.limit)
		}
		if tc.limit > 0 && (early > tc.limit/20 || late < tc.limit*19/20) {
			t.Errorf("%q: delays from %s to %s only, of %s", tc.schedule, early, late, tc.limit)
		}
	}
}
