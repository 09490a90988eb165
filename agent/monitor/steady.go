package monitor

import (
	"reflect"
	"slices"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// steady keeps a problem that comes and goes, or whose message changes again and again, from making a write at each
// look. A problem that went twice within holdTime stays until it has been away for so long. A message that changed
// stays for holdTime, unless the problem became worse.
type steady struct {
	states map[problemKey]*problemState
	next   int
}

// problemKey is one problem of the facts; several can have the same code and subject.
type problemKey struct {
	code, subject string
	number        int
}

type problemState struct {
	shown   v1alpha1.Problem
	order   int // of its first appearance: problems keep their places
	last    time.Time
	there   bool
	went    int       // times it went since firstGone
	gone    time.Time // when it went first
	changed time.Time // when its message changed last
}

// look takes the problems that were found and returns those to report, Error ones first.
func (s *steady) look(found []v1alpha1.Problem, now time.Time) []v1alpha1.Problem {
	if s.states == nil {
		s.states = map[problemKey]*problemState{}
	}
	here := make(map[problemKey]bool, len(found))
	for _, p := range found {
		k := problemKey{code: p.Code, subject: p.Subject()}
		for here[k] {
			k.number++
		}
		here[k] = true
		state := s.states[k]
		if state == nil {
			state = &problemState{shown: p, order: s.next}
			s.states[k] = state
			s.next++
		}
		state.see(p, now)
	}
	states := make([]*problemState, 0, len(s.states))
	for k, state := range s.states {
		if !here[k] {
			state.miss(now)
		}
		switch away := now.Sub(state.last); {
		case state.there, state.went > 1 && away < holdTime:
			states = append(states, state)
		case away >= holdTime:
			delete(s.states, k)
		}
	}
	slices.SortFunc(states, func(a, b *problemState) int {
		if x, y := a.shown.Severity == v1alpha1.SeverityError, b.shown.Severity == v1alpha1.SeverityError; x != y {
			if x {
				return -1
			}
			return 1
		}
		return a.order - b.order
	})
	problems := make([]v1alpha1.Problem, len(states))
	for i, state := range states {
		problems[i] = state.shown
	}
	return problems
}

func (s *problemState) see(p v1alpha1.Problem, now time.Time) {
	worse := p.Severity == v1alpha1.SeverityError && s.shown.Severity != v1alpha1.SeverityError
	switch {
	case reflect.DeepEqual(p, s.shown):
	case !s.there && s.went < 2: // another one than the one that went
		s.shown = p
	case worse, exact(p.Code), s.changed.IsZero(), now.Sub(s.changed) >= holdTime:
		s.shown, s.changed = p, now
	}
	s.there, s.last = true, now
}

func (s *problemState) miss(now time.Time) {
	if !s.there {
		return
	}
	s.there = false
	if s.went == 0 || now.Sub(s.gone) >= holdTime {
		s.went, s.gone = 0, now
	}
	s.went++
}

// exact problems are reported with their present numbers at each look: these must never rise at all.
func exact(code string) bool {
	return code == v1alpha1.ProblemUncorrectableErrors || code == v1alpha1.ProblemXGMIUncorrectableErrors
}
