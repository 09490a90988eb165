package supervise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/ras"
)

// watched is one rank, its process and the wait that it is in.
type watched struct {
	RankOutcome
	spec    rank.Spec
	process *process // nil where it could not be started
	awaits  string   // what the deadline is for
	began   time.Time
	// deadline of the wait; zero means none.
	deadline time.Time
	exited   bool
	ended    time.Time // when the process ended; zero where it has not
}

// ranks are those of a team, by index in it; they know how far each has come, and so who is late.
type ranks []*watched

func ranksOf(specs []rank.Spec) ranks {
	rs := make(ranks, len(specs))
	for i, spec := range specs {
		outcome := RankOutcome{Rank: spec.Rank, Device: spec.Device, PCIAddress: spec.PCIAddress}
		rs[i] = &watched{spec: spec, RankOutcome: outcome}
	}
	return rs
}

// earliest is the next deadline of a rank, and the rank; zero and -1 where there is none.
func (rs ranks) earliest() (time.Time, int) {
	var at time.Time
	index := -1
	for i, r := range rs {
		if !r.exited && !r.deadline.IsZero() && (at.IsZero() || r.deadline.Before(at)) {
			at, index = r.deadline, i
		}
	}
	return at, index
}

// lateSince is when the wait began that is over first; now where none waits.
func (rs ranks) lateSince(now time.Time) time.Time {
	if _, i := rs.earliest(); i >= 0 {
		return rs[i].began
	}
	return now
}

// stopped are the ranks whose processes do not run, since a signal or a debugger stopped them, and by what that is
// seen.
func (rs ranks) stopped(stateOf func(pid int) string) (indexes []int, word string) {
	for i, r := range rs {
		if r.ProcessID <= 0 || r.exited {
			continue
		}
		if s := stateOf(r.ProcessID); s == "T" || s == "t" {
			indexes = append(indexes, i)
			word = fmt.Sprintf(", stopped (state %s in /proc/%d/stat),", s, r.ProcessID)
		}
	}
	if len(indexes) > 1 {
		word = ", stopped (state T in /proc/PID/stat),"
	}
	return indexes, word
}

// subject is who missed the deadline, for the start of a message: the ranks that are late, else all that are not done.
// In the probe of pairs it is the one that was first.
func (rs ranks) subject(first string, f Failure) string {
	var waiting []int
	for i, r := range rs {
		if !r.exited {
			waiting = append(waiting, i)
		}
	}
	switch {
	case f.Rank >= 0:
		return rs[f.Rank].Name()
	case len(f.Behind) > 0:
		return "ranks " + rs.numbers(f.Behind)
	case rs.inPairs(f.Step):
		return first
	case len(waiting) < len(rs):
		return fmt.Sprintf("ranks %s of %d", rs.numbers(waiting), rs.worldSize())
	}
	return rs.everybody()
}

// worldSize is the number of ranks in the communicator, on other nodes too.
func (rs ranks) worldSize() int { return max(rs[0].spec.WorldSize, len(rs)) }

// everybody names all ranks of the team.
func (rs ranks) everybody() string {
	if n := rs.worldSize(); len(rs) < n {
		return fmt.Sprintf("all %d ranks of this node, of %d", len(rs), n)
	}
	return fmt.Sprintf("all %d ranks", len(rs))
}

// numbers are the ranks of indexes in the team, for messages.
func (rs ranks) numbers(indexes []int) string {
	numbers := make([]int, len(indexes))
	for at, i := range indexes {
		numbers[at] = rs[i].Rank
	}
	return join(numbers)
}

// placed turns what RAS says of ranks into indexes in the team. Where some of the ranks are on other nodes, nothing is
// said against this one's: elsewhere holds all of them then, as ranks.
func (rs ranks) placed(s ras.Suspicion) (here, elsewhere ras.Suspicion) {
	indexes := make([]int, 0, len(s.Ranks))
	for _, suspect := range s.Ranks {
		i := slices.IndexFunc(rs, func(r *watched) bool { return r.Rank == suspect })
		if i < 0 {
			return ras.Suspicion{}, s
		}
		indexes = append(indexes, i)
	}
	s.Ranks = indexes
	return s, ras.Suspicion{}
}

// late is the rank that is late at a step, -1 where no single one is, and the ranks that came less far than others.
func (rs ranks) late(step string) (named int, behind []int) {
	// In the probe of pairs ranks rightly stand at different steps.
	if !rs.inPairs(step) {
		behind = rs.behind()
	}
	if len(behind) == 1 {
		return behind[0], behind
	}
	return rs.alone(), behind
}

// inPairs says whether the step is one of the probe of pairs.
func (rs ranks) inPairs(step string) bool {
	at := rs.positionOf(step)
	return at != nil && at.Kind == rank.StepPairProbe
}

// alone returns the only rank whose process has not ended, where there is just one of several.
func (rs ranks) alone() int {
	found := -1
	for i, r := range rs {
		if !r.exited && found >= 0 {
			return -1
		}
		if !r.exited {
			found = i
		}
	}
	if len(rs) < 2 {
		return -1
	}
	return found
}

// behind returns the ranks that came less far than the furthest one; empty where all stand alike.
func (rs ranks) behind() []int {
	most, least := 0, int(^uint(0)>>1)
	for _, r := range rs {
		most, least = max(most, r.Events), min(least, r.Events)
	}
	if most == least {
		return nil
	}
	var out []int
	for i, r := range rs {
		if r.Events == least {
			out = append(out, i)
		}
	}
	return out
}

// positionOf is the position that a step's name is of; nil for steps outside of measurements.
func (rs ranks) positionOf(step string) *rank.Position {
	for _, r := range rs {
		if r.At != nil && r.At.String() == step {
			return r.At
		}
	}
	return nil
}

// doing lists what the ranks are at, those that came least far first.
func (rs ranks) doing(now time.Time) []RankDoing {
	sorted := slices.Clone(rs)
	slices.SortStableFunc(sorted, func(a, b *watched) int { return a.Events - b.Events })
	out := make([]RankDoing, 0, min(len(sorted), maxDoing))
	for _, r := range sorted[:min(len(sorted), maxDoing)] {
		d := RankDoing{Rank: r.Rank, Device: r.Device, PCIAddress: r.PCIAddress, Doing: r.Doing(), Step: r.stepName()}
		if !r.Since.IsZero() {
			d.For = now.Sub(r.Since)
		}
		out = append(out, d)
	}
	return out
}

// whereabouts says what the ranks are at and for how long at least, the common place first.
func (rs ranks) whereabouts(now time.Time) string {
	type place struct {
		doing string
		ranks []string
		since time.Time // of the rank that came last
	}
	var places []*place
	for _, r := range rs {
		doing := r.Doing()
		at := slices.IndexFunc(places, func(p *place) bool { return p.doing == doing })
		if at < 0 {
			at = len(places)
			places = append(places, &place{doing: doing})
		}
		p := places[at]
		p.ranks = append(p.ranks, fmt.Sprint(r.Rank))
		if r.Since.After(p.since) {
			p.since = r.Since
		}
	}
	slices.SortStableFunc(places, func(a, b *place) int { return len(b.ranks) - len(a.ranks) })
	parts := make([]string, 0, len(places))
	for _, p := range places {
		who := "rank " + strings.Join(p.ranks, ",")
		if len(places) == 1 {
			who = rs.everybody()
		}
		text := who + " " + p.doing
		if long := now.Sub(p.since).Round(time.Second); !p.since.IsZero() && long > 0 {
			text += " for " + long.String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// furthestStep is what the rank is at that came furthest.
func (rs ranks) furthestStep() string {
	best := RankOutcome{Events: -1}
	for _, r := range rs {
		if r.Events > best.Events {
			best = r.RankOutcome
		}
	}
	if best.At != nil {
		return best.At.String()
	}
	return best.Doing()
}
