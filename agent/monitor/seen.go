package monitor

import (
	"slices"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// seen is what was last read of something that should stay the same.
type seen[T comparable] struct {
	value T
	known bool
}

// look takes what is read now; nil is "not read", which changes nothing. It returns what was known before, and whether
// that has changed: the first value that is read is no change.
func (s *seen[T]) look(now *T) (was T, changed bool) {
	was = s.value
	if now == nil {
		return was, false
	}
	changed = s.known && *now != s.value
	s.value, s.known = *now, true
	return was, changed
}

// stated is nil for an empty text, which stands for "not known".
func stated(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// sighting is when something was last there, and whether it was told to be lost since.
type sighting struct {
	last time.Time
	lost bool
}

// sightings are the things that were there in this boot.
type sightings[K comparable] map[K]sighting

// look takes those that are there now. Of the others, gone says whether they are surely gone, and not only out of
// sight. It returns those that are newly lost, those that are back with when they had been seen last, and all that are
// missing; each in no order.
func (s sightings[K]) look(now time.Time, there map[K]bool,
	gone func(K) bool) (lost []K, back map[K]time.Time, missing []K) {
	for k := range there {
		if before, ok := s[k]; ok && before.lost {
			if back == nil {
				back = map[K]time.Time{}
			}
			back[k] = before.last
		}
		s[k] = sighting{last: now}
	}
	for k, before := range s {
		if there[k] || !gone(k) {
			continue
		}
		missing = append(missing, k)
		if !before.lost {
			lost = append(lost, k)
			before.lost = true
			s[k] = before
		}
	}
	return lost, back, missing
}

// lost are all that are lost in this boot, in order, also where this look could not tell.
func (s sightings[K]) lost(compare func(a, b K) int) []K {
	var lost []K
	for k := range s {
		if s[k].lost {
			lost = append(lost, k)
		}
	}
	slices.SortFunc(lost, compare)
	return lost
}

// rising is the last reading of a counter that only rises.
type rising struct {
	value uint64
	at    time.Time
}

// rise is how a counter moved since it was last read.
type rise struct {
	by, was, is uint64
	over        time.Duration
	fell        bool // it started again from zero
}

// counters are the counters that were read in this boot, by key.
type counters[K comparable] map[K]rising

// look takes a reading; the first one is no rise.
func (c counters[K]) look(key K, value uint64, now time.Time) rise {
	before, known := c[key]
	c[key] = rising{value: value, at: now}
	r := rise{was: before.value, is: value, over: now.Sub(before.at)}
	switch {
	case !known:
		r.was = value
	case value > before.value:
		r.by = value - before.value
	case value < before.value:
		r.fell = true
	}
	return r
}

// event is something that happened, rather than is; it stays a problem for a while.
type event struct {
	problem v1alpha1.Problem
	// rank of how bad it is, or news.
	rank  int
	until time.Time
}

// news is the rank of an event whose message is a new one each time. Of any other, only a worse one replaces the
// message, so that one which goes on does not change the facts at each look.
const news = 0

// events are kept in the order in which they happened first.
type events []event

// hold adds an event, or prolongs the one that is held for the same code and subject.
func (e *events) hold(p v1alpha1.Problem, rank int, now time.Time) {
	until := now.Add(holdTime)
	for i := range *e {
		held := &(*e)[i]
		if held.problem.Code != p.Code || held.problem.Subject() != p.Subject() {
			continue
		}
		if rank == news || rank > held.rank {
			held.problem, held.rank = p, rank
		}
		held.until = until
		return
	}
	*e = append(*e, event{problem: p, rank: rank, until: until})
}

// expire drops what is over.
func (e *events) expire(now time.Time) {
	kept := (*e)[:0]
	for _, held := range *e {
		if now.Before(held.until) {
			kept = append(kept, held)
		}
	}
	*e = kept
}
