package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// members brings the members together and lets them go: their sessions, tasks and pods, and why one cannot take part.
type members struct{ *planner }

// Fit says whether a node may take part in the group: it passed alone, and that still counts (a result that does not
// has no verdict).
func Fit(o *judge.Outcome) bool { return o.Verdict == v1alpha1.VerdictPass && o.Report != nil }

// readParticipants reads the participants from the CommTasks' sessions and, while the stage waits for its members,
// gives participants to those that have none. A participant keeps its index for the whole run. Those that come later
// lie between those of their neighbours in rank order: of the nodes only some can have fallen out since the stage
// began, none can have come.
func (g *members) readParticipants() {
	members := int(g.span.Members)
	if members == 0 {
		return
	}
	g.participants = make([]*participant, members)
	uid := make(map[string]string, len(g.in.Members))
	for i := range g.in.Members {
		uid[g.in.Members[i].Name] = g.in.Members[i].UID
	}
	left, err := localize.ParseSet(g.span.LeftSet)
	g.certain = err == nil
	g.departed = make(map[int]bool, len(left))
	for _, i := range left {
		g.departed[i] = true
	}
	for name, ct := range g.in.CommTasks {
		s := ct.Spec.Session
		if s == nil || s.RunID != g.in.Run.ID || s.Index < 0 || int(s.Index) >= members {
			continue
		}
		one := &participant{index: int(s.Index), name: name, commNode: g.in.CommNodes[name], session: s, next: *s}
		one.present = g.certain && !g.departed[one.index] &&
			(s.State == v1alpha1.SessionOpen || g.span.Stage == v1alpha1.StageEnded)
		one.held = one.present
		one.member = uid[name] != "" && uid[name] == ct.Spec.NodeUID
		if r := ct.Status.Session; r != nil && r.RunID == g.in.Run.ID {
			one.report = r
		}
		one.pod = podstate.OfRun(g.in.Pods[name], g.in.Run.ID)
		g.participants[one.index] = one
	}
	if g.saved == nil || g.saved.Stage != v1alpha1.StageWaitingForMembers ||
		g.in.Run.Phase != v1alpha1.RunPhaseRunning {
		return
	}
	index := 0
	for i := range g.in.Outcomes {
		o := &g.in.Outcomes[i]
		ct := g.in.CommTasks[o.Node]
		if !Fit(o) || ct == nil || uid[o.Node] != ct.Spec.NodeUID {
			continue
		}
		if s := ct.Spec.Session; s != nil && s.RunID == g.in.Run.ID {
			index = max(index, int(s.Index)+1)
			continue
		}
		for index < members && (g.participants[index] != nil || g.departed[index]) {
			index++
		}
		if index == members {
			break
		}
		g.participants[index] = &participant{index: index, name: o.Node, commNode: g.in.CommNodes[o.Node],
			next: g.newSession(index, ct), member: true, present: true, held: true,
			pod: podstate.OfRun(g.in.Pods[o.Node], g.in.Run.ID)}
		index++
	}
}

func (g *members) newSession(index int, ct *v1alpha1.CommTask) v1alpha1.SessionAssignment {
	spec := &g.in.Group.Spec
	return v1alpha1.SessionAssignment{
		RunID: g.in.Run.ID, RunName: g.in.Run.Name, Index: int32(index), Members: g.span.Members,
		Ranks:               cmp.Or(ct.Spec.Ranks.Count, spec.RanksPerNode),
		IdleDeadlineSeconds: g.idleDeadlineSeconds(), State: v1alpha1.SessionOpen,
	}
}

// idleDeadlineSeconds is how long an agent keeps its GPUs without a task: as long as the stage may have none for it,
// and a little more. That is while members are waited for; or while others still do a test that it has finished, and a
// culprit is searched for among others then. A round that leaves it out may follow.
func (g *members) idleDeadlineSeconds() int32 {
	spec, members := &g.in.Group.Spec, int(g.span.Members)
	_, test := g.limits(&v1alpha1.SpanTest{Kind: v1alpha1.TestGroup}, members)
	_, round := g.limits(&v1alpha1.SpanTest{Kind: v1alpha1.TestPairs}, members)
	busy := test + podstate.ReportGrace + decision.Seconds(localizationDeadlineSeconds(spec))
	return int32((max(decision.Seconds(spec.Run.MembersDeadlineSeconds), busy) + round + podstate.ReportGrace +
		idleSlack) / time.Second)
}

// idleSlack is for what is on its way.
const idleSlack = time.Minute

// fitTogether looks at what the agents say before the first task: one library build, one set of settings, one address
// family. Members that differ may hang one another, so that no communicator is tried.
func (g *members) fitTogether() bool {
	participants := g.present()
	if !g.alike(participants, v1alpha1.ReasonMixedLibraryVersions, "load different library builds",
		libraryOf, "Pin one runtime image by digest, and runtime.libraryPath.") ||
		!g.alike(participants, v1alpha1.ReasonMixedSettings,
			"take their settings from different variables or files (rccl.conf), by their hash",
			func(s *participant) string { return s.report.SettingsHash }, "A communicator of both may hang. "+
				"Use one runtime image, and look for files that the nodes mount into it.") {
		return false
	}
	network := g.network()
	if network.Reason != "" {
		g.end(VerdictOf(network.Reason), network.Reason, network.Message)
		return false
	}
	g.span.Network = network.Text
	if apart := g.clocksApart(); len(apart) > 0 {
		g.tell(true, v1alpha1.ReasonClockSkew, "CompareClocks", "Clocks are more than %d s off the API server's "+
			"on %s. No deadline depends on them; mend time synchronisation, or times in logs and reports mislead.",
			int(nodefacts.MaxClockSkew/time.Second), explain.Names(apart, 5))
	}
	return true
}

// alike says whether all members that say what value they have say the same. Else it ends the stage: more than half of
// those that say it are the norm, and the others are the culprits; without such a majority nobody is.
func (g *members) alike(participants []*participant, reason, differ string, value func(*participant) string,
	next string) bool {
	has := map[string][]*participant{}
	known := 0
	for _, s := range participants {
		if v := value(s); v != "" {
			has[v] = append(has[v], s)
			known++
		}
	}
	if len(has) < 2 {
		return true
	}
	values := slices.Sorted(maps.Keys(has))
	slices.SortStableFunc(values, func(a, b string) int { return len(has[b]) - len(has[a]) })
	var lists []string
	for _, v := range values {
		lists = append(lists,
			fmt.Sprintf("%q on %s (%s)", v, units.Counted(len(has[v]), "node"), explain.Names(names(has[v]), 4)))
	}
	message := fmt.Sprintf("The members' ranks %s: %s. %s", differ, explain.Names(lists, 4), next)
	if 2*len(has[values[0]]) > known {
		for _, v := range values[1:] {
			for _, s := range has[v] {
				g.blame(judge.NodeCulprit(s.name, reason, message))
			}
		}
	}
	g.end(v1alpha1.VerdictFail, reason, message)
	return false
}

// libraryOf is the library build that a member's ranks load; empty where its agent did not say.
func libraryOf(s *participant) string {
	if l := s.report.Library; l != nil {
		return strings.TrimSpace(l.Flavor + " " + l.Version + " " + l.BuildHash)
	}
	return ""
}

// clocksApart names the members whose clock cannot be right: it showed a time before the stage began, or one that is
// still to come.
func (g *members) clocksApart() []string {
	if g.span.StageStartTime == nil {
		return nil
	}
	early, late := g.span.StageStartTime.Add(-nodefacts.MaxClockSkew), g.in.Now.Add(nodefacts.MaxClockSkew)
	var out []string
	for _, s := range g.present() {
		if n := s.report.Network; n != nil && n.Clock != nil && (n.Clock.Time.Before(early) || n.Clock.After(late)) {
			out = append(out, s.name)
		}
	}
	return out
}

// sessions of all nodes as they should be.
func (g *members) sessions() map[string]*v1alpha1.SessionAssignment {
	out := make(map[string]*v1alpha1.SessionAssignment, len(g.participants))
	for _, s := range g.participants {
		if s == nil {
			continue
		}
		if g.letGo(s) || s.session != nil && s.session.State == v1alpha1.SessionClosed {
			// What is ended stays so: a decision on a stale read must not open it again.
			s.next.State, s.next.Task = v1alpha1.SessionClosed, nil
			if s.session == nil {
				continue
			}
		}
		next := s.next
		if was := s.session; was != nil && was.State == next.State && was.Task == next.Task &&
			was.AddressFamily == next.AddressFamily {
			out[s.name] = was // nothing else of a session ever changes; its pointer says so to who compares
			continue
		}
		out[s.name] = &next
	}
	return out
}

// assignTasks gives the open tests of the written status out: first to the members with a rank 0, which make the unique
// ids, then to the others, with the ids. What nobody waits for any more is withdrawn.
func (g *members) assignTasks() {
	if g.saved == nil || g.span.Stage == v1alpha1.StageEnded {
		return
	}
	known := make(map[string]bool, len(g.saved.Tests)) // by id: still open
	for i := range g.saved.Tests {
		known[g.saved.Tests[i].ID] = g.saved.Tests[i].Verdict == ""
	}
	for _, s := range g.present() {
		t := s.next.Task
		if t == nil {
			continue
		}
		if open, there := known[t.ID]; there && !open {
			if status := s.taskStatus(t.ID); status == nil || status.Phase != v1alpha1.TaskFinished {
				s.next.Task = nil // its test is over: ranks that still hang are ended
			}
		}
	}
	for i := range g.saved.Tests {
		t := &g.saved.Tests[i]
		if t.Verdict != "" || i >= len(g.span.Tests) || g.span.Tests[i].Verdict != "" ||
			t.Kind == v1alpha1.TestPairRecord || g.span.Tests[i].OverdueTime != nil {
			continue // also past its deadline, where only reports are waited for
		}
		l, err := g.layoutOf(t)
		if err != nil {
			continue // evaluateOpen has closed such a test
		}
		family := g.network().Family
		for index, part := range l.shares {
			s := g.participants[index]
			if now := s.next.Task; now != nil && now.ID != t.ID {
				if _, there := known[now.ID]; !there {
					continue // of a newer status than the one that was read
				}
			}
			complete := true
			task := g.taskOf(t, part)
			for j := range task.Communicators {
				c := &task.Communicators[j]
				if spans.IsRoot(c) {
					continue
				}
				if c.UniqueID = l.places[place{index, c.Name}].uniqueID(t.ID); c.UniqueID == nil {
					complete = false
				}
			}
			if complete || part.HasRoot() {
				s.next.Task = task
				if family != "" {
					s.next.AddressFamily = family
				}
			}
		}
	}
}
