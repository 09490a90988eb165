package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// defaultLocalizationSeconds holds where localization.deadlineSeconds is absent.
const defaultLocalizationSeconds = 1800

func localizationDeadlineSeconds(spec *v1alpha1.CommGroupSpec) int32 {
	if spec.Localization.Mode == v1alpha1.LocalizationOff {
		return 0
	}
	return cmp.Or(spec.Localization.DeadlineSeconds, defaultLocalizationSeconds)
}

// usualStep is what a search repeats where nothing says more: AllReduce where it is measured, at the largest size.
func (g *machine) usualStep() v1alpha1.Step {
	b := &g.in.Group.Spec.Benchmark
	step := v1alpha1.Step{Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16}
	if len(b.Collectives) > 0 && !slices.Contains(b.Collectives, v1alpha1.AllReduce) {
		step.Collective = b.Collectives[0]
	}
	if len(b.Datatypes) > 0 {
		step.Datatype = b.Datatypes[0]
	}
	if sizes := runplan.Sizes(b); len(sizes) > 0 {
		step.SizeBytes = sizes[len(sizes)-1]
	}
	if slices.Contains(b.Placements, v1alpha1.InPlace) && !slices.Contains(b.Placements, v1alpha1.OutOfPlace) {
		step.Placement = v1alpha1.InPlace
	}
	return step
}

// stepOf is the step to repeat where this one was bad; what it does not say, or what is not measured here, is the usual one's.
func (g *machine) stepOf(bad *v1alpha1.Step) v1alpha1.Step {
	b := &g.in.Group.Spec.Benchmark
	step := g.usualStep()
	if bad == nil {
		return step
	}
	if slices.Contains(b.Collectives, bad.Collective) {
		step.Collective = bad.Collective
	}
	if slices.Contains(b.Datatypes, bad.Datatype) {
		step.Datatype = bad.Datatype
	}
	if slices.Contains(runplan.Sizes(b), bad.SizeBytes) {
		step.SizeBytes = bad.SizeBytes
	}
	if bad.Placement == v1alpha1.InPlace && slices.Contains(b.Placements, v1alpha1.InPlace) {
		step.Placement = v1alpha1.InPlace
	}
	return step
}

// searchStep is the step of the search that goes on; before one it is the usual step.
func (g *machine) searchStep() v1alpha1.Step {
	if l := g.span.Localization; l != nil && l.State == v1alpha1.LocalizationRunning {
		return g.stepOf(l.Step)
	}
	return g.slowStep()
}

// roundsBefore counts the rounds of searches before the present one: their tests stand before the last test of the group.
func (g *machine) roundsBefore() int {
	rounds := 0
	for i := range g.span.Tests[:g.searchBase()+1] {
		if kind := g.span.Tests[i].Kind; kind == v1alpha1.TestSearch || kind == v1alpha1.TestRails {
			rounds = max(rounds, int(g.span.Tests[i].Round))
		}
	}
	return rounds
}

// startSearch begins to look for what makes the step bad.
func (g *machine) startSearch(step v1alpha1.Step) {
	spec := &g.in.Group.Spec
	if spec.Localization.Mode == v1alpha1.LocalizationOff {
		g.end(VerdictOf(g.span.Reason), g.span.Reason, "localization.mode is Off: no culprit was searched for."+g.lookAt())
		return
	}
	before := g.span.Localization
	l := &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationRunning, Step: &step, StartTime: *decision.Stamp(g.in.Now)}
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
	g.tell(true, g.span.Reason, "StartSearch", "Run %s searches for the culprit of %s among %d nodes. %s", g.in.Run.ID, step, len(g.present()), g.span.Message)
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
	problem := localize.Problem{Members: present, Fewer: len(g.leftSince()) > 0, Rails: g.hasRails() && !noRound && !g.deadlinePassed(), MaxTests: max(1, min(localize.DefaultMaxTests, ownTests(history)+room))}
	if limit > 0 {
		problem.MaxRounds = max(1, limit-before)
	}
	step, err := localize.Next(problem, history)
	if len(step.Tests) > 0 && step.Tests[0].Kind == localize.KindRails && len(step.Tests) > MaxTests-len(g.span.Tests)-MaxGroupTests {
		problem.Rails = false // so many culprits that their rails do not fit into the status
		step, err = localize.Next(problem, history)
	}
	slowest, nodes, bySize := g.bySize()
	switch {
	case bySize:
		best := g.pairsSummary().best
		g.conclude(localize.Finding{State: localize.NotFound}, "", fmt.Sprintf(
			"communicators over %d nodes are alike (the slowest reaches %s, %d %% of the best pair) and faster than the group: the number of nodes slows this step, no single member. Compare at larger sizes, or set a threshold with span: Group for this many nodes",
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
		g.endSearch(fmt.Sprintf("localization.deadlineSeconds (%d s) ran out", localizationDeadlineSeconds(&g.in.Group.Spec)))
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

// TestsReserve is left in the status for what follows a search: the group formed anew, and its pairs.
const TestsReserve = 16

func ownTests(history []localize.Test) int {
	n := 0
	for i := range history {
		if history[i].Round > 0 {
			n++
		}
	}
	return n
}

// history is what the planner learns from: the tests since the one that the search is for, and the pairs before them.
func (g *machine) history() []localize.Test {
	before := g.roundsBefore()
	var out []localize.Test
	if g.dimensionSearched() == "" {
		out = g.pairsHistory()
	}
	tests := g.span.Tests[g.searchBase()+1:]
	for i := range tests {
		t := &tests[i]
		kind := localize.KindSpan
		switch t.Kind {
		case v1alpha1.TestRails:
			kind = localize.KindRails
		case v1alpha1.TestSearch:
		default:
			continue
		}
		out = append(out, localize.Test{Round: int(t.Round) - before, Kind: kind, Set: g.readSet(t.Set), Outcome: OutcomeOf(t.Verdict)})
	}
	return out
}

// effort says what this search took, with the pairs that it learned from.
func (g *machine) effort() string {
	tests, rounds, begun := 0, map[int]bool{}, time.Time{}
	for i := range g.span.Tests[g.searchBase()+1:] {
		t := &g.span.Tests[g.searchBase()+1+i]
		if kind := t.Kind; kind == v1alpha1.TestSearch || kind == v1alpha1.TestRails {
			if tests++; tests == 1 {
				begun = t.StartTime.Time
			}
			rounds[int(t.Round)] = true
		}
	}
	text := fmt.Sprintf("%s in %s", words.Counted(tests, "test"), words.Counted(len(rounds), "round"))
	if tests > 0 {
		text += fmt.Sprintf(" of %d s", int(g.in.Now.Sub(begun)/time.Second))
	}
	if sum := g.pairsSummary(); sum.pairs > 0 && g.dimensionSearched() == "" {
		text = fmt.Sprintf("%s in %s of %d s, then %s", words.Counted(sum.pairs, "pair"), words.Counted(sum.rounds, "round"), sum.seconds, text)
	}
	return text
}

// slowWords are measured, expected and percent of the slowest small test of all these members.
func (g *machine) slowWords(members ...int) string {
	var worst *v1alpha1.SpanTest
	best, size := g.pairsSummary().best, 0
	for i := g.searchBase() + 1; i < len(g.span.Tests); i++ {
		t := &g.span.Tests[i]
		set := g.readSet(t.Set)
		if t.BusBandwidthMBps == nil || t.Kind != v1alpha1.TestSearch && t.Kind != v1alpha1.TestPairRecord {
			continue
		}
		if t.Verdict == v1alpha1.VerdictPass {
			best = max(best, *t.BusBandwidthMBps)
		}
		if t.Verdict == v1alpha1.VerdictFail && !slices.ContainsFunc(members, func(m int) bool { return !set.Has(m) }) && (worst == nil || len(set) < size) {
			worst, size = t, len(set)
		}
	}
	if worst == nil || best == 0 {
		return ""
	}
	return fmt.Sprintf(" Measured %s, expected at least %s, which is %d %% of the %s that good ones reach: %d %%.",
		units.Bandwidth(*worst.BusBandwidthMBps), units.Bandwidth(best*g.minPercent()/100), g.minPercent(), units.Bandwidth(best), *worst.BusBandwidthMBps*100/best)
}

// OutcomeOf is a verdict as the planner takes it.
func OutcomeOf(v v1alpha1.Verdict) localize.Outcome {
	switch v {
	case v1alpha1.VerdictPass:
		return localize.Good
	case v1alpha1.VerdictFail:
		return localize.Bad
	case "":
		return localize.Open
	case v1alpha1.VerdictError, v1alpha1.VerdictInconclusive, v1alpha1.VerdictSkipped:
	}
	return localize.Unknown
}

// stopSearch notes how long the search took.
func (g *machine) stopSearch() {
	l := g.span.Localization
	l.Seconds = ptr.To(int32(max(0, g.in.Now.Sub(l.StartTime.Time)/time.Second)))
}

// endSearch ends the search before its end: what the tests so far prove is named all the same.
func (g *machine) endSearch(bound string) {
	f, err := localize.Conclude(localize.Problem{Members: g.searchSet(), Fewer: len(g.leftSince()) > 0}, g.history())
	if err != nil {
		g.conclude(localize.Finding{State: localize.OutOfBounds}, bound, bound+": "+err.Error())
		return
	}
	g.conclude(f, bound, findingText(&f, bound))
}

// conclude ends the search: culprits are named and left out, and the group without them is tried once more. bound says what ended it
// before its end, or is empty, and why says what was seen where no culprit is named.
func (g *machine) conclude(f localize.Finding, bound, why string) {
	l := g.span.Localization
	step := g.searchStep()
	l.State = v1alpha1.LocalizationState(f.State)
	g.stopSearch()
	effort := g.effort()
	if len(f.Members) == 0 && len(f.Pairs) == 0 {
		text := fmt.Sprintf("The search did not name a culprit (%s, %s): %s", l.State, effort, words.Sentence(why))
		if named := g.named(); len(named) > 0 {
			text = fmt.Sprintf("Named before: %s. The search for more named no other (%s, %s): %s", words.SomeNames(named, 5), l.State, effort, words.Sentence(why))
		}
		if len(f.Suspects) > 0 && len(f.Suspects) < len(g.searchSet()) {
			text += " Something among these is bad: " + words.SomeNames(g.namesOf(f.Suspects), 8) + "."
		}
		lost := g.leftSince()
		if len(lost) > 0 {
			text = words.Clip(text, 400) + " Left in the search: " + words.SomeNames(g.namesOf(lost), 3) + "."
		} else {
			text += g.lookAt()
		}
		l.Message = words.Shorten(text, 512)
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
		for _, c := range g.nodeCulprits(g.seats[index], rails[index], reason, isSlow, step, effort) {
			name(c, isSlow)
		}
	}
	for _, pair := range f.Pairs {
		reason, isSlow := g.badAs(pair[0], pair[1])
		name(g.pairCulprit(g.seats[pair[0]], g.seats[pair[1]], rails[pair[0]], reason, isSlow, step, effort), isSlow)
	}
	g.tracedTo(f)
	names := g.named()
	text := fmt.Sprintf("The culprit of %s is %s (%s).", step, words.SomeNames(names, 5), effort)
	if len(names) > 1 {
		text = fmt.Sprintf("The culprits of %s are %s (%s).", step, words.SomeNames(names, 5), effort)
	}
	if bound != "" {
		text += " The search was not made to its end: " + words.Sentence(bound)
	}
	if len(f.Suspects) > 0 {
		text += " Not told apart: " + words.SomeNames(g.namesOf(f.Suspects), 5) + "."
	}
	l.Message = words.Shorten(text, 512)
	if slow && g.span.Reason == v1alpha1.ReasonSlowGroup {
		cause = g.span.Reason // the group as a whole was held against a mark
	}
	if t := &g.span.Tests[g.searchBase()]; slow && t.Verdict == v1alpha1.VerdictPass {
		t.Verdict, t.Reason = v1alpha1.VerdictFail, cause
	}
	g.explain(cause, words.Clip(text, 500)+" "+g.symptom(slow))
	g.tell(true, v1alpha1.ReasonCulpritFound, "NameCulprit", "Run %s: %s", g.in.Run.ID, text)
	if g.backToMesh() {
		return
	}
	for _, index := range f.Members {
		g.release(g.seats[index])
	}
	for _, pair := range f.Pairs {
		if s := g.seats[pair[1]]; s.present && g.seats[pair[0]].present {
			g.release(s) // one of the two is enough
		}
	}
	g.regroup()
}

func pairName(a, b string) string { return words.Shorten(a+"<->"+b, 253) }

func (g *machine) namesOf(set localize.Set) []string {
	var out []string
	for _, i := range set {
		if i < len(g.seats) && g.seats[i] != nil {
			out = append(out, g.seats[i].name)
		}
	}
	return out
}

// slowReasons of a test are matters of speed.
var slowReasons = []string{v1alpha1.ReasonSlowGroup, v1alpha1.ReasonSlowPair, v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowRail, v1alpha1.ReasonSlowCommunicator}

// reasonOfBad is why the step that is searched for is bad, and whether it is a matter of speed.
func (g *machine) reasonOfBad() (reason string, slow bool) {
	t := &g.span.Tests[g.searchBase()]
	if t.Verdict == v1alpha1.VerdictPass || slices.Contains(slowReasons, t.Reason) {
		return v1alpha1.ReasonSlowNode, true
	}
	return cmp.Or(t.Reason, v1alpha1.ReasonGroupStepFailed), false
}
