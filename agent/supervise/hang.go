package supervise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/ras"
)

// hang describes a missed deadline: that of rank index at said.Step, with what the rank itself had to say about it, if
// it spoke. Rank index is only the first to miss it; who is late is another question.
func (v *supervision) hang(index int, said rank.Error) Failure {
	f := Failure{Kind: FailHung, Code: rank.CodeRankHung, Step: said.Step}
	f.Rank, f.Behind = v.ranks.late(said.Step)
	word, late, elsewhere := "", ras.Suspicion{}, ras.Suspicion{}
	if f.Stopped, word = v.ranks.stopped(v.processState); len(f.Stopped) > 0 {
		if f.Rank, f.Behind = -1, f.Stopped; len(f.Stopped) == 1 {
			f.Rank = f.Stopped[0]
		}
	} else if f.Rank < 0 {
		late, elsewhere = v.ranks.placed(v.ras.suspicion(v.ranks.lateSince(v.clock.Now()), v.ranks.worldSize()))
		if len(f.Behind) > 0 && !subset(late.Ranks, f.Behind) {
			late = ras.Suspicion{}
		}
	}
	if f.ByRAS = len(late.Ranks) > 0; f.ByRAS && !late.Moving {
		if f.Behind, word = late.Ranks, ", by RAS's word ("+late.Why+"),"; len(late.Ranks) == 1 {
			f.Rank = late.Ranks[0]
		}
	}
	limit, remarks := v.limit(said), []string(nil)
	if said.Limit > 0 {
		remarks = append(remarks, fmt.Sprintf("a rank's own limit, under the %s given", limit))
		limit = said.Limit
	}
	first := v.ranks[index].Name()
	who := v.ranks.subject(first, f)
	switch {
	case said.Message != "" && who == first:
		remarks = append(remarks, "it says: "+said.Message)
	case said.Message != "":
		remarks = append(remarks, first+" says: "+said.Message)
	case f.Rank < 0 && who != first:
		remarks = append(remarks, first+" first")
	}
	if late.Moving { // slow at least, but not proved to be what is waited for
		f.Behind = late.Ranks
		remarks = append(remarks, fmt.Sprintf("by RAS's word rank %s %s", v.ranks.numbers(late.Ranks), late.Why))
	}
	if len(elsewhere.Ranks) > 0 {
		remarks = append(remarks,
			fmt.Sprintf("by RAS's word rank %s, on other nodes, %s", join(elsewhere.Ranks), elsewhere.Why))
	}
	f.Message = fmt.Sprintf("node %s: %s: %s%s missed the deadline of %s for %s",
		v.team.Node, v.team.Name, who, word, limit, said.Step)
	if len(remarks) > 0 {
		f.Message += " (" + strings.Join(remarks, "; ") + ")"
	}
	f.Message += "; " + v.ranks.whereabouts(v.clock.Now())
	if len(f.Stopped) > 0 {
		f.Message += "; no GPU stops a process: find who sent SIGSTOP or attached a debugger, and run again"
	}
	return f
}

// limit is what was given for a step: to the rank where it gave up itself, else to the supervisor.
func (v *supervision) limit(said rank.Error) time.Duration {
	switch spec := v.team.Specs[0]; {
	case said.Step == "load" || said.Step == "preconditions" || said.Step == "init":
		return spec.InitDeadline
	case said.Step == "destroy" && said.Limit == 0:
		return v.team.ExitDeadline
	default:
		return spec.StepDeadline
	}
}

func subset(some, of []int) bool {
	return !slices.ContainsFunc(some, func(i int) bool { return !slices.Contains(of, i) })
}
