package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestMemoryLimit: the manager's own limit is nine tenths of its container's, unless Go was told one.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, c := range []struct {
		bytes, gomemlimit string
		want              int64
		words             string
	}{
		{"", "", 1 << 50, ""},
		{"1073741824", "", 966367638, ""},
		{"1073741824", "1GiB", 1 << 50, ""},
		{"1Gi", "", 1 << 50, `MEMORY_LIMIT_BYTES is "1Gi"`},
		{"0", "", 1 << 50, "leave it out"},
	} {
		debug.SetMemoryLimit(1 << 50)
		t.Setenv(memoryVariable, c.bytes)
		t.Setenv("GOMEMLIMIT", c.gomemlimit)
		err := limitMemory()
		if got := debug.SetMemoryLimit(-1); got != c.want || (err == nil) != (c.words == "") ||
			err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q and GOMEMLIMIT %q: limit %d, error %v; expected %d and %q",
				c.bytes, c.gomemlimit, got, err, c.want, c.words)
		}
	}
}
