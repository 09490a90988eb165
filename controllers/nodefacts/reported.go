package nodefacts

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Hold says whether the node's monitor has reported and the report has not run out.
func Hold(cn *v1alpha1.CommNode, now time.Time) bool {
	return cn != nil && cn.Status.Facts != nil && now.Before(HoldUntil(cn))
}

// HoldUntil is when the report runs out, counted from its write by the API server's clock, not the node's.
func HoldUntil(cn *v1alpha1.CommNode) time.Time {
	return ReportedAt(cn).Add(time.Duration(cn.Status.Facts.ValidForSeconds) * time.Second)
}

// ErrorProblems are the problems in the facts that keep a node from running.
func ErrorProblems(facts *v1alpha1.NodeFacts) []v1alpha1.Problem {
	var out []v1alpha1.Problem
	for _, p := range facts.Problems {
		if p.Severity == "Error" {
			out = append(out, p)
		}
	}
	return out
}

// MaxClockSkew is from when on clocks are told to be apart.
const MaxClockSkew = 30 * time.Second

// maxReportDelay is what a monitor may take from the time it writes into a report until the API server has it: one scan
// and one write, which are 30 s and 15 s at most (agent/monitor).
const maxReportDelay = 45 * time.Second

// MonitorWrite finds the record of the monitor's last write of status.facts. The API server stamps it with its own
// clock, at each write, so that it is the one time of a report that is the same for all nodes and all managers.
func MonitorWrite(fields []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for i := range fields {
		if f := &fields[i]; f.Manager == v1alpha1.FieldManagerMonitor &&
			f.Operation == metav1.ManagedFieldsOperationApply && f.Time != nil {
			return f
		}
	}
	return nil
}

// ReportedAt is when the node's facts were written, by the API server's clock. Facts that no monitor has written, as a
// person may do by hand, say it themselves.
func ReportedAt(cn *v1alpha1.CommNode) time.Time {
	if w := MonitorWrite(cn.ManagedFields); w != nil {
		return w.Time.Time
	}
	return cn.Status.Facts.ObservedTime.Time
}

// aheadOf is by how much the node's clock was ahead of the API server's at its monitor's last report, negative where it
// was behind; zero where that is not known. What the monitor took to report makes a right clock look as if it were
// behind.
func aheadOf(cn *v1alpha1.CommNode) time.Duration {
	if cn == nil || cn.Status.Facts == nil {
		return 0
	}
	return cn.Status.Facts.ObservedTime.Sub(ReportedAt(cn))
}

// ClockSkew is the same for a clock that is surely wrong, else zero.
func ClockSkew(cn *v1alpha1.CommNode) time.Duration {
	ahead := aheadOf(cn)
	if ahead > MaxClockSkew || ahead < -(MaxClockSkew+maxReportDelay) {
		return ahead
	}
	return 0
}

// Corrected is a time that the node's kubelet or agent wrote, by the API server's clock; at most maxReportDelay later
// than it was, never earlier. No deadline may rest on such a time otherwise: of a clock that is minutes off it would be
// over at once, or long after.
func Corrected(cn *v1alpha1.CommNode, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-aheadOf(cn))
}
