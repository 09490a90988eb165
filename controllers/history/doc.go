// Package history keeps past runs in short, says where bandwidth points, and counts GPU-minutes against the day's
// budget.
package history
