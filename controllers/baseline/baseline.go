package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

const (
	// source of checks against the group's own baseline.
	source = "baseline"
	// maxSamples of a series, and maxSeries of them: the API takes more, but a status must stay small.
	maxSamples = 8
	maxSeries  = 64
	// minSamples of a series are enforced: of one or two runs nobody can say which is the odd one.
	minSamples = 3
	// MaxKey is how many bytes a key has at most.
	MaxKey        = 256
	slowestMember = ", slowest member"
)

// Input is what a finished run is held against the group's baseline with.
type Input struct {
	Group    *state.Group
	Run      *v1alpha1.GroupRunStatus
	Outcomes []judge.Outcome
	// Results over all members, and what was measured over several nodes.
	Results []v1alpha1.GroupResultSeries
	Span    []v1alpha1.SpanResultSeries
}

// Comparison is what the baseline says of a run.
type Comparison struct {
	// Key that the run measured under; empty with why where there is no one key.
	Key, why string
	// again: a user has the baseline begin with this run.
	anew bool
	// present are the run's own series, in the order of their worth.
	present []point
	Checks  []v1alpha1.PerformanceCheck
	// lost is the group as a whole, where it lost too much and that is enforced; nodes that lost are set to Fail
	// themselves.
	lost *judge.Outcome
}

// point is one series of a run at its largest size.
type point struct {
	name      string
	sizeBytes int64
	mbps      int64
	// key of the members' series, and whether this is their slowest one; nil for those over several nodes.
	key     *runplan.Key
	slowest bool
}

// Compare holds a finished run against what the runs before it showed under the same key. With regression.mode
// Enforce it sets nodes that lost too much to Fail, and gives the group's loss where it is not a few nodes'.
func Compare(in Input) Comparison {
	var c Comparison
	baseline := in.Group.Status.Baseline
	c.Key, c.why = runKey(in)
	if baseline != nil && keysAlike(baseline.Key, c.Key) {
		c.Key = fullerKey(baseline.Key, c.Key)
	}
	c.present = points(in.Results, in.Span)
	c.anew = beginsAnew(in.Group, in.Run)
	regression := in.Group.Spec.Benchmark.Regression
	mode := cmp.Or(regression.Mode, v1alpha1.JudgingReport)
	if mode == v1alpha1.JudgingOff || len(c.present) == 0 {
		return c
	}
	open := func(why string) {
		c.Checks = append(c.Checks, v1alpha1.PerformanceCheck{Source: source,
			Measurement: "no baseline to compare with", State: v1alpha1.CheckNotMeasured,
			Mode: v1alpha1.JudgingReport, Causes: []string{clip.Head(why, 200)}})
	}
	switch {
	case c.Key == "":
		open(c.why)
		return c
	case c.anew:
		open(fmt.Sprintf("the baseline begins anew with the first run from %s on that passes, as the annotation %s "+
			"asks", in.Group.Annotations[v1alpha1.AnnotationBaselineFrom], v1alpha1.AnnotationBaselineFrom))
		return c
	case baseline == nil || baseline.FirstRunID == in.Run.ID && baseline.Previous == "":
		open("this is the first run of the baseline")
		return c
	case baseline.FirstRunID == in.Run.ID:
		open("the baseline begins anew with this run; before: " + baseline.Previous)
		return c
	case !keysAlike(baseline.Key, c.Key):
		open("the baseline begins anew with this run; before: " + baseline.Key)
		return c
	}
	drop := int64(cmp.Or(regression.MaxDropPercent, defaultMaxDropPercent))
	var lost []regressed
	var unseen []string
	for _, p := range c.present {
		samples, best := earlierSamples(baseline, in.Run.ID, p)
		expected := max(best, judge.Median(slices.Clone(samples)))
		if expected <= 0 {
			unseen = append(unseen, fmt.Sprintf("%s at %s", p.name, units.Size(p.sizeBytes)))
			continue
		}
		r := regressed{point: p, expected: expected, pass: (expected*(100-drop) + 99) / 100, runs: len(samples),
			best: best > judge.Median(slices.Clone(samples))}
		check := r.check(mode)
		if len(samples) < minSamples {
			check = r.check(v1alpha1.JudgingReport)
		}
		if p.mbps < r.pass {
			if len(samples) >= minSamples || mode != v1alpha1.JudgingEnforce {
				lost = append(lost, r)
			} else {
				check.Causes = append(check.Causes, fmt.Sprintf("nothing yet: %s; from %d on it is enforced",
					units.Counted(len(samples), "earlier run"), minSamples))
			}
			check.Causes = append(check.Causes, "compare what changed with the time of the last good run: "+
				"node problems, clocks, power cap, cables, neighbours on the network")
			if why := unknownParts(c.Key); why != "" {
				check.Causes = append(check.Causes,
					clip.Head(fmt.Sprintf("not known: %s; taken to be as in the runs before", why), 200))
			}
		}
		c.Checks = append(c.Checks, check)
	}
	if len(unseen) > 0 {
		open("no earlier run measured this under the baseline's key: " + explain.Names(unseen, 2))
	}
	if len(lost) > 0 {
		c.blame(in, mode, drop, lost)
	}
	c.Checks = checks.Worst(c.Checks)
	return c
}

// defaultMaxDropPercent is the API's default.
const defaultMaxDropPercent = 10

// regressed is a series with what the baseline says of it, in MB/s.
type regressed struct {
	point
	expected, pass int64
	runs           int
	// best: what is expected is the best level of the baseline, above that of the last runs.
	best bool
}

func (r *regressed) percent() int64 { return r.mbps * 100 / r.expected }

func (r *regressed) words(drop int64) string {
	return fmt.Sprintf("%s at %s: measured %s, %s is %s: %d %%, at least %d %% is expected",
		r.name, units.Size(r.sizeBytes), units.Bandwidth(r.mbps),
		r.level("the baseline of %s", "the baseline's best level"), units.Bandwidth(r.expected), r.percent(), 100-drop)
}

// level says which figure is expected: that of the last runs, or a better one of before.
func (r *regressed) level(ofRuns, best string) string {
	if r.best {
		return best
	}
	return fmt.Sprintf(ofRuns, units.Counted(r.runs, "run"))
}

func (r *regressed) check(mode v1alpha1.JudgingMode) v1alpha1.PerformanceCheck {
	percent := int32(min(r.percent(), 1_000_000))
	mbps, expected := r.mbps, r.expected
	check := v1alpha1.PerformanceCheck{Source: source, Measurement: clip.Head(fmt.Sprintf("%s %d B, %s",
		r.name, r.sizeBytes, r.level("median of %s", "best median since the baseline began")), 160),
		State: v1alpha1.CheckMet, Mode: mode, MeasuredMBps: &mbps, ExpectedMBps: &expected, Percent: &percent}
	if r.mbps < r.pass {
		check.State = v1alpha1.CheckNotMet
	}
	return check
}

// blame says who lost: a few nodes, which then fail by themselves, or the group. The nodes are those that are now
// slower than the slowest member was in the runs before, in any of the series. Where the members' median is still too
// low without them, the others lost as well, and the slowest ones are only the slowest.
func (c *Comparison) blame(in Input, mode v1alpha1.JudgingMode, drop int64, series []regressed) {
	nodes := 0 // that have results
	lost := map[int]regressed{}
	for i := range in.Outcomes {
		if len(in.Outcomes[i].Figures) == 0 {
			continue
		}
		nodes++
		for _, r := range series {
			r.mbps = figureOf(&in.Outcomes[i], &r)
			if before, seen := lost[i]; r.slowest && r.mbps > 0 && r.mbps < r.pass &&
				(!seen || r.percent() < before.percent()) {
				lost[i] = r
			}
		}
	}
	few := len(lost) > 0 && (len(lost)*2 <= nodes || nodes == 1) &&
		!slices.ContainsFunc(series, func(r regressed) bool { return r.lostWithout(lost, in.Outcomes) })
	if few && len(lost) == 1 {
		for i := range lost {
			c.named(in.Outcomes[i].Node)
		}
	}
	if mode != v1alpha1.JudgingEnforce {
		return
	}
	accept := fmt.Sprintf("If this is the new normal: `kubectl annotate commgroup %s -n %s --overwrite %s=%s`.",
		in.Group.Name, in.Group.Namespace, v1alpha1.AnnotationBaselineFrom, in.Run.ID)
	if few {
		for i, r := range lost {
			o := &in.Outcomes[i]
			if o.Verdict != v1alpha1.VerdictPass {
				continue // for a reason that weighs more
			}
			r.name = strings.TrimSuffix(r.name, slowestMember)
			o.Verdict, o.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonRegression
			o.Message = fmt.Sprintf("Node %s lost bandwidth, and %d of %d members did: %s, by the slowest member "+
				"then. Look at what changed on it since. %s", o.Node, len(lost), nodes, r.words(drop), accept)
			o.Culprits = []v1alpha1.Culprit{judge.NodeCulprit(o.Node, o.Reason, o.Message)}
		}
		return
	}
	ofAll := slices.DeleteFunc(slices.Clone(series), func(r regressed) bool { return r.slowest })
	if len(ofAll) == 0 {
		ofAll = series
	}
	worst := slices.MinFunc(ofAll, func(a, b regressed) int { return cmp.Compare(a.percent(), b.percent()) })
	who := "The group lost bandwidth as a whole, and no single member stands out"
	if len(lost) > 0 {
		are := "are"
		if len(lost) == 1 {
			are = "is"
		}
		who = fmt.Sprintf("The group lost bandwidth, and %d of %d members %s slower than the slowest one was",
			len(lost), nodes, are)
	}
	c.lost = &judge.Outcome{Node: "the group", Phase: judge.Done,
		Verdict: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonRegression,
		Message: fmt.Sprintf("%s: %s. Look at what all share: power, cooling, firmware, switches, other jobs. %s",
			who, worst.words(drop), accept)}
}

// lostWithout says of the members' median of a series whether it is still too low without those members; of a series
// over nodes, of which no member has numbers of its own, it is not.
func (r regressed) lostWithout(lost map[int]regressed, outcomes []judge.Outcome) bool {
	var rest []int64
	for i := range outcomes {
		if _, out := lost[i]; out {
			continue
		}
		if mbps := figureOf(&outcomes[i], &r); mbps > 0 {
			rest = append(rest, mbps)
		}
	}
	return len(rest) > 0 && judge.Median(rest) < r.pass
}

// named puts the one node that lost into the checks of the slowest member that were not met.
func (c *Comparison) named(node string) {
	for i := range c.Checks {
		if c.Checks[i].State == v1alpha1.CheckNotMet && strings.Contains(c.Checks[i].Measurement, slowestMember) {
			c.Checks[i].Node = node
		}
	}
}

// figureOf is the node's own bus bandwidth in a series at a size; zero where it has none.
func figureOf(o *judge.Outcome, r *regressed) int64 {
	if r.key == nil {
		return 0
	}
	for i := range o.Figures {
		s := &o.Figures[i]
		if runplan.KeyOf(s) != *r.key {
			continue
		}
		if k := slices.Index(s.SizeBytes, r.sizeBytes); k >= 0 && k < len(s.BusBandwidthMBps) {
			return s.BusBandwidthMBps[k]
		}
	}
	return 0
}

// earlierSamples are those of the runs before this one, at most so many that they are the same before and after the run
// was taken in itself: else its verdict could change by that. best is the highest median that a run was held against.
func earlierSamples(b *v1alpha1.BaselineStatus, runID string, p point) (samples []int64, best int64) {
	i := slices.IndexFunc(b.Series, func(s v1alpha1.BaselineSeries) bool {
		return s.Name == p.name && s.SizeBytes == p.sizeBytes
	})
	if i < 0 {
		return nil, 0
	}
	samples = b.Series[i].SamplesMBps
	if b.LastRunID == runID && len(samples) > 0 {
		samples = samples[:len(samples)-1]
	}
	return samples[max(0, len(samples)-(maxSamples-1)):], ptr.Deref(b.Series[i].BestMBps, 0)
}

// Missing says whether a baseline is asked for, and the run could be held against none; where a user has it begin
// again, none is missed.
func (c *Comparison) Missing() bool {
	return !c.anew && len(c.Checks) > 0 && !slices.ContainsFunc(c.Checks, func(check v1alpha1.PerformanceCheck) bool {
		return check.State != v1alpha1.CheckNotMeasured
	})
}

// With adds the group's loss to the outcomes that a verdict is made of.
func (c *Comparison) With(outcomes []judge.Outcome) []judge.Outcome {
	if c.lost == nil {
		return outcomes
	}
	return append(slices.Clip(outcomes), *c.lost)
}

// Next is the baseline with this run in it, once, where it passed and measured every member; else the baseline as it
// was.
func (c *Comparison) Next(old *v1alpha1.BaselineStatus, run *v1alpha1.GroupRunStatus) *v1alpha1.BaselineStatus {
	if run == nil || run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictPass ||
		runs.Partial(run) && !c.anew || c.Key == "" || len(c.present) == 0 || run.FinishTime == nil {
		return old
	}
	if old != nil && old.LastRunID == run.ID && !c.anew {
		return old
	}
	b := &v1alpha1.BaselineStatus{Since: *run.FinishTime, FirstRunID: run.ID}
	switch {
	case old == nil:
	case c.anew:
		b.Previous = clip.Head(fmt.Sprintf("%s (until %s)",
			clip.Head(old.Key, MaxKey-80), v1alpha1.AnnotationBaselineFrom), MaxKey)
	case keysAlike(old.Key, c.Key):
		b = old.DeepCopy()
	default:
		b.Previous = old.Key
	}
	b.Key = c.Key
	b.Runs++
	b.LastRunID = run.ID
	// What this run measured stands first, so that series that nobody measures any more are the first to fall out.
	measured := make([]v1alpha1.BaselineSeries, 0, len(b.Series)+len(c.present))
	for _, p := range c.present {
		s := v1alpha1.BaselineSeries{Name: p.name, SizeBytes: p.sizeBytes}
		if i := slices.IndexFunc(b.Series, func(s v1alpha1.BaselineSeries) bool {
			return s.Name == p.name && s.SizeBytes == p.sizeBytes
		}); i >= 0 {
			s = b.Series[i]
			b.Series = slices.Delete(b.Series, i, i+1)
		}
		// What this run itself was held against, so that its verdict stays as it is once it is taken in.
		if held := s.SamplesMBps[max(0, len(s.SamplesMBps)-(maxSamples-1)):]; len(held) >= minSamples {
			s.BestMBps = ptr.To(max(ptr.Deref(s.BestMBps, 0), judge.Median(slices.Clone(held))))
		}
		s.SamplesMBps = append(slices.Clone(s.SamplesMBps), p.mbps)
		s.SamplesMBps = s.SamplesMBps[max(0, len(s.SamplesMBps)-maxSamples):]
		measured = append(measured, s)
	}
	b.Series = append(measured, b.Series...)
	b.Series = b.Series[:min(len(b.Series), maxSeries)]
	return b
}

// points are the series of a run at their largest sizes: Baseline's medians, what was measured over several nodes,
// the slowest members, then the variants' medians.
func points(results []v1alpha1.GroupResultSeries, span []v1alpha1.SpanResultSeries) []point {
	var medians, slowest, variants, nodes []point
	for i := range results {
		r := &results[i]
		last := min(len(r.SizeBytes), len(r.BusBandwidthMBps), len(r.MinBusBandwidthMBps)) - 1
		if last < 0 || r.BusBandwidthMBps[last] <= 0 {
			continue
		}
		key := runplan.Key{Variant: r.Variant, Collective: r.Collective, Datatype: r.Datatype, Placement: r.Placement}
		p := point{name: key.String(), sizeBytes: r.SizeBytes[last], mbps: r.BusBandwidthMBps[last], key: &key}
		if r.Variant != v1alpha1.VariantBaseline {
			variants = append(variants, p)
			continue
		}
		medians = append(medians, p)
		if low := r.MinBusBandwidthMBps[last]; low > 0 {
			p.name, p.mbps, p.slowest = p.name+slowestMember, low, true
			slowest = append(slowest, p)
		}
	}
	for i := range span {
		s := &span[i]
		last := min(len(s.SizeBytes), len(s.BusBandwidthMBps)) - 1
		if last < 0 || s.BusBandwidthMBps[last] <= 0 {
			continue
		}
		key := runplan.Key{Variant: "", Collective: s.Collective, Datatype: s.Datatype, Placement: s.Placement}
		if key.Placement == v1alpha1.OutOfPlace {
			key.Placement = ""
		}
		nodes = append(nodes, point{name: fmt.Sprintf("%s %s, %d ranks on %s",
			s.Dimension, key.Measurement(), s.Ranks, units.Counted(int(s.Nodes), "node")),
			sizeBytes: s.SizeBytes[last], mbps: s.BusBandwidthMBps[last]})
	}
	all := slices.Concat(medians, nodes, slowest, variants)
	return all[:min(len(all), maxSeries)]
}
