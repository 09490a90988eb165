// Package publish decides what the ConfigMap of proven settings holds: which of them go out, what stays of an earlier
// run's, and what is told where the ConfigMap is someone else's or was changed by hand (docs/decisions/0007, 0014).
package publish
