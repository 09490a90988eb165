package gating

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// The states of the circuit breaker (status.gating.breaker).
const (
	breakerClosed = "Closed"
	breakerOpen   = "Open"
)

// defaultGatingMaxPercent is that of the API, for objects that were written before it had one.
const defaultGatingMaxPercent = 20

// leastForShare is of how many members a share is taken at least: two of the first three that report are no sign of
// anything.
const leastForShare = 20

// breaker is gating's circuit breaker: it opens where more members failed than can each be at fault by themselves.
type breaker struct {
	percent, members int
	// failed members: now, or earlier and nothing has lifted their mark. passed ones did so alone, in the run that
	// counts.
	failed, passed int
	// results of either kind that the present run has.
	results int
	// doubtful ones are neither: rebooted or changed since, or they could not be measured. They may fail still.
	doubtful int
	// wasOpen: by the status so far. over: the run has ended, and it is of the present spec.
	wasOpen, over bool
}

// allowed is how many of n members may fail.
func (b *breaker) allowed(n int) int { return max(1, n*b.percent/100) }

// measured is of how many members the share is taken: while a run begins, those that have not reported must not hide
// that all that have did fail.
func (b *breaker) measured() int { return min(b.members, max(b.failed+b.passed, leastForShare)) }

func (b *breaker) tooMany() bool { return b.failed > b.allowed(b.measured()) }

// open says whether no further node is marked. An open breaker closes by results alone, of a run that is over: a run
// that begins takes all results away, and a reboot its node's, and neither shows that the cause is fixed.
func (b *breaker) open() bool { return b.tooMany() || b.wasOpen && !b.cleared() }

func (b *breaker) cleared() bool {
	return b.over && b.results > 0 && b.failed+b.doubtful <= b.allowed(b.failed+b.passed+b.doubtful)
}

// newBreaker knows all but the counts, which gating.count adds.
func newBreaker(in *Input) breaker {
	b := breaker{percent: int(ptr.Deref(in.Group.Spec.Gating.MaxPercent, defaultGatingMaxPercent)),
		members: len(in.Members),
		over:    in.Run != nil && in.Run.Phase == v1alpha1.RunPhaseFinished && in.Run.Generation == in.Group.Generation}
	if s := in.Group.Status.Gating; s != nil {
		b.wasOpen = s.Breaker == breakerOpen
	}
	return b
}

// breakerOpen says whether no further node is marked. Where the members could not be selected nothing is known of them,
// and it stays as it was.
func (g *look) breakerOpen() bool {
	if !g.in.MembersKnown {
		return g.breaker.wasOpen
	}
	return g.breaker.open()
}

// breakerMessage says why the breaker is open, what then happens, and where to look.
func (g *look) breakerMessage() string {
	b := &g.breaker
	none := "No further node is marked"
	if g.off != "" {
		none = "Enforce would mark no further node"
	}
	seen := fmt.Sprintf("%d of %d members failed", b.failed, b.members)
	if n := b.measured(); n < b.members {
		seen = fmt.Sprintf("%d of %d members failed (%d passed so far)", b.failed, b.members, b.passed)
	}
	until := fmt.Sprintf("until a run ends in which at most %d %% fail", b.percent)
	switch {
	case !g.in.MembersKnown:
		return fmt.Sprintf("Too many members had failed, and the members cannot be selected now. %s %s.", none, until)
	case b.tooMany():
		message := fmt.Sprintf("%s at once and gating.maxPercent (%d) allows %d: %s. %s.",
			seen, b.percent, b.allowed(b.measured()), explain.Names(g.failed, 3), none)
		if reason, n := commonest(g.reasons); n > 0 {
			message += fmt.Sprintf(" %s on %d.", reason, n)
		}
		return message + " Look for what they share (image, library build, driver, switch, a threshold), then " +
			runs.Ask(g.in.Group) + "."
	case b.over:
		return fmt.Sprintf("Too many members had failed, and not enough have passed since: "+
			"%s, %d passed, %d were rebooted, changed or could not be measured. %s %s: mend those, then %s.",
			seen, b.passed, b.doubtful, none, until, runs.Ask(g.in.Group))
	}
	return fmt.Sprintf("Too many members had failed before the present run, in which so far %s. %s %s.",
		seen, none, until)
}

// commonest is the reason that most nodes have; of equals the first by name.
func commonest(reasons map[string]int) (string, int) {
	names := slices.Sorted(maps.Keys(reasons))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(reasons[b], reasons[a]) })
	if len(names) == 0 {
		return "", 0
	}
	return names[0], reasons[names[0]]
}

// breakerEvents tell of the breaker's changes, once each.
func (g *look) breakerEvents(now *v1alpha1.GatingStatus) []decision.Event {
	switch open := now.Breaker == breakerOpen; {
	case open == g.breaker.wasOpen:
		return nil
	case open:
		return []decision.Event{{Warning: true, Reason: v1alpha1.ReasonBreakerOpen, Action: "StopGating",
			Note: clip.Head(g.breakerMessage(), 1000)}}
	}
	return []decision.Event{{Reason: v1alpha1.ReasonBreakerClosed, Action: "ResumeGating",
		Note: fmt.Sprintf("At the end of run %s %d of %d members failed and %d passed, "+
			"which gating.maxPercent (%d) allows: nodes are marked again.",
			g.in.Run.ID, g.breaker.failed, g.breaker.members, g.breaker.passed, g.breaker.percent)}}
}
