package stage

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/internal/localize"
)

// boundText says which of the planner's bounds ended a search before its end; empty where none did.
func boundText(e *localize.Evidence) string {
	switch e.Bound {
	case localize.BoundRounds:
		return fmt.Sprintf("the bound on rounds is reached (%d)", e.Rounds)
	case localize.BoundTests:
		return fmt.Sprintf("the bound on tests is reached (%d)", e.Tests)
	}
	return ""
}

// findingText says in one sentence why a search named nobody; members are named by their indexes. bound says what ended
// it before its end, or is empty.
func findingText(f *localize.Finding, bound string) string {
	e := &f.Evidence
	var clauses []string
	if bound != "" {
		clauses = append(clauses, bound)
	}
	if e.Good == 0 && e.Tests > 0 {
		clauses = append(clauses, noneGoodText(e))
	}
	if len(f.Suspects) > 0 {
		clauses = append(clauses, suspectsText(f))
	}
	if !e.AllBad && len(clauses) == 0 {
		clauses = append(clauses, "all smaller tests of those that are left were good: what is bad may have left")
	}
	if e.Contradictions > 0 {
		clauses = append(clauses,
			fmt.Sprintf("%d bad tests lie in good ones, so something comes and goes", e.Contradictions))
	}
	return strings.Join(clauses, "; ")
}

func suspectsText(f *localize.Finding) string {
	set := f.Suspects.String()
	if len(set) > 120 {
		set = fmt.Sprintf("%d to %d, %d of them", f.Suspects[0], f.Suspects[len(f.Suspects)-1], len(f.Suspects))
	}
	switch {
	case f.Evidence.Among == 2:
		return fmt.Sprintf("only members %s are there: a third is needed to tell which of them it is, or whether it "+
			"is the link between them", set)
	case f.State == localize.OutOfBounds:
		return fmt.Sprintf("not told apart yet: members %s", set)
	case f.Evidence.SuspectsCleared:
		return fmt.Sprintf("the smallest sets that are bad lie in members %s, and all smaller tests of each were "+
			"good: it comes and goes, or shows at this size only", set)
	default:
		return fmt.Sprintf("could not be told apart, or could not be tested: members %s", set)
	}
}

// noneGoodText says so of all tests, and what speaks for it that all members share the fault.
func noneGoodText(e *localize.Evidence) string {
	text := fmt.Sprintf("none of %d smaller tests in %d rounds was good", e.Tests, e.Rounds)
	switch {
	case e.Shared:
		return text + fmt.Sprintf(", %d of them of two members: look for what all members share (settings, library, "+
			"driver, a switch), not for one node", e.BadPairs)
	case e.BadPairs > 0:
		return text +
			fmt.Sprintf(", %d of them of two members: many members are bad, or what they share is", e.BadPairs)
	}
	return text
}
