package reasons

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// imperative finds where a message goes over from what was seen to what to do: a clause that begins with such a verb.
// Behind a colon only the verbs count that are hardly ever nouns: "rank 3: read error" is no step.
var imperative = regexp.MustCompile(
	`(?i)[;.] +((?:check|look|drain|set|use|lower|raise|bring|reseat|mend|see|restart|power-cycle|compare|update|take|exclude|add|run|read|ask|wait|choose|pin|load|install|free|correct|pad|give|change|make|write|split)\b)|: +((?:look|see|drain|reseat|power-cycle|ask|choose)\b)`)

// noun tells "Run pod x was deleted" and "Run 1-2: Fail" from "run it again".
var noun = regexp.MustCompile(`(?i)^(?:run (?:pods?|\d+-\d+)|set of|use of|change of)\b`)

// Split splits a message into what was seen and the next step, which is empty where the message names none.
func Split(message string) (seen, next string) {
	for _, at := range imperative.FindAllStringSubmatchIndex(message, -1) {
		step := message[max(at[2], at[4]):]
		if at[0] > 0 && !noun.MatchString(step) {
			return strings.TrimRight(message[:at[0]], "; "), Sentence(step)
		}
	}
	return message, ""
}

// Sentence begins with a capital, unless its first word is a field's path such as network.requireTransport.
func Sentence(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.Contains(strings.TrimRight(first, ".:,"), ".") {
		return s
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}
