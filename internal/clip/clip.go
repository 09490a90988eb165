// Package clip shortens text to a number of bytes, without splitting a character.
package clip

import "strings"

// Head keeps the beginning of s, in at most limit bytes with the mark of what is missing.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "..."
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}

// Tail keeps the end of s, in at most limit bytes.
func Tail(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-limit:], "")
}
