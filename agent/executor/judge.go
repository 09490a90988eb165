package executor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// Evidence is all that a run found out; Judge needs nothing else.
type Evidence struct {
	Node string
	// Group that the run is of.
	Group types.NamespacedName
	Plan  api.RunPlan
	Ranks int
	// Prepared is what was known before the first communicator.
	Prepared
	// Host that the ranks ran on.
	Host HostFacts
	// Variants that were started, in order, each as often as it was repeated.
	Variants []VariantOutcome
	// Failure of the preconditions, of the probe or of the last variant.
	Failure *supervise.Failure
	// Search for a culprit, where there was one.
	Search *Search
}

// Judgement is what a run comes to.
type Judgement struct {
	Verdict  api.Verdict
	Reason   string
	Message  string
	Table    Table
	Settings []api.SettingStatus
	Links    *api.LinkProbe
	Culprits []api.Culprit
	// Checks against thresholds and references, the worst first; none where not everything was measured.
	Checks []api.PerformanceCheck
}

const maxCulprits = 8

// Judge holds the evidence against the plan. The first of these that applies gives the reason: a failure of the ranks,
// wrong data, slow links, thresholds, unmet requirements, missing data; where none does, the run passed.
func Judge(e Evidence) Judgement {
	table := Tabulate(e.Variants, e.Ranks, allRanks(e.Ranks))
	j := Judgement{Table: table}
	if e.Library != nil {
		j.Settings = JudgeSettings(*e.Library, e.Plan, table)
	}
	pairs := baselinePairs(e.Variants)
	links := JudgeLinks(e.Node, pairs, e.PCI, e.Plan.LinkMinPercent)
	j.Links = links.Probe

	switch {
	case table.Wrong != nil:
		j.wrongData(e, *table.Wrong)
	case e.Failure != nil:
		j.failed(e)
	default:
		j.measured(e, table, pairs, links)
	}
	j.Culprits = j.Culprits[:min(len(j.Culprits), maxCulprits)]
	j.Message = clip.Head(j.Message, 1024)
	return j
}

func (j *Judgement) set(v api.Verdict, reason, message string) {
	j.Verdict, j.Reason, j.Message = v, reason, message
}

// failed judges ranks that did not do their work.
func (j *Judgement) failed(e Evidence) {
	f := e.Failure
	j.Verdict, j.Reason = verdictOf(*f)
	j.Message = f.Message
	switch {
	case f.Kind == supervise.FailInterrupted:
		j.Message += "; the spec may have changed, or the pod was evicted: where no new one has started, " +
			api.AskRun(e.Group.Namespace, e.Group.Name)
	case e.Ranks > 1 && lacksLibrary(*f):
		j.Message = clip.Head(j.Message, 900) +
			fmt.Sprintf("; all %d ranks load it by the same path, so no GPU is to blame", e.Ranks)
	}
	if j.Verdict == api.VerdictFail {
		j.blame(e)
	}
	if f.RAS != "" {
		j.Message = clip.Head(j.Message, 800) + "; " + clip.Head(f.RAS, 200)
	}
}

// blame names the culprit of a failure: what the search found, else the one rank that died, reported or stayed behind.
func (j *Judgement) blame(e Evidence) {
	f := e.Failure
	if e.Search != nil {
		j.Culprits = e.Search.culprits(e.Node, j.Reason, e.PCI)
		j.addSearch(e.Search)
		if len(j.Culprits) > 0 {
			return
		}
	}
	for _, r := range f.Stopped { // from outside: no GPU is to blame
		j.Culprits = append(j.Culprits, rankCulprit(e.Node, r, j.Reason, f.Message))
	}
	// RAS's word is a hint, which stands in the message
	if len(f.Stopped) > 0 || f.Rank < 0 || f.Rank >= e.Ranks || f.ByRAS {
		return
	}
	if f.Killed {
		// SIGKILL comes from outside (memory limit, a user): no GPU is to blame.
		j.Culprits = []api.Culprit{rankCulprit(e.Node, f.Rank, j.Reason, f.Message)}
		return
	}
	name := gpuName(f.Rank, e.PCI)
	j.Culprits = []api.Culprit{{Node: e.Node, Kind: "GPU", Name: name, Reason: j.Reason, Message: clip.Head(fmt.Sprintf(
		"%s; drain the node, then look at the log tail, dmesg and the RAS error counters of GPU %s",
		f.Message, name), 512)}}
}

func rankCulprit(node string, r int, reason, message string) api.Culprit {
	return api.Culprit{Node: node, Kind: "Rank", Name: fmt.Sprintf("rank %d", r), Reason: reason,
		Message: clip.Head(message, 512)}
}

// addSearch puts what a search came to in front of the message, since the culprit is what a reader needs first.
func (j *Judgement) addSearch(s *Search) {
	if len(j.Culprits) > 0 {
		names := make([]string, 0, len(j.Culprits))
		for _, c := range j.Culprits {
			names = append(names, c.Kind+" "+c.Name)
		}
		j.Message = fmt.Sprintf("%s is at fault (%s): %s", strings.Join(names, ", "), s.why(), j.Message)
		return
	}
	text := "search for the culprit inconclusive: " + s.why()
	if suspects := s.suspects(); suspects != "" {
		text += ": " + suspects
	}
	j.Message = clip.Head(j.Message, 640) + "; " + text
}

func (j *Judgement) wrongData(e Evidence, w Measured) {
	j.set(api.VerdictFail, api.ReasonWrongData,
		fmt.Sprintf("node %s: %s gave %d wrong elements over all ranks, expected none; do not run jobs on this node",
			e.Node, w, w.Cell.UnexplainedElements))
	if n := w.Cell.unwritten(); n > 0 {
		j.Message += fmt.Sprintf("; %d of them were never written by the library, which reported no error", n)
	}
	if w.Cell.Hazard != "" {
		j.Message += "; they begin before what FP8 is known to lose at this count"
	}
	if e.Failure != nil {
		j.Message += "; then " + e.Failure.Message
	}
	if e.Search != nil {
		j.Culprits = e.Search.culprits(e.Node, api.ReasonWrongData, e.PCI)
		j.addSearch(e.Search)
	}
}

// measured judges a run in which every rank did its work and every checked element was right.
func (j *Judgement) measured(e Evidence, table Table, pairs []PairBandwidth, links LinkFindings) {
	j.Checks = judgeChecks(e, table, links, j.Settings)
	limitPPM := e.Plan.LowPrecision.MaxRelativeErrorPPM
	if s, c, ok := worstPrecision(table); ok && limitPPM > 0 && c.MaxRelativeErrorPPM() > limitPPM {
		j.set(api.VerdictFail, api.ReasonWrongData, fmt.Sprintf(
			"node %s: FP8 %s %s %d B differs from the fp32 reference by %s, expected at most %s; "+
				"raise lowPrecision.maxRelativeErrorPPM if your model bears it, else leave the collective out of "+
				"lowPrecision.collectives",
			e.Node, s.Key.Collective, s.Key.Datatype, c.SizeBytes, units.Percent(c.MaxRelativeErrorPPM()),
			units.Percent(limitPPM)))
		return
	}
	if len(links.Culprits) > 0 {
		worst := links.Culprits[0]
		j.Culprits = links.Culprits
		more := ""
		if n := len(links.Culprits) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		j.set(api.VerdictFail, worst.Reason,
			fmt.Sprintf("node %s: %s %s: %s%s", e.Node, worst.Kind, worst.Name, links.Seen, more))
		return
	}
	below, unmeasured := checks.Of(j.Checks)
	if len(below) > 0 {
		j.set(api.VerdictFail, api.ReasonBelowThreshold, fmt.Sprintf("node %s: %s", e.Node, explain.Checks(below)))
		return
	}
	if unmet := Unmet(e.Plan, j.Settings, table.DataErrors()); len(unmet) > 0 {
		j.set(api.VerdictFail, api.ReasonRequirementNotMet,
			fmt.Sprintf("node %s: %s", e.Node, strings.Join(unmet, "; ")))
		return
	}
	missing := missingData(e, table, pairs)
	if len(unmeasured) > 0 {
		missing = append(missing, explain.Checks(unmeasured))
	}
	if len(missing) > 0 {
		j.set(api.VerdictInconclusive, api.ReasonInconclusive,
			fmt.Sprintf("node %s: %s", e.Node, strings.Join(missing, "; ")))
		return
	}
	j.set(api.VerdictPass, api.ReasonAllPassed, summary(e, table, j.Settings))
}

func worstPrecision(t Table) (Series, Cell, bool) {
	var series Series
	var cell Cell
	found := false
	for _, s := range t.Series {
		if s.Key.Variant != rcclx.LowPrecision {
			continue
		}
		for _, c := range s.Cells {
			if c.Hazard == "" && (!found || c.MaxRelativeErrorPPM() > cell.MaxRelativeErrorPPM()) {
				series, cell, found = s, c, true
			}
		}
	}
	return series, cell, found
}

// missingData says what the plan asked for and no rank, or not every rank, delivered.
func missingData(e Evidence, t Table, pairs []PairBandwidth) []string {
	var out []string
	if e.Library == nil {
		out = append(out, "no rank said which library it loaded")
	}
	plan := Plan(e.Plan, e.Ranks)
	var steps []rank.Step
	for _, v := range plan {
		steps = append(steps, v.Steps...)
	}
	if slices.ContainsFunc(steps, func(s rank.Step) bool { return s.Kind == rank.StepPairProbe }) {
		if n := missingPairs(pairs, e.Ranks); n > 0 {
			out = append(out, fmt.Sprintf("%d pairs of GPUs were not measured by %s", n, pairStep))
		}
	}
	if !slices.ContainsFunc(steps, func(s rank.Step) bool { return s.Kind == rank.StepMeasure }) {
		out = append(out,
			"the plan holds nothing to measure: add a collective with the placements asked for, or a larger size")
	}
	return append(out, t.missing(plan, repeatsOf(e.Plan.Repeats))...)
}

// summary is the message of a run that passed: the largest measured size of the first Baseline series.
func summary(e Evidence, t Table, settings []api.SettingStatus) string {
	text := fmt.Sprintf("%d ranks passed", t.Ranks)
	for _, s := range t.Series {
		if s.Key.Variant == rcclx.Baseline && len(s.Cells) > 0 {
			c := s.Cells[len(s.Cells)-1]
			text = fmt.Sprintf("%s; Baseline %s %s %s: bus bandwidth %s", text, s.Key.Collective, s.Key.Datatype,
				units.Size(c.SizeBytes), units.Bandwidth(c.BusBandwidthMBps(s.Key.Collective, t.Ranks)))
			break
		}
	}
	confirmed, asked, lossy := 0, 0, 0
	for _, s := range settings {
		if strings.HasPrefix(s.Name, rcclx.PrefixDDA) || strings.HasPrefix(s.Name, rcclx.PrefixLowPrecision) {
			if s.Requested != string(api.FeatureDisabled) {
				asked++
			}
			if s.Verified == api.VerifiedConfirmed {
				confirmed++
			}
			if s.Usable == api.ResultsNotUsable {
				lossy++
			}
		}
	}
	if asked > 0 {
		text += fmt.Sprintf("; %d of %d requested settings confirmed", confirmed, asked)
	}
	if lossy > 0 {
		text += fmt.Sprintf("; the results of %d are not usable", lossy)
	}
	if warnings := notMet(e.Preconditions); len(warnings) > 0 {
		names := make([]string, 0, len(warnings))
		for _, w := range warnings {
			if !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
		text += "; preconditions to look at: " + strings.Join(names, ", ")
	}
	if e.Library != nil && e.Library.Flavor == rcclx.FlavorSimulated {
		text += "; simulated, not measured on hardware"
	}
	return text
}
