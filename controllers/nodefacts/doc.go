// Package nodefacts reads what a node's monitor has reported: whether it still holds, by which clock, and whether it
// contradicts what was measured before, the node's labels or its resources. It knows neither runs nor groups.
package nodefacts
