package ras

import (
	"cmp"
	"slices"
	"time"
)

// Suspects are the ranks that an answer puts in the dock, in ascending order; nil where it names nobody. Why is the clause
// that says what speaks against them, to follow their names. It is a hint: RAS does not see every operation.
//
// Ranks that gave no answer come first: a process whose RAS thread is silent for the library's own limit is stopped or gone,
// whatever it was doing. Else they are those that have launched the fewest operations, but only where the same job
// answered alike some time earlier: while counts move, ranks at work differ, too. Never is it more than half of the ranks.
func Suspects(r Report, earlier *Report, apart time.Duration) (suspects []int, why string) {
	if len(r.Groups) == 0 {
		return nil, ""
	}
	g := r.worst()
	at := slices.IndexFunc(r.Communicators, func(c Communicator) bool { return c.Group == g.Number })
	if at < 0 {
		return nil, ""
	}
	c := r.Communicators[at]
	if c.MissingRanks*2 > g.RanksPerCommunicator || slices.ContainsFunc(c.Operations, func(o Operations) bool { return stood(c, o, earlier) == moving }) {
		return nil, ""
	}
	if c.MissingRanks > 0 {
		if suspects = numbers(c.Missing, c.MissingRanks); suspects == nil {
			return nil, ""
		}
		return suspects, "gave no answer"
	}
	for _, o := range c.Operations {
		if stood(c, o, earlier) != still || len(o.Classes) == 0 {
			return nil, ""
		}
		least := slices.MinFunc(o.Classes, func(a, b Class) int { return cmp.Compare(a.Launched, b.Launched) })
		lag := numbers(least.Ranks, least.Count)
		if len(lag)*2 > g.RanksPerCommunicator || suspects != nil && !slices.Equal(suspects, lag) {
			return nil, "" // most of them, or one rank in this collective and another one in that
		}
		if suspects = lag; suspects == nil {
			return nil, ""
		}
	}
	if suspects == nil {
		return nil, ""
	}
	return suspects, "launched fewer operations than the others, standing still for " + apart.Round(time.Millisecond).String()
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
