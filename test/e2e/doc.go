// Package e2e holds the end-to-end tests, which `make test-e2e` runs with the build tag e2e on a cluster of real nodes
// (hack/realcluster). docs/e2e.md says how to run and to add one.
package e2e
