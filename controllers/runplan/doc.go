// Package runplan turns the spec into what a run measures, names the series of its results, and tells what is missing
// of them. It judges nothing.
package runplan
