package rcclx

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ownVariable and loads are the rules of spec.runtime.env (api/v1alpha1): an object from before a rule is as it was
// written.
var (
	ownVariable = regexp.MustCompile(`^(NCCL|RCCL|HSA|HIP)_[A-Z0-9_]+$`)
	loads       = []string{"NCCL_CONF_FILE", "NCCL_COMM_ID", "HSA_TOOLS_LIB", "HSA_HOSTCALL_LIB"}
)

// WhyNotPublishable says in half a sentence why a variable may not be in a file of settings; empty where it may. In
// rccl.conf each line is a variable: one with a line break in its value would set a second one, past all rules on
// names.
func WhyNotPublishable(e EnvVar) string {
	switch {
	case !ownVariable.MatchString(e.Name):
		return "is no NCCL_*, RCCL_*, HSA_* or HIP_* variable"
	case strings.HasSuffix(e.Name, "_PLUGIN") || slices.Contains(loads, e.Name):
		return "names what the library loads or where ranks meet"
	case strings.ContainsFunc(e.Value, breaksLine):
		return "has a line break or another control character in its value " + strconv.QuoteToASCII(head(e.Value, 40))
	}
	return ""
}

// OneLine is the text with a blank for each character that could end a line.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if breaksLine(r) {
			return ' '
		}
		return r
	}, text)
}

func breaksLine(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }

func head(text string, runes int) string {
	if all := []rune(text); len(all) > runes {
		return string(all[:runes]) + "..."
	}
	return text
}
