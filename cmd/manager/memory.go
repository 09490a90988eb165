package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryVariable is the container's memory limit in bytes, which the chart takes from the pod itself.
const memoryVariable = "MEMORY_LIMIT_BYTES"

// limitMemory lets Go's garbage collector work harder instead of the kernel ending the process at its limit: by default
// the heap may grow to twice of what is in use. A tenth is left for what Go does not count. GOMEMLIMIT, where it is
// set, comes first.
func limitMemory() error {
	text := os.Getenv(memoryVariable)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%s is %q: expected the container's memory limit as a number of bytes; leave it out for none",
			memoryVariable, text)
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	return nil
}
