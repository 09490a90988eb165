package report

import (
	"fmt"
	"io"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// HasGating says whether gating is on, or marks of it stand.
func HasGating(group *state.Group) bool {
	mode := group.Spec.Gating.Mode
	return mode != "" && mode != v1alpha1.GatingOff || group.Status.Gating != nil
}

// Gating prints what gating does with the nodes, which nodes, and why it does no more.
func Gating(w io.Writer, group *state.Group) error {
	spec, s := &group.Spec.Gating, &group.Status
	actions := make([]string, len(spec.Actions))
	for i, a := range spec.Actions {
		actions[i] = string(a)
	}
	mode := spec.Mode
	if mode == "" {
		mode = v1alpha1.GatingOff
	}
	head := "mode " + string(mode)
	if len(actions) > 0 && mode != v1alpha1.GatingOff {
		head += " (" + strings.Join(actions, ", ") + ")"
	}
	type line struct {
		tone Tone
		text string
	}
	var lines []line
	g := s.Gating
	switch {
	case g == nil:
		lines = append(lines, line{Plain, head + ": nothing reported yet"})
	case g.Gated == 0:
		lines = append(lines, line{Plain, head + ": no node is gated"})
	default:
		lines = append(lines, line{Bad, head + ": gated " + namesOf(g.Nodes, int(g.Gated))})
	}
	if len(s.WouldGate) > 0 {
		lines = append(lines, line{Warn, "would gate " + strings.Join(s.WouldGate, ", ")})
	}
	if g != nil && g.Breaker != "" {
		tone := Plain
		if g.Breaker == "Open" {
			tone = Bad
		}
		lines = append(lines, line{tone, "breaker " + g.Breaker})
	}
	if g != nil && g.Message != "" {
		lines = append(lines, line{Plain, g.Message})
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, Paint(w, l.tone, wrap(w, l.text))); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the names, and how many more there are than could be named.
func namesOf(names []string, total int) string {
	switch more := total - len(names); {
	case len(names) == 0:
		return fmt.Sprintf("%d nodes", total)
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}
