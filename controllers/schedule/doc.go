// Package schedule says when a scheduled run is due: the cron line, and the share of the jitter that is the group's
// own.
package schedule
