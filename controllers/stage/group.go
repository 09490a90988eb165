package stage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// fitTogether looks at what the agents say before the first task: one library build, one set of settings, one address
// family. Members that differ may hang one another, so that no communicator is tried.
func (g *machine) fitTogether() bool {
	seats := g.present()
	if !g.alike(seats, v1alpha1.ReasonMixedLibraryVersions, "load different library builds", libraryOf, "Pin one runtime image by digest, and runtime.libraryPath.") ||
		!g.alike(seats, v1alpha1.ReasonMixedSettings, "take their settings from different variables or files (rccl.conf), by their hash", func(s *seat) string { return s.report.SettingsHash },
			"A communicator of both may hang. Use one runtime image, and look for files that the nodes mount into it.") {
		return false
	}
	network := g.network()
	if network.Reason != "" {
		g.end(VerdictOf(network.Reason), network.Reason, network.Message)
		return false
	}
	g.span.Network = network.Text
	if apart := g.clocksApart(); len(apart) > 0 {
		g.tell(true, v1alpha1.ReasonClockSkew, "CompareClocks", "Clocks are more than %d s off the API server's on %s. No deadline depends on them; mend time synchronisation, or times in logs and reports mislead.",
			int(nodefacts.MaxClockSkew/time.Second), words.SomeNames(apart, 5))
	}
	return true
}

// libraryOf is the library build that a member's ranks load; empty where its agent did not say.
func libraryOf(s *seat) string {
	if l := s.report.Library; l != nil {
		return strings.TrimSpace(l.Flavor + " " + l.Version + " " + l.BuildHash)
	}
	return ""
}

// alike says whether all members that say what value they have say the same. Else it ends the stage: more than half of those
// that say it are the norm, and the others are the culprits; without such a majority nobody is.
func (g *machine) alike(seats []*seat, reason, differ string, value func(*seat) string, next string) bool {
	has := map[string][]*seat{}
	known := 0
	for _, s := range seats {
		if v := value(s); v != "" {
			has[v] = append(has[v], s)
			known++
		}
	}
	if len(has) < 2 {
		return true
	}
	values := words.SortedKeys(has)
	slices.SortStableFunc(values, func(a, b string) int { return len(has[b]) - len(has[a]) })
	var lists []string
	for _, v := range values {
		lists = append(lists, fmt.Sprintf("%q on %s (%s)", v, words.Counted(len(has[v]), "node"), words.SomeNames(names(has[v]), 4)))
	}
	message := fmt.Sprintf("The members' ranks %s: %s. %s", differ, words.SomeNames(lists, 4), next)
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

// network that all present members share.
func (g *machine) network() networkChoice {
	if g.choice != nil {
		return *g.choice
	}
	seats := g.present()
	members := make([]memberNetwork, len(seats))
	for i, s := range seats {
		members[i].Node = s.name
		if s.report != nil {
			members[i].Status = s.report.Network
		}
	}
	choice := familyFor(g.agreedFamily(), members)
	g.choice = &choice
	return choice
}

// agreedFamily is the one that tasks were given out with, and stays whoever leaves: what is searched for may lie in it. Before the
// first task it is what the spec asks for.
func (g *machine) agreedFamily() v1alpha1.AddressFamily {
	for _, s := range g.seats {
		if s == nil || s.session == nil {
			continue
		}
		if f := s.session.AddressFamily; f == v1alpha1.AddressFamilyIPv4 || f == v1alpha1.AddressFamilyIPv6 {
			return f
		}
	}
	return g.in.Group.Spec.Network.AddressFamily
}

// clocksApart names the members whose clock cannot be right: it showed a time before the stage began, or one that is still to
// come.
func (g *machine) clocksApart() []string {
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

// afterGroup decides what follows a communicator over the group, or the pairs of neighbours that it is made of.
func (g *machine) afterGroup() {
	if len(g.round) == 0 {
		g.end(v1alpha1.VerdictError, v1alpha1.ReasonGroupStepFailed, "The stage has no test that goes on.")
		return
	}
	r := &g.round[0]
	if r.test.Kind == v1alpha1.TestPairs {
		g.afterPairs()
		return
	}
	if r.bad {
		g.afterBadGroup(r)
		return
	}
	good := g.checkTransport(r.communicators)
	g.keepResults(judge.DimensionGroup, g.span.Transport, r.communicators)
	if !good {
		g.end(VerdictOf(g.span.Reason), g.span.Reason, "Nothing more was measured: the network is to be mended first.")
		return
	}
	all := g.groupChecks()
	notMet, notMeasured := checks.Of(all)
	if len(notMet) > 0 {
		r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowGroup
		g.worsen(v1alpha1.ReasonSlowGroup, fmt.Sprintf("The communicator over %d nodes is too slow: %s.", len(g.present()), checks.Message(figuresOf(notMet))))
		// All pairs of neighbours at once tell soonest which nodes are slow, however many; else halves are tried.
		if !g.openPairs() {
			g.startSearch(g.stepOf(notMet[0].Step))
		}
		return
	}
	if len(notMeasured) > 0 {
		g.worsen(v1alpha1.ReasonInconclusive, checks.Message(notMeasured))
	}
	if !metMark(all) && g.openPairs() {
		return
	}
	g.afterGoodGroup()
}

// groupChecks holds the group's own results against thresholds and references.
func (g *machine) groupChecks() []v1alpha1.PerformanceCheck {
	var own []judge.Outcome
	here := map[string]bool{}
	for _, s := range g.present() {
		here[s.name] = true
	}
	for i := range g.in.Outcomes {
		if here[g.in.Outcomes[i].Node] {
			own = append(own, g.in.Outcomes[i])
		}
	}
	return judge.SpanChecks(&g.in.Group.Spec, g.span.Results, judge.PlaceOfMembers(own, g.span.Transport))
}

// figuresOf are the checks without their causes: the search tells more, and status.checks keeps them.
func figuresOf(notMet []v1alpha1.PerformanceCheck) []v1alpha1.PerformanceCheck {
	out := slices.Clone(notMet)
	for i := range out {
		out[i].Causes = nil
	}
	return out
}

// slowStep is the step of the group that is furthest under a mark; the usual one where none is.
func (g *machine) slowStep() v1alpha1.Step {
	if at := g.lastGroupTest(); at >= 0 && g.span.Tests[at].Reason == v1alpha1.ReasonSlowGroup {
		if notMet, _ := checks.Of(g.groupChecks()); len(notMet) > 0 {
			return g.stepOf(notMet[0].Step)
		}
	}
	return g.usualStep()
}

// groupFigure is the group's own bus bandwidth at a step; zero where it was not measured.
func (g *machine) groupFigure(step v1alpha1.Step) int64 {
	for i := range g.span.Results {
		s := &g.span.Results[i]
		if s.Dimension != judge.DimensionGroup || s.Collective != step.Collective || s.Datatype != step.Datatype || (s.Placement == v1alpha1.InPlace) != (step.Placement == v1alpha1.InPlace) {
			continue
		}
		if at := slices.Index(s.SizeBytes, step.SizeBytes); at >= 0 && at < len(s.BusBandwidthMBps) {
			return s.BusBandwidthMBps[at]
		}
	}
	return 0
}

// afterBadGroup goes on with what the nodes know themselves; else the culprit is searched for.
func (g *machine) afterBadGroup(r *testResult) {
	message := fmt.Sprintf("The communicator over %d nodes failed: %s.", len(g.readSet(r.test.Set)), strings.TrimSuffix(r.message, ".")) + g.fallbackWords(r.communicators)
	if len(r.guilty) > 0 {
		g.worsen(r.reason, message)
		for _, name := range words.SortedKeys(r.guilty) {
			g.blame(r.guilty[name])
			if s := g.seatOf(name); s != nil {
				g.release(s)
			}
		}
		g.explain(r.reason, message+" By what the nodes saw themselves: "+words.SomeNames(culpritNames(g.span.Culprits), 5)+".")
		g.tell(true, v1alpha1.ReasonCulpritFound, "NameCulprit", "Run %s: %s", g.in.Run.ID, g.span.Message)
		g.regroup()
		return
	}
	g.worsen(r.reason, message)
	g.startSearch(g.stepOf(r.step))
}

func (g *machine) seatOf(name string) *seat {
	for _, s := range g.seats {
		if s != nil && s.name == name {
			return s
		}
	}
	return nil
}

// afterGoodGroup goes on to the mesh, or ends the stage.
func (g *machine) afterGoodGroup() {
	g.accuseSilent()
	if g.found() {
		g.confirm()
	} else if l, left := g.span.Localization, g.leftSinceBad(); l != nil && len(left) > 0 {
		l.Message = words.Shorten(words.Clip(l.Message, 300)+" "+words.Sentence(g.withoutLeft())+" Look first at "+words.SomeNames(g.namesOf(left), 5)+".", 512)
	}
	g.startMesh()
}

// leftSinceBad are the members that left between the last communicator over the group and the one before, where that one failed.
func (g *machine) leftSinceBad() localize.Set {
	last := g.lastGroupTest()
	for i := last - 1; i >= 0; i-- {
		if t := &g.span.Tests[i]; t.Kind == v1alpha1.TestGroup {
			if t.Verdict != v1alpha1.VerdictFail {
				return nil
			}
			return leftIn(g.span.Tests[i:last])
		}
	}
	return nil
}

// accuseSilent gives the member whose agent fell silent in a bad test the reason of the group that failed with it: the group
// without it, and it alone, is good.
func (g *machine) accuseSilent() {
	left := g.leftSinceBad()
	if len(left) != 1 || !slices.ContainsFunc(g.span.Tests, func(t v1alpha1.SpanTest) bool {
		return t.Kind == v1alpha1.TestDeparture && t.Reason == v1alpha1.ReasonAgentNotReporting && t.Set == left.String()
	}) {
		return
	}
	reason := ""
	for i := range g.span.Tests[:g.lastGroupTest()] {
		if t := &g.span.Tests[i]; t.Kind == v1alpha1.TestGroup && !slices.Contains(slowReasons, t.Reason) {
			reason = t.Reason
		}
	}
	for i := range g.span.Culprits {
		if c := &g.span.Culprits[i]; reason != "" && c.Reason == v1alpha1.ReasonMemberLost && slices.Equal(g.namesOf(left), []string{c.Node}) {
			c.Reason = reason
			c.Message = words.Shorten(words.Clip(c.Message, 380)+fmt.Sprintf(" The group of %d nodes without it, and nobody else, is good.", len(g.present())), 512)
		}
	}
}

// confirm notes that the group without its culprits is good.
func (g *machine) confirm() {
	l := g.span.Localization
	if l == nil {
		return
	}
	if g.stillSlow() {
		l.Message = words.Shorten(words.Clip(l.Message, 300)+" Not confirmed: "+words.Sentence(g.withoutLeft()), 512)
		return
	}
	l.Message = words.Shorten(words.Clip(l.Message, 300)+" Confirmed: "+words.Sentence(g.withoutLeft()), 512)
}

func (g *machine) withoutLeft() string {
	first, last := g.groupFigures()
	what := "is good"
	if g.stillSlow() {
		what = "is as slow as with it, so that something else is slow, too"
	}
	before := ""
	if first > 0 && g.foundSlow() {
		before = fmt.Sprintf("; with it %s, %d %% of that", units.Bandwidth(first), first*100/max(1, last))
	}
	return fmt.Sprintf("Without %s the group of %d nodes %s (%s%s)", words.SomeNames(g.leftNames(), 5), len(g.present()), what, g.figure(), before)
}

// pass ends the stage with what was reached; what is bad was kept before.
func (g *machine) pass() {
	text := fmt.Sprintf("One communicator over %d nodes: %s, transport %s.", len(g.present()), g.figure(), g.transportWords())
	if len(g.span.Left) > 0 && g.found() {
		text = words.Sentence(g.withoutLeft())
	}
	text += g.meshWords()
	g.span.SpeedJudged, g.span.SpeedNotJudged = g.speedJudged(), g.speedNotJudged()
	if unjudged := g.speedWords(); unjudged != "" {
		text = words.Sentence(text) + " " + unjudged
	}
	g.end(v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed, words.Sentence(text)+g.repeatsWords()+g.notCompared())
}

// figure is the one number of the group's communicator.
func (g *machine) figure() string {
	for _, want := range []v1alpha1.Collective{v1alpha1.AllReduce, ""} {
		for i := range g.span.Results {
			s := &g.span.Results[i]
			last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1
			if s.Dimension == judge.DimensionGroup && last >= 0 && (want == "" || s.Collective == want) {
				return fmt.Sprintf("%s %s at %s reaches %s", s.Collective, s.Datatype, units.Size(s.SizeBytes[last]), units.Bandwidth(s.BusBandwidthMBps[last]))
			}
		}
	}
	return "no figure"
}

// transportWords say what carried the group's data, and that of the mesh where it was another.
func (g *machine) transportWords() string {
	for i := range g.span.Results {
		if s := &g.span.Results[i]; s.Dimension == judge.DimensionGroup && s.Transport != "" && s.Transport != g.span.Transport {
			return fmt.Sprintf("%s (with the mesh %s)", s.Transport, g.span.Transport)
		}
	}
	return g.span.Transport
}

// checkTransport notes what carried the data, and says whether the group may be taken further with it.
func (g *machine) checkTransport(communicators []commResult) bool {
	var members []MemberTransport
	for i := range communicators {
		members = append(members, communicators[i].transports...)
	}
	choice := TransportFor(g.in.Group.Spec.Network.RequireTransport, members)
	g.span.Transport = choice.Transport
	if choice.Reason == "" {
		return true
	}
	g.worsen(choice.Reason, choice.Message)
	if choice.Verdict != v1alpha1.VerdictFail {
		return true
	}
	g.blameTransport(members, choice)
	g.round[0].test.Verdict, g.round[0].test.Reason = choice.Verdict, choice.Reason
	return false
}

// keepResults makes one series of each measurement over the communicators of a dimension, whose data took that transport.
func (g *machine) keepResults(dimension, transport string, communicators []commResult) {
	g.span.Results = slices.DeleteFunc(g.span.Results, func(s v1alpha1.SpanResultSeries) bool { return s.Dimension == dimension })
	for _, s := range seriesOf(dimension, communicators) {
		s.Transport = transport
		g.span.Results = append(g.span.Results, s)
	}
	if len(g.span.Results) > MaxSeries {
		g.span.Results = g.span.Results[:MaxSeries]
	}
}

// MaxSeries bounds status.span.results.
const MaxSeries = 48

func seriesOf(dimension string, communicators []commResult) []v1alpha1.SpanResultSeries {
	type cell struct {
		latency, bandwidth []int64
		spread             []int32
	}
	type table struct {
		cells   map[int64]*cell
		slowest string
		least   int64
		count   int32
	}
	tables := map[runplan.Key]*table{}
	var order []runplan.Key
	for i := range communicators {
		c := &communicators[i]
		for j := range c.results {
			r := &c.results[j]
			key := runplan.KeyOf(r)
			t := tables[key]
			if t == nil {
				t = &table{cells: map[int64]*cell{}}
				tables[key], order = t, append(order, key)
			}
			t.count++
			for k := range min(len(r.SizeBytes), len(r.LatencyNanoseconds), len(r.BusBandwidthMBps)) {
				one := t.cells[r.SizeBytes[k]]
				if one == nil {
					one = &cell{}
					t.cells[r.SizeBytes[k]] = one
				}
				one.latency, one.bandwidth = append(one.latency, r.LatencyNanoseconds[k]), append(one.bandwidth, r.BusBandwidthMBps[k])
				if k < len(r.SpreadPercent) {
					one.spread = append(one.spread, r.SpreadPercent[k])
				}
				if k == len(r.SizeBytes)-1 && (t.slowest == "" || r.BusBandwidthMBps[k] < t.least) {
					t.slowest, t.least = c.name, r.BusBandwidthMBps[k]
				}
			}
		}
	}
	var out []v1alpha1.SpanResultSeries
	for _, key := range order {
		t := tables[key]
		s := v1alpha1.SpanResultSeries{Dimension: dimension, Collective: key.Collective, Datatype: key.Datatype, Placement: key.Placement,
			Communicators: t.count, Ranks: communicators[0].ranks, Nodes: int32(len(communicators[0].seats)), Repeats: communicators[0].repeats,
			SizeBytes: []int64{}, LatencyNanoseconds: []int64{}, BusBandwidthMBps: []int64{}, MinBusBandwidthMBps: []int64{}}
		if t.count > 1 {
			s.Slowest = t.slowest
		}
		sizes := words.SortedKeys(t.cells)
		for _, size := range sizes[max(0, len(sizes)-judge.MaxSeriesSizes):] {
			one := t.cells[size]
			s.SizeBytes = append(s.SizeBytes, size)
			s.MinBusBandwidthMBps = append(s.MinBusBandwidthMBps, slices.Min(one.bandwidth))
			s.LatencyNanoseconds = append(s.LatencyNanoseconds, judge.Median(one.latency))
			s.BusBandwidthMBps = append(s.BusBandwidthMBps, judge.Median(one.bandwidth))
			if len(one.spread) == len(one.bandwidth) {
				s.SpreadPercent = append(s.SpreadPercent, slices.Max(one.spread))
			}
		}
		if len(s.SpreadPercent) != len(s.SizeBytes) {
			s.SpreadPercent = nil // not known of each size
		}
		out = append(out, s)
	}
	return out
}

// minPercent is how far below its like a communicator may be.
func (g *machine) minPercent() int64 {
	if p := ptr.Deref(g.in.Group.Spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian); p > 0 {
		return int64(p)
	}
	return runplan.DefaultNodeMinPercentOfMedian
}

// compares says whether pairs of members are held against their like: it can be switched off, and takes some to compare.
func (g *machine) compares() bool {
	return ptr.Deref(g.in.Group.Spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian) > 0 &&
		len(g.present()) >= minPairsMembers && g.in.Group.Spec.Localization.Mode != v1alpha1.LocalizationOff
}
