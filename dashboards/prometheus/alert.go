// Package prometheus holds the recording rules and alerts, each with its unit tests and its runbook page.
package prometheus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/internal/metrics"
)

// Severities of alerts: critical wants a user now, warning in working hours.
const (
	Critical = "critical"
	Warning  = "warning"
)

// RunbookBase stands in rules.yaml before /alerts/<Alert>.md; the chart puts the real base in its place.
const RunbookBase = "RUNBOOK_BASE"

// Alert is one alert with all that belongs to it.
type Alert struct {
	Name, Severity string
	Expr           string
	// For is how long the expression must hold.
	For time.Duration
	// Summary and Description are Prometheus templates.
	Summary, Description string
	Page                 Page
	Tests                []Test
}

// Page is what the runbook page of the alert says.
type Page struct {
	Meaning, Impact string
	// Look are commands, or sentences with them, in the order to try.
	Look []string
	// Do are the next steps.
	Do []string
	// Silence says when it is right to silence the alert, and how.
	Silence string
	// Reasons of docs/reasons.md that belong to it.
	Reasons []string
}

// Test is one unit test that promtool runs.
type Test struct {
	Name   string
	Series []Series
	// At is the time of the look; the series begin at 0 with a value a minute.
	At time.Duration
	// Fires are the alerts that fire then; none means that none does.
	Fires []Fired
	// Pending is how many are pending then.
	Pending int
}

// Fired is one alert that fires.
type Fired struct {
	Labels               map[string]string
	Summary, Description string
}

// Series is one series of a test in promtool's notation.
type Series struct{ Selector, Values string }

// labels of a series or an alert.
type labels map[string]string

// pool is the group that the tests speak of.
var pool = labels{metrics.LabelGroupNamespace: "ml", metrics.LabelGroup: "pool"}

// with returns both together.
func (l labels) with(more labels) labels {
	all := labels{}
	maps.Copy(all, l)
	maps.Copy(all, more)
	return all
}

// of is a series of the pool. Each label of the metric must be named and no other.
func of(m metrics.Metric, more labels, values string) Series {
	all := more
	if slices.Contains(m.Labels, metrics.LabelGroup) {
		all = pool.with(more)
	}
	for name := range all {
		if !slices.Contains(m.Labels, name) {
			panic(fmt.Sprintf("metric %s has no label %q, only %v", m.Name, name, m.Labels))
		}
	}
	parts := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, fmt.Sprintf("%s=%q", name, all[name]))
	}
	return Series{m.Name + "{" + strings.Join(parts, ",") + "}", values}
}

// Alerts are all alerts, in the order of the rules file.
func Alerts() []Alert {
	return slices.Concat(groupAlerts(), runAlerts(), settingAlerts(), reportAlerts(), nodeAlerts(), managerAlerts())
}

// Record is a recording rule.
type Record struct{ Name, Expr, Help string }
