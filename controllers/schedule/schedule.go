package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// names are the lines of one word that the CRD takes, too. @every is none: it counts from when the manager looks.
var names = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

// Parse returns nil for the empty schedule. Times are UTC.
func Parse(line string) (cron.Schedule, error) {
	if line == "" {
		return nil, nil
	}
	// What else the parser takes, as a time zone, it may also fall over.
	if n := len(strings.Fields(line)); n != 5 && !slices.Contains(names, line) {
		return nil,
			fmt.Errorf("it has %s, expected five: minute, hour, day of the month, month, day of the week; or one of %s",
				units.Counted(n, "field"), strings.Join(names, ", "))
	}
	return cron.ParseStandard(line)
}

// next returns when the schedule is due next after the given time; zero means never.
func next(line string, after time.Time) time.Time {
	schedule, err := Parse(line)
	if err != nil || schedule == nil {
		return time.Time{}
	}
	return schedule.Next(after.UTC())
}

// Next is when the schedule's next run after the given time starts: the time of the cron line and the group's share of
// the jitter. Zero means never.
func Next(group *state.Group, after time.Time) time.Time {
	due := next(group.Spec.Run.Schedule, after)
	if due.IsZero() {
		return due
	}
	limit := decision.Seconds(group.Spec.Run.JitterSeconds)
	// A longer delay than to the next time would swallow that one.
	if following := next(group.Spec.Run.Schedule, due); !following.IsZero() {
		limit = min(limit, following.Sub(due)-time.Second)
	}
	return due.Add(Jitter(string(group.UID), due, limit))
}

// Jitter is a delay from zero to the limit, in whole seconds, that is always the same for one group and time, and
// spread evenly over groups and times.
func Jitter(groupUID string, due time.Time, limit time.Duration) time.Duration {
	if limit < time.Second {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", groupUID, due.Unix()))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(limit/time.Second+1)) * time.Second
}

// Of is the group's schedule and since when it has it: a line that is new, or was changed just now, names no time
// before now.
func Of(group *state.Group, now time.Time) *v1alpha1.ScheduleStatus {
	line, known := group.Spec.Run.Schedule, group.Status.Schedule
	switch {
	case line == "":
		return nil
	case known != nil && known.Line == line:
		return known
	}
	return &v1alpha1.ScheduleStatus{Line: line, Since: *decision.Stamp(now)}
}

// Done is up to when the schedule is done with: to the end of the last run of all members, which measured what a run
// that was due meanwhile would have, and to when the line was written.
func Done(group *state.Group, history []v1alpha1.RunSummary, run *v1alpha1.GroupRunStatus, now time.Time) time.Time {
	from := lastOfAll(history, run, now)
	if s := Of(group, now); s != nil && s.Since.After(from) {
		return s.Since.Time
	}
	return from
}

// lastOfAll is the end of the last run of all members: a run of some nodes takes no scheduled run's place. Where none
// is known, the start of the oldest run that is.
func lastOfAll(history []v1alpha1.RunSummary, run *v1alpha1.GroupRunStatus, now time.Time) time.Time {
	switch {
	case runs.Partial(run):
	case run.FinishTime == nil:
		return now // it goes on
	default:
		return run.FinishTime.Time
	}
	from := run.StartTime.Time
	for i := range history { // the newest first
		h := &history[i]
		from = h.StartTime.Time
		if h.Trigger != state.TriggerNodesChanged {
			if h.FinishTime != nil {
				from = h.FinishTime.Time
			}
			break
		}
	}
	return from
}
