package compat

import (
	"strconv"
	"strings"
)

// maxVersionBytes bounds what is taken for a version; longer texts are none.
const maxVersionBytes = 64

// Version is a release of ROCm or of the amdgpu module: its leading numbers, at most four. Numbers that the text does
// not have are not known, which is not zero: "6" may be 6.0 or 6.4.
type Version struct {
	parts [4]int
	count int
}

// ParseVersion reads "7.0.2", "6.4.1-83", "10.0.0", "7.10.0a20251006" or "7.12.0.dev0+1a2b3c4d": a number, up to three
// more after points, and then nothing, or a letter, ".dev", ".post", "-", "+" or "~" with anything behind. ok is false
// for any other text.
func ParseVersion(text string) (v Version, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxVersionBytes {
		return Version{}, false
	}
	for rest := text; ; {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > 1<<30 || v.count == len(v.parts) {
			return Version{}, false
		}
		v.parts[v.count], v.count = n, v.count+1
		switch rest = rest[digits:]; {
		case rest == "", strings.HasPrefix(rest, ".dev"), strings.HasPrefix(rest, ".post"):
			return v, true
		case rest[0] == '.':
			rest = rest[1:]
		case rest[0] == '-', rest[0] == '+', rest[0] == '~', rest[0] >= 'a' && rest[0] <= 'z':
			return v, true
		default:
			return Version{}, false
		}
	}
}

// version is a version of this package's own tables.
func version(parts ...int) Version {
	v := Version{count: len(parts)}
	copy(v.parts[:], parts)
	return v
}

// String is the version's numbers, without a build's name.
func (v Version) String() string {
	texts := make([]string, v.count)
	for i := range texts {
		texts[i] = strconv.Itoa(v.parts[i])
	}
	return strings.Join(texts, ".")
}

// compare is -1, 0 or 1 by the numbers that both have.
func (v Version) compare(w Version) int {
	for i := range min(v.count, w.count) {
		switch {
		case v.parts[i] < w.parts[i]:
			return -1
		case v.parts[i] > w.parts[i]:
			return 1
		}
	}
	return 0
}

// Less says whether v is certainly older than w. A w of two numbers stands for its first release: 7.0 is not older than
// 7.0, and 7.0.2 is not older than 7.0.
func (v Version) Less(w Version) bool {
	return v.compare(w) < 0
}

// reaches says whether v is certainly w or newer; "7" may be older than 7.0.1, and 7.0.1 is 7.0 or newer.
func (v Version) reaches(w Version) bool {
	order := v.compare(w)
	return order > 0 || order == 0 && v.count >= w.count
}

// release is the version's major and minor number, which name a release; ok is false where the minor is not known.
func (v Version) release() (r Version, ok bool) {
	if v.count < 2 {
		return Version{}, false
	}
	return version(v.parts[0], v.parts[1]), true
}
