package controllers

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
)

// nextRun is when the schedule's next run after the given time starts: the time of the cron line and the group's share of
// the jitter. Zero means never.
func nextRun(group *v1alpha1.CommGroup, after time.Time) time.Time {
	due := nextScheduled(group.Spec.Run.Schedule, after)
	if due.IsZero() {
		return due
	}
	limit := decision.Seconds(group.Spec.Run.JitterSeconds)
	// A longer delay than to the next time would swallow that one.
	if following := nextScheduled(group.Spec.Run.Schedule, due); !following.IsZero() {
		limit = min(limit, following.Sub(due)-time.Second)
	}
	return due.Add(jitter(string(group.UID), due, limit))
}

// jitter is a delay from zero to the limit, in whole seconds, that is always the same for one group and time, and spread
// evenly over groups and times.
func jitter(groupUID string, due time.Time, limit time.Duration) time.Duration {
	if limit < time.Second {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", groupUID, due.Unix()))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(limit/time.Second+1)) * time.Second
}

// scheduleFrom is when the last run of all members started. The schedule counts from there: a run of some nodes takes no scheduled
// run's place.
func scheduleFrom(status *v1alpha1.CommGroupStatus, run *v1alpha1.GroupRunStatus) time.Time {
	from := run.StartTime.Time
	if !runs.Partial(run) {
		return from
	}
	for i := range status.History { // the newest first
		if from = status.History[i].StartTime.Time; status.History[i].Trigger != runs.TriggerNodesChanged {
			break
		}
	}
	return from
}
