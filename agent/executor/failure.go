package executor

import (
	"slices"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// libraryCodes are errors that lie in the library's file, which all ranks of a pod load by one path.
var libraryCodes = []string{rank.CodeLibraryMissing, rank.CodeLibraryTooOld, rank.CodeSymbolMissing}

// ownCodes are errors of a rank that no other rank can be the cause of. They keep it from measuring anything, so that
// they are no result; the other codes are.
var ownCodes = append([]string{rank.CodePreconditionFailed, rank.CodeInsufficientMemory}, libraryCodes...)

// lacksLibrary says whether a rank could not use the library's file.
func lacksLibrary(f supervise.Failure) bool {
	return f.Kind == supervise.FailRankError && slices.Contains(libraryCodes, f.Code)
}

// hasOwnError says whether a rank failed by an error that no other rank can be the cause of.
func hasOwnError(f supervise.Failure) bool {
	return f.Kind == supervise.FailRankError && slices.Contains(ownCodes, f.Code)
}

// verdictOf turns a failure into a verdict and its reason.
func verdictOf(f supervise.Failure) (api.Verdict, string) {
	switch f.Kind {
	case supervise.FailInterrupted:
		return api.VerdictError, api.ReasonInterrupted
	case supervise.FailRunDeadline:
		return api.VerdictError, api.ReasonRunDeadlineExceeded
	case supervise.FailStart:
		return api.VerdictError, api.ReasonPreconditionFailed
	case supervise.FailDied:
		return api.VerdictFail, api.ReasonRankDied
	case supervise.FailHung:
		return api.VerdictFail, api.ReasonRankHung
	case supervise.FailRankError:
		switch {
		case hasOwnError(f):
			return api.VerdictError, f.Code
		case f.Code == rank.CodeInitFailed:
			return api.VerdictFail, api.ReasonInitFailed
		case f.Code == rank.CodeCollectiveFailed:
			return api.VerdictFail, api.ReasonCollectiveFailed
		}
	}
	return api.VerdictError, api.ReasonRunPodFailed
}

// longestInit is the longest time that one of the ranks took to join; nil where none did.
func longestInit(ranks []supervise.RankOutcome) *int64 {
	var longest time.Duration
	for _, r := range ranks {
		longest = max(longest, r.InitDuration)
	}
	if longest == 0 {
		return nil
	}
	n := longest.Nanoseconds()
	return &n
}
