package monitor

import (
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestSteady writes each look as the problems that were found, by a letter with a digit for the message, an upper case
// letter for an Error, and as those that are reported.
func TestSteady(t *testing.T) {
	const minute = time.Minute
	type look struct {
		after       time.Duration
		found, want string
	}
	for name, looks := range map[string][]look{
		"comes and goes once": {{0, "a1", "a1"}, {minute, "", ""}, {minute, "a1", "a1"}},
		"goes twice, then stays": {{0, "a1", "a1"}, {minute, "", ""}, {minute, "a1", "a1"}, {minute, "", "a1"},
			{minute, "a1", "a1"}, {minute, "", "a1"}},
		"held until it is quiet": {{0, "a1", "a1"}, {minute, "", ""}, {minute, "a1", "a1"}, {minute, "", "a1"},
			{holdTime - 2*minute, "", "a1"}, {minute, "", ""}, {minute, "a1", "a1"}},
		"slowly is no flicker": {{0, "a1", "a1"}, {minute, "", ""}, {minute, "a1", "a1"},
			{holdTime - minute, "", ""}, {minute, "a1", "a1"}, {minute, "", "a1"}},
		"first new message counts": {{0, "a1", "a1"}, {minute, "a2", "a2"}, {minute, "a3", "a2"}, {minute, "a4", "a2"},
			{holdTime, "a5", "a5"}},
		"another message after a break": {{0, "a1", "a1"}, {minute, "", ""}, {minute, "a2", "a2"}},
		"worse counts at once": {{0, "a1", "a1"}, {minute, "a2", "a2"}, {minute, "A3", "A3"},
			{minute, "a4", "A3"}},
		"errors first, in their order": {{0, "a1 b1", "a1 b1"}, {minute, "b1 a1", "a1 b1"},
			{minute, "C1 b1 a1", "C1 a1 b1"}, {minute, "b1 a1", "a1 b1"}},
		"two of a kind":                 {{0, "a1 a2", "a1 a2"}, {minute, "a1", "a1"}, {minute, "a1 a2", "a1 a2"}},
		"uncorrectable errors are told": {{0, "U1", "U1"}, {minute, "U2", "U2"}, {minute, "U3", "U3"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := steady{}, time.Unix(1e9, 0)
			for i, l := range looks {
				now = now.Add(l.after)
				var found []v1alpha1.Problem
				for _, word := range strings.Fields(l.found) {
					p := v1alpha1.Problem{Severity: v1alpha1.SeverityWarning, Code: strings.ToLower(word[:1]),
						Message: word[1:]}
					if word[0] < 'a' {
						p.Severity = v1alpha1.SeverityError
					}
					if p.Code == "u" {
						p.Code = v1alpha1.ProblemUncorrectableErrors
					}
					found = append(found, p)
				}
				var got []string
				for _, p := range s.look(found, now) {
					letter := p.Code[:1]
					if p.Severity == v1alpha1.SeverityError {
						letter = strings.ToUpper(letter)
					}
					got = append(got, letter+p.Message)
				}
				if line := strings.Join(got, " "); line != l.want {
					t.Errorf("look %d: found %q, reports %q, want %q", i, l.found, line, l.want)
				}
			}
		})
	}
}

// TestSteadyForgets: problems that are long gone take no memory.
func TestSteadyForgets(t *testing.T) {
	s, now := steady{}, time.Unix(1e9, 0)
	for range 1000 {
		s.look([]v1alpha1.Problem{{Code: "a", Path: now.String()}}, now)
		now = now.Add(holdTime)
	}
	if len(s.states) > 2 {
		t.Errorf("%d problems remembered", len(s.states))
	}
}
