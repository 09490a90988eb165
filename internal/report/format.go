// Package report prints CommGroups and their members for users: the kubectl plugin and the demo share it. It shows
// units in each heading, says plainly where numbers are simulated, and prints "-" for what is not known, never zero.
package report

import (
	"regexp"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
)

// unknown stands for what nobody measured or reported.
const unknown = "-"

// byteCount is a number of bytes as logs and statuses have it, such as 16777216 B.
var byteCount = regexp.MustCompile(`\b([0-9]{4,18}) (B|bytes)\b`)

// Sizes is text with the sizes in it as users write them: 16 MiB for 16777216 B.
func Sizes(text string) string {
	return byteCount.ReplaceAllStringFunc(text, func(found string) string {
		count, _, _ := strings.Cut(found, " ")
		n, err := strconv.ParseInt(count, 10, 64)
		if size := units.Size(n); err == nil && !strings.HasSuffix(size, " B") {
			return size
		}
		return found
	})
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
