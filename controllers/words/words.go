package words

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
)

// Counted is a number with its word: "1 node", "4 nodes".
func Counted(n int, word string) string { return units.Counted(int64(n), word) }

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

// SomeNames joins at most limit names and counts the rest.
func SomeNames(names []string, limit int) string {
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

// Told is what was seen on one node, for a text that has just named these nodes: where the message begins with the name
// of the only one, that is not told again.
func Told(message string, named ...string) string {
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

// SortedKeys are the keys of a map in their order, so that what is made of it is the same each time.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// Shorten cuts s to at most limit bytes, at a character's boundary, with an ellipsis.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("...")
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "..."
}

// Clip keeps whole sentences of a message, or whole words, in at most so many bytes.
func Clip(message string, limit int) string {
	message = strings.TrimSpace(message)
	if len(message) <= limit {
		return message
	}
	cut := strings.TrimSuffix(Shorten(message, limit-len(" ")), "...")
	if at := strings.LastIndex(cut, ". "); at > limit/2 {
		return cut[:at+1]
	}
	if at := strings.LastIndexByte(cut, ' '); at > 0 {
		cut = cut[:at]
	}
	return strings.TrimRight(cut, ",;: ") + " ..."
}
