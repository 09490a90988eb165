package session

import (
	"bytes"
	"encoding/json"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
)

// mostBytes is what a session's report takes of its CommNode at most, where it can be made to fit: the rest belongs to
// facts and to the run's own report. leastBytes is what it gets even beside larger ones.
const mostBytes, leastBytes = 4 << 10, 2 << 10

// Fit makes a report fit budgetBytes of JSON, and mostBytes in any case, giving up the least useful first: unique
// ids of a task that is over, noise, sizes in the middle of each series but those in keep, ends of messages, the spread of repeats,
// and then whole series, which it counts: of each communicator the last first, and only then a communicator's first. It never drops a
// verdict, a reason, a culprit's name, the unique id of a task that goes on, or the first and last size of a series that stays.
func Fit(s api.SessionStatus, budgetBytes int, keep []int64) api.SessionStatus {
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
	for !fits() && each(func(r *api.ResultSeries) bool { return thin(r, 3, keep) }) {
	}
	for _, limit := range []int{320, 160, 96} {
		if fits() {
			return s
		}
		shorten(&s, limit)
	}
	for !fits() && each(func(r *api.ResultSeries) bool { return thin(r, 2, keep) }) {
	}
	if !fits() {
		each(func(r *api.ResultSeries) bool { r.SpreadPercent = nil; return false })
	}
	drop := func(least int) {
		for over, more := encodedBytes(s)-budget, true; over > 0 && more; over = encodedBytes(s) - budget {
			for over > 0 && more { // encoding anew for each series takes seconds where there are 64 communicators
				var taken int
				taken, more = dropSeries(s.Task, least)
				over -= taken
			}
		}
	}
	drop(1)
	for !fits() && each(func(r *api.ResultSeries) bool { return thin(r, 2, nil) }) {
	}
	drop(0)
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

// thin takes out every second size between the first and the last where more than least are there, but those to keep. It says
// whether it took any.
func thin(r *api.ResultSeries, least int, keep []int64) bool {
	n := len(r.SizeBytes)
	if n <= least {
		return false
	}
	var stay []int
	out := false
	for i, size := range r.SizeBytes {
		if i > 0 && i < n-1 && !slices.Contains(keep, size) {
			if out = !out; out {
				continue
			}
		}
		stay = append(stay, i)
	}
	if len(stay) == n {
		return false
	}
	r.NoisePercent, r.SpreadPercent = nil, only(r.SpreadPercent, stay)
	for _, list := range []*[]int64{&r.SizeBytes, &r.LatencyNanoseconds, &r.BusBandwidthMBps} {
		*list = only(*list, stay)
	}
	return true
}

// only are the elements of a list at these places.
func only[T any](list []T, places []int) []T {
	var out []T
	for _, i := range places {
		if i < len(list) {
			out = append(out, list[i])
		}
	}
	return out
}

func shorten(s *api.SessionStatus, limit int) {
	s.Message = clip.Head(s.Message, max(limit, 320))
	for i := range s.Task.Communicators {
		c := &s.Task.Communicators[i]
		c.Message = clip.Head(c.Message, limit)
		if c.Guilty != nil {
			c.Guilty.Message = clip.Head(c.Guilty.Message, limit)
		}
	}
}

// dropSeries takes out the last series of the communicator that has the most, while it has more than least, and counts it. It
// says how many bytes that is, and whether there was one.
func dropSeries(t *api.NodeTaskStatus, least int) (int, bool) {
	at := -1
	for i := range t.Communicators {
		if n := len(t.Communicators[i].Results); n > least && (at < 0 || n >= len(t.Communicators[at].Results)) {
			at = i
		}
	}
	if at < 0 {
		return 0, false
	}
	c := &t.Communicators[at]
	last := len(c.Results) - 1
	taken := encodedBytes(c.Results[last])
	c.Results = slices.Delete(c.Results, last, last+1)
	c.OmittedSeries++
	return taken, true
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
