// Package serverclock tells the time by the API server's clock, so that what a manager on a node with a wrong clock
// decides, and writes, is the same as any other would.
package serverclock

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// tolerance is how far apart the clocks may be before the local one is corrected. Below it the local clock is as good,
// and its time never jumps.
const tolerance = 5 * time.Second

// Clock is a local clock, corrected where the answers of the API server show that it is off.
type Clock struct {
	local  clock.PassiveClock
	offset atomic.Int64 // nanoseconds to add
}

var _ clock.PassiveClock = &Clock{}

// New makes a Clock that is the local one until the first answer.
func New(local clock.PassiveClock) *Clock { return &Clock{local: local} }

// Now is the time by the API server's clock, to within some seconds.
func (c *Clock) Now() time.Time { return c.local.Now().Add(time.Duration(c.offset.Load())) }

// Since is the time that has passed since t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Wrap lets the clock see the answers that next brings.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return &observer{clock: c, next: next}
}

type observer struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := o.clock.local.Now()
	response, err := o.next.RoundTrip(r)
	if err == nil {
		// net/http's server writes Date into each answer, to the second below (RFC 9110, 6.6.1). No Date teaches
		// nothing.
		if date, bad := http.ParseTime(response.Header.Get("Date")); bad == nil {
			o.clock.learn(sent, o.clock.local.Now(), date)
		}
	}
	return response, err
}

// learn from an answer that was dated between sent and got. A slow answer says little, and changes little.
func (c *Clock) learn(sent, got, date time.Time) {
	least, most := date.Sub(got)-tolerance, date.Add(time.Second).Sub(sent)+tolerance
	fits := func(offset time.Duration) bool { return least <= offset && offset <= most }
	switch {
	case fits(time.Duration(c.offset.Load())):
	case fits(0):
		c.offset.Store(0)
	default:
		c.offset.Store(int64((least + most) / 2))
	}
}
