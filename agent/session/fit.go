package session

import (
	"bytes"
	"encoding/json"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// mostBytes is what a session's report takes of its CommNode at most, where it can be made to fit: the rest belongs to
// facts and to the run's own report. leastBytes is what it gets even beside larger ones.
const mostBytes, leastBytes = 3 << 10, 2 << 10

// Fit makes a report fit budgetBytes of JSON, and mostBytes in any case, giving up the least useful first: unique
// ids of a task that is over, noise, sizes in the middle of each series, ends of messages, all but the largest size, and then
// the last series. It never drops a verdict, a reason, a culprit's name, the unique id of a task that goes on, or the first series.
func Fit(s api.SessionStatus, budgetBytes int) api.SessionStatus {
	budget := max(leastBytes, min(mostBytes, budgetBytes))
	s = *s.DeepCopy()
	if s.Task == nil {
		return s
	}
	fits := func() bool { return encodedBytes(s) <= budget }
	each := func(f func(*api.ResultSeries) bool) (any bool) {
		for i := range s.Task.Communicators {
			for k := range s.Task.Communicators[i].Results {
				any = f(&s.Task.Communicators[i].Results[k]) || any
			}
		}
		return any
	}
	if !fits() {
		dropSpent(s.Task)
	}
	for !fits() && each(func(r *api.ResultSeries) bool { return thin(r, 3) }) {
	}
	for _, limit := range []int{320, 160, 96} {
		if fits() {
			return s
		}
		shorten(&s, limit)
	}
	for !fits() && each(func(r *api.ResultSeries) bool { return thin(r, 1) }) {
	}
	for !fits() && dropSeries(s.Task) {
	}
	return s
}

// dropSpent drops unique ids that nobody needs any more, and noise.
func dropSpent(t *api.NodeTaskStatus) {
	for i := range t.Communicators {
		c := &t.Communicators[i]
		if t.Phase == api.TaskFinished {
			c.UniqueID = nil
		}
		for k := range c.Results {
			c.Results[k].NoisePercent = nil
		}
	}
}

// thin takes out every second size between the first and the last where more than least are there. Of two it takes the first.
func thin(r *api.ResultSeries, least int) bool {
	n := len(r.SizeBytes)
	if n <= least || n < 2 {
		return false
	}
	keep := func(i int) bool { return i == n-1 || i%2 == 0 }
	if n == 2 || least < 3 && n <= 3 {
		keep = func(i int) bool { return i == n-1 }
	}
	r.NoisePercent = nil
	for _, list := range []*[]int64{&r.SizeBytes, &r.LatencyNanoseconds, &r.BusBandwidthMBps} {
		var kept []int64
		for i, v := range *list {
			if keep(i) {
				kept = append(kept, v)
			}
		}
		*list = kept
	}
	return true
}

func shorten(s *api.SessionStatus, limit int) {
	s.Message = clip(s.Message, max(limit, 320))
	for i := range s.Task.Communicators {
		c := &s.Task.Communicators[i]
		c.Message = clip(c.Message, limit)
		if c.Guilty != nil {
			c.Guilty.Message = clip(c.Guilty.Message, limit)
		}
	}
}

// dropSeries takes out the last series of the communicator that has the most, but for the first one.
func dropSeries(t *api.NodeTaskStatus) bool {
	at := -1
	for i, c := range t.Communicators {
		if n := len(c.Results); n > 1 && (at < 0 || n >= len(t.Communicators[at].Results)) {
			at = i
		}
	}
	if at < 0 {
		return false
	}
	r := &t.Communicators[at].Results
	*r = slices.Delete(*r, len(*r)-1, len(*r))
	return true
}

// encodedBytes is the size as the API server stores it: JSON without the escapes for HTML.
func encodedBytes(object any) int {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return 0 // an object of plain strings and numbers always encodes
	}
	return buf.Len() - 1
}
