package ras

import (
	"cmp"
	"slices"
	"time"
)

// Suspicion is what answers of RAS say against some ranks. It is a hint: RAS does not see every operation.
type Suspicion struct {
	// Ranks in ascending order, never more than half of them; empty where nothing speaks against anybody.
	Ranks []int
	// Why says what speaks against them.
	Why string
	// Moving is set where the ranks are behind and still at work, while the others stand still: they are waited for,
	// and may only be slow.
	Moving bool
}

// Suspect says whom an answer speaks against, in the light of what the same job answered some time earlier. Ranks is
// the size of the communicator that it is about: an answer about another one, perhaps another job's, names nobody.
//
// Ranks that gave no answer come first: a process whose RAS thread is silent for the library's own limit is stopped or
// gone, whatever it was doing. Else they are those that have launched the fewest operations, but only where the same
// job answered alike some time earlier: while the others' counts move, ranks at work differ, too.
func Suspect(r Report, earlier *Report, apart time.Duration, ranks int) Suspicion {
	if len(r.Groups) == 0 {
		return Suspicion{}
	}
	g := r.worst()
	at := slices.IndexFunc(r.Communicators, func(c Communicator) bool { return c.Group == g.Number })
	if at < 0 || g.RanksPerCommunicator != ranks {
		return Suspicion{}
	}
	c := r.Communicators[at]
	if c.MissingRanks > 0 {
		silent := numbers(c.Missing, c.MissingRanks)
		moves := slices.ContainsFunc(c.Operations, func(o Operations) bool { return stood(c, o, earlier) == moving })
		if len(silent) == 0 || len(silent)*2 > ranks || moves {
			return Suspicion{}
		}
		return Suspicion{Ranks: silent, Why: "gave no answer"}
	}
	var s Suspicion
	for _, o := range c.Operations {
		lag := numbers(least(o).Ranks, least(o).Count)
		motion := stood(c, o, earlier)
		trails := motion == moving && othersStood(c, o, earlier)
		if len(lag) == 0 || len(lag)*2 > ranks || motion != still && !trails ||
			len(s.Ranks) > 0 && !slices.Equal(s.Ranks, lag) {
			return Suspicion{} // most of them, or one rank in this collective and another one in that
		}
		s.Ranks, s.Moving = lag, s.Moving || trails
	}
	if len(s.Ranks) == 0 {
		return s
	}
	s.Why = "launched fewer operations than the others, standing still for " + apart.Round(time.Millisecond).String()
	if s.Moving {
		s.Why = "launched fewer operations than the others, who stood still for " +
			apart.Round(time.Millisecond).String()
	}
	return s
}

// least is the class that has launched the fewest operations.
func least(o Operations) Class {
	if len(o.Classes) == 0 {
		return Class{}
	}
	return slices.MinFunc(o.Classes, func(a, b Class) int { return cmp.Compare(a.Launched, b.Launched) })
}

// othersStood says whether all that moved since the earlier answer are the ranks that were behind then, and are.
func othersStood(c Communicator, o Operations, earlier *Report) bool {
	was := slices.IndexFunc(earlier.Communicators, func(x Communicator) bool { return x.Hash == c.Hash })
	if was < 0 {
		return false
	}
	at := slices.IndexFunc(earlier.Communicators[was].Operations, func(x Operations) bool {
		return x.Collective == o.Collective
	})
	if at < 0 {
		return false
	}
	before := earlier.Communicators[was].Operations[at]
	others := func(o Operations) []Class {
		return slices.DeleteFunc(slices.Clone(o.Classes), func(x Class) bool { return same(x, least(o)) })
	}
	return slices.Equal(numbers(least(before).Ranks, least(before).Count), numbers(least(o).Ranks, least(o).Count)) &&
		slices.EqualFunc(others(before), others(o), same)
}

func same(a, b Class) bool {
	return a.Count == b.Count && a.Launched == b.Launched && slices.Equal(a.Ranks, b.Ranks)
}

// numbers are a class's ranks; nil where the answer does not list all of them.
func numbers(list []Rank, count int) []int {
	if len(list) == 0 || len(list) < count {
		return nil
	}
	out := make([]int, 0, len(list))
	for _, r := range list {
		out = append(out, r.Rank)
	}
	slices.Sort(out)
	return out
}
