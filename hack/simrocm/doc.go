// Package simrocm holds the simulated ROCm libraries, which are C: librccl.so.1 and libamdhip64.so (see README.md). The
// Go files here only build and test them.
package simrocm
