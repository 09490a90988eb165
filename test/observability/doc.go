// Package observability proves the dashboards, rules and configurations with the real tools: Prometheus and
// kube-state-metrics.
package observability
