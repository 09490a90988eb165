package supervise

import (
	"bytes"
	"fmt"
	"os"
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
	f.Rank, f.Behind = v.late(said.Step)
	word, late, elsewhere := "", ras.Suspicion{}, ras.Suspicion{}
	if f.Stopped, word = v.stopped(); len(f.Stopped) > 0 {
		if f.Rank, f.Behind = -1, f.Stopped; len(f.Stopped) == 1 {
			f.Rank = f.Stopped[0]
		}
	} else if f.Rank < 0 {
		late, elsewhere = v.placed(v.ras.suspicion(v.lateSince(), v.worldSize()))
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
	who := v.subject(first, f)
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
		remarks = append(remarks, fmt.Sprintf("by RAS's word rank %s %s", v.numbers(late.Ranks), late.Why))
	}
	if len(elsewhere.Ranks) > 0 {
		remarks = append(remarks, fmt.Sprintf("by RAS's word rank %s, on other nodes, %s", join(elsewhere.Ranks), elsewhere.Why))
	}
	f.Message = fmt.Sprintf("node %s: %s: %s%s missed the deadline of %s for %s", v.team.Node, v.team.Name, who, word, limit, said.Step)
	if len(remarks) > 0 {
		f.Message += " (" + strings.Join(remarks, "; ") + ")"
	}
	f.Message += "; " + v.whereabouts()
	if len(f.Stopped) > 0 {
		f.Message += "; no GPU stops a process: find who sent SIGSTOP or attached a debugger, and run again"
	}
	return f
}

// stopped are the ranks whose processes do not run, since a signal or a debugger stopped them, and by what that is
// seen.
func (v *supervision) stopped() (indexes []int, word string) {
	state := v.processState
	if state == nil {
		state = stateOf
	}
	for i := range v.ranks {
		pid := v.ranks[i].ProcessID
		if pid <= 0 || v.exited[i] {
			continue
		}
		if s := state(pid); s == "T" || s == "t" {
			indexes = append(indexes, i)
			word = fmt.Sprintf(", stopped (state %s in /proc/%d/stat),", s, pid)
		}
	}
	if len(indexes) > 1 {
		word = ", stopped (state T in /proc/PID/stat),"
	}
	return indexes, word
}

// stateOf reads the state of a process, which follows its name in brackets (fs/proc/array.c, do_task_stat); empty where
// it cannot be read.
func stateOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	state, _, _ := strings.Cut(strings.TrimSpace(string(data[bytes.LastIndexByte(data, ')')+1:])), " ")
	return state
}

// subject is who missed the deadline, for the start of a message: the ranks that are late, else all that are not done.
// In the probe of pairs it is the one that was first.
func (v *supervision) subject(first string, f Failure) string {
	var waiting []int
	for i, gone := range v.exited {
		if !gone {
			waiting = append(waiting, i)
		}
	}
	switch {
	case f.Rank >= 0:
		return v.ranks[f.Rank].Name()
	case len(f.Behind) > 0:
		return "ranks " + v.numbers(f.Behind)
	case v.inPairs(f.Step):
		return first
	case len(waiting) < len(v.ranks):
		return fmt.Sprintf("ranks %s of %d", v.numbers(waiting), v.worldSize())
	}
	return v.everybody()
}

// worldSize is the number of ranks in the communicator, on other nodes too.
func (v *supervision) worldSize() int { return max(v.team.Specs[0].WorldSize, len(v.ranks)) }

// everybody names all ranks of the team.
func (v *supervision) everybody() string {
	if n := v.worldSize(); len(v.ranks) < n {
		return fmt.Sprintf("all %d ranks of this node, of %d", len(v.ranks), n)
	}
	return fmt.Sprintf("all %d ranks", len(v.ranks))
}

// numbers are the ranks of indexes in the team, for messages.
func (v *supervision) numbers(indexes []int) string {
	ranks := make([]int, len(indexes))
	for at, i := range indexes {
		ranks[at] = v.ranks[i].Rank
	}
	return join(ranks)
}

// placed turns what RAS says of ranks into indexes in the team. Where some of the ranks are on other nodes, nothing is
// said against this one's: elsewhere holds all of them then, as ranks.
func (v *supervision) placed(s ras.Suspicion) (here, elsewhere ras.Suspicion) {
	indexes := make([]int, 0, len(s.Ranks))
	for _, r := range s.Ranks {
		i := slices.IndexFunc(v.ranks, func(o RankOutcome) bool { return o.Rank == r })
		if i < 0 {
			return ras.Suspicion{}, s
		}
		indexes = append(indexes, i)
	}
	s.Ranks = indexes
	return s, ras.Suspicion{}
}

// late is the rank that is late at a step, -1 where no single one is, and the ranks that came less far than others.
func (v *supervision) late(step string) (named int, behind []int) {
	// In the probe of pairs ranks rightly stand at different steps.
	if !v.inPairs(step) {
		behind = v.behind()
	}
	if len(behind) == 1 {
		return behind[0], behind
	}
	return v.alone(), behind
}

// inPairs says whether the step is one of the probe of pairs.
func (v *supervision) inPairs(step string) bool {
	at := v.positionOf(step)
	return at != nil && at.Kind == rank.StepPairProbe
}

// alone returns the only rank whose process has not ended, where there is just one of several.
func (v *supervision) alone() int {
	found := -1
	for i, gone := range v.exited {
		if !gone && found >= 0 {
			return -1
		}
		if !gone {
			found = i
		}
	}
	if len(v.exited) < 2 {
		return -1
	}
	return found
}

// behind returns the ranks that came less far than the furthest one; empty where all stand alike.
func (v *supervision) behind() []int {
	most, least := 0, int(^uint(0)>>1)
	for _, r := range v.ranks {
		most, least = max(most, r.Events), min(least, r.Events)
	}
	if most == least {
		return nil
	}
	var out []int
	for i, r := range v.ranks {
		if r.Events == least {
			out = append(out, i)
		}
	}
	return out
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
