package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// Short names of the conditions in the table of pairs.
const (
	cReady     = v1alpha1.ConditionReady
	cAccepted  = v1alpha1.ConditionAccepted
	cAgents    = v1alpha1.ConditionAgentsReporting
	cFits      = v1alpha1.ConditionCompatible
	cRunning   = v1alpha1.ConditionRunning
	cValidated = v1alpha1.ConditionValidated
	cSettings  = v1alpha1.ConditionSettingsInEffect
	cPublished = v1alpha1.ConditionSettingsPublished
	cSimulated = v1alpha1.ConditionSimulated
)

type conditionPair struct{ a, b string }

// contradictoryPairs has every pair of conditions, in the order of conditionTypes, with the combinations of their
// statuses that cannot be: T, F, U of the first and then of the second. Unknown by a read that failed is of all
// conditions at once, and looked at apart.
var contradictoryPairs = map[conditionPair]string{
	// Ready is False with any of its parts, and True only with all of them.
	{cReady, cAccepted}:  "TF TU UF UU FU",
	{cReady, cAgents}:    "TF TU UF",
	{cReady, cFits}:      "TF TU UF",
	{cReady, cValidated}: "TF TU UF",
	{cReady, cRunning}:   "TU FU UU", // a run may repeat what passed; whether one goes on is always known
	{cReady, cSettings}:  "",
	{cReady, cPublished}: "",
	{cReady, cSimulated}: "",
	// Accepted is known from the spec and the nodes alone.
	{cAccepted, cAgents}:    "UT UF UU",
	{cAccepted, cFits}:      "UT UF UU",
	{cAccepted, cRunning}:   "UT UF UU TU FU",
	{cAccepted, cValidated}: "UT UF UU",
	{cAccepted, cSettings}:  "UT UF UU",
	{cAccepted, cPublished}: "UT UF UU",
	{cAccepted, cSimulated}: "UT UF UU",
	// Facts that are not there fit to nothing; but those that are there may already not fit.
	{cAgents, cFits}:         "FT UT",
	{cAgents, cRunning}:      "TU FU UU",
	{cAgents, cValidated}:    "", // a result outlives its node's silence
	{cAgents, cSettings}:     "",
	{cAgents, cPublished}:    "",
	{cAgents, cSimulated}:    "",
	{cFits, cRunning}:        "TU FU UU",
	{cFits, cValidated}:      "", // each node by itself may be good
	{cFits, cSettings}:       "",
	{cFits, cPublished}:      "",
	{cFits, cSimulated}:      "",
	{cRunning, cValidated}:   "UT UF UU",
	{cRunning, cSettings}:    "UT UF UU",
	{cRunning, cPublished}:   "UT UF UU",
	{cRunning, cSimulated}:   "UT UF UU",
	{cValidated, cSettings}:  "",
	{cValidated, cPublished}: "", // with a run that goes on; else see contradictions
	{cValidated, cSimulated}: "",
	{cSettings, cPublished}:  "",
	{cSettings, cSimulated}:  "",
	{cPublished, cSimulated}: "",
}

// contradictions names what contradicts itself in a status; empty where nothing does.
func contradictions(s *state.Status) string {
	letters, reasons := map[string]string{}, map[string]string{}
	failed := 0
	for _, kind := range commgroup.ConditionTypes {
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c == nil {
			return "condition " + kind + " is missing"
		}
		if c.Reason == "" || c.Message == "" {
			return fmt.Sprintf("condition %s says nothing: %+v", kind, c)
		}
		if c.Reason == v1alpha1.ReasonListFailed {
			failed++
		}
		letters[kind], reasons[kind] = string(c.Status[:1]), c.Reason
	}
	if failed == len(commgroup.ConditionTypes) {
		return ""
	}
	if failed > 0 {
		return fmt.Sprintf("only %d conditions tell of the read that failed", failed)
	}
	for pair, forbidden := range contradictoryPairs {
		if both := letters[pair.a] + letters[pair.b]; slices.Contains(strings.Fields(forbidden), both) {
			return fmt.Sprintf("%s (%s) and %s (%s) contradict each other: %s",
				pair.a, reasons[pair.a], pair.b, reasons[pair.b], both)
		}
	}
	ready := "T"
	for _, part := range []string{cAccepted, cAgents, cFits, cValidated} {
		if letters[part] == "F" {
			ready = "F"
		} else if letters[part] == "U" && ready == "T" {
			ready = "U"
		}
	}
	going := s.Run != nil && s.Run.Phase == v1alpha1.RunPhaseRunning
	passed := s.Run != nil && s.Run.Phase == v1alpha1.RunPhaseFinished && s.Run.Verdict == v1alpha1.VerdictPass
	switch {
	case letters[cReady] != ready:
		return fmt.Sprintf("Ready is %s, its parts say %s", letters[cReady], ready)
	case (letters[cRunning] == "T") != going:
		return fmt.Sprintf("Running is %s with run %+v", letters[cRunning], s.Run)
	case letters[cValidated] == "T" && !passed && (!going || !state.Repeats(s.Run)):
		return fmt.Sprintf("Validated with run %+v", s.Run)
	case going && letters[cValidated] == "F" && !runs.Partial(s.Run):
		return fmt.Sprintf("Validated is False (%s) while run %+v goes on", reasons[cValidated], s.Run)
	case (letters[cSimulated] == "T") != (s.Origin == v1alpha1.OriginSimulated):
		return fmt.Sprintf("Simulated is %s, origin %s", letters[cSimulated], s.Origin)
	case letters[cValidated] == "F" && letters[cPublished] == "T" && !going:
		return fmt.Sprintf("Validated is False (%s), and the settings are published as proven", reasons[cValidated])
	case letters[cPublished] == "T" && s.Published == nil:
		return "published, and nothing is"
	case s.Run != nil && (s.Run.Phase == v1alpha1.RunPhaseFinished) != (s.Run.Verdict != ""):
		return fmt.Sprintf("run %+v: a verdict is of a finished run, and each of them has one", s.Run)
	case s.Run != nil && (s.Run.Phase == v1alpha1.RunPhaseRunning) != (s.Run.FinishTime == nil):
		return fmt.Sprintf("run %+v has the wrong finish time", s.Run)
	}
	if span := s.Span; span != nil && s.Run != nil {
		switch {
		case span.RunID != s.Run.ID:
			return fmt.Sprintf("the group's stage is of run %s, the run is %s", span.RunID, s.Run.ID)
		// the other way round a node that was made anew may run alone once more
		case !going && span.Stage != v1alpha1.StageEnded:
			return fmt.Sprintf("run %+v with stage %s", s.Run, span.Stage)
		case (span.Stage == v1alpha1.StageEnded) != (span.Verdict != ""):
			return fmt.Sprintf("stage %s with verdict %q", span.Stage, span.Verdict)
		case span.Stage == v1alpha1.StageEnded &&
			slices.ContainsFunc(span.Tests, func(one v1alpha1.SpanTest) bool { return one.Verdict == "" }):
			return fmt.Sprintf("the stage has ended, and tests of it go on: %+v", span.Tests)
		case letters[cValidated] == "T" && !going && span.Verdict != v1alpha1.VerdictPass:
			return fmt.Sprintf("Validated, and the group's stage says %s (%s)", span.Verdict, span.Reason)
		}
	}
	return ""
}

// TestPairsAreComplete: the table has each pair of conditions once, and only combinations that there are.
func TestPairsAreComplete(t *testing.T) {
	n := 0
	for i, a := range commgroup.ConditionTypes {
		for j, b := range commgroup.ConditionTypes {
			_, there := contradictoryPairs[conditionPair{a, b}]
			_, turned := contradictoryPairs[conditionPair{b, a}]
			switch {
			case i == j:
			case !there && !turned:
				t.Errorf("%s and %s are missing", a, b)
			case there && turned:
				t.Errorf("%s and %s are there twice", a, b)
			case there:
				n++
			}
		}
	}
	if n != len(contradictoryPairs) {
		t.Errorf("%d rows, %d pairs", len(contradictoryPairs), n)
	}
	for pair, forbidden := range contradictoryPairs {
		for _, both := range strings.Fields(forbidden) {
			if len(both) != 2 || strings.Trim(both, "TFU") != "" {
				t.Errorf("%v: %q is no combination", pair, both)
			}
		}
	}
}
