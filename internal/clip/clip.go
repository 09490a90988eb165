// Package clip shortens text to a number of bytes, without splitting a character. It is the only place that does.
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

// Sentences keeps whole sentences of s, or whole words, in at most limit bytes.
func Sentences(s string, limit int) string {
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	const mark = " ..."
	cut := strings.ToValidUTF8(s[:limit-len(mark)], "")
	if at := strings.LastIndex(cut, ". "); at > limit/2 {
		return cut[:at+1]
	}
	if at := strings.LastIndexByte(cut, ' '); at > 0 {
		cut = cut[:at]
	}
	return strings.TrimRight(cut, ",;: ") + mark
}
