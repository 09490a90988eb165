package main

import (
	"os"
	"testing"
)

func TestProcessorTicks(t *testing.T) {
	// The name of this one has what separates fields elsewhere.
	got, err := processorTicks("42 (a) b (c) S 1 42 42 0 -1 4194560 1000 0 0 0 123 45 7 8 20 0 9 0 100 1000 200")
	if err != nil || got != 168 {
		t.Errorf("%d, %v; want 168 without the children's", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1 2", "42 (x) S 1 42 42 0 -1 4194560 1000 0 0 0 many 45 7 8"} {
		if got, err := processorTicks(bad); err == nil {
			t.Errorf("%q: %d, want an error", bad, got)
		}
	}
}

func TestUsageOfItself(t *testing.T) {
	u, err := usageOf(os.Getpid())
	if err != nil || u.rssKiB <= 0 || u.peakKiB < u.rssKiB || u.processor < 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := usageOf(1 << 30); err == nil {
		t.Error("a process that is not there has usage")
	}
}
