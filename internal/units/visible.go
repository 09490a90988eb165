package units

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Visible is text with each character shown by its code that is none to be seen, but for those of keep.
func Visible(text, keep string) string {
	plain := func(r rune, size int) bool {
		return unicode.IsGraphic(r) && (r != utf8.RuneError || size > 1) || strings.ContainsRune(keep, r) && size == 1
	}
	var out strings.Builder
	done := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if plain(r, size) {
			i += size
			continue
		}
		out.WriteString(text[done:i])
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&out, `\x%02x`, text[i]) // no character at all
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
		done = i
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}
