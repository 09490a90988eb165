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
	always, often := k.indexes(k.named.without(k.often)), k.indexes(k.often)
	for _, c := range []struct {
		words string
		nodes Set
	}{{"bad in every smaller test, with good partners: member %s", always}, {"bad with several others that are good without it, and good in other tests: member %s", often}} {
		if len(c.nodes) > 0 {
			clauses = append(clauses, fmt.Sprintf(c.words, list(len(c.nodes), func(at int) string { return fmt.Sprint(c.nodes[at]) })))
		}
	}
	if len(finding.Pairs) > 0 {
		clauses = append(clauses, fmt.Sprintf("bad together each time, each good with others: members %s", list(len(finding.Pairs), func(at int) string {
			return fmt.Sprintf("%d and %d", finding.Pairs[at][0], finding.Pairs[at][1])
		})))
	}
	if bound != "" {
		clauses = append(clauses, bound)
	}
	if k.goods == 0 && k.tests > 0 {
		clauses = append(clauses, k.noneGood(finding))
	}
	if len(finding.Suspects) > 0 {
		clauses = append(clauses, k.suspectWords(finding))
	}
	if !k.whole.bad && len(clauses) == 0 {
		clauses = append(clauses, "all smaller tests of those that are left were good: what is bad may have left")
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
	default:
		return fmt.Sprintf("could not be told apart, or could not be tested: members %s", set)
	}
}

func (k *knowledge) allCleared(set Set) bool {
	positions, _ := k.positions(set)
	return positions.within(k.cleared)
}

// noneGood says so of all tests, and what speaks for it that all members share the fault.
func (k *knowledge) noneGood(finding *Finding) string {
	text := fmt.Sprintf("none of %d smaller tests in %d rounds was good", k.tests, k.rounds)
	switch pairs := k.badPairs(); {
	case finding.State == NotFound && pairs >= commonPairs:
		return text + fmt.Sprintf(", %d of them of two members: look for what all members share (settings, library, driver, a switch), not for one node", pairs)
	case pairs > 0:
		return text + fmt.Sprintf(", %d of them of two members: many members are bad, or what they share is", pairs)
	}
	return text
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
