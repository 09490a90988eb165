package stage

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/internal/units"
)

// Outcome is the group's stage as one more outcome beside those of so many nodes: it decides with them.
func Outcome(spec *v1alpha1.CommGroupSpec, run *v1alpha1.GroupRunStatus, span *v1alpha1.SpanStatus,
	nodes int) *judge.Outcome {
	if run == nil || spec.Span != v1alpha1.SpanGroup && (span == nil || span.RunID != run.ID) {
		return nil
	}
	o := &judge.Outcome{Node: "the group", Phase: judge.Done}
	switch {
	case span == nil || span.RunID != run.ID || span.Stage != v1alpha1.StageEnded || span.Verdict == "":
		// No result is never a pass.
		o.Reason, o.Message = v1alpha1.ReasonInconclusive,
			fmt.Sprintf("Run %s has no result over several nodes.", run.ID)
	case span.Verdict == v1alpha1.VerdictPass && int(span.Members) < nodes:
		// A node's result may have come, or come again, after the members were fixed.
		o.Verdict, o.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
		o.Message = fmt.Sprintf("The communicator of run %s was over %d of its %d nodes: the others had no result "+
			"when it was formed. A new run takes them in: kubectl commgroup run.", run.ID, span.Members, nodes)
	default:
		// Whoever tells of it has named the group.
		o.Verdict, o.Reason, o.Message = span.Verdict, span.Reason, units.Unnamed(span.Message, judge.DimensionGroup)
		o.Culprits, o.SpeedNotJudged = span.Culprits, span.SpeedNotJudged
	}
	return o
}

// WithSpan adds the group's stage to the nodes' outcomes.
func WithSpan(outcomes []judge.Outcome, spec *v1alpha1.CommGroupSpec, run *v1alpha1.GroupRunStatus,
	span *v1alpha1.SpanStatus) []judge.Outcome {
	o := Outcome(spec, run, span, len(outcomes))
	if o == nil {
		return outcomes
	}
	return append(slices.Clip(outcomes), *o)
}

// Progress says in a few words where the group's stage is, for the condition Running.
func Progress(span *v1alpha1.SpanStatus) string {
	if span == nil || span.Stage == v1alpha1.StageNodes || span.Stage == v1alpha1.StageEnded {
		return ""
	}
	text := fmt.Sprintf(" Stage %s: %d of %d members", span.Stage, span.Present, span.Members)
	open := 0
	for i := range span.Tests {
		if span.Tests[i].Verdict == "" {
			open++
		}
	}
	if l := span.Localization; l != nil && span.Stage == v1alpha1.StageLocalizing {
		text += fmt.Sprintf(", round %d of at most %d, %s of %s made",
			l.Rounds, l.MaxRounds, units.Counted(int(l.Tests), "test"), l.Step)
	} else if open > 0 {
		text += ", test " + span.Tests[len(span.Tests)-1].ID
	}
	if span.Stage == v1alpha1.StageWaitingForMembers && span.StageDeadline != nil {
		text += ", until " + span.StageDeadline.UTC().Format("15:04:05") + " UTC"
	}
	return text + "."
}
