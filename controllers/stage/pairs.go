package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

const (
	// minPairsMembers is the least number of members whose pairs are compared with each other.
	minPairsMembers = 3
	// allPairsMembers is up to how many members each pair is measured.
	allPairsMembers = 6
	// pairsTries of one round: it is measured once more where a later round shows that its pairs were held against too
	// little.
	pairsTries = 2
	// maxPairRecords bounds the slow pairs of a round that are kept one by one; the others are kept together.
	maxPairRecords = 6
	// groupMinPercentOfPair is what a group without a mark must reach of its slowest pair: bandwidth falls with the
	// nodes.
	groupMinPercentOfPair = 50
)

// pairRounds gives the pairs of n members, by their places, that are measured together: no member is in two of a round.
// Few members are all paired with each other; of many each with the one before it, the one behind it, and the next but
// one, so that also where each second member is slow two good ones meet.
func pairRounds(n int) [][][2]int {
	if n <= allPairsMembers {
		return allPairRounds(n)
	}
	first, second := make([][2]int, 0, n/2), make([][2]int, 0, n/2)
	for i := 0; i+1 < n; i += 2 {
		first = append(first, [2]int{i, i + 1})
	}
	for i := 1; i+1 < n; i += 2 {
		second = append(second, [2]int{i, i + 1})
	}
	var third [][2]int
	from, end := 0, n
	if closing := [2]int{0, n - 1}; n%2 == 0 {
		second = append(second, closing)
	} else {
		third, from, end = append(third, closing), 1, n-1
	}
	for ; from+2 < end; from += 4 {
		third = append(third, [2]int{from, from + 2})
		if from+3 < end {
			third = append(third, [2]int{from + 1, from + 3})
		}
	}
	return [][][2]int{first, second, third}
}

// allPairRounds is a round robin: all places but the last go round, opposite to each other.
func allPairRounds(n int) [][][2]int {
	if n < 2 {
		return nil // an old status may say that nobody is there
	}
	circle := n - 1 + n%2
	rounds := make([][][2]int, circle)
	for r := range rounds {
		add := func(a, b int) {
			if a < n && b < n {
				rounds[r] = append(rounds[r], [2]int{min(a, b), max(a, b)})
			}
		}
		add(r, circle)
		for i := 1; i <= (circle-1)/2; i++ {
			add((r+i)%circle, (r-i+circle)%circle)
		}
	}
	return rounds
}

// PairsOf gives the pairs of the test over pairs with this number.
func PairsOf(set localize.Set, number int) []localize.Set {
	rounds := pairRounds(len(set))
	if len(rounds) == 0 || number < 1 {
		return nil
	}
	var out []localize.Set
	for _, p := range rounds[(number-1)%len(rounds)] {
		out = append(out, localize.Set{set[p[0]], set[p[1]]})
	}
	return out
}

// compares says whether pairs of members are held against their like: it can be switched off, and takes some to
// compare.
func (g *rounds) compares() bool {
	return ptr.Deref(g.in.Group.Spec.Benchmark.NodeMinPercentOfMedian, runplan.DefaultNodeMinPercentOfMedian) > 0 &&
		len(g.present()) >= minPairsMembers && g.in.Group.Spec.Localization.Mode != v1alpha1.LocalizationOff
}

// pairsRound is one round of pairs since the last test of the group: its latest test, and what was recorded of that.
type pairsRound struct {
	test *v1alpha1.SpanTest
	// best: what its best pairs reach; bad pairs by record; untold: there are more than could be recorded.
	best   int64
	bad    []*v1alpha1.SpanTest
	untold bool
	tries  int
	// held is the best that was known when it was closed.
	held int64
}

// told says whether the round's figures can be used.
func (p *pairsRound) told() bool {
	return p.test != nil && (p.test.Verdict == v1alpha1.VerdictPass || p.test.Verdict == v1alpha1.VerdictFail)
}

// screened gives the rounds of pairs since the last test of the group, in order; those without a test were not made.
func (g *rounds) screened() []pairsRound {
	rounds := make([]pairsRound, len(pairRounds(len(g.present())+len(g.departedSince()))))
	held := int64(0)
	var now *pairsRound
	for i := g.lastGroupTest() + 1; i < len(g.span.Tests); i++ {
		t := &g.span.Tests[i]
		switch {
		case len(rounds) == 0:
		case t.Kind == v1alpha1.TestPairs:
			now = &rounds[max(0, int(t.Round)-1)%len(rounds)]
			*now = pairsRound{test: t, tries: now.tries + 1, held: held}
		case t.Kind != v1alpha1.TestPairRecord || now == nil ||
			t.BusBandwidthMBps == nil && t.Verdict == v1alpha1.VerdictPass:
		case t.Verdict == v1alpha1.VerdictPass:
			held = max(held, *t.BusBandwidthMBps)
			now.best, now.held = *t.BusBandwidthMBps, held
		case t.Verdict == v1alpha1.VerdictFail:
			now.bad = append(now.bad, t)
		default:
			now.untold = true
		}
	}
	return rounds
}

// pairsSummary is what all rounds of pairs show.
type pairsSummary struct {
	rounds, pairs int
	seconds       int64
	slowest, best int64
}

func (s pairsSummary) String() string {
	return fmt.Sprintf("the slowest of %s reaches %s, %d %% of the best (%s)", units.Counted(s.pairs, "pair"),
		units.Bandwidth(s.slowest), s.slowest*100/max(1, s.best), units.Bandwidth(s.best))
}

func (g *rounds) pairsSummary() pairsSummary {
	var out pairsSummary
	for _, p := range g.screened() {
		if !p.told() {
			continue
		}
		out.rounds++
		out.seconds += int64(ptr.Deref(p.test.Seconds, 0))
		out.pairs += len(PairsOf(g.readSet(p.test.Set), int(p.test.Round)))
		out.best = max(out.best, p.best)
		if bw := p.test.BusBandwidthMBps; bw != nil && (out.slowest == 0 || *bw < out.slowest) {
			out.slowest = *bw
		}
	}
	return out
}

// openPairs begins the next round of pairs that is to be made, or made again.
func (g *rounds) openPairs() bool {
	if !g.compares() || g.span.Localization != nil && g.span.Localization.State == v1alpha1.LocalizationRunning {
		return false
	}
	rounds := g.screened()
	best := g.pairsSummary().best
	next := slices.IndexFunc(rounds, func(p pairsRound) bool { return p.test == nil })
	if next < 0 {
		next = slices.IndexFunc(rounds, func(p pairsRound) bool {
			bw := (*int64)(nil)
			if p.told() {
				bw = p.test.BusBandwidthMBps
			}
			// It was held against less than is known now, and that makes a difference.
			return bw != nil && p.tries < pairsTries && *bw*100 < best*g.minPercent() &&
				(p.test.Verdict == v1alpha1.VerdictPass || best*100 > p.held*105)
		})
	}
	if next < 0 {
		return false
	}
	last := 0
	for i := range g.span.Tests {
		if g.span.Tests[i].Kind == v1alpha1.TestPairs {
			last = max(last, int(g.span.Tests[i].Round))
		}
	}
	number := last + 1
	for (number-1)%len(rounds) != next {
		number++
	}
	return g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestPairs, Round: int32(number)}, g.writeSet(g.presentSet()))
}

// closePairs closes a test over pairs, and records what its best pairs reach, and the pairs that failed or are far
// slower than the best that is known since the last test of the group.
func (g *rounds) closePairs(r *testResult) {
	id, round, start, set := r.test.ID, r.test.Round, r.test.StartTime, r.test.Set // opening a record moves the tests
	best := bestOf(bandwidths(r.communicators))
	expected := max(best, g.pairsSummary().best)
	var bad, silent []*commResult
	for i := range r.communicators {
		switch c := &r.communicators[i]; {
		case !c.bad && c.busBWMBps == nil:
			silent = append(silent, c)
		case c.bad || *c.busBWMBps*100 < expected*g.minPercent():
			bad = append(bad, c)
		}
	}
	verdict, reason := v1alpha1.VerdictPass, ""
	if len(bad) > 0 {
		verdict, reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowPair
	}
	g.closeTest(r.test, verdict, reason, r.slowest())
	records := int32(0)
	record := func(set string, verdict v1alpha1.Verdict, why string, bw *int64) bool {
		if !g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestPairRecord, Round: round, Index: records}, set) {
			return false
		}
		records++
		t := &g.span.Tests[len(g.span.Tests)-1]
		t.StartTime = start
		g.closeTest(t, verdict, why, bw)
		return true
	}
	// The first is the round's measure.
	all := len(silent) == 0 && record(set, v1alpha1.VerdictPass, "", &best)
	if len(silent) > 0 {
		g.worsen(v1alpha1.ReasonInconclusive,
			fmt.Sprintf("%s of round %s came to their end and have no figure, so that nothing tells whether they "+
				"are slow; the first is %s. Look at the logs of the run pods for a report that the API server refused.",
				units.Counted(len(silent), "pair"), id, strings.Join(g.namesOf(indexesOf(silent[0])), "<->")))
	}
	figure := func(c *commResult) int64 {
		if c.busBWMBps == nil {
			return 0
		}
		return *c.busBWMBps
	}
	slices.SortStableFunc(bad, func(a, b *commResult) int { return cmp.Compare(figure(a), figure(b)) })
	why := func(c *commResult) string {
		if c.bad {
			return c.reason
		}
		return v1alpha1.ReasonSlowPair
	}
	alone := min(len(bad), maxPairRecords)
	for _, c := range bad[:alone] {
		all = all && record(g.writeSet(indexesOf(c)), v1alpha1.VerdictFail, why(c), c.busBWMBps)
	}
	if rest := bad[alone:]; all && len(rest) > 0 {
		// Pairs of a round have no member in common, so that a set of several is read back without doubt.
		all = record(g.writeSet(indexesOf(rest...)), v1alpha1.VerdictFail, why(rest[0]), rest[0].busBWMBps) ||
			record(set, v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive, nil)
	}
	if !all {
		for i := range g.span.Tests {
			if t := &g.span.Tests[i]; t.ID == id {
				// not all of it could be kept
				t.Verdict, t.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
			}
		}
	}
	g.judgePairsAgain()
}

func indexesOf(pairs ...*commResult) localize.Set {
	var all []int
	for _, c := range pairs {
		for _, s := range c.participants {
			all = append(all, s.index)
		}
	}
	return localize.NewSet(all...)
}

// judgePairsAgain fails earlier rounds whose best pairs, too, are far slower than what later ones reach.
func (g *rounds) judgePairsAgain() {
	best := g.pairsSummary().best
	for _, p := range g.screened() {
		if !p.told() || len(p.bad) > 0 || p.best*100 >= best*g.minPercent() ||
			topShare(len(PairsOf(g.readSet(p.test.Set), int(p.test.Round)))) > 0 {
			continue
		}
		for i := range g.span.Tests {
			if t := &g.span.Tests[i]; t.Kind == v1alpha1.TestPairRecord && t.Round == p.test.Round && t.Index == 0 {
				// Its measure becomes the record of its pairs: all of them are slow.
				t.Verdict, t.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowPair
			}
		}
		p.test.Verdict, p.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowPair
	}
}

func (g *rounds) slowPairWords(t *v1alpha1.SpanTest, best int64) string {
	pair := g.namesOf(g.readSet(t.Set))
	text := strings.Join(pair, "<->")
	if len(pair) > 2 {
		text = fmt.Sprintf("%d pairs among %s", len(pair)/2, explain.Names(pair, 4))
	}
	if bw := t.BusBandwidthMBps; bw != nil && best > 0 {
		text += fmt.Sprintf(" (%s, %d %%)", units.Bandwidth(*bw), *bw*100/best)
	}
	return text
}

// pairsHistory is what the planner learns from the rounds of pairs.
func (g *rounds) pairsHistory() []localize.Test {
	var out []localize.Test
	for _, p := range g.screened() {
		if !p.told() {
			continue
		}
		var bad []localize.Set
		for _, t := range p.bad {
			bad = append(bad, g.readSet(t.Set))
		}
		for _, pair := range PairsOf(g.readSet(p.test.Set), int(p.test.Round)) {
			outcome := localize.Good
			if slices.ContainsFunc(bad, func(set localize.Set) bool { return set.Has(pair[0]) && set.Has(pair[1]) }) {
				outcome = localize.Bad
			} else if p.untold {
				continue
			}
			out = append(out, localize.Test{Kind: localize.KindSpan, Set: pair, Outcome: outcome})
		}
	}
	return out
}

// PairsTold is what the recorded rounds of pairs tell of so many members, all of them present.
func PairsTold(group *state.Group, span *v1alpha1.SpanStatus, members int) []localize.Test {
	g := newMachine(Input{Group: group}, span)
	for i := range members {
		g.participants = append(g.participants, &participant{index: i, present: true})
	}
	return g.pairsHistory()
}
