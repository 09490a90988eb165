package gating

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// maxNamedNodes bounds the lists of nodes in a CommGroup's status; MessageBytes the message of status.gating.
const (
	maxNamedNodes = 16
	MessageBytes  = 512
)

// firstNames are the first few of the names, which are sorted.
func firstNames(names []string) []string { return names[:min(len(names), maxNamedNodes)] }

func (g *look) status(open bool) *v1alpha1.GatingStatus {
	s := &v1alpha1.GatingStatus{Gated: int32(len(g.gated)), Nodes: firstNames(g.gated), Breaker: breakerClosed}
	var parts []string
	if g.in.Group.Spec.Gating.Mode == v1alpha1.GatingEnforce && g.off != "" {
		parts = append(parts, fmt.Sprintf("Enforce works as DryRun: %s, which alone may mark nodes.", g.off))
	}
	switch n := len(g.would); {
	case open:
		s.Breaker = breakerOpen
		parts = append(parts, g.breakerMessage())
	case g.dry() && n > maxNamedNodes:
		parts = append(parts,
			fmt.Sprintf("Enforce would gate %d nodes, of which status.wouldGate names %d.", n, maxNamedNodes))
	}
	if len(g.simulated) > 0 {
		parts = append(parts,
			fmt.Sprintf("Failed in the simulator, and gating.simulated is Forbid: %s.", explain.Names(g.simulated, 3)))
	}
	if len(g.pairs) > 0 {
		var names []string
		for i := range g.pairs {
			names = append(names, g.pairs[i].Name)
		}
		parts = append(parts,
			fmt.Sprintf("Bad only together, so that neither node is gated for it: %s.", explain.Names(names, 2)))
	}
	if len(g.exempted) > 0 {
		parts = append(parts, fmt.Sprintf("Failed and exempt by annotation: %s.", explain.Names(g.exempted, 3)))
	}
	s.Message = clip.Head(strings.Join(parts, " "), MessageBytes)
	return s
}
