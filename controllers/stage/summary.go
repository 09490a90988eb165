package stage

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// summary says what a stage that ends well has shown, and what it has not.
type summary struct{ *findings }

// speedJudged says whether the speed of the group that is left was held against something.
func (g *summary) speedJudged() bool {
	return g.judgedByMark() || g.pairsSummary().pairs > 1 && !g.stillSlow()
}

// speedNotJudged says why a pass says nothing of the speed; empty where it was held against something.
func (g *summary) speedNotJudged() v1alpha1.SpeedNotJudged {
	b := &g.in.Group.Spec
	switch {
	case g.judgedByMark() || g.pairsSummary().pairs > 1:
		return ""
	case b.Localization.Mode == v1alpha1.LocalizationOff:
		return v1alpha1.SpeedLocalizationOff
	case b.Benchmark.NodeMinPercentOfMedian != nil && *b.Benchmark.NodeMinPercentOfMedian == 0:
		return v1alpha1.SpeedComparisonOff
	case len(g.present()) < minPairsMembers:
		return v1alpha1.SpeedTooFewMembers
	}
	return v1alpha1.SpeedNotCompared
}

// speedWords say what a pass says of the speed. Nothing is said where a threshold or reference was met.
func (g *summary) speedWords() string {
	if g.judgedByMark() {
		return ""
	}
	sum := g.pairsSummary()
	switch {
	case sum.pairs > 1 && g.found():
		return fmt.Sprintf("The pairs of these %d are held against each other only: %s.", len(g.present()), sum)
	case sum.pairs > 1:
		return fmt.Sprintf("No threshold or reference applies to the group's speed, which was held against "+
			"its own pairs only: %s, and at least %d %% is expected. What slows all members would not show.",
			sum, g.minPercent())
	}
	return judge.SpeedWords(g.speedNotJudged())
}

// notCompared tells what of a good stage was measured or said, and not compared with anything: series that did not fit
// into reports, and members whose agents did not say which library or settings they have.
func (g *summary) notCompared() string {
	var out []string
	last := g.lastGroupTest()
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		dimension := judge.DimensionGroup
		if t.Kind == v1alpha1.TestMesh {
			dimension = t.Dimension
		} else if i != last {
			continue
		}
		l, err := g.layoutOf(t)
		if err != nil || t.Verdict != v1alpha1.VerdictPass || len(l.communicators) == 0 {
			continue
		}
		for _, p := range runplan.SeriesOf(g.runPlanOf(t), l.communicators[0].ranks) {
			there, all := 0, len(l.communicators)
			for j := range g.span.Results {
				s := &g.span.Results[j]
				if s.Dimension == dimension && p.Key == (runplan.Key{Variant: v1alpha1.VariantBaseline,
					Collective: s.Collective, Datatype: s.Datatype, Placement: s.Placement}) {
					there = int(s.Communicators)
				}
			}
			switch {
			case there >= all:
			case there == 0:
				out = append(out, dimension+" "+p.Key.Measurement())
			default:
				out = append(out,
					fmt.Sprintf("%s %s of %d of %d communicators", dimension, p.Key.Measurement(), all-there, all))
			}
		}
	}
	text := ""
	if len(out) > 0 {
		text = fmt.Sprintf(" Measured and checked, but left out of reports, which hold only so much, and so not "+
			"judged: %s.", explain.Names(out, 5))
	}
	var unknown []string
	for _, s := range g.present() {
		if s.report != nil && (libraryOf(s) == "" || s.report.SettingsHash == "") {
			unknown = append(unknown, s.name)
		}
	}
	if len(unknown) > 0 {
		text += fmt.Sprintf(" Library or settings were not reported, and so not compared, by %s.",
			explain.Names(unknown, 5))
	}
	return text
}

// repeatsWords says how many repeats the figures over the nodes are the median of, and how far they are apart at most;
// empty where none are asked for.
func (g *summary) repeatsWords() string {
	n, most, known := g.in.Group.Spec.Benchmark.Repeats, int32(0), true
	if n < 2 {
		return ""
	}
	for i := range g.span.Results {
		s := &g.span.Results[i]
		known = known && len(s.SpreadPercent) == len(s.SizeBytes)
		for _, p := range s.SpreadPercent {
			most = max(most, p)
		}
	}
	if !known {
		return fmt.Sprintf(" Each figure is the median of %d repeats; how far they are apart did not fit into reports.",
			n)
	}
	return fmt.Sprintf(" Each figure is the median of %d repeats, which are at most %d %% apart.", n, most)
}

func (g *summary) withoutDeparted() string {
	first, last := g.groupFigures()
	what := "is good"
	if g.stillSlow() {
		what = "is as slow as with it, so that something else is slow, too"
	}
	before := ""
	if first > 0 && g.foundSlow() {
		before = fmt.Sprintf("; with it %s, %d %% of that", units.Bandwidth(first), first*100/max(1, last))
	}
	return fmt.Sprintf("Without %s the group of %d nodes %s (%s%s)",
		explain.Names(g.departedNames(), 5), len(g.present()), what, g.figure(), before)
}

// departedSinceBad are the members that left between the last communicator over the group and the one before, where
// that one failed.
func (g *summary) departedSinceBad() localize.Set {
	last := g.lastGroupTest()
	for i := last - 1; i >= 0; i-- {
		if t := &g.span.Tests[i]; t.Kind == v1alpha1.TestGroup {
			if t.Verdict != v1alpha1.VerdictFail {
				return nil
			}
			return departedIn(g.span.Tests[i:last])
		}
	}
	return nil
}

// accuseSilent gives the member whose agent fell silent in a bad test the reason of the group that failed with it: the
// group without it, and it alone, is good.
func (g *summary) accuseSilent() {
	left := g.departedSinceBad()
	if len(left) != 1 || !slices.ContainsFunc(g.span.Tests, func(t v1alpha1.SpanTest) bool {
		return t.Kind == v1alpha1.TestDeparture && t.Reason == v1alpha1.ReasonAgentNotReporting &&
			t.Set == left.String()
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
		if c := &g.span.Culprits[i]; reason != "" && c.Reason == v1alpha1.ReasonMemberLost &&
			slices.Equal(g.namesOf(left), []string{c.Node}) {
			c.Reason = reason
			c.Message = clip.Head(clip.Sentences(c.Message, 380)+
				fmt.Sprintf(" The group of %d nodes without it, and nobody else, is good.", len(g.present())), 512)
		}
	}
}

// confirm notes that the group without its culprits is good.
func (g *summary) confirm() {
	l := g.span.Localization
	if l == nil {
		return
	}
	if g.stillSlow() {
		l.Message = clip.Head(clip.Sentences(l.Message, 300)+" Not confirmed: "+
			explain.Sentence(g.withoutDeparted()), 512)
		return
	}
	l.Message = clip.Head(clip.Sentences(l.Message, 300)+" Confirmed: "+explain.Sentence(g.withoutDeparted()), 512)
}
