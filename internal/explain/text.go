package explain

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
)

// NodesHave is "1 node has", or "4 nodes have".
func NodesHave(n int32) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}

var blanks = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ")

// OneLine is text for one line: names and what nodes report may hold line ends and characters that nobody sees.
func OneLine(text string) string { return units.Visible(blanks.Replace(text), "") }

// Names joins at most limit names and counts the rest.
func Names(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

// Sentence ends s with a full stop where it has none.
func Sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// Unnamed is what was seen on one node, for a text that has just named these nodes: without the name of the only one
// at its beginning.
func Unnamed(message string, named ...string) string {
	if len(named) != 1 {
		return message
	}
	return units.Unnamed(message, named[0])
}

// OfFirst is what was seen on the first of the nodes that a text has just named; of several it says which one that is.
func OfFirst(message string, names []string) string {
	message = units.Unnamed(message, names[0])
	if len(names) == 1 {
		return message
	}
	return "On " + names[0] + ": " + message
}
