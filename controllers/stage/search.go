package stage

import (
	"cmp"
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// startSearch begins to look for what makes the step bad.
func (g *machine) startSearch(step v1alpha1.Step) {
	spec := &g.in.Group.Spec
	if spec.Localization.Mode == v1alpha1.LocalizationOff {
		g.end(VerdictOf(g.span.Reason), g.span.Reason,
			"localization.mode is Off: no culprit was searched for."+g.lookAt())
		return
	}
	before := g.span.Localization
	l := &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationRunning, Step: &step,
		StartTime: *decision.Stamp(g.in.Now)}
	if before != nil {
		l.Rounds, l.Tests, l.StartTime = before.Rounds, before.Tests, before.StartTime
	}
	bound := cmp.Or(int(spec.Localization.MaxRounds), g.roundsBefore()+localize.MaxRounds(len(g.present()), false))
	if g.hasRails() {
		bound++ // the round that names the rail
	}
	l.MaxRounds = int32(bound)
	g.span.Localization = l
	g.enter(v1alpha1.StageLocalizing, 0)
	g.span.StageDeadline = decision.Stamp(l.StartTime.Add(decision.Seconds(localizationDeadlineSeconds(spec))))
	g.tell(true, g.span.Reason, "StartSearch", "Run %s searches for the culprit of %s among %d nodes. %s", g.in.Run.ID,
		step, len(g.present()), g.span.Message)
	g.search()
}

// search makes the next round that follows from what was tried, or ends the search.
func (g *machine) search() {
	present := g.searchSet()
	before := g.roundsBefore()
	history := g.history()
	// The planner counts the tests of this search itself.
	room := max(0, MaxTests-len(g.span.Tests)-TestsReserve)
	limit := int(g.in.Group.Spec.Localization.MaxRounds)
	noRound := limit > 0 && before >= limit // searches before this one took them all
	problem := localize.Problem{Members: present, Fewer: len(g.departedSince()) > 0, Rails: g.hasRails() && !noRound &&
		!g.deadlinePassed(), MaxTests: max(1, min(localize.DefaultMaxTests, ownTests(history)+room))}
	if limit > 0 {
		problem.MaxRounds = max(1, limit-before)
	}
	step, err := localize.Next(problem, history)
	if len(step.Tests) > 0 && step.Tests[0].Kind == localize.KindRails &&
		len(step.Tests) > MaxTests-len(g.span.Tests)-MaxGroupTests {
		problem.Rails = false // so many culprits that their rails do not fit into the status
		step, err = localize.Next(problem, history)
	}
	slowest, nodes, bySize := g.bySize()
	switch {
	case bySize:
		best := g.pairsSummary().best
		g.conclude(localize.Finding{State: localize.NotFound}, "", fmt.Sprintf(
			"communicators over %d nodes are alike (the slowest reaches %s, %d %% of the best pair) and faster "+
				"than the group: the number of nodes slows this step, no single member. Compare at larger sizes, "+
				"or set a threshold with span: Group for this many nodes",
			nodes, units.Bandwidth(slowest), slowest*100/max(1, best)))
		return
	case err != nil:
		g.conclude(localize.Finding{State: localize.NotFound}, "", "The planner gave no further test: "+err.Error())
		return
	case step.Done:
		bound := boundText(&step.Finding.Evidence)
		g.conclude(step.Finding, bound, findingText(&step.Finding, bound))
		return
	case len(step.Tests) == 0:
		g.conclude(localize.Finding{State: localize.OutOfBounds}, "", "The planner waits for tests that are not there.")
		return
	case noRound:
		g.endSearch(fmt.Sprintf("localization.maxRounds (%d) is reached", limit))
		return
	case g.deadlinePassed():
		g.endSearch(fmt.Sprintf("localization.deadlineSeconds (%d s) ran out",
			localizationDeadlineSeconds(&g.in.Group.Spec)))
		return
	}
	round := before + step.Round
	for i, t := range step.Tests {
		kind := v1alpha1.TestSearch
		if t.Kind == localize.KindRails {
			kind = v1alpha1.TestRails
		}
		if !g.open(v1alpha1.SpanTest{Kind: kind, Round: int32(round), Index: int32(i + 1)}, g.writeSet(t.Set)) {
			g.closeOpen(v1alpha1.ReasonRunDeadlineExceeded)
			g.endSearch("no further test fits into the status")
			return
		}
	}
	l := g.span.Localization
	l.Rounds, l.Tests = int32(round), l.Tests+int32(len(step.Tests))
}

// TestsReserve is left in the status for what follows a search: the group formed again, and its pairs.
const TestsReserve = 16

// endSearch ends the search before its end: what the tests so far prove is named all the same.
func (g *machine) endSearch(bound string) {
	f, err := localize.Conclude(localize.Problem{Members: g.searchSet(), Fewer: len(g.departedSince()) > 0},
		g.history())
	if err != nil {
		g.conclude(localize.Finding{State: localize.OutOfBounds}, bound, bound+": "+err.Error())
		return
	}
	g.conclude(f, bound, findingText(&f, bound))
}

// conclude ends the search: culprits are named and left out, and the group without them is tried once more. bound says
// what ended it before its end, or is empty, and why says what was seen where no culprit is named.
func (g *machine) conclude(f localize.Finding, bound, why string) {
	l := g.span.Localization
	step := g.searchStep()
	l.State = v1alpha1.LocalizationState(f.State)
	g.stopSearch()
	effort := g.effort()
	if len(f.Members) == 0 && len(f.Pairs) == 0 {
		text := fmt.Sprintf("The search did not name a culprit (%s, %s): %s", l.State, effort, explain.Sentence(why))
		if named := g.named(); len(named) > 0 {
			text = fmt.Sprintf("Named before: %s. The search for more named no other (%s, %s): %s",
				explain.Names(named, 5), l.State, effort, explain.Sentence(why))
		}
		if len(f.Suspects) > 0 && len(f.Suspects) < len(g.searchSet()) {
			text += " Something among these is bad: " + explain.Names(g.namesOf(f.Suspects), 8) + "."
		}
		lost := g.departedSince()
		if len(lost) > 0 {
			text = clip.Sentences(text, 400) + " Left in the search: " + explain.Names(g.namesOf(lost), 3) + "."
		} else {
			text += g.lookAt()
		}
		l.Message = clip.Head(text, 512)
		if g.backToMesh() {
			return
		}
		if len(lost) > 0 {
			g.regroup() // what is bad may have left with them
			return
		}
		g.end(VerdictOf(g.span.Reason), g.span.Reason, text)
		return
	}
	rails := g.railsOf()
	cause, slow := "", true
	name := func(c v1alpha1.Culprit, isSlow bool) {
		g.blame(c)
		if slow { // of several what is not slow says more
			cause = c.Reason
		}
		slow = slow && isSlow
	}
	for _, index := range f.Members {
		reason, isSlow := g.badAs(index)
		for _, c := range g.nodeCulprits(g.participants[index], rails[index], reason, isSlow, step, effort) {
			name(c, isSlow)
		}
	}
	for _, pair := range f.Pairs {
		reason, isSlow := g.badAs(pair[0], pair[1])
		name(g.pairCulprit(g.participants[pair[0]], g.participants[pair[1]], rails[pair[0]], reason, isSlow,
			step, effort), isSlow)
	}
	g.tracedTo(f)
	names := g.named()
	text := fmt.Sprintf("The culprit of %s is %s (%s).", step, explain.Names(names, 5), effort)
	if len(names) > 1 {
		text = fmt.Sprintf("The culprits of %s are %s (%s).", step, explain.Names(names, 5), effort)
	}
	if bound != "" {
		text += " The search was not made to its end: " + explain.Sentence(bound)
	}
	if len(f.Suspects) > 0 {
		text += " Not told apart: " + explain.Names(g.namesOf(f.Suspects), 5) + "."
	}
	l.Message = clip.Head(text, 512)
	if slow && g.span.Reason == v1alpha1.ReasonSlowGroup {
		cause = g.span.Reason // the group as a whole was held against a mark
	}
	if t := &g.span.Tests[g.searchBase()]; slow && t.Verdict == v1alpha1.VerdictPass {
		t.Verdict, t.Reason = v1alpha1.VerdictFail, cause
	}
	g.explain(cause, clip.Sentences(text, 500)+" "+g.symptom(slow))
	g.tell(true, v1alpha1.ReasonCulpritFound, "NameCulprit", "Run %s: %s", g.in.Run.ID, text)
	if g.backToMesh() {
		return
	}
	for _, index := range f.Members {
		g.release(g.participants[index])
	}
	for _, pair := range f.Pairs {
		if s := g.participants[pair[1]]; s.present && g.participants[pair[0]].present {
			g.release(s) // one of the two is enough
		}
	}
	g.regroup()
}

// searchMesh begins the search for what makes communicators of a dimension bad.
func (g *machine) searchMesh(r *testResult, dimension string) bool {
	culprit, _ := g.untraced(dimension)
	if culprit == nil || g.in.Group.Spec.Localization.Mode == v1alpha1.LocalizationOff ||
		len(g.searchSet()) <= LeastMembers {
		return false
	}
	g.startSearch(g.stepOf(r.step))
	return true
}

// backToMesh goes on with the mesh after a search in it; it says whether the search was one.
func (g *machine) backToMesh() bool {
	if g.dimensionSearched() == "" {
		return false
	}
	g.enter(v1alpha1.StageMesh, 0)
	g.openMesh()
	return true
}
