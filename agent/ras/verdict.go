package ras

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxNamed ranks or processes are named in a verdict, the rest is counted.
const maxNamed = 8

// Verdict says in a sentence or two what an engineer should know.
func (r Report) Verdict() string { return Verdict(r, nil, 0) }

// Verdict says what r means, in the light of what the same job answered some time earlier. Ranks that are at work never
// stand at the same count when they are asked (each is asked at a moment of its own), so a difference alone proves
// nothing: only one that stays does.
func Verdict(r Report, earlier *Report, apart time.Duration) string {
	say := "RAS"
	if r.Simulated {
		say = "Simulated RAS"
	}
	if len(r.Groups) == 0 {
		if !r.Collected {
			return say + ": the answer broke off before it came to the communicators"
		}
		return fmt.Sprintf("%s: no communicator yet, so its ranks have not all met (%d %s known)%s", say, r.Processes,
			verb(r.Processes, "process is", "processes are"), r.unreachable())
	}
	g := r.worst()
	text := fmt.Sprintf("%s: communicator of %d ranks is %s", say, g.RanksPerCommunicator, g.Status)
	var parts []string
	if at := slices.IndexFunc(r.Communicators, func(c Communicator) bool { return c.Group == g.Number }); at >= 0 {
		parts = r.found(r.Communicators[at], earlier, apart)
	}
	switch {
	case len(g.Errors) > 0 && len(parts) > 0:
		text += " with " + strings.Join(g.Errors, ", ") + ": " + strings.Join(parts, "; ")
	case len(g.Errors) > 0:
		text += " with " + strings.Join(g.Errors, ", ") + ", without details"
	case g.Status == "RUNNING":
		text += " and its ranks have launched equally many operations, so none lags behind in launching"
	default:
		text += " on all of them"
	}
	text += r.unreachable()
	if strings.HasPrefix(r.Library, "RCCL") && g.Status == "RUNNING" {
		text += " (DDA and low precision are not counted)"
	}
	return text
}

// worst is the group to speak of: one with errors, the largest first, as the answer sorts them.
func (r Report) worst() Group {
	if at := slices.IndexFunc(r.Groups, func(g Group) bool { return len(g.Errors) > 0 }); at >= 0 {
		return r.Groups[at]
	}
	return r.Groups[0]
}

func (r Report) found(c Communicator, earlier *Report, apart time.Duration) []string {
	var parts []string
	if c.MissingRanks > 0 {
		parts = append(parts, "no answer from "+ranks(c.Missing, c.MissingRanks))
	}
	for _, e := range c.Errors {
		kind := "at initialisation"
		if e.Asynchronous {
			kind = "after initialisation"
		}
		for _, cl := range e.Classes {
			parts = append(parts, fmt.Sprintf("%s reported %s %s", ranks(cl.Ranks, cl.Count), cl.Status, kind))
		}
	}
	if len(c.Statuses) > 0 {
		parts = append(parts, describe(c.Statuses, func(cl Class, first bool) string {
			if !first {
				return cl.Status
			}
			return verb(cl.Count, "is", "are") + " " + cl.Status
		}))
	}
	for _, o := range c.Operations {
		text := describe(o.Classes, func(cl Class, first bool) string {
			count := "none"
			if cl.Launched > 0 {
				count = fmt.Sprint(cl.Launched)
			}
			if !first {
				return count
			}
			return fmt.Sprintf("%s launched %s of the %s operations",
				verb(cl.Count, "has", "have"), count, r.collective(o.Collective))
		})
		parts = append(parts, text+moved(c, o, earlier, apart))
	}
	return parts
}

// motion is whether a collective's counts stand still.
type motion int

const (
	unknown motion = iota // asked once
	still
	moving
)

func stood(c Communicator, o Operations, earlier *Report) motion {
	if earlier == nil {
		return unknown
	}
	was := slices.IndexFunc(earlier.Communicators, func(x Communicator) bool { return x.Hash == c.Hash })
	if was < 0 {
		return moving
	}
	at := slices.IndexFunc(earlier.Communicators[was].Operations, func(x Operations) bool {
		return x.Collective == o.Collective
	})
	if at >= 0 && slices.EqualFunc(earlier.Communicators[was].Operations[at].Classes, o.Classes, same) {
		return still
	}
	return moving
}

// moved puts stood into words.
func moved(c Communicator, o Operations, earlier *Report, apart time.Duration) string {
	switch stood(c, o, earlier) {
	case unknown:
		return " (asked once; ranks at work differ, too)"
	case still:
		return " (standing still for " + apart.Round(time.Millisecond).String() + ")"
	}
	if !slices.ContainsFunc(earlier.Communicators, func(x Communicator) bool { return x.Hash == c.Hash }) {
		return " (moving: they stood alike " + apart.Round(time.Millisecond).String() + " before)"
	}
	return " (still moving)"
}

// describe lists classes, those of the fewest ranks first, since they are what stands out; "the others" come last.
func describe(classes []Class, say func(c Class, first bool) string) string {
	sorted := slices.Clone(classes)
	slices.SortStableFunc(sorted, func(a, b Class) int { return a.Count - b.Count })
	parts := make([]string, 0, len(sorted))
	for i, c := range sorted {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("and %d more counts", len(sorted)-i))
			break
		}
		who := ranks(c.Ranks, c.Count)
		if i > 0 && i == len(sorted)-1 && c.Count > 1 {
			who = "the others"
		}
		parts = append(parts, who+" "+say(c, i == 0))
	}
	return strings.Join(parts, ", ")
}

func verb(count int, one, many string) string {
	if count == 1 {
		return one
	}
	return many
}

// ranks names a class: by number where the answer lists all of them, else by count.
func ranks(list []Rank, count int) string {
	if len(list) == 0 || len(list) < count {
		return fmt.Sprintf("%d %s", count, verb(count, "rank", "ranks"))
	}
	names := make([]string, 0, maxNamed)
	for _, r := range list[:min(len(list), maxNamed)] {
		names = append(names, fmt.Sprint(r.Rank))
	}
	text := verb(count, "rank ", "ranks ") + strings.Join(names, ",")
	if len(list) > maxNamed {
		text += fmt.Sprintf(" and %d more", len(list)-maxNamed)
	}
	return text
}

// unreachable names processes that the RAS network has lost.
func (r Report) unreachable() string {
	var text string
	if r.Missing.Count > 0 {
		text += "; no answer from " + r.Missing.String()
	}
	if r.Dead.Count > 0 {
		text += "; given up as dead: " + r.Dead.String()
	}
	return text
}

// String names the processes, or counts them where the answer does not list them.
func (p Processes) String() string {
	if len(p.Listed) == 0 || len(p.Listed) < p.Count || p.Count > maxNamed {
		return fmt.Sprintf("%d %s", p.Count, verb(p.Count, "process", "processes"))
	}
	names := make([]string, 0, len(p.Listed))
	for _, x := range p.Listed {
		names = append(names, fmt.Sprintf("process %d (GPU %s)", x.PID, x.GPUs))
	}
	return strings.Join(names, ", ")
}

// shifted translates the names that RCCLX prints. Its table of names stands in another order than the numbers that
// index it (src/init.cc ncclFuncStr, src/include/nccl_common.h ncclFunc_t; torchcomms 59426ba4), so that it calls an
// AllReduce a Broadcast.
var shifted = map[string]map[string]string{
	"2.28": {"AllGather": "Broadcast", "AllReduce": "Reduce", "AlltoAllPivot": "AllGather",
		"AllToAllGda": "ReduceScatter", "Broadcast": "AllReduce"},
	"2.27": {"AllGather": "Broadcast", "AllReduce": "Reduce", "AllToAllPivot": "AllGather",
		"Broadcast": "ReduceScatter", "Reduce": "AllReduce"},
}

// collective gives the name of a collective that was printed as name.
func (r Report) collective(name string) string {
	version, isRCCL := strings.CutPrefix(r.Library, "RCCL ")
	parts := strings.SplitN(version, ".", 3)
	if !isRCCL || len(parts) < 2 {
		return name
	}
	if right, ok := shifted[parts[0]+"."+parts[1]][name]; ok {
		return right + " (printed as " + name + ")"
	}
	return name
}
