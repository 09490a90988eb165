package stage

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/localize"
)

// Each kind of finding without a culprit has its sentence, no longer than what the API keeps.
func TestFindingText(t *testing.T) {
	some, set := localize.Range(2, 6),
		func(s localize.Set, state localize.State, e localize.Evidence) localize.Finding {
			return localize.Finding{State: state, Suspects: s, Evidence: e}
		}
	for want, c := range map[string]struct {
		finding localize.Finding
		bound   string
	}{
		"only members 2-5 are there: a third is needed to tell which of them it is, or whether it is the " +
			"link between them": {
			finding: set(some, localize.NotFound, localize.Evidence{Among: 2, AllBad: true}),
		},
		"the bound on rounds is reached (3); not told apart yet: members 2-5": {
			finding: set(some, localize.OutOfBounds,
				localize.Evidence{Among: 16, Tests: 8, Rounds: 3, Good: 4, AllBad: true}),
			bound: boundText(&localize.Evidence{Bound: localize.BoundRounds, Rounds: 3, Tests: 8}),
		},
		"the bound on tests is reached (8); not told apart yet: members 2-5": {
			finding: set(some, localize.OutOfBounds,
				localize.Evidence{Among: 16, Tests: 8, Rounds: 3, Good: 4, AllBad: true}),
			bound: boundText(&localize.Evidence{Bound: localize.BoundTests, Rounds: 3, Tests: 8}),
		},
		"the smallest sets that are bad lie in members 2-5, and all smaller tests of each were good: it comes and " +
			"goes, or shows at this size only; 2 bad tests lie in good ones, so something comes and goes": {
			finding: set(some, localize.NotFound, localize.Evidence{Among: 16, Tests: 8, Good: 4, Contradictions: 2,
				AllBad: true, SuspectsCleared: true}),
		},
		"could not be told apart, or could not be tested: members 2-5": {
			finding: set(some, localize.NotFound, localize.Evidence{Among: 16, Tests: 8, Good: 4, AllBad: true}),
		},
		"none of 44 smaller tests in 4 rounds was good, 40 of them of two members: look for what all members share " +
			"(settings, library, driver, a switch), not for one node": {
			finding: set(nil, localize.NotFound,
				localize.Evidence{Among: 16, Tests: 44, Rounds: 4, BadPairs: 40, AllBad: true, Shared: true}),
		},
		"none of 9 smaller tests in 2 rounds was good, 1 of them of two members: many members are bad, " +
			"or what they share is": {
			finding: set(nil, localize.NotFound,
				localize.Evidence{Among: 16, Tests: 9, Rounds: 2, BadPairs: 1, AllBad: true}),
		},
		"none of 9 smaller tests in 2 rounds was good": {
			finding: set(nil, localize.NotFound, localize.Evidence{Among: 16, Tests: 9, Rounds: 2, AllBad: true}),
		},
		"all smaller tests of those that are left were good: what is bad may have left": {
			finding: set(nil, localize.NotFound, localize.Evidence{Among: 16, Tests: 9, Good: 9, Rounds: 2}),
		},
	} {
		if got := findingText(&c.finding, c.bound); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	var ragged localize.Set
	for index := range 400 {
		ragged = append(ragged, 2*index)
	}
	f := set(ragged, localize.OutOfBounds,
		localize.Evidence{Among: 800, Tests: 200, Rounds: 18, BadPairs: 40, AllBad: true})
	if got := findingText(&f, "the bound on tests is reached (200)"); len(got) > 512 ||
		!strings.Contains(got, "members 0 to 798, 400 of them") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
