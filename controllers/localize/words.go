package localize

import (
	"fmt"
	"strings"
)

const (
	// namesInWords is how many culprits the sentence names; the rest is counted.
	namesInWords = 8
	// maxWords is the longest sentence, in bytes: what the API keeps. A clause that does not fit is left out.
	maxWords = 512
)

// words say in one sentence what was seen. bound says what ended the search before its end, or is empty.
func (k *knowledge) words(finding *Finding, bound string) string {
	var clauses []string
	if len(finding.Nodes) > 0 {
		clauses = append(clauses, fmt.Sprintf("bad in every smaller test, with good partners: member %s", list(len(finding.Nodes), func(at int) string {
			return fmt.Sprint(finding.Nodes[at])
		})))
	}
	if len(finding.Pairs) > 0 {
		clauses = append(clauses, fmt.Sprintf("bad only together, each good with others: members %s", list(len(finding.Pairs), func(at int) string {
			return fmt.Sprintf("%d and %d", finding.Pairs[at][0], finding.Pairs[at][1])
		})))
	}
	if bound != "" {
		clauses = append(clauses, bound)
	}
	if len(finding.Suspects) > 0 {
		clauses = append(clauses, k.suspectWords(finding))
	}
	if k.contradictions > 0 {
		clauses = append(clauses, fmt.Sprintf("%d bad tests lie in good ones, so something comes and goes", k.contradictions))
	}
	text := ""
	for at, clause := range clauses {
		if at > 0 {
			clause = "; " + clause
		}
		if len(text)+len(clause) <= maxWords {
			text += clause
		}
	}
	return text
}

func (k *knowledge) suspectWords(finding *Finding) string {
	set := finding.Suspects.String()
	if len(set) > 120 {
		set = fmt.Sprintf("%d to %d, %d of them", finding.Suspects[0], finding.Suspects[len(finding.Suspects)-1], len(finding.Suspects))
	}
	switch {
	case len(k.members) == 2:
		return fmt.Sprintf("only members %s are there: a third is needed to tell which of them it is, or whether it is the link between them", set)
	case finding.State == OutOfBounds:
		return fmt.Sprintf("not told apart yet: members %s", set)
	case len(finding.Nodes)+len(finding.Pairs) == 0 && k.allCleared(finding.Suspects):
		return fmt.Sprintf("the smallest sets that are bad lie in members %s, and all smaller tests of each were good: it comes and goes, or shows at this size only", set)
	case k.cleared.count() == 0:
		return fmt.Sprintf("members %s: no two of them are good together, so that no good partner is there to tell them apart", set)
	default:
		return fmt.Sprintf("could not be told apart, or could not be tested: members %s", set)
	}
}

func (k *knowledge) allCleared(set Set) bool {
	positions, _ := k.positions(set)
	return positions.within(k.cleared)
}

func (k *knowledge) commonWords() string {
	return fmt.Sprintf("none of %d smaller tests in %d rounds was good: look for what all members share (settings, library, driver, a switch), not for one node", k.tests, k.rounds)
}

func list(count int, name func(at int) string) string {
	names := make([]string, 0, namesInWords)
	for at := range min(count, namesInWords) {
		names = append(names, name(at))
	}
	text := strings.Join(names, ", ")
	if count > namesInWords {
		text += fmt.Sprintf(" and %d more", count-namesInWords)
	}
	return text
}
