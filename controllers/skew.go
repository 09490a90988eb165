package controllers

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

// maxClockSkew is from when on clocks are told to be apart.
const maxClockSkew = 30 * time.Second

// maxReportDelay is what a monitor may take from the time it writes into a report until the API server has it: one scan and
// one write, which are 30 s and 15 s at most (agent/monitor).
const maxReportDelay = 45 * time.Second

// monitorWrite finds the record of the monitor's last write of status.facts. The API server stamps it with its own clock, at
// each write, so that it is the one time of a report that is the same for all nodes and all managers.
func monitorWrite(fields []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for i := range fields {
		if f := &fields[i]; f.Manager == v1alpha1.FieldManagerMonitor && f.Operation == metav1.ManagedFieldsOperationApply && f.Time != nil {
			return f
		}
	}
	return nil
}

// reportedAt is when the node's facts were written, by the API server's clock. Facts that no monitor has written, as a person
// may do by hand, say it themselves.
func reportedAt(cn *v1alpha1.CommNode) time.Time {
	if w := monitorWrite(cn.ManagedFields); w != nil {
		return w.Time.Time
	}
	return cn.Status.Facts.ObservedTime.Time
}

// aheadOf is by how much the node's clock was ahead of the API server's at its monitor's last report, negative where it was
// behind; zero where that is not known. What the monitor took to report makes a right clock look as if it were behind.
func aheadOf(cn *v1alpha1.CommNode) time.Duration {
	if cn == nil || cn.Status.Facts == nil {
		return 0
	}
	return cn.Status.Facts.ObservedTime.Sub(reportedAt(cn))
}

// clockSkew is the same for a clock that is surely wrong, else zero.
func clockSkew(cn *v1alpha1.CommNode) time.Duration {
	ahead := aheadOf(cn)
	if ahead > maxClockSkew || ahead < -(maxClockSkew+maxReportDelay) {
		return ahead
	}
	return 0
}

// corrected is a time that the node's kubelet or agent wrote, by the API server's clock; at most maxReportDelay later than it
// was, never earlier. No deadline may rest on such a time otherwise: of a clock that is minutes off it would be over at once,
// or long after.
func corrected(cn *v1alpha1.CommNode, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-aheadOf(cn))
}

// skewRemark names members whose clocks are off, for the condition AgentsReporting; empty where none is.
func skewRemark(members []decision.Member, commNodes map[string]*v1alpha1.CommNode, now time.Time) string {
	var apart []string
	for i := range members {
		cn := commNodes[members[i].Name]
		if !factsHold(cn, now) {
			continue
		}
		// No amount: it would make each report a change.
		switch skew := clockSkew(cn); {
		case skew > 0:
			apart = append(apart, members[i].Name+" (ahead)")
		case skew < 0:
			apart = append(apart, members[i].Name+" (behind)")
		}
	}
	if len(apart) == 0 {
		return ""
	}
	return fmt.Sprintf(" %s: by the reports of their monitors the clocks of %s are more than %d s off the API server's: %s. No deadline depends on them; mend time synchronisation there, or times in logs and reports mislead.",
		v1alpha1.ReasonClockSkew, words.Counted(len(apart), "member"), int(maxClockSkew/time.Second), words.SomeNames(apart, 5))
}
