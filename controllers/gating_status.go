package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

// The states of the circuit breaker (status.gating.breaker).
const (
	breakerClosed = "Closed"
	breakerOpen   = "Open"
)

// maxNamedNodes bounds the lists of nodes in a CommGroup's status; gatingMessageBytes the message of status.gating.
const (
	maxNamedNodes      = 16
	gatingMessageBytes = 512
)

// firstNames are the first few of the names, which are sorted.
func firstNames(names []string) []string { return names[:min(len(names), maxNamedNodes)] }

func (g *gating) status(open bool) *v1alpha1.GatingStatus {
	s := &v1alpha1.GatingStatus{Gated: int32(len(g.gated)), Nodes: firstNames(g.gated), Breaker: breakerClosed}
	var parts []string
	if g.in.group.Spec.Gating.Mode == v1alpha1.GatingEnforce && g.off != "" {
		parts = append(parts, fmt.Sprintf("Enforce works as DryRun: %s, which alone may mark nodes.", g.off))
	}
	if open {
		s.Breaker = breakerOpen
		parts = append(parts, g.breakerMessage())
	}
	if len(g.simulated) > 0 {
		parts = append(parts, fmt.Sprintf("Failed in the simulator, and gating.simulated is Forbid: %s.", words.SomeNames(g.simulated, 3)))
	}
	if len(g.pairs) > 0 {
		parts = append(parts, fmt.Sprintf("Bad only together, so that neither node is gated for it: %s.", words.SomeNames(g.pairs, 2)))
	}
	if len(g.exempted) > 0 {
		parts = append(parts, fmt.Sprintf("Failed and exempt by annotation: %s.", words.SomeNames(g.exempted, 3)))
	}
	s.Message = words.Shorten(strings.Join(parts, " "), gatingMessageBytes)
	return s
}

// breakerMessage says how many failed, which, of what, and where to look.
func (g *gating) breakerMessage() string {
	message := fmt.Sprintf("%d of %d members failed at once and gating.maxPercent (%d) allows %d: %s. No further node is marked.",
		len(g.failed), len(g.in.members), ptr.Deref(g.in.group.Spec.Gating.MaxPercent, defaultGatingMaxPercent), g.limit(),
		words.SomeNames(g.failed, 3))
	if reason, n := commonest(g.reasons); n > 0 {
		message += fmt.Sprintf(" %s on %d.", reason, n)
	}
	return message + " Look for what they share (image, library build, driver, switch, a threshold), then ask for a new run."
}

// commonest is the reason that most nodes have; of equals the first by name.
func commonest(reasons map[string]int) (string, int) {
	names := words.SortedKeys(reasons)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(reasons[b], reasons[a]) })
	if len(names) == 0 {
		return "", 0
	}
	return names[0], reasons[names[0]]
}

// breakerEvents tell of the breaker's changes, once each.
func (g *gating) breakerEvents(now *v1alpha1.GatingStatus) []decision.Event {
	before := breakerClosed
	if s := g.in.group.Status.Gating; s != nil {
		before = cmp.Or(s.Breaker, breakerClosed)
	}
	switch {
	case before == now.Breaker:
		return nil
	case now.Breaker == breakerOpen:
		return []decision.Event{{Warning: true, Reason: v1alpha1.ReasonBreakerOpen, Action: "StopGating", Note: words.Shorten(g.breakerMessage(), 1000)}}
	}
	return []decision.Event{{Reason: v1alpha1.ReasonBreakerClosed, Action: "ResumeGating",
		Note: fmt.Sprintf("%d of %d members are failed, which gating.maxPercent allows: nodes are marked again.", len(g.failed), len(g.in.members))}}
}
