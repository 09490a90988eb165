package stage

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
)

// roster is who takes part in the stage, and who has departed from it.
type roster struct {
	*record
	// participants of the stage by index; nil where a node is gone or has none.
	participants []*participant
	// departed are the indexes of the members that the group went on without; certain: they could be read.
	departed map[int]bool
	certain  bool
	// unwritten: they are too many ranges for the status.
	unwritten bool
	// here caches the present members.
	here []*participant
	// dropped are the members that fell out in this step, and what was said of the first.
	dropped []string
	why     decision.Event
	// justDeparted are those that left and are not noted in the tests yet; lost: some of them not as culprits;
	// departedSilent of them were seen in a bad test and heard of no more.
	justDeparted   []int
	lost           bool
	departedSilent int
}

// participant is one member of the group's stage.
type participant struct {
	index    int
	name     string
	commNode *v1alpha1.CommNode // nil where nothing is known of the node
	pod      *corev1.Pod
	// session as the API has it, nil where it is made just now; next is what it becomes.
	session *v1alpha1.SessionAssignment
	next    v1alpha1.SessionAssignment
	// report of the node's agent, of this run only.
	report *v1alpha1.SessionStatus
	// member: the node is still a member of the group, and the same node.
	member bool
	// present: the group has not gone on without it; held: so the API has it, and what this step decides is not written
	// yet.
	present, held bool
}

// facts of the participant's node as its monitor last reported them; nil where it never did.
func (s *participant) facts() *v1alpha1.NodeFacts {
	if s.commNode == nil {
		return nil
	}
	return s.commNode.Status.Facts
}

// taskStatus is what the member's agent says of the test, nil where it says nothing.
func (s *participant) taskStatus(id string) *v1alpha1.NodeTaskStatus {
	if s.report == nil || s.report.Task == nil || s.report.Task.ID != id {
		return nil
	}
	return s.report.Task
}

// idled: the member's agent ended its session since it was given nothing to do. Its idle deadline outlasts each test
// and search.
func (s *participant) idled() bool {
	return s.report != nil && s.report.State == v1alpha1.SessionEnded && s.report.Reason == v1alpha1.ReasonSessionIdle
}

// refuses: the member's agent said that it cannot take part.
func (s *participant) refuses() bool {
	return s.report != nil && s.report.State == v1alpha1.SessionFailed
}

func names(participants []*participant) []string {
	out := make([]string, len(participants))
	for i, s := range participants {
		out[i] = s.name
	}
	return out
}

// present members, in the order of their indexes.
func (g *roster) present() []*participant {
	if g.here == nil {
		g.here = make([]*participant, 0, len(g.participants))
		for _, s := range g.participants {
			if s != nil && s.present {
				g.here = append(g.here, s)
			}
		}
	}
	return g.here
}

func (g *roster) presentSet() localize.Set {
	var out localize.Set
	for _, s := range g.present() {
		out = append(out, s.index)
	}
	return out
}

func (g *roster) participantOf(name string) *participant {
	for _, s := range g.participants {
		if s != nil && s.name == name {
			return s
		}
	}
	return nil
}

func (g *roster) namesOf(set localize.Set) []string {
	var out []string
	for _, i := range set {
		if i < len(g.participants) && g.participants[i] != nil {
			out = append(out, g.participants[i].name)
		}
	}
	return out
}

func (g *roster) spanMembers(set localize.Set) []spans.Member {
	out := make([]spans.Member, len(set))
	for i, index := range set {
		out[i] = spans.Member{Index: index, Ranks: int(g.participants[index].next.Ranks)}
	}
	return out
}

// notReady are the present members whose agents are not ready for a first task.
func (g *roster) notReady() []*participant {
	var out []*participant
	for _, s := range g.present() {
		if s.report == nil || s.pod == nil || podstate.RanksStarted(s.pod).IsZero() ||
			(s.report.State != v1alpha1.SessionReady && s.report.State != v1alpha1.SessionWorking) {
			out = append(out, s)
		}
	}
	return out
}

// unmarkedGaps are the indexes that have no participant and are not known to have departed.
func (g *roster) unmarkedGaps() []int {
	var out []int
	if !g.certain || len(g.span.LeftSet) > MaxLeftSet-100 {
		return nil // it could not be written down, and would be found again and again
	}
	for i, s := range g.participants {
		if s == nil && !g.departed[i] {
			out = append(out, i)
		}
	}
	return out
}

// drop goes on without a member, and names it.
func (g *roster) drop(s *participant, reason, message string) {
	if v := VerdictOf(reason); v == v1alpha1.VerdictError || v == v1alpha1.VerdictFail {
		g.blame(judge.NodeCulprit(s.name, reason, message))
	}
	g.leave(s, reason, message)
}

// leave goes on without a member: its session ends, and its GPUs with it. The reason counts for the stage's verdict,
// and is never one that means Pass.
func (g *roster) leave(s *participant, reason, message string) {
	g.worsen(reason, message)
	g.lost = true
	g.release(s)
	if len(g.dropped) == 0 {
		g.why = decision.Event{Warning: true, Reason: reason, Action: "LeaveMember", Note: message}
	}
	g.dropped = append(g.dropped, s.name)
}

// release lets a member go without a word: what is to be said of it is said already.
func (g *roster) release(s *participant) {
	s.present, g.here = false, nil
	g.markDeparted([]int{s.index}, []string{s.name})
}

const maxDepartedNames = 16

func (g *roster) markDeparted(indexes []int, departedNames []string) {
	for _, name := range departedNames {
		if len(g.span.Left) < maxDepartedNames && !slices.Contains(g.span.Left, name) {
			g.span.Left = append(g.span.Left, name)
		}
	}
	for _, i := range indexes {
		g.departed[i] = true
	}
	g.justDeparted = append(g.justDeparted, indexes...)
}

// writeDepartures writes down who left, and tells of it once for all that fell out in this step.
func (g *roster) writeDepartures() {
	if len(g.participants) == 0 {
		return
	}
	var set localize.Set
	for i := range g.participants {
		if g.departed[i] {
			set = append(set, i)
		}
	}
	if text := set.String(); len(text) <= MaxLeftSet && g.certain {
		g.span.LeftSet = text
	} else {
		g.unwritten = true // the sessions, which are ended, tell it
	}
	if g.span.Stage != v1alpha1.StageEnded {
		g.span.Present = int32(len(g.present()))
	}
	if len(g.dropped) > 0 {
		g.tell(true, g.why.Reason, g.why.Action, "Run %s goes on without %s: %s", g.in.Run.ID,
			explain.Names(g.dropped, 5), g.why.Note)
	}
}

// MaxLeftSet is what status.span.leftSet holds.
const MaxLeftSet = 1024

// noteDepartures notes who left since the last note, before what is tried without them; it says whether there was room
// for that.
func (g *roster) noteDepartures() bool {
	var set localize.Set
	notes, noted := 0, departedIn(g.span.Tests)
	for i, s := range g.participants {
		if (s == nil || !s.present) && !noted.Has(i) {
			set = append(set, i)
		}
	}
	for i := range g.span.Tests {
		if g.span.Tests[i].Kind == v1alpha1.TestDeparture {
			notes++
		}
	}
	verdict, reason := v1alpha1.VerdictFail, v1alpha1.ReasonCulpritFound
	if g.lost || g.span.Stage == v1alpha1.StageWaitingForMembers {
		verdict, reason = v1alpha1.VerdictError, v1alpha1.ReasonMemberLost
		if g.departedSilent == len(set) {
			reason = v1alpha1.ReasonAgentNotReporting
		}
	}
	for len(set) > 0 {
		n := len(set)
		for len(set[:n].String()) > localize.MaxText {
			n /= 2
		}
		notes++
		if !g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestDeparture, Round: int32(notes)}, set[:n].String()) {
			return false
		}
		g.closeTest(&g.span.Tests[len(g.span.Tests)-1], verdict, reason, nil)
		set = set[n:]
	}
	g.justDeparted, g.departedSilent = nil, 0
	return true
}

// SetOf is the set of a test without those who had left before it.
func SetOf(tests []v1alpha1.SpanTest, at int) localize.Set {
	set, err := localize.ParseSet(tests[at].Set)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(set, departedIn(tests[:at]).Has)
}

// departedIn are the members that left while these tests were made, as far as it is noted.
func departedIn(tests []v1alpha1.SpanTest) localize.Set {
	var out []int
	for i := range tests {
		if tests[i].Kind == v1alpha1.TestDeparture {
			set, _ := localize.ParseSet(tests[i].Set)
			out = append(out, set...)
		}
	}
	return localize.NewSet(out...)
}

// departedSince are the members that left since the last test of the group or the mesh.
func (g *roster) departedSince() localize.Set {
	return localize.NewSet(append(departedIn(g.span.Tests[g.searchBase()+1:]), g.justDeparted...)...)
}

// writeSet gives a set as ranges that also span members who left before the search: so it stays short, and is read back
// as what of it was there.
func (g *roster) writeSet(set localize.Set) string {
	present := localize.NewSet(append(g.presentSet(), g.departedSince()...)...)
	var wide localize.Set
	at := 0
	for _, index := range set {
		for at < len(present) && present[at] < index {
			at++
		}
		if len(wide) > 0 && at > 0 && present[at-1] == wide[len(wide)-1] {
			for i := wide[len(wide)-1] + 1; i < index; i++ {
				wide = append(wide, i)
			}
		}
		wide = append(wide, index)
	}
	return wide.String()
}

// readSet gives the members of a set that writeSet wrote, of a test since the last one of the group or the mesh.
func (g *roster) readSet(text string) localize.Set {
	wide, err := localize.ParseSet(text)
	if err != nil {
		return nil
	}
	departed := g.departedSince()
	return slices.DeleteFunc(wide, func(i int) bool {
		return !departed.Has(i) && (i >= len(g.participants) || g.participants[i] == nil || !g.participants[i].present)
	})
}

// wholeSet is the set of all that are present, for a test that those after it are counted from: one range, from which
// all are taken who left before it (noteDepartures). So it is short, however many they are.
func (g *roster) wholeSet() string {
	present := g.presentSet()
	return localize.Range(present[0], present[len(present)-1]+1).String()
}

// departedNames are the members that the group went on without; of a bad pair only one left.
func (g *roster) departedNames() []string {
	names := g.span.Left // at most 16
	if set, err := localize.ParseSet(g.span.LeftSet); err == nil && len(set) > len(names) {
		names = g.namesOf(set)
	}
	var out []string
	for _, name := range names {
		for i := range g.span.Culprits {
			if c := &g.span.Culprits[i]; slices.Contains(c.Pair, name) {
				name = fmt.Sprintf("%s (one of the two of %s, which is enough)", name, c.Name)
				break
			}
		}
		out = append(out, name)
	}
	return out
}

// letGo says whether the member's session and pod may end: only once the API has it that the group goes on without the
// member, or that the stage is over. Were the status lost after they ended, nothing would tell why they did.
func (g *roster) letGo(s *participant) bool {
	return !s.held || g.savedOver() || g.unwritten && !s.present
}

// restsOn names the nodes by whose objects, as they were read, members are let go, and with them their pods, while the
// stage goes on. A manager that takes over may have the group as it is and those as they were: it would end healthy
// members, and name them.
func (g *roster) restsOn() []string {
	if g.saved == nil || g.savedOver() || g.in.Run.Phase != v1alpha1.RunPhaseRunning {
		return nil
	}
	nodes := map[string]bool{}
	before, err := localize.ParseSet(g.saved.LeftSet)
	gap := false
	for i, s := range g.participants {
		switch {
		case s == nil:
			gap = gap || err == nil && g.departed[i] && !before.Has(i)
		case s.held && !s.present:
			nodes[s.name] = true
		}
	}
	for i := range g.in.Members {
		// Of a participant that nobody has it is not known whose it was.
		ct := g.in.CommTasks[g.in.Members[i].Name]
		if gap && (ct == nil || ct.Spec.Session == nil || ct.Spec.Session.RunID != g.in.Run.ID) {
			nodes[g.in.Members[i].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// LeastMembers of a communicator over several nodes.
const LeastMembers = 2

// tooFew ends the stage where fewer members are present than it takes.
func (g *roster) tooFew() bool {
	if present := len(g.present()); present < g.need() {
		verdict, reason := g.worstSoFar()
		g.end(verdict, reason, fmt.Sprintf("%d of %d members are left for a communicator, and it takes %d.",
			present, g.span.Members, g.need()))
		return true
	}
	return false
}

// end ends the stage with the worse of the verdict and what fell out before.
func (g *roster) end(verdict v1alpha1.Verdict, reason, message string) {
	if worst, why := g.worstSoFar(); g.span.Reason != "" && judge.Rank(worst) >= judge.Rank(verdict) {
		verdict, reason = worst, why
		message = clip.Sentences(explain.Sentence(g.span.Message), max(maxMessage/3, maxMessage-len(message)-2)) +
			" " + message
	}
	if len(g.participants) > 0 {
		g.span.Present = int32(len(g.present()))
	}
	g.closeOpen(reason)
	g.span.Stage, g.span.StageStartTime, g.span.StageDeadline = v1alpha1.StageEnded, decision.Stamp(g.in.Now), nil
	g.span.Verdict, g.span.Reason, g.span.Message = verdict, reason,
		clip.Sentences(explain.Sentence(message), maxMessage)
	if l := g.span.Localization; l != nil && l.State == v1alpha1.LocalizationRunning {
		l.State = v1alpha1.LocalizationOutOfBounds
		l.Message = "The search was not ended."
		g.stopSearch()
	}
	if g.in.RunDeleted {
		return // nothing keeps that it was told
	}
	g.tell(verdict != v1alpha1.VerdictPass, reason, "EndGroupStage", "Run %s, the group's stage: %s. %s", g.in.Run.ID,
		verdict, g.span.Message)
}

// MaxCulprits bounds status.span.culprits.
const MaxCulprits = 16

// blame names a culprit, once. Where the list is full, a node that is not in it takes the place of another node's
// second entry; what is left out stands in culpritSet.
func (g *roster) blame(c v1alpha1.Culprit) {
	isIt := func(o v1alpha1.Culprit) bool { return same(&o, &c) }
	if slices.ContainsFunc(g.span.Culprits, isIt) {
		return
	}
	if s := g.participantOf(c.Node); s != nil && VerdictOf(c.Reason) == v1alpha1.VerdictFail && c.Kind != "Pair" &&
		!ofCommunicators(&c) {
		set, err := localize.ParseSet(g.span.CulpritSet)
		if text := localize.NewSet(append(set, s.index)...).String(); err == nil && len(text) <= MaxLeftSet {
			g.span.CulpritSet = text
		}
	}
	c.Message = clip.Head(c.Message, 512)
	if len(g.span.Culprits) < MaxCulprits {
		g.span.Culprits = append(g.span.Culprits, c)
		return
	}
	of := func(node string) int { // entries of the node
		n := 0
		for i := range g.span.Culprits {
			if g.span.Culprits[i].Node == node && g.span.Culprits[i].Kind != "Pair" {
				n++
			}
		}
		return n
	}
	for at := MaxCulprits - 1; at >= 0 && of(c.Node) == 0; at-- {
		if o := &g.span.Culprits[at]; o.Kind != "Pair" && of(o.Node) > 1 {
			g.span.Culprits = append(slices.Delete(g.span.Culprits, at, at+1), c)
			return
		}
	}
}

// named are the names of all culprits: first those of the list, then the nodes that it has no room for.
func (g *roster) named() []string {
	names := culpritNames(g.span.Culprits)
	set, err := localize.ParseSet(g.span.CulpritSet)
	if err != nil {
		return names
	}
	for _, name := range g.namesOf(set) {
		if !slices.ContainsFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool { return c.Node == name }) {
			names = append(names, name)
		}
	}
	return names
}

func culpritNames(culprits []v1alpha1.Culprit) []string {
	var out []string
	for i := range culprits {
		if c := &culprits[i]; VerdictOf(c.Reason) == v1alpha1.VerdictFail && !ofCommunicators(c) {
			name := c.Name
			if c.Kind != "Node" && c.Kind != "Pair" {
				name = fmt.Sprintf("%s %s on %s", c.Kind, c.Name, c.Node)
			}
			out = append(out, name)
		}
	}
	return out
}

// same says whether two culprits are one.
func same(a, b *v1alpha1.Culprit) bool {
	return a.Node == b.Node && a.Kind == b.Kind && a.Name == b.Name
}

// kindCommunicators is the kind of a culprit without a node: communicators of one dimension of the mesh, dp/0-7,9.
const kindCommunicators = "Link"

// ofCommunicators says whether the culprit stands for communicators of the mesh whose node is not known.
func ofCommunicators(c *v1alpha1.Culprit) bool { return c.Kind == kindCommunicators && c.Node == "" }
