package prometheus

import (
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/reasons"
)

// Sections of docs/reasons.md whose reasons are also the reason why a group is not Ready.
const (
	validated = "Condition Validated and node verdicts"
	stage     = "The group's stage (CommRun.status.span, span Group)"
	network   = "A node's network (CommTask.status.session.reason)"
	settings  = "Settings (CommRun.status.settings[].reason)"
)

// culpritReasons are verdicts Fail that name a node, a part of one, or what several share.
var culpritReasons = []string{
	"TransportFallback", "MixedSettings", "MixedLibraryVersions", "SlowLink", "SlowGPU", "SlowNode", "SlowPair",
	"SlowRail", "SlowCommunicator", "HangAcrossNodes", "WrongData",
	"RankHung", "RankDied", "InitFailed", "CollectiveFailed", "BelowThreshold", "Regression",
}

// failReasons are those of the verdict Fail.
var failReasons = append(slices.Clone(culpritReasons), "RequirementNotMet", "SlowGroup")

// errorReasons are those of the verdict Error: nothing was measured.
func errorReasons() []string {
	return append([]string{
		"RunPodNotStarted", "RunPodFailed", "LibraryMissing", "LibraryTooOld", "SymbolMissing", "PreconditionFailed",
		"InsufficientMemory", "NoGPUResource", "AgentNotReporting", "ListFailed",
		"RunDeadlineExceeded", "Interrupted", "MemberLost", "SessionIdle", "GroupStepFailed", "MixedAddressFamilies",
		"DuplicateAddress",
	}, toMend(network)...)
}

// toMend are the reasons of sections that a user has to do something about.
func toMend(sections ...string) []string {
	var out []string
	for _, s := range reasons.All() {
		if !slices.Contains(sections, s.Title) {
			continue
		}
		for _, e := range s.Entries {
			nothing := e.Next == "" || e.Next == "none" || strings.HasPrefix(e.Next, "none:") ||
				strings.HasPrefix(e.Next, "none;")
			if !nothing && !strings.HasPrefix(e.Seen, "event") && !slices.Contains(out, e.Reason) {
				out = append(out, e.Reason)
			}
		}
	}
	return out
}
