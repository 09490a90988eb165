package executor

import (
	"bytes"
	"encoding/json"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// taskBytes is what a CommTask may take as JSON for a run on its node, without managed fields: with them it stays
	// under 10 KiB (docs/decisions/0005).
	taskBytes = 9<<10 + 256
	// leastReportBytes is what a report gets even beside a plan that is larger than usual.
	leastReportBytes = 3 << 10
	// mostBytes is what a session's report takes at most on top of that; leastBytes is what it gets even beside a large
	// spec.session.
	mostBytes, leastBytes = 4 << 10, 2 << 10
	// bytesAround is a report's name with a comma, and a resourceVersion or time that grows.
	bytesAround = 64
)

// reportBudget is what a run's report may take in its CommTask, in bytes of JSON. The session has a share of its own.
func reportBudget(task api.CommTask) int {
	task.ManagedFields, task.Status.Run = nil, nil
	task.Spec.Session, task.Status.Session = nil, nil
	return max(taskBytes-encodedBytes(task)-bytesAround, leastReportBytes)
}

// sessionBudget is what a session's report may take in its CommTask, in bytes of JSON.
func sessionBudget(task api.CommTask) int {
	task.ManagedFields, task.Status.Session = nil, nil
	return taskBytes + mostBytes - encodedBytes(task) - bytesAround
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

// FitRun makes a report fit budgetBytes of JSON, giving up the least useful first: the ends of long messages, then
// the sizes at which a variant's setting is not in effect and so equals Baseline, the noise of the series, then sizes
// in the middle of each series, and of a large plan whole series of the variants, which it counts. It never drops a
// verdict, a culprit's name, a setting or a Baseline series. keep are sizes that stay in any case, for example those
// of thresholds.
func FitRun(s api.NodeRunStatus, budgetBytes int, keep []int64) api.NodeRunStatus {
	s = *s.DeepCopy()
	// One series after the other, from the last: the variants give way before Baseline, which everything else is
	// compared with.
	each := func() (groups [][]*api.ResultSeries) {
		for i := range s.Results {
			groups = append(groups, []*api.ResultSeries{&s.Results[i]})
		}
		return groups
	}
	shrink(func() int { return encodedBytes(s) - budgetBytes },
		once(func() { shortenRun(&s, 160) }),
		once(func() { s.Checks = fewerWords(s.Checks, 1) }),
		once(func() { dropWithoutEffect(s.Results, s.Settings, 1, keep) }),
		once(func() { shortenRun(&s, 80) }),
		once(func() { s.DataErrors = largestSizes(s.DataErrors) }),
		once(func() { dropNoise(s.Results) }),
		once(func() { dropWithoutEffect(s.Results, s.Settings, 0, keep) }),
		once(func() { shortenRun(&s, 56) }),
		once(func() { s.Checks = fewerWords(s.Checks, 0) }),
		thinning(each, 2, keep),
		dropping(func() (*[]api.ResultSeries, int, *int32) {
			return &s.Results, leastUsefulVariant(s.Results, s.Settings), &s.OmittedSeries
		}),
		once(func() {
			shortenRun(&s, 24)
			s.DataErrors = nil
			for i := range s.Settings {
				s.Settings[i].Evidence = nil // the verdicts on it stay
			}
			s.Checks = s.Checks[:min(len(s.Checks), 4)] // the worst
		}))
	return s
}

// FitSession makes a report fit budgetBytes of JSON, and mostBytes in any case, giving up the least useful first:
// unique ids of a task that is over, noise, sizes in the middle of each series but those in keep, ends of messages,
// the spread of repeats, and then whole series, which it counts: of each communicator the last first, and only then a
// communicator's first. It never drops a verdict, a reason, a culprit's name, the unique id of a task that goes on,
// or the first and last size of a series that stays.
func FitSession(s api.SessionStatus, budgetBytes int, keep []int64) api.SessionStatus {
	s = *s.DeepCopy()
	if s.Task == nil {
		return s
	}
	budget := max(leastBytes, min(mostBytes, budgetBytes))
	// All series at once: they are compared with each other, size by size.
	all := func() [][]*api.ResultSeries {
		var group []*api.ResultSeries
		for i := range s.Task.Communicators {
			results := s.Task.Communicators[i].Results
			for k := range results {
				group = append(group, &results[k])
			}
		}
		return [][]*api.ResultSeries{group}
	}
	drop := func(least int) step {
		return dropping(func() (*[]api.ResultSeries, int, *int32) { return lastSeries(s.Task.Communicators, least) })
	}
	shrink(func() int { return encodedBytes(s) - budget },
		once(func() { dropSpent(s.Task) }),
		thinning(all, 3, keep),
		once(func() { shortenSession(&s, 320) }),
		once(func() { shortenSession(&s, 160) }),
		once(func() { shortenSession(&s, 96) }),
		thinning(all, 2, keep),
		once(func() {
			for _, r := range all()[0] {
				r.SpreadPercent = nil
			}
		}),
		drop(1), thinning(all, 2, nil), drop(0))
	return s
}

// step gives something up of a report that is over its budget by so many bytes. It says whether it may be taken again.
type step func(over int) bool

// shrink takes the steps in order, each for as long as it gives something up, until the report is over its budget no
// more.
func shrink(over func() int, steps ...step) {
	for _, take := range steps {
		for n := over(); n > 0 && take(n); n = over() {
		}
	}
}

// once is a step that is taken once.
func once(f func()) step {
	return func(int) bool {
		f()
		return false
	}
}

// thinning takes sizes out of the middle of series, of one group of them after the other from the last.
func thinning(groups func() [][]*api.ResultSeries, least int, keep []int64) step {
	return func(over int) bool {
		any := false
		for _, group := range slices.Backward(groups()) {
			for _, r := range group {
				before := encodedBytes(r)
				if thin(r, least, keep) {
					any, over = true, over-before+encodedBytes(r)
				}
			}
			if over <= 0 {
				break
			}
		}
		return any
	}
}

// dropping takes out whole series and counts them: of the list and at the place that next says, until that is negative.
func dropping(next func() (list *[]api.ResultSeries, at int, omitted *int32)) step {
	return func(over int) bool {
		any := false
		for over > 0 { // encoding the whole report for each series takes seconds where there are 64 communicators
			list, at, omitted := next()
			if at < 0 {
				return any
			}
			over -= encodedBytes((*list)[at])
			*list = slices.Delete(*list, at, at+1)
			*omitted++
			any = true
		}
		return any
	}
}

// leastUsefulVariant is the place of the least useful series: of a variant whose setting is not in effect, else of a
// variant in place, else the last one of a variant. It is negative where only Baseline is left, which stays.
func leastUsefulVariant(results []api.ResultSeries, settings []api.SettingStatus) int {
	at, worth := -1, 3
	for i := range slices.Backward(results) {
		r := &results[i]
		w := 2
		switch {
		case r.Variant == api.VariantBaseline:
			continue
		case withoutEffect(r, settings):
			w = 0
		case r.Placement == api.InPlace:
			w = 1
		}
		if w < worth {
			at, worth = i, w
		}
	}
	return at
}

// lastSeries is the last one of the communicator that has the most, while it has more than least.
func lastSeries(comms []api.TaskCommunicatorStatus, least int) (*[]api.ResultSeries, int, *int32) {
	at := -1
	for i := range comms {
		if n := len(comms[i].Results); n > least && (at < 0 || n >= len(comms[at].Results)) {
			at = i
		}
	}
	if at < 0 {
		return nil, -1, nil
	}
	return &comms[at].Results, len(comms[at].Results) - 1, &comms[at].OmittedSeries
}

// thin takes out every second size between the first and the last where more than least are there, but those to keep.
// It says whether it took any.
func thin(r *api.ResultSeries, least int, keep []int64) bool {
	out := false
	return dropSizes(r, func(k int) bool {
		if len(r.SizeBytes) <= least || slices.Contains(keep, r.SizeBytes[k]) {
			return false
		}
		out = !out
		return out
	})
}

// dropSizes leaves out the columns between the first and the last for which drop is true; it reports whether any was.
func dropSizes(r *api.ResultSeries, drop func(k int) bool) bool {
	var stay []int
	for k := range r.SizeBytes {
		if k == 0 || k == len(r.SizeBytes)-1 || !drop(k) {
			stay = append(stay, k)
		}
	}
	if len(stay) == len(r.SizeBytes) {
		return false
	}
	for _, list := range []*[]int64{&r.SizeBytes, &r.LatencyNanoseconds, &r.BusBandwidthMBps} {
		*list = only(*list, stay)
	}
	r.NoisePercent, r.SpreadPercent = only(r.NoisePercent, stay), only(r.SpreadPercent, stay)
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

// withoutEffect says whether the gates keep a variant's setting off at every size, or do not know the collective at
// all.
func withoutEffect(r *api.ResultSeries, settings []api.SettingStatus) bool {
	at := slices.IndexFunc(settings, func(x api.SettingStatus) bool {
		return x.Name == settingPrefix[r.Variant]+string(r.Collective)
	})
	return at < 0 || settings[at].Effective == api.EffectiveNotInEffect
}

// settingPrefix begins the names of the settings that a variant measures.
var settingPrefix = map[api.Variant]string{api.VariantDDA: rcclx.PrefixDDA,
	api.VariantLowPrecision: rcclx.PrefixLowPrecision}

// dropWithoutEffect leaves out the sizes between first and last at which the gates keep a variant's setting off. As
// many as margin stay beside the gates' bounds: they show where the gain ends.
func dropWithoutEffect(results []api.ResultSeries, settings []api.SettingStatus, margin int, keep []int64) {
	for i := range results {
		r := &results[i]
		name := settingPrefix[r.Variant] + string(r.Collective)
		at := slices.IndexFunc(settings, func(s api.SettingStatus) bool { return s.Name == name })
		if at < 0 || settings[at].Effective == api.EffectiveUnknown {
			continue
		}
		gate := settings[at]
		off := func(k int) bool {
			size := r.SizeBytes[k]
			return gate.Effective == api.EffectiveNotInEffect || gate.MinBytes != nil && size < *gate.MinBytes ||
				gate.MaxBytes != nil && size > *gate.MaxBytes
		}
		dropSizes(r, func(k int) bool {
			return off(k-margin) && off(k) && off(k+margin) && !slices.Contains(keep, r.SizeBytes[k])
		})
	}
}

// dropNoise leaves out what only helps to tell a small gain from noise.
func dropNoise(results []api.ResultSeries) {
	for i := range results {
		results[i].NoisePercent = nil
	}
}

// dropSpent drops unique ids that nobody needs any more, and noise.
func dropSpent(t *api.NodeTaskStatus) {
	for i := range t.Communicators {
		c := &t.Communicators[i]
		if t.Phase == api.TaskFinished {
			c.UniqueID = nil
		}
		dropNoise(c.Results)
	}
}

// largestSizes leaves the largest size of each collective.
func largestSizes(all []api.DataErrors) []api.DataErrors {
	for i := range all {
		e := &all[i]
		var stay []int
		for k := range e.SizeBytes {
			larger := false
			for j := range e.SizeBytes {
				larger = larger || e.Collectives[j] == e.Collectives[k] && e.SizeBytes[j] > e.SizeBytes[k]
			}
			if !larger {
				stay = append(stay, k)
			}
		}
		e.Collectives = only(e.Collectives, stay)
		columns := []*[]int64{&e.SizeBytes, &e.MaxErrorPPM, &e.MeanErrorPPM, &e.CheckedElements, &e.NaNElements,
			&e.OverflowElements}
		for _, list := range columns {
			*list = only(*list, stay)
		}
	}
	return all
}

func shortenRun(s *api.NodeRunStatus, limit int) {
	for i := range s.Settings {
		l := limit
		if s.Settings[i].Requested == string(api.FeatureDisabled) {
			l = 24 // what is not asked for needs no explanation
		}
		s.Settings[i].Cause = clip.Head(s.Settings[i].Cause, l)
	}
	s.LogTail = clip.Tail(s.LogTail, 4*limit)
	s.RASVerdict = clip.Head(s.RASVerdict, 2*limit)
	for i := range s.Preconditions {
		s.Preconditions[i].Message = clip.Head(s.Preconditions[i].Message, limit)
	}
	for i := range s.Culprits {
		s.Culprits[i].Message = clip.Head(s.Culprits[i].Message, 3*limit)
	}
}

func shortenSession(s *api.SessionStatus, limit int) {
	s.Message = clip.Head(s.Message, max(limit, 320))
	for i := range s.Task.Communicators {
		c := &s.Task.Communicators[i]
		c.Message = clip.Head(c.Message, limit)
		if c.Guilty != nil {
			c.Guilty.Message = clip.Head(c.Guilty.Message, limit)
		}
	}
}
