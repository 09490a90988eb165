package decision

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stamp is a time as the API stores it, to the second.
func Stamp(t time.Time) *metav1.Time {
	s := metav1.NewTime(t.Truncate(time.Second))
	return &s
}

// Seconds of a field of the API as a duration.
func Seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Earlier returns the earlier of two times of which zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
