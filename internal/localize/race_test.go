//go:build race

package localize

// raced: the race detector makes the searches ten times as slow, so some of the many sizes are left out.
const raced = true
