// Package runs tells runs apart: why one started and how to ask for one, which run a result is of, and whether that
// result still counts. It imports only the API.
package runs
